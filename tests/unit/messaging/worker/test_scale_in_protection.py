"""A task is protected from scale-in while it works on messages, and no longer."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.clock import VirtualClock, eventually
from sluice.messaging.worker.scale_in_protection import Protection
from tests.support.endpoints.capturing_server import Reply, Server, capturing

ON = {"ProtectionEnabled": True, "ExpiresInMinutes": 10}
OFF = {"ProtectionEnabled": False}
GRANTED = (200, b'{"protection":{"ExpirationDate":"2026-11-21T10:00:00Z","ProtectionEnabled":true,"TaskArn":"arn"}}')


class Agent:
    """An ECS agent that records the requests it gets, and answers as a test says."""

    def __init__(self, server: Server) -> None:
        self.uri, self._captured = f"{server.url}/api/0123", server.captured
        self.answer: Callable[[], tuple[int, bytes] | None] = lambda: GRANTED
        server.reply = lambda _: Reply(*(self.answer() or (0,)))

    @property
    def commands(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self._captured]

    @property
    def requests(self) -> list[tuple[str, str, str]]:
        return [(request.method, request.path, request.headers["content-type"]) for request in self._captured]


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Yield the ECS agent's endpoint, which grants everything."""
    with capturing(lambda _: Reply()) as server:
        yield Agent(server)


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock that the test moves."""
    return VirtualClock()


def tick(protection: Protection, clock: VirtualClock, *, seconds: int, is_busy: bool) -> None:
    """Let these seconds pass; in each second the worker reports whether it is busy."""
    for _ in range(seconds):
        protection.want(is_busy=is_busy)
        clock.sleep(1)


def test_s7_protection_is_on_while_busy_and_off_after_five_idle_seconds(agent: Agent, clock: VirtualClock) -> None:
    """A pause of four seconds between messages ends no protection, so the agent gets few requests."""
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
    """It lasts ten minutes; within ten minutes it is requested at 0, 5 and 10."""
    protection = Protection(agent.uri, clock)

    tick(protection, clock, seconds=300, is_busy=True)
    assert agent.commands == [ON]

    tick(protection, clock, seconds=301, is_busy=True)
    assert agent.commands == [ON, ON, ON]


def test_s7_a_worker_that_always_has_work_lets_an_update_through(agent: Agent, clock: VirtualClock) -> None:
    """ECS does not stop a protected task of the old version, so after 20 minutes protection pauses for a moment."""
    protection = Protection(agent.uri, clock, busy_seconds_max=1_200)

    tick(protection, clock, seconds=1_200, is_busy=True)
    assert agent.commands == [ON, ON, ON, ON]

    tick(protection, clock, seconds=60, is_busy=True)
    assert agent.commands == [ON, ON, ON, ON, OFF]

    tick(protection, clock, seconds=1, is_busy=True)
    assert agent.commands == [ON, ON, ON, ON, OFF, ON]


def test_s7_a_pause_begins_the_longest_protection_anew(agent: Agent, clock: VirtualClock) -> None:
    """Protection of 200 s would be interrupted, but the worker was idle in between."""
    protection = Protection(agent.uri, clock, busy_seconds_max=200)

    for _ in range(3):
        tick(protection, clock, seconds=150, is_busy=True)
        tick(protection, clock, seconds=10, is_busy=False)

    assert agent.commands == [ON, OFF, ON, OFF, ON, OFF]


def test_s7_a_worker_that_stops_gives_protection_up(agent: Agent, clock: VirtualClock) -> None:
    """Once, although it stops twice."""
    protection = Protection(agent.uri, clock)
    protection.want(is_busy=True)

    protection.stop()
    protection.stop()

    assert agent.commands == [ON, OFF]


def test_s7_a_worker_that_was_never_busy_has_nothing_to_give_up(agent: Agent, clock: VirtualClock) -> None:
    """Nor has one whose protection, which the agent refused, would have expired."""
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
def test_s7_a_refusing_agent_is_asked_again_after_growing_pauses(
    agent: Agent, clock: VirtualClock, *, status: int, body: bytes, seen: str
) -> None:
    """After 5, 10, 20, 40, 80 and 120 s; each refusal is logged with the answer."""
    agent.answer = lambda: (status, body)
    protection = Protection(agent.uri, clock)

    with capture_logs() as logs:
        tick(protection, clock, seconds=5 + 10 + 20 + 40 + 80 + 120, is_busy=True)
    assert agent.commands == [ON] * 6
    assert [(log["log_level"], log["failure_count"], log["refused"][: len(seen)]) for log in logs] == [
        ("warning", count, seen) for count in range(1, 7)
    ]

    agent.answer = lambda: GRANTED
    tick(protection, clock, seconds=100, is_busy=True)
    assert agent.commands == [ON] * 7


def test_s7_failed_release_of_protection_is_retried_until_it_expires(agent: Agent, clock: VirtualClock) -> None:
    """Within an hour nine tries, because after ten minutes ECS has ended the protection."""
    protection = Protection(agent.uri, clock)
    protection.want(is_busy=True)
    agent.answer = lambda: (500, b"{}")

    with capture_logs():
        tick(protection, clock, seconds=3_600, is_busy=False)

    assert agent.commands == [ON] + [OFF] * 9


def test_s7_a_protection_request_without_an_answer_may_have_taken_effect(agent: Agent, clock: VirtualClock) -> None:
    """So the worker gives the protection up when it is idle."""
    is_left = threading.Event()

    def silent() -> None:
        is_left.wait(10)

    agent.answer = silent
    protection = Protection(agent.uri, clock, timeout_seconds=0.3)

    with capture_logs() as logs:
        protection.want(is_busy=True)
    eventually(lambda: agent.commands == [ON], timeout_seconds=10, describe="the agent to read what it does not answer")
    is_left.set()
    agent.answer = lambda: GRANTED
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
def test_s7_an_unreachable_agent_does_not_stop_the_worker(clock: VirtualClock, uri: str, seen: str) -> None:
    protection = Protection(uri, clock)

    with capture_logs() as logs:
        protection.want(is_busy=True)
        protection.stop()

    assert [log["refused"].split(":")[0] for log in logs] == [seen, seen]


def test_s7_a_worker_outside_of_ecs_requests_no_protection(clock: VirtualClock) -> None:
    protection = Protection(None, clock)

    with capture_logs() as logs:
        tick(protection, clock, seconds=100, is_busy=True)
        protection.stop()

    assert logs == []


def test_s7_a_proxy_of_the_environment_is_not_asked(
    agent: Agent, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy cannot reach the agent, which is on the task's own network link."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    Protection(agent.uri, clock).want(is_busy=True)

    assert agent.commands == [ON]
