"""The checker bounds the differences of clocks, and proves only violations that hold within these bounds."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import check_group
from sluice.judge.checker.clocks import (
    NEVER_US,
    Clocks,
    ahead_us,
    apart_us_max,
    furthest_apart,
    is_contradictory,
    widen,
)
from tests.support.anomalies import CASES
from tests.support.histories.builders import EXPECTATION, full, sane
from tests.support.histories.recordings import by_two_clocks

_SECOND_US = 1_000_000


def test_two_clocks_are_bounded_through_others() -> None:
    proven = {"a": {"b": 5}, "b": {"c": -3, "a": 1}}

    known = ahead_us(["a", "b", "c"], proven=proven)

    assert known["a"] == {"a": 0, "b": 5, "c": 2}
    assert known["c"] == {"a": NEVER_US, "b": NEVER_US, "c": 0}
    assert ahead_us(["a", "b", "c"], bound_us=4, proven=proven)["c"] == {"a": 4, "b": 4, "c": 0}
    assert apart_us_max(known) == NEVER_US
    assert apart_us_max(ahead_us(["a", "b"], bound_us=4, proven=proven)) == 4


def test_clocks_that_are_far_apart_are_not_contradictory() -> None:
    far = ahead_us("ab", proven={"a": {"b": -50}, "b": {"a": 60}})

    assert not is_contradictory(far)
    assert is_contradictory(ahead_us("ab", proven={"a": {"b": -50}, "b": {"a": 40}}))
    assert is_contradictory(ahead_us("abc", proven={"a": {"b": -50}, "b": {"c": 20}, "c": {"a": 20}}))
    apart = furthest_apart(far)
    assert apart is not None
    assert apart.behind == "b"
    assert apart.ahead == "a"
    assert apart.least_us == 50
    assert furthest_apart(ahead_us("ab", proven={"a": {"b": 5}})) is None


def test_proven_clock_bounds_widen_with_drift() -> None:
    """In a minute two clocks may drift 60 ms apart, 1,000 millionths of it."""
    assert widen({"a": {"b": -50}}, 60 * _SECOND_US) == {"a": {"b": 59_950}}


def test_clocks_are_corrected_by_the_middle_of_their_bounds() -> None:
    known = {"c": {"d": 60_000, "e": 10}, "d": {"c": -40_000}, "e": {}}

    clocks = Clocks.of({"c", "d", "e"}, bound_us=NEVER_US, proven=known)

    assert clocks.later_us == {"c": 0, "d": -50_000, "e": 0}
    assert clocks.ahead["c"]["d"] == 10_000
    assert clocks.ahead["d"]["c"] == 10_000
    assert clocks.ahead["c"]["e"] == 10
    assert clocks.ahead["d"]["e"] == 10_010
    assert clocks.ahead["e"]["d"] == NEVER_US


@pytest.mark.parametrize("ahead_by_us", [-3_600 * _SECOND_US, -50_000, 50_000, 3_600 * _SECOND_US])
def test_a_group_with_one_consumer_clock_is_judged_despite_publisher_clocks(ahead_by_us: int) -> None:
    """No rule compares publishers' and consumers' times here, so violations are found as with one clock."""
    expectation = replace(EXPECTATION, clock_bound_us=NEVER_US)
    wrong = {
        name: by_two_clocks(CASES[name].events, ahead_us=ahead_by_us)
        for name in ("A1", "A2", "A3", "A8", "B7", "B8", "C1", "C2", "C4", "C5", "D1", "D2", "G1")
    }

    sound = check_group(by_two_clocks(full(), ahead_us=ahead_by_us), expectation)

    assert sound.violations == ()
    assert sound.unknowns == ()
    for name, events in wrong.items():
        of_case = replace(CASES[name].expectation, clock_bound_us=NEVER_US)
        assert {violation.anomaly for violation in check_group(events, of_case).violations} == {name}


def _billing_by_turns(events: Sequence[HistoryEvent], ahead_by_us: int) -> list[HistoryEvent]:
    """Return the events, with every second message of billing consumed by another machine."""
    apart = {id(event): moved for event, moved in zip(events, by_two_clocks(events, ahead_us=ahead_by_us), strict=True)}
    return [
        apart[id(event)]
        if event.queue == "billing" and event.kind != Kind.PUBLISHED and event.idx in (1, -1)
        else event
        for event in events
    ]


@pytest.mark.parametrize(
    ("ahead_by_us", "bound_us", "is_open"),
    [(0, 1_000, False), (900, 1_000, False), (50_000, 60_000, True), (0, NEVER_US, True)],
)
def test_two_machines_that_take_turns_are_unknown_only_within_the_bound(
    ahead_by_us: int, bound_us: int, *, is_open: bool
) -> None:
    """A message is deleted 8 ms after its receive, and the next received 7 ms after that."""
    found = check_group(_billing_by_turns(sane(), ahead_by_us), replace(EXPECTATION, clock_bound_us=bound_us))

    assert found.violations == ()
    assert bool(found.unknowns) is is_open


def test_a_known_offset_is_taken_out_and_the_witness_shows_the_record() -> None:
    """One clock is an hour ahead, known to a millisecond: its times are corrected for the comparison only."""
    hour_us = 3_600 * _SECOND_US
    known = replace(
        EXPECTATION,
        clock_bound_us=NEVER_US,
        clocks_ahead_us={"c": {"d": hour_us + 1_000}, "d": {"c": -hour_us + 1_000}},
    )
    wrong = _billing_by_turns(CASES["C1"].events, hour_us)

    sound = check_group(_billing_by_turns(sane(), hour_us), known)
    found = check_group(wrong, known)

    assert sound.violations == ()
    assert sound.unknowns == ()
    assert [violation.anomaly for violation in found.violations] == ["C1"]
    assert set(found.violations[0].witness) <= set(wrong)
