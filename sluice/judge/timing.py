"""Which clocks timed a history, and how far they are apart for all that is declared and proven."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sluice.history.events import Kind
from sluice.judge.checker import Expectation
from sluice.judge.checker.clocks import (
    NEVER_US,
    ahead_us,
    apart_us_max,
    furthest_apart,
    is_contradictory,
    widened,
)

TIMED = tuple(
    kind.value
    for kind in (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED, Kind.VISIBILITY_CHANGED, Kind.HANDLED, Kind.PARKED)
)
"""Kinds of events whose clocks matter to their group."""
SETTLED = (Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
"""Kinds of events that need a receipt handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What a history of several clocks says of them.

    Args:
        groups: those that several clocks timed.
        ahead_us: clock to another clock to the least time from a cause by the one to its effect by the other.
        span_us: from the first event to the last.
    """

    groups: Collection[str] = ()
    ahead_us: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    span_us: int = 0


def least(rows: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """Return the least time of each pair of (clock, other clock, time)."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for clock, other, us in rows:
        found[clock][other] = min(us, found[clock].get(other, us))
    return dict(found)


def located(expectation: Expectation, clocks: Collection[str], timed: Timed) -> tuple[Expectation, list[str]]:
    """Return the expectation with how far the clocks may be apart, and why what was declared of it does not hold.

    `expectation.clock_bound_us` is what was declared, 0 when nothing was.
    """
    if len(clocks) <= 1:
        return replace(expectation, clock_bound_us=0), []
    proven, declared_us = ahead_us(clocks, proven=widened(timed.ahead_us, timed.span_us)), expectation.clock_bound_us
    reasons = []
    if is_contradictory(proven):
        reasons.append(
            "no clocks explain the times: something was received before it was published, whatever they show; a clock"
            " was set while it recorded"
        )
        proven = {}
    apart = furthest_apart(proven)
    if apart is not None and declared_us and apart.least_us > declared_us:
        reasons.append(
            f"clocks were declared to be at most {declared_us / 1_000:g} ms apart, and {apart.behind!r} is at least"
            f" {apart.least_us / 1_000:g} ms behind {apart.ahead!r}, or it received what was not published yet"
        )
        declared_us = 0
    ahead = ahead_us(clocks, bound_us=declared_us or NEVER_US, proven=proven)
    return replace(expectation, clock_bound_us=apart_us_max(ahead), clocks_ahead_us=ahead), reasons
