"""The simulator's model on a clock that a test sets, with short calls for what tests do often."""

import json
from typing import Any

from sluice.simulator.model import Account, AwsRefusal

_FIFO = {"FifoQueue": "true"}


class Service:
    """The simulator's model of SQS and SNS; `now` is the instant of the next calls, and a test sets it."""

    def __init__(self) -> None:
        self.account = Account()
        self.now = 1_000_000.0

    def _call(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = self.account.call(service, operation, params, self.now)
        if isinstance(answer, AwsRefusal):
            raise answer
        return answer

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        return self._call("sqs", operation, params)

    def sns(self, operation: str, **params: Any) -> dict[str, Any]:
        return self._call("sns", operation, params)

    def standard_queue(self, name: str = "q", **attributes: str) -> str:
        return str(self.sqs("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"])

    def topic(self, name: str = "t.fifo") -> str:
        return str(self.sns("CreateTopic", Name=name, Attributes={"FifoTopic": "true"})["TopicArn"])

    @staticmethod
    def allowing(topic: str) -> str:
        """Return a queue policy that lets the topic send."""
        condition = {"ArnEquals": {"aws:SourceArn": topic}}
        principal = {"Service": "sns.amazonaws.com"}
        statement = {"Effect": "Allow", "Principal": principal, "Action": "sqs:SendMessage", "Condition": condition}
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

    def queue(self, name: str = "q.fifo", **attributes: str) -> str:
        return str(self.sqs("CreateQueue", QueueName=name, Attributes=_FIFO | attributes)["QueueUrl"])

    def send(self, url: str, body: str, *, group: str = "g", id: str | None = None) -> dict[str, Any]:
        """Send a message; its deduplication id is its body, unless `id` is given."""
        return self.sqs(
            "SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=id or body
        )

    def receive(self, url: str, *, most: int = 10, **more: Any) -> list[dict[str, Any]]:
        answer = self.sqs(
            "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=most, MessageSystemAttributeNames=["All"], **more
        )
        return list(answer.get("Messages", []))

    def bodies(self, url: str, **more: Any) -> list[str]:
        return [message["Body"] for message in self.receive(url, **more)]


def arn_of(url: str) -> str:
    """Return the ARN of a queue."""
    return "arn:aws:sqs:us-east-1:000000000000:" + url.rpartition("/")[2]


def redrive_to(target: str, count: int) -> str:
    """Return a redrive policy to the queue with the URL `target`, with `count` as maxReceiveCount."""
    return json.dumps({"deadLetterTargetArn": arn_of(target), "maxReceiveCount": count})
