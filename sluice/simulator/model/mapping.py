"""A model of Lambda's event source mapping of one SQS queue: what it receives, invokes with, deletes and leaves.

Pure: instants are given, SQS is a function. On the simulator that is the model of the queue, elsewhere a client. Ids in
brackets are promises.

- A poll receives one batch. Messages of several groups are mixed, each group in order; while a group has messages in
  flight, SQS gives out none of that group, so no second invocation has the group at the same time [ORD-07].
- After an answer, what it does not report is deleted. What it reports stays hidden until its visibility timeout ends,
  as after an error, a timeout and a crash everything does [GRP-17]. SQS moves what comes too often to the DLQ [DLQ-24].
- A throttled invocation is tried again until the visibility timeout of its batch is over; then the batch is dropped: it
  was received and never tried.

How many pollers AWS starts, and how it slows down after errors, is not modelled: at most `concurrency_max` invocations
are under way.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html,
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html ("success and failure conditions"),
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (read 2026-11-27)
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

type SqsCall = Callable[[str, dict[str, Any]], Mapping[str, Any]]
"""Calls SQS: the name of an operation and its parameters in, the answer out."""

THROTTLE_PAUSE_SECONDS = 1.0
"""Between two tries of a throttled invocation. AWS documents that it backs off, not how."""


class NoAnswer(Enum):
    """The end of an invocation that brought no answer."""

    ERROR = "the function raised, crashed or ran out of time or memory"
    THROTTLED = "there is no concurrency left for the function"


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One batch on its way.

    Args:
        messages: as SQS gave them.
        received_at: when, in seconds.
        retry_at: when a throttled invocation is tried again; None while one is under way.
    """

    messages: list[Mapping[str, Any]]
    event: dict[str, Any]
    received_at: float
    retry_at: float | None = None


@dataclass(slots=True, kw_only=True)
class EventSourceMapping:
    """The poller of one queue.

    Args:
        call: to SQS.
        batch_size: messages that one poll receives at most.
        visibility_seconds: of the queue: so long a batch is the mapping's.
        concurrency_max: invocations under way at most.
        reports_failures: whether the answer of the function is looked at (ReportBatchItemFailures).
    """

    call: SqsCall
    queue_url: str
    queue_arn: str
    batch_size: int
    visibility_seconds: float
    concurrency_max: int = 1
    reports_failures: bool = True
    invocations: list[Invocation] = field(default_factory=list)

    def poll(self, now: float) -> Invocation | None:
        """Return an invocation to begin now: one that was throttled, else of a new batch; None where there is none."""
        self._drop_late(now)
        for waiting in self.invocations:
            if waiting.retry_at is not None and waiting.retry_at <= now:
                waiting.retry_at = None
                return waiting
        if len(self.invocations) >= self.concurrency_max:
            return None
        answer = self.call(
            "ReceiveMessage",
            {
                "QueueUrl": self.queue_url,
                "MaxNumberOfMessages": self.batch_size,
                "MessageSystemAttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            },
        )
        messages = list(answer.get("Messages", []))
        if not messages:
            return None
        event = {"Records": [to_record(message, self.queue_arn) for message in messages]}
        invocation = Invocation(messages=messages, event=event, received_at=now)
        self.invocations.append(invocation)
        return invocation

    def finish(self, invocation: Invocation, answer: object, now: float) -> None:
        """Take in how an invocation ended.

        Args:
            invocation: that `poll` returned.
            answer: what the function returned, as JSON has it; or why there is no answer.
            now: when it ended.
        """
        if answer is NoAnswer.THROTTLED:
            invocation.retry_at = now + THROTTLE_PAUSE_SECONDS
            return
        self.invocations.remove(invocation)
        done = [] if isinstance(answer, NoAnswer) else self._messages_to_delete(invocation, answer)
        if done:
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(done)
            ]
            self.call("DeleteMessageBatch", {"QueueUrl": self.queue_url, "Entries": entries})

    def next_change_at(self) -> float | None:
        """Return when a throttled invocation is tried again; None where none waits."""
        return min((each.retry_at for each in self.invocations if each.retry_at is not None), default=None)

    def _messages_to_delete(self, invocation: Invocation, answer: object) -> list[Mapping[str, Any]]:
        failed_ids = failed_message_ids(answer) if self.reports_failures else frozenset()
        ids = {message["MessageId"] for message in invocation.messages}
        if failed_ids is None or not failed_ids <= ids:  # an answer that cannot be read is a failure of the batch
            return []
        return [message for message in invocation.messages if message["MessageId"] not in failed_ids]

    def _drop_late(self, now: float) -> None:
        """Drop batches that were throttled until their visibility timeout was over."""
        self.invocations = [
            each
            for each in self.invocations
            if each.retry_at is None or now < each.received_at + self.visibility_seconds
        ]


def failed_message_ids(answer: object) -> frozenset[str] | None:
    """Return the messages that an answer reports; None where it is wrong, which counts as a failure of all.

    AWS: "Lambda treats a batch as a complete success" for an empty or null list, answer or value, and as "a complete
    failure" for an invalid answer, an empty or null itemIdentifier, and one with a wrong key (services-sqs-
    errorhandling.html, read 2026-11-27).
    """
    if answer is None or answer == "":
        return frozenset()
    if not isinstance(answer, Mapping):
        return None
    failures = answer.get("batchItemFailures")
    if failures is None:
        return frozenset()
    if not isinstance(failures, list):
        return None
    ids = [failure.get("itemIdentifier") if isinstance(failure, Mapping) else None for failure in failures]
    return frozenset(map(str, ids)) if all(isinstance(id_, str) and id_ for id_ in ids) else None


def to_record(message: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    """Return a received message as the event of a function has it."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {
            name: _to_event_attribute(value) for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }


def _to_event_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        found["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        binary = value["BinaryValue"]  # a client's is bytes, the model's is base64, as it is on the wire
        found["binaryValue"] = base64.b64encode(binary).decode() if isinstance(binary, bytes) else binary
    return found
