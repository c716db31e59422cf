"""Receives: the messages they bring, the attributes they return, and the time they wait."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from contract_tests.resources import (
    CLOCKS_APART_MILLISECONDS_MAX,
    Message,
    QueueUnderTest,
    Resources,
    bodies,
    entry,
    invalid_parameter_value,
    refusal,
)
from contract_tests.targets.binding import Target
from sluice.clock import eventually

_ATTEMPT: dict[str, Any] = {
    "MaxNumberOfMessages": 10,
    "VisibilityTimeout": 30,
    "WaitTimeSeconds": 1,
    "ReceiveRequestAttemptId": "attempt-1",
}
_APPROXIMATE_MILLISECONDS = 1_000


def _await_received(queue: QueueUnderTest, **parameters: Any) -> list[Message]:
    """Wait until a receive with exactly these parameters is not empty."""
    return eventually(
        lambda: list(queue.sqs.receive_message(QueueUrl=queue.url, **parameters).get("Messages", [])),
        timeout_seconds=queue.patience_seconds,
        describe="a message",
    )


@pytest.mark.promise("RCV-02")
def test_a_wait_below_zero_or_above_20_seconds_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()

    too_long = refusal(queue.receive, wait=21)
    negative = refusal(queue.receive, wait=-1)

    assert too_long == invalid_parameter_value(
        "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided."
    )
    assert negative == invalid_parameter_value(
        "Value -1 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided."
    )


@pytest.mark.promise("RCV-03")
def test_an_empty_receive_has_no_list_of_messages(resources: Resources) -> None:
    queue = resources.fifo_queue()

    empty = queue.sqs.receive_message(QueueUrl=queue.url)
    queue.send_each("m1")
    filled = _await_received(queue, WaitTimeSeconds=1)

    assert empty["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "Messages" not in empty
    assert bodies(filled) == ["m1"]


@pytest.mark.promise("RCV-04")
def test_a_fifo_message_has_seven_system_attributes(resources: Resources) -> None:
    """A trace header, or a move to a DLQ, adds one."""
    queue = resources.fifo_queue()
    sent = queue.send("m1", group="g1", id="the-id")

    attributes = queue.await_message()["Attributes"]

    assert sorted(attributes) == [
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
    ]
    assert attributes["ApproximateReceiveCount"] == "1"
    assert attributes["MessageDeduplicationId"] == "the-id"
    assert attributes["MessageGroupId"] == "g1"
    assert attributes["SequenceNumber"] == sent["SequenceNumber"]
    assert int(attributes["SentTimestamp"]) <= int(attributes["ApproximateFirstReceiveTimestamp"])


@pytest.mark.promise("RCV-06")
def test_the_new_name_of_the_parameter_wins_over_the_deprecated_one(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    def receive(**names: list[str]) -> list[str]:
        (message,) = _await_received(queue, VisibilityTimeout=0, **names)
        return sorted(message.get("Attributes", {}))

    assert receive(AttributeNames=["SenderId"]) == ["SenderId"]
    assert receive(MessageSystemAttributeNames=["SentTimestamp"]) == ["SentTimestamp"]
    assert receive(AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp"]) == ["SentTimestamp"]
    assert receive() == []


@pytest.mark.promise("RCV-07")
def test_message_attributes_are_returned_by_name_prefix_or_all(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send(
        "m1",
        id="m1",
        MessageAttributes={
            "Hello.a": {"DataType": "String", "StringValue": "1"},
            "Hello.b": {"DataType": "Number", "StringValue": "2"},
            "World": {"DataType": "Binary", "BinaryValue": b"x"},
        },
    )

    def receive(*names: str) -> tuple[list[str], str | None]:
        (message,) = _await_received(queue, VisibilityTimeout=0, MessageAttributeNames=list(names))
        return sorted(message.get("MessageAttributes", {})), message.get("MD5OfMessageAttributes")

    everything = (["Hello.a", "Hello.b", "World"], "0688a61b55fe09c24bab8861aa59960f")
    assert [receive("All"), receive(".*"), receive("*")] == [everything, everything, everything]
    assert receive("Hello.*") == (["Hello.a", "Hello.b"], "52d4b268b31bf7ffcd66c7bd860fb6df")
    assert receive("World") == (["World"], "03fd0bf35b9c327ce3b18ec384f5edeb")
    assert receive("Nothing") == ([], None)


@pytest.mark.promise("RCV-10")
def test_long_polls_together_bring_everything_once(resources: Resources) -> None:
    queue = resources.fifo_queue()
    sent = [f"m{number:02}" for number in range(12)]
    queue.send_batch(*[entry(body, MessageGroupId=body) for body in sent[:6]])
    queue.send_batch(*[entry(body, MessageGroupId=body) for body in sent[6:]])

    received = queue.drain(12)

    assert sorted(bodies(received)) == sent


@pytest.mark.promise("RCV-11")
def test_a_receive_repeated_with_its_attempt_id_returns_the_same_messages(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")

    first = _await_received(queue, **_ATTEMPT)
    again = queue.sqs.receive_message(QueueUrl=queue.url, **_ATTEMPT).get("Messages", [])

    assert [message["ReceiptHandle"] for message in again] == [message["ReceiptHandle"] for message in first]
    assert bodies(again) == bodies(first)
    assert bodies(first) == ["m1", "m2"][: len(first)]


@pytest.mark.promise("RCV-12")
def test_an_attempt_id_is_void_once_one_of_its_messages_is_deleted(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")
    received = _await_received(queue, **_ATTEMPT)
    queue.delete(received[0])

    assert refusal(queue.sqs.receive_message, QueueUrl=queue.url, **_ATTEMPT) == invalid_parameter_value(
        "Value attempt-1 for parameter ReceiveRequestAttemptId is invalid. "
        "Reason: The receiveRequestAttemptId is not valid anymore since the receive call is not retryable."
    )


@pytest.mark.promise("RCV-14")
def test_a_receive_cannot_hide_a_message_for_more_than_twelve_hours(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    refused = refusal(queue.receive, visibility=43_201)
    accepted = queue.await_message(visibility=43_200)

    assert refused[1] == 400
    assert accepted["Body"] == "m1"


@pytest.mark.promise("RCV-15")
def test_a_long_poll_returns_as_soon_as_a_message_can_be_delivered(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    queue.await_message(visibility=2)
    hidden = queue.receive()
    started = target.clock.monotonic()

    received = queue.receive(wait=20)

    assert hidden == []
    assert bodies(received) == ["m1"]
    assert target.clock.monotonic() - started < 15


@pytest.mark.promise("RCV-18")
def test_a_message_says_when_it_was_sent(resources: Resources, target: Target) -> None:
    """Sent and received by one clock, which the caller's need not agree with; no further off than AWS takes."""
    queue = resources.fifo_queue()
    called_at, started = target.clock.now_us() // 1_000, target.clock.monotonic()

    queue.send_each("m1")
    attributes = queue.await_message()["Attributes"]

    elapsed = (target.clock.monotonic() - started) * 1_000
    sent_at, received_at = int(attributes["SentTimestamp"]), int(attributes["ApproximateFirstReceiveTimestamp"])
    assert -_APPROXIMATE_MILLISECONDS <= received_at - sent_at <= elapsed + _APPROXIMATE_MILLISECONDS
    assert abs(sent_at - called_at) <= CLOCKS_APART_MILLISECONDS_MAX


@pytest.mark.promise("RCV-19")
def test_a_message_names_its_sender(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    assert queue.await_message()["Attributes"]["SenderId"] == target.caller_id()


@pytest.mark.promise("SLU-33")
def test_a_receive_asks_for_at_most_ten_messages(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each(*[f"m{number:02}" for number in range(11)])

    refused = refusal(queue.receive, most=11)
    batch = queue.await_batch(most=10, visibility=30)

    assert refused[1] == 400  # code and text are not recorded
    assert 1 <= len(batch) <= 10
    assert bodies(batch) == [f"m{number:02}" for number in range(len(batch))]


@pytest.mark.promise("SLU-47")
def test_a_receive_asks_for_at_least_one_message(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    none = refusal(queue.receive, most=0)
    fewer = refusal(queue.receive, most=-1)

    assert [none[1], fewer[1]] == [400, 400]  # codes and texts are not recorded


@pytest.mark.promise("SLU-38")
def test_a_queue_may_make_every_receive_a_long_poll(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue(ReceiveMessageWaitTimeSeconds="2")
    started = target.clock.monotonic()

    received = queue.sqs.receive_message(QueueUrl=queue.url)

    assert "Messages" not in received
    assert target.clock.monotonic() - started > 1.5


@pytest.mark.promise("SLU-39")
def test_a_receive_that_gives_no_number_brings_one_message(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3")

    assert bodies(_await_received(queue, WaitTimeSeconds=1)) == ["m1"]


@pytest.mark.promise("RCV-33")
def test_a_receive_brings_messages_of_several_groups(resources: Resources) -> None:
    """AWS promises no number, so a receive that brings fewer is tried again."""
    queue = resources.fifo_queue()
    queue.send_each("a1", "a2", group="g1")
    queue.send_each("b1", group="g2")

    def receive_all() -> list[str]:
        received = queue.receive(most=10, visibility=600, wait=1)
        for message in received:
            queue.change_visibility(message, 0)
        return sorted(bodies(received))

    eventually(
        receive_all,
        until=lambda received: received == ["a1", "a2", "b1"],
        timeout_seconds=queue.patience_seconds,
        describe="a receive that brings both groups",
    )


@pytest.mark.promise("RCV-34")
def test_a_waiting_poll_gets_what_is_sent_meanwhile(resources: Resources) -> None:
    queue = resources.fifo_queue()
    polling = threading.Event()
    queue.sqs.meta.events.register("before-send.sqs.ReceiveMessage", lambda **_: polling.set())

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.receive, wait=20)
        assert polling.wait(timeout=5), "the poll was not sent"
        queue.send_each("m1")
        received = waiting.result(timeout=30)

    assert bodies(received) == ["m1"]


@pytest.mark.promise("RCV-35")
def test_a_receive_without_wait_overrides_the_wait_of_the_queue(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue(ReceiveMessageWaitTimeSeconds="10")
    started = target.clock.monotonic()

    received = queue.receive(wait=0)

    assert received == []
    assert target.clock.monotonic() - started < 5


@pytest.mark.promise("RCV-36")
def test_the_first_receive_begins_with_the_oldest_group(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("b1", group="g2")
    queue.send_each("a1", group="g1")
    queue.send_each("b2", group="g2")

    first = queue.await_batch(most=10, visibility=30)

    assert first[0]["Body"] == "b1"
