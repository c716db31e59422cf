"""The operations of SQS that put messages into a queue."""

from collections.abc import Callable

from sluice import limits
from sluice.simulator.model import batches
from sluice.simulator.model.message import (
    QueuedMessage,
    check_content,
    check_id,
    check_size,
    content_id,
    md5,
    md5_of_attributes,
    size_bytes,
)
from sluice.simulator.model.operation import AnswerFields, Params
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter, invalid_value, missing

_NO_ID = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"


class Sending:
    """Sends, alone and in batches.

    Args:
        find: returns the queue that a call names.
        new_id: makes message ids.
    """

    def __init__(self, find: Callable[[Params], SimulatedQueue], new_id: Callable[[], str]) -> None:
        self._find, self._new_id = find, new_id

    def send(self, params: Params, now: float) -> AnswerFields:
        """Send one message."""
        queue = self._find(params)
        check_content(params)
        if queue.is_fifo and "MessageGroupId" not in params:
            raise missing("MessageGroupId")  # [SND-02]
        if self._lacks_id(queue, params):
            raise invalid_value(_NO_ID)  # [SND-01]
        return self._enqueue(queue, params, now)

    @staticmethod
    def _lacks_id(queue: SimulatedQueue, entry: Params) -> bool:
        """Return whether a send to a FIFO queue has no deduplication id, and the queue takes none from the content."""
        is_by_content = queue.attributes.get("ContentBasedDeduplication") == "true"
        return queue.is_fifo and "MessageDeduplicationId" not in entry and not is_by_content

    def _enqueue(self, queue: SimulatedQueue, entry: Params, now: float) -> AnswerFields:
        """Store one message of a send, single or batch, and return its answer [SND-10]."""
        check_size(entry, bytes_max=queue.seconds("MaximumMessageSize"))
        _check_parameters(queue, entry)
        body = entry["MessageBody"]
        attributes = entry.get("MessageAttributes", {})
        system_attributes = entry.get("MessageSystemAttributes", {})
        trace = system_attributes.get("AWSTraceHeader")
        message = QueuedMessage(
            id=self._new_id(),
            body=body,
            number=0,
            sent_at=now,
            retained_from=now,
            visible_at=now,
            group=entry.get("MessageGroupId"),
            # A given id takes precedence over the hash of the content [DED-11].
            deduplication_id=entry.get("MessageDeduplicationId", content_id(body) if queue.is_fifo else None),
            attributes=attributes,
            trace_header=None if trace is None else trace["StringValue"],
        )
        sent = queue.send(message, now, delay_seconds=None if queue.is_fifo else entry.get("DelaySeconds"))
        answer = {"MD5OfMessageBody": md5(body), "MessageId": sent.id}
        if attributes:
            answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        if system_attributes:
            answer["MD5OfMessageSystemAttributes"] = md5_of_attributes(system_attributes)
        if queue.is_fifo:
            answer["SequenceNumber"] = str(sent.sequence_number)
        return answer

    def send_batch(self, params: Params, now: float) -> AnswerFields:
        """Send a batch [BAT-05..BAT-09].

        A missing id or group and too large a batch refuse the whole batch; any other mistake refuses its entry only.
        """
        queue, entries = self._find(params), params["Entries"]
        batches.check(entries, "SendMessageBatchRequestEntry")
        total = sum(size_bytes(entry) for entry in entries)
        if total > limits.MESSAGE_BYTES_MAX:
            raise AwsRefusal(
                "AWS.SimpleQueueService.BatchRequestTooLong",
                f"Batch requests cannot be longer than {limits.MESSAGE_BYTES_MAX} bytes. You have sent {total} bytes.",
            )
        if queue.is_fifo and any("MessageGroupId" not in entry for entry in entries):
            raise invalid_value("The request must contain the parameter MessageGroupId.")  # [BAT-06, ERR-02]
        if any(self._lacks_id(queue, entry) for entry in entries):
            raise invalid_value(_NO_ID)

        def send(entry: Params) -> AnswerFields:
            check_content(entry)
            return self._enqueue(queue, entry, now)

        return batches.handle_each(entries, send)


def _check_parameters(queue: SimulatedQueue, entry: Params) -> None:
    """Refuse ids and delays that SQS would refuse, and parameters of the other type of queue."""
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
