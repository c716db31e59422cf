"""A received message is hidden from other consumers for the visibility timeout, and not longer."""

import contextlib

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import (
    Message,
    Refusal,
    Resources,
    bodies,
    invalid_parameter_value,
    refusal,
    require_accepted,
)


def _expired_handle_refusal(message: Message) -> Refusal:
    """Return SQS's refusal of a message's handle after its visibility timeout."""
    return invalid_parameter_value(
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired."
    )


@pytest.mark.promise("RCV-17")
def test_an_overrun_consumer_is_not_fenced(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    with_first_consumer = queue.await_message(visibility=1)

    with_second_consumer = queue.await_message(visibility=30)

    assert with_second_consumer["MessageId"] == with_first_consumer["MessageId"]
    assert with_second_consumer["ReceiptHandle"] != with_first_consumer["ReceiptHandle"]
    assert with_second_consumer["Attributes"]["ApproximateReceiveCount"] == "2"


@pytest.mark.promise("VIS-01")
def test_deleting_after_the_visibility_timeout_fails_and_the_message_stays(resources: Resources) -> None:
    """A message in another queue shows that the timeout has ended: a receive from this queue would be VIS-05."""
    queue, other = resources.fifo_queue(), resources.fifo_queue()
    queue.send_each("m1")
    other.send_each("m1")
    late = queue.await_message(visibility=1)
    other.await_message(visibility=1)
    other.await_message(visibility=0)  # delivered again, so the timeout that began earlier has ended too

    assert refusal(queue.delete, late) == _expired_handle_refusal(late)
    assert queue.await_message()["MessageId"] == late["MessageId"]


@pytest.mark.promise("VIS-14")
def test_every_receive_counts_and_the_first_time_stays(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")

    receives = [queue.await_message(visibility=0) for _ in range(3)]

    assert [message["Attributes"]["ApproximateReceiveCount"] for message in receives] == ["1", "2", "3"]
    assert len({message["Attributes"]["ApproximateFirstReceiveTimestamp"] for message in receives}) == 1


@pytest.mark.promise("VIS-02")
def test_a_standard_queue_lets_a_late_consumer_delete(resources: Resources) -> None:
    queue = resources.standard_queue()
    queue.send("m1", group=None)
    late = queue.await_message(visibility=1)
    given_back = queue.await_message(visibility=0)  # delivered again, so the first timeout has ended

    queue.delete(late)

    assert given_back["MessageId"] == late["MessageId"]
    assert queue.receive(most=10, wait=1) == []


@pytest.mark.promise("VIS-04")
def test_a_message_received_without_visibility_timeout_cannot_be_deleted(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    glimpsed = queue.await_message(visibility=0)

    assert refusal(queue.delete, glimpsed) == _expired_handle_refusal(glimpsed)
    assert queue.await_message()["MessageId"] == glimpsed["MessageId"]


@pytest.mark.promise("VIS-05")
def test_an_older_handle_does_not_delete_while_another_consumer_has_the_message(resources: Resources) -> None:
    """AWS documents that the delete fails, or is confirmed and deletes nothing; its answer is not recorded."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    overrun = queue.await_message(visibility=1)
    held = queue.await_message(visibility=30)

    with contextlib.suppress(ClientError):
        queue.delete(overrun)

    require_accepted(queue.change_visibility, held, 0)
    assert bodies(queue.receive(wait=2)) == ["m1"]


@pytest.mark.promise("VIS-06")
def test_the_visibility_of_a_deleted_message_cannot_be_changed(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    message = queue.await_message(visibility=30)
    queue.delete(message)

    assert refusal(queue.change_visibility, message, 0) == invalid_parameter_value(
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. "
        "Reason: Message does not exist or is not available for visibility timeout change."
    )


@pytest.mark.promise("VIS-07")
def test_an_invalid_handle_is_refused(resources: Resources) -> None:
    """Recorded on a standard queue."""
    queue = resources.standard_queue()
    queue.send("m1", group=None)
    message = queue.await_message(visibility=30)
    queue.delete(message)

    queue.delete(message)
    assert refusal(queue.delete, {"ReceiptHandle": "garbage"}) == (
        "ReceiptHandleIsInvalid",
        400,
        'The input receipt handle "garbage" is not a valid receipt handle.',
    )


@pytest.mark.promise("VIS-08")
def test_a_standard_queue_confirms_a_late_visibility_change_and_does_nothing(resources: Resources) -> None:
    """The answer of a FIFO queue is not recorded, so the queue here is standard."""
    queue = resources.standard_queue()
    queue.send("m1", group=None)
    late = queue.await_message(visibility=1)
    queue.await_message(visibility=0)  # delivered again, so the first timeout has ended

    queue.change_visibility(late, 600)

    assert queue.await_message()["MessageId"] == late["MessageId"]


@pytest.mark.promise("VIS-09")
def test_a_changed_visibility_is_not_kept_for_the_next_receive(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="30")
    queue.send_each("m1")
    first = queue.await_message()
    queue.change_visibility(first, 0)

    again = queue.await_message()

    assert again["MessageId"] == first["MessageId"]
    assert queue.receive(most=10, wait=1) == []


@pytest.mark.promise("VIS-10")
def test_a_receive_may_have_a_visibility_timeout_of_its_own(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="30")
    queue.send_each("m1")

    own = queue.await_message(visibility=0)
    of_the_queue = queue.await_message()

    assert of_the_queue["MessageId"] == own["MessageId"]
    assert queue.receive(most=10, wait=1) == []


@pytest.mark.promise("VIS-28")
def test_an_extended_message_is_deleted_with_its_handle(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    message = queue.await_message(visibility=1)
    queue.change_visibility(message, 30)
    beyond_the_first_timeout = queue.receive(wait=2)

    require_accepted(queue.delete, message)

    assert beyond_the_first_timeout == []
    queue.send_each("m2")  # of the same group, which the delete has released
    assert bodies(queue.drain(1)) == ["m2"]


@pytest.mark.promise("VIS-29")
def test_a_late_visibility_change_hides_nothing(resources: Resources) -> None:
    """It is not recorded whether the change is refused, or confirmed as by a standard queue [VIS-08]."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    late = queue.await_message(visibility=1)
    queue.await_message(visibility=0)  # delivered again, so the first timeout has ended

    with contextlib.suppress(ClientError):
        queue.change_visibility(late, 600)

    assert queue.await_message()["MessageId"] == late["MessageId"]


@pytest.mark.promise("VIS-30")
def test_a_changed_visibility_timeout_begins_with_the_change(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    message = queue.await_message(visibility=30)
    assert queue.receive(wait=2) == []

    queue.change_visibility(message, 3)
    until_a_second_before_the_end = queue.receive(wait=2)
    again = queue.await_message()

    assert until_a_second_before_the_end == []
    assert again["MessageId"] == message["MessageId"]


@pytest.mark.promise("VIS-13")
def test_a_visibility_change_beyond_twelve_hours_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    message = queue.await_message(visibility=30)
    queue.change_visibility(message, 40_000)
    assert queue.receive(wait=2) == []

    assert refusal(queue.change_visibility, message, 43_200) == invalid_parameter_value(
        "Value 43200 for parameter VisibilityTimeout is invalid. "
        "Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
    )


@pytest.mark.promise("SLU-36")
def test_a_receive_without_visibility_timeout_uses_that_of_the_queue(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="2")
    queue.send_each("m1")
    first = queue.await_message()
    hidden = queue.receive()

    again = queue.await_message()

    assert hidden == []
    assert again["MessageId"] == first["MessageId"]


@pytest.mark.promise("VIS-32")
def test_the_receive_after_a_release_counts(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    first = queue.await_message(visibility=600)
    queue.change_visibility(first, 0)
    second = queue.await_message(visibility=600)
    queue.change_visibility(second, 300)
    queue.change_visibility(second, 0)

    third = queue.await_message()

    counts = [message["Attributes"]["ApproximateReceiveCount"] for message in (first, second, third)]
    assert counts == ["1", "2", "3"]


@pytest.mark.promise("VIS-33")
def test_an_older_handle_does_not_delete_what_nobody_holds(resources: Resources) -> None:
    """The delete may fail, or be confirmed and delete nothing; its answer is not recorded."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    oldest = queue.await_message(visibility=0)
    newest = queue.await_message(visibility=600)
    queue.change_visibility(newest, 0)

    with contextlib.suppress(ClientError):
        queue.delete(oldest)

    assert bodies(queue.receive(wait=2)) == ["m1"]


@pytest.mark.promise("VIS-34")
def test_an_expired_handle_does_not_hide_what_nobody_holds(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1")
    expired = queue.await_message(visibility=0)

    with contextlib.suppress(ClientError):
        queue.change_visibility(expired, 600)

    assert bodies(queue.receive(wait=2)) == ["m1"]


@pytest.mark.promise("VIS-35")
def test_a_new_queue_timeout_does_not_change_messages_in_flight(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="600")
    queue.send_each("m1")
    held = queue.await_message()

    queue.set_attributes(VisibilityTimeout="1")
    assert queue.receive(wait=3) == []
    queue.change_visibility(held, 0)

    assert queue.await_message()["MessageId"] == held["MessageId"]
