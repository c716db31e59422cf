"""Queues and topics of one test: made with unique names, deleted after it, with methods that read like the promise."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from contract_tests.targets import Target
from sluice.clock import eventually

type Message = dict[str, Any]
_LONG_POLL_SECONDS = 1


def bodies(messages: Iterable[Message]) -> list[str]:
    """Return the bodies, in order."""
    return [message["Body"] for message in messages]


def refusal(call: Callable[..., object], *arguments: object, **parameters: object) -> tuple[str, int, str]:
    """Make a call the service must refuse; return error code, HTTP status and text.

    Raises:
        AssertionError: it was accepted.
    """
    try:
        answer = call(*arguments, **parameters)
    except ClientError as error:
        said = error.response
        return said["Error"]["Code"], said["ResponseMetadata"]["HTTPStatusCode"], said["Error"]["Message"]
    raise AssertionError(f"accepted, should have been refused: {answer!r}")


@dataclass(frozen=True, slots=True)
class Queue:
    """One SQS queue. Every method is one API call, except those whose docstring says that they wait."""

    sqs: Any
    name: str
    url: str
    arn: str
    patience_seconds: float

    def send(self, body: str, *, group: str | None = "g1", id: str | None = None, **more: Any) -> dict[str, Any]:
        """Send a message; None leaves the parameter out."""
        given = {"MessageGroupId": group, "MessageDeduplicationId": id}
        parameters = {name: value for name, value in given.items() if value is not None}
        answer: dict[str, Any] = self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **parameters, **more)
        return answer

    def send_each(self, *bodies: str, group: str = "g1") -> None:
        """Send several messages to a group, one after the other, with their bodies as deduplication ids."""
        for body in bodies:
            self.send(body, group=group, id=body)

    def receive(self, *, most: int = 1, visibility: int | None = None, wait: int = 0) -> list[Message]:
        """Receive once, at most `most` messages, with every system attribute."""
        parameters = {} if visibility is None else {"VisibilityTimeout": visibility}
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            **parameters,
        )
        return list(answer.get("Messages", []))

    def await_message(self, *, visibility: int | None = None) -> Message:
        """Wait until one message is delivered, and return it."""
        return self.await_batch(most=1, visibility=visibility)[0]

    def await_batch(self, *, most: int, visibility: int | None = None) -> list[Message]:
        """Wait until a receive is not empty, and return what it brought."""
        return eventually(
            lambda: self.receive(most=most, visibility=visibility, wait=_LONG_POLL_SECONDS),
            timeout_seconds=self.patience_seconds,
            describe=f"a message in {self.name}",
        )

    def delete(self, message: Message) -> None:
        """Delete a received message."""
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def change_visibility(self, message: Message, seconds: int) -> None:
        """Change the visibility timeout of a message in flight."""
        self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def purge(self) -> None:
        """Purge the queue."""
        self.sqs.purge_queue(QueueUrl=self.url)

    def drain(self, count: int) -> list[Message]:
        """Wait until `count` messages were received and deleted; then receive once more, so that a surplus shows."""
        drained: list[Message] = []

        def take() -> bool:
            for message in self.receive(most=10, wait=_LONG_POLL_SECONDS):
                self.delete(message)
                drained.append(message)
            return len(drained) >= count

        eventually(
            take,
            timeout_seconds=self.patience_seconds,
            describe=f"{count} message(s) in {self.name}",
            interval_seconds=0,
        )
        return [*drained, *self.receive(most=10, wait=_LONG_POLL_SECONDS)]


@dataclass(frozen=True, slots=True)
class Topic:
    """One SNS topic."""

    sns: Any
    arn: str

    def publish(self, body: str, *, group: str | None = "g1", id: str | None = None, **more: Any) -> dict[str, Any]:
        """Publish a message; None leaves the parameter out."""
        given = {"MessageGroupId": group, "MessageDeduplicationId": id}
        parameters = {name: value for name, value in given.items() if value is not None}
        answer: dict[str, Any] = self.sns.publish(TopicArn=self.arn, Message=body, **parameters, **more)
        return answer

    def subscribe(self, queue: Queue) -> None:
        """Subscribe a queue with raw delivery, and allow the topic to send to it."""
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue.arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": self.arn}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": policy})
        self.sns.subscribe(
            TopicArn=self.arn, Protocol="sqs", Endpoint=queue.arn, Attributes={"RawMessageDelivery": "true"}
        )


class Resources:
    """Makes what one test needs, under names no other test uses, and deletes it again.

    Args:
        prefix: unique among all tests that share the target.
    """

    def __init__(self, target: Target, sqs: Any, sns: Any, prefix: str) -> None:
        self._target, self._sqs, self._sns, self._prefix = target, sqs, sns, prefix
        self._numbers = itertools.count(1)
        self._undo: list[Callable[[], object]] = []

    def standard_queue(self) -> Queue:
        """Make a standard queue."""
        return self._queue(f"{self._prefix}-{next(self._numbers)}", {})

    def fifo_queue(
        self, *, hint: str = "q", dead_letters: Queue | None = None, max_receive_count: int = 2, **attributes: str
    ) -> Queue:
        """Make a FIFO queue.

        Args:
            hint: part of its name; `window3` asks for a short deduplication window.
            dead_letters: its DLQ.
            max_receive_count: receives before a message goes there.
            attributes: as for CreateQueue.
        """
        redrive: Mapping[str, str] = {}
        if dead_letters is not None:
            policy = {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": max_receive_count}
            redrive = {"RedrivePolicy": json.dumps(policy)}
        name = f"{self._prefix}-{hint}-{next(self._numbers)}.fifo"
        return self._queue(name, {"FifoQueue": "true", **redrive, **attributes})

    def _queue(self, name: str, attributes: Mapping[str, str]) -> Queue:
        url = self._sqs.create_queue(QueueName=name, Attributes=dict(attributes))["QueueUrl"]
        self._undo.append(lambda: self._sqs.delete_queue(QueueUrl=url))
        arn = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        return Queue(self._sqs, name, url, arn, self._target.patience_seconds)

    def fifo_topic(self, *queues: Queue, **attributes: str) -> Topic:
        """Make a FIFO topic with these queues subscribed."""
        name = f"{self._prefix}-{next(self._numbers)}.fifo"
        arn = self._sns.create_topic(Name=name, Attributes={"FifoTopic": "true", **attributes})["TopicArn"]
        self._undo.append(lambda: self._sns.delete_topic(TopicArn=arn))
        topic = Topic(self._sns, arn)
        for queue in queues:
            topic.subscribe(queue)
        return topic

    def close(self) -> None:
        """Delete everything, the latest first."""
        while self._undo:
            self._undo.pop()()
