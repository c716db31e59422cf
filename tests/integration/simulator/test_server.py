"""The simulator behind HTTP, called as any SDK would call it."""

import http.client
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from sluice.errors import ConfigError
from sluice.simulator.server import SimulatorServer
from tests.support.command_line import KEYS

_SIGNED = "AWS4-HMAC-SHA256 Credential=anybody/20261126/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
_JSON = {"Content-Type": "application/x-amz-json-1.0", "Authorization": _SIGNED}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatorServer]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with SimulatorServer(port=0) as server:
        yield server


def _client(service: str, server: SimulatorServer, region: str = "us-east-1") -> Any:
    return boto3.client(service, endpoint_url=server.url, region_name=region)


def _fifo_queue(sqs: Any) -> str:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    return str(sqs.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"])


def _request(server: SimulatorServer, body: bytes, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("POST", "/", body, {**_JSON, **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_message_sent_during_a_long_poll_ends_it(server: SimulatorServer) -> None:
    sqs = _client("sqs", server)
    url = _fifo_queue(sqs)
    sender = threading.Timer(0.3, sqs.send_message, kwargs={"QueueUrl": url, "MessageBody": "m", "MessageGroupId": "g"})
    sender.start()

    received = _client("sqs", server).receive_message(QueueUrl=url, WaitTimeSeconds=20)

    sender.join()
    assert [message["Body"] for message in received["Messages"]] == ["m"]


def test_a_long_poll_ends_when_a_visibility_timeout_does(server: SimulatorServer) -> None:
    sqs = _client("sqs", server)
    url = _fifo_queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g")
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=1)

    again = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MessageSystemAttributeNames=["All"])

    assert [message["Attributes"]["ApproximateReceiveCount"] for message in again["Messages"]] == ["2"]


def test_each_region_has_queues_of_its_own(server: SimulatorServer) -> None:
    _fifo_queue(_client("sqs", server))

    elsewhere = _client("sqs", server, "eu-central-1")

    assert "QueueUrls" not in elsewhere.list_queues()
    topic = _client("sns", server, "eu-central-1").create_topic(Name="t.fifo", Attributes={"FifoTopic": "true"})
    assert topic["TopicArn"] == "arn:aws:sns:eu-central-1:000000000000:t.fifo"


def test_errors_are_those_of_the_service(server: SimulatorServer) -> None:
    sqs, sns = _client("sqs", server), _client("sns", server)

    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.receive_message(QueueUrl=f"{server.url}/000000000000/none", WaitTimeSeconds=5)
    with pytest.raises(sns.exceptions.NotFoundException):
        sns.get_topic_attributes(TopicArn="arn:aws:sns:us-east-1:000000000000:none.fifo")
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        sns.list_phone_numbers_opted_out()


@pytest.mark.parametrize(
    ("body", "headers", "status", "expected"),
    [
        (b"{}", {"Authorization": ""}, 403, "MissingAuthenticationToken"),
        (b"{}", {"Host": "evil.example"}, 403, "AccessDenied"),
        (b"{", {"X-Amz-Target": "AmazonSQS.ListQueues"}, 400, "SerializationException"),
        (b"[]", {"X-Amz-Target": "AmazonSQS.ListQueues"}, 400, "SerializationException"),
        (b'{"QueueUrl": 7}', {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}, 400, "SerializationException"),
        (b"{}", {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}, 400, "SerializationException"),
        (b"{}", {"X-Amz-Target": "AmazonSQS.Nothing"}, 400, "InvalidAction"),
        (b"{}", {"X-Amz-Target": "DynamoDB.ListTables"}, 501, "NotImplemented"),
        (
            b"Action=ListQueues&Version=2012-11-05",
            {"Content-Type": "application/x-www-form-urlencoded"},
            501,
            "NotImplemented",
        ),
    ],
)
def test_other_requests_are_refused(
    server: SimulatorServer, body: bytes, headers: dict[str, str], status: int, expected: str
) -> None:
    found, text = _request(server, body, **headers)

    assert found == status, text
    assert expected in text, text
    assert _client("sqs", server).list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_stopped_server_answers_again_with_all_it_had(server: SimulatorServer) -> None:
    url = _fifo_queue(_client("sqs", server))
    server.stop()

    server.start()

    assert _client("sqs", server).list_queues()["QueueUrls"] == [url]


def test_a_port_that_is_taken_is_refused(server: SimulatorServer) -> None:
    with pytest.raises(ConfigError, match="choose another port"):
        SimulatorServer(port=int(server.url.rpartition(":")[2]))
