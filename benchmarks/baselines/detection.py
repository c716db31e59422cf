"""False alarms and detection power of `sluice load trend`, on the times of small runs made one after the other.

Of five runs three are alike, and in two publisher and consumers wait for 1.1 and 1.2 times as long, which is most of a
latency. Runs that are drawn, with the noise of a quiet machine, are compared as well.
"""

import random
from collections.abc import Mapping, Sequence
from statistics import median, stdev

import numpy as np

from benchmarks import charts
from benchmarks.baselines import drawn, runs
from benchmarks.charts import Bar
from benchmarks.report import Section, table
from spark_load.baselines.results import Result
from spark_load.baselines.trend import BEFORE_MIN, NEWEST, trend

_LAST = 20
_TRIES = 300
_SECONDS = 60
PLANTED = (1.1, 1.2)
_FACTORS = (1.05, 1.1, 1.15, 1.2, 1.3)


_HEAD = ("slower by", "ratio of p50", *(f"{newest} run{'s' if newest > 1 else ''}" for newest in NEWEST))
_DRAWN_TRIES = 500
_DRAWN_FACTORS = (1.1, 1.15, 1.2, 1.3)


def measure(_: Mapping[str, str], rounds: int) -> Section:
    """Compare drawn runs; make runs for a minute a round, and compare them in many orders, some really slower."""
    with runs.deployed() as where:
        slower = {f"slow{factor}": runs.slower(factor) for factor in PLANTED}
        kinds = {"first": runs.PROFILE, "second": runs.PROFILE, "third": runs.PROFILE, **slower}
        _cold, *warm = runs.results(where, kinds, rounds * _SECONDS)  # the first one's endpoint is cold
    same = [run for run in warm if not run.run.startswith("slow")]
    rng = random.Random(21)
    alarms = sum(_is_slower(_drawn(same, rng)) for _ in range(_TRIES))
    in_order = [_is_slower(same[: end + 1]) for end in range(BEFORE_MIN, len(same))]
    rows: list[tuple[object, ...]] = [
        ("nothing, in the order in which they ran", "1.00", f"{sum(in_order)} of {len(in_order)}", "", ""),
        ("nothing, in any order", "1.00", f"{alarms / _TRIES:.1%}", "", ""),
    ]
    power = {factor: [_power(same, factor, newest, rng) for newest in NEWEST] for factor in _FACTORS}
    rows += [
        (f"{factor - 1:.0%}, of every time", f"{factor:.2f}", *(f"{share:.0%}" for share in shares))
        for factor, shares in power.items()
    ]
    for factor in PLANTED:
        slow = [run for run in warm if run.run.startswith(f"slow{factor}-")]
        found = [f"{_planted(same, slow, newest, rng):.0%}" if len(slow) >= newest else "" for newest in NEWEST]
        rows.append((f"waits {factor} times as long", f"{_ratio(same, slow):.2f}", *found))
    bars = [
        Bar(f"{factor - 1:.0%}, {newest} run{'s' if newest > 1 else ''}", 0, max(share, 0.001), f"{share:.0%}")
        for factor, shares in power.items()
        for newest, share in zip(NEWEST, shares, strict=True)
    ]
    plot = charts.bars("Slowdowns that are found", "share of runs called slower", ["of every time"], bars)
    noise = f"{len(same)} identical runs; a time varies by {_noise(same):.1%} (median of the standard deviations)."
    return Section(
        tables={"baselines": f"{noise}\n\n{table(_HEAD, rows, text_columns=1)}", "baselines-drawn": of_drawn()},
        plots={"baselines": plot},
    )


def of_drawn() -> str:
    """Return the table of drawn runs: the same at each call."""
    rows: list[tuple[object, ...]] = [
        (name, "1.00", f"{_share_drawn(1, 1, **others):.1%}", "", "")
        for name, others in {
            "nothing": {},
            "nothing, and half of a deviation stays until the next run": {"stays": 0.5},
            "nothing, and 3 % of all times are doubled": {"doubled": 0.03},
        }.items()
    ]
    rows += [
        (f"{factor - 1:.0%}", f"{factor:.2f}", *(f"{_share_drawn(factor, newest):.0%}" for newest in NEWEST))
        for factor in _DRAWN_FACTORS
    ]
    return table(_HEAD, rows, text_columns=1)


def _share_drawn(factor: float, newest: int, *, stays: float = 0, doubled: float = 0) -> float:
    """Return how often the last run is called slower when the newest ones are, by a factor."""
    random = np.random.default_rng(21)
    found = 0
    for _ in range(_DRAWN_TRIES):
        of = drawn.runs(random, _LAST + max(NEWEST), stays=stays, doubled=doubled)
        found += _is_slower([*of[:-newest], *(drawn.slowed(run, factor) for run in of[-newest:])])
    return found / _DRAWN_TRIES


def _is_slower(of: Sequence[Result]) -> bool:
    """Return whether the last run is called slower than those before it."""
    return bool(trend(of[-1], of, last=_LAST).slower)


def _drawn(of: Sequence[Result], rng: random.Random) -> list[Result]:
    """Return the runs in another order, as many as a comparison takes."""
    return rng.sample(of, min(len(of), _LAST + max(NEWEST)))


def _power(same: Sequence[Result], factor: float, newest: int, rng: random.Random) -> float:
    """Return how often the last run is called slower when the newest ones are, by a factor."""
    found = 0
    for _ in range(_TRIES):
        of = _drawn(same, rng)
        found += _is_slower([*of[:-newest], *(drawn.slowed(run, factor) for run in of[-newest:])])
    return found / _TRIES


def _planted(same: Sequence[Result], slow: Sequence[Result], newest: int, rng: random.Random) -> float:
    """Return how often the last run is called slower when the newest ones really are."""
    found = sum(
        _is_slower([*_drawn(same, rng)[: _LAST + max(NEWEST) - newest], *rng.sample(slow, min(newest, len(slow)))])
        for _ in range(_TRIES)
    )
    return found / _TRIES


def _ratio(same: Sequence[Result], slow: Sequence[Result]) -> float:
    """Return the ratio of the medians of p50, over queues."""
    names = [name for name in same[0].seconds if name.endswith(" p50") and not name.startswith("publish")]
    return median(
        median(run.seconds[name] for run in slow) / median(run.seconds[name] for run in same) for name in names
    )


def _noise(same: Sequence[Result]) -> float:
    """Return the median over all times of the standard deviation over the mean."""
    found = []
    for name in same[0].seconds:
        values = [run.seconds[name] for run in same if name in run.seconds]
        mean = sum(values) / len(values)
        found.append(stdev(values) / mean)
    return median(found)
