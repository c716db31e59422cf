"""A receive whose answer was lost can be repeated with its ReceiveRequestAttemptId: when, and until when.

Read in the API reference of ReceiveMessage; but for the refusal of RCV-12 nobody recorded an answer.
"""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import Message, QueueUnderTest, Resources, bodies, refusal
from contract_tests.targets.binding import Target
from sluice.clock import eventually

_ATTEMPT_SECONDS = 300


def _attempt(queue: QueueUnderTest, *, visibility: int, id: str = "attempt-1") -> list[Message]:
    """Receive once with an attempt id."""
    answer: dict[str, Any] = queue.sqs.receive_message(
        QueueUrl=queue.url, VisibilityTimeout=visibility, WaitTimeSeconds=1, ReceiveRequestAttemptId=id
    )
    return list(answer.get("Messages", []))


def _await_attempt(queue: QueueUnderTest, *, visibility: int) -> list[Message]:
    """Wait until a receive with the attempt id brings something."""
    return eventually(
        lambda: _attempt(queue, visibility=visibility),
        timeout_seconds=queue.patience_seconds,
        describe=f"a message in {queue.name}",
    )


def _handles(messages: list[Message]) -> list[str]:
    return [message["ReceiptHandle"] for message in messages]


@pytest.mark.promise("RCV-28")
def test_a_repeated_attempt_starts_the_visibility_timeout_anew(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    first = _await_attempt(queue, visibility=3)
    in_the_first_timeout = queue.receive(wait=1)

    again = _attempt(queue, visibility=3)
    beyond_the_first_timeout = queue.receive(wait=2)

    assert _handles(again) == _handles(first)
    assert [in_the_first_timeout, beyond_the_first_timeout] == [[], []]
    assert queue.await_message()["Body"] == "m1"


@pytest.mark.slow
@pytest.mark.promise("RCV-32")
def test_an_attempt_can_be_repeated_after_a_minute(resources: Resources, target: Target) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    first = _await_attempt(queue, visibility=600)
    started = target.clock.monotonic()
    target.await_age(65, since=started)

    again = _attempt(queue, visibility=600)

    assert _handles(again) == _handles(first)


@pytest.mark.promise("RCV-30")
def test_an_attempt_is_void_once_the_visibility_of_its_message_was_changed(resources: Resources) -> None:
    """It is not recorded whether the repeat is refused, as after a delete [RCV-12], or brings nothing."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    first = _await_attempt(queue, visibility=30)
    again = _attempt(queue, visibility=30)
    assert _handles(again) == _handles(first)

    queue.change_visibility(again[0], 60)
    try:
        after_the_change = _attempt(queue, visibility=30)
    except ClientError:
        after_the_change = []

    assert after_the_change == []


@pytest.mark.promise("RCV-31")
def test_an_attempt_id_has_128_characters_at_most(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    too_long = refusal(_attempt, queue, visibility=0, id="a" * 129)
    with_a_space = refusal(_attempt, queue, visibility=0, id="a b")
    longest = eventually(
        lambda: _attempt(queue, visibility=0, id="a" * 128),
        timeout_seconds=queue.patience_seconds,
        describe=f"a message in {queue.name}",
    )

    assert [too_long[1], with_a_space[1]] == [400, 400]  # codes and texts are not recorded
    assert bodies(longest) == ["m1"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.promise("RCV-13")
def test_an_attempt_id_is_forgotten_after_five_minutes(resources: Resources, target: Target) -> None:
    """The same id then receives the message anew, with another receipt handle. A repeat would return the first one."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    (first,) = _await_attempt(queue, visibility=1)
    started = target.clock.monotonic()

    target.await_age(_ATTEMPT_SECONDS, since=started)
    (later,) = _await_attempt(queue, visibility=30)

    assert later["MessageId"] == first["MessageId"]
    assert later["ReceiptHandle"] != first["ReceiptHandle"]
