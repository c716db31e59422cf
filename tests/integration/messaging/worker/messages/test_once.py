"""Each effect once, whatever is delivered twice and whoever dies where (W6 to W9, W16, W17)."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sluice.clock import VirtualClock
from sluice.declaration import metrics
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Context, Outcome, Reject
from sluice.messaging.worker.processing.acknowledgements import Abandon, Delete
from sluice.messaging.worker.processing.processor import MessageProcessor
from tests.support.messaging.broken_workers import DeletesFirst, InboxApart, RemembersInMemory
from tests.support.messaging.faulty_calls import Fault, ProcessKill, failing_at
from tests.support.messaging.outbox.postgres_interleaving import await_lock_wait
from tests.support.messaging.world import (
    MAX_ATTEMPTS,
    TIMEOUT_SECONDS,
    WorkerParts,
    World,
    envelope,
    places,
)

REFUSED = Fault(operation="DeleteMessage", refused="InvalidParameterValue")
UNREACHABLE = Fault(operation="DeleteMessage", unreachable=True)


def assert_a_redelivery_has_no_second_effect(
    world: World, kind: type[MessageProcessor], faults: list[Fault]
) -> WorkerParts:
    """W6: the delete of a message fails.

    Another worker receives the message, deletes it without a call of the handler, and handles the next one.
    """
    world.send("a", "a")
    first, second = world.worker(kind=kind), world.worker(kind=kind)
    first.sqs_calls.faults += faults

    first.lane.step()
    assert world.called_places == [("a", 1)]
    assert places(world.bodies_in_queue()) == [("a", 1), ("a", 2)]
    world.work_until_idle(second)

    assert world.called_places == [("a", 1), ("a", 2)]
    assert world.committed_effects() == [("a", 1), ("a", 2)]
    return first


@pytest.mark.parametrize(("faults", "tries"), [([REFUSED], 1), ([UNREACHABLE] * 3, 3)], ids=["refused", "unreachable"])
def test_w6_a_failed_delete_blocks_the_group_and_causes_a_repeat(world: World, faults: list[Fault], tries: int) -> None:
    """A refused delete is not tried again; without an answer it is tried three times."""
    first = assert_a_redelivery_has_no_second_effect(world, MessageProcessor, faults)

    assert len(first.sqs_calls.of("DeleteMessage")) == tries
    assert first.tally.take()[metrics.NOT_DELETED] == 1


def test_w6_a_worker_that_remembers_messages_in_memory_is_caught(world: World) -> None:
    """W6, negative control: only the worker that handled the message knows it, so the next worker handles it again."""
    with pytest.raises(AssertionError):
        assert_a_redelivery_has_no_second_effect(world, RemembersInMemory, [REFUSED])


def test_w6_a_delete_with_a_lost_answer_is_repeated_without_a_redelivery(world: World) -> None:
    """The repeat of a delete that succeeded succeeds too: SQS accepts the same receipt handle again."""
    world.send("a", "a")
    worker = world.worker()
    worker.sqs_calls.faults.append(Fault(operation="DeleteMessage", lost=True))

    world.work_until_idle(worker)

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert [len(worker.sqs_calls.of(name)) for name in ("DeleteMessage", "ReceiveMessage")] == [3, 2]


def assert_effect_and_mark_survive_a_kill(world: World, kind: type[MessageProcessor], step: str) -> None:
    """W7, W8: kill a worker at a step.

    The inbox has the message exactly if its effect is committed, and another worker finishes both messages.
    """
    world.send("a", "a")

    with pytest.raises(ProcessKill):
        world.worker(kind=kind, failpoint=failing_at(step)).lane.step()
    assert [seq for _, seq in world.committed_effects()] == list(range(1, world.last_numbers().get("a", 0) + 1))
    world.work_until_idle(world.worker(kind=kind))

    assert world.committed_effects() == [("a", 1), ("a", 2)]
    assert world.last_numbers() == {"a": 2}
    assert world.bodies_in_dlq() == []
    assert world.exceptions() == {}


@pytest.mark.parametrize("step", ["after_commit", "before_delete"])
def test_w7_a_redelivery_after_the_commit_is_only_deleted(world: World, step: str) -> None:
    """The worker dies between commit and delete; the next one does not call the handler again."""
    assert_effect_and_mark_survive_a_kill(world, MessageProcessor, step)

    assert world.called_places == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    "step", ["after_receive", "in_transaction", "before_commit", "after_commit", "before_delete", "after_delete"]
)
def test_w8_the_inbox_has_a_message_exactly_if_it_has_an_effect(world_on_each_database: World, step: str) -> None:
    """Wherever the worker dies: the inbox's mark and the effect are in one transaction."""
    assert_effect_and_mark_survive_a_kill(world_on_each_database, MessageProcessor, step)


@pytest.mark.parametrize(
    ("kind", "step"), [(DeletesFirst, "in_transaction"), (InboxApart, "before_commit")], ids=["deletes first", "apart"]
)
def test_w8_a_worker_that_marks_or_deletes_before_the_effect_is_caught(
    world: World, kind: type[MessageProcessor], step: str
) -> None:
    """W7, W8, negative controls: the message is gone, or known, and its effect was never there."""
    with pytest.raises(AssertionError):
        assert_effect_and_mark_survive_a_kill(world, kind, step)


@pytest.mark.parametrize("step", ["before_commit", "after_death", "before_release"])
def test_w8_a_rejected_message_is_dead_once_wherever_its_worker_dies(world: World, step: str) -> None:
    """A death before its record is committed repeats the call; a later one does not."""
    world.send("a", "a")
    world.handler_steps["a", 1] = [Reject("never"), Reject("never")]
    if step == "before_commit":
        world.handler_steps["a", 1].insert(0, None)

    with pytest.raises(ProcessKill):
        world.worker(failpoint=failing_at(step)).lane.step()
    world.work_until_idle(world.worker())

    assert world.exceptions() == {("a", 1): ("dead", "never")}
    assert places(world.bodies_in_dlq()) == [("a", 1)]
    assert world.committed_effects() == [("a", 2)]
    assert world.called_places.count(("a", 1)) == (2 if step == "before_commit" else 1)


def test_w8_a_message_that_killed_its_workers_is_handled_after_a_redrive(world: World) -> None:
    """No worker lived to record the death.

    The inbox finds the number missing, and the redriven message fills the gap.
    """
    world.send("a", "a", "a")
    world.work_until_idle(world.worker(), until=[("a", 2), ("a", 3)])
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(ProcessKill):
            world.worker(failpoint=failing_at("in_transaction")).lane.step()
        world.simulator.advance(TIMEOUT_SECONDS)

    world.work_until_idle(world.worker())
    missed = world.exceptions()
    world.redrive()
    world.work_until_idle(world.worker())

    assert missed == {("a", 2): ("gap", None)}
    assert world.committed_effects() == [("a", 1), ("a", 3), ("a", 2)]
    assert world.exceptions() == {("a", 2): ("filled", None)}
    assert world.calls[-1].is_late


@pytest.fixture
def shared_world(on_postgres: Engine) -> World:
    """Return a consumer on Postgres: SQLite allows one writer, so no two workers could meet."""
    world = World(on_postgres)
    world.send("a", "a")
    return world


def handle_in_two_workers(world: World, *, slow_clock: VirtualClock | None) -> list[object]:
    """Let a second worker receive the first message while the first worker handles it; return both outcomes."""
    is_in_handler, may_go_on = threading.Event(), threading.Event()

    def lingers(_: Session, __: Event, ___: Context) -> Outcome | None:
        is_in_handler.set()
        assert may_go_on.wait(30)
        return None

    world.handler_steps["a", 1] = [lingers]
    slow, fast = world.worker(clock=slow_clock), world.worker()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow.processor.process, world.receive(slow))
        assert is_in_handler.wait(30)
        world.simulator.advance(TIMEOUT_SECONDS + 1)
        second = pool.submit(fast.processor.process, world.receive(fast))
        await_lock_wait(world.engine)
        may_go_on.set()
        return [first.result(30), second.result(30)]


def test_w9_of_two_workers_with_one_message_the_late_one_commits_nothing(shared_world: World) -> None:
    """The first worker's visibility timeout is over, so the second gets the message.

    The first sees that by its clock.
    """
    ends = handle_in_two_workers(shared_world, slow_clock=None)

    assert ends == [Abandon(), Delete()]
    assert shared_world.called_places == [("a", 1), ("a", 1)]
    assert shared_world.committed_effects() == [("a", 1)]
    assert places(shared_world.bodies_in_queue()) == [("a", 2)]


def test_w9_a_worker_that_commits_too_late_prevents_a_second_effect(shared_world: World) -> None:
    """A slow clock hides from the first worker that its time is over.

    The second finds its effect and calls no handler.
    """
    ends = handle_in_two_workers(shared_world, slow_clock=VirtualClock(shared_world.clock.now_us()))

    assert ends == [Delete(), Delete()]
    assert shared_world.called_places == [("a", 1)]
    assert shared_world.committed_effects() == [("a", 1)]
    assert places(shared_world.bodies_in_queue()) == [("a", 2)]


def test_w17_another_event_under_the_last_number_is_refused_and_never_applied(world: World) -> None:
    """Two events with one number are a sign of a database that was restored from a backup.

    The reason says what to do.
    """
    world.put(envelope("a", 1, id="known"))
    world.work_until_idle(world.worker())
    world.put(envelope("a", 1))

    world.work_until_idle(world.worker())

    reason = "has the number of event known; was the database restored without begin-epoch?"
    assert world.committed_effects() == [("a", 1)]
    assert [found for _, found in world.exceptions().values()] == [reason]
    assert len(world.bodies_in_dlq()) == 1
