"""A DLQ for an operator: the first message of each group, the reason of its death, and actions on it.

A FIFO queue delivers the first messages of a group, at most ten at once, and no further message of the group until they
are deleted or released. So nobody can read a whole DLQ without emptying it, and a reader has to release the messages
that it received: a `Reading` releases them, in order, at the end of its block, even after an exception. If the queue
does not answer, a TransientError is raised.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html,
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html (read 2026-11-21).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from sluice import limits
from sluice.clock import Clock
from sluice.errors import ConfigError, EndpointError
from sluice.messaging.bundle import BundledEvent, events_of, read_body, write_bundle
from sluice.messaging.envelope import Envelope
from sluice.messaging.errors import DeadLetterError, EnvelopeError, HoldLostError, TransientError
from sluice.messaging.failpoints import Failpoint, do_nothing
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS
from sluice.messaging.sqs.queue import Queue, ReceivedMessage, explaining_errors, url_of
from sluice.terminal.logger import Logger

_log = Logger()
_POLL_SECONDS = 1
_READ_MAX = 10_000  # letters that one search receives
_SAFE_SHARE = 0.75  # after this share of its hold no action on a letter begins
RUN_CHARACTERS_MAX = 19
"""Longest id of a run. A deduplication id consists of it and a message id of up to 100; 128 characters are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """A message in a DLQ, as it was received.

    Args:
        first_ids: SQS message ids that it may have had in the queue in which it died. A FIFO DLQ has that id as
            deduplication id; AWS does not document whether the message id stays the same too [DLQ-04].
        attributes: message attributes of all types, by name, as SQS has them.
        sent_at_us: when it arrived in the DLQ, microseconds UTC.
        envelope: the decoded body; None if the body is not an envelope.
        bundled: the events of its message, if that is a bundle.
        position: which of them this is, from 0; None is the whole message.
    """

    sqs_message_id: str
    first_ids: frozenset[str]
    receipt_handle: str
    message_group_id: str
    body: str
    attributes: Mapping[str, Mapping[str, Any]]
    trace_header: str | None
    receive_count: int
    sent_at_us: int
    envelope: Envelope | None
    fault: str | None
    bundled: tuple[BundledEvent, ...] = ()
    position: int | None = None

    @property
    def events(self) -> "tuple[StoredDeadLetter, ...]":
        """Return a letter for each event of its message: itself, unless that is a bundle."""
        return (
            tuple(map(self._letter_of, range(len(self.bundled)))) if self.bundled and self.position is None else (self,)
        )

    def _letter_of(self, position: int) -> "StoredDeadLetter":
        """Return the letter of the event at a position of its bundle, from 0."""
        event = self.bundled[position]
        return replace(
            self,
            first_ids=frozenset(f"{id_}.{position}" for id_ in self.first_ids),
            body=event.body,
            envelope=event.envelope,
            fault=event.fault or None,
            position=position,
        )

    def message_body(self, body: str) -> str:
        """Return the body of its message with another body in this event's place, and those beside it as they are."""
        if self.position is None:
            return body
        return write_bundle([body if n == self.position else each.body for n, each in enumerate(self.bundled)])


@contextmanager
def asking() -> Iterator[None]:
    """Raise every error of a call as TransientError; for calls that give no receipt handle."""
    try:
        with explaining_errors():
            yield
    except HoldLostError as error:
        raise TransientError(str(error)) from error


class DeadLetterQueue(Queue):
    """A DLQ, found by its name.

    Args:
        sqs: a client that does not retry.
        hold_seconds: how long received messages stay hidden if they are not released.

    Raises:
        EndpointError: there is no such queue.
        TransientError: the queue did not answer.
    """

    def __init__(self, sqs: Any, name: str, *, hold_seconds: int = HOLD_SECONDS) -> None:
        super().__init__(sqs, url_of(sqs, name))
        self.name, self.hold_seconds = name, hold_seconds
        self._attributes = self.attributes()

    @property
    def arn(self) -> str:
        """Return its ARN."""
        return self._attributes["QueueArn"]

    @property
    def counts(self) -> dict[str, int]:
        """Return how many messages were visible, in flight and delayed when it was opened; SQS counts approximately."""
        return counts(self._attributes)

    def require_no_policy(self) -> None:
        """Refuse a DLQ that has a DLQ itself: SQS moves a message there after some receives, and reading receives it.

        Raises:
            ConfigError: the DLQ has a redrive policy.
        """
        policy = self._attributes.get("RedrivePolicy")
        if policy:
            raise ConfigError(
                f"queue {self.name} has a redrive policy of its own ({policy}), allowed is none: what is looked at too"
                " often would be moved on; give --force to look all the same"
            )

    def receive_some(self, most: int) -> list[StoredDeadLetter]:
        """Return up to ten messages, which stay hidden for the hold."""
        with asking():
            answer = self._sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=min(most, limits.RECEIVE_MESSAGES_MAX),
                WaitTimeSeconds=_POLL_SECONDS,
                VisibilityTimeout=self.hold_seconds,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        return [_dead_letter(message) for message in answer.get("Messages", [])]


class Destination:
    """A queue that dead letters are sent to.

    Args:
        sqs: a client that does not retry.

    Raises:
        EndpointError: there is no such queue.
        TransientError: the queue did not answer.
    """

    def __init__(self, sqs: Any, name: str) -> None:
        self._sqs, self.name = sqs, name
        self._url = url_of(sqs, name)

    @property
    def arn(self) -> str:
        """Return its ARN."""
        return Queue(self._sqs, self._url).attributes()["QueueArn"]

    def send(self, dead_letter: StoredDeadLetter, *, deduplication_id: str, body: str | None = None) -> str:
        """Send a copy with its group, attributes of all types and trace header; return the copy's SQS message id.

        Args:
            dead_letter: the message to copy.
            deduplication_id: a fresh id: SQS would drop a copy with the message's own id as a duplicate.
            body: a body in place of the message's own; None keeps the message's own.

        Raises:
            TransientError: the copy may or may not be in the queue.
        """
        return self.send_body(
            dead_letter.body if body is None else body,
            message_group_id=dead_letter.message_group_id,
            attributes=dead_letter.attributes,
            trace_header=dead_letter.trace_header,
            deduplication_id=deduplication_id,
        )

    def send_body(
        self,
        body: str,
        *,
        message_group_id: str,
        attributes: Mapping[str, Mapping[str, Any]],
        trace_header: str | None,
        deduplication_id: str,
    ) -> str:
        """Send a message, and return its SQS message id. A standard queue has neither group nor deduplication id.

        Raises:
            TransientError: the message may or may not be in the queue.
        """
        more: dict[str, Any] = {}
        if self.name.endswith(limits.FIFO_SUFFIX):
            more |= {"MessageGroupId": message_group_id, "MessageDeduplicationId": deduplication_id}
        if trace_header is not None:
            header = {"StringValue": trace_header, "DataType": "String"}
            more["MessageSystemAttributes"] = {"AWSTraceHeader": header}
        if attributes:
            more["MessageAttributes"] = dict(attributes)
        with asking():
            answer = self._sqs.send_message(
                QueueUrl=self._url,
                MessageBody=body,
                **more,
            )
            return str(answer["MessageId"])


class DeadLetterSender:
    """Sends messages that died with their consumer to the DLQ of their queue, where SQS itself does not count attempts.

    At the first message it reads the queue's redrive policy, which names the DLQ. Any number of threads share a sender.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def send(self, message: ReceivedMessage, *, body: str, deduplication_id: str) -> bool:
        """Send a body with group, attributes and trace header of its message; return whether the DLQ has it.

        The tools for dead letters find it by the deduplication id, as they find what SQS has moved.
        """
        try:
            self._destination.send_body(
                body,
                message_group_id=message.message_group_id or "",
                attributes={name: _sendable(attribute) for name, attribute in message.typed_attributes.items()},
                trace_header=message.trace_header,
                deduplication_id=deduplication_id,
            )
        except (TransientError, EndpointError) as error:
            _log.error("not in the DLQ: it comes again", sqs_message_id=message.sqs_message_id, error=str(error))
            return False
        return True

    def fault(self) -> str | None:
        """Return in a sentence why the DLQ cannot be found; None if it can. It sends nothing."""
        try:
            self._destination  # noqa: B018 (it looks for the DLQ)
        except (TransientError, EndpointError) as error:
            return str(error)
        return None

    @cached_property
    def _destination(self) -> Destination:
        name = _dead_letter_queue_name(self._queue.attributes())
        if name is None:
            raise TransientError("the queue has no RedrivePolicy, and so no DLQ; deploy the environment's stacks")
        return Destination(self._queue.sqs, name)


def _dead_letter_queue_name(attributes: Mapping[str, str]) -> str | None:
    """Return the name of a queue's DLQ, by its redrive policy; None where it has none."""
    try:
        return str(json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"]).rpartition(":")[2]
    except (ValueError, TypeError, KeyError):
        return None


class Reading:
    """Messages received from a DLQ and not deleted; released in order when the block ends."""

    def __init__(self, queue: DeadLetterQueue, *, clock: Clock) -> None:
        self._queue, self._clock = queue, clock
        self._held: dict[str, tuple[str, float]] = {}  # SQS message id -> receipt handle, safe until

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def receive(self, most: int = limits.RECEIVE_MESSAGES_MAX) -> list[StoredDeadLetter]:
        """Return up to ten visible messages, each group's in order; an empty list when there are no more."""
        invoked_at = self._clock.monotonic()
        dead_letters = self._queue.receive_some(most)
        for dead_letter in dead_letters:
            # a letter that is delivered again moves to the end of the order
            self._held.pop(dead_letter.sqs_message_id, None)
            safe_until = invoked_at + self._queue.hold_seconds * _SAFE_SHARE
            self._held[dead_letter.sqs_message_id] = (dead_letter.receipt_handle, safe_until)
        return dead_letters

    def is_safe(self, dead_letter: StoredDeadLetter) -> bool:
        """Return whether there is time to act on a message before its visibility timeout ends."""
        return (
            dead_letter.sqs_message_id in self._held
            and self._clock.monotonic() < self._held[dead_letter.sqs_message_id][1]
        )

    def delete(self, dead_letter: StoredDeadLetter) -> None:
        """Delete a dead letter.

        Raises:
            HoldLostError: the letter was hidden for too long, and is visible again.
            TransientError: the queue did not answer; the letter may be deleted.
        """
        self._queue.delete(dead_letter.receipt_handle)
        self._held.pop(dead_letter.sqs_message_id, None)

    def _release(self) -> None:
        """Release every message in the order received.

        A message that cannot be released is visible when its hold ends.
        """
        handles = [handle for handle, _ in self._held.values()]
        for start in range(0, len(handles), limits.RECEIVE_MESSAGES_MAX):
            with suppress(TransientError):
                self._queue.extend([(handle, 0) for handle in handles[start : start + limits.RECEIVE_MESSAGES_MAX]])


def counts(attributes: Mapping[str, str]) -> dict[str, int]:
    """Return how many messages a queue has visible, in flight and delayed, from its attributes."""
    suffixes = {"visible": "", "in_flight": "NotVisible", "delayed": "Delayed"}
    return {name: int(attributes[f"ApproximateNumberOfMessages{suffix}"]) for name, suffix in suffixes.items()}


def peek(
    reading: Reading, most: int, *, is_stopped: Callable[[], bool], at_once: int = limits.RECEIVE_MESSAGES_MAX
) -> list[StoredDeadLetter]:
    """Return up to `most` letters, the first ones of some groups, which stay hidden until the reading ends.

    A receive brings `at_once` letters at most. The group in which it ends has its other letters hidden.
    """
    found: dict[str, StoredDeadLetter] = {}
    while len(found) < most and not is_stopped():
        dead_letters = reading.receive(min(most - len(found), at_once))
        # all visible letters were read, or the first one's hold has ended
        if not dead_letters or dead_letters[0].sqs_message_id in found:
            break
        found |= {dead_letter.sqs_message_id: dead_letter for dead_letter in dead_letters}
    return list(found.values())


def find(reading: Reading, described: str, is_wanted: Callable[[StoredDeadLetter], bool]) -> StoredDeadLetter:
    """Return the first visible letter, or event of one, that is wanted; the letters read before it stay hidden.

    Raises:
        DeadLetterError: no visible letter is wanted.
        TransientError: the queue did not answer.
    """
    seen: set[str] = set()
    for dead_letter in _unseen(reading, seen):
        for found in filter(is_wanted, (dead_letter, *dead_letter.events)):
            return found
    raise DeadLetterError(
        f"{described} is not among the {len(seen)} messages that can be seen, which are at most the first"
        f" {limits.RECEIVE_MESSAGES_MAX} of each group; where `dlq inspect` shows so many of its group, it may be"
        " behind them: bring these back (`dlq redrive`) or delete them (`dlq purge-one`) first, or give its number up"
        " where it is (`dlq skip`); else somebody may read now: try again"
    )


def first_of_group(
    reading: Reading, group_id: str, *, is_stopped: Callable[[], bool]
) -> tuple[list[StoredDeadLetter], int]:
    """Return the first letters of a group, at most ten, and how many letters of all groups had to be received.

    SQS cannot receive one group only. The list is empty if the group has no visible letter, or when it is stopped.

    Raises:
        TransientError: the queue did not answer.
    """
    seen: set[str] = set()
    while len(seen) < _READ_MAX and not is_stopped() and (dead_letters := reading.receive()):
        if dead_letters[0].sqs_message_id in seen:
            break
        seen |= {dead_letter.sqs_message_id for dead_letter in dead_letters}
        found = [dead_letter for dead_letter in dead_letters if dead_letter.message_group_id == group_id]
        if found:
            return found, len(seen)
    return [], len(seen)


def _unseen(reading: Reading, seen: set[str]) -> Iterator[StoredDeadLetter]:
    while len(seen) < _READ_MAX and (dead_letters := reading.receive()):
        for dead_letter in dead_letters:
            if dead_letter.sqs_message_id in seen:
                return
            seen.add(dead_letter.sqs_message_id)
            yield dead_letter


def move(
    reading: Reading,
    dead_letter: StoredDeadLetter,
    send: Callable[[StoredDeadLetter], object],
    *,
    failpoint: Failpoint = do_nothing,
) -> None:
    """Send a copy, and delete the original after the send is confirmed: the letter is always in one of the queues.

    Raises:
        HoldLostError: the copy was sent, and the original is visible in the DLQ again.
        TransientError: the copy may have been sent, and the original may not have been deleted.
    """
    failpoint("before_send")
    send(dead_letter)
    failpoint("after_send")
    failpoint("before_delete")
    reading.delete(dead_letter)
    failpoint("after_delete")


def deduplication_id(kind: str, run: str, sqs_message_id: str) -> str:
    """Return a copy's deduplication id: not the message's own, and the same in every attempt of a run."""
    return f"{kind}:{run}:{sqs_message_id}"


def replacing(dead_letter: StoredDeadLetter, body: str) -> str:
    """Return the deduplication id of a replacement, which depends on its body."""
    run = hashlib.sha256(body.encode()).hexdigest()[:RUN_CHARACTERS_MAX]
    return deduplication_id("replace", run, dead_letter.sqs_message_id)


def with_data(envelope: Envelope, data: object) -> str:
    """Return the body of the same event and number with other data.

    Raises:
        EnvelopeError: the data cannot be sent.
    """
    return replace(envelope, event=replace(envelope.event, data=data)).body


def checked_body(dead_letter: StoredDeadLetter, body: str) -> str:
    """Return a body that can take the place of an undecodable one.

    Raises:
        EnvelopeError: the body is not an envelope, or is of another group.
    """
    for envelope in events_of(body):
        group = envelope.event.group
        if group != dead_letter.message_group_id:
            raise EnvelopeError(
                f"group is {group!r}, allowed is {dead_letter.message_group_id!r}, the message's own; correct the body"
            )
    return body


def check_size(dead_letter: StoredDeadLetter, body: str, event_bytes_max: int) -> None:
    """Refuse a body that the queue would not accept in place of the message's own.

    Raises:
        EnvelopeError: the body and the message's attributes are too large together.
    """
    size_bytes = len(body.encode())
    for name, value in dead_letter.attributes.items():
        content = value["BinaryValue"] if "BinaryValue" in value else value["StringValue"].encode()
        size_bytes += len(name.encode()) + len(value["DataType"]) + len(content)
    if size_bytes > event_bytes_max:
        raise EnvelopeError(
            f"the message would have {size_bytes} bytes with its attributes, allowed are {event_bytes_max}, the"
            " environment's event_bytes_max; keep what is large elsewhere and send where it is"
        )


def _dead_letter(message: Mapping[str, Any]) -> StoredDeadLetter:
    system, events, fault = message["Attributes"], tuple[BundledEvent, ...](), None
    try:
        events = read_body(message["Body"])
    except EnvelopeError as error:
        fault = str(error)
    return StoredDeadLetter(
        sqs_message_id=message["MessageId"],
        first_ids=frozenset({message["MessageId"], system.get("MessageDeduplicationId", message["MessageId"])}),
        receipt_handle=message["ReceiptHandle"],
        message_group_id=system.get("MessageGroupId", ""),
        body=message["Body"],
        attributes={name: _sendable(attribute) for name, attribute in message.get("MessageAttributes", {}).items()},
        trace_header=system.get("AWSTraceHeader"),
        receive_count=int(system["ApproximateReceiveCount"]),
        sent_at_us=int(system["SentTimestamp"]) * 1_000,
        envelope=events[0].envelope if len(events) == 1 else None,
        fault=fault,
        bundled=events if len(events) > 1 else (),
    )


def _sendable(attribute: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attribute without the fields SQS reserves, and refuses."""
    return {name: attribute[name] for name in ("DataType", "StringValue", "BinaryValue") if name in attribute}
