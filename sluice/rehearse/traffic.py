"""What is sent to a queue: when, in which group, and which messages fail. Drawn from a seed, or as it was recorded."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sluice.rehearse.queue_simulation import FAILS_ALWAYS, Arrivals, Floats, Integers

_MINUTE = 60


class Traffic(Protocol):
    """What is sent."""

    @property
    def name(self) -> str:
        """Return what it is called in tables."""

    @property
    def minutes(self) -> int:
        """Return how long it lasts."""

    @property
    def groups(self) -> int:
        """Return how many message groups there are."""

    @property
    def message_count(self) -> float:
        """Return how many messages it has, about."""

    @property
    def hottest_share(self) -> float:
        """Return the share of the messages that the busiest group has."""

    def of_minute(self, minute: int) -> Arrivals:
        """Return what is sent in a minute; minutes are asked for in their order, each once."""


@dataclass(slots=True, kw_only=True)
class DrawnTraffic:
    """Messages at random instants (Poisson) of a given rate, in groups by Zipf's law.

    Args:
        name: for tables.
        rates: messages a second, one value for each second; its length is a whole number of minutes.
        groups: message groups.
        skew: Zipf exponent of the groups' shares; 0 spreads evenly.
        hot_share: share of the messages that one group has; the rest is spread by `skew`. 0 gives it none of its own.
        poison_share: share of messages that fail at every receive.
        seed: of all draws.
    """

    name: str
    rates: Floats
    groups: int
    skew: float = 0.0
    hot_share: float = 0.0
    poison_share: float = 0.0
    seed: int = 1
    _random: np.random.Generator = field(init=False)
    _shares: Floats | None = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._shares = None
        if self.skew or self.hot_share:
            weights = np.arange(1, self.groups + 1, dtype=np.float64) ** -self.skew
            if self.hot_share:
                weights[0] = 0
            shares = weights / (weights.sum() or 1) * (1 - self.hot_share)
            if self.hot_share:
                shares[0] = self.hot_share
            self._shares = np.cumsum(shares / shares.sum())

    @property
    def minutes(self) -> int:
        """Return how long it lasts."""
        return len(self.rates) // _MINUTE

    @property
    def message_count(self) -> float:
        """Return how many messages are expected."""
        return float(self.rates.sum())

    @property
    def hottest_share(self) -> float:
        """Return the share of the messages that the busiest group has."""
        return 1 / self.groups if self._shares is None else float(np.diff(self._shares, prepend=0.0).max())

    def of_minute(self, minute: int) -> Arrivals:
        """Draw a minute."""
        start = minute * _MINUTE
        counts = self._random.poisson(self.rates[start : start + _MINUTE])
        total = int(counts.sum())
        sent_at = np.sort(np.repeat(np.arange(start, start + _MINUTE), counts) + self._random.random(total))
        fails = np.zeros(total, dtype=np.uint8)
        if self.poison_share:
            fails[self._random.random(total) < self.poison_share] = FAILS_ALWAYS
        return Arrivals(sent_at, self._drawn_groups(total), fails)

    def _drawn_groups(self, count: int) -> Integers:
        if self._shares is None:
            return self._random.integers(0, self.groups, count)
        drawn = np.searchsorted(self._shares, self._random.random(count), side="right")
        return np.minimum(drawn, self.groups - 1).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTraffic:
    """Messages as they were published in a recording.

    Args:
        name: for tables.
        sent_at: when each was sent, in seconds since the first, ascending.
        group: the group of each, from 0.
        speed: how many times faster they are sent than they were.
    """

    name: str
    sent_at: Floats
    group: Integers
    speed: float = 1.0

    @property
    def minutes(self) -> int:
        """Return how long it lasts, to the end of its last minute."""
        return int(self.sent_at[-1] / self.speed // _MINUTE) + 1 if len(self.sent_at) else 1

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return int(self.group.max()) + 1 if len(self.group) else 1

    @property
    def message_count(self) -> float:
        """Return how many messages there are."""
        return float(len(self.sent_at))

    @property
    def hottest_share(self) -> float:
        """Return the share of the messages that the busiest group has."""
        return float(np.bincount(self.group).max() / len(self.group)) if len(self.group) else 1.0

    def of_minute(self, minute: int) -> Arrivals:
        """Return what was sent in a minute."""
        first, last = np.searchsorted(
            self.sent_at, [minute * _MINUTE * self.speed, (minute + 1) * _MINUTE * self.speed]
        )
        sent = self.sent_at[first:last] / self.speed
        return Arrivals(sent, self.group[first:last], np.zeros(len(sent), dtype=np.uint8))


def constant(per_second: float, minutes: int) -> Floats:
    """Return an even rate."""
    return np.full(minutes * _MINUTE, per_second)


def changing(per_second: Callable[[Floats], Floats], minutes: int) -> Floats:
    """Return a rate that depends on the second."""
    return np.maximum(0.0, per_second(np.arange(minutes * _MINUTE, dtype=np.float64)))
