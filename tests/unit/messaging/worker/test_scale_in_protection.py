"""A task that works on messages is protected from scale-in, and no longer than that."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.clock import VirtualClock, eventually
from sluice.messaging.worker.scale_in_protection import Protection

ON = {"ProtectionEnabled": True, "ExpiresInMinutes": 10}
OFF = {"ProtectionEnabled": False}
KEPT = (200, b'{"protection":{"ExpirationDate":"2026-11-21T10:00:00Z","ProtectionEnabled":true,"TaskArn":"arn"}}')


class Agent:
    """An ECS agent on a port of its own: keeps the commands it received, and answers as the test sets it."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str | None]] = []
        self.answer: Callable[[], tuple[int, bytes] | None] = lambda: KEPT
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                agent.requests.append((self.command, self.path, self.headers["Content-Type"]))
                agent.commands.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if (answer := agent.answer()) is None:
                    return
                status, body = answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server.server_port}/api/0123"


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent that answers."""
    started = Agent()
    with started.server as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield started
        server.shutdown()
        thread.join()


@pytest.fixture
def clock() -> VirtualClock:
    """A clock that stands still."""
    return VirtualClock()


def tick(protection: Protection, clock: VirtualClock, *, seconds: int, is_busy: bool) -> None:
    """Let so many seconds pass, in each of which the worker says whether it is busy."""
    for _ in range(seconds):
        protection.want(is_busy=is_busy)
        clock.sleep(1)


def test_s7_protection_is_on_with_the_first_lane_and_off_when_idle(agent: Agent, clock: VirtualClock) -> None:
    """The agent is told twice, in the way AWS documents; between messages it is not called."""
    protection = Protection(agent.uri, clock)

    tick(protection, clock, seconds=10, is_busy=False)
    assert agent.commands == []

    tick(protection, clock, seconds=30, is_busy=True)
    tick(protection, clock, seconds=4, is_busy=False)
    tick(protection, clock, seconds=30, is_busy=True)
    assert agent.commands == [ON]

    tick(protection, clock, seconds=4, is_busy=False)
    assert agent.commands == [ON]
    tick(protection, clock, seconds=600, is_busy=False)
    assert agent.commands == [ON, OFF]
    assert set(agent.requests) == {("PUT", "/api/0123/task-protection/v1/state", "application/json")}


def test_s7_protection_is_renewed_before_it_expires(agent: Agent, clock: VirtualClock) -> None:
    """At half of its ten minutes, which each call counts anew."""
    protection = Protection(agent.uri, clock)

    tick(protection, clock, seconds=300, is_busy=True)
    assert agent.commands == [ON]

    tick(protection, clock, seconds=301, is_busy=True)
    assert agent.commands == [ON, ON, ON]


def test_s7_a_worker_that_always_has_work_lets_an_update_through(agent: Agent, clock: VirtualClock) -> None:
    """ECS does not end a protected task of the old version: after 20 minutes there is one without protection."""
    protection = Protection(agent.uri, clock, busy_seconds_max=1_200)

    tick(protection, clock, seconds=1_200, is_busy=True)
    assert agent.commands == [ON, ON, ON, ON]

    tick(protection, clock, seconds=60, is_busy=True)
    assert agent.commands == [ON, ON, ON, ON, OFF]

    tick(protection, clock, seconds=1, is_busy=True)
    assert agent.commands == [ON, ON, ON, ON, OFF, ON]


def test_s7_work_with_pauses_needs_no_rest(agent: Agent, clock: VirtualClock) -> None:
    """A pause in which protection was off is one."""
    protection = Protection(agent.uri, clock, busy_seconds_max=200)

    for _ in range(3):
        tick(protection, clock, seconds=150, is_busy=True)
        tick(protection, clock, seconds=10, is_busy=False)

    assert agent.commands == [ON, OFF, ON, OFF, ON, OFF]


def test_s7_a_worker_that_stops_gives_protection_up(agent: Agent, clock: VirtualClock) -> None:
    """At once, and once."""
    protection = Protection(agent.uri, clock)
    protection.want(is_busy=True)

    protection.stop()
    protection.stop()

    assert agent.commands == [ON, OFF]


def test_s7_a_worker_that_was_never_busy_has_nothing_to_give_up(agent: Agent, clock: VirtualClock) -> None:
    """Neither has one whose protection has expired, for which the agent did not answer."""
    protection = Protection(agent.uri, clock)
    protection.stop()
    assert agent.commands == []

    agent.answer = lambda: (500, b"{}")
    protection.want(is_busy=True)
    clock.sleep(600)
    protection.stop()
    assert agent.commands == [ON]


@pytest.mark.parametrize(
    ("status", "body", "seen"),
    [
        (
            200,
            b'{"failure":{"Arn":"arn","Detail":null,"Reason":"TASK_NOT_VALID"}}',
            "the agent says {'failure': {'Arn': 'arn', 'Detail': None, 'Reason': 'TASK_NOT_VALID'}}",
        ),
        (
            400,
            b'{"requestID":"1","error":{"Arn":"arn","Code":"ThrottlingException","Message":"Rate exceeded"}}',
            "the agent says {'requestID': '1', 'error': {'Arn': 'arn', 'Code': 'ThrottlingException', 'Message': 'Rate"
            " exceeded'}}",
        ),
        (
            504,
            b'{"error":{"Arn":"arn","Code":"RequestCanceled","Message":"Timed out calling Amazon ECS"}}',
            "the agent says {'error': {'Arn': 'arn', 'Code': 'RequestCanceled', 'Message': 'Timed out calling Amazon"
            " ECS'}}",
        ),
        (502, b"<html>", "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        (200, b"", "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        (200, b"\xff", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (200, b"[" * 60_000, "RecursionError: maximum recursion depth exceeded"),
        (200, b'"protection"', "the agent says 'protection'"),
    ],
)
def test_s7_an_agent_that_refuses_is_asked_again_later(
    agent: Agent, clock: VirtualClock, *, status: int, body: bytes, seen: str
) -> None:
    """After 5, 10, 20 … seconds, 120 at most; each time the log says why; then it is as if nothing had been."""
    agent.answer = lambda: (status, body)
    protection = Protection(agent.uri, clock)

    with capture_logs() as logs:
        tick(protection, clock, seconds=5 + 10 + 20 + 40 + 80 + 120, is_busy=True)
    assert agent.commands == [ON] * 6
    assert [(log["log_level"], log["failure_count"], log["refused"][: len(seen)]) for log in logs] == [
        ("warning", count, seen) for count in range(1, 7)
    ]

    agent.answer = lambda: KEPT
    tick(protection, clock, seconds=100, is_busy=True)
    assert agent.commands == [ON] * 7


def test_s7_protection_that_could_not_be_given_up_is_tried_until_it_has_expired(
    agent: Agent, clock: VirtualClock
) -> None:
    """Within its ten minutes; nobody is asked for ever."""
    protection = Protection(agent.uri, clock)
    protection.want(is_busy=True)
    agent.answer = lambda: (500, b"{}")

    with capture_logs():
        tick(protection, clock, seconds=3_600, is_busy=False)

    assert agent.commands == [ON] + [OFF] * 9


def test_s7_what_had_no_answer_may_have_been_done(agent: Agent, clock: VirtualClock) -> None:
    """An agent that is silent for too long is left, and told that the worker is idle when it is."""
    is_left = threading.Event()

    def silent() -> None:
        is_left.wait(10)

    agent.answer = silent
    protection = Protection(agent.uri, clock, timeout_seconds=0.3)

    with capture_logs() as logs:
        protection.want(is_busy=True)
    eventually(lambda: agent.commands == [ON], timeout_seconds=10, describe="the agent to read what it does not answer")
    is_left.set()
    agent.answer = lambda: KEPT
    tick(protection, clock, seconds=10, is_busy=False)

    assert [log["refused"] for log in logs] == ["TimeoutError: timed out"]
    assert agent.commands == [ON, OFF]


@pytest.mark.parametrize(
    ("uri", "seen"),
    [
        ("http://127.0.0.1:1/api", "URLError"),
        ("http://127.0.0.1:no/api", "InvalidURL"),
        ("http://a b/api", "InvalidURL"),
        ("nothing", "ValueError"),
    ],
)
def test_s7_an_agent_that_is_not_there_stops_nobody(clock: VirtualClock, uri: str, seen: str) -> None:
    """Whatever ECS_AGENT_URI holds, the worker works on."""
    protection = Protection(uri, clock)

    with capture_logs() as logs:
        protection.want(is_busy=True)
        protection.stop()

    assert [log["refused"].split(":")[0] for log in logs] == [seen, seen]


def test_s7_without_an_agent_nothing_is_done(clock: VirtualClock) -> None:
    """Outside of ECS there is no variable, and no line in the log."""
    protection = Protection(None, clock)

    with capture_logs() as logs:
        tick(protection, clock, seconds=100, is_busy=True)
        protection.stop()

    assert logs == []


def test_s7_a_proxy_of_the_environment_is_not_asked(
    agent: Agent, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not reach the agent, which is on the task's own link."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    Protection(agent.uri, clock).want(is_busy=True)

    assert agent.commands == [ON]
