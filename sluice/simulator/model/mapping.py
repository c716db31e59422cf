"""A model of Lambda's event source mapping of one SQS queue: it receives, invokes a function, and deletes messages.

The model has no clock and no client: its caller gives each instant, and a function that calls SQS. On the simulator
that function is the model of the queue, elsewhere a boto3 client. Ids in brackets are promises.

- A poll receives one batch. Messages of several groups are mixed, each group in order; while a group has messages in
  flight, SQS gives out none of that group, so no second invocation has the group at the same time [ORD-07].
- After an answer, the mapping deletes the messages that the answer does not report as failed. A reported message stays
  hidden until its visibility timeout ends. After an error, a timeout or a crash, all messages do [GRP-17]. SQS moves a
  message that was received too often to the DLQ [DLQ-24].
- A throttled invocation is tried again until the visibility timeout of its batch is over. Then the batch is dropped: it
  was received, and the function never saw it [ESM-12, ESM-14].
- The mapping deletes the messages that no filter wants, without an invocation [ESM-22].
- A disabled mapping receives nothing. An invocation that began before ends as usual [ESM-18, ESM-19].

How many pollers AWS starts, and how it slows down after errors, is not modelled: at most `concurrency_max` invocations
are under way.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html,
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html ("success and failure conditions"),
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html,
https://docs.aws.amazon.com/lambda/latest/dg/with-sqs-filtering.html (read 2026-11-27)
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sluice.simulator.model.filter_policy import accepts_body

type SqsCall = Callable[[str, dict[str, Any]], Mapping[str, Any]]
"""Calls SQS: takes the name of an operation and its parameters, and returns the answer."""

THROTTLE_PAUSE_SECONDS = 1.0
"""The pause between two tries of a throttled invocation. AWS documents that Lambda backs off, not for how long."""


class NoAnswer(Enum):
    """The reason why an invocation ended without an answer."""

    ERROR = "the function raised, crashed or ran out of time or memory"
    THROTTLED = "there is no concurrency left for the function"


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One received batch, with which the function is invoked.

    Args:
        messages: as SQS returned them.
        event: the function's event: the messages as records.
        received_at: the instant of the receive, in seconds.
        begun_at: the instant of the latest invocation with this batch.
        retry_at: the instant of the next try of a throttled invocation; None while the function runs.
    """

    messages: list[Mapping[str, Any]]
    event: dict[str, Any]
    received_at: float
    begun_at: float
    retry_at: float | None = None


@dataclass(slots=True, kw_only=True)
class EventSourceMapping:
    """The poller of one queue.

    Args:
        call: calls SQS.
        batch_size: the most messages that one poll receives.
        visibility_seconds: the queue's visibility timeout, during which nobody else receives the batch.
        concurrency_max: the most invocations at the same time.
        reports_failures: whether the function's answer names failed messages (ReportBatchItemFailures); otherwise it is
            ignored.
        filters: patterns as JSON. A message that none of them wants is deleted; without any, all messages are wanted.
        is_enabled: whether the mapping receives.
        invocations: those that run or wait for their next try.
    """

    call: SqsCall
    queue_url: str
    queue_arn: str
    batch_size: int
    visibility_seconds: float
    concurrency_max: int = 1
    reports_failures: bool = True
    filters: Sequence[str] = ()
    is_enabled: bool = True
    invocations: list[Invocation] = field(default_factory=list)

    def poll(self, now: float) -> Invocation | None:
        """Return an invocation to begin now: a throttled one whose pause is over, or of a new batch; else None."""
        self._drop_late(now)
        if not self.is_enabled:
            return None
        for waiting in self.invocations:
            if waiting.retry_at is not None and waiting.retry_at <= now:
                waiting.retry_at, waiting.begun_at = None, now
                return waiting
        while len(self.invocations) < self.concurrency_max and (messages := self._receive()):
            wanted = [message for message in messages if self._wants(message)]
            self._delete([message for message in messages if message not in wanted])
            if wanted:
                event = {"Records": [to_record(message, self.queue_arn) for message in wanted]}
                invocation = Invocation(messages=wanted, event=event, received_at=now, begun_at=now)
                self.invocations.append(invocation)
                return invocation
        return None

    def finish(self, invocation: Invocation, answer: object, now: float) -> None:
        """Delete the messages of an invocation that ended, as its answer says; or plan the retry of a throttled one.

        Args:
            invocation: returned by `poll`.
            answer: the function's return value, parsed from JSON; or a `NoAnswer`.
            now: the instant of the end.
        """
        if answer is NoAnswer.THROTTLED:
            invocation.retry_at = now + THROTTLE_PAUSE_SECONDS
            return
        self.invocations.remove(invocation)
        self._delete([] if isinstance(answer, NoAnswer) else self._messages_to_delete(invocation, answer))

    def next_change_at(self) -> float | None:
        """Return the instant at which the next throttled invocation is tried again; None if none waits."""
        return min((each.retry_at for each in self.invocations if each.retry_at is not None), default=None)

    def _receive(self) -> list[Mapping[str, Any]]:
        answer = self.call(
            "ReceiveMessage",
            {
                "QueueUrl": self.queue_url,
                "MaxNumberOfMessages": self.batch_size,
                "MessageSystemAttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            },
        )
        return list(answer.get("Messages", []))

    def _wants(self, message: Mapping[str, Any]) -> bool:
        return not self.filters or any(_accepts(json.loads(pattern), message["Body"]) for pattern in self.filters)

    def _delete(self, messages: Sequence[Mapping[str, Any]]) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)
        ]
        if entries:
            self.call("DeleteMessageBatch", {"QueueUrl": self.queue_url, "Entries": entries})

    def _messages_to_delete(self, invocation: Invocation, answer: object) -> list[Mapping[str, Any]]:
        failed_ids = failed_message_ids(answer) if self.reports_failures else frozenset()
        ids = {message["MessageId"] for message in invocation.messages}
        if failed_ids is None or not failed_ids <= ids:  # an invalid answer means that the whole batch failed
            return []
        return [message for message in invocation.messages if message["MessageId"] not in failed_ids]

    def _drop_late(self, now: float) -> None:
        """Drop the throttled batches whose visibility timeout is over."""
        self.invocations = [
            each
            for each in self.invocations
            if each.retry_at is None or now < each.received_at + self.visibility_seconds
        ]


def _accepts(pattern: Mapping[str, Any], body: str) -> bool:
    """Return whether a filter's pattern matches a message's body; the pattern's other keys are ignored.

    A pattern has a list of rules for a text, or an object for a JSON body. AWS: where the pattern is of one kind and
    the body of the other, Lambda drops the message (with-sqs-filtering.html).
    """
    rules = pattern.get("body", {})
    if not isinstance(rules, list):
        return accepts_body(rules, body)
    return not _is_json(body) and accepts_body({"body": rules}, json.dumps({"body": body}))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def failed_message_ids(answer: object) -> frozenset[str] | None:
    """Return the ids of messages that a function's answer reports as failed; None if it is invalid: all failed.

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
    """Return a received message as a record of the function's event."""
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
        binary = value["BinaryValue"]  # bytes from a boto3 client, base64 from the model
        found["binaryValue"] = base64.b64encode(binary).decode() if isinstance(binary, bytes) else binary
    return found
