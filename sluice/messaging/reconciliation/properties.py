"""The properties that a verdict is about, each with its opportunities: how often it could have been broken."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sluice.messaging.reconciliation.comparison import Reconciliation
from sluice.messaging.reconciliation.routes import Cause, Judgement

VALID, INVALID, UNKNOWN = "VALID", "INVALID", "UNKNOWN"
NOT_EXERCISED = "not exercised"
_LOST = (Cause.NO_SUBSCRIPTION, Cause.FILTERED, Cause.NOT_IN_QUEUE, Cause.NO_POSITION, Cause.NOWHERE)


class Property(StrEnum):
    """A property of an environment in use."""

    PUBLISHED = "every message that is marked as sent was published"
    SUBSCRIBED = "every consumer is subscribed, with the declared filter policy"
    ARRIVED = "every message has come to every consumer, or is in one of its queues"
    DEAD_KEPT = "every dead letter is in one of its queues"
    CONTINUED = "no consumer knows a later number than the outbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyVerdict:
    """The verdict on one property.

    Args:
        subject: the property.
        opportunities: how often the property could have been broken.
        violations: how often it was broken, at least.
        doubts: the reasons why something is not known.
    """

    subject: Property
    opportunities: int
    violations: int
    doubts: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """Return VALID, INVALID or UNKNOWN; NOT_EXERCISED if there was no opportunity."""
        if self.violations:
            return INVALID
        if self.doubts:
            return UNKNOWN
        return VALID if self.opportunities else NOT_EXERCISED


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts:
    """The facts of one consumer by which the properties are judged.

    Args:
        judgement: the result of the comparison.
        wrong: a sentence for each fault of the consumer's subscription.
        subscription_fault: why the subscription is not known; None if it is.
        unjudged: why the consumer's messages were not compared; None if they were.
    """

    judgement: Judgement
    wrong: Sequence[str]
    subscription_fault: str | None
    unjudged: str | None


def judge_properties(compared: Reconciliation, consumers: Iterable[RouteFacts]) -> list[PropertyVerdict]:
    """Return the verdict on each property, over all consumers."""
    found = list(consumers)
    judgements = [each.judgement for each in found]
    judged = [each for each in found if each.unjudged is None]
    unpublished = [_count(each, (Cause.NOT_PUBLISHED,)) for each in judgements]
    lost = sum(_count(each, _LOST) + (0 if each.shortage is None else each.shortage.lost) for each in judgements)
    return [
        PropertyVerdict(
            subject=Property.PUBLISHED,
            opportunities=compared.rows if judged else 0,
            violations=max(unpublished, default=0),
        ),
        PropertyVerdict(
            subject=Property.SUBSCRIBED,
            opportunities=sum(each.subscription_fault is None for each in found),
            violations=sum(bool(each.wrong) for each in found),
            doubts=_texts(found, lambda each: [each.subscription_fault] if each.subscription_fault else []),
        ),
        PropertyVerdict(
            subject=Property.ARRIVED,
            opportunities=compared.rows * len(judged),
            violations=lost,
            doubts=_texts(found, lambda each: [each.unjudged] if each.unjudged else list(each.judgement.doubts)),
        ),
        PropertyVerdict(
            subject=Property.DEAD_KEPT,
            opportunities=sum(each.dead for each in judgements),
            violations=sum(_count(each, (Cause.NOT_IN_DLQ,)) for each in judgements),
            doubts=_texts(found, lambda each: list(each.judgement.dead_doubts)),
        ),
        PropertyVerdict(
            subject=Property.CONTINUED,
            opportunities=compared.epochs.total(),
            violations=compared.restored_count,
        ),
    ]


def _count(judgement: Judgement, causes: Sequence[Cause]) -> int:
    """Return the number of missing messages that were found for these causes."""
    return sum(finding.count for finding in judgement.findings if finding.cause in causes)


def _texts(found: Iterable[RouteFacts], doubts_of: Callable[[RouteFacts], Iterable[str]]) -> list[str]:
    """Return the doubts of all consumers, each with its consumer's name in front."""
    return [f"{each.judgement.consumer}: {doubt}" for each in found for doubt in doubts_of(each)]
