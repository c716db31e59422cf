"""What a FIFO queue or topic refuses, and how it says so."""

import pytest
from botocore.exceptions import ClientError

from contract_tests.resources import Resources


def _error(refused: pytest.ExceptionInfo[ClientError]) -> tuple[str, str, int]:
    response = refused.value.response
    return response["Error"]["Code"], response["Error"]["Message"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.promise("SND-01")
def test_a_send_without_deduplication_id_is_refused(resources: Resources) -> None:
    """SND-01: without content-based deduplication an id is needed."""
    queue = resources.fifo_queue()

    with pytest.raises(ClientError) as refused:
        queue.send("m1", group="g1")

    assert _error(refused) == (
        "InvalidParameterValue",
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
        400,
    )


@pytest.mark.promise("SND-02")
def test_a_send_without_message_group_id_is_refused(resources: Resources) -> None:
    """SND-02: a FIFO queue needs a group."""
    queue = resources.fifo_queue()

    with pytest.raises(ClientError) as refused:
        queue.send("m1", group=None, id="m1")

    assert _error(refused) == (
        "MissingParameter",
        "The request must contain the parameter MessageGroupId.",
        400,
    )


@pytest.mark.promise("SNS-09")
def test_a_publish_without_message_group_id_is_refused(resources: Resources) -> None:
    """SNS-09: a FIFO topic needs a group."""
    topic = resources.fifo_topic()

    with pytest.raises(ClientError) as refused:
        topic.publish("m1", group=None, id="m1")

    assert _error(refused) == (
        "InvalidParameter",
        "Invalid parameter: The MessageGroupId parameter is required for FIFO topics",
        400,
    )
