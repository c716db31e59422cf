"""Deletes of several lanes in one call: each message has its own outcome, and none is left behind (W6, S2)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from sluice.clock import eventually
from sluice.declaration import metrics
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.processing.deleter import DELETED_MAX
from tests.support.messaging.broken_workers import TakesABatchAsAWhole
from tests.support.messaging.faulty_calls import Fault
from tests.support.messaging.worker_threads import PATIENCE_SECONDS, running
from tests.support.messaging.world import SqsCalls, WorkerParts, World, places

BATCH, SINGLE = "DeleteMessageBatch", "DeleteMessage"


def handle_without_deleting(world: World, *groups: str, **options: Any) -> WorkerParts:
    """Return a worker that has handled a message of each group; nothing is deleted yet."""
    worker = world.worker(poll_seconds=0, **options)
    world.send(*groups)
    worker.deleter.begin()
    for _ in groups:
        worker.lane.step()
    assert len(world.committed_effects()) == len(groups)
    assert len(world.bodies_in_queue()) == len(groups)
    return worker


def receipt_handle_of(world: World, group: str) -> str:
    """Return the receipt handle of the only message of a group."""
    (found,) = [
        message for message in world.simulator.account.sqs.queues[world.arn].in_order() if message.group == group
    ]
    return str(found.handle)


def test_w6_messages_of_several_lanes_are_deleted_in_one_call(world: World) -> None:
    """A step of the deleter deletes every message that was handled since the last one."""
    worker = handle_without_deleting(world, "a", "b", "c")

    worker.deleter.step()

    assert [len(call["Entries"]) for call in worker.sqs_calls.of(BATCH)] == [3]
    assert world.bodies_in_queue() == []
    assert worker.sqs_calls.of(SINGLE) == []


def test_w6_a_call_deletes_ten_at_most(world: World) -> None:
    """SQS allows ten entries in a call. The eleventh message is deleted by a call of its own."""
    worker = handle_without_deleting(world, *(f"group-{number}" for number in range(DELETED_MAX + 1)))

    worker.deleter.step()
    worker.deleter.step()

    assert [len(call["Entries"]) for call in worker.sqs_calls.of(BATCH)] == [DELETED_MAX]
    assert world.bodies_in_queue() == []
    assert len(worker.sqs_calls.of(SINGLE)) == 1


def test_w1_a_groups_next_message_waits_until_the_last_is_deleted(world: World) -> None:
    """Its lane, a thread of the worker, handles other groups meanwhile; SQS keeps this group locked."""
    worker = handle_without_deleting(world, "a", "b")
    world.send("a", "c")

    while worker.lane.step():
        pass
    before = list(world.called_places)
    worker.deleter.step()
    worker.lane.step()

    assert before == [("a", 1), ("b", 1), ("c", 1)]
    assert world.called_places[len(before) :] == [("a", 2)]


def assert_a_failed_entry_is_deleted_again_alone(world: World, worker: WorkerParts) -> None:
    """W6: of three messages in a call SQS cannot delete the second at first; a call of its own deletes it."""
    fault = Fault(operation=BATCH, failed={receipt_handle_of(world, "b"): ("InternalError", False)})
    worker.sqs_calls.faults = [fault]

    worker.deleter.step()

    assert world.bodies_in_queue() == []
    assert [call["ReceiptHandle"] for call in worker.sqs_calls.of(SINGLE)] == list(fault.failed)
    assert worker.tally.take()[metrics.NOT_DELETED] == 0


def test_w6_only_the_entry_that_failed_is_deleted_again(world: World) -> None:
    """An answer with HTTP 200 names the entries that failed."""
    assert_a_failed_entry_is_deleted_again_alone(world, handle_without_deleting(world, "a", "b", "c"))


def test_w6_a_worker_that_ignores_failed_entries_of_a_batch_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W6, negative control: a worker that takes HTTP 200 for the success of every entry leaves a message undeleted."""
    worker = handle_without_deleting(world, "a", "b", "c")
    monkeypatch.setattr(worker.deleter, "__class__", TakesABatchAsAWhole)

    with pytest.raises(AssertionError):
        assert_a_failed_entry_is_deleted_again_alone(world, worker)


def test_w6_an_entry_with_a_worthless_handle_is_reported_without_a_retry(world: World) -> None:
    """SQS would refuse the handle each time. The message comes again, and is deleted without a second effect."""
    worker = handle_without_deleting(world, "a", "b", "c")
    fault = Fault(operation=BATCH, failed={receipt_handle_of(world, "b"): ("ReceiptHandleIsInvalid", True)})
    worker.sqs_calls.faults = [fault]

    worker.deleter.step()

    assert places(world.bodies_in_queue()) == [("b", 1)]
    assert worker.sqs_calls.of(SINGLE) == []
    assert worker.tally.take()[metrics.NOT_DELETED] == 1
    world.work_until_idle(world.worker())
    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1), ("c", 1)]


def test_w6_messages_of_a_refused_batch_are_deleted_one_by_one(world: World) -> None:
    """SQS refuses a whole call for one bad handle, and does not say which. Its single delete is refused too."""
    worker = handle_without_deleting(world, "a", "b", "c")
    worker.sqs_calls.faults = [Fault(operation=name, refused="InvalidParameterValue") for name in (BATCH, SINGLE)]

    worker.deleter.step()

    assert places(world.bodies_in_queue()) == [("a", 1)]
    assert len(worker.sqs_calls.of(SINGLE)) == 3
    assert worker.tally.take()[metrics.NOT_DELETED] == 1


def test_w6_an_unreachable_queue_ends_single_deletes_and_gets_a_batch_again(world: World) -> None:
    """Three deletes that each wait for a timeout would delay the leases of other messages."""
    worker = handle_without_deleting(world, "a", "b", "c")
    worker.sqs_calls.faults = [Fault(operation=BATCH, refused="InvalidParameterValue"), Fault(unreachable=True)]

    worker.deleter.step()

    assert len(worker.sqs_calls.of(SINGLE)) == 1
    assert len(worker.sqs_calls.of(BATCH)) == 2
    assert world.bodies_in_queue() == []


def test_w6_an_unanswered_batch_is_sent_again_with_the_same_messages(world: World) -> None:
    """The first call does not arrive, the second's answer is lost, the third succeeds.

    A pause is before each repeat.
    """
    worker = handle_without_deleting(world, "a", "b")
    worker.sqs_calls.faults = [Fault(operation=BATCH, unreachable=True), Fault(operation=BATCH, lost=True)]

    worker.deleter.step()

    assert [len(call["Entries"]) for call in worker.sqs_calls.of(BATCH)] == [2, 2, 2]
    assert world.bodies_in_queue() == []
    assert len(worker.wait.waits) == 2


def test_deletes_go_through_the_client_with_the_short_timeout(world: World) -> None:
    """An unanswered call of the polls' client takes half a minute. Meanwhile no message's lease would be extended."""
    prompt, prompt_calls = world.simulator.client("sqs"), SqsCalls()
    prompt_calls.attach(prompt)
    worker = handle_without_deleting(world, "a", "b", renewals=Queue(prompt, world.url))

    worker.deleter.step()

    assert len(prompt_calls.of(BATCH)) == 1
    assert worker.sqs_calls.of(BATCH) == []
    assert world.bodies_in_queue() == []


def test_s2_a_worker_that_ends_deletes_all_handled_messages(on_file: Engine) -> None:
    """A handled message that was not deleted would be delivered again after its visibility timeout."""
    world, stop = World(on_file), Stop()
    world.send("a", "b", "c")
    world.handler_steps["c", 1] = [lambda *_: stop.request()]

    with running(world.worker(poll_seconds=0), stop=stop) as worker:
        worker.wait_for_end()

    assert world.bodies_in_queue() == []
    assert len(world.committed_effects()) == 3


def test_a_lane_waits_while_too_many_handled_messages_are_undeleted(world: World) -> None:
    """So their number is bounded, even if the queue deletes nothing for a while."""
    worker = handle_without_deleting(world, *(f"group-{number}" for number in range(DELETED_MAX + 1)))
    (message,) = [worker.queue.receive(attempt_id=None, wait_seconds=0) for _ in world.send("late")]
    assert message is not None
    has_handed_over = threading.Event()

    def hands_over() -> None:
        worker.deleter.delete(message)
        has_handed_over.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hands_over)
        eventually(lambda: bool(worker.deleter._room._waiters), timeout_seconds=PATIENCE_SECONDS, describe="a wait")  # type: ignore[attr-defined]
        assert not has_handed_over.is_set()
        worker.deleter.step()
        assert has_handed_over.wait(PATIENCE_SECONDS)
    worker.deleter.step()

    assert world.bodies_in_queue() == []


def test_x6_a_delete_fails_for_each_entry_that_the_answer_omits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is deleted only if the answer says so: in `Successful`."""
    monkeypatch.setattr(world.sqs, "delete_message_batch", lambda **_: {})

    met = Queue(world.sqs, world.url).delete_batch(["one", "other"])

    assert [str(failure) for failure in met] == ["the answer does not name it"] * 2
