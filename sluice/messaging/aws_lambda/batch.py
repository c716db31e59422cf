"""A batch of SQS messages as Lambda gives it to a function, and the answer that names what has to come again.

Lambda deletes what the answer does not name. What it names stays in the queue until its visibility timeout ends. In a
batch of a FIFO queue messages of several groups are mixed, each group in order.

AWS: https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html (the event),
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html (the answer): "If you're using this feature
with a FIFO queue, your function should stop processing messages after the first failure and return all failed and
unprocessed messages in batchItemFailures" (read 2026-11-27). Another group's messages may go on: their order is theirs.
"""

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.errors import ConfigError
from sluice.messaging.sqs.queue import ReceivedMessage

_SOURCE = "aws:sqs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The messages of an invocation, in the order of its event.

    Args:
        queue_arn: of the queue they are from.
    """

    queue_arn: str
    messages: tuple[ReceivedMessage, ...]

    @property
    def queue_name(self) -> str:
        """Return the name of the queue."""
        return self.queue_arn.rpartition(":")[2]

    def repeated_ids(self) -> list[str]:
        """Return the SQS message ids of messages that were received before."""
        return [message.sqs_message_id for message in self.messages if message.receive_count > 1]

    def groups(self, suspects: Collection[str] = ()) -> list[list[ReceivedMessage]]:
        """Return the messages by group, each group in order.

        Args:
            suspects: SQS message ids of messages whose handler may end the process: their groups are last, so that it
                costs the others nothing.
        """
        found: dict[str | None, list[ReceivedMessage]] = {}
        for message in self.messages:
            found.setdefault(message.message_group_id, []).append(message)
        return sorted(found.values(), key=lambda group: any(message.sqs_message_id in suspects for message in group))

    def answer(self, failed_ids: Collection[str]) -> dict[str, Any]:
        """Return what tells Lambda which messages have to come again."""
        failures = [
            {"itemIdentifier": message.sqs_message_id}
            for message in self.messages
            if message.sqs_message_id in failed_ids
        ]
        return {"batchItemFailures": failures}


def read_batch(event: object) -> Batch:
    """Return the batch that an event holds.

    Raises:
        ConfigError: the event is no batch of one SQS queue. Whoever raises it to Lambda has the messages come again.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    try:
        if isinstance(records, list) and records and all(record["eventSource"] == _SOURCE for record in records):
            (queue_arn,) = {str(record["eventSourceARN"]) for record in records}
            return Batch(queue_arn=queue_arn, messages=tuple(map(_to_message, records)))
    except (KeyError, TypeError, ValueError):
        pass
    keys = ", ".join(map(str, event)) if isinstance(event, Mapping) else type(event).__name__
    raise ConfigError(
        f"the function is invoked with an event of {keys or 'nothing'}, allowed are records of one SQS queue; invoke it"
        " by an event source mapping of its consumer's queue"
    )


def _to_message(record: Mapping[str, Any]) -> ReceivedMessage:
    system = record["attributes"]
    attributes = {name: _to_attribute(value) for name, value in (record.get("messageAttributes") or {}).items()}
    return ReceivedMessage(
        sqs_message_id=record["messageId"],
        receipt_handle=record["receiptHandle"],
        message_group_id=system["MessageGroupId"],
        body=record["body"],
        receive_count=int(system["ApproximateReceiveCount"]),
        attributes={name: value["StringValue"] for name, value in attributes.items() if "StringValue" in value},
        typed_attributes=attributes,
        trace_header=system.get("AWSTraceHeader"),
    )


def _to_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message attribute as SQS takes it: in an event its keys begin with a small letter, bytes are text."""
    found: dict[str, Any] = {"DataType": value["dataType"]}
    if value.get("stringValue") is not None:
        found["StringValue"] = value["stringValue"]
    if value.get("binaryValue") is not None:
        found["BinaryValue"] = base64.b64decode(value["binaryValue"])
    return found
