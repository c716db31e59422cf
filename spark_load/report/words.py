"""A verdict in words: what it means, and why it is what it is."""

from sluice.history.checker.anomalies import ANOMALIES
from sluice.history.checker.verdict import EXIT_CROSSED, Holding, Status, Verdict
from spark_load.report import units

_MEANS = {
    Status.VALID: "Every promise this run exercised was kept.",
    Status.INVALID: "A promise was broken.",
    Status.UNKNOWN: "This run cannot tell whether the promises were kept, and that is no pass.",
}
NOT_EXERCISED = "this run gave it no opportunity to fail"


def means(verdict: Verdict) -> str:
    """Return what the verdict means, in a sentence."""
    if verdict.exit_code == EXIT_CROSSED:
        return f"{_MEANS[Status.VALID]} A threshold of the profile was crossed."
    return _MEANS[verdict.status]


def reasons(verdict: Verdict) -> list[str]:
    """Return why the verdict is what it is: what was broken or crossed, and what is not known."""
    told = [one for one in verdict.properties if one.holding in (Holding.VIOLATED, Holding.CROSSED)]
    found = [
        f"{one.anomaly} {ANOMALIES[one.anomaly].name}: found {units.times(one.violation_count)}"
        f" in {one.opportunities:,} opportunities. {ANOMALIES[one.anomaly].definition}"
        for one in sorted(told, key=lambda one: one.holding is Holding.CROSSED)
    ]
    unknown = [f"Not known: {reason}" for reason in verdict.unknowns]
    return [*found, *verdict.crossed, *unknown, *([] if told else [exercised(verdict)])]


def exercised(verdict: Verdict) -> str:
    """Return how much of what can be judged this run gave an opportunity to fail."""
    judged = len(verdict.properties)
    tried = [one for one in verdict.properties if one.opportunities]
    return (
        f"{len(tried)} of {judged} judged properties were exercised,"
        f" with {sum(one.opportunities for one in tried):,} opportunities to fail in all."
    )
