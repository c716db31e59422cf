"""Parked groups side by side: a handler that does not end holds up its own group, and is noticed."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.database import connections
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Context, Retry
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.tables import parked
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.worker.drainer import Drainer
from sluice.simulator.hook import Simulator
from tests.support.messaging.database_errors import fail_with
from tests.support.messaging.faulty_calls import seeded_random
from tests.support.messaging.recorded_metrics import RecordedMetrics
from tests.support.messaging.worker_threads import PATIENCE_SECONDS, MachineClock, hanging, running
from tests.support.messaging.world import MAX_ATTEMPTS, World

PARKS = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)


def _consumer_with_parked(engine: Engine, *groups: str) -> World:
    """Return a consumer on the machine's clock, in which each group has a due parked message."""
    world = World(engine, policy=PARKS, simulator=Simulator(MachineClock()), timeout_seconds=2)
    world.park(*groups)
    return world


def test_a_hung_parked_message_stops_no_group_and_ends_its_worker(on_postgres: Engine) -> None:
    world = _consumer_with_parked(on_postgres, "a", "b", "c")
    world.settings = replace(world.settings, hold_seconds_max=3.0)
    connections.end_waits(on_postgres, 30)
    worker_parts = world.worker(poll_seconds=0)
    with capture_logs() as logged, hanging(world, ("a", 2)), running(worker_parts, worker_parts.lane) as worker:
        eventually(
            lambda: {("b", 2), ("c", 2)} <= set(world.committed_effects()),
            timeout_seconds=PATIENCE_SECONDS,
            describe="the other groups to be drained",
        )
        still_parked = world.parked_places()
        with pytest.raises(OutboxError, match="number 2 of group a, which was set aside, was given up and has not"):
            worker.wait_for_end()

    assert still_parked == [("a", 2)]
    assert [entry["unfinished"] for entry in logged if entry["event"] == "stopped"] == [1]
    assert ("a", 2) not in world.committed_effects()


def test_overdue_handlers_are_counted(on_postgres: Engine) -> None:
    world = _consumer_with_parked(on_postgres, "a")
    world.settings = replace(world.settings, hold_seconds_max=1.0)
    recorded = RecordedMetrics()
    worker_parts = world.worker(poll_seconds=0, hooks=[WorkerMetrics(recorded, world.clock)])
    with hanging(world, ("a", 2)), running(worker_parts) as worker, pytest.raises(OutboxError):
        worker.wait_for_end()

    assert recorded[-1][metrics.OVERDUE] == 1


def test_a_handler_can_ask_whether_its_time_is_over(engine: Engine) -> None:
    world = World(engine, policy=PARKS)
    worker = world.park("a")
    remaining = []

    def takes_long(_: Session, __: Event, context: Context) -> None:
        remaining.append(context.hold.remaining_seconds())
        world.simulator.advance(world.settings.hold_seconds_max)
        context.hold.check()

    world.handler_steps["a", 2] = [takes_long]
    assert worker.drainer.step() == 0
    with engine.connect() as connection:
        row = connection.execute(select(parked.c.attempts, parked.c.last_error)).one()
    world.simulator.advance(301)
    assert worker.drainer.step() == 1

    assert remaining == [300.0]
    assert tuple(row) == (1, "its handler took longer than 300 s, allowed is less")
    assert world.committed_effects() == [("a", 1), ("a", 2)]


def test_a_group_is_with_one_thread_of_a_process_at_a_time(engine: Engine) -> None:
    world = World(engine, policy=PARKS)
    worker = world.park("a")

    assert worker.drainer.claim() == ["a"]
    assert worker.drainer.claim() == []
    assert worker.drainer.drain("a") == 1
    assert worker.drainer.claim() == []
    assert worker.drainer._claimed == set()


class Sequential(Drainer):
    """Broken: drains one group after the other, in the thread that looks for due groups."""

    def claim(self) -> list[str]:
        for group_id in super().claim():
            self.drain(group_id)
        return []


def test_the_test_catches_a_drainer_that_takes_parts_in_sequence(on_postgres: Engine) -> None:
    world = _consumer_with_parked(on_postgres, "a", "b")
    world.settings = replace(world.settings, hold_seconds_max=2.0)
    worker_parts = world.worker(poll_seconds=0)
    broken = Sequential(
        on_postgres,
        world.inbox,
        worker_parts.drainer._runner,
        settings=world.settings,
        clock=SystemClock(),
        rng=seeded_random(3),
        hooks=worker_parts.parts.hooks,
        shutdown=worker_parts.shutdown,
        signs=worker_parts.parts.signs,
    )
    worker_parts.parts = replace(worker_parts.parts, drainer=broken)
    with hanging(world, ("a", 2)), running(worker_parts) as worker, pytest.raises(OutboxError):
        worker.wait_for_end()

    assert ("b", 2) not in world.committed_effects()


def test_a_step_that_calls_no_handler_uses_up_no_attempt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt was counted, but then the database was busy, or another worker had the group."""
    world = World(engine, policy=PARKS)
    worker = world.park("a")
    busy: Any = OperationalError("SELECT", {}, Exception("database is locked"))
    with monkeypatch.context() as patched:
        patched.setattr(world.inbox, "next_parked", lambda *_: None)
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
        patched.setattr(world.inbox, "next_parked", _raising(busy))
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
    world.calls.clear()

    assert worker.drainer.step() == 1
    assert [call.attempt for call in world.calls] == [1]


def test_a_database_that_only_reads_uses_up_no_attempt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover the inbox can be read but not written, so no handler is called, as on a lane."""
    world = World(engine, policy=PARKS)
    worker = world.park("a")
    read_only: Any = OperationalError("UPDATE", {}, Exception("database is locked"))
    with monkeypatch.context() as patched:
        for write in ("mark_parked", "require_writable"):
            patched.setattr(world.inbox, write, _raising(read_only))
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
    world.calls.clear()

    assert worker.drainer.step() == 1
    assert [call.attempt for call in world.calls] == [1]


def test_an_overtaken_drainer_takes_up_no_other_message(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it was away another worker finished its message; the next of the group waits for its backoff, uncounted."""
    world = World(engine, policy=PARKS)
    worker, other = world.park("a", behind=2), world.worker(poll_seconds=0)
    world.handler_steps["a", 3] = [Retry(delay_seconds=60, reason="not yet")]
    take_up = worker.drainer._take_up

    def late(*arguments: Any) -> Any:
        world.simulator.advance(3)  # longer than a begun attempt is kept
        assert other.drainer.step() == 1
        return take_up(*arguments)

    monkeypatch.setattr(worker.drainer, "_take_up", late)
    assert worker.drainer.step() == 0

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert [(call.place, call.attempt) for call in world.calls[-2:]] == [(("a", 2), 2), (("a", 3), 1)]


def _raising(error: Exception) -> Any:
    """Return a function that raises this error, whatever it is called with."""

    def act(*_: object, **__: object) -> None:
        raise error

    return act


def test_groups_with_fewest_attempts_are_due_first(engine: Engine) -> None:
    """A group whose handler hangs, and takes its worker along, does not come first again."""
    world = World(engine, policy=PARKS)
    world.park("a", "b")
    with engine.begin() as connection:
        assert world.inbox.begin_attempt(connection, "a", attempts_max=MAX_ATTEMPTS)

    world.simulator.advance(3)
    assert world.inbox.due(engine) == ["b", "a"]


def test_an_attempt_is_taken_back_later_if_the_disk_is_full(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk neither the handler can write, nor the drainer, which takes the attempt back."""
    world = World(on_postgres, policy=PARKS)
    worker = world.park("a")
    full: Any = lambda session, *_: fail_with(session.connection(), "53100")  # noqa: E731
    world.handler_steps["a", 2] = [full] * MAX_ATTEMPTS * 2
    with monkeypatch.context() as patched:
        patched.setattr(world.inbox, "end_attempt", lambda connection, *_: fail_with(connection, "53100"))
        for _ in range(2 * MAX_ATTEMPTS):
            worker.drainer.step()
            world.simulator.advance(10)
    world.handler_steps.clear()
    world.calls.clear()

    for _ in range(3):
        worker.drainer.step()

    assert [call.attempt for call in world.calls] == [1]
