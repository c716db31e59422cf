"""Parked groups side by side: a handler that does not end holds up its own group, and is noticed."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.database import engines
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Ack, Context, Outcome, Reject, Retry
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.inbox.tables import parked
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.drainer import Drainer
from sluice.messaging.worker.settings import WorkerSettings
from sluice.simulator.hook import Simulator
from tests.integration.messaging.worker.test_hold import MachineClock
from tests.integration.messaging.worker.test_polling import join_lanes, worker_of
from tests.support.worker_harness import MAX_ATTEMPTS, Hands, World, seeded

PATIENCE_SECONDS = 30
PARKS = Policy(consumer="billing", parks_poison=True, parks_gaps=True)
SETTINGS = WorkerSettings(lanes=2, wait_seconds=0, drain_seconds=0.5, keep_inbox_seconds=86_400)


def _parked(engine: Engine, *groups: str) -> World:
    """Return a consumer on the machine's clock, in which each group has a message set aside whose turn it is."""
    world = World(engine, policy=PARKS, simulator=Simulator(MachineClock()), timeout_seconds=2)
    _park(world, *groups)
    return world


def _park(world: World, *groups: str, then: str = "") -> Hands:
    """Let the second message of each group be set aside, and the first one be back; return who did it.

    Args:
        world: the consumer.
        groups: of the messages.
        then: a group that has a third one, set aside too.
    """
    worker = world.worker(poll_seconds=0)
    for group in groups:
        world.says[group, 1] = [Reject("no such customer")]
        world.send(group, group, *([group] if group == then else []))
    world.work_off(worker, steps_max=100_000)
    world.redrive()
    world.work_off(worker, steps_max=100_000)
    assert world.parked() == [(group, seq) for group in groups for seq in ((2, 3) if group == then else (2,))]
    return worker


@contextmanager
def _hanging(world: World, group: str) -> Iterator[None]:
    """Let the handler of a group's second message hang meanwhile."""
    may_end = threading.Event()

    def never_ends(_: Session, __: Event, ___: Context) -> Outcome:
        assert may_end.wait(2 * PATIENCE_SECONDS)
        return Ack()

    world.says[group, 2] = [never_ends]
    try:
        yield
    finally:
        may_end.set()
        join_lanes()


def test_a_hung_handler_of_a_parked_message_stops_no_other_group_and_ends_its_worker(on_postgres: Engine) -> None:
    """The first group in order hangs; the others are drained meanwhile. It is named, counted, and not called done."""
    world = _parked(on_postgres, "a", "b", "c")
    world.settings = replace(world.settings, hold_seconds_max=3.0)
    engines.end_waits(on_postgres, 30)
    hands, stop = world.worker(poll_seconds=0), Stop()
    with capture_logs() as logged, _hanging(world, "a"), ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker_of(hands, stop, SETTINGS, hands.lane).run)
        eventually(
            lambda: {("b", 2), ("c", 2)} <= set(world.effects()),
            timeout_seconds=PATIENCE_SECONDS,
            describe="the other groups to be drained",
        )
        still_parked = world.parked()
        with pytest.raises(OutboxError, match="number 2 of group a, which was set aside, was given up and has not"):
            running.result(PATIENCE_SECONDS)

    assert still_parked == [("a", 2)]
    assert [entry["unfinished"] for entry in logged if entry["event"] == "stopped"] == [1]
    assert ("a", 2) not in world.effects()


def test_how_many_were_overdue_is_counted(on_postgres: Engine) -> None:
    """Who looks at metrics only sees it too: they are written when the worker ends."""
    world = _parked(on_postgres, "a")
    world.settings = replace(world.settings, hold_seconds_max=1.0)
    written: list[dict[str, float]] = []
    hands = world.worker(poll_seconds=0, hooks=[WorkerMetrics(_Keeping(written), world.clock)])
    worker = worker_of(hands, Stop(), SETTINGS)
    with _hanging(world, "a"), ThreadPoolExecutor(1) as pool, pytest.raises(OutboxError):
        pool.submit(worker.run).result(PATIENCE_SECONDS)

    assert written[-1][metrics.OVERDUE] == 1


class _Keeping:
    """Keeps measurements."""

    def __init__(self, written: list[dict[str, float]]) -> None:
        self._written = written

    def put(self, values: Mapping[str, float]) -> None:
        """Keep it."""
        self._written.append(dict(values))


def test_a_handler_that_asks_learns_that_its_time_is_over_and_that_was_an_attempt(engine: Engine) -> None:
    """As on a lane; the reason says how long it took, and the next attempt may succeed."""
    world = World(engine, policy=PARKS)
    worker = _park(world, "a")
    remaining = []

    def takes_long(_: Session, __: Event, context: Context) -> None:
        remaining.append(context.hold.remaining_seconds())
        world.simulator.advance(world.settings.hold_seconds_max)
        context.hold.check()

    world.says["a", 2] = [takes_long]
    assert worker.drainer.step() == 0
    with engine.connect() as connection:
        row = connection.execute(select(parked.c.attempts, parked.c.last_error)).one()
    world.simulator.advance(301)
    assert worker.drainer.step() == 1

    assert remaining == [300.0]
    assert tuple(row) == (1, "its handler took longer than 300 s, allowed is less")
    assert world.effects() == [("a", 1), ("a", 2)]


def test_a_group_is_with_one_thread_of_a_process_at_a_time(engine: Engine) -> None:
    """Who has claimed a group keeps it until it is drained; then it can be claimed again."""
    world = World(engine, policy=PARKS)
    worker = _park(world, "a")

    assert (worker.drainer.claim(), worker.drainer.claim()) == (["a"], [])
    assert worker.drainer.drain("a") == 1
    assert (worker.drainer.claim(), worker.drainer._claimed) == ([], set())


class Sequential(Drainer):
    """Broken: drains one group after the other, in the thread that looks which are due."""

    def claim(self) -> list[str]:
        """Drain all that is due, and leave nothing to the other threads."""
        for group_id in super().claim():
            self.drain(group_id)
        return []


def test_a_drainer_that_goes_one_by_one_is_caught(on_postgres: Engine) -> None:
    """Negative control: behind a handler that hangs nothing is drained."""
    world = _parked(on_postgres, "a", "b")
    world.settings = replace(world.settings, hold_seconds_max=2.0)
    hands, stop = world.worker(poll_seconds=0), Stop()
    broken = Sequential(
        on_postgres,
        world.inbox,
        hands.drainer._runner,
        settings=world.settings,
        clock=SystemClock(),
        rng=seeded(3),
        hooks=hands.parts.hooks,
        shutdown=hands.shutdown,
        signs=hands.parts.signs,
    )
    worker = worker_of(hands, stop, SETTINGS)
    worker.parts = replace(worker.parts, drainer=broken)
    with _hanging(world, "a"), ThreadPoolExecutor(1) as pool, pytest.raises(OutboxError):
        pool.submit(worker.run).result(PATIENCE_SECONDS)

    assert ("b", 2) not in world.effects()


def test_an_attempt_that_is_not_made_does_not_count(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database was busy, or another worker had the group, between its count and the handler."""
    world = World(engine, policy=PARKS)
    worker = _park(world, "a")
    busy: Any = OperationalError("SELECT", {}, Exception("database is locked"))
    with monkeypatch.context() as patched:
        patched.setattr(world.inbox, "next_parked", lambda *_: None)
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
        patched.setattr(world.inbox, "next_parked", _raising(busy))
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
    world.calls.clear()

    assert worker.drainer.step() == 1
    assert [call.attempt for call in world.calls] == [1]


def test_who_was_overtaken_takes_up_no_other_message(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it was away another worker finished its message; the next of the group waits for its backoff, uncounted."""
    world = World(engine, policy=PARKS)
    worker, other = _park(world, "a", then="a"), world.worker(poll_seconds=0)
    world.says["a", 3] = [Retry(delay_seconds=60, reason="not yet")]
    take_up = worker.drainer._taken_up

    def late(*arguments: Any) -> Any:
        world.simulator.advance(3)  # longer than a begun attempt is kept
        assert other.drainer.step() == 1
        return take_up(*arguments)

    monkeypatch.setattr(worker.drainer, "_taken_up", late)
    assert worker.drainer.step() == 0

    assert world.effects() == [("a", 1), ("a", 2)]
    assert [(call.place, call.attempt) for call in world.calls[-2:]] == [(("a", 2), 2), (("a", 3), 1)]


def _raising(error: Exception) -> Any:
    def act(*_: object) -> None:
        raise error

    return act


def test_those_with_fewest_attempts_are_due_first(engine: Engine) -> None:
    """A group whose handler hangs, and takes its worker along, does not come first again."""
    world = World(engine, policy=PARKS)
    _park(world, "a", "b")
    with engine.begin() as connection:
        assert world.inbox.begin_attempt(connection, "a", attempts_max=MAX_ATTEMPTS)

    world.simulator.advance(3)
    assert world.inbox.due(engine) == ["b", "a"]
