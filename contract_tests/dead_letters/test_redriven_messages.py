"""Promises about a message that a move task took out of a DLQ.

No recording of a move task between FIFO queues is public. Whether a redriven message's receive count starts anew is
disputed [MOV-19], so the tests raise maxReceiveCount until they pass with either answer.
"""

import json

import pytest

from contract_tests.resources import QueueUnderTest, Resources, bodies
from contract_tests.targets.binding import Target


def _allow_receives(queue: QueueUnderTest, dead_letters: QueueUnderTest, count: int) -> None:
    """Set the queue's maxReceiveCount."""
    queue.set_attributes(RedrivePolicy=json.dumps({"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": count}))


@pytest.mark.promise("MOV-45")
def test_a_resend_after_a_redrive_is_still_a_repeat_of_the_original(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    (before,) = queue.dead_letter("m1")
    dead_letters.redrive()
    _allow_receives(queue, dead_letters, 1_000)
    came_back = queue.receive(visibility=30, wait=2)

    resent = queue.send("m1", id="m1")

    assert bodies(came_back) == ["m1"]
    assert resent["MessageId"] == before["MessageId"]
    queue.delete(came_back[0])
    assert queue.receive(wait=1) == []


@pytest.mark.promise("MOV-46")
def test_a_message_that_fails_again_can_be_redriven_again(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    queue.dead_letter("m1")
    dead_letters.redrive()
    _allow_receives(queue, dead_letters, 1_000)
    came_back = queue.receive(visibility=0, wait=2)
    assert bodies(came_back) == ["m1"]
    _allow_receives(queue, dead_letters, 1)
    failed_again = queue.receive(wait=1)

    dead_letters.redrive()
    _allow_receives(queue, dead_letters, 1_000)

    assert failed_again == []
    assert bodies(queue.receive(wait=2)) == ["m1"]


@pytest.mark.slow
@pytest.mark.promise("MOV-47")
def test_a_redriven_message_is_kept_for_a_retention_period_of_its_own(resources: Resources, target: Target) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination", MessageRetentionPeriod="60")
    started = target.clock.monotonic()
    queue.dead_letter("m1")

    target.await_age(30, since=started)
    dead_letters.redrive(DestinationArn=destination.arn)
    target.await_age(62, since=started)

    assert bodies(destination.receive(wait=2)) == ["m1"]


@pytest.mark.promise("MOV-49")
def test_a_redriven_message_keeps_its_attributes_and_its_trace_header(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    destination = resources.fifo_queue(hint="destination")
    kind = {"kind": {"DataType": "String", "StringValue": "order"}}
    trace = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"
    header = {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}}
    queue.send("m1", group="g7", id="m1", MessageAttributes=kind, MessageSystemAttributes=header)
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []

    dead_letters.redrive(DestinationArn=destination.arn)
    (moved,) = destination.drain(1)

    assert moved.get("MessageAttributes") == kind
    assert moved["Attributes"].get("AWSTraceHeader") == trace
    assert moved["Attributes"]["MessageGroupId"] == "g7"
