"""A received message is its consumer's for the visibility timeout, and not a moment longer."""

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import Resources


@pytest.mark.promise("RCV-17")
def test_an_overrun_consumer_is_not_fenced(resources: Resources) -> None:
    """RCV-17: while the first consumer still works, a second one is given the same message."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    with_first_consumer = queue.await_message(visibility=1)

    with_second_consumer = queue.await_message(visibility=30)

    assert with_second_consumer["MessageId"] == with_first_consumer["MessageId"]
    assert with_second_consumer["ReceiptHandle"] != with_first_consumer["ReceiptHandle"]
    assert with_second_consumer["Attributes"]["ApproximateReceiveCount"] == "2"


@pytest.mark.promise("VIS-01")
def test_deleting_after_the_visibility_timeout_fails_and_the_message_stays(resources: Resources) -> None:
    """VIS-01: the handle has expired, the delete says so, and the message is delivered again."""
    queue = resources.fifo_queue()
    queue.send_each("m1")
    late = queue.await_message(visibility=1)
    given_back = queue.await_message(visibility=0)  # delivered again, so the first timeout has ended

    with pytest.raises(ClientError) as refused:
        queue.delete(late)

    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert refused.value.response["Error"]["Message"] == (
        f"Value {late['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    )
    assert given_back["MessageId"] == late["MessageId"]
    assert queue.await_message()["MessageId"] == late["MessageId"]


@pytest.mark.promise("VIS-14")
def test_every_receive_counts_and_the_first_time_stays(resources: Resources) -> None:
    """VIS-14: three receives count 1, 2, 3, all with the time of the first."""
    queue = resources.fifo_queue()
    queue.send_each("m1")

    receives = [queue.await_message(visibility=0) for _ in range(3)]

    assert [message["Attributes"]["ApproximateReceiveCount"] for message in receives] == ["1", "2", "3"]
    assert len({message["Attributes"]["ApproximateFirstReceiveTimestamp"] for message in receives}) == 1
