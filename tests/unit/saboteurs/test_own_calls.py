"""A saboteur's own calls to SQS have the endpoint, region and credentials of the client that it is attached to."""

import json
import re
from contextlib import ExitStack

import boto3
import pytest

from sluice.saboteurs import sabotage
from tests.support.endpoints.capturing_server import CapturedRequest, Reply, capturing


def _answer_one_message(request: CapturedRequest) -> Reply:
    """Answer a receive with one message, and any other call with an empty answer."""
    is_receive = request.headers.get("x-amz-target", "").endswith("ReceiveMessage")
    message = {"MessageId": "m1", "ReceiptHandle": "h1", "Body": "b"}
    return Reply(body=json.dumps({"Messages": [message]} if is_receive else {}).encode())


@pytest.mark.parametrize("services", [("sqs",), ("sqs", "sns"), ("sns", "sqs")], ids="-".join)
def test_dropped_messages_are_deleted_by_the_same_user_at_the_same_endpoint(
    monkeypatch: pytest.MonkeyPatch, services: tuple[str, ...]
) -> None:
    """The environment has other credentials; `services` are the attached clients, each with a server of its own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "somebody-else")
    session = boto3.Session("AKIDUSER", "secret", "token", region_name="eu-west-1")
    with ExitStack() as stack:
        servers = {service: stack.enter_context(capturing(_answer_one_message)) for service in services}
        clients = {service: session.client(service, endpoint_url=servers[service].url) for service in services}
        sabotage(clients.values(), "drop-messages")

        received = clients["sqs"].receive_message(QueueUrl=f"{servers['sqs'].url}/1/q.fifo")

    assert "Messages" not in received
    assert [_call(request) for request in servers["sqs"].captured] == [
        ("ReceiveMessage", "AKIDUSER", "eu-west-1"),
        ("DeleteMessage", "AKIDUSER", "eu-west-1"),
    ]


def _call(request: CapturedRequest) -> tuple[str, str, str]:
    """Return (operation, access key, region) of a request."""
    scope = re.search(r"Credential=(\w+)/\d+/([\w-]+)/sqs", request.headers["authorization"])
    assert scope is not None
    return request.headers["x-amz-target"].rpartition(".")[2], scope[1], scope[2]
