"""The clocks of a history: the bounds that the history proves, the declared bound, and contradictions between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import Thresholds
from sluice.judge.checker.verdict import PropertyState, PropertyStatus, Verdict
from sluice.judge.judge import PlannedMessages, RunFacts, judge
from tests.support.anomalies import CASES
from tests.support.histories.builders import EXPECTATION, QUEUES, RUN, delete_event, publish_event, receive_event, sane
from tests.support.histories.recordings import by_two_clocks, engine_of, in_group

_SECOND_US = 1_000_000
_NO_THRESHOLDS = Thresholds()


def _judge(
    events: Sequence[HistoryEvent], *, declared_us: int = 0, thresholds: Thresholds = _NO_THRESHOLDS, **changes: Any
) -> Verdict:
    facts = RunFacts(
        plan=PlannedMessages(
            message_count=sum(event.kind == Kind.PUBLISHED for event in events), lateness_budget_seconds=1
        ),
        expectation=replace(EXPECTATION, clock_bound_us=declared_us, max_receive_count={}, **changes),
        target="endpoint",
        recorders={},
        thresholds=thresholds,
    )
    return judge(engine_of(events), facts)


def _swap_clocks(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    return [replace(event, clock_id="c" if event.clock_id == "d" else "d") for event in events]


def _both_ways(ahead_us: int) -> list[HistoryEvent]:
    """Return two groups: each of two machines publishes one of them, and consumes the other."""
    there = by_two_clocks(sane(), ahead_us=ahead_us)
    back = _swap_clocks(by_two_clocks(sane(), ahead_us=-ahead_us))
    return [*in_group(there, "there"), *in_group([_later(event, ahead_us) for event in back], "back")]


def _later(event: HistoryEvent, by_us: int) -> HistoryEvent:
    return replace(
        event,
        invoked_at_us=(event.invoked_at_us or 0) + by_us,
        responded_at_us=None if event.responded_at_us is None else event.responded_at_us + by_us,
    )


@pytest.mark.parametrize("ahead_us", [0, 50_000, -50_000, 3_600 * _SECOND_US])
def test_a_run_whose_groups_each_have_one_consumer_clock_is_valid(ahead_us: int) -> None:
    """No bound is declared, and no rule needs one."""
    verdict = _judge(by_two_clocks(sane(), ahead_us=ahead_us))

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.measures["clocks"] == {"count": 2, "apart_us_max": None}


def test_a_group_on_two_clocks_is_checked_despite_times_in_order() -> None:
    """By the recorded times everything came in order, but the clocks may differ."""
    by_turns = [
        replace(event, clock_id="d") if event.kind != Kind.PUBLISHED and event.idx == 1 else event for event in sane()
    ]

    assert _judge(by_turns).status == PropertyStatus.UNKNOWN
    assert _judge(by_turns, declared_us=1_000).status == PropertyStatus.VALID


def test_publishes_and_receives_both_ways_bound_the_clocks_from_both_sides() -> None:
    """The clocks differ by 50 ms; a message needs at least 105 ms from its publish to its receive."""
    verdict = _judge(_both_ways(50_000))

    assert verdict.status is PropertyStatus.VALID
    assert 50_000 + 105_000 <= verdict.measures["clocks"]["apart_us_max"] < 50_000 + 106_000


def test_a_violation_that_no_offset_explains_needs_no_declared_bound() -> None:
    """In one group a machine receives a later message ten seconds before another machine releases the earlier one."""
    late = 10_000
    held = receive_event("billing", 0, late)
    second = replace(_later(receive_event("billing", 1, late + 5_000, worker="other"), 50_000), clock_id="d")
    wrong = [publish_event(0, late - 20), publish_event(1, late - 10), held, second, delete_event(held, late + 15_000)]

    of_one = _judge([*_both_ways(50_000), *in_group(wrong, "wrong")], queues=QUEUES)
    unbounded = _judge([*by_two_clocks(sane(), ahead_us=50_000), *in_group(wrong, "wrong")], queues=QUEUES)

    assert of_one.status == PropertyStatus.INVALID
    assert {violation.anomaly for violation in of_one.violations} == {"D2"}
    assert unbounded.status == PropertyStatus.UNKNOWN
    assert unbounded.violations == ()
    assert any("nobody knows how far apart, and on that rests whether it shows" in why for why in unbounded.unknowns)


def test_a_purge_in_a_recording_excuses_what_it_removed() -> None:
    """Message 1 of billing was never received; a purge ran while it was in the queue."""
    lost = [event for event in sane() if event.kind == Kind.PUBLISHED or (event.queue, event.idx) != ("billing", 1)]
    purge = HistoryEvent(kind=Kind.PURGED.value, run=RUN, queue="billing", invoked_at_us=50_000, responded_at_us=60_000)

    assert {violation.anomaly for violation in _judge(lost).violations} == {"E1"}
    assert _judge([*lost, purge]).status == PropertyStatus.UNKNOWN
    assert _judge([*lost, purge]).violations == ()


def test_a_handle_bounds_the_clock_of_whoever_uses_it() -> None:
    """One machine receives a message, another deletes it 3 ms after the receive's answer."""
    moved = [
        replace(_later(event, -7_000_000), clock_id="d") if event.kind == Kind.DELETED else event for event in sane()
    ]

    timed = engine_of(moved).clock_timings(EXPECTATION)

    assert set(timed.groups) == {"g1"}
    assert timed.ahead_us == {"c": {"d": 3_000 - 7_000_000}}
    assert timed.span_us == 170_000 - (108_000 - 7_000_000)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"c": {"d": 105_000}}),
        ({"is_publishing_recorded": False}, {}),
        ({"run": "another"}, {}),
    ],
)
def test_times_that_another_publish_may_explain_prove_nothing(changes: dict[str, Any], expected: object) -> None:
    engine = engine_of(by_two_clocks(sane(), ahead_us=0))

    assert engine.clock_timings(replace(EXPECTATION, **changes)).ahead_us == expected


def test_a_receive_with_another_body_or_of_two_publishers_clocks_proves_nothing() -> None:
    apart = by_two_clocks(sane(), ahead_us=0)
    other = [replace(event, body_hash="other") if event.kind == Kind.RECEIVED else event for event in apart]
    repeats = [replace(event, clock_id="e") for event in apart if event.kind == Kind.PUBLISHED]

    assert engine_of(other).clock_timings(EXPECTATION).ahead_us == {}
    assert engine_of([*apart, *repeats]).clock_timings(EXPECTATION).ahead_us == {}


def test_a_declared_bound_that_history_contradicts_is_named_with_the_proof() -> None:
    """By the recorded times, consumers had a message 895 ms before its publish was called."""
    verdict = _judge(by_two_clocks(sane(), ahead_us=-_SECOND_US), declared_us=1_000)

    assert verdict.status == PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert verdict.unknowns == (
        "clocks were declared to be at most 1 ms apart, and 'd' is at least 894.065 ms behind 'c', or it received what"
        " was not published yet",
    )


def test_times_that_no_clocks_explain_are_named() -> None:
    there = by_two_clocks(sane(), ahead_us=-_SECOND_US)
    back = _swap_clocks(by_two_clocks(sane(), ahead_us=-_SECOND_US))

    verdict = _judge([*in_group(there, "there"), *in_group(back, "back")])

    assert verdict.status is PropertyStatus.UNKNOWN
    assert verdict.unknowns[0].startswith("no difference of the clocks explains the times")


def test_times_further_apart_than_the_declared_bound_are_judged() -> None:
    """Another machine received the second message 10 ms before the first; the bounds are 1 ms and 1 s."""
    wrong = [
        replace(event, clock_id="d") if event.kind != Kind.PUBLISHED and event.idx == 1 else event
        for event in CASES["C1"].events
    ]

    assert _judge(wrong, declared_us=1_000).status is PropertyStatus.INVALID
    assert (_judge(wrong, declared_us=_SECOND_US).status, _judge(wrong).status) == (PropertyStatus.UNKNOWN,) * 2


def test_one_clock_needs_no_bound() -> None:
    """A bound is declared, although all events have one clock."""
    assert _judge(CASES["C1"].events, declared_us=_SECOND_US).status is PropertyStatus.INVALID


@pytest.mark.parametrize(
    ("allowed", "holding"), [(0.5, PropertyState.CROSSED), (5.001, PropertyState.UNKNOWN), (99.0, PropertyState.HOLDS)]
)
def test_a_latency_within_the_clocks_uncertainty_is_not_judged(allowed: float, holding: PropertyState) -> None:
    """The consumers' clock is five seconds ahead, and the declared bound is one second."""
    verdict = _judge(
        by_two_clocks(sane(), ahead_us=5 * _SECOND_US),
        declared_us=_SECOND_US * 2,
        thresholds=Thresholds(latency_seconds_max=allowed),
    )

    assert [prop.holding for prop in verdict.properties if prop.anomaly == "H3"] == [holding]


def test_a_fault_without_victim_or_successor_proves_no_recovery() -> None:
    """The first fault hit nothing that had to recover; after the second no call follows."""
    events = sane()
    begun_us = min(event.invoked_at_us or 0 for event in events)
    fault = HistoryEvent(kind=Kind.FAULT.value, queue=QUEUES[0], invoked_at_us=begun_us, responded_at_us=begun_us)

    def recovery(*outcomes: str, ended_us: int = begun_us) -> tuple[int, int]:
        ended = replace(fault, responded_at_us=ended_us)
        faults = [replace(ended, invoked_at_us=begun_us - n, outcome=name) for n, name in enumerate(outcomes)]
        verdict = _judge([*events, *faults], thresholds=Thresholds(recovery_seconds_max=60))
        (found,) = (prop for prop in verdict.properties if prop.anomaly == "H5")
        return found.opportunities, len(verdict.measures["faults"])

    assert recovery("ok", "fail", "ok") == (2, 2)
    assert recovery("fail") == (0, 0)
    assert recovery("ok", ended_us=max(event.responded_at_us or 0 for event in events) + 1) == (0, 1)
