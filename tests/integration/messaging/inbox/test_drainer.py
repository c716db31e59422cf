"""The drainer handles parked messages in order, even if workers die or calls fail meanwhile."""

import pytest
from sqlalchemy import Engine, select, update

from sluice.messaging.handlers import Reject, Retry
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.tables import parked
from tests.support.messaging.faulty_calls import ProcessKill, failing_at
from tests.support.messaging.world import MAX_ATTEMPTS, TIMEOUT_SECONDS, World, create_tables

_PARK = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)


@pytest.fixture
def world(engine: Engine) -> World:
    """Return a consumer that parks messages behind a dead or a missing one."""
    create_tables(engine)
    return World(engine, policy=_PARK)


def test_d2_parked_messages_follow_the_redriven_message_in_order(world: World) -> None:
    """Message 1 dies, 2 and 3 are parked; after the redrive of 1 they are handled, and none counts as late."""
    worker = world.worker()
    world.handler_steps["a", 1] = [Reject("no such customer")]
    world.send("a", "a", "a")
    world.work_until_idle(worker)
    assert world.parked_places() == [("a", 2), ("a", 3)]
    assert worker.drainer.step() == 0

    world.redrive()
    world.work_until_idle(worker)
    assert world.committed_effects() == [("a", 1)]
    assert worker.drainer.step() == 2

    assert world.committed_effects() == [("a", 1), ("a", 2), ("a", 3)]
    assert not any(call.is_late for call in world.calls)
    assert world.parked_places() == []
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []


@pytest.mark.parametrize("step", ["after_park", "in_drain", "before_drain_commit", "after_drain_commit"])
def test_a_worker_killed_while_it_parks_or_drains_loses_nothing(world: World, step: str) -> None:
    """Message 1 is rejected, so 2 and 3 are parked behind it and drained after its redrive.

    A worker that is killed at the step has a successor, which finishes with each effect once and in order.
    """
    workers = [world.worker(failpoint=failing_at(step))]
    world.handler_steps["a", 1] = [Reject("no such customer")]
    world.send("a", "a", "a")
    is_redriven = False

    for _ in range(30):
        try:
            workers[-1].lane.step()
            workers[-1].drainer.step()
        except ProcessKill:
            workers.append(world.worker())
            world.simulator.advance(TIMEOUT_SECONDS)
        if world.parked_places() == [("a", 2), ("a", 3)] and not is_redriven:
            is_redriven = True
            world.redrive()

    assert len(workers) == 2, "nobody died"
    assert world.committed_effects() == [("a", 1), ("a", 2), ("a", 3)]
    assert world.parked_places() == []
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []


@pytest.mark.parametrize("step", ["in_drain", "before_drain_commit"])
def test_a_message_that_kills_every_worker_is_held(world: World, step: str) -> None:
    """W5: each worker dies with the parked message, which has no visibility timeout and no DLQ.

    After the last attempt it is held: no worker tries it again.
    """
    world.park("a", behind=2)

    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(ProcessKill):
            world.worker(failpoint=failing_at(step)).drainer.step()
        world.simulator.advance(3)

    assert world.worker(failpoint=failing_at(step)).drainer.step() == 0
    assert world.inbox.counts(world.engine)["held_messages"] == 1
    assert world.committed_effects() == [("a", 1)]


def test_a_failing_parked_message_is_held_after_its_last_attempt(world: World) -> None:
    """Three attempts, the second after the requested 60 s. An operator has it tried again."""
    worker = world.park("a", behind=2)
    world.calls.clear()
    world.handler_steps["a", 2] = [Retry(delay_seconds=60), Retry(), ValueError("boom")]

    assert worker.drainer.step() == 0
    world.simulator.advance(59)
    assert worker.drainer.step() == 0
    assert [call.attempt for call in world.calls] == [1]
    for _ in range(10):
        world.simulator.advance(worker.processor._settings.backoff.cap_seconds)
        worker.drainer.step()

    assert [(call.attempt, call.is_last_attempt) for call in world.calls] == [(1, False), (2, False), (3, True)]
    assert MAX_ATTEMPTS == 3
    with world.engine.connect() as connection:
        held = connection.execute(select(parked.c.seq, parked.c.last_error).where(parked.c.held_at_us.is_not(None)))
        assert [tuple(row) for row in held] == [(2, "ValueError: boom")]

    with world.engine.begin() as connection:
        InboxOperator(consumer="billing", actor="ann", reason="fixed", clock=world.clock).retry(connection, "a", 2)
    assert worker.drainer.step() == 2
    assert world.committed_effects() == [("a", 1), ("a", 2), ("a", 3)]


def test_a_rejected_parked_message_is_held_at_once(world: World) -> None:
    """A parked message is in no queue any more, so it cannot go to a DLQ."""
    worker = world.park("a", behind=2)
    world.handler_steps["a", 2] = [Reject("never")]

    assert worker.drainer.step() == 0
    world.simulator.advance(10_000)
    assert worker.drainer.step() == 0

    assert world.inbox.counts(world.engine)["held_messages"] == 1
    assert world.committed_effects() == [("a", 1)]
    assert world.parked_places() == [("a", 2), ("a", 3)]


def test_a_worker_that_ends_during_a_drain_uses_up_no_attempt(world: World) -> None:
    """The end comes inside the handler, whose effect is rolled back; another worker handles both messages."""
    worker = world.park("a", behind=2)
    world.calls.clear()

    def end(*_: object) -> None:
        worker.shutdown.set()

    world.handler_steps["a", 2] = [end]
    assert worker.drainer.step() == 0
    assert world.committed_effects() == [("a", 1)]
    assert world.parked_places() == [("a", 2), ("a", 3)]

    assert world.worker().drainer.step() == 2
    assert [call.attempt for call in world.calls] == [1, 1, 1]


def test_an_unreadable_parked_message_holds_up_its_own_group_only(world: World) -> None:
    """Group a is drained first, and fails. What group b parks later is handled by the same worker, too."""
    worker = world.park("a", "b")
    with world.engine.begin() as connection:
        connection.execute(update(parked).where(parked.c.group_id == "a").values(body="no envelope"))

    for _ in range(2):
        worker.drainer.step()

    assert world.committed_effects() == [("a", 1), ("b", 1), ("b", 2)]
    assert world.parked_places() == [("a", 2)]
