"""What carries a publisher's calls: many at once, each with up to ten messages, each answered or given up.

    sockets  plain sockets and one selector, signed here; the default, and the cheapest by far
    boto3    AWS's SDK as everybody uses it, in a few threads: for saboteurs, and behind proxies

Both say the same on the wire, and write the same rows of history: every message's intent is handed to the operating
system before the first byte of its call leaves, its answer after. Each call is tried once; what to try again is the
publisher's matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spark_load.plan.body_template import Body

BOTO3, SOCKETS = "boto3", "sockets"
NAMES = (BOTO3, SOCKETS)


class Message(NamedTuple):
    """One message as it is published, without its body. Both ids are values as those of `body_template.Body`.

    Args:
        idx: of the message, in the history.
        publish_attempt: which publish of this message it is, from 1.
        intended_at_us: when the plan wanted it published, microseconds UTC.
        deduplication_id: the same for every publish of it.
        phase: part of the run it belongs to, as in the history.
        group_number: of its group, in the plan.
        planned_idx: of the message, in the plan.
    """

    idx: int
    publish_attempt: int
    intended_at_us: int
    message_group_id: str
    deduplication_id: str
    phase: str
    group_number: int
    planned_idx: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One PublishBatch or SendMessageBatch to a topic ARN or queue URL: the ids of its messages are their positions."""

    address: str
    messages: Sequence[Message]
    bodies: Sequence[Body]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What became of a call: position to error code, of the messages that were not acknowledged; the others were."""

    call: Call
    errors: Mapping[int, str]


class Transport(Protocol):
    """Carries calls. Used by one thread."""

    @property
    def room(self) -> int:
        """Return how many calls may be sent now; 0 until one that is on its way is answered."""

    def send(self, calls: Sequence[Call]) -> None:
        """Send calls, at most `room`; return when they are on their way."""

    def answers(self, wait_seconds: float) -> Sequence[Answer]:
        """Return what was answered or given up since, after waiting for the first; none when nothing is on its way."""

    def close(self) -> None:
        """Let go of every connection. What is on its way stays without an answer."""
