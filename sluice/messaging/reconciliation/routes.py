"""Routes: the ways from a topic to its consumers. And the result of a comparison for each consumer."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sqlalchemy import Engine

from sluice.messaging.reconciliation.states import NumberState

SETTLED_SECONDS = 60
"""The time after the last send before which SQS's counts of messages may still be wrong."""
_FINDINGS_MAX = 100_000


class Cause(StrEnum):
    """The known reason for which a number has not arrived."""

    NOT_PUBLISHED = "marked as sent without a message id of SNS: no relay published it"
    NO_SUBSCRIPTION = "the consumer's queue is not subscribed to the topic"
    FILTERED = "the live subscription has a filter policy that is not declared, and does not match it"
    NOT_IN_QUEUE = "published, and in none of its queues: purged, deleted, or expired"
    NO_POSITION = (
        "the inbox has no row of its group, and none of its queues has it: purged, deleted, or expired, or somebody"
        " deleted the row"
    )
    NOWHERE = "no consumer has it: not published, or lost before the queues"
    NOT_IN_DLQ = "dead by the inbox's record, and in none of its queues: purged, deleted, or expired"
    RESTORED = "the consumer knows later numbers than the outbox: it was restored without `outbox begin-epoch`"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """A queue that may hold a message of a consumer.

    Args:
        about: SQS's count of messages in it, in flight and delayed ones included; None is unknown.
        most: the most messages that may have been in it between the first count and the last; None means `about`.
        fault: why the count is unknown; None if it is known.
        retention_us: how long it keeps a message, microseconds.
        is_dlq: whether it is a DLQ, where a message may arrive late and then stay for another retention.
    """

    name: str
    about: int | None
    most: int | None = None
    fault: str | None = None
    retention_us: int
    is_dlq: bool = False

    def may_hold(self, *, sent_us: int, now_us: int, brought_back_us: int | None) -> bool:
        """Return whether a message may be in this queue; all instants are microseconds UTC.

        Args:
            sent_us: when the message was sent.
            now_us: the present instant.
            brought_back_us: when a message of the consumer was last brought back from its DLQ; None for never.
        """
        if self.about == 0:
            return False
        kept_us = self.retention_us
        is_within = now_us - sent_us < (2 * kept_us if self.is_dlq else kept_us)
        if brought_back_us is not None and not self.is_dlq:
            is_within = is_within or now_us - brought_back_us < kept_us
        return is_within

    @property
    def doubt(self) -> str:
        """Return the reason for which a message that may be in this queue is not judged."""
        if self.about is None:
            return f"{self.name} may hold it, and cannot be read ({self.fault})"
        return f"it may be among the about {self.about} messages of {self.name}"

    @property
    def capacity(self) -> int | None:
        """Return the most messages that the queue can have held; None is unknown."""
        return self.about if self.most is None else self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A consumer's way from the topic to its inbox.

    Args:
        engine: the engine of the inbox's database; None if it is unknown, and `unjudged` says why.
        unjudged: why its numbers cannot be judged; None if they can.
        places: its queue, its DLQ, and the DLQ of its subscription.
        is_subscribed: whether the queue is subscribed; None is unknown.
        accepts: whether a live filter policy that is not declared lets a message pass, by its attributes and body; None
            if there is no such policy.
        joined_at_us: when the consumer joined; numbers sent before are not expected.
    """

    consumer: str
    engine: Engine | None
    unjudged: str | None = None
    places: tuple[QueuePlace, ...] = ()
    is_subscribed: bool | None = None
    accepts: Callable[[Mapping[str, str], str], bool] | None = None
    joined_at_us: int | None = None

    @property
    def known_engine(self) -> Engine:
        """Return the engine of a consumer whose inbox is known."""
        assert self.engine is not None, "a consumer without a known inbox is not judged"
        return self.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Numbers of one group, first to last, that did not arrive at a consumer for one cause.

    Args:
        cause: of numbers that are not judged, the reason of the doubt.
    """

    consumer: str
    group_id: str
    epoch: int
    first: int
    last: int
    cause: Cause | str

    @property
    def count(self) -> int:
        """Return the count of the numbers."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Messages of which some are lost for certain, because some queues should hold more messages than they do.

    Args:
        lost: the least number of lost messages; which of them are lost is not known.
        missing: the number of messages that have not arrived, and only these queues can hold.
        dead: the number of messages that the inbox records as dead.
        held: SQS's count of the messages in these queues.
        queues: the names of the queues.
    """

    lost: int
    missing: int
    dead: int
    held: int
    queues: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Return the shortage as a sentence for people."""
        return (
            f"at least {self.lost} of {self.missing + self.dead} messages: {self.missing} have not come and"
            f" {self.dead} are dead, and {' and '.join(self.queues)} hold about {self.held}; which of them is not known"
        )


@dataclass(slots=True)
class Judgement:
    """The result of a comparison for one consumer. A number stands for an event.

    Args:
        states: the count of numbers in each state.
        findings: the missing numbers with their causes.
        doubts: the count of numbers that cannot be judged, by reason.
        dead_doubts: the count of dead letters that cannot be judged, by reason.
        dead: the count of numbers that the inbox records as dead.
        young: the count of numbers that have not arrived and may be in flight.
        young_messages: the count of their messages.
        undecided: the numbers of `doubts`, each with its reason as the cause.
        young_numbers: the numbers that `young` counts.
        is_cut: whether there are more findings than are kept.
        shortage: messages of which some are lost, though it is not known which; None if no such loss is certain.
    """

    consumer: str
    states: Counter[NumberState] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    undecided: list[Finding] = field(default_factory=list)
    young_numbers: list[Finding] = field(default_factory=list)
    doubts: Counter[str] = field(default_factory=Counter)
    dead_doubts: Counter[str] = field(default_factory=Counter)
    dead: int = 0
    young: int = 0
    young_messages: int = 0
    is_cut: bool = False
    shortage: Shortage | None = None

    @property
    def missing(self) -> int:
        """Return the count of missing numbers, at least."""
        return sum(finding.count for finding in self.findings) + (self.shortage.lost if self.shortage else 0)

    def find(self, finding: Finding) -> None:
        """Add a finding. A finding that continues the last one extends it."""
        self.is_cut = not add_numbers(self.findings, finding) or self.is_cut

    def doubt(self, finding: Finding) -> None:
        """Count a number that is not judged, under the reason."""
        self.doubts[finding.cause] += 1
        add_numbers(self.undecided, finding)


def add_numbers(found: list[Finding], finding: Finding) -> bool:
    """Add numbers to a list, to its last entry if they continue it; return False if the list is full."""
    last = found[-1] if found else None
    place = (finding.group_id, finding.epoch, finding.cause, finding.first)
    if last is not None and (last.group_id, last.epoch, last.cause, last.last + 1) == place:
        found[-1] = replace(last, last=finding.last)
        return True
    if len(found) < _FINDINGS_MAX:
        found.append(finding)
        return True
    return False
