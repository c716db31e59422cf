"""A move task takes dead letters back.

AWS's public recordings of move tasks are of standard queues. Where the type cannot matter, the queues here are FIFO.
Where messages return to their source, the queues are standard, as recorded; MOV-17 is the promise for FIFO queues.
"""

import json
from base64 import b64decode, b64encode
from datetime import datetime
from typing import Any

import pytest

from contract_tests.resources import (
    CLOCKS_APART_MILLISECONDS_MAX,
    QueueUnderTest,
    Resources,
    bodies,
    invalid_parameter_value,
    refusal,
)
from contract_tests.targets.binding import Target


def _without_time(task: dict[str, Any]) -> dict[str, Any]:
    """Return a task of SQS's list without its start time, which a test cannot know."""
    assert isinstance(task["StartedTimestamp"], int | datetime)
    return {name: value for name, value in task.items() if name != "StartedTimestamp"}


@pytest.mark.promise("MOV-20")
def test_a_move_task_takes_dead_letters_to_another_queue_in_order(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("m1", "m2", "m3")

    dead_letters.redrive(DestinationArn=destination.arn)

    moved = destination.drain(3)
    assert bodies(moved) == ["m1", "m2", "m3"]
    assert [message["Attributes"]["MessageGroupId"] for message in moved] == ["g1", "g1", "g1"]
    assert dead_letters.receive(most=10) == []


@pytest.mark.promise("MOV-17")
def test_a_move_task_moves_a_dead_letter_back_inside_the_window(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    queue.dead_letter("m1")

    dead_letters.redrive()

    # Whether the receive count starts anew is disputed [MOV-19]: without the policy it can be received.
    queue.set_attributes(RedrivePolicy="")
    assert bodies(queue.receive(wait=2)) == ["m1"]
    assert dead_letters.receive(most=10) == []


@pytest.mark.promise("MOV-18")
def test_a_moved_message_is_a_new_message(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    (before,) = queue.dead_letter("m1")
    dead = dead_letters.await_message(visibility=1)
    dead_letters.await_message(visibility=0)  # a second later

    dead_letters.start_move(DestinationArn=destination.arn)
    (moved,) = destination.drain(1)

    assert moved["Body"] == "m1"
    assert moved["MessageId"] != before["MessageId"]
    first_sent_at, died_at, moved_at = (int(seen["Attributes"]["SentTimestamp"]) for seen in (before, dead, moved))
    assert moved_at > max(first_sent_at, died_at)


@pytest.mark.promise("MOV-31")
def test_without_destination_dead_letters_return_to_their_source(resources: Resources) -> None:
    dead_letters = resources.standard_queue(hint="dlq")
    queue = resources.standard_queue(dead_letters=dead_letters, max_receive_count=1)
    queue.dead_letter("m1", "m2", group=None)

    dead_letters.start_move()

    assert _without_time(dead_letters.await_move()) == {
        "Status": "COMPLETED",
        "SourceArn": dead_letters.arn,
        "ApproximateNumberOfMessagesMoved": 2,
        "ApproximateNumberOfMessagesToMove": 2,
    }
    assert dead_letters.receive(most=10) == []
    # Whether the receive count starts anew is disputed [MOV-19]: without the policy both can be received.
    queue.set_attributes(RedrivePolicy="")
    assert sorted(bodies(queue.drain(2))) == ["m1", "m2"]


@pytest.mark.promise("MOV-32")
def test_without_destination_each_dead_letter_returns_to_its_own_source(resources: Resources) -> None:
    dead_letters = resources.standard_queue(hint="dlq")
    first = resources.standard_queue(dead_letters=dead_letters, max_receive_count=1)
    second = resources.standard_queue(dead_letters=dead_letters, max_receive_count=1)
    first.dead_letter("m1", "m2", group=None)
    second.dead_letter("m3", "m4", group=None)

    ended = dead_letters.redrive()

    assert ended["Status"] == "COMPLETED"
    assert ended["ApproximateNumberOfMessagesMoved"] == 4
    first.set_attributes(RedrivePolicy="")
    second.set_attributes(RedrivePolicy="")
    assert sorted(bodies(first.drain(2))) == ["m1", "m2"]
    assert sorted(bodies(second.drain(2))) == ["m3", "m4"]


@pytest.mark.promise("MOV-07")
def test_a_completed_move_task_is_listed_with_what_it_moved(resources: Resources, target: Target) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("m1", "m2")

    ended = dead_letters.redrive(DestinationArn=destination.arn)

    assert abs(ended["StartedTimestamp"] - target.clock.now_us() // 1_000) < CLOCKS_APART_MILLISECONDS_MAX
    assert _without_time(ended) == {
        "Status": "COMPLETED",
        "SourceArn": dead_letters.arn,
        "DestinationArn": destination.arn,
        "ApproximateNumberOfMessagesMoved": 2,
        "ApproximateNumberOfMessagesToMove": 2,
    }


@pytest.mark.promise("MOV-27")
def test_a_move_task_of_an_empty_dlq_completes(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()

    ended = dead_letters.redrive()

    assert ended["Status"] == "COMPLETED"
    assert ended["ApproximateNumberOfMessagesMoved"] == 0


@pytest.mark.promise("MOV-06")
def test_a_task_handle_is_the_task_id_and_the_source(resources: Resources) -> None:
    """AWS documents the handle as opaque; this is what was recorded."""
    _, dead_letters = resources.queue_with_dlq()

    handle = dead_letters.start_move()

    assert b64decode(handle).startswith(b"{"), handle
    read = json.loads(b64decode(handle))
    assert sorted(read) == ["sourceArn", "taskId"]
    assert read["sourceArn"] == dead_letters.arn


@pytest.mark.promise("MOV-09")
def test_a_move_task_keeps_to_its_rate(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("m1", "m2", "m3")

    dead_letters.start_move(DestinationArn=destination.arn, MaxNumberOfMessagesPerSecond=1)
    moved = destination.drain(3)

    assert bodies(moved) == ["m1", "m2", "m3"]
    received_at = [int(message["Attributes"]["ApproximateFirstReceiveTimestamp"]) for message in moved]
    assert received_at[2] - received_at[0] >= 1_500  # of 2,000: the first may be picked up late


@pytest.mark.promise("MOV-10")
def test_a_dlq_has_one_move_task_at_a_time(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("m1", "m2")
    dead_letters.start_move(DestinationArn=destination.arn, MaxNumberOfMessagesPerSecond=1)

    second = refusal(dead_letters.start_move, DestinationArn=destination.arn)
    dead_letters.await_move()

    assert second == invalid_parameter_value(
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    )
    assert dead_letters.start_move(DestinationArn=destination.arn)


@pytest.mark.promise("MOV-11")
def test_a_running_move_task_lists_its_handle_and_can_be_cancelled(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("m1", "m2", "m3", "m4")
    handle = dead_letters.start_move(DestinationArn=destination.arn, MaxNumberOfMessagesPerSecond=1)

    (running,) = dead_letters.moves()
    assert running["Status"] == "RUNNING"
    cancelled = dead_letters.sqs.cancel_message_move_task(TaskHandle=handle)
    ended = dead_letters.await_move()

    moved = running.pop("ApproximateNumberOfMessagesMoved")
    assert _without_time(running) == {
        "Status": "RUNNING",
        "TaskHandle": handle,
        "SourceArn": dead_letters.arn,
        "DestinationArn": destination.arn,
        "MaxNumberOfMessagesPerSecond": 1,
        "ApproximateNumberOfMessagesToMove": 4,
    }
    assert ended["Status"] == "CANCELLED"
    # Cancelling is not immediate: AWS moved on from 2 to 8 of 10 in one recording.
    assert moved <= cancelled["ApproximateNumberOfMessagesMoved"] <= ended["ApproximateNumberOfMessagesMoved"] < 4


@pytest.mark.promise("MOV-12")
def test_a_move_task_whose_destination_goes_fails_with_the_reason(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("m1", "m2", "m3")
    dead_letters.start_move(DestinationArn=destination.arn, MaxNumberOfMessagesPerSecond=1)
    destination.await_message()

    destination.delete_queue()

    ended = dead_letters.await_move()
    assert ended["Status"] == "FAILED"
    assert ended["ApproximateNumberOfMessagesMoved"] < 3
    assert ended.get("FailureReason") == "AWS.SimpleQueueService.NonExistentQueue"
    assert bodies(dead_letters.receive())[:1] == [f"m{1 + ended['ApproximateNumberOfMessagesMoved']}"]


@pytest.mark.promise("MOV-21")
def test_without_destination_a_message_that_has_no_source_fails_the_task(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()
    dead_letters.send("m1", id="m1")

    ended = dead_letters.redrive()

    assert ended["Status"] == "FAILED"
    assert ended["ApproximateNumberOfMessagesMoved"] == 0
    assert ended.get("FailureReason")  # which one is not recorded


@pytest.mark.promise("MOV-34")
def test_a_message_without_a_source_is_moved_to_a_named_destination(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()
    destination = resources.fifo_queue(hint="destination")
    dead_letters.send("m1", id="m1")

    dead_letters.start_move(DestinationArn=destination.arn)

    assert bodies(destination.drain(1)) == ["m1"]


@pytest.mark.promise("MOV-26")
def test_a_dead_letter_in_flight_is_not_moved(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    queue.dead_letter("in-flight", "behind", group="g1")
    queue.dead_letter("waiting", group="g2")
    in_flight = dead_letters.await_message(visibility=60)

    dead_letters.start_move(DestinationArn=destination.arn)

    assert [in_flight["Body"], *bodies(destination.drain(1))] == ["in-flight", "waiting"]
    dead_letters.await_move()
    assert destination.receive() == []


@pytest.mark.promise("MOV-33")
def test_move_tasks_are_listed_newest_first_one_unless_more_are_asked_for(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()
    destination = resources.fifo_queue(hint="destination")
    dead_letters.redrive()
    dead_letters.redrive(DestinationArn=destination.arn)

    newest = [task.get("DestinationArn") for task in dead_letters.moves()]
    both = [task.get("DestinationArn") for task in dead_letters.moves(MaxResults=10)]

    assert newest == [destination.arn]
    assert both == [destination.arn, None]


@pytest.mark.promise("MOV-01")
def test_a_move_task_from_a_queue_that_is_no_dlq_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    assert refusal(queue.start_move) == invalid_parameter_value(
        "Source queue must be configured as a Dead Letter Queue."
    )


@pytest.mark.promise("MOV-25")
def test_the_dlq_of_a_subscription_is_no_dlq_of_a_queue(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    redrive = json.dumps({"deadLetterTargetArn": dead_letters.arn})
    resources.fifo_topic().subscribe(resources.fifo_queue(), RedrivePolicy=redrive)

    assert refusal(dead_letters.start_move)[1] == 400  # code and text are recorded for a queue that is no DLQ [MOV-01]


@pytest.mark.promise("MOV-02")
def test_the_destination_of_a_move_task_must_exist(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()

    assert refusal(dead_letters.start_move, DestinationArn=_absent(dead_letters)) == (
        "ResourceNotFoundException",
        404,
        "The resource that you specified for the DestinationArn parameter doesn't exist.",
    )


@pytest.mark.promise("MOV-16")
def test_source_and_destination_of_a_move_task_are_of_one_type(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()
    standard = resources.standard_queue()

    assert refusal(dead_letters.start_move, DestinationArn=standard.arn)[1] == 400  # code and text are not recorded


@pytest.mark.promise("MOV-22")
def test_source_and_destination_of_a_move_task_differ(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()

    assert refusal(dead_letters.start_move, DestinationArn=dead_letters.arn)[1] == 400  # code and text are not recorded


@pytest.mark.promise("MOV-23")
def test_the_source_of_a_move_task_is_an_arn(resources: Resources) -> None:
    queue = resources.fifo_queue()

    assert refusal(queue.sqs.start_message_move_task, SourceArn="x")[1] == 400  # code and text are not recorded


@pytest.mark.promise("MOV-14")
def test_the_rate_of_a_move_task_is_1_to_500(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()

    dead_letters.redrive(MaxNumberOfMessagesPerSecond=500)
    too_slow = refusal(dead_letters.start_move, MaxNumberOfMessagesPerSecond=0)
    too_fast = refusal(dead_letters.start_move, MaxNumberOfMessagesPerSecond=501)

    assert [too_slow[1], too_fast[1]] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("MOV-15")
def test_at_most_ten_move_tasks_are_listed(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()

    none = dead_letters.moves(MaxResults=10)
    refused = refusal(dead_letters.moves, MaxResults=11)

    assert none == []
    assert refused[1] == 400


@pytest.mark.promise("MOV-13")
def test_a_move_task_that_has_ended_cannot_be_cancelled(resources: Resources) -> None:
    _, dead_letters = resources.queue_with_dlq()
    handle = dead_letters.start_move()
    assert dead_letters.await_move()["Status"] == "COMPLETED"

    refused = refusal(dead_letters.sqs.cancel_message_move_task, TaskHandle=handle)

    assert refused[1] in (400, 404)  # which of the two, and the code, is recorded by nobody


@pytest.mark.promise("MOV-04")
def test_a_task_handle_that_names_an_unknown_source_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    assert refusal(queue.sqs.cancel_message_move_task, TaskHandle=_handle(source=_absent(queue))) == (
        "ResourceNotFoundException",
        404,
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    )


@pytest.mark.promise("MOV-30")
def test_a_task_handle_that_names_an_unknown_task_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.sqs.cancel_message_move_task, TaskHandle=_handle(source=queue.arn))

    assert refused == ("ResourceNotFoundException", 404, "Task does not exist.")


@pytest.mark.promise("MOV-29")
def test_an_invalid_task_handle_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    assert refusal(queue.sqs.cancel_message_move_task, TaskHandle="foobared") == invalid_parameter_value(
        "Value for parameter TaskHandle is invalid."
    )


def _handle(*, source: str) -> str:
    """Return the handle of a task that does not exist."""
    task = {"taskId": "10000000-0000-0000-0000-000000000000", "sourceArn": source}
    return b64encode(json.dumps(task).encode()).decode()


def _absent(queue: QueueUnderTest) -> str:
    """Return the ARN of a queue that does not exist, next to one that does."""
    return queue.arn.removesuffix(".fifo") + "-absent.fifo"
