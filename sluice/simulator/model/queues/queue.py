"""One queue: its messages, those that wait and those in flight, and which of them a receive returns next.

A queue's attributes are AWS's strings. A caller that passes an instant `now` has called `settle` with this instant
before. Ids in brackets, such as [VIS-16], are promises: `contract_tests.promises` has each as a sentence.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sluice import limits
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.refusal import AwsRefusal, invalid_parameter

PURGE_INTERVAL_SECONDS = 60
type DeadLetterMove = Callable[[QueuedMessage], bool]
"""Puts a message into the DLQ; returns False if the queue has no DLQ."""


class SimulatedQueue:
    """A standard queue: without groups, without deduplication, and in no order across consumers.

    Args:
        name: the last part of its URL and ARN.
        attributes: as `settings.check` returned them.
        created_at: the instant in seconds.
    """

    is_fifo = False

    def __init__(self, name: str, *, arn: str, url: str, attributes: dict[str, str], created_at: float) -> None:
        self.name, self.arn, self.url, self.attributes = name, arn, url, attributes
        self.created_at = self.modified_at = created_at
        self.tags: dict[str, str] = {}
        self.messages: dict[str, QueuedMessage] = {}
        self._purged_at: float | None = None
        self._numbers = 0

    def seconds(self, attribute: str) -> int:
        """Return the value of a numeric attribute."""
        return int(self.attributes[attribute])

    def redrive_policy(self) -> dict[str, Any] | None:
        """Return the redrive policy: deadLetterTargetArn and maxReceiveCount; None without a DLQ."""
        policy = self.attributes.get("RedrivePolicy")
        return None if policy is None else json.loads(policy)

    def policy(self) -> dict[str, Any]:
        """Return the resource policy, which allows others to use the queue; empty if the queue has none."""
        policy: dict[str, Any] = json.loads(self.attributes.get("Policy", "{}"))
        return policy

    def set_policy(self, policy: dict[str, Any]) -> None:
        """Replace the resource policy; an empty policy removes it."""
        self.attributes.pop("Policy", None)
        if policy:
            self.attributes["Policy"] = json.dumps(policy, separators=(",", ":"))

    def dead_letter_arn(self) -> str | None:
        """Return the ARN of the DLQ; None without a DLQ."""
        policy = self.redrive_policy()
        return None if policy is None else str(policy["deadLetterTargetArn"])

    def settle(self, now: float) -> None:
        """Bring the queue up to `now`: remove the messages whose retention period has ended [VIS-16, VIS-17]."""
        for message in list(self.messages.values()):
            if message.retained_from + self.seconds("MessageRetentionPeriod") <= now:
                del self.messages[message.id]

    def changes_after(self, now: float) -> Iterator[float]:
        """Yield the instants after `now` at which a message becomes visible or its retention period ends."""
        for message in self.messages.values():
            yield from (
                instant
                for instant in (message.visible_at, message.retained_from + self.seconds("MessageRetentionPeriod"))
                if instant > now
            )

    def change_attributes(self, attributes: dict[str, str], now: float) -> None:
        """Take new attributes; a new delay applies to later messages only."""
        self.attributes, self.modified_at = attributes, now

    def add(self, message: QueuedMessage) -> QueuedMessage:
        """Store a message behind all others, and return it with its number."""
        self._numbers += 1
        message.number = self._numbers
        self.messages[message.id] = message
        return message

    def send(self, message: QueuedMessage, now: float, *, delay_seconds: int | None = None) -> QueuedMessage:
        """Store a sent message, and return the message that the answer names."""
        delay = self.seconds("DelaySeconds") if delay_seconds is None else delay_seconds
        message.visible_at = now + delay
        return self.add(message)

    def receive(
        self, most: int, *, visibility_seconds: int, now: float, move_to_dlq: DeadLetterMove
    ) -> list[QueuedMessage]:
        """Receive up to `most` messages; a message that was received too often goes to the DLQ instead [DLQ-01]."""
        received: list[QueuedMessage] = []
        for message in self._candidates(now):
            if self.is_exhausted(message) and move_to_dlq(message):
                del self.messages[message.id]
                continue
            self._deliver(message, visibility_seconds=visibility_seconds, now=now)
            received.append(message)
            if len(received) == most:  # here, so that the next candidate's group keeps its place in the rotation
                break
        return received

    def is_exhausted(self, message: QueuedMessage) -> bool:
        """Return whether a message was received as often as the present redrive policy allows [DLQ-23]."""
        policy = self.redrive_policy()
        return policy is not None and message.receives_here >= policy["maxReceiveCount"]

    def _candidates(self, now: float) -> Iterator[QueuedMessage]:
        """Yield the messages that a receive may take, in its order."""
        yield from self.receivable(now)

    def receivable(self, now: float) -> list[QueuedMessage]:
        """Return the messages that a receive could return now, the oldest first."""
        return [message for message in self.in_order() if message.is_visible(now)]

    def in_flight_room(self, now: float) -> int:
        """Return how many more messages may be in flight: the limit of AWS minus those that are [LIM-01]."""
        return limits.IN_FLIGHT_MESSAGES_MAX - sum(message.is_in_flight(now) for message in self.messages.values())

    def in_order(self) -> list[QueuedMessage]:
        """Return all messages, the oldest first."""
        return sorted(self.messages.values(), key=lambda message: message.number)

    def _deliver(self, message: QueuedMessage, *, visibility_seconds: int, now: float) -> None:
        """Count a receive of a message, hide the message, and give it a new receipt handle."""
        message.receives += 1
        message.receives_here += 1
        message.received_at = now
        if message.first_received_at is None:
            message.first_received_at = now
        message.visible_at = now + visibility_seconds
        message.is_visibility_changed = False
        message.handle = base64.b64encode(
            f"{self.name} {message.id} {message.number} {message.receives_here}".encode()
        ).decode()

    def message_of(self, handle: str) -> QueuedMessage | None:
        """Return the message of a receipt handle; None if the message is gone.

        Raises:
            AwsRefusal: this queue never returned such a handle [VIS-07].
        """
        try:
            queue, id_, _, _ = base64.b64decode(handle, validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            queue, id_ = "", ""
        if queue != self.name:
            raise AwsRefusal(
                "ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.'
            )
        return self.messages.get(id_)

    def delete(self, handle: str, now: float) -> None:
        """Delete the message of a handle, if it is still there and the handle valid [VIS-02, VIS-07]."""
        message = self.message_of(handle)
        if message is not None:
            self.check_delete(message, handle, now)
            del self.messages[message.id]

    def check_delete(self, message: QueuedMessage, handle: str, now: float) -> None:
        """Refuse nothing: on a standard queue a late delete works [VIS-02]."""

    def change_visibility(self, handle: str, seconds: int, now: float) -> None:
        """Hide a message in flight for `seconds` from now on; its next receive has the queue's timeout [VIS-09]."""
        if not 0 <= seconds <= limits.VISIBILITY_TIMEOUT_SECONDS_MAX:
            raise self._beyond_limit(seconds)
        message = self.message_of(handle)
        if message is None:  # [VIS-06]
            raise self._not_available(handle)
        if not message.is_in_flight(now):
            self.check_late_change(handle)
            return
        if now + seconds > message.received_at + limits.VISIBILITY_TIMEOUT_SECONDS_MAX:
            raise self._beyond_limit(seconds)
        self.check_change(message, handle)
        message.visible_at, message.is_visibility_changed = now + seconds, True

    def check_late_change(self, handle: str) -> None:
        """Refuse nothing: on a standard queue a change that comes too late does nothing [VIS-08]."""

    def check_change(self, message: QueuedMessage, handle: str) -> None:
        """Refuse nothing: on a standard queue older handles work."""

    @staticmethod
    def _beyond_limit(seconds: int) -> AwsRefusal:
        return invalid_parameter(  # [VIS-13]
            "VisibilityTimeout",
            seconds,
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{limits.VISIBILITY_TIMEOUT_SECONDS_MAX} seconds]",
        )

    @staticmethod
    def _not_available(handle: str) -> AwsRefusal:
        return invalid_parameter(
            "ReceiptHandle", handle, "Message does not exist or is not available for visibility timeout change."
        )

    def purge(self, now: float) -> None:
        """Remove all messages, also those in flight [PUR-02]; refuse a second purge within a minute [PUR-01]."""
        if self._purged_at is not None and now < self._purged_at + PURGE_INTERVAL_SECONDS:
            raise AwsRefusal(
                "AWS.SimpleQueueService.PurgeQueueInProgress",
                f"Only one PurgeQueue operation on {self.name} is allowed every 60 seconds.",
                status=403,
            )
        self._purged_at = now
        self.messages.clear()

    def take_dead_letter(self, message: QueuedMessage, now: float, *, source_arn: str) -> None:
        """Store a message as a dead letter; its id, receive count and time of sending stay [DLQ-07, DLQ-08]."""
        self.add(replace(message, receives_here=0, visible_at=now, handle=None, source_arn=source_arn))

    def take_redriven(self, message: QueuedMessage, now: float, *, id_: str) -> None:
        """Store a message from a DLQ as a new message [MOV-18], whose receive count begins again [MOV-19]."""
        self.send(
            replace(
                message,
                id=id_,
                sent_at=now,
                retained_from=now,
                receives=0,
                receives_here=0,
                first_received_at=None,
                handle=None,
                source_arn=None,
            ),
            now,
        )

    def counts(self, now: float) -> dict[str, str]:
        """Return AWS's three counters; a message behind a blocked group counts as visible [GRP-15]."""
        visible = sum(message.is_visible(now) for message in self.messages.values())
        in_flight = sum(message.is_in_flight(now) for message in self.messages.values())
        return {
            "ApproximateNumberOfMessages": str(visible),
            "ApproximateNumberOfMessagesNotVisible": str(in_flight),
            "ApproximateNumberOfMessagesDelayed": str(len(self.messages) - visible - in_flight),
        }
