"""A user's mistake on the load test's command line is answered by one line and an exit code, without a traceback."""

import os
import shlex
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pytest

from sluice.cli.main import main
from sluice.declaration import loading
from tests.support.project import PROJECT

type RunCommand = Callable[..., tuple[int, list[str]]]

_REFUSED = {
    "load run smoke --env production": (
        "environment 'production' is not declared, allowed is one of local, dev, staging, prod; declare it"
        " in tests/support/declarations/environments.py"
    ),
    "load run huge": "there is no profile 'huge', allowed is one of backlog-drain, ",
    "load run smoke --sabotage gremlin": "saboteur 'gremlin' is unknown, allowed is one of ",
    "load run smoke --sabotage corupt-bodies": (
        "saboteur 'corupt-bodies' is unknown (did you mean 'corrupt-bodies'?), allowed is one of "
    ),
    "load run smoke --sabotage ignore-purge": (
        "saboteur 'ignore-purge' shows nothing in a load test, allowed is one of "
    ),
    "load run smoke --endpoint-url localhost:4566": (
        "endpoint is 'localhost:4566', allowed is a URL such as http://127.0.0.1:4566"
    ),
    "load run smoke --endpoint-url http://127.0.0.1:99999": (
        "endpoint is 'http://127.0.0.1:99999', allowed is a URL such as http://127.0.0.1:4566"
    ),
    "load run smoke --endpoint-url http://foo\\ bar": (
        "endpoint is 'http://foo bar', allowed is a URL such as http://127.0.0.1:4566"
    ),
    "load plan smoke --env staging --consumer worker --faults network": (
        "the endpoint is AWS, allowed with faults of the network is an http:// one: a line speaks no TLS"
    ),
    "load run smoke --env prod": (
        "environment 'prod' keeps its messages (removal is 'retain'), and a load test fills its queues"
    ),
    "load run my\\ profile.yaml": (
        "profile 'my profile.yaml' is not a name for a run, allowed are up to 40 letters, digits, hyphens"
    ),
    "check /nowhere": "/nowhere is not there, allowed is a history's folder",
    "check / --queue a --env local": "--queue and --env are both given, allowed",
    "load run": "Missing argument 'PROFILE'; see `sluice load run --help`",
    "load run smoke --fast": "No such option '--fast'",
    "load run smoke --consumer lamda": "Invalid value for '--consumer': 'lamda' is not one of 'raw', 'worker', ",
    "load run smoke --consumer lambda": (
        "no consumer of environment 'local' declares a function, allowed with consumer 'lambda' is one with"
        " Consumer(runtime=Lambda(…)); declare it, or choose consumer 'worker'"
    ),
    "load run smoke --consumer worker --declaration examples/functions/environments.py": (
        "consumer is 'worker', allowed is 'lambda' or 'raw': billing of environment 'local' runs in a Lambda function"
    ),
}
_FAILED = {
    "load run smoke --endpoint-url http://127.0.0.1:9": (
        "http://127.0.0.1:9 cannot be reached (EndpointConnectionError); start it, or name an SQS endpoint"
        " with --endpoint-url"
    ),
}


@pytest.fixture
def sluice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return what runs the command line and gives exit code and the lines on standard error."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of whoever came first
    monkeypatch.setenv(loading.VARIABLE, os.environ[loading.VARIABLE])  # which --declaration sets
    monkeypatch.chdir(PROJECT)

    def run(*arguments: str) -> tuple[int, list[str]]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr().err
        assert "Traceback" not in printed
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.strip().splitlines()

    return run


class _Answers(BaseHTTPRequestHandler):
    """Answers every request with one status and body."""

    status, kind, body = 200, "text/html", b"<html>It works!</html>"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST = _answer  # noqa: N815 (the names http.server calls)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Refuses(_Answers):
    """Answers as AWS answers an unknown access key."""

    status, kind = 403, "application/x-amz-json-1.0"
    body = (
        b'{"__type":"com.amazon.coral.service#UnrecognizedClientException",'
        b'"message":"The security token included in the request is invalid."}'
    )


@pytest.fixture(params=[_Answers, _Refuses])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[type[_Answers], str]]:
    """Yield the URL of a server on the loopback that is not SQS, or that refuses every request."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), request.param)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    yield request.param, f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        *((arguments, 3, line) for arguments, line in _REFUSED.items()),
        *((arguments, 2, line) for arguments, line in _FAILED.items()),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(sluice: RunCommand, arguments: str, code: int, line: str) -> None:
    ended, lines = sluice(*shlex.split(arguments))

    assert ended == code
    assert lines[0].startswith(f"sluice: {line}")
    assert len(lines) == 1


def test_a_plan_is_checked_against_the_endpoint_that_a_run_would_use(
    sluice: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults of the network need an endpoint over HTTP.

    The environment variable names it, and an https one is refused.
    """
    arguments = ("load", "plan", "smoke", "--consumer", "worker", "--faults", "network")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://sqs.example")

    ended, lines = sluice(*arguments)

    assert ended == 3
    assert len(lines) == 1
    assert lines[0].startswith(
        "sluice: the endpoint is https://sqs.example, allowed with faults of the network is an h"
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://sqs.example")
    main((*arguments, "--env", "staging"))


def test_a_negative_rate_is_refused(tmp_path: Path, sluice: RunCommand) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("messages_per_second: -70\nduration_seconds: 10\ngroup_count: 5\n", encoding="utf-8")

    assert sluice("load", "run", str(own)) == (
        3,
        [f"sluice: profile '{own}': messages_per_second is -70 (line 1): Input should be greater than 0"],
    )


def test_a_server_that_is_not_sqs_is_named(server: tuple[type[_Answers], str], sluice: RunCommand) -> None:
    kind, url = server

    ended, lines = sluice("load", "run", "smoke", "--endpoint-url", url)

    expected = {
        _Answers: f"sluice: {url} answers, but not as SQS does",
        _Refuses: f"sluice: {url} refuses these credentials (UnrecognizedClientException); check AWS_ACCESS_KEY_ID",
    }
    assert ended == 2
    assert lines[0].startswith(expected[kind])
    assert len(lines) == 1


def test_no_credentials_are_named(tmp_path: Path, sluice: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))

    assert sluice("load", "run", "smoke", "--endpoint-url", "http://127.0.0.1:9") == (
        2,
        ["sluice: there are no AWS credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"],
    )


@pytest.mark.parametrize(
    ("url", "code", "line"),
    [
        (
            "postgresql://nobody:hidden@127.0.0.1:9/none",
            2,
            "postgresql://nobody:***@127.0.0.1:9/none cannot be reached",
        ),
        (
            "hidden",
            3,
            "SLUICE_DSN is no URL of a database that workers use, allowed is one that begins with postgresql:",
        ),
    ],
)
def test_a_database_that_workers_cannot_use_is_named_before_the_run(
    sluice: RunCommand, monkeypatch: pytest.MonkeyPatch, url: str, code: int, line: str
) -> None:
    monkeypatch.setenv("SLUICE_DSN", url)

    ended, lines = sluice("load", "run", "smoke", "--consumer", "worker", "--endpoint-url", "http://127.0.0.1:9")

    assert ended == code
    assert lines[0].startswith(f"sluice: {line}")
    assert len(lines) == 1
    assert "hidden" not in lines[0]
