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


def hand_over(world: World, *groups: str, **options: Any) -> WorkerParts:
    """Return a worker that has handled a message of each group; nothing is deleted yet."""
    worker = world.worker(poll_seconds=0, **options)
    world.send(*groups)
    worker.deleter.begin()
    for _ in groups:
        worker.lane.step()
    assert len(world.committed_effects()) == len(groups)
    assert len(world.bodies_in_queue()) == len(groups)
    return worker


def handle_of(world: World, group: str) -> str:
    """Return the receipt handle of the only message of a group."""
    (found,) = [
        message for message in world.simulator.account.sqs.queues[world.arn].in_order() if message.group == group
    ]
    return str(found.handle)


def test_w6_what_several_lanes_have_done_is_deleted_in_one_call(world: World) -> None:
    worker = hand_over(world, "a", "b", "c")

    worker.deleter.step()

    assert [len(call["Entries"]) for call in worker.sqs_calls.of(BATCH)] == [3]
    assert world.bodies_in_queue() == []
    assert worker.sqs_calls.of(SINGLE) == []


def test_w6_a_call_deletes_ten_at_most(world: World) -> None:
    worker = hand_over(world, *(f"group-{number}" for number in range(DELETED_MAX + 1)))

    worker.deleter.step()
    worker.deleter.step()

    assert [len(call["Entries"]) for call in worker.sqs_calls.of(BATCH)] == [DELETED_MAX]
    assert world.bodies_in_queue() == []
    assert len(worker.sqs_calls.of(SINGLE)) == 1


def test_w1_nothing_of_a_group_comes_before_the_delete_is_through(world: World) -> None:
    """The lane goes on with other groups; SQS keeps this one locked."""
    worker = hand_over(world, "a", "b")
    world.send("a", "c")

    while worker.lane.step():
        pass
    before = list(world.called_places)
    worker.deleter.step()
    worker.lane.step()

    assert before == [("a", 1), ("b", 1), ("c", 1)]
    assert world.called_places[len(before) :] == [("a", 2)]


def one_entry_fails(world: World, worker: WorkerParts) -> None:
    """W6: of three messages in one call, the queue cannot delete the second just now."""
    fault = Fault(operation=BATCH, failed={handle_of(world, "b"): ("InternalError", False)})
    worker.sqs_calls.faults = [fault]

    worker.deleter.step()

    assert world.bodies_in_queue() == []
    assert [call["ReceiptHandle"] for call in worker.sqs_calls.of(SINGLE)] == list(fault.failed)
    assert worker.tally.take()[metrics.NOT_DELETED] == 0


def test_w6_an_entry_that_failed_alone_is_tried_again_alone(world: World) -> None:
    one_entry_fails(world, hand_over(world, "a", "b", "c"))


def test_w6_a_worker_that_takes_a_batch_as_a_whole_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """W6, negative control: HTTP 200 can hold failures."""
    worker = hand_over(world, "a", "b", "c")
    monkeypatch.setattr(worker.deleter, "__class__", TakesABatchAsAWhole)

    with pytest.raises(AssertionError):
        one_entry_fails(world, worker)


def test_w6_an_entry_with_a_worthless_handle_is_reported_without_a_retry(world: World) -> None:
    worker = hand_over(world, "a", "b", "c")
    fault = Fault(operation=BATCH, failed={handle_of(world, "b"): ("ReceiptHandleIsInvalid", True)})
    worker.sqs_calls.faults = [fault]

    worker.deleter.step()

    assert places(world.bodies_in_queue()) == [("b", 1)]
    assert worker.sqs_calls.of(SINGLE) == []
    assert worker.tally.take()[metrics.NOT_DELETED] == 1
    world.work_until_idle(world.worker())
    assert sorted(world.committed_effects()) == [("a", 1), ("b", 1), ("c", 1)]


def test_w6_messages_of_a_refused_batch_are_deleted_one_by_one(world: World) -> None:
    """The refusal is for one of the handles, and does not say which."""
    worker = hand_over(world, "a", "b", "c")
    lost = Fault(operation=SINGLE, refused="InvalidParameterValue")
    worker.sqs_calls.faults = [Fault(operation=BATCH, refused="InvalidParameterValue"), lost]

    worker.deleter.step()

    assert places(world.bodies_in_queue()) == [("a", 1)]
    assert len(worker.sqs_calls.of(SINGLE)) == 3
    assert worker.tally.take()[metrics.NOT_DELETED] == 1


def test_w6_a_queue_that_goes_away_gets_no_further_single_deletes(world: World) -> None:
    worker = hand_over(world, "a", "b", "c")
    worker.sqs_calls.faults = [Fault(operation=BATCH, refused="InvalidParameterValue"), Fault(unreachable=True)]

    worker.deleter.step()

    assert len(worker.sqs_calls.of(SINGLE)) == 1
    assert len(worker.sqs_calls.of(BATCH)) == 2
    assert world.bodies_in_queue() == []


def test_w6_a_batch_nobody_answers_is_tried_again_as_it_was(world: World) -> None:
    worker = hand_over(world, "a", "b")
    worker.sqs_calls.faults = [Fault(operation=BATCH, unreachable=True), Fault(operation=BATCH, lost=True)]

    worker.deleter.step()

    assert [len(call["Entries"]) for call in worker.sqs_calls.of(BATCH)] == [2, 2, 2]
    assert world.bodies_in_queue() == []
    assert len(worker.wait.waits) == 2


def test_an_unanswered_delete_delays_others_no_longer_than_a_renewal(world: World) -> None:
    """With the polls' client it would be half a minute, in which the leases of other messages would not be extended."""
    prompt, prompt_calls = world.simulator.client("sqs"), SqsCalls()
    prompt_calls.attach(prompt)
    worker = hand_over(world, "a", "b", renewals=Queue(prompt, world.url))

    worker.deleter.step()

    assert len(prompt_calls.of(BATCH)) == 1
    assert worker.sqs_calls.of(BATCH) == []
    assert world.bodies_in_queue() == []


def test_s2_a_worker_that_ends_deletes_what_waits(on_file: Engine) -> None:
    world, stop = World(on_file), Stop()
    world.send("a", "b", "c")
    world.handler_steps["c", 1] = [lambda *_: stop.request()]

    with running(world.worker(poll_seconds=0), stop=stop) as worker:
        worker.wait_for_end()

    assert world.bodies_in_queue() == []
    assert len(world.committed_effects()) == 3


def test_a_lane_waits_while_too_many_messages_wait(world: World) -> None:
    """If the queue deletes nothing, the number of handled and undeleted messages is bounded."""
    worker = hand_over(world, *(f"group-{number}" for number in range(DELETED_MAX + 1)))
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


def test_x6_an_answer_that_names_no_entry_deletes_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.sqs, "delete_message_batch", lambda **_: {})

    met = Queue(world.sqs, world.url).delete_batch(["one", "other"])

    assert [str(failure) for failure in met] == ["the answer does not name it"] * 2
