"""Traffic of a queue: times, groups, and the messages that fail; drawn from a seed, or taken from a recording."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sluice.rehearse.model.queue_simulation import (
    FAILS_ALWAYS,
    FAILS_IN_OUTAGE,
    IS_FORGOTTEN,
    Floats,
    Integers,
    SimulatedArrivals,
)

_MINUTE = 60
NOTHING = SimulatedArrivals(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint8))
"""No messages."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnTraffic:
    """Messages at random instants (Poisson) of a given rate, in groups by Zipf's law.

    Args:
        name: for tables.
        rates: messages a second, one value for each second; its length is a whole number of minutes.
        group_count: how many message groups there are.
        skew: Zipf exponent of the groups' shares; 0 spreads evenly.
        hot_share: share of the messages that one group has; the rest is spread by `skew`. 0 gives it none of its own.
        poison_share: share of messages that fail at every receive.
        failure_share: share of messages that fail at their first receive, besides.
        forgotten_share: share of messages that are never given back after their first receive, besides.
        failing: share of the messages sent in each second that fail until the end of an outage; None: there is none.
        seed: of all draws.
    """

    name: str
    rates: Floats
    group_count: int
    skew: float = 0.0
    hot_share: float = 0.0
    poison_share: float = 0.0
    failure_share: float = 0.0
    forgotten_share: float = 0.0
    failing: Floats | None = None
    seed: int = 1

    @property
    def minutes(self) -> int:
        """Return how long it lasts."""
        return len(self.rates) // _MINUTE

    @property
    def message_count(self) -> float:
        """Return how many messages are expected."""
        return float(self.rates.sum())

    @property
    def outage_ends_at(self) -> float:
        """Return the second in which the outage ends; 0 without an outage."""
        return 0.0 if self.failing is None or not self.failing.any() else float(np.flatnonzero(self.failing)[-1] + 1)

    @property
    def peak_per_second(self) -> float:
        """Return the rate of the busiest minute."""
        return float(self.rates.reshape(-1, _MINUTE).mean(axis=1).max())

    @property
    def hottest_share(self) -> float:
        """Return the share of the messages that the busiest group has."""
        shares = self._shares()
        return 1 / self.group_count if shares is None else float(shares.max())

    def _shares(self) -> Floats | None:
        """Return the share of each group; None if all have the same."""
        if not self.skew and not self.hot_share:
            return None
        weights = np.arange(1, self.group_count + 1, dtype=np.float64) ** -self.skew
        if self.hot_share:
            weights[0] = 0
        shares = weights / (weights.sum() or 1) * (1 - self.hot_share)
        if self.hot_share:
            shares[0] = self.hot_share
        return shares / shares.sum()

    def each_minute(self) -> Iterator[SimulatedArrivals]:
        """Yield the messages minute by minute, drawn from the seed; every call yields the same."""
        random, shares = np.random.default_rng(self.seed), self._shares()
        bounds = None if shares is None else np.cumsum(shares)
        for start in range(0, len(self.rates), _MINUTE):
            counts = random.poisson(self.rates[start : start + _MINUTE])
            total = int(counts.sum())
            sent_at = np.sort(np.repeat(np.arange(start, start + _MINUTE), counts) + random.random(total))
            fails = np.zeros(total, dtype=np.uint8)
            for share, kind in (
                (self.failure_share, 1),
                (self.forgotten_share, IS_FORGOTTEN),
                (self.poison_share, FAILS_ALWAYS),
            ):
                if share:
                    fails[random.random(total) < share] = kind
            if self.failing is not None:
                shares_now = np.repeat(self.failing[start : start + _MINUTE], counts)
                fails[random.random(total) < shares_now] = FAILS_IN_OUTAGE
            if bounds is None:
                group = random.integers(0, self.group_count, total)
            else:
                drawn = np.searchsorted(bounds, random.random(total), side="right")
                group = np.minimum(drawn, self.group_count - 1).astype(np.int64)
            yield SimulatedArrivals(sent_at, group, fails)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedTraffic:
    """Messages as they were published in a recording.

    Args:
        name: for tables.
        sent_at: when each was sent, in seconds since the first, ascending.
        group: the group of each, from 0.
        speed: how many times faster they are sent than they were.
        lasts_minutes: how long it lasts; None ends with the minute of the last message.
    """

    name: str
    sent_at: Floats
    group: Integers
    speed: float = 1.0
    lasts_minutes: int | None = None

    @property
    def outage_ends_at(self) -> float:
        """Return 0, because a recording does not contain failures."""
        return 0.0

    @property
    def minutes(self) -> int:
        """Return how long it lasts, to the end of its last minute."""
        if self.lasts_minutes is not None:
            return self.lasts_minutes
        return int(self.sent_at[-1] / self.speed // _MINUTE) + 1 if len(self.sent_at) else 1

    @property
    def group_count(self) -> int:
        """Return how many groups there are."""
        return int(self.group.max()) + 1 if len(self.group) else 1

    @property
    def message_count(self) -> float:
        """Return how many messages there are."""
        return float(len(self.sent_at))

    @property
    def peak_per_second(self) -> float:
        """Return the rate of the busiest minute."""
        return max(len(arrivals.sent_at) for arrivals in self.each_minute()) / _MINUTE

    @property
    def hottest_share(self) -> float:
        """Return the share of the messages that the busiest group has."""
        return float(np.bincount(self.group).max() / len(self.group)) if len(self.group) else 1.0

    def each_minute(self) -> Iterator[SimulatedArrivals]:
        """Yield the messages that were sent, minute by minute."""
        bounds = np.searchsorted(self.sent_at, np.arange(self.minutes + 1) * _MINUTE * self.speed)
        for first, last in pairwise(bounds):
            sent = self.sent_at[first:last] / self.speed
            yield SimulatedArrivals(sent, self.group[first:last], np.zeros(len(sent), dtype=np.uint8))


type Traffic = DrawnTraffic | RecordedTraffic


def constant(per_second: float, minutes: int) -> Floats:
    """Return an even rate."""
    return np.full(minutes * _MINUTE, per_second)


def changing(per_second: Callable[[Floats], Floats], minutes: int) -> Floats:
    """Return a rate that depends on the second."""
    return np.maximum(0.0, per_second(np.arange(minutes * _MINUTE, dtype=np.float64)))
