"""The sizes and ranges within which a FIFO queue works."""

import string
from typing import Any

import pytest

from contract_tests.resources import Resources, bodies, invalid_parameter_value, refusal
from contract_tests.targets.binding import Target

_MEBIBYTE = 1_048_576
_LATE_SECONDS = 40


@pytest.mark.promise("LIM-06")
def test_a_message_has_at_most_a_mebibyte(resources: Resources) -> None:
    queue = resources.fifo_queue()

    refused = refusal(queue.send, "x" * (_MEBIBYTE + 1), id="m1")
    queue.send("x" * (_MEBIBYTE - 4) + "\U0001f600", id="m2")  # four bytes in UTF-8, one character
    body = queue.await_message()["Body"]

    assert refused == invalid_parameter_value(
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    )
    assert len(body) == _MEBIBYTE - 3
    assert body.count("x") == _MEBIBYTE - 4
    assert body[-1] == "\U0001f600"


@pytest.mark.promise("LIM-07")
def test_ids_may_have_every_printable_ascii_character_but_the_space(resources: Resources) -> None:
    queue = resources.fifo_queue()
    every = string.ascii_letters + string.digits + string.punctuation
    queue.send("m1", group=every.ljust(128, "g"), id=every.ljust(128, "d"))
    message = queue.await_message(visibility=30)
    queue.send("m2", group="g", id="d")

    shortest = queue.await_message(visibility=30)

    assert message["Attributes"]["MessageGroupId"] == every.ljust(128, "g")
    assert message["Attributes"]["MessageDeduplicationId"] == every.ljust(128, "d")
    assert shortest["Attributes"]["MessageGroupId"] == "g"
    assert shortest["Attributes"]["MessageDeduplicationId"] == "d"


@pytest.mark.promise("LIM-09")
def test_both_ends_of_every_range_are_accepted(resources: Resources) -> None:
    least: dict[str, Any] = {
        "DelaySeconds": "0",
        "MaximumMessageSize": "1024",
        "MessageRetentionPeriod": "60",
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "0",
    }
    most: dict[str, Any] = {
        "DelaySeconds": "900",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "1209600",
        "ReceiveMessageWaitTimeSeconds": "20",
        "VisibilityTimeout": "43200",
    }

    assert resources.fifo_queue(**least).attributes(*least) == least
    assert resources.fifo_queue(**most).attributes(*most) == most


@pytest.mark.slow
@pytest.mark.promise("VIS-17")
def test_a_message_is_gone_when_its_retention_ends(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue(MessageRetentionPeriod="60")
    started = target.clock.monotonic()
    queue.send_each("m1", group="g1")

    queue.await_attributes({"ApproximateNumberOfMessages": "0"}, settling_seconds=60)
    elapsed = target.clock.monotonic() - started
    queue.send_each("m2", group="g1")

    assert elapsed > 55
    assert bodies(queue.drain(1)) == ["m2"]


@pytest.mark.slow
@pytest.mark.promise("VIS-16")
def test_a_message_in_flight_is_gone_when_its_retention_ends(resources: Resources, target: Target) -> None:
    """A message that was received late goes no later than a message that nobody has received."""
    queue, unreceived = (resources.fifo_queue(MessageRetentionPeriod="60") for _ in range(2))
    started = target.clock.monotonic()
    queue.send_each("m1", group="g1")
    unreceived.send_each("m1", group="g1")
    target.await_age(_LATE_SECONDS, since=started)
    queue.await_message(visibility=600)

    unreceived.await_attributes({"ApproximateNumberOfMessages": "0"}, settling_seconds=60)
    elapsed = target.clock.monotonic() - started
    queue.await_attributes({"ApproximateNumberOfMessagesNotVisible": "0"})
    queue.send_each("m2", group="g1")

    assert elapsed > 55
    assert bodies(queue.drain(1)) == ["m2"]
