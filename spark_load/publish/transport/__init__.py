"""Transports carry a publisher's calls: many at once, each with up to ten messages, each answered or given up.

    sockets  plain sockets and one selector, signed here; the default, and the cheapest by far
    boto3    AWS's SDK in a few threads: for saboteurs, and behind proxies

Both send the same requests and write the same rows of history: the intent before the first byte of a call is sent, the
result after the answer. A transport tries each call once; the publisher decides about retries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from spark_load.plan.plan import BodyTemplate, BodyValues

BOTO3, SOCKETS, OUTBOX = "boto3", "sockets", "outbox"
NAMES = (BOTO3, SOCKETS, OUTBOX)


class OutgoingMessage(NamedTuple):
    """One message as it is published; the fields are those of `OutgoingMessages`."""

    idx: int
    publish_attempt: int
    intended_at_us: int
    message_group_id: str
    deduplication_id: str
    phase: str
    body: str


@dataclass(frozen=True, slots=True, eq=False)
class OutgoingMessages:
    """The messages of all calls that are sent at once, in columns. A body is a frame with values in its gaps.

    Args:
        idx: of the message, in the history; a numpy array of int64.
        publish_attempt: which publish of this message it is, from 1; of int32.
        intended_at_us: when the plan wanted it published, microseconds UTC; of int64.
        message_group_ids: of letters, digits, `-`, `_`, `.` and `~` only, like the values of `BodyValues`.
        deduplication_ids: of the same characters; a repeat of a message has the same one.
        phase: the part of the run, as in the history.
        template: the frame of the bodies.
        values: of the bodies.
    """

    idx: Any
    publish_attempt: Any
    intended_at_us: Any
    message_group_ids: Sequence[str]
    deduplication_ids: Sequence[str]
    phase: str
    template: BodyTemplate
    values: BodyValues


class TransportCall(NamedTuple):
    """One PublishBatch or SendMessageBatch to a topic ARN or queue URL: the ids of its messages are their positions.

    Its messages are those from `begin` to `end` of all that are sent at once; the calls share them, in order.
    """

    address: str
    sent: OutgoingMessages
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Return how many messages it has."""
        return self.end - self.begin

    @property
    def messages(self) -> list[OutgoingMessage]:
        """Return the messages one by one."""
        own, sent = slice(self.begin, self.end), self.sent
        columns = (sent.idx[own].tolist(), sent.publish_attempt[own].tolist(), sent.intended_at_us[own].tolist())
        bodies = sent.template.texts([column[own] for column in sent.values])
        ids = zip(sent.message_group_ids[own], sent.deduplication_ids[own], bodies, strict=True)
        return [
            OutgoingMessage(*numbers, group_id, deduplication_id, sent.phase, body)
            for numbers, (group_id, deduplication_id, body) in zip(zip(*columns, strict=True), ids, strict=True)
        ]


class TransportAnswer(NamedTuple):
    """The answer to a call; `errors` has the error code of each message that was not acknowledged, by its position."""

    call: TransportCall
    errors: Mapping[int, str]


class Transport(Protocol):
    """Carries calls. Used by one thread."""

    @property
    def room(self) -> int:
        """Return how many calls may be sent now; 0 until a call in flight is answered."""

    def send(self, calls: Sequence[TransportCall]) -> None:
        """Send calls, at most `room`, which share their messages; return when they are in flight."""

    def answers(self, wait_seconds: float) -> Sequence[TransportAnswer]:
        """Return the calls that were answered or given up since the last call, after waiting for the first one.

        Returns nothing if no call is in flight.
        """

    def close(self) -> None:
        """Close every connection; a call in flight stays without an answer."""
