"""A publisher tries messages again after an answer that SNS should not give."""

import socket
import ssl
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from sluice.messaging.outbox.store import PublishRetry, PublishSuccess
from sluice.messaging.relay.publisher import Publisher
from tests.support.messaging.outbox.simulated_relays import head

ARN = "arn:aws:sns:eu-west-1:000000000000:t.fifo"
SENT = {"Id": "0", "MessageId": "m", "SequenceNumber": "1"}
UNANSWERED = PublishRetry("the answer does not name it")


@pytest.mark.parametrize(
    "answer",
    [
        {"Successful": [SENT]},
        {"Successful": [SENT, {"Id": "1"}]},
        {"Successful": [SENT, {"MessageId": "n"}]},
        {"Successful": [SENT], "Failed": [{"Code": "InternalError", "SenderFault": False}]},
    ],
    ids=["nothing of it", "no message id", "no id", "a failure without an id"],
)
def test_an_entry_the_answer_does_not_name_is_tried_again(answer: dict[str, Any]) -> None:
    """The other entries keep their outcome."""
    sns = boto3.client("sns", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")  # noqa: S106
    ok = AWSResponse("http://aws", 200, {}, None)
    sns.meta.events.register("before-call.sns.PublishBatch", lambda **_: (ok, answer))

    outcomes = Publisher(sns, ARN).publish([head(1), head(2)])

    assert outcomes == [PublishSuccess("m", "1"), UNANSWERED]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
        ssl.SSLError("certificate verify failed"),
        socket.gaierror("Name or service not known"),
        ValueError("Invalid timestamp"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_call_that_ends_without_an_answer_is_tried_again(error: Exception) -> None:
    """The messages are not at fault, whatever error ends the call, and the relay goes on."""
    sns = boto3.client("sns", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")  # noqa: S106

    def fail(**_: Any) -> None:
        raise error

    sns.meta.events.register("before-call.sns.PublishBatch", fail)

    outcomes = Publisher(sns, ARN).publish([head(1), head(2)])

    assert outcomes == [PublishRetry(f"{type(error).__name__}: {error}")] * 2
