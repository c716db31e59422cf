"""The operations of SQS on messages in a queue: receives, and deletes and visibility changes by a receipt handle."""

from collections.abc import Callable, Mapping

from sluice import limits
from sluice.simulator.model import batches
from sluice.simulator.model.message import QueuedMessage, check_id, md5, md5_of_attributes, select_attributes
from sluice.simulator.model.operation import AnswerFields, Params
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter


class Receiving:
    """Receives, deletes and visibility changes, alone and in batches.

    Args:
        find: returns the queue that a call names.
        queues: the account's queues by ARN; a receive may put a dead letter into another queue.
    """

    def __init__(self, find: Callable[[Params], SimulatedQueue], queues: Mapping[str, SimulatedQueue]) -> None:
        self._find, self._queues = find, queues

    def receive(self, params: Params, now: float) -> AnswerFields:
        """Receive once, without waiting; without a message the answer has no `Messages` [RCV-03]."""
        queue = self._find(params)
        most, wait = params.get("MaxNumberOfMessages", 1), params.get("WaitTimeSeconds", 0)
        if not 1 <= most <= limits.RECEIVE_MESSAGES_MAX:
            raise invalid_parameter("MaxNumberOfMessages", most, "Must be between 1 and 10, if provided.")
        if not 0 <= wait <= limits.WAIT_SECONDS_MAX:  # [RCV-02]
            raise invalid_parameter("WaitTimeSeconds", wait, "Must be >= 0 and <= 20, if provided.")
        visibility = params.get("VisibilityTimeout", queue.seconds("VisibilityTimeout"))  # [VIS-10]
        if not 0 <= visibility <= limits.VISIBILITY_TIMEOUT_SECONDS_MAX:  # [RCV-14]
            raise invalid_parameter("VisibilityTimeout", visibility, "Must be >= 0 and <= 43200, if provided.")
        self._check_in_flight(queue, params, now)
        received = self._take(queue, params, most=most, visibility_seconds=visibility, now=now)
        queue.settle(now)
        requested = params.get("MessageSystemAttributeNames", params.get("AttributeNames", []))  # [RCV-06]
        messages = [_as_received(message, requested, params.get("MessageAttributeNames", [])) for message in received]
        return {"Messages": messages} if messages else {}

    @staticmethod
    def _check_in_flight(queue: SimulatedQueue, params: Params, now: float) -> None:
        """Refuse a short poll of a standard queue with too many messages in flight [LIM-01].

        A FIFO queue does not refuse: its answer has no messages.
        """
        is_long_poll = params.get("WaitTimeSeconds", queue.seconds("ReceiveMessageWaitTimeSeconds")) > 0
        if not queue.is_fifo and not is_long_poll and queue.in_flight_room(now) <= 0:
            raise AwsRefusal("OverLimit", "Too many messages are in flight.", status=403)  # text not recorded

    def _take(
        self, queue: SimulatedQueue, params: Params, *, most: int, visibility_seconds: int, now: float
    ) -> list[QueuedMessage]:
        """Return at most `most` messages: new ones, or those of an earlier receive with the same attempt id."""
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
        received_before = queue.retry(attempt_id, now, visibility_seconds=visibility_seconds)
        if received_before is not None:
            return received_before
        received = self._take_new(queue, most=most, visibility_seconds=visibility_seconds, now=now)
        queue.remember_attempt(attempt_id, received, now)
        return received

    def _take_new(
        self, queue: SimulatedQueue, *, most: int, visibility_seconds: int, now: float
    ) -> list[QueuedMessage]:
        """Receive at most `most` messages, no more than may be in flight; exhausted ones go to the DLQ."""

        def move_to_dlq(message: QueuedMessage) -> bool:
            dlq = self._queues.get(queue.dead_letter_arn() or "")
            if dlq is None:
                return False
            dlq.take_dead_letter(message, now, source_arn=queue.arn)
            return True

        most = min(most, queue.in_flight_room(now))
        if most <= 0:
            return []
        return queue.receive(most, visibility_seconds=visibility_seconds, now=now, move_to_dlq=move_to_dlq)

    def delete(self, params: Params, now: float) -> AnswerFields:
        """Delete the message of a receipt handle."""
        self._find(params).delete(params["ReceiptHandle"], now)
        return {}

    def delete_batch(self, params: Params, now: float) -> AnswerFields:
        """Delete the messages of several receipt handles; each entry succeeds or fails alone."""
        return self._each(params, "DeleteMessageBatchRequestEntry", lambda entry: self.delete(entry, now))

    def change_visibility(self, params: Params, now: float) -> AnswerFields:
        """Change the visibility timeout of the message of a receipt handle."""
        self._find(params).change_visibility(params["ReceiptHandle"], params["VisibilityTimeout"], now)
        return {}

    def change_visibility_batch(self, params: Params, now: float) -> AnswerFields:
        """Change several visibility timeouts; an entry without VisibilityTimeout makes its message visible."""
        return self._each(
            params,
            "ChangeMessageVisibilityBatchRequestEntry",
            lambda entry: self.change_visibility({"VisibilityTimeout": 0, **entry}, now),
        )

    def _each(self, params: Params, kind: str, handle: Callable[[Params], AnswerFields]) -> AnswerFields:
        """Call `handle` with the parameters of a single call for every entry of a batch."""
        url, entries = self._find(params).url, params["Entries"]
        batches.check(entries, kind)
        return batches.handle_each(entries, lambda entry: handle({**entry, "QueueUrl": url}))


def _as_received(message: QueuedMessage, system_names: list[str], names: list[str]) -> AnswerFields:
    """Return a message as ReceiveMessage answers it, with the requested system attributes and message attributes."""
    system_attributes = {
        name: value
        for name, value in message.system_attributes().items()
        if "All" in system_names or name in system_names
    }
    attributes = select_attributes(message.attributes, names)
    answer: AnswerFields = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": md5(message.body),
        "Body": message.body,
    }
    if system_attributes:
        answer["Attributes"] = system_attributes
    if attributes:
        answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        answer["MessageAttributes"] = attributes
    return answer
