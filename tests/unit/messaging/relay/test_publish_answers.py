"""What a publisher makes of answers that SNS should not give."""

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from sluice.messaging.outbox.store import Retry, Sent
from sluice.messaging.relay.publisher import Publisher
from tests.support.messaging.outbox.simulated_relays import head

SENT = {"Id": "0", "MessageId": "m", "SequenceNumber": "1"}
UNANSWERED = Retry("the answer does not name it")


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
    """Its neighbours keep their own outcome."""
    sns = boto3.client("sns", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")  # noqa: S106
    ok = AWSResponse("http://aws", 200, {}, None)
    sns.meta.events.register("before-call.sns.PublishBatch", lambda **_: (ok, answer))

    outcomes = Publisher(sns, "arn:aws:sns:eu-west-1:000000000000:t.fifo").publish([head(1), head(2)])

    assert outcomes == [Sent("m", "1"), UNANSWERED]
