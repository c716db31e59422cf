"""A move task takes dead letters back."""

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import Message, Queue, Resources, bodies
from sluice.clock import eventually


def _dead_letter(queue: Queue, *sent: str) -> None:
    """Send messages to a queue that allows one receive, and use it up, so that all of them are in its DLQ."""
    queue.send_each(*sent)
    received: list[Message] = []
    while len(received) < len(sent):
        received += queue.await_batch(most=10, visibility=0)
    assert queue.receive(most=10, wait=1) == []


def _await_completed(queue: Queue) -> dict[str, object]:
    def latest() -> dict[str, object] | None:
        results = queue.sqs.list_message_move_tasks(SourceArn=queue.arn)["Results"]
        return next((result for result in results if result["Status"] not in ("RUNNING", "CANCELLING")), None)

    return eventually(latest, timeout_seconds=queue.patience_seconds, describe="the move task to end") or {}


@pytest.mark.promise("MOV-20")
def test_a_move_task_takes_dead_letters_to_another_queue_in_order(resources: Resources) -> None:
    """MOV-20: three messages leave the DLQ and come out of the destination in their order."""
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    _dead_letter(queue, "m1", "m2", "m3")

    queue.sqs.start_message_move_task(SourceArn=dead_letters.arn, DestinationArn=destination.arn)

    assert bodies(destination.drain(3)) == ["m1", "m2", "m3"]
    ended = _await_completed(dead_letters)
    assert (ended["Status"], ended["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 3)
    assert dead_letters.receive(most=10) == []


@pytest.mark.promise("MOV-17")
def test_a_move_task_takes_a_dead_letter_back_to_its_source_inside_the_window(resources: Resources) -> None:
    """MOV-17: the message's own deduplication id, still remembered by the source, does not stop it."""
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    _dead_letter(queue, "m1")

    queue.sqs.start_message_move_task(SourceArn=dead_letters.arn)
    _await_completed(dead_letters)

    assert bodies(queue.receive(wait=5)) == ["m1"]


@pytest.mark.promise("MOV-01")
def test_a_move_task_from_a_queue_that_is_no_dlq_is_refused(resources: Resources) -> None:
    """MOV-01: only a queue that some redrive policy names can be moved from."""
    queue = resources.fifo_queue()

    with pytest.raises(ClientError) as refused:
        queue.sqs.start_message_move_task(SourceArn=queue.arn)

    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert refused.value.response["Error"]["Message"] == "Source queue must be configured as a Dead Letter Queue."
