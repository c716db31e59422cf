"""Draw a random schedule of faults. The same seed draws the same schedule, so that a run can be repeated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


def plain(seconds: float) -> str:
    """Return seconds as text, whole ones without `.0`."""
    return str(seconds).removesuffix(".0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault[K: StrEnum]:
    """One fault; times are from the start of the schedule.

    Args:
        at_seconds: when it begins.
        until_seconds: when it ends.
        kind: what is done.
        target: what it is done to: a NAME, or `NAME:END`. An END is a server, `endpoint` or `database`, and `NAME:END`
            is how NAME reaches it. The target `all:END` stands for every `NAME:END`.
        detail: the variant of the kind, such as `throttled` or `0.15 s`; empty for kinds without variants.
    """

    at_seconds: float
    until_seconds: float
    kind: K
    target: str
    detail: str = ""

    @property
    def brief(self) -> str:
        """Return the fault in a few words that are unique in its schedule."""
        return f"{self.kind.value} of {self.target} at {plain(self.at_seconds)} s"

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        began, ended = (
            f"{each:.2f}" if round(each, 2) == each else plain(each) for each in (self.at_seconds, self.until_seconds)
        )
        return f"{began:>7} to {ended:>7} s  {self.kind:<9}  {self.target}{detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way[K: StrEnum]:
    """One kind of fault, and its possible targets, durations and details.

    Args:
        kind: the kind of fault.
        targets: its possible targets.
        seconds: the shortest and the longest duration; both 0 for a fault that is over at once.
        weight: how many times as often as a kind of weight 1 it is drawn.
        details: its possible details; a pair of numbers is a range of seconds.
    """

    kind: K
    targets: Sequence[str]
    seconds: tuple[float, float] = (0.0, 0.0)
    weight: int = 1
    details: Sequence[str] | tuple[float, float] = ()


def draw_faults[K: StrEnum](
    ways: Sequence[Way[K]], *, seed: int, first_seconds: float, until_seconds: float, every_seconds: float
) -> tuple[ScheduledFault[K], ...]:
    """Return faults in the order they begin. Each kind is drawn once before any is drawn again.

    A target never has two faults at the same time; `all:END` counts as every `NAME:END`.

    Args:
        ways: the kinds of fault, with their targets and durations.
        seed: of the random numbers.
        first_seconds: when the first fault begins.
        until_seconds: when the last fault has ended.
        every_seconds: mean time between the beginnings of two faults; less if not every kind would be drawn otherwise.
    """
    return tuple(_draw(ways, Random(f"schedule/{seed}"), first_seconds, until_seconds, every_seconds))  # noqa: S311


def _draw[K: StrEnum](
    ways: Sequence[Way[K]], rng: Random, first_seconds: float, until_seconds: float, every_seconds: float
) -> Iterator[ScheduledFault[K]]:
    if not ways:
        return
    mean = min(every_seconds, (until_seconds - first_seconds) / (len(ways) + 1))
    busy_until: dict[str, float] = {}
    start_seconds, deck = first_seconds, rng.sample(ways, k=len(ways))
    while start_seconds < until_seconds:
        if not deck:
            weighted = [way for way in ways for _ in range(way.weight)]
            deck = rng.sample(weighted, k=len(weighted))
        fault = _fault(rng, deck.pop(), start_seconds, until_seconds, busy_until)
        if fault is not None:
            yield fault
        start_seconds += mean * rng.uniform(0.5, 1.5)


def _fault[K: StrEnum](
    rng: Random, way: Way[K], start_seconds: float, until_seconds: float, busy_until: dict[str, float]
) -> ScheduledFault[K] | None:
    """Return a fault of a target without another fault; None if there is no such target, or no time left."""
    free = [
        target
        for target in way.targets
        if all(busy_until.get(item, 0) <= start_seconds for item in _needed_targets(target))
    ]
    if not free:
        return None
    target = rng.choice(free)
    until = min(until_seconds, start_seconds + rng.uniform(*way.seconds))
    if any(way.seconds) and round(until, 2) <= round(start_seconds, 2):
        return None
    for entry in _occupied_targets(target):
        busy_until[entry] = max(until, busy_until.get(entry, 0))
    return ScheduledFault(
        at_seconds=round(start_seconds, 2),
        until_seconds=round(until, 2),
        kind=way.kind,
        target=target,
        detail=_detail(rng, way.details),
    )


def _needed_targets(target: str) -> tuple[str, ...]:
    """Return the targets that must be without a fault when a fault of this target begins."""
    name, _, end = target.partition(":")
    return (target, f"any:{end}" if name == "all" else f"all:{end}")


def _occupied_targets(target: str) -> tuple[str, ...]:
    """Return the targets that a fault of this target occupies."""
    return target, f"any:{target.partition(':')[2]}"


def _detail(rng: Random, details: Sequence[str] | tuple[float, float]) -> str:
    """Return one of the details; of a pair of numbers, a random duration between them."""
    match details:
        case (float(low), float(high)):
            return f"{rng.uniform(low, high):.2f} s"
        case ():
            return ""
    return str(rng.choice(details))


def count_by_kind[K: StrEnum](faults: Sequence[ScheduledFault[K]]) -> Mapping[K, int]:
    """Return how many faults there are of each kind."""
    counts: dict[K, int] = {}
    for fault in faults:
        counts[fault.kind] = counts.get(fault.kind, 0) + 1
    return counts
