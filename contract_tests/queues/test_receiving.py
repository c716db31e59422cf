"""What a receive brings, what it says of a message, and how long it waits."""

from typing import Any

import pytest

from contract_tests.resources import Message, Resources, bodies, refusal
from contract_tests.targets.binding import Target
from sluice.clock import eventually


@pytest.mark.promise("RCV-02")
def test_a_wait_of_more_than_20_seconds_or_less_than_none_is_refused(resources: Resources) -> None:
    """RCV-02: the text names the value and the bounds."""
    queue = resources.fifo_queue()

    too_long = refusal(queue.receive, wait=21)
    negative = refusal(queue.receive, wait=-1)

    assert too_long == (
        "InvalidParameterValue",
        400,
        "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
    )
    assert negative == (
        "InvalidParameterValue",
        400,
        "Value -1 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
    )


@pytest.mark.promise("RCV-03")
def test_an_empty_receive_has_no_list_of_messages(resources: Resources) -> None:
    """RCV-03: the key is absent, not empty; with a message in the queue it is there."""
    queue = resources.fifo_queue()

    empty = queue.sqs.receive_message(QueueUrl=queue.url)
    queue.send_each("m1")
    filled = eventually(
        lambda: queue.sqs.receive_message(QueueUrl=queue.url, WaitTimeSeconds=1).get("Messages"),
        timeout_seconds=queue.patience_seconds,
        describe="the message",
    )

    assert empty["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "Messages" not in empty
    assert bodies(filled) == ["m1"]


@pytest.mark.promise("RCV-04")
def test_a_fifo_message_has_seven_system_attributes(resources: Resources) -> None:
    """RCV-04: no more and no fewer, as long as it carries no trace and was not dead-lettered."""
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
    """RCV-06: `AttributeNames` alone still works; with `MessageSystemAttributeNames` beside it, it is not looked at."""
    queue = resources.fifo_queue()
    queue.send_each("m1")

    def receive(**names: list[str]) -> list[str]:
        found = eventually(
            lambda: queue.sqs.receive_message(QueueUrl=queue.url, VisibilityTimeout=0, **names).get("Messages"),
            timeout_seconds=queue.patience_seconds,
            describe="the message",
        )
        return sorted(found[0].get("Attributes", {}))

    assert receive(AttributeNames=["SenderId"]) == ["SenderId"]
    assert receive(MessageSystemAttributeNames=["SentTimestamp"]) == ["SentTimestamp"]
    assert receive(AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp"]) == ["SentTimestamp"]
    assert receive() == []


@pytest.mark.promise("RCV-07")
def test_message_attributes_are_returned_by_name_prefix_or_all(resources: Resources) -> None:
    """RCV-07: what is not asked for is not there, and the checksum is that of what is."""
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
        (message,) = eventually(
            lambda: queue.sqs.receive_message(
                QueueUrl=queue.url, VisibilityTimeout=0, MessageAttributeNames=list(names)
            ).get("Messages"),
            timeout_seconds=queue.patience_seconds,
            describe="the message",
        )
        return sorted(message.get("MessageAttributes", {})), message.get("MD5OfMessageAttributes")

    everything = (["Hello.a", "Hello.b", "World"], "0688a61b55fe09c24bab8861aa59960f")
    assert [receive("All"), receive(".*"), receive("*")] == [everything, everything, everything]
    assert receive("Hello.*") == (["Hello.a", "Hello.b"], "52d4b268b31bf7ffcd66c7bd860fb6df")
    assert receive("World") == (["World"], "03fd0bf35b9c327ce3b18ec384f5edeb")
    assert receive("Nothing") == ([], None)


@pytest.mark.promise("RCV-10")
def test_long_polls_together_bring_everything_once(resources: Resources) -> None:
    """RCV-10: one receive may bring fewer than there are; twelve groups come in as many polls as it takes."""
    queue = resources.fifo_queue()
    sent = [f"m{number:02}" for number in range(12)]
    queue.send_batch(*[_of_its_own_group(body) for body in sent[:6]])
    queue.send_batch(*[_of_its_own_group(body) for body in sent[6:]])

    received = queue.drain(12)

    assert sorted(bodies(received)) == sent


def _of_its_own_group(body: str) -> dict[str, str]:
    return {"Id": body, "MessageBody": body, "MessageGroupId": body, "MessageDeduplicationId": body}


@pytest.mark.promise("RCV-11")
def test_a_receive_repeated_with_its_attempt_id_returns_the_same_messages(resources: Resources) -> None:
    """RCV-11: with the same receipt handles, while both are in flight."""
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")

    first = eventually(
        lambda: _attempt(queue.sqs, queue.url, "attempt-1"),
        timeout_seconds=queue.patience_seconds,
        describe="the messages",
    )
    again = _attempt(queue.sqs, queue.url, "attempt-1")

    assert [entry["ReceiptHandle"] for entry in again] == [entry["ReceiptHandle"] for entry in first]
    assert bodies(again) == bodies(first) == ["m1", "m2"]


@pytest.mark.promise("RCV-12")
def test_an_attempt_id_is_void_once_one_of_its_messages_is_deleted(resources: Resources) -> None:
    """RCV-12: the receive cannot be repeated, and says so."""
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")
    received = eventually(
        lambda: _attempt(queue.sqs, queue.url, "attempt-1"),
        timeout_seconds=queue.patience_seconds,
        describe="the messages",
    )
    queue.delete(received[0])

    refused = refusal(_attempt, queue.sqs, queue.url, "attempt-1")

    assert refused == (
        "InvalidParameterValue",
        400,
        "Value attempt-1 for parameter ReceiveRequestAttemptId is invalid. "
        "Reason: The receiveRequestAttemptId is not valid anymore since the receive call is not retryable.",
    )


def _attempt(sqs: Any, url: str, id: str) -> list[Message]:
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30, WaitTimeSeconds=1, ReceiveRequestAttemptId=id
    )
    return list(answer.get("Messages", []))


@pytest.mark.promise("RCV-14")
def test_a_receive_cannot_hide_a_message_for_more_than_twelve_hours(resources: Resources) -> None:
    """RCV-14: 43,200 seconds are accepted, one more is refused; the text was not recorded."""
    queue = resources.fifo_queue()
    queue.send_each("m1")

    refused = refusal(queue.receive, visibility=43_201)
    accepted = queue.await_message(visibility=43_200)

    assert refused[1] == 400
    assert accepted["Body"] == "m1"


@pytest.mark.promise("RCV-15")
def test_a_long_poll_returns_as_soon_as_a_message_can_be_delivered(resources: Resources, target: Target) -> None:
    """RCV-15: the poll was there before the message became visible, and does not wait until its time is up."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    queue.await_message(visibility=2)
    hidden = queue.receive()
    started = target.clock.monotonic()

    received = queue.receive(wait=20)

    assert hidden == []
    assert bodies(received) == ["m1"]
    assert target.clock.monotonic() - started < 15


@pytest.mark.promise("SLU-33")
def test_a_receive_asks_for_at_most_ten_messages(resources: Resources) -> None:
    """SLU-33: eleven are refused; ten of a group come in one receive at most, whatever is in the queue."""
    queue = resources.fifo_queue()
    queue.send_each(*[f"m{number:02}" for number in range(11)])

    refused = refusal(queue.receive, most=11)
    batch = queue.await_batch(most=10, visibility=30)

    assert refused[:2] == ("InvalidParameterValue", 400)
    assert 1 <= len(batch) <= 10
    assert bodies(batch) == [f"m{number:02}" for number in range(len(batch))]


@pytest.mark.promise("SLU-47")
def test_a_receive_asks_for_at_least_one_message(resources: Resources) -> None:
    """SLU-47: none and fewer are refused, although there is a message."""
    queue = resources.fifo_queue()
    queue.send_each("m1")

    none = refusal(queue.receive, most=0)
    fewer = refusal(queue.receive, most=-1)

    assert none[:2] == ("InvalidParameterValue", 400)
    assert fewer[:2] == ("InvalidParameterValue", 400)


@pytest.mark.promise("SLU-38")
def test_a_queue_may_make_every_receive_a_long_poll(resources: Resources, target: Target) -> None:
    """SLU-38: a receive that gives no time waits for the queue's two seconds before it says that there is nothing."""
    queue = resources.fifo_queue(ReceiveMessageWaitTimeSeconds="2")
    started = target.clock.monotonic()

    received = queue.sqs.receive_message(QueueUrl=queue.url)

    assert "Messages" not in received
    assert target.clock.monotonic() - started > 1.5


@pytest.mark.promise("SLU-39")
def test_a_receive_that_gives_no_number_brings_one_message(resources: Resources) -> None:
    """SLU-39: although there are three."""
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3")

    received = eventually(
        lambda: queue.sqs.receive_message(QueueUrl=queue.url, WaitTimeSeconds=1).get("Messages"),
        timeout_seconds=queue.patience_seconds,
        describe="the message",
    )

    assert bodies(received) == ["m1"]
