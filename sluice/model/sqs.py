"""The operations of SQS: parameters and answers in AWS's own shape."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sluice import limits
from sluice.model import settings
from sluice.model.fifo import FifoQueue
from sluice.model.message import (
    Message,
    check_content,
    check_id,
    check_size,
    content_id,
    md5,
    md5_of_attributes,
    select_attributes,
    size_bytes,
)
from sluice.model.moving import MoveTasks
from sluice.model.queue import Queue
from sluice.model.refusal import Refusal, invalid_parameter, invalid_value, missing, unknown_queue

type Params = Mapping[str, Any]
type Answer = dict[str, Any]
_BATCH_ENTRIES_MAX = 10
_NAME_FREE_AFTER_SECONDS = 60
_LIST_MAX = 1_000
_NO_ID = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
_COMPUTED = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp")
_COUNTERS = ("", "NotVisible", "Delayed")
_GETTABLE = {
    *settings.SETTABLE,
    *_COMPUTED,
    *(f"ApproximateNumberOfMessages{which}" for which in _COUNTERS),
}


class Sqs:
    """All queues of one account and region.

    Args:
        base_url: what queue URLs begin with.
        arn_prefix: what queue ARNs begin with.
        new_id: makes message ids.
    """

    def __init__(self, *, base_url: str, arn_prefix: str, new_id: Callable[[], str]) -> None:
        self._base_url, self._arn_prefix, self._new_id = base_url, arn_prefix, new_id
        self.queues: dict[str, Queue] = {}
        self._deleted_at: dict[str, float] = {}
        self._moves = MoveTasks(lambda: self.queues, new_id)
        self._operations: dict[str, Callable[[Params, float], Answer]] = {
            "CreateQueue": self._create_queue,
            "DeleteQueue": self._delete_queue,
            "GetQueueUrl": lambda params, _: {"QueueUrl": self._named(params["QueueName"]).url},
            "ListQueues": self._list_queues,
            "GetQueueAttributes": self._get_queue_attributes,
            "SetQueueAttributes": self._set_queue_attributes,
            "ListDeadLetterSourceQueues": self._list_dead_letter_source_queues,
            "SendMessage": self._send_message,
            "SendMessageBatch": self._send_message_batch,
            "ReceiveMessage": self._receive_message,
            "DeleteMessage": self._delete_message,
            "DeleteMessageBatch": self._delete_message_batch,
            "ChangeMessageVisibility": self._change_message_visibility,
            "ChangeMessageVisibilityBatch": self._change_message_visibility_batch,
            "PurgeQueue": self._purge_queue,
            "StartMessageMoveTask": self._moves.start,
            "ListMessageMoveTasks": self._moves.list,
            "CancelMessageMoveTask": self._moves.cancel,
            "TagQueue": self._tag_queue,
            "UntagQueue": self._untag_queue,
            "ListQueueTags": self._list_queue_tags,
        }

    def call(self, operation: str, params: Params, now: float) -> Answer:
        """Answer one call.

        Raises:
            Refusal: AWS would refuse it, or the operation is not modelled.
        """
        if operation not in self._operations:
            raise Refusal("UnsupportedOperation", f"{operation} is not modelled.")
        self.settle(now)
        return self._operations[operation](params, now)

    def settle(self, now: float) -> None:
        """Let time have its effect."""
        self._moves.settle(now)
        for queue in self.queues.values():
            queue.settle(now)

    def changes_at(self, now: float) -> Iterable[float]:
        """Yield the instants after `now` at which something changes by itself."""
        yield from self._moves.changes_at(now)
        for queue in self.queues.values():
            yield from queue.changes_at(now)

    def wait_seconds(self, params: Params) -> int:
        """Return how long a receive waits for a message."""
        own = self._of(params).seconds("ReceiveMessageWaitTimeSeconds")
        return int(params.get("WaitTimeSeconds", own))

    def _of(self, params: Params) -> Queue:
        return self._named(params["QueueUrl"].rpartition("/")[2])

    def _named(self, name: str) -> Queue:
        queue = self.queues.get(self._arn_prefix + name)
        if queue is None:
            raise unknown_queue()
        return queue

    def _attributes_of(self, arn: str) -> Mapping[str, str] | None:
        queue = self.queues.get(arn)
        return None if queue is None else queue.attributes

    def _create_queue(self, params: Params, now: float) -> Answer:
        name, given = params["QueueName"], params.get("Attributes", {})
        arn = self._arn_prefix + name
        existing = self.queues.get(arn)
        if existing is not None:
            return self._create_again(existing, given)
        is_fifo = given.get("FifoQueue") == "true"
        if given.get("FifoQueue") == "false" and not name.endswith(limits.FIFO_SUFFIX):
            raise Refusal("InvalidAttributeName", "Unknown Attribute FifoQueue.")  # [CRE-07]
        settings.check_name(name, is_fifo=is_fifo)
        attributes = settings.check(
            given, current=settings.defaults(is_fifo=is_fifo), arn=arn, find_queue=self._attributes_of
        )
        if now < self._deleted_at.get(name, -_NAME_FREE_AFTER_SECONDS) + _NAME_FREE_AFTER_SECONDS:  # [CRE-20]
            raise Refusal(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )
        url = f"{self._base_url}/{name}"
        kind = FifoQueue if is_fifo else Queue
        self.queues[arn] = kind(name, arn=arn, url=url, attributes=attributes, created_at=now)
        self.queues[arn].tags.update(params.get("tags", {}))  # [TAG-03]
        return {"QueueUrl": url}

    @staticmethod
    def _create_again(existing: Queue, given: Mapping[str, str]) -> Answer:
        """Return the URL when nothing given differs; no attributes never differ [CRE-04, CRE-05, CRE-06]."""
        for name, value in given.items():
            if not _same(existing.attributes.get(name), value):
                raise Refusal(
                    "QueueAlreadyExists",
                    f"A queue already exists with the same name and a different value for attribute {name}",
                    shape="QueueNameExists",
                )
        return {"QueueUrl": existing.url}

    def _delete_queue(self, params: Params, now: float) -> Answer:
        queue = self._of(params)
        del self.queues[queue.arn]
        self._deleted_at[queue.name] = now
        return {}

    def _list_queues(self, params: Params, now: float) -> Answer:
        del now
        prefix, most = params.get("QueueNamePrefix", ""), params.get("MaxResults", _LIST_MAX)
        urls = sorted(queue.url for queue in self.queues.values() if queue.name.startswith(prefix))
        return _page("QueueUrls", urls, params, most)

    def _list_dead_letter_source_queues(self, params: Params, now: float) -> Answer:
        """List the queues that name this one; the key begins with a small letter [DLQ-19]."""
        del now
        target = self._of(params).arn
        policies = ((queue.url, queue.redrive_policy()) for queue in self.queues.values())
        urls = sorted(url for url, policy in policies if policy is not None and policy["deadLetterTargetArn"] == target)
        return {"queueUrls": []} | _page("queueUrls", urls, params, params.get("MaxResults", _LIST_MAX))

    def _get_queue_attributes(self, params: Params, now: float) -> Answer:
        queue, asked = self._of(params), params.get("AttributeNames", [])
        for name in asked:
            if name != "All" and name not in _GETTABLE:
                raise Refusal("InvalidAttributeName", f"Unknown Attribute {name}.")
        known = queue.attributes | queue.counts(now)
        known["QueueArn"] = queue.arn
        known["CreatedTimestamp"] = str(int(queue.created_at))
        known["LastModifiedTimestamp"] = str(int(queue.modified_at))
        said = {name: value for name, value in known.items() if "All" in asked or name in asked}
        return {"Attributes": said} if said else {}

    def _set_queue_attributes(self, params: Params, now: float) -> Answer:
        queue = self._of(params)
        attributes = settings.check(
            params["Attributes"], current=queue.attributes, arn=queue.arn, find_queue=self._attributes_of
        )
        queue.change_attributes(attributes, now)
        return {}

    def _send_message(self, params: Params, now: float) -> Answer:
        queue = self._of(params)
        check_content(params)
        if not params.get("MessageGroupId") and queue.is_fifo and "MessageGroupId" not in params:
            raise missing("MessageGroupId")  # [SND-02]
        if self._lacks_id(queue, params):
            raise invalid_value(_NO_ID)  # [SND-01]
        return self._enqueue(queue, params, now)

    @staticmethod
    def _lacks_id(queue: Queue, entry: Params) -> bool:
        is_by_content = queue.attributes.get("ContentBasedDeduplication") == "true"
        return queue.is_fifo and "MessageDeduplicationId" not in entry and not is_by_content

    def _enqueue(self, queue: Queue, entry: Params, now: float) -> Answer:
        """Store one message of a send, single or batch, and return its answer [SND-10]."""
        check_size(entry, bytes_max=queue.seconds("MaximumMessageSize"))
        _check_parameters(queue, entry)
        body = entry["MessageBody"]
        attributes = entry.get("MessageAttributes", {})
        trace = entry.get("MessageSystemAttributes", {}).get("AWSTraceHeader")
        given = Message(
            id=self._new_id(),
            body=body,
            number=0,
            sent_at=now,
            retained_from=now,
            visible_at=now,
            group=entry.get("MessageGroupId"),
            # An id that is given goes before the content's [DED-11].
            deduplication_id=entry.get("MessageDeduplicationId", content_id(body) if queue.is_fifo else None),
            attributes=attributes,
            trace_header=None if trace is None else trace["StringValue"],
        )
        sent = queue.send(given, now, delay_seconds=None if queue.is_fifo else entry.get("DelaySeconds"))
        answer = {"MD5OfMessageBody": md5(body), "MessageId": sent.id}
        if attributes:
            answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        if queue.is_fifo:
            answer["SequenceNumber"] = str(sent.sequence_number)
        return answer

    def _send_message_batch(self, params: Params, now: float) -> Answer:
        """Send a batch: what concerns ids and groups fails it whole, other things fail an entry [BAT-05..BAT-09]."""
        queue, entries = self._of(params), params["Entries"]
        _check_batch(entries, "SendMessageBatchRequestEntry")
        total = sum(size_bytes(entry) for entry in entries)
        if total > limits.MESSAGE_BYTES_MAX:
            raise Refusal(
                "AWS.SimpleQueueService.BatchRequestTooLong",
                f"Batch requests cannot be longer than {limits.MESSAGE_BYTES_MAX} bytes. You have sent {total} bytes.",
            )
        if queue.is_fifo and any("MessageGroupId" not in entry for entry in entries):
            raise invalid_value("The request must contain the parameter MessageGroupId.")  # [BAT-06, ERR-02]
        if any(self._lacks_id(queue, entry) for entry in entries):
            raise invalid_value(_NO_ID)

        def send(entry: Params) -> Answer:
            check_content(entry)
            return self._enqueue(queue, entry, now)

        return _each(entries, send)

    def _receive_message(self, params: Params, now: float) -> Answer:
        queue = self._of(params)
        most, wait = params.get("MaxNumberOfMessages", 1), params.get("WaitTimeSeconds", 0)
        if not 1 <= most <= limits.RECEIVE_MESSAGES_MAX:
            raise invalid_parameter("MaxNumberOfMessages", most, "Must be between 1 and 10, if provided.")
        if not 0 <= wait <= limits.WAIT_SECONDS_MAX:  # [RCV-02]
            raise invalid_parameter("WaitTimeSeconds", wait, "Must be >= 0 and <= 20, if provided.")
        visibility = params.get("VisibilityTimeout", queue.seconds("VisibilityTimeout"))  # [VIS-10]
        if not 0 <= visibility <= limits.VISIBILITY_TIMEOUT_SECONDS_MAX:  # [RCV-14]
            raise invalid_parameter("VisibilityTimeout", visibility, "Must be >= 0 and <= 43200, if provided.")
        received = self._take(queue, params, most=most, visibility_seconds=visibility, now=now)
        queue.settle(now)
        asked = params.get("MessageSystemAttributeNames", params.get("AttributeNames", []))  # [RCV-06]
        messages = [_as_received(message, asked, params.get("MessageAttributeNames", [])) for message in received]
        return {"Messages": messages} if messages else {}  # [RCV-03]

    def _take(self, queue: Queue, params: Params, *, most: int, visibility_seconds: int, now: float) -> list[Message]:
        attempt_id = params.get("ReceiveRequestAttemptId")
        if attempt_id is None:
            return self._take_new(queue, most=most, visibility_seconds=visibility_seconds, now=now)
        if not isinstance(queue, FifoQueue):  # [RCV-13], text not recorded
            raise invalid_parameter(
                "ReceiveRequestAttemptId",
                attempt_id,
                "The request include parameter that is not valid for this queue type.",
            )
        check_id("ReceiveRequestAttemptId", attempt_id)
        again = queue.retry(attempt_id, now, visibility_seconds=visibility_seconds)
        if again is not None:
            return again
        received = self._take_new(queue, most=most, visibility_seconds=visibility_seconds, now=now)
        queue.remember_attempt(attempt_id, received, now)
        return received

    def _take_new(self, queue: Queue, *, most: int, visibility_seconds: int, now: float) -> list[Message]:
        def bury(message: Message) -> bool:
            policy = queue.redrive_policy()
            dead_letters = None if policy is None else self.queues.get(policy["deadLetterTargetArn"])
            if dead_letters is None:
                return False
            dead_letters.take_dead_letter(message, now, source_arn=queue.arn)
            return True

        return queue.receive(most, visibility_seconds=visibility_seconds, now=now, bury=bury)

    def _delete_message(self, params: Params, now: float) -> Answer:
        self._of(params).delete(params["ReceiptHandle"], now)
        return {}

    def _delete_message_batch(self, params: Params, now: float) -> Answer:
        queue = self._of(params)
        _check_batch(params["Entries"], "DeleteMessageBatchRequestEntry")

        def delete(entry: Params) -> Answer:
            queue.delete(entry["ReceiptHandle"], now)
            return {}

        return _each(params["Entries"], delete)

    def _change_message_visibility(self, params: Params, now: float) -> Answer:
        self._of(params).change_visibility(params["ReceiptHandle"], params["VisibilityTimeout"], now)
        return {}

    def _change_message_visibility_batch(self, params: Params, now: float) -> Answer:
        queue = self._of(params)
        _check_batch(params["Entries"], "ChangeMessageVisibilityBatchRequestEntry")

        def change(entry: Params) -> Answer:
            queue.change_visibility(entry["ReceiptHandle"], entry.get("VisibilityTimeout", 0), now)
            return {}

        return _each(params["Entries"], change)

    def _purge_queue(self, params: Params, now: float) -> Answer:
        self._of(params).purge(now)
        return {}

    def _tag_queue(self, params: Params, now: float) -> Answer:
        del now
        self._of(params).tags.update(params["Tags"])
        return {}

    def _untag_queue(self, params: Params, now: float) -> Answer:
        del now
        queue = self._of(params)
        queue.tags = {name: value for name, value in queue.tags.items() if name not in params["TagKeys"]}
        return {}

    def _list_queue_tags(self, params: Params, now: float) -> Answer:
        del now
        tags = self._of(params).tags
        return {"Tags": dict(tags)} if tags else {}  # [TAG-01]


def _check_parameters(queue: Queue, entry: Params) -> None:
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if name in entry:
            check_id(name, entry[name])
    delay = entry.get("DelaySeconds", 0)
    if queue.is_fifo and delay:  # [SND-06]
        raise invalid_parameter(
            "DelaySeconds", delay, "The request include parameter that is not valid for this queue type."
        )
    if not 0 <= delay <= 900:
        raise invalid_parameter("DelaySeconds", delay, "DelaySeconds must be >= 0 and <= 900.")
    if not queue.is_fifo and "MessageDeduplicationId" in entry:
        raise invalid_parameter(
            "MessageDeduplicationId",
            entry["MessageDeduplicationId"],
            "The request includes a parameter that is not valid for this queue type.",
        )


def _check_batch(entries: list[Params], kind: str) -> None:
    """Refuse a batch as a whole [BAT-01..BAT-04]."""
    prefix = "AWS.SimpleQueueService."
    if not entries:
        raise Refusal(prefix + "EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > _BATCH_ENTRIES_MAX:
        raise Refusal(
            prefix + "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {_BATCH_ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    ids = [entry["Id"] for entry in entries]
    if not all(re.fullmatch(r"[A-Za-z0-9_-]{1,80}", id_) for id_ in ids):
        raise Refusal(
            prefix + "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long.",
        )
    for number, id_ in enumerate(ids):
        if id_ in ids[:number]:
            raise Refusal(prefix + "BatchEntryIdsNotDistinct", f"Id {id_} repeated.")


def _each(entries: list[Params], handle: Callable[[Params], Answer]) -> Answer:
    """Handle every entry of a batch; what one is refused for does not touch the others [BAT-08, BAT-13]."""
    successful, failed = [], []
    for entry in entries:
        try:
            successful.append({"Id": entry["Id"]} | handle(entry))
        except Refusal as refusal:
            failed.append({"Id": entry["Id"], "Code": refusal.code, "Message": refusal.text, "SenderFault": True})
    return ({"Successful": successful} if successful else {}) | ({"Failed": failed} if failed else {})


def _as_received(message: Message, system: list[str], asked: list[str]) -> Answer:
    attributes = message.system_attributes()
    said = {name: value for name, value in attributes.items() if "All" in system or name in system}
    chosen = select_attributes(message.attributes, asked)
    answer: Answer = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": md5(message.body),
        "Body": message.body,
    }
    if said:
        answer["Attributes"] = said
    if chosen:
        answer["MD5OfMessageAttributes"] = md5_of_attributes(chosen)
        answer["MessageAttributes"] = chosen
    return answer


def _same(stored: str | None, given: str) -> bool:
    """Return whether two spellings of an attribute mean the same."""
    try:
        return bool(json.loads(stored or "") == json.loads(given))
    except ValueError:
        return stored == given


def _page(key: str, items: list[str], params: Params, most: int) -> Answer:
    start = int(params.get("NextToken") or 0)
    page = items[start : start + most]
    more = {"NextToken": str(start + most)} if "MaxResults" in params and start + most < len(items) else {}
    return ({key: page} if page else {}) | more
