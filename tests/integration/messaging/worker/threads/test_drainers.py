"""Parked groups side by side: a handler that does not end holds up its own group, and is noticed."""

from dataclasses import replace
from typing import Any, override

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


def test_a_parked_message_whose_handler_hangs_ends_its_worker_after_other_groups(on_postgres: Engine) -> None:
    """Groups are drained side by side.

    The message stays parked, and the worker ends, because its thread cannot be freed.
    """
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


def test_a_handler_past_its_deadline_is_counted_as_overdue(on_postgres: Engine) -> None:
    """The metric tells an operator why the worker ended."""
    world = _consumer_with_parked(on_postgres, "a")
    world.settings = replace(world.settings, hold_seconds_max=1.0)
    recorded = RecordedMetrics()
    worker_parts = world.worker(poll_seconds=0, hooks=[WorkerMetrics(recorded, world.clock)])
    with hanging(world, ("a", 2)), running(worker_parts) as worker, pytest.raises(OutboxError):
        worker.wait_for_end()

    assert recorded[-1][metrics.OVERDUE] == 1


def test_a_parked_messages_handler_learns_its_remaining_time(engine: Engine) -> None:
    """`context.hold.check` raises when the time is over.

    The message stays parked, and is handled at a later attempt.
    """
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
    world.simulator.advance(301)  # longer than the pause before the next attempt
    assert worker.drainer.step() == 1

    assert remaining == [300.0]
    assert tuple(row) == (1, "its handler took longer than 300 s, allowed is less")
    assert world.committed_effects() == [("a", 1), ("a", 2)]


def test_a_group_is_drained_by_a_single_thread_at_a_time(engine: Engine) -> None:
    """A thread claims a parked group before it handles its messages, and gives it back afterwards."""
    world = World(engine, policy=PARKS)
    worker = world.park("a")

    assert worker.drainer.claim() == ["a"]
    assert worker.drainer.claim() == []
    assert worker.drainer.drain("a") == 1
    assert worker.drainer.claim() == []
    assert worker.drainer._claimed == set()


class Sequential(Drainer):
    """Broken: drains one group after the other, in the thread that looks for due groups."""

    @override
    def claim(self) -> list[str]:
        for group_id in super().claim():
            self.drain(group_id)
        return []


def test_a_drainer_that_drains_groups_in_sequence_is_caught(on_postgres: Engine) -> None:
    """Negative control: the handler of the first group hangs, so the second group is never drained."""
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
        pause=worker_parts.parts.pause,
    )
    worker_parts.parts = replace(worker_parts.parts, drainer=broken)
    with hanging(world, ("a", 2)), running(worker_parts) as worker, pytest.raises(OutboxError):
        worker.wait_for_end()

    assert ("b", 2) not in world.committed_effects()


def test_a_drain_that_calls_no_handler_uses_up_no_attempt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt was counted, but then the database was busy, or another worker had the group."""
    world = World(engine, policy=PARKS)
    worker = world.park("a")
    busy: Any = OperationalError("SELECT", {}, Exception("database is locked"))
    with monkeypatch.context() as patched:
        patched.setattr(world.inbox, "lock_next_parked", lambda *_: None)  # another worker has the group
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
        patched.setattr(world.inbox, "lock_next_parked", _function_that_raises(busy))
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
    world.calls.clear()

    assert worker.drainer.step() == 1
    assert [call.attempt for call in world.calls] == [1]


def test_a_read_only_database_uses_up_no_attempt_of_a_parked_message(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover the inbox can be read but not written, so no handler is called, as on a lane."""
    world = World(engine, policy=PARKS)
    worker = world.park("a")
    read_only: Any = OperationalError("UPDATE", {}, Exception("database is locked"))
    with monkeypatch.context() as patched:
        for write in ("mark_parked", "require_writable"):
            patched.setattr(world.inbox, write, _function_that_raises(read_only))
        assert [worker.drainer.step() for _ in range(MAX_ATTEMPTS)] == [0] * MAX_ATTEMPTS
    world.calls.clear()

    assert worker.drainer.step() == 1
    assert [call.attempt for call in world.calls] == [1]


def test_a_drainer_overtaken_by_another_worker_handles_no_further_message(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it was away another worker finished its message; the next of the group waits for its backoff, uncounted."""
    world = World(engine, policy=PARKS)
    worker, other = world.park("a", behind=2), world.worker(poll_seconds=0)
    world.handler_steps["a", 3] = [Retry(delay_seconds=60, reason="not yet")]
    lock_begun = worker.drainer._lock_begun

    def late(*arguments: Any) -> Any:
        world.simulator.advance(3)  # longer than a begun attempt is kept
        assert other.drainer.step() == 1
        return lock_begun(*arguments)

    monkeypatch.setattr(worker.drainer, "_lock_begun", late)
    assert worker.drainer.step() == 0

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert [(call.place, call.attempt) for call in world.calls[-2:]] == [(("a", 2), 2), (("a", 3), 1)]


def _function_that_raises(error: Exception) -> Any:
    """Return a function that raises this error, whatever it is called with."""

    def act(*_: object, **__: object) -> None:
        raise error

    return act


def test_parked_groups_with_the_fewest_attempts_are_drained_first(engine: Engine) -> None:
    """A group whose handler hangs, and takes its worker along, does not come first again."""
    world = World(engine, policy=PARKS)
    world.park("a", "b")
    with engine.begin() as connection:
        assert world.inbox.begin_attempt(connection, "a", attempts_max=MAX_ATTEMPTS)

    world.simulator.advance(3)  # longer than a begun attempt is kept
    assert world.inbox.due(engine) == ["b", "a"]


def test_a_full_disk_uses_up_no_attempt_of_a_parked_message(
    on_postgres: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk (SQLSTATE 53100) neither handler nor drainer can write.

    The drainer takes the attempt back later.
    """
    world = World(on_postgres, policy=PARKS)
    worker = world.park("a")
    full: Any = lambda session, *_: fail_with(session.connection(), "53100")  # noqa: E731
    world.handler_steps["a", 2] = [full] * MAX_ATTEMPTS * 2
    with monkeypatch.context() as patched:
        patched.setattr(world.inbox, "cancel_attempt", lambda connection, *_: fail_with(connection, "53100"))
        for _ in range(2 * MAX_ATTEMPTS):
            worker.drainer.step()
            world.simulator.advance(10)
    world.handler_steps.clear()
    world.calls.clear()

    for _ in range(3):
        worker.drainer.step()

    assert [call.attempt for call in world.calls] == [1]
