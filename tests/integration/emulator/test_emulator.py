"""`python -m emulator` starts LocalStack, points a command at it, and leaves nothing running however it ends.

Every emulator a test starts has the test's own directory as TMPDIR, and so has whatever it starts in turn: that is how
a test knows its processes from everybody else's.
"""

import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import botocore
import pytest
from botocore.config import Config

from emulator import localstack
from sluice.clock import SystemClock, eventually
from sluice.errors import EndpointError
from sluice.localstack import health
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("a localstack of its own")  # one at a time
GONE_SECONDS = 10  # less than either grace: what needs SIGKILL to end is late
STARTED = "start it (in a checkout of Sluice: make emulator), or name another with --endpoint-url"
UNREQUESTED = ["sh", "-c", "echo the command ran"]

# Starts a second process in its group, says where LocalStack is, and how it was ended.
WAITING = """
import os, signal, subprocess
subprocess.Popen(["sleep", "600"])
print(os.environ["AWS_ENDPOINT_URL"], flush=True)
try:
    signal.pause()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

# The last arguments of all processes around it: the emulator, a supervisor each, LocalStack, the command and its child.
AROUND_WAITING = {WAITING: 3, "localstack.runtime.main": 2, "600": 1}

Start = Callable[..., subprocess.Popen[str]]


def _environment(directory: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return inherited | {"TMPDIR": str(directory)}


def _emulator(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m emulator` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "emulator", *arguments],
        cwd=PROJECT,
        env=_environment(directory),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts `python -m emulator` without waiting for it.

    Processes of a failed test are killed.
    """
    started: list[subprocess.Popen[str]] = []

    def start_process(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "emulator", *arguments],
            cwd=PROJECT,
            env=_environment(tmp_path),
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_process
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _rest(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.read()


def _processes(directory: Path) -> dict[int, list[str]]:
    """Return the command line of every living process that an emulator of this test is or has started."""
    mark = re.compile(rb"(^|\0)TMPDIR=" + re.escape(str(directory).encode()) + rb"[/\0]")
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or is another user's
            if mark.search((process / "environ").read_bytes()):
                found[int(process.name)] = (process / "cmdline").read_text().rstrip("\0").split("\0")
    return found


def _all_run(directory: Path) -> None:
    """Wait for the processes around WAITING: for an instant within exec, Linux shows a process without arguments."""
    eventually(
        lambda: Counter(line[-1] for line in _processes(directory).values()) == AROUND_WAITING,
        timeout_seconds=10,
        describe=f"the processes {AROUND_WAITING}",
    )


def _accepts(endpoint_url: str) -> bool:
    host, port = endpoint_url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.fixture(scope="module")
def shared_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the endpoint of a LocalStack that another process has started."""
    with localstack.running(log=tmp_path_factory.mktemp("shared") / "localstack.log") as running:
        yield running.endpoint_url


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Yield a port where nothing listens and that no other process gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def _stranger(answer: bytes | None) -> Iterator[int]:
    """Yield the port of a server that gives every request the same answer; None gives no answer."""

    class Stranger(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            if answer is None:
                self.request.recv(65_536)  # until the caller gives up
            else:
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _http(status: str, body: str) -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


STRANGERS = [
    pytest.param(_http("404 Not Found", ""), id="web server without that path"),
    pytest.param(_http("200 OK", "<html></html>"), id="web server with a page for everything"),
    pytest.param(_http("200 OK", '{"status": "ok"}'), id="service with a health check of its own"),
    pytest.param(b"", id="server that hangs up"),
    pytest.param(None, id="server that never answers"),
    pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="server that speaks no HTTP"),
]


@pytest.mark.slow  # a LocalStack of its own; make demo is such a command
def test_a_command_is_pointed_at_localstack_and_its_exit_code_is_returned(tmp_path: Path) -> None:
    """AWS_* lead any client to LocalStack, the exit code is the command's, and nothing but the log is left."""
    program = """
import json, os, sys
import boto3
queue_url = boto3.client("sqs").create_queue(QueueName="orders")["QueueUrl"]
variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
print(json.dumps({"variables": variables, "queue_url": queue_url}))
sys.exit(7)
"""

    ended = _emulator(tmp_path, "run", "--log", str(tmp_path / "localstack.log"), "--", sys.executable, "-c", program)

    assert ended.returncode == 7
    assert ended.stderr == ""
    printed: dict[str, Any] = json.loads(ended.stdout)
    endpoint_url = printed["variables"]["AWS_ENDPOINT_URL"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", endpoint_url)
    assert printed == {
        "variables": {
            "AWS_ENDPOINT_URL": endpoint_url,
            "AWS_ENDPOINT_URL_S3": endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        },
        "queue_url": f"{endpoint_url}/queue/us-east-1/000000000000/orders",
    }
    assert _processes(tmp_path) == {}
    assert not _accepts(endpoint_url)
    assert [path.name for path in tmp_path.iterdir()] == ["localstack.log"]


def test_sigint_ends_the_commands_whole_group_and_localstack(start: Start, tmp_path: Path) -> None:
    """The command is interrupted, not terminated; before the emulator exits with 130, all it started has ended."""
    emulator = start("run", "--log", str(tmp_path / "localstack.log"), "--", sys.executable, "-c", WAITING)
    endpoint_url = _line(emulator).strip()
    _all_run(tmp_path)
    assert _accepts(endpoint_url)

    emulator.send_signal(signal.SIGINT)
    code = emulator.wait(timeout=GONE_SECONDS)

    assert code == 130
    assert _processes(tmp_path) == {}
    assert not _accepts(endpoint_url)
    assert _rest(emulator) == "interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["localstack.log"]


def test_a_dying_emulator_takes_localstack_and_the_command_with_it(start: Start, tmp_path: Path) -> None:
    """SIGKILL leaves the emulator no time to clean up; still each process that it started ends."""
    emulator = start("run", "--log", str(tmp_path / "localstack.log"), "--", sys.executable, "-c", WAITING)
    endpoint_url = _line(emulator).strip()
    _all_run(tmp_path)
    assert _accepts(endpoint_url)

    emulator.kill()

    eventually(
        lambda: not _processes(tmp_path), timeout_seconds=GONE_SECONDS, describe="the end of all that was started"
    )
    assert emulator.wait(timeout=GONE_SECONDS) == -signal.SIGKILL
    assert not _accepts(endpoint_url)
    assert _rest(emulator) == ""
    assert list(tmp_path.glob("sluice-localstack-*")) == []


def _spoil_aws_files(home: Path) -> None:
    (home / ".aws").mkdir()
    for name in ("config", "credentials"):
        (home / ".aws" / name).write_text("whoever reads this fails", encoding="utf-8")


@pytest.mark.slow  # a LocalStack of its own
def test_localstack_itself_reads_no_aws_file_of_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LocalStack starts whatever the caller's files of AWS contain."""
    _spoil_aws_files(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    ended = _emulator(tmp_path, "run", "--log", str(tmp_path / "log"), "--", "echo", "it serves")

    assert ended.returncode == 0
    assert ended.stdout == "it serves\n"
    assert ended.stderr == ""


@pytest.mark.parametrize("name", ["AWS_PROFILE", "LOCALSTACK_HOST", "LOCALEMU_HOST", "LOCALEMU_API_KEY"])
def test_settings_of_aws_and_of_each_engine_are_left_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "of the caller")
    running = localstack.Emulator(endpoint_url="http://127.0.0.1:4566", log=None)

    assert localstack.with_endpoint(running).get(name) is None


def test_nothing_of_the_callers_own_aws_settings_reaches_the_command(
    shared_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile, or an endpoint for one service, would win over AWS_ENDPOINT_URL and lead to a real account."""
    own = {
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL_SQS": "https://sqs.eu-west-1.amazonaws.com",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    _spoil_aws_files(tmp_path)
    program = "import boto3; print(boto3.client('sqs').meta.endpoint_url)"

    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "emulator",
            "run",
            "--endpoint-url",
            shared_endpoint,
            "--",
            sys.executable,
            "-c",
            program,
        ],
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0
    assert ended.stdout == f"{shared_endpoint}\n"
    assert ended.stderr == ""


def test_up_listens_on_the_given_port_until_it_is_terminated(start: Start, tmp_path: Path) -> None:
    """The command listens on the loopback only and prints how to use it.

    SIGTERM ends it with 143, and no process is left.
    """
    port = localstack.free_port()
    log = tmp_path / "localstack.log"
    emulator = start("up", "--port", str(port), "--log", str(log))
    found = [_line(emulator) for _ in range(12)]
    before = Counter(line[-1] for line in _processes(tmp_path).values())
    is_open = {address: _accepts(f"http://{address}:{port}") for address in ("127.0.0.1", "127.0.0.2")}

    emulator.terminate()
    code = emulator.wait(timeout=GONE_SECONDS)

    assert before == {str(log): 1, "localstack.runtime.main": 2}
    assert is_open == {"127.0.0.1": True, "127.0.0.2": False}  # LocalStack alone listens on all interfaces
    assert found == [
        f"LocalStack 4.14.0 at http://127.0.0.1:{port}, log in {log}. Ctrl-C stops it.\n",
        f"  export AWS_ENDPOINT_URL=http://127.0.0.1:{port}\n",
        f"  export AWS_ENDPOINT_URL_S3=http://127.0.0.1:{port}\n",
        "  export AWS_ACCESS_KEY_ID=test\n",
        "  export AWS_SECRET_ACCESS_KEY=test\n",
        "  export AWS_REGION=us-east-1\n",
        "  export AWS_DEFAULT_REGION=us-east-1\n",
        "  export AWS_EC2_METADATA_DISABLED=true\n",
        "  export AWS_CONFIG_FILE=/dev/null\n",
        "  export AWS_SHARED_CREDENTIALS_FILE=/dev/null\n",
        "  export NO_PROXY=127.0.0.1,localhost\n",
        "  export SLUICE_SHORT_WINDOW=1\n",
    ]
    assert code == 143
    assert _processes(tmp_path) == {}
    assert not _accepts(f"http://127.0.0.1:{port}")
    assert [path.name for path in tmp_path.iterdir()] == ["localstack.log"]


@pytest.mark.slow
def test_a_port_taken_while_it_starts_is_reported_at_once(
    closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LocalStack says "Ready." and never answers; nobody waits two minutes for that."""
    monkeypatch.setattr(localstack, "free_port", lambda: closed_port)

    with (
        pytest.raises(EndpointError, match=f"could not listen at http://127.0.0.1:{closed_port}"),
        localstack.running(log=tmp_path / "localstack.log"),
    ):
        pass


def test_an_attached_localstack_is_used_and_left_running(shared_endpoint: str, tmp_path: Path) -> None:
    """Nothing is started, so nothing is stopped or logged."""
    ended = _emulator(
        tmp_path, "run", "--endpoint-url", shared_endpoint, "--", "sh", "-c", "echo $AWS_ENDPOINT_URL; exit 5"
    )

    assert ended.returncode == 5
    assert ended.stdout == f"{shared_endpoint}\n"
    assert ended.stderr == ""
    assert health(shared_endpoint) is not None
    assert list(tmp_path.iterdir()) == []


def test_sigint_leaves_an_attached_localstack_running(start: Start, shared_endpoint: str, tmp_path: Path) -> None:
    """Only the command and its group are ended."""
    emulator = start("run", "--endpoint-url", shared_endpoint, "--", sys.executable, "-c", WAITING)
    assert _line(emulator) == f"{shared_endpoint}\n"

    emulator.send_signal(signal.SIGINT)
    code = emulator.wait(timeout=GONE_SECONDS)

    assert code == 130
    assert _processes(tmp_path) == {}
    assert _rest(emulator) == "interrupted\n"
    assert health(shared_endpoint) is not None


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (["true"], 0, ""),
        (["false"], 1, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["no-such-program", "-x"], 127, "cannot run 'no-such-program': No such file or directory\n"),
        (["sh", "-c", "sleep 600 & exit 4"], 4, ""),
    ],
)
def test_the_exit_code_is_the_commands(
    shared_endpoint: str, tmp_path: Path, command: list[str], code: int, error: str
) -> None:
    """128 and the number for a signal, 127 for a missing program; processes that the command left running are ended."""
    ended = _emulator(tmp_path, "run", "--endpoint-url", shared_endpoint, "--", *command)

    assert ended.returncode == code
    assert ended.stdout == ""
    assert ended.stderr == error
    assert _processes(tmp_path) == {}


def test_a_port_taken_by_a_localstack_is_refused(shared_endpoint: str, tmp_path: Path) -> None:
    """Exit code 2 and one line, which says how to use the running LocalStack; that is left alone."""
    port = shared_endpoint.removeprefix("http://127.0.0.1:")

    ended = _emulator(tmp_path, "run", "--port", port, "--log", str(tmp_path / "localstack.log"), "--", *UNREQUESTED)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert (
        ended.stderr
        == f"emulator: a LocalStack already runs on port {port}; use it with --endpoint-url {shared_endpoint},"
        " or choose another --port\n"
    )
    assert health(shared_endpoint) is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", STRANGERS)
def test_a_port_taken_by_something_else_is_refused(tmp_path: Path, answer: bytes | None) -> None:
    """Exit code 2 and one line, for any server that listens there."""
    with _stranger(answer) as port:
        ended = _emulator(
            tmp_path, "run", "--port", str(port), "--log", str(tmp_path / "localstack.log"), "--", *UNREQUESTED
        )

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert (
        ended.stderr
        == f"emulator: port {port} is taken by something that is not LocalStack; choose another with --port\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", STRANGERS)
def test_attaching_to_something_that_is_no_localstack_is_refused(tmp_path: Path, answer: bytes | None) -> None:
    """Exit code 2 and one line, and the command is not run against it."""
    with _stranger(answer) as port:
        ended = _emulator(tmp_path, "run", "--endpoint-url", f"http://127.0.0.1:{port}", "--", *UNREQUESTED)

    url = f"http://127.0.0.1:{port}"
    found = (
        f"nothing answers at {url} (timed out); {STARTED}"
        if answer is None
        else f"{url} answers, but is not a LocalStack; name another with --endpoint-url"
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == f"emulator: {found}\n"


def test_attaching_to_a_localstack_without_sqs_is_refused(tmp_path: Path) -> None:
    """Exit code 2 and one line, which names the services that are missing."""
    health = _http("200 OK", '{"services": {"sns": "running", "sqs": "disabled", "s3": "available"}}')

    with _stranger(health) as port:
        ended = _emulator(tmp_path, "run", "--endpoint-url", f"http://127.0.0.1:{port}", "--", *UNREQUESTED)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert (
        ended.stderr == f"emulator: LocalStack at http://127.0.0.1:{port} does not offer sqs, cloudformation;"
        " start one with: make emulator\n"
    )


def test_attaching_where_nothing_answers_is_refused(tmp_path: Path, closed_port: int) -> None:
    """Exit code 2 and one line, which says how to start one."""
    endpoint_url = f"http://127.0.0.1:{closed_port}"

    ended = _emulator(tmp_path, "run", "--endpoint-url", endpoint_url, "--", *UNREQUESTED)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == f"emulator: nothing answers at {endpoint_url} ([Errno 111] Connection refused); {STARTED}\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--port", "0"], "port is 0, allowed is 1 to 65535; choose another with --port"),
        (["--port", "-1"], "port is -1, allowed is 1 to 65535; choose another with --port"),
        (["--port", "70000"], "port is 70000, allowed is 1 to 65535; choose another with --port"),
        (
            ["--port", "4566", "--endpoint-url", "http://127.0.0.1:4566"],
            "--port and --endpoint-url exclude each other: start one, or attach to one",
        ),
        (
            ["--endpoint-url", "127.0.0.1:4566"],
            "endpoint is '127.0.0.1:4566', allowed is a URL such as http://127.0.0.1:4566",
        ),
        (
            ["--endpoint-url", "http://[::1"],
            "endpoint is 'http://[::1', allowed is a URL such as http://127.0.0.1:4566",
        ),
    ],
)
def test_options_that_cannot_be_right_are_refused(tmp_path: Path, options: list[str], error: str) -> None:
    """Exit code 3 and one line; nothing is started, nothing is asked."""
    ended = _emulator(tmp_path, "run", "--log", str(tmp_path / "localstack.log"), *options, "--", *UNREQUESTED)

    assert ended.returncode == 3
    assert ended.stdout == ""
    assert ended.stderr == f"emulator: {error}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--bogus"], "Error: No such option '--bogus'."),
        (["up", "--bogus"], "Error: No such option '--bogus'."),
        (
            ["run", "--endpoint-url", "http://127.0.0.1:1", "--bogus", "--", *UNREQUESTED],
            "Error: No such option '--bogus'.",
        ),
        (["run", "--port", "http", "--", *UNREQUESTED], "Error: Invalid value for '--port'"),
        (["run"], "Error: Missing argument 'COMMAND...'."),
        (["down"], "Error: No such command 'down'."),
    ],
)
def test_wrong_usage_is_refused(tmp_path: Path, arguments: list[str], error: str) -> None:
    """Exit code 3, the usage, and the error in the last line."""
    ended = _emulator(tmp_path, *arguments)

    assert ended.returncode == 3
    assert ended.stdout == ""
    assert ended.stderr.startswith("Usage: python -m emulator ")
    assert ended.stderr.splitlines()[-1].startswith(error)


@pytest.mark.slow
def test_a_queue_that_asks_for_it_deduplicates_for_three_seconds_only(shared_endpoint: str) -> None:
    """The queue `x-window3-y.fifo` treats a repeat after 3 s as a new message; any other queue drops it."""
    sqs = boto3.client(
        "sqs", endpoint_url=shared_endpoint, region_name="us-east-1", config=Config(signature_version=botocore.UNSIGNED)
    )
    short = sqs.create_queue(QueueName="x-window3-y.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    usual = sqs.create_queue(QueueName="x-y.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    message = {"MessageBody": "m1", "MessageGroupId": "g1", "MessageDeduplicationId": "d1"}
    clock = SystemClock()
    sent_at = clock.monotonic()
    in_usual, in_short = (sqs.send_message(QueueUrl=url, **message)["MessageId"] for url in (usual, short))
    at_once = [sqs.send_message(QueueUrl=url, **message)["MessageId"] for url in (usual, short)]

    eventually(
        lambda: sqs.send_message(QueueUrl=short, **message)["MessageId"] != in_short,
        timeout_seconds=60,
        describe="a repeat becoming a message of its own",
    )
    window_seconds = clock.monotonic() - sent_at

    assert at_once == [in_usual, in_short]
    assert window_seconds > 2.9
    assert sqs.send_message(QueueUrl=usual, **message)["MessageId"] == in_usual
    counts = {
        url: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
        for url in (short, usual)
    }
    assert counts == {
        short: {"ApproximateNumberOfMessages": "2"},
        usual: {"ApproximateNumberOfMessages": "1"},
    }
