"""The checker on histories written by hand: lawful ones, empty ones, and one for every judged anomaly."""

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from sluice.history.events import HistoryEvent, Kind
from sluice.judge import checker
from sluice.judge.checker import (
    Activity,
    Finding,
    Loss,
    MeasuredValues,
    Move,
    QueueContext,
    RunCounts,
    Thresholds,
    check_group,
    check_run,
    check_thresholds,
    queue_context,
)
from sluice.judge.checker.anomalies import JUDGED
from tests.support.anomalies import CASES
from tests.support.histories.builders import (
    END,
    EXPECTATION,
    WITHOUT_BILLING,
    consume_events,
    delete_event,
    full,
    only,
    publish_event,
    receive_event,
    receive_of,
    sane,
    without,
)
from tests.support.histories.recorded_services import activity_of

NOTHING = Finding(violations=(), unknowns=())


def test_every_judged_anomaly_has_a_history() -> None:
    assert {*CASES, *checker.OF_THE_RUN} == {anomaly.id for anomaly in JUDGED}


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="empty"),
        pytest.param(sane(), id="sane"),
        pytest.param(full(), id="full"),
        # no phantom: `check_run` makes the verdict unknown
        pytest.param(
            [*sane(), receive_event("billing", 77, 300, message_run="older")], id="with a message of another run"
        ),
    ],
)
def test_a_lawful_history_shows_no_anomaly(history: list[HistoryEvent]) -> None:
    expectation = replace(EXPECTATION, effects_recorded=("billing",)) if history == full() else EXPECTATION

    assert check_group(history, expectation) == NOTHING


@pytest.mark.parametrize("anomaly", CASES)
def test_each_anomaly_is_found_once_and_nothing_else(anomaly: str) -> None:
    case = CASES[anomaly]

    found = check_group(case.events, case.expectation, case.around)

    assert case.violations_of(found) == [case.violation]
    assert found.unknowns == ()
    assert 1 <= len(case.witness) <= 6
    assert set(case.witness) <= set(case.events)


@pytest.mark.parametrize("anomaly", CASES)
def test_a_history_that_is_nearly_an_anomaly_shows_none(anomaly: str) -> None:
    """A near miss that is lawful or not certain is no violation."""
    case = CASES[anomaly]

    found = check_group(case.near_miss, case.near_expectation or case.expectation, case.near_around or case.around)

    assert case.violations_of(found) == []


@pytest.mark.parametrize("anomaly", CASES)
def test_without_its_rule_an_anomaly_goes_unnoticed(anomaly: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker without one rule must fail the test above, so the histories distinguish the rules."""
    case = CASES[anomaly]
    monkeypatch.setattr(checker, "RULES", {id_: rule for id_, rule in checker.RULES.items() if id_ != anomaly})

    assert case.violations_of(check_group(case.events, case.expectation, case.around)) == []


@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_the_order_of_the_rows_does_not_matter(shuffle: int) -> None:
    history = CASES["C1"].events

    found = check_group([*history[shuffle * 4 :], *history[: shuffle * 4]], EXPECTATION)

    assert found.violations == (CASES["C1"].violation,)


def test_a_message_not_yet_drained_is_unknown_not_lost() -> None:
    """Without an end marker and without a later message, it may still arrive."""
    history = without(without(sane(), idx=END), kind="received", idx=2)

    found = check_group(history, EXPECTATION)

    assert found == Finding(
        violations=(),
        unknowns=(
            "group g1: 1 acknowledged message(s), first 2, not seen in billing, which was not drained",
            "group g1: 1 acknowledged message(s), first 2, not seen in shipping, which was not drained",
        ),
    )


def test_a_redelivery_after_the_lease_is_lawful() -> None:
    history = without(without(sane(), kind="deleted", idx=2, queue="billing"), queue="billing", idx=END)
    again = receive_event("billing", 2, 31_140, receive_count=2)
    history = [*history, again, delete_event(again, 31_150), *consume_events("billing", [END], 31_200)]

    assert check_group(history, EXPECTATION).violations == ()


def test_a_failed_delete_does_not_end_a_lease() -> None:
    """The delete of message 0 was refused, so message 1 must not arrive before the 30 seconds of the lease are over."""
    history = list(CASES["D1"].events)
    refused = replace(only(history, kind="deleted", queue="billing", idx=0), outcome="fail", invoked_at_us=106_000)
    history = [*without(history, kind="deleted", queue="billing", idx=0), refused]

    found = check_group(history, EXPECTATION)

    assert found.violations[0] == CASES["D1"].violation


def test_a_lost_delete_may_have_ended_a_lease() -> None:
    """The answer to the delete of message 0 was lost, so message 1 may lawfully arrive at once."""
    first = receive_event("billing", 0, 100)
    history = [
        *WITHOUT_BILLING,
        first,
        delete_event(first, 108, took_ms=None),
        *consume_events("billing", [1, 2, END], 120),
    ]

    assert check_group(history, EXPECTATION) == NOTHING


def test_a_visibility_change_to_zero_ends_a_lease() -> None:
    history = without(sane(), queue="billing", kind="deleted", idx=2)
    first = receive_of(history, 2)
    given_back = replace(delete_event(first, 146), kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=0)
    again = receive_event("billing", 2, 152, took_ms=2, receive_count=2)
    history = [*history, given_back, again, delete_event(again, 155)]

    assert check_group(history, EXPECTATION).violations == ()


def test_an_extended_lease_lasts_longer() -> None:
    history = without(without(sane(), queue="billing", kind="deleted", idx=2), idx=END)
    first = receive_of(history, 2)
    extended = replace(delete_event(first, 146), kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=60)
    again = receive_event("billing", 2, 40_000, receive_count=2)

    found = check_group([*history, extended, again], EXPECTATION)

    assert [(v.anomaly, v.witness) for v in found.violations] == [("B7", (first, extended, again))]


def _visibility_change(receive: HistoryEvent, at_ms: int, seconds: int, **fields: Any) -> HistoryEvent:
    changed = delete_event(receive, at_ms, call_id=f"hide/{at_ms}", **fields)
    return replace(changed, kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=seconds)


@pytest.mark.parametrize(
    ("overlap_ms", "shown"),
    [
        pytest.param(15_000, [], id="within its own time nothing else proves the hold"),
        pytest.param(40_000, [10_000], id="what comes later does not"),
        pytest.param(80_000, [50_000], id="of two the one that held it"),
    ],
)
def test_a_witness_has_the_change_that_held_the_group(overlap_ms: int, shown: list[int]) -> None:
    first = receive_event("billing", 0, 100)
    changes = {at_ms: _visibility_change(first, at_ms, 60) for at_ms in (10_000, 50_000)}
    failed = _visibility_change(first, overlap_ms - 100, 600, outcome="fail")
    other = receive_event("billing", 1, overlap_ms)
    history = [*WITHOUT_BILLING, first, *changes.values(), failed, other, delete_event(first, 100_000)]

    found = [violation for violation in check_group(history, EXPECTATION).violations if violation.anomaly == "D1"]

    assert [violation.witness for violation in found] == [(first, *(changes[at_ms] for at_ms in shown), other)]


@pytest.mark.parametrize("is_late", [True, False])
def test_a_witness_has_the_change_that_made_a_late_delete_count(*, is_late: bool) -> None:
    """A lease lasts 30 s; a delete after that counts only because of the visibility change, which the witness shows."""
    history = without(without(sane(), queue="billing", kind="deleted", idx=2), idx=END)
    first = receive_of(history, 2)
    extended, delete = _visibility_change(first, 10_000, 60), delete_event(first, 40_000 if is_late else 20_000)
    again = receive_event("billing", 2, 50_000, receive_count=2)

    found = check_group([*history, extended, delete, again], EXPECTATION)

    shown = (first, extended, delete, again) if is_late else (first, delete, again)
    assert [(v.anomaly, v.witness) for v in found.violations] == [("A8", shown)]


def test_two_copies_published_about_a_window_apart_are_unknown() -> None:
    """The first publish took a second to be answered, so the two may be more or less than 300 seconds apart."""
    history = [
        *without(sane(), kind="published", idx=1),
        publish_event(1, 10, took_ms=1_000),
        publish_event(1, 300_500, publish_attempt=2),
        receive_event("billing", 1, 300_600, sqs_message_id="second"),
    ]
    history = [
        replace(e, sns_sequence_number="11".zfill(39)) if e.idx == 1 and e.invoked_at_us == 10_000 else e
        for e in history
    ]

    found = check_group(history, EXPECTATION)

    assert found.unknowns == ("group g1: message 1 came twice from billing, and was published about a window apart",)
    assert "B1" not in {violation.anomaly for violation in found.violations}


def test_a_dead_lettered_message_is_bound_by_neither_order_nor_loss() -> None:
    """Message 1 is in billing's DLQ, so billing need not deliver it."""
    history = without(without(sane(), queue="billing", idx=1), idx=END, queue="billing")
    history = [*history, *consume_events("billing", [END], 300), receive_event("billing-dlq", 1, 400)]

    assert check_group(history, EXPECTATION) == NOTHING


def test_a_dead_letter_that_nobody_published_is_a_phantom_and_nothing_else() -> None:
    """The rules that look up when it was published must not fail, or invent a publish."""
    phantom = receive_event("billing", 99, 250, body_hash="b")
    dead = replace(phantom, queue="billing-dlq", deduplication_id=phantom.sqs_message_id)
    history = [*sane(), phantom, dead]

    found = check_group(history, EXPECTATION)

    assert {violation.anomaly for violation in found.violations} == {"A4"}


@pytest.mark.parametrize("anomaly", ["A1", "A2", "E1"])
def test_a_missing_receive_proves_nothing_if_receives_may_be_unrecorded(anomaly: str) -> None:
    history = CASES[anomaly].events
    why = "whose recorder consume-0 did not finish"

    found = check_group(history, replace(EXPECTATION, unproven_queues={"billing": why, "shipping": why}))

    assert found.violations == ()
    assert all(sentence.endswith(f", {why}") for sentence in found.unknowns)
    assert found.unknowns != ()


def test_an_empty_poll_proves_nothing_if_the_queues_delay_is_unknown() -> None:
    """The delay may be as long as the group's quickest message took; until then a message may be hidden lawfully.

    The same events violate H2 if the delay is known to be 0.
    """
    case = CASES["H2"]

    found = check_group(case.events, replace(case.expectation, delay_seconds={"billing": None}), case.around)

    assert case.violations_of(found) == []


def test_no_message_is_a_phantom_if_publishes_may_be_missing() -> None:
    history = CASES["A4"].events

    found = check_group(history, replace(EXPECTATION, is_publishing_recorded=False))

    assert found == Finding(
        violations=(), unknowns=("group g1: 1 message(s) received whose publishing may not be on record",)
    )


def test_a_message_missing_from_the_dlq_is_unknown_after_a_move() -> None:
    """The move task may have brought it back to its queue, behind newer messages, without a record."""
    moved = QueueContext(
        moves=(Move(source="billing-dlq", destination="billing", began_at_us=180_000, ended_at_us=190_000),)
    )

    found = check_group(CASES["B1"].events, EXPECTATION, moved)

    assert found == Finding(
        violations=(),
        unknowns=(
            "group g1: 1 message(s) may have come back to billing with a move task, and were not seen in its DLQ:"
            " duplicates and order are not judged for them",
        ),
    )


def test_a_publish_that_certainly_failed_does_not_stretch_the_window() -> None:
    """A refused repeat ten minutes later had no effect, so the two copies are still a duplicate."""
    history = CASES["B1"].events
    refused = replace(publish_event(1, 600_000), outcome="fail", responded_at_us=None)

    assert check_group([*history, refused], EXPECTATION).violations == (CASES["B1"].violation,)


def test_order_by_two_clocks_is_unknown_within_their_difference() -> None:
    """With clocks up to a second apart, a reorder of some milliseconds between two hosts is no proof."""
    history = CASES["C1"].events
    apart = [replace(e, clock_id=str(e.idx)) if e.kind == "received" else e for e in history]

    found = check_group(apart, replace(EXPECTATION, clock_bound_us=1_000_000))

    assert found.violations == ()
    assert found.unknowns == (
        "group g1: 5 clocks timed it, up to 1000 ms apart, and on that rests whether it shows C1, D1",
    )
    assert [v.anomaly for v in check_group(apart, EXPECTATION).violations] == ["C1"]


FACTS = RunCounts(
    published_count=10, received_count=20, foreign_count=0, lateness_p99_us=1_000, lateness_budget_us=2_000_000
)


def test_a_run_without_faults_of_its_own_is_trusted() -> None:
    assert check_run(FACTS) == {}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            replace(FACTS, published_count=0, received_count=0, lateness_p99_us=None),
            {None: "0 message(s) acknowledged and 0 received: nothing to judge"},
        ),
        (replace(FACTS, received_count=0), {None: "10 message(s) acknowledged and 0 received: nothing to judge"}),
        (replace(FACTS, unclosed_journals=("consume-1",)), {None: "1 recorder(s) did not finish: consume-1"}),
        (replace(FACTS, unpublished_count=3), {None: "3 planned message(s) were not published"}),
        (
            replace(FACTS, unpublished_count=3, failed_calls={"Throttled": 2, "BatchRequestTooLong": 9}),
            {None: "3 planned message(s) were not published (9 calls failed with BatchRequestTooLong)"},
        ),
        (
            replace(FACTS, foreign_count=2),
            {"A6": "2 message(s) of another run were received: the run was not isolated"},
        ),
        (
            replace(FACTS, lateness_p99_us=2_500_000),
            {
                "H7": "the generator was late: 99 % of publishes within 2.50 s of their time,"
                " allowed are 2.00 s; offer a lower rate"
            },
        ),
    ],
)
def test_each_fault_of_the_run_itself_is_named(counts: RunCounts, expected: dict[str | None, str]) -> None:
    assert check_run(counts) == expected


def test_only_crossed_thresholds_are_named() -> None:
    measured = MeasuredValues(
        latency_us={"billing": 1_000_000},
        drained_in_seconds={"billing": 60},
        recovered_in_seconds={"outage": 5},
        call_count=100,
        throttled_count=1,
    )
    just = Thresholds(latency_seconds_max=1, drain_seconds_max=60, recovery_seconds_max=5, throttled_share_max=0.01)

    assert check_thresholds(measured, just) == {}
    assert check_thresholds(measured, Thresholds()) == {}


def test_each_crossed_threshold_is_named() -> None:
    measured = MeasuredValues(
        latency_us={"billing": 2_500_000, "shipping": 900_000},
        drained_in_seconds={"billing": 61},
        recovered_in_seconds={"outage": 5.5},
        call_count=100,
        throttled_count=2,
    )
    thresholds = Thresholds(
        latency_seconds_max=1, drain_seconds_max=60, recovery_seconds_max=5, throttled_share_max=0.01
    )

    assert check_thresholds(measured, thresholds) == {
        "H3": ("latency in billing was 2.50 s, allowed are 1 s",),
        "H4": ("drain of billing was 61.00 s, allowed are 60 s",),
        "H5": ("recovery from outage was 5.50 s, allowed are 5 s",),
        "H6": ("2 of 100 calls were throttled (2.0%), allowed are 1.0%",),
    }


def _poll(at_ms: int, received_count: int, *, took_ms: int = 100, wait_seconds: int | None = 1) -> HistoryEvent:
    return HistoryEvent(
        kind=Kind.POLL.value,
        queue="billing",
        invoked_at_us=at_ms * 1_000,
        responded_at_us=(at_ms + took_ms) * 1_000,
        wait_time_seconds=wait_seconds,
        detail=f'{{"received": {received_count}}}',
    )


def _probe(at_ms: int, visible_count: int) -> HistoryEvent:
    return HistoryEvent(
        kind=Kind.PROBE.value,
        queue="billing-dlq",
        invoked_at_us=at_ms * 1_000,
        responded_at_us=at_ms * 1_000,
        visible_count=visible_count,
        in_flight_count=0,
        delayed_count=0,
    )


def test_the_receives_of_a_second_are_counted_together() -> None:
    polls = (_poll(1_100, 3), _poll(1_500, 0, took_ms=1_000), _poll(1_900, 0, wait_seconds=None), _poll(2_000, 1))

    around = QueueContext(activity=activity_of(polls))

    assert around.activity == {
        "billing": [
            Activity(second=1, served_count=1, empty_count=1, answered_by_us=2_500_000),
            Activity(second=2, served_count=1, empty_count=0, answered_by_us=2_100_000),
        ]
    }
    assert around.polls("billing", from_us=1_000_000, until_us=3_000_000) == (2, 1)
    assert around.polls("billing", from_us=1_000_001, until_us=3_000_000) == (1, 0)
    assert around.polls("billing", from_us=1_000_000, until_us=2_499_999) == (0, 0)
    assert around.last_poll_us("billing") == 2_500_000


def test_the_queue_context_has_move_tasks_lossy_faults_and_empty_queues() -> None:
    """A fault that failed or is not lossy is left out. A queue is empty since the first of its last empty probes."""
    span: dict[str, Any] = {"invoked_at_us": 5_000_000, "responded_at_us": 6_000_000}
    move = HistoryEvent(kind=Kind.REDRIVEN.value, queue="billing-dlq", detail='{"destination": "billing"}', **span)
    fault = HistoryEvent(kind=Kind.FAULT.value, queue="shipping", detail='{"is_lossy": true}', **span)

    around = queue_context(
        [
            *(_probe(1_000, 0), _probe(2_000, 4), _probe(3_000, 0), _probe(4_000, 0), _probe(5_000, 0)),
            move,
            replace(move, outcome="info"),
            fault,
            replace(fault, detail=None),
            replace(fault, outcome="fail"),
        ]
    )

    finished = Move(source="billing-dlq", destination="billing", began_at_us=5_000_000, ended_at_us=6_000_000)
    assert around == QueueContext(
        moves=(finished, replace(finished, is_finished=False)),
        faults=(Loss(queue="shipping", began_at_us=5_000_000, ended_at_us=6_000_000),),
        empty_since_us={"billing-dlq": 3_000_000},
    )


@pytest.mark.parametrize(
    ("deleted_at_ms", "found"),
    [(32_000, set()), (None, {"A3"}), (29_000, {"A8"})],
    ids=["deleted after the second receive", "not deleted", "deleted within the first lease"],
)
def test_a_delete_with_an_older_handle_may_have_worked(deleted_at_ms: int | None, found: set[str]) -> None:
    """The worker was paused before its delete; meanwhile another worker received the message, and was killed."""
    history = [publish_event(idx, place * 10) for place, idx in enumerate((0, 1, 2, END))]
    first = receive_event("billing", 0, 100, receipt_handle_hash="first", receive_count=1)
    history += [first, receive_event("billing", 0, 31_000, receipt_handle_hash="second", receive_count=2)]
    history += [] if deleted_at_ms is None else [delete_event(first, deleted_at_ms)]
    history += consume_events("billing", [1, 2, END], 70_000) + consume_events("shipping", [0, 1, 2, END], 100)

    finding = check_group(history, replace(EXPECTATION, max_receive_count={"billing": 5}))

    assert {violation.anomaly for violation in finding.violations} == found


def test_a_delete_with_an_older_handle_failed_if_the_message_returns() -> None:
    """So the message was in its queue all the time, and the messages behind it passed it."""
    history = [publish_event(idx, place * 10) for place, idx in enumerate((0, 1, 2, END))]
    first = receive_event("billing", 0, 100, receipt_handle_hash="first", receive_count=1)
    second = receive_event("billing", 0, 31_000, receipt_handle_hash="second", receive_count=2)
    third = receive_event("billing", 0, 80_000, receipt_handle_hash="third", receive_count=3)
    history += [first, second, delete_event(first, 32_000), *consume_events("billing", [1], 70_000), third]
    history += [delete_event(third, 80_100), *consume_events("billing", [2, END], 81_000)]
    history += consume_events("shipping", [0, 1, 2, END], 100)

    finding = check_group(history, replace(EXPECTATION, max_receive_count={"billing": 5}))

    assert {violation.anomaly for violation in finding.violations} == {"C3"}


def _calls_to_judge(count: int) -> int:
    """Return the number of function calls that the checker makes to judge a group of `count` messages."""
    history = [publish_event(idx, idx * 10) for idx in range(count)]
    history += [event for queue in ("billing", "shipping") for event in consume_events(queue, list(range(count)), 100)]
    calls = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(see)
    try:
        check_group(history, EXPECTATION)
    finally:
        sys.setprofile(None)
    return calls


def test_a_hot_group_takes_work_in_proportion_to_its_size() -> None:
    """Four times the messages need about four times the work; comparing all pairs would need sixteen times."""
    assert _calls_to_judge(1_000) < 5 * _calls_to_judge(250)
