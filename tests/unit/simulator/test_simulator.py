"""The simulator behind boto3 clients: long polls, threads, errors, and other hooks in the same client."""

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
    """Return the URL of a FIFO queue with one message."""
    made = str(sqs.create_queue(QueueName="q.fifo", Attributes=FIFO)["QueueUrl"])
    sqs.send_message(QueueUrl=made, MessageBody="m1", MessageGroupId="g", MessageDeduplicationId="1")
    return made


def test_a_long_poll_alone_moves_the_clock_and_no_further_than_needed(simulator: Simulator, sqs: Any, url: str) -> None:
    """The message becomes visible after 7 s, which ends a poll of 20 s; the next poll finds nothing for 20 s."""
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=7)
    started = simulator.clock.monotonic()

    again = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
    seconds_to_first_end = simulator.clock.monotonic() - started
    empty = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
    seconds_to_second_end = simulator.clock.monotonic() - started

    assert [message["Body"] for message in again["Messages"]] == ["m1"]
    assert seconds_to_first_end == pytest.approx(7, abs=0.1)
    assert "Messages" not in empty
    assert seconds_to_second_end == pytest.approx(27, abs=0.1)


def test_a_long_poll_is_answered_by_another_threads_send(simulator: Simulator, sqs: Any, url: str) -> None:
    """While another thread calls, the poll waits for that thread, and does not move the virtual clock."""
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)
    started = simulator.clock.monotonic()

    with ThreadPoolExecutor() as pool:
        polling = pool.submit(simulator.client("sqs").receive_message, QueueUrl=url, WaitTimeSeconds=20)
        sqs.send_message(QueueUrl=url, MessageBody="m2", MessageGroupId="other", MessageDeduplicationId="2")
        messages = polling.result(timeout=20)["Messages"]

    assert [message["Body"] for message in messages] == ["m2"]
    assert simulator.clock.monotonic() - started < 1


def test_eventually_waits_on_the_simulators_clock(simulator: Simulator, sqs: Any, url: str) -> None:
    """`eventually` waits twelve virtual hours for the message, and no real time."""
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=43_200)

    again = eventually(
        lambda: sqs.receive_message(QueueUrl=url).get("Messages"),
        timeout_seconds=50_000,
        describe="the message",
        interval_seconds=60,
    )

    assert again[0]["Body"] == "m1"


def test_errors_of_sqs_are_boto3s_own_exceptions(sqs: Any, url: str) -> None:
    with pytest.raises(ParamValidationError):
        sqs.send_message(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as unknown:
        sqs.send_message(QueueUrl=url + "x", MessageBody="m")

    response = unknown.value.response
    assert response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert response["Error"]["QueryErrorCode"] == "QueueDoesNotExist"
    assert response["Error"]["Message"] == "The specified queue does not exist."
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_errors_of_sns_are_boto3s_own_exceptions(simulator: Simulator) -> None:
    sns = simulator.client("sns")

    with pytest.raises(ClientError) as unknown:
        sns.publish(TopicArn="arn:aws:sns:us-east-1:000000000000:none.fifo", Message="m")

    assert unknown.value.response["Error"]["Code"] == "NotFound"
    assert unknown.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_a_binary_attribute_passes_topic_and_queue(simulator: Simulator, sqs: Any, url: str) -> None:
    """SNS's XML, the model and SQS's JSON return the bytes that were published."""
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
    """`drop-messages` deletes each received message by a client of its own, which the simulator has to answer too."""
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
