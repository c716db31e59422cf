"""What a user can get wrong at the load test's command line: one line, an exit code, no traceback, no verdict."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emulator import localstack
from sluice.clock import eventually
from tests.support.project import PROJECT

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def _sluice(*arguments: str, **more: str) -> tuple[int, list[str]]:
    """Run the command line as a user would; return exit code and the lines on standard error."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(
        [sys.executable, "-m", "sluice", *arguments],
        cwd=PROJECT,
        env={**plain, **KEYS, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.strip().splitlines()


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
    """Answers as AWS does when the key is unknown."""

    status, kind = 403, "application/x-amz-json-1.0"
    body = (
        b'{"__type":"com.amazon.coral.service#UnrecognizedClientException",'
        b'"message":"The security token included in the request is invalid."}'
    )


@pytest.fixture(params=[_Answers, _Refuses])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[type[_Answers], str]]:
    """Yield something on loopback that is not SQS, or that refuses."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), request.param)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield request.param, f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            ["load", "run", "smoke", "--env", "production"],
            3,
            "sluice: environment 'production' is not declared, allowed is one of local, dev, staging, prod;"
            " declare it in tests/support/declared/environments.py",
        ),
        (
            ["load", "run", "huge"],
            3,
            "sluice: profile 'huge' cannot be read (No such file or directory), allowed is one of backlog-drain, ",
        ),
        (
            ["load", "run", "smoke", "--sabotage", "gremlin"],
            3,
            "sluice: saboteur 'gremlin' is unknown, allowed is one of ",
        ),
        (
            ["load", "run", "smoke", "--sabotage", "ignore-purge"],
            3,
            "sluice: saboteur 'ignore-purge' shows nothing in a load test, allowed is one of ",
        ),
        (
            ["load", "run", "smoke", "--endpoint-url", "localhost:4566"],
            3,
            "sluice: endpoint is 'localhost:4566', allowed is a URL such as http://127.0.0.1:4566",
        ),
        (
            ["load", "run", "smoke", "--endpoint-url", "http://127.0.0.1:9"],
            2,
            "sluice: http://127.0.0.1:9 cannot be reached (EndpointConnectionError);"
            " start it, or name an SQS endpoint with --endpoint-url",
        ),
        (
            ["load", "run", "smoke", "--endpoint-url", "http://127.0.0.1:99999"],
            3,
            "sluice: endpoint is 'http://127.0.0.1:99999', allowed is a URL such as http://127.0.0.1:4566",
        ),
        (
            ["load", "run", "smoke", "--endpoint-url", "http://foo bar"],
            3,
            "sluice: endpoint is 'http://foo bar', allowed is a URL such as http://127.0.0.1:4566",
        ),
        (
            ["load", "run", "smoke", "--env", "prod"],
            3,
            "sluice: environment 'prod' keeps its messages (removal is 'retain'), and a load test fills its queues",
        ),
        (
            ["load", "run", "my profile.yaml"],
            3,
            "sluice: profile 'my profile.yaml' is not a name for a run, allowed are up to 40 letters, digits, hyphens",
        ),
        (["check", "/nowhere"], 2, "sluice: /nowhere is not there, allowed is a history's folder"),
        (["check", "/", "--queue", "a", "--env", "local"], 3, "sluice: --queue and --env are both given, allowed"),
        (["load", "run"], 3, "sluice: Missing argument 'PROFILE'; see `sluice load run --help`"),
        (["load", "run", "smoke", "--fast"], 3, "sluice: No such option '--fast'"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: list[str], code: int, line: str) -> None:
    """The value seen, the value allowed, the next step."""
    ended, lines = _sluice(*arguments)

    assert ended == code
    assert lines[0].startswith(line)
    assert len(lines) == 1 or lines[0].startswith("Usage")


def test_a_negative_rate_is_refused(tmp_path: Path) -> None:
    """From a user's own profile file."""
    own = tmp_path / "own.yaml"
    own.write_text("messages_per_second: -70\nduration_seconds: 10\ngroup_count: 5\n", encoding="utf-8")

    assert _sluice("load", "run", str(own)) == (
        3,
        [f"sluice: profile '{own}': messages_per_second is -70 (line 1): Input should be greater than 0"],
    )


def test_something_else_at_the_endpoint_is_named(server: tuple[type[_Answers], str]) -> None:
    """A web server is not SQS; a refusal is about the credentials."""
    kind, url = server

    ended, lines = _sluice("load", "run", "smoke", "--endpoint-url", url)

    expected = {
        _Answers: f"sluice: {url} answers, but not as SQS does",
        _Refuses: f"sluice: {url} refuses these credentials (UnrecognizedClientException); check AWS_ACCESS_KEY_ID",
    }
    assert ended == 2
    assert lines[0].startswith(expected[kind])
    assert len(lines) == 1


def test_no_credentials_are_named(tmp_path: Path) -> None:
    """Nothing in the environment, no file: say what to set."""
    empty = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }

    assert _sluice("load", "run", "smoke", "--endpoint-url", "http://127.0.0.1:9", **empty) == (
        2,
        ["sluice: no AWS credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"],
    )


@pytest.mark.spark
def test_an_environment_that_is_not_deployed_is_named(deployed: localstack.Running) -> None:
    """The queues of dev are not there: deploy first."""
    ended, lines = _sluice("load", "run", "smoke", "--env", "dev", "--endpoint-url", deployed.endpoint_url)

    assert (ended, lines) == (
        2,
        [f"sluice: environment 'dev' is not deployed at {deployed.endpoint_url}; deploy it first: make deploy ENV=dev"],
    )


@pytest.mark.spark
def test_a_spark_that_does_not_start_is_named(deployed: localstack.Running, tmp_path: Path) -> None:
    """A wrong JAVA_HOME: one line, and exit code 2, because 1 would say INVALID."""
    ended, lines = _sluice(
        "load",
        "run",
        "tiny",
        "--endpoint-url",
        deployed.endpoint_url,
        "--runs-dir",
        str(tmp_path),
        JAVA_HOME="/nowhere",
    )

    assert ended == 2
    assert lines[-1].startswith("sluice: Spark did not start (")
    assert lines[-1].endswith("; it needs Java 17 or newer, and JAVA_HOME is /nowhere")


@pytest.mark.spark
def test_a_history_folder_that_cannot_be_written_is_named(deployed: localstack.Running, tmp_path: Path) -> None:
    """Before anything is sent, and with nothing left behind."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()

    ended, lines = _sluice(
        "load", "run", "tiny", "--endpoint-url", deployed.endpoint_url, "--runs-dir", str(in_the_way / "runs")
    )

    assert (ended, lines) == (
        2,
        [
            f"sluice: cannot write the history to {in_the_way / 'runs'} (Not a directory);"
            " name a folder you can write to with --runs-dir"
        ],
    )


@pytest.mark.slow
@pytest.mark.spark
def test_an_interrupted_run_leaves_no_verdict_and_no_process(deployed: localstack.Running, tmp_path: Path) -> None:
    """Ctrl-C in the middle: exit code 130, no verdict.json, no JVM or task left in the process group."""
    running = subprocess.Popen(
        [sys.executable, "-m", "sluice", "load", "run", "tiny", "--runs-dir", str(tmp_path)],
        cwd=PROJECT,
        env={**os.environ, **KEYS, "AWS_ENDPOINT_URL": deployed.endpoint_url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    eventually(lambda: list(tmp_path.glob("*/board-*/start.json")), timeout_seconds=90, describe="the load to start")

    os.killpg(running.pid, signal.SIGINT)
    _, printed = running.communicate(timeout=60)

    assert running.returncode == 130
    (folder,) = tmp_path.iterdir()
    assert printed.endswith(f"sluice load resume {folder}\n")
    assert "Traceback" not in printed
    assert not (folder / "verdict.json").exists()
    eventually(lambda: _is_gone(running.pid), timeout_seconds=20, describe="the process group to be empty")


def _is_gone(group: int) -> bool:
    """Return whether no process of the group runs any more; one that init has yet to reap does not."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return False
    return True
