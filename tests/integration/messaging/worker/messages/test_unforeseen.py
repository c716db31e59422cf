"""An unforeseen failure of a handler or a database takes no message with it, and holds up no other group."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.worker.processing.acknowledgements import Abandon
from tests.support.messaging.faulty_calls import ProcessKill, failing_at
from tests.support.messaging.world import MAX_ATTEMPTS, TIMEOUT_SECONDS, World, places

PARKS = InboxPolicy(consumer="billing", parks_poison=True, parks_gaps=True)


@pytest.mark.parametrize("policy", [InboxPolicy(consumer="billing"), PARKS], ids=["skip", "park"])
def test_w8_a_groups_first_message_that_kills_its_workers_is_missed(engine: Engine, policy: InboxPolicy) -> None:
    """Nothing was ever written about that message, and the inbox still does not begin the group with the next one."""
    world = World(engine, policy=policy)
    world.send("a", "a")
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(ProcessKill):
            world.worker(failpoint=failing_at("before_commit")).lane.step()
        world.simulator.advance(TIMEOUT_SECONDS + 1)
    worker = world.worker()
    world.work_until_idle(worker)
    assert places(world.bodies_in_dlq()) == [("a", 1)]

    before = world.committed_effects()
    world.redrive()
    world.work_until_idle(worker)
    worker.drainer.step()

    assert before == ([] if policy.parks_gaps else [("a", 2)])
    assert world.committed_effects() == ([("a", 1), ("a", 2)] if policy.parks_gaps else [("a", 2), ("a", 1)])
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []
    assert world.parked_places() == []


def test_an_inbox_without_its_table_uses_up_no_attempt(world: World) -> None:
    """As during a migration, or after a failover. The worker receives nothing more until the table is back."""
    world.send("a", "b", "c")
    _rename(world.engine, "sluice_inbox_group", "elsewhere")
    worker = world.worker()

    ended = worker.processor.process(world.receive(worker))
    for _ in range(3 * MAX_ATTEMPTS):
        worker.lane.step()
    received = len(worker.sqs_calls.of("ReceiveMessage"))
    _rename(world.engine, "elsewhere", "sluice_inbox_group")
    world.work_until_idle(worker)

    assert ended == Abandon()
    assert received == 1
    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1), ("c", 1)]
    assert world.bodies_in_queue() == []
    assert world.bodies_in_dlq() == []


def _rename(engine: Engine, name: str, to: str) -> None:
    """Rename a table, so that the statements on it fail."""
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {name} RENAME TO {to}"))


def test_a_parked_message_that_fails_holds_up_no_other_group(engine: Engine) -> None:
    """Another database fails, so its attempts are used up, and it stays parked; the other group is drained."""
    world = World(engine, policy=PARKS)
    worker = world.park("a", "b")
    elsewhere = OperationalError("SELECT", {}, RuntimeError("another database does not answer"))
    world.handler_steps["a", 2] = [elsewhere] * MAX_ATTEMPTS

    assert worker.drainer.step() == 1
    for _ in range(MAX_ATTEMPTS):
        world.simulator.advance(301)
        worker.drainer.step()

    assert world.committed_effects() == [("a", 1), ("b", 1), ("b", 2)]
    assert [call.attempt for call in world.calls if call.place == ("a", 2)] == list(range(1, MAX_ATTEMPTS + 1))
    assert world.parked_places() == [("a", 2)]
