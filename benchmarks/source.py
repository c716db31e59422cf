"""A queue that never ends and forgets what is deleted: what SQS answers, in its JSON protocol, for `sink`.

The messages of a thousand groups come in turn, numbered, so that lanes have one group each and every message is the
next of its group.
"""

import base64
import hashlib
import json
import uuid
from itertools import count

from sluice.declaration import Consumer
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


def answer(operation: str, body: bytes) -> bytes:
    """Return what SQS answers to a call: as many messages as asked for, or that what was asked is done."""
    request = json.loads(body)
    if operation == "ReceiveMessage":
        kind = _KINDS.get(request["QueueUrl"].rpartition("/")[2], _message)
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
    return _with(Envelope(event=event, seq=number // _GROUPS + 1, epoch=1).body, number, event)


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
    return _with(_base64(task), number, event)


def _taskiq_message() -> dict[str, object]:
    """Return the same event as taskiq's formatter writes it: a task `place`."""
    number = next(_numbers)
    event = Event(type="order.placed", group=f"order-{number % _GROUPS}", data={"number": number})
    keywords = {"type": event.type, "group": event.group, "data": event.data}
    task = {"task_id": event.id, "task_name": "place", "labels": {}, "args": [], "kwargs": keywords}
    return _with(json.dumps(task), number, event)


_KINDS = {"celery.fifo": _celery_message, "taskiq.fifo": _taskiq_message}
"""By name of the queue, what writes a message of it."""


def _base64(value: object) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def _with(body: str, number: int, event: Event) -> dict[str, object]:
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
