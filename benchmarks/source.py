"""Answers of an SQS queue that always has another message, in SQS's JSON protocol; `sink` sends them.

The groups take turns: there are a thousand, more than lanes, so two lanes never hold messages of the same group, and
each message has the next number of its group. The queues of `HOT_QUEUES` have one group, and give out its next message
when the last one is deleted, as SQS does: a receive waits for it.
"""

import base64
import hashlib
import json
import uuid
from itertools import count

from sluice.declaration import Consumer
from sluice.messaging.bundle import write_bundle
from sluice.messaging.envelope import Envelope, Event

_GROUPS = 1_000
_DECLARED = Consumer(name="benchmark")
_ATTRIBUTES = {
    "ApproximateNumberOfMessages": "1",
    "FifoQueue": "true",
    "MessageRetentionPeriod": str(_DECLARED.message_retention_seconds),
    "RedrivePolicy": json.dumps({"deadLetterTargetArn": "", "maxReceiveCount": _DECLARED.max_attempts}),
    "VisibilityTimeout": str(_DECLARED.visibility_timeout_seconds),
}
_numbers = count()


def answer(operation: str, body: bytes) -> bytes | None:
    """Return SQS's answer to a call: the wanted number of messages, or success without doing anything.

    Return None if a receive has to wait.
    """
    request = json.loads(body)
    hot = _HOT.get(request.get("QueueUrl", "").rpartition("/")[2])
    if hot is not None and operation == "ReceiveMessage":
        return hot.receive()
    if hot is not None and operation.startswith("DeleteMessage"):
        hot.is_held = False
    if operation == "ReceiveMessage":
        kind = _MESSAGE_BY_QUEUE.get(request["QueueUrl"].rpartition("/")[2], _message)
        return json.dumps({"Messages": [kind() for _ in range(request.get("MaxNumberOfMessages", 1))]}).encode()
    if operation == "GetQueueAttributes":
        return json.dumps({"Attributes": _ATTRIBUTES}).encode()
    if operation == "GetQueueUrl":
        return json.dumps({"QueueUrl": f"http://localhost/000000000000/{request['QueueName']}"}).encode()
    if "Entries" in request:
        return json.dumps({"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}).encode()
    return b"{}"


def _message() -> dict[str, object]:
    number = next(_numbers)
    event = Event(type="order.placed", group=f"order-{number % _GROUPS}", data={"number": number})
    return _received_message(Envelope(event=event, seq=number // _GROUPS + 1, epoch=1).body, number, event)


def _celery_message() -> dict[str, object]:
    """Return the same event as Celery's transport writes it: a task `place`."""
    number = next(_numbers)
    event = Event(type="order.placed", group=f"order-{number % _GROUPS}", data={"number": number})
    properties = {
        "correlation_id": event.id,
        "delivery_info": {"exchange": "", "routing_key": "celery.fifo"},
        "body_encoding": "base64",
        "delivery_tag": event.id,
    }
    task = {
        "body": _base64([[], {"type": event.type, "group": event.group, "data": event.data}, {}]),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "place", "id": event.id, "root_id": event.id},
        "properties": properties,
    }
    return _received_message(_base64(task), number, event)


def _taskiq_message() -> dict[str, object]:
    """Return the same event as taskiq's formatter writes it: a task `place`."""
    number = next(_numbers)
    event = Event(type="order.placed", group=f"order-{number % _GROUPS}", data={"number": number})
    keywords = {"type": event.type, "group": event.group, "data": event.data}
    task = {"task_id": event.id, "task_name": "place", "labels": {}, "args": [], "kwargs": keywords}
    return _received_message(json.dumps(task), number, event)


_MESSAGE_BY_QUEUE = {"celery.fifo": _celery_message, "taskiq.fifo": _taskiq_message}
"""The function that makes a message, by the name of the queue; other queues get Sluice's."""


class _HotGroup:
    """A queue with one group, whose messages hold so many events."""

    def __init__(self, events: int) -> None:
        self._events, self._next, self.is_held = events, 1, False

    def receive(self) -> bytes | None:
        """Return the answer to a receive: the next message, or None while the last one is held."""
        if self.is_held:
            return None
        first, self._next, self.is_held = self._next, self._next + self._events, True
        events = [Event(type="order.placed", group="hot", data={"number": first + n}) for n in range(self._events)]
        bodies = [Envelope(event=event, seq=first + n, epoch=1).body for n, event in enumerate(events)]
        return json.dumps({"Messages": [_received_message(write_bundle(bodies), first, events[0])]}).encode()


HOT_QUEUES = {"hot.fifo": 1, "hot-bundles.fifo": 50}
"""Queues with one group, and how many events each of their messages has."""
_HOT = {name: _HotGroup(events) for name, events in HOT_QUEUES.items()}


def _base64(value: object) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def _received_message(body: str, number: int, event: Event) -> dict[str, object]:
    return {
        "MessageId": str(uuid.uuid4()),
        "ReceiptHandle": f"handle-{number}",
        "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "Body": body,
        "Attributes": {
            "ApproximateFirstReceiveTimestamp": "1767225600000",
            "ApproximateReceiveCount": "1",
            "MessageDeduplicationId": event.id,
            "MessageGroupId": event.group,
            "SenderId": "000000000000",
            "SentTimestamp": "1767225600000",
            "SequenceNumber": str(10**19 + number),
        },
        "MessageAttributes": {"type": {"StringValue": event.type, "DataType": "String"}},
    }
