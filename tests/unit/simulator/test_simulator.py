"""The simulator as a boto3 service: long polls, threads and hooks."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from sluice.clock import VirtualClock, eventually
from sluice.saboteurs import sabotage
from sluice.simulator.hook import Simulator

FIFO = {"FifoQueue": "true"}


@pytest.fixture
def sqs(simulator: Simulator) -> Any:
    return simulator.client("sqs")


@pytest.fixture
def url(sqs: Any) -> str:
    """Return a FIFO queue with one message."""
    made = str(sqs.create_queue(QueueName="q.fifo", Attributes=FIFO)["QueueUrl"])
    sqs.send_message(QueueUrl=made, MessageBody="m1", MessageGroupId="g", MessageDeduplicationId="1")
    return made


def test_a_long_poll_alone_moves_the_clock_and_no_further_than_needed(simulator: Simulator, sqs: Any, url: str) -> None:
    """The message comes back after 7 s of a 20 s poll; the next poll ends empty after its 20 s."""
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=7)
    started = simulator.clock.monotonic()

    again = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
    came_at = simulator.clock.monotonic() - started
    empty = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
    ended_at = simulator.clock.monotonic() - started

    assert [message["Body"] for message in again["Messages"]] == ["m1"]
    assert came_at == pytest.approx(7, abs=0.1)
    assert "Messages" not in empty
    assert ended_at == pytest.approx(27, abs=0.1)


def test_a_long_poll_is_answered_by_another_threads_send(simulator: Simulator, sqs: Any, url: str) -> None:
    """No virtual second passes: the poll waits for the other thread instead."""
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)
    started = simulator.clock.monotonic()

    with ThreadPoolExecutor() as pool:
        polling = pool.submit(simulator.client("sqs").receive_message, QueueUrl=url, WaitTimeSeconds=20)
        sqs.send_message(QueueUrl=url, MessageBody="m2", MessageGroupId="other", MessageDeduplicationId="2")
        messages = polling.result(timeout=20)["Messages"]

    assert [message["Body"] for message in messages] == ["m2"]
    assert simulator.clock.monotonic() - started < 1


def test_waiting_goes_by_the_simulators_clock(simulator: Simulator, sqs: Any, url: str) -> None:
    """Twelve hours of `eventually` are over at once."""
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=43_200)

    again = eventually(
        lambda: sqs.receive_message(QueueUrl=url).get("Messages"),
        timeout_seconds=50_000,
        describe="the message",
        interval_seconds=60,
    )

    assert again[0]["Body"] == "m1"


def test_errors_are_boto3s_own(sqs: Any, url: str) -> None:
    with pytest.raises(ParamValidationError):
        sqs.send_message(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as unknown:
        sqs.send_message(QueueUrl=url + "x", MessageBody="m")

    response = unknown.value.response
    assert response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert response["Error"]["QueryErrorCode"] == "QueueDoesNotExist"
    assert response["Error"]["Message"] == "The specified queue does not exist."
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_sns_errors_too(simulator: Simulator) -> None:
    sns = simulator.client("sns")

    with pytest.raises(ClientError) as unknown:
        sns.publish(TopicArn="arn:aws:sns:us-east-1:000000000000:none.fifo", Message="m")

    assert unknown.value.response["Error"]["Code"] == "NotFound"
    assert unknown.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_a_binary_attribute_passes_topic_and_queue(simulator: Simulator, sqs: Any, url: str) -> None:
    """Through both wire formats and the model, bytes stay bytes."""
    sns = simulator.client("sns")
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sqs.purge_queue(QueueUrl=url)
    allow = '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}]}'
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": allow})
    topic = sns.create_topic(Name="t.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    value = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}

    sns.publish(
        TopicArn=topic,
        Message="m & <n>",
        MessageGroupId="g",
        MessageDeduplicationId="1",
        MessageAttributes={"raw": value},
    )

    (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert message["Body"] == "m & <n>"
    assert message["MessageAttributes"] == {"raw": value}


def test_a_saboteur_breaks_a_simulated_client(sqs: Any, url: str) -> None:
    """Also the one that makes a client of its own: the message is gone, not delivered."""
    sabotage([sqs], "drop-messages")

    first = sqs.receive_message(QueueUrl=url, VisibilityTimeout=30)
    counted = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert "Messages" not in first
    assert counted["ApproximateNumberOfMessages"] == "0"
    assert counted["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_two_simulators_share_nothing() -> None:
    simulator, other = Simulator(), Simulator(VirtualClock())
    simulator.client("sqs").create_queue(QueueName="q")

    assert other.client("sqs").list_queues().get("QueueUrls", []) == []
    assert other.clock.monotonic() < 1
