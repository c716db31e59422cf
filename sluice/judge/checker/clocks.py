"""Bounds on the differences between the clocks of a history: the declared bound, and those that the history proves.

Nobody can receive a message before it is published, or use a receipt handle before it is received. So the answer of a
receive comes after the call of its publish, and a delete or visibility change is called after the answer that gave its
handle, whatever the clocks show. Each such pair bounds how far one clock is ahead of another; a pair in each direction
bounds it from both sides, as the four timestamps of NTP do (RFC 5905, section 8). These bounds use no fact that is
judged: order and leases prove nothing about clocks. SentTimestamp and ApproximateFirstReceiveTimestamp are not used
either, because AWS documents the accuracy of no clock.

Clocks also drift. `DRIFT_PPM` is the largest frequency adjustment that Linux allows, for each of the two clocks:
500,000 ns a second, MAXFREQ in its include/linux/timex.h (read 2026-11-23). A clock that is stepped, or slewed faster,
is covered by a declared bound only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations

from sluice.history.events import HistoryEvent

NEVER_US = 2**62
DRIFT_PPM = 1_000
_CLOSED_MAX = 128  # clocks of which indirect bounds are looked for: it takes their number cubed

type AheadUs = Mapping[str, Mapping[str, int]]
"""Clock to another clock to the most by which the other may be ahead, microseconds; a missing pair is unknown."""


def clock_of(event: HistoryEvent) -> str:
    """Return the name of the clock that timed the event; "" if the event names none."""
    return event.clock_id or ""


def ahead_us(
    clocks: Collection[str], *, bound_us: int = NEVER_US, proven: AheadUs | None = None
) -> dict[str, dict[str, int]]:
    """Return clock to another clock to the most by which the other may be ahead of the first, microseconds.

    The result has every pair of the clocks. A bound that is not known is `NEVER_US`; a clock is ahead of itself by 0.
    The bound of a pair is the least of: `bound_us`, the proven bound of the pair, and the sum of the bounds along a
    chain of other clocks: if B is at most 3 ahead of A, and C at most 4 ahead of B, then C is at most 7 ahead of A.
    Chains are left out if nothing is proven, because then no chain is shorter than the pair, and if the clocks are
    more than `_CLOSED_MAX`.

    Args:
        clocks: all clocks.
        bound_us: the largest difference between any two clocks, as declared.
        proven: the bounds that the history proves, in the same form; pairs may be missing.
    """
    known = proven or {}
    ahead = {
        clock: {
            other: 0 if other == clock else min(bound_us, known.get(clock, {}).get(other, NEVER_US)) for other in clocks
        }
        for clock in clocks
    }
    for via in clocks if known and len(clocks) <= _CLOSED_MAX else ():
        for clock in clocks:
            if ahead[clock][via] < NEVER_US:
                for other in clocks:
                    indirect_us = ahead[clock][via] + ahead[via][other]
                    if ahead[via][other] < NEVER_US and indirect_us < ahead[clock][other]:
                        ahead[clock][other] = indirect_us
    return ahead


def is_contradictory(ahead: AheadUs) -> bool:
    """Return whether no clocks satisfy the bounds: one would have to be ahead of itself, or two ahead of each other."""
    return any(others[clock] < 0 for clock, others in ahead.items()) or any(
        ahead[clock][other] + ahead[other][clock] < 0 for clock, other in permutations(ahead, 2)
    )


@dataclass(frozen=True, slots=True)
class ClockSpread:
    """Two clocks with a difference that the history proves."""

    behind: str
    ahead: str
    least_us: int


def furthest_apart(ahead: AheadUs) -> ClockSpread | None:
    """Return the two clocks with the largest proven difference; None if all clocks may show the same time."""
    least_us, behind, ahead_of = min(
        ((others[clock], clock, other) for other, others in ahead.items() for clock in others if clock != other),
        default=(0, "", ""),
    )
    return ClockSpread(behind, ahead_of, -least_us) if least_us < 0 else None


def apart_us_max(ahead: AheadUs) -> int:
    """Return the largest possible difference between any two of the clocks."""
    return max((us for others in ahead.values() for us in others.values()), default=0)


def widen(ahead: AheadUs, span_us: int) -> dict[str, dict[str, int]]:
    """Return the bounds, widened by the drift that is possible within the length of the history."""
    drift_us = span_us * DRIFT_PPM // 1_000_000
    return {clock: {other: us + drift_us for other, us in others.items()} for clock, others in ahead.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks that timed a group, corrected as far as their differences are known.

    Args:
        ahead: the most by which each may be ahead of each other one after the correction.
        later_us: clock to the correction that was added to its times.
    """

    ahead: AheadUs = field(default_factory=dict)
    later_us: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, clocks: Collection[str], *, bound_us: int, proven: AheadUs) -> "Clocks":
        """Return these clocks, each corrected by the middle of the interval in which it may be ahead of the first."""
        if len(clocks) <= 1:
            return cls()
        names = sorted(clocks)
        ahead = ahead_us(names, bound_us=bound_us, proven=proven)
        first = names[0]
        later_us = {clock: -_middle(-ahead[clock][first], ahead[first][clock]) for clock in names}
        return cls(
            ahead={
                clock: {
                    other: us if us >= NEVER_US else us + later_us[other] - later_us[clock]
                    for other, us in others.items()
                }
                for clock, others in ahead.items()
            },
            later_us=later_us,
        )

    @property
    def shift_us(self) -> int:
        """Return by how much the times of a clock were changed at most."""
        return max(map(abs, self.later_us.values()), default=0)

    def correct(self, event: HistoryEvent) -> HistoryEvent:
        """Return the event with the correction of its clock added to its times."""
        return _shift(event, self.later_us.get(clock_of(event), 0))

    def restore(self, event: HistoryEvent) -> HistoryEvent:
        """Return a corrected event with the times of its record."""
        return _shift(event, -self.later_us.get(clock_of(event), 0))

    def bound_us(self, first: HistoryEvent, second: HistoryEvent, *, is_least: bool = False) -> int:
        """Return the most by which the second event's clock may be ahead of the first's; with `is_least`, the least."""
        if first.clock_id == second.clock_id or not self.ahead:
            return 0
        if is_least:
            return -self.ahead[clock_of(second)][clock_of(first)]
        return self.ahead[clock_of(first)][clock_of(second)]


def _middle(least_us: int, most_us: int) -> int:
    """Return the middle of an interval; if one end is unknown, the value of the interval that is nearest to 0."""
    if least_us > -NEVER_US and most_us < NEVER_US:
        return (least_us + most_us) // 2
    return min(max(0, least_us), most_us)


def _shift(event: HistoryEvent, by_us: int) -> HistoryEvent:
    if by_us == 0:
        return event
    return replace(
        event,
        invoked_at_us=None if event.invoked_at_us is None else event.invoked_at_us + by_us,
        responded_at_us=None if event.responded_at_us is None else event.responded_at_us + by_us,
    )
