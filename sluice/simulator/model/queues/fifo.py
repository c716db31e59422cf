"""A FIFO queue: groups that block, ids that are remembered, handles that expire."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sluice import limits
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues.queue import DeadLetterMove, SimulatedQueue
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter

FIRST_SEQUENCE_NUMBER = 18_849_496_460_467_696_128  # 20 digits, as AWS's examples have [SND-10]
SEQUENCE_STEP = 256
type DeduplicationKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _RememberedMessage:
    """The first message with an id: what a repeat's answer names [DED-09]."""

    message_id: str
    sequence_number: str
    sent_at: float


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of a receive with a ReceiveRequestAttemptId: message ids and handles."""

    handed_out: tuple[tuple[str, str], ...]
    received_at: float


class FifoQueue(SimulatedQueue):
    """A FIFO queue."""

    is_fifo = True

    def __init__(self, name: str, *, arn: str, url: str, attributes: dict[str, str], created_at: float) -> None:
        super().__init__(name, arn=arn, url=url, attributes=attributes, created_at=created_at)
        # A later change of the scope shows in the attributes and has no effect [DED-06, DED-07].
        self._scope = attributes["DeduplicationScope"]
        self._remembered: dict[DeduplicationKey, _RememberedMessage] = {}
        self._rotation: dict[str, None] = {}
        self._attempts: dict[str, _Attempt] = {}

    def settle(self, now: float) -> None:
        """Also forget ids after five minutes, and let groups that can be received again join the rotation."""
        super().settle(now)
        for key in [key for key, first in self._remembered.items() if not self.is_remembered(first, now)]:
            del self._remembered[key]
        for group, messages in self._groups().items():
            if group not in self._rotation and next(self.deliverable(messages, now), None) is not None:
                self._rotation[group] = None  # at the end [GRP-07]

    def is_remembered(self, first: _RememberedMessage, now: float) -> bool:
        """Return whether the window is open: five minutes from the first send, whatever was sent meanwhile [DED-08]."""
        return now < first.sent_at + limits.DEDUPLICATION_WINDOW_SECONDS

    def deduplication_key(self, message: QueuedMessage) -> DeduplicationKey:
        """Return what makes two sends one message: the id, per queue or per group [DED-01, DED-04]."""
        assert message.group is not None
        assert message.deduplication_id is not None
        return (message.group if self._scope == "messageGroup" else "", message.deduplication_id)

    def change_attributes(self, attributes: dict[str, str], now: float) -> None:
        """Take new attributes; a new delay is also for what was sent and not yet received [SND-09]."""
        before = self.seconds("DelaySeconds")
        super().change_attributes(attributes, now)
        for message in self.messages.values():
            if message.receives_here == 0 and self.seconds("DelaySeconds") != before:
                message.visible_at = message.sent_at + self.seconds("DelaySeconds")

    def add(self, message: QueuedMessage) -> QueuedMessage:
        """Store a message at the end of its group, with the next sequence number."""
        added = super().add(message)
        added.sequence_number = str(FIRST_SEQUENCE_NUMBER + self._numbers * SEQUENCE_STEP)
        return added

    def send(self, message: QueuedMessage, now: float, *, delay_seconds: int | None = None) -> QueuedMessage:
        """Take a message, or name the first one with its id: also when that was received and deleted [DED-01]."""
        key = self.deduplication_key(message)
        first = self._remembered.get(key)
        if first is not None:
            return replace(message, id=first.message_id, sequence_number=first.sequence_number)
        sent = super().send(message, now, delay_seconds=delay_seconds)
        self.remember(key, sent, now)
        return sent

    def remember(self, key: DeduplicationKey, message: QueuedMessage, now: float) -> None:
        """Open an id's window."""
        assert message.sequence_number is not None
        self._remembered[key] = _RememberedMessage(message.id, message.sequence_number, now)

    def _groups(self) -> dict[str, list[QueuedMessage]]:
        """Return the groups there are among the oldest messages: SQS looks no further [GRP-18]."""
        groups: dict[str, list[QueuedMessage]] = {}
        for message in self.in_order()[: limits.FIFO_WINDOW_MESSAGES]:
            groups.setdefault(str(message.group), []).append(message)
        return groups

    def deliverable(self, messages: Iterable[QueuedMessage], now: float) -> Iterator[QueuedMessage]:
        """Yield what of a group may be received: nothing behind an invisible message [GRP-01, GRP-10]."""
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
        """Yield one group after the other, as the rotation has them [RCV-08]; a group begun leaves the rotation."""
        groups = self._groups()
        for group in list(self._rotation):
            messages = list(self.deliverable(groups.get(group, ()), now))
            if messages:
                self._rotation.pop(group)
            yield from messages
        self._rotation = {group: None for group in self._rotation if group in groups}

    def receive(
        self, most: int, *, visibility_seconds: int, now: float, record_dead: DeadLetterMove
    ) -> list[QueuedMessage]:
        """Also let groups given back at once join the rotation in the order they were received [GRP-03]."""
        received = super().receive(most, visibility_seconds=visibility_seconds, now=now, record_dead=record_dead)
        groups = self._groups()
        for group in dict.fromkeys(str(message.group) for message in received):
            if next(self.deliverable(groups[group], now), None) is not None:
                self._rotation.setdefault(group)
        return received

    def check_delete(self, message: QueuedMessage, handle: str, now: float) -> None:
        """Refuse a handle whose time is over or that a later receive replaced [VIS-01, VIS-04, VIS-05]."""
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
        """Also forget ids [DED-14] and free groups [PUR-05]."""
        super().purge(now)
        self._remembered.clear()
        self._rotation.clear()

    def take_dead_letter(self, message: QueuedMessage, now: float, *, source_arn: str) -> None:
        """Also give it its message id as deduplication id [DLQ-04] and start its time anew [DLQ-08]."""
        super().take_dead_letter(
            replace(message, deduplication_id=message.id, sent_at=now, retained_from=now), now, source_arn=source_arn
        )

    def retry(self, attempt_id: str, now: float, *, visibility_seconds: int) -> list[QueuedMessage] | None:
        """Return again what a receive with that attempt id brought, hidden anew; None when it is a new id [RCV-11].

        Raises:
            Refusal: one of the messages was deleted, changed or expired meanwhile [RCV-12].
        """
        attempt = self._attempts.get(attempt_id)
        if attempt is None or now >= attempt.received_at + limits.DEDUPLICATION_WINDOW_SECONDS:
            return None
        again = [self.messages.get(id_) for id_, _ in attempt.handed_out]
        found = [message for message in again if message is not None]
        handles = [handle for _, handle in attempt.handed_out]
        if [message.handle for message in found] != handles or not all(self._is_untouched(each, now) for each in found):
            raise self._not_retryable(attempt_id)
        for message in found:
            message.visible_at = now + visibility_seconds
        return found

    @staticmethod
    def _is_untouched(message: QueuedMessage, now: float) -> bool:
        """Return whether a message is still held as it was received."""
        return message.is_in_flight(now) and not message.is_visibility_changed

    @staticmethod
    def _not_retryable(attempt_id: str) -> AwsRefusal:
        return invalid_parameter(
            "ReceiveRequestAttemptId",
            attempt_id,
            "The receiveRequestAttemptId is not valid anymore since the receive call is not retryable.",
        )

    def remember_attempt(self, attempt_id: str, received: list[QueuedMessage], now: float) -> None:
        """Keep the messages of a receive, for its retry."""
        if received:
            handed_out = tuple((message.id, str(message.handle)) for message in received)
            self._attempts[attempt_id] = _Attempt(handed_out, now)
