"""A FIFO queue: groups block, deduplication ids are remembered, receipt handles expire.

Ids in brackets, such as [DED-09], are promises: `contract_tests.promises` has each as a sentence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sluice import limits
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues.queue import DeadLetterMove, SimulatedQueue
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter

FIRST_SEQUENCE_NUMBER = 18_849_496_460_467_696_128  # 20 digits, as AWS's examples have [SND-10]
SEQUENCE_STEP = 256
type DeduplicationKey = tuple[str, str]
"""(group, deduplication id); the group is empty if the id counts in the whole queue."""


@dataclass(frozen=True, slots=True)
class _RememberedMessage:
    """The first message with a deduplication id; the answer to a repeated send names this message [DED-09]."""

    message_id: str
    sequence_number: str
    sent_at: float


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of a receive with a ReceiveRequestAttemptId: (message id, receipt handle) of each message."""

    handed_out: tuple[tuple[str, str], ...]
    received_at: float


class FifoQueue(SimulatedQueue):
    """A FIFO queue.

    A *rotation* lists the groups that have a message to receive, in the order in which receives take them.
    """

    is_fifo = True

    def __init__(self, name: str, *, arn: str, url: str, attributes: dict[str, str], created_at: float) -> None:
        super().__init__(name, arn=arn, url=url, attributes=attributes, created_at=created_at)
        # The scope at the creation: a later change shows in the attributes, and has no effect [DED-06, DED-07].
        self._scope = attributes["DeduplicationScope"]
        self._remembered: dict[DeduplicationKey, _RememberedMessage] = {}
        self._rotation: dict[str, None] = {}
        self._attempts: dict[str, _Attempt] = {}

    def settle(self, now: float) -> None:
        """Bring the queue up to the instant `now`: as any queue, and by what time changes in a FIFO queue alone.

        Deduplication ids older than five minutes are forgotten. Groups that can be received again join the rotation.
        """
        super().settle(now)
        for key in [key for key, first in self._remembered.items() if not self.is_remembered(first, now)]:
            del self._remembered[key]
        for group, messages in self._groups().items():
            if group not in self._rotation and next(self.deliverable(messages, now), None) is not None:
                self._rotation[group] = None  # at the end [GRP-07]

    def is_remembered(self, first: _RememberedMessage, now: float) -> bool:
        """Return whether the first send of an id is less than five minutes ago; repeats do not count [DED-08]."""
        return now < first.sent_at + limits.DEDUPLICATION_WINDOW_SECONDS

    def deduplication_key(self, message: QueuedMessage) -> DeduplicationKey:
        """Return the key by which two sends are the same: the id, within the queue or a group [DED-01, DED-04]."""
        assert message.group is not None
        assert message.deduplication_id is not None
        return (message.group if self._scope == "messageGroup" else "", message.deduplication_id)

    def change_attributes(self, attributes: dict[str, str], now: float) -> None:
        """Take new attributes; a new delay also applies to messages that nobody has received yet [SND-09]."""
        delay_before = self.seconds("DelaySeconds")
        super().change_attributes(attributes, now)
        for message in self.messages.values():
            if message.receives_here == 0 and self.seconds("DelaySeconds") != delay_before:
                message.visible_at = message.sent_at + self.seconds("DelaySeconds")

    def add(self, message: QueuedMessage) -> QueuedMessage:
        """Store a message at the end of its group, with the next sequence number."""
        added = super().add(message)
        added.sequence_number = str(FIRST_SEQUENCE_NUMBER + self._numbers * SEQUENCE_STEP)
        return added

    def send(self, message: QueuedMessage, now: float, *, delay_seconds: int | None = None) -> QueuedMessage:
        """Store a message and return it; a repeat is not stored and gets the ids of the first send [DED-01].

        The first message may have been received and deleted meanwhile.
        """
        key = self.deduplication_key(message)
        first = self._remembered.get(key)
        if first is not None:
            return replace(message, id=first.message_id, sequence_number=first.sequence_number)
        sent = super().send(message, now, delay_seconds=delay_seconds)
        self.remember(key, sent, now)
        return sent

    def remember(self, key: DeduplicationKey, message: QueuedMessage, now: float) -> None:
        """Remember a deduplication id, for the next five minutes."""
        assert message.sequence_number is not None
        self._remembered[key] = _RememberedMessage(message.id, message.sequence_number, now)

    def _groups(self) -> dict[str, list[QueuedMessage]]:
        """Return the oldest messages by group; SQS looks at the first 120,000 messages of a queue only [GRP-18]."""
        groups: dict[str, list[QueuedMessage]] = {}
        for message in self.in_order()[: limits.FIFO_WINDOW_MESSAGES]:
            groups.setdefault(str(message.group), []).append(message)
        return groups

    def deliverable(self, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
        """Yield a group's messages up to the first invisible one, which blocks those behind it [GRP-01, GRP-10]."""
        for message in messages:
            if not message.is_visible(now):
                return
            yield message

    def receivable(self, now: float) -> list[QueuedMessage]:
        """Return the messages of all groups that a receive could return now."""
        groups = self._groups().values()
        return sorted(
            (message for group in groups for message in self.deliverable(group, now)), key=lambda each: each.number
        )

    def _candidates(self, now: float) -> Iterator[QueuedMessage]:
        """Yield the messages that a receive may take, group by group in the rotation's order [RCV-08].

        A group leaves the rotation when its first message is yielded.
        """
        groups = self._groups()
        for group in list(self._rotation):
            messages = list(self.deliverable(groups.get(group, ()), now))
            if messages:
                self._rotation.pop(group)
            yield from messages
        self._rotation = {group: None for group in self._rotation if group in groups}

    def receive(
        self, most: int, *, visibility_seconds: int, now: float, move_to_dlq: DeadLetterMove
    ) -> list[QueuedMessage]:
        """Receive as any queue does; groups received with visibility timeout 0 join the rotation again [GRP-03]."""
        received = super().receive(most, visibility_seconds=visibility_seconds, now=now, move_to_dlq=move_to_dlq)
        groups = self._groups()
        for group in dict.fromkeys(str(message.group) for message in received):
            if next(self.deliverable(groups[group], now), None) is not None:
                self._rotation.setdefault(group)
        return received

    def check_delete(self, message: QueuedMessage, handle: str, now: float) -> None:
        """Refuse a handle whose timeout ended, and one that a later receive replaced [VIS-01, VIS-04, VIS-05]."""
        if message.is_visible(now) or handle != message.handle:
            raise invalid_parameter("ReceiptHandle", handle, "The receipt handle has expired.")

    def check_late_change(self, handle: str) -> None:
        """Refuse a change that comes too late. Nobody recorded this on FIFO [VIS-08]; AWS's reference suggests it."""
        raise self._not_available(handle)

    def check_change(self, message: QueuedMessage, handle: str) -> None:
        """Refuse a handle that a later receive replaced: not recorded, after VIS-05."""
        if handle != message.handle:
            raise self._not_available(handle)

    def purge(self, now: float) -> None:
        """Remove all messages, forget all deduplication ids [DED-14] and unblock all groups [PUR-05]."""
        super().purge(now)
        self._remembered.clear()
        self._rotation.clear()

    def take_dead_letter(self, message: QueuedMessage, now: float, *, source_arn: str) -> None:
        """Store a dead letter, with its message id as deduplication id [DLQ-04] and a new retention period [DLQ-08]."""
        super().take_dead_letter(
            replace(message, deduplication_id=message.id, sent_at=now, retained_from=now), now, source_arn=source_arn
        )

    def retry(self, attempt_id: str, now: float, *, visibility_seconds: int) -> list[QueuedMessage] | None:
        """Return the messages of an earlier receive with this attempt id, hidden anew; None for a new id [RCV-11].

        Raises:
            AwsRefusal: one of the messages was deleted, or its visibility changed or ended, since then [RCV-12].
        """
        attempt = self._attempts.get(attempt_id)
        if attempt is None or now >= attempt.received_at + limits.DEDUPLICATION_WINDOW_SECONDS:
            return None
        messages = [self.messages[id_] for id_, _ in attempt.handed_out if id_ in self.messages]
        handles = [handle for _, handle in attempt.handed_out]
        is_untouched = all(self._is_untouched(message, now) for message in messages)
        if [message.handle for message in messages] != handles or not is_untouched:
            raise self._not_retryable(attempt_id)
        for message in messages:
            message.visible_at = now + visibility_seconds
        return messages

    @staticmethod
    def _is_untouched(message: QueuedMessage, now: float) -> bool:
        """Return whether a message is in flight with the visibility timeout of its receive."""
        return message.is_in_flight(now) and not message.is_visibility_changed

    @staticmethod
    def _not_retryable(attempt_id: str) -> AwsRefusal:
        return invalid_parameter(
            "ReceiveRequestAttemptId",
            attempt_id,
            "The receiveRequestAttemptId is not valid anymore since the receive call is not retryable.",
        )

    def remember_attempt(self, attempt_id: str, received: list[QueuedMessage], now: float) -> None:
        """Remember the messages of a receive, in case that the receive is repeated with the same attempt id."""
        if received:
            handed_out = tuple((message.id, str(message.handle)) for message in received)
            self._attempts[attempt_id] = _Attempt(handed_out, now)
