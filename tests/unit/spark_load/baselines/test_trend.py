"""A run compared with earlier runs: how often an unchanged run is called slower, and a slower one is found.

Negative controls break the comparison on purpose, and must do worse.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from sluice.judge.checker.verdict import PropertyStatus
from spark_load.baselines import page
from spark_load.baselines import trend as trends
from spark_load.baselines.results import RunResult
from spark_load.baselines.statistics import slower
from spark_load.baselines.trend import LEVEL, Trend, comparable, markdown, trend
from tests.support.drawn_results import NAMES, result, runs, slow_down

TRIES = 100


def _last(found: Sequence[RunResult], *, factor: float = 1, slow: int = 1, names: Sequence[str] = NAMES) -> Trend:
    """Return the trend of the last run; the last `slow` runs take `factor` times as long."""
    of = [*found[:-slow], *(slow_down(run, factor, names) for run in found[-slow:])]
    return trend(of[-1], of, last=20)


def _share(factor: float, *, slow: int = 1, count: int = 26) -> float:
    """Return the share of many random series of runs in which a time of the last run is called slower."""
    random = np.random.default_rng(21)
    found = [_last(runs(random, count), factor=factor, slow=slow) for _ in range(TRIES)]
    return sum(bool(each.slower) for each in found) / TRIES


def test_at_most_one_unchanged_run_in_a_hundred_is_called_slower() -> None:
    """Two of the hundred drawn series, with the seed as it is."""
    assert _share(1) <= 2 * LEVEL


def test_a_fifth_is_found_in_one_run_and_a_lasting_tenth() -> None:
    """One run that is 20 % slower is found, and 10 % in several runs; noise is 4 % of the run and 4 % of each time."""
    found = {
        (factor, slow): _share(factor, slow=slow) for factor, slow in ((1.1, 1), (1.1, 3), (1.1, 5), (1.2, 3), (1.3, 1))
    }

    assert found[1.3, 1] >= 0.9
    assert found[1.2, 3] >= 0.9
    assert found[1.1, 5] >= 0.4
    assert found[1.1, 1] < found[1.1, 3] < found[1.1, 5]


def test_a_run_without_earlier_times_is_not_compared() -> None:
    """Runs of the same profile may have queues with other names; then no time of the run is in the earlier ones."""
    before = runs(np.random.default_rng(3), 12)

    renamed, nothing = (trend(result("run", seconds), before, last=20) for seconds in ({"renamed p50": 5.0}, {}))

    assert renamed.exit_code == 98
    assert renamed.word == "TOO FEW RUNS"
    assert renamed.rows == ()
    assert renamed.unknown == (
        "none of its 1 time is in 8 of the 12 runs before it, as when queues have other names; make up to 8 more runs"
    )
    assert nothing.exit_code == 2
    assert nothing.word == "UNKNOWN"
    assert nothing.unknown == "no time of the run was measured: see its summary"


def test_one_slow_queue_is_found_and_named() -> None:
    """Only the times of the queue `audit` are half as long again. Exit code 99 means slower."""
    found = _last(runs(np.random.default_rng(3), 26), factor=1.5, names=[name for name in NAMES if "audit" in name])

    assert {row.name.split()[0] for row in found.slower} == {"audit"}
    assert found.exit_code == 99


def test_a_probability_is_adjusted_for_choosing_one_three_or_five_runs() -> None:
    """With a single time, this choice is all that p has to be adjusted for."""
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.0, 1.25]
    found = [result(f"run-{number}", {"x": value}) for number, value in enumerate(values)]

    (row,) = trend(found[-1], found, last=20).rows

    assert row.newest == 1
    assert row.p == pytest.approx(3 * slower(values[:-1], values[-1:]).p)


def test_a_faster_run_is_not_slower() -> None:
    """Every time is halved."""
    assert _last(runs(np.random.default_rng(3), 26), factor=0.5).exit_code == 0


def test_a_difference_below_a_twentieth_is_not_called_slower_however_sure() -> None:
    """With hardly any noise a difference of 4 % is certain, but too small to matter."""
    random = np.random.default_rng(4)

    assert _last(runs(random, 26, noise=0.0005), factor=1.04).exit_code == 0
    assert _last(runs(random, 26, noise=0.0005), factor=1.06).exit_code == 99


def test_fewer_than_eight_earlier_runs_are_not_compared() -> None:
    """Exit code 98 means too few runs, and the message says how many are missing."""
    found = runs(np.random.default_rng(5), 9)

    assert trend(found[7], found[:8], last=20).exit_code == 98
    assert trend(found[7], found[:8], last=20).unknown == (
        "found 7 valid runs of this profile on this kind of machine before it, needed are 8; make 1 more run"
    )
    assert trend(found[8], found, last=20).exit_code == 0


def test_compared_and_omitted_times_are_named_in_every_output() -> None:
    """24 earlier runs are there, and 20 count; a queue that only the last run has is omitted."""
    found = runs(np.random.default_rng(5), 26)
    late = [result(each.run, {**each.seconds, "audit-2 p50": 0.1}) for each in found[-8:]]
    newest = trend(late[-1], [*found[:-8], *late], last=20)

    sentences = [
        "Before it there are 24 runs; compared are the newest 1, 3 or 5 runs with 8 to 20 before those.",
        "Left out are times that fewer than 8 of them have: audit-2 p50.",
    ]
    assert newest.how == sentences
    assert [f"- {sentence}" in markdown(newest).splitlines() for sentence in sentences] == [True, True]
    assert [f"<li>{sentence}</li>" in page.html(newest) for sentence in sentences] == [True, True]
    assert newest.as_json()["left_out"] == ["audit-2 p50"]
    assert trend(found[-1], found, last=20).how == sentences[:1]


@pytest.mark.parametrize("status", [PropertyStatus.UNKNOWN, PropertyStatus.INVALID])
def test_an_invalid_run_is_neither_compared_nor_compared_with(status: PropertyStatus) -> None:
    found = runs(np.random.default_rng(5), 20)
    bad = result("bad", found[0].seconds, status=status)

    assert trend(bad, [*found, bad], last=20).unknown == f"the run is {status.value.upper()}: see its verdict"
    assert "bad" not in trend(found[-1], [bad, *found], last=20).runs


def test_a_run_is_compared_with_earlier_runs_of_its_load_and_machine() -> None:
    """Left out are another profile's digest, another machine, and a later run."""
    found = runs(np.random.default_rng(5), 12)
    others = [result("digest", found[0].seconds, digest="e"), result("machine", found[0].seconds, model="b")]
    later = result("later", found[0].seconds)

    compared = comparable(found[-1], [*others, *found, later], last=20)

    assert [each.run for each in compared] == [each.run for each in found[:-1]]
    assert len(comparable(found[-1], found, last=4)) == 8, "the last four before each of the newest five"


def test_a_run_compared_with_itself_hides_its_slowness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A negative control: if the run counts as one of its earlier runs, it is found less often."""
    right = _share(1.4, count=9)
    monkeypatch.setattr(trends, "comparable", lambda _, others, *, last: others[-last - 4 :])

    assert right - _share(1.4, count=9) > 0.3


def test_a_comparison_over_all_kinds_of_machine_finds_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: runs alternate between two machines, one twice as fast; mixed, the difference is noise."""
    random = np.random.default_rng(6)
    slow, fast = runs(random, 26, model="a", level=0.4), runs(random, 26, model="b", level=0.2)
    both = [run for pair in zip(fast, slow, strict=True) for run in pair]
    worse = [*both[:-1], slow_down(both[-1], 1.5)]

    assert trend(worse[-1], worse, last=20).exit_code == 99
    monkeypatch.setattr(
        trends, "comparable", lambda found, others, *, last: [o for o in others if o is not found][-last:]
    )
    assert trend(worse[-1], worse, last=20).exit_code == 0
