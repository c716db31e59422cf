"""`--results` calls a promise unknown unless the target meant its answer; a peer that fails says why."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from emulator import engines, localstack, peers
from sluice.declaration import loading
from sluice.errors import EndpointError
from tests.support.declaration import FILE
from tests.support.project import PROJECT

type EmulatorAnswer = tuple[int, str, str] | None
JSON = "application/x-amz-json-1.0"
HTML = (200, "text/html", "<html><body>It works!</body></html>")
BROKEN = (500, JSON, '{"__type": "InternalFailure", "message": "out of order"}')
THROTTLED = (400, JSON, '{"__type": "com.amazonaws.sqs#RequestThrottled", "message": "slow down"}')
LACKING = (400, JSON, '{"__type": "InvalidAction", "message": "The action is not valid for this endpoint."}')
NOWHERE = (404, "text/plain", "not here")  # to whoever asks whether this is a LocalStack
NOT_FOUND = (400, JSON, '{"__type": "ResourceNotFoundException", "message": "The resource that you specified"}')
GROUPS = "groups/test_group_blocking.py::test_second_message_of_a_group_waits_while_the_first_is_in_flight"
TASKS = "dead_letters/test_move_tasks.py::test_a_move_task_from_a_queue_that_is_no_dlq_is_refused"
TOPICS = "topics/test_fan_out.py::test_every_queue_gets_every_message_once"


def _sound(action: str, url: str) -> EmulatorAnswer:
    """Answer what a test needs before it comes to its point."""
    found: dict[str, dict[str, Any]] = {
        "ListQueues": {},
        "CreateQueue": {"QueueUrl": f"{url}/000000000000/q.fifo"},
        "GetQueueAttributes": {"Attributes": {"QueueArn": "arn:aws:sqs:us-east-1:000000000000:q.fifo"}},
        "DeleteQueue": {},
    }
    return (200, JSON, json.dumps(found[action])) if action in found else None


@contextlib.contextmanager
def _serving(answer: Callable[[str, str], EmulatorAnswer]) -> Iterator[str]:
    """Serve answers by action; None closes the connection, and every later one without an answer."""
    is_dead = threading.Event()

    class EmulatorHandler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            action = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
            found = None if is_dead.is_set() else answer(action, url) if action else NOWHERE
            if found is None:
                is_dead.set()
                self.close_connection = True
                return
            self.send_response(found[0])
            self.send_header("Content-Type", found[1])
            self.send_header("Content-Length", str(len(found[2])))
            self.end_headers()
            self.wfile.write(found[2].encode())

        do_GET = do_POST = _answer  # noqa: N815 (the names http.server calls)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), EmulatorHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


def _run(url: str, folder: Path, *tests: str, more: tuple[str, ...] = ()) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run some promises against an endpoint; return the exit code and what the results say of each."""
    environment = localstack.Emulator(endpoint_url="", log=None).environment()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    plain[loading.VARIABLE] = str(FILE)
    arguments = ["--endpoint-url", url, "--results", str(folder / "results.json"), *more]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments, *(f"contract_tests/{test}" for test in tests)],
        cwd=PROJECT,
        env=plain | {name: value for name, value in environment.items() if "ENDPOINT" not in name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "\nE  " not in ended.stdout, "failures are one line each"
    written = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert written["target"] == "endpoint"
    assert written["endpoint"] == url
    return ended.returncode, written["promises"]


def _statuses(promises: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {promise: result["status"] for promise, result in promises.items()}


def test_every_promise_of_a_target_that_is_down_is_unknown(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, and not listened on
        code, promises = _run(f"http://127.0.0.1:{probe.getsockname()[1]}", tmp_path, GROUPS, TOPICS)

    assert code == 1
    assert _statuses(promises) == {"GRP-01": "unknown", "SLU-05": "unknown"}
    assert "nothing answers at http://127.0.0.1:<port>" in promises["GRP-01"]["evidence"]


@pytest.mark.slow  # a target of its own
def test_a_target_that_dies_in_the_middle_keeps_nothing_after_that(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    with _serving(_sound) as url:
        code, promises = _run(url, tmp_path, GROUPS, TOPICS, more=("-n", "2", "--junit-xml", str(report)))

    assert code == 1
    assert _statuses(promises) == {"GRP-01": "unknown", "SLU-05": "unknown"}
    assert "got no answer" in promises["GRP-01"]["evidence"]
    statuses = re.findall(r'<property name="status" value="([^"]+)"', report.read_text(encoding="utf-8"))
    assert set(statuses) == {"unknown"}


@pytest.mark.parametrize(
    ("answer", "evidence"),
    [
        (BROKEN, "out of order"),
        pytest.param(HTML, "no answer of the protocol", marks=pytest.mark.slow),
        pytest.param(THROTTLED, "slow down", marks=pytest.mark.slow),
    ],
    ids=["error 500", "HTML", "throttling"],
)
def test_every_promise_of_a_target_with_one_answer_for_all_is_unknown(
    tmp_path: Path, answer: EmulatorAnswer, evidence: str
) -> None:
    with _serving(lambda *_: answer) as url:
        code, promises = _run(url, tmp_path, GROUPS, TASKS)

    assert code == 1
    assert set(_statuses(promises).values()) == {"unknown"}
    assert len(promises) == 2
    assert evidence in promises["GRP-01"]["evidence"]


@pytest.mark.parametrize(
    ("answer", "status", "evidence"),
    [
        (BROKEN, "unknown", "StartMessageMoveTask was answered with HTTP 500, InternalFailure: out of order"),
        pytest.param(
            HTML,
            "unknown",
            "StartMessageMoveTask was answered with HTTP 200 and no answer of the protocol",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            THROTTLED,
            "unknown",
            "StartMessageMoveTask was answered with HTTP 400, RequestThrottled: throttled or unavailable",
            marks=pytest.mark.slow,
        ),
        (
            LACKING,
            "not supported",
            "StartMessageMoveTask was answered with HTTP 400, InvalidAction: The action is not valid",
        ),
        (NOT_FOUND, "deviates", "assert ('ResourceNot"),
    ],
    ids=["error 500", "HTML", "throttling", "lacks the action", "another refusal"],
)
def test_a_refusal_is_a_deviation_only_where_the_target_meant_it(
    tmp_path: Path, answer: EmulatorAnswer, status: str, evidence: str
) -> None:
    """A test that expects a refusal fails in each case here.

    The target's answer decides between a deviation and an error.
    """
    with _serving(lambda action, url: _sound(action, url) or answer) as url:
        code, promises = _run(url, tmp_path, TASKS)

    assert code == 1
    assert _statuses(promises) == {"MOV-01": status}
    assert evidence in promises["MOV-01"]["evidence"]
    assert promises["MOV-01"]["evidence"].startswith("test_move_tasks.py:")


def test_a_promise_that_holds_says_so(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    arguments = ["--target", "simulator", "--results", str(path), f"contract_tests/{GROUPS}"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    written = json.loads(path.read_text(encoding="utf-8"))
    assert ended.returncode == 0
    assert written["target"] == "simulator"
    assert _statuses(written["promises"]) == {"GRP-01": "holds"}
    assert written["promises"]["GRP-01"]["evidence"] == GROUPS.partition("/")[2]
    assert written["promises"]["GRP-01"]["seconds"] > 0


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of uv, as an error the conformance run turns into a column."""
    (tmp_path / "moto.lock").write_text("this is no requirement\n", encoding="ascii")
    monkeypatch.setattr(engines, "_LOCKS", tmp_path)
    monkeypatch.setattr(engines, "_ENVIRONMENTS", tmp_path)

    with pytest.raises(EndpointError, match="moto could not be installed: error: Couldn't parse"):
        engines.install("moto")


def test_a_peer_that_ends_while_starting_says_where_its_log_is(tmp_path: Path) -> None:
    log = tmp_path / "server.log"

    with (
        pytest.raises(EndpointError, match=f"it ended while starting; its log: {log}"),
        peers._server([sys.executable, "-m", "no_such_module"], "http://127.0.0.1:1", "/", log),
    ):
        pass

    assert "No module named no_such_module" in log.read_text(encoding="utf-8")
