"""The checker on histories written by hand: sane, empty, and every judged anomaly once, compared whole."""

from dataclasses import replace

import pytest

from sluice import checker
from sluice.anomalies import JUDGED
from sluice.checker import Finding, RunFacts, check_group, check_run
from sluice.history import Event, Kind
from sluice.verdict import Violation
from tests.histories import END, EXPECTATION, deleted, only, published, received, sane, without, worked_off

NOTHING = Finding(violations=(), unknowns=())


def _violation(anomaly: str, queue: str | None, idxs: tuple[int, ...], sentence: str, *witness: Event) -> Finding:
    return Finding(
        violations=(
            Violation(
                anomaly=anomaly, message_group_id="g1", queue=queue, idxs=idxs, sentence=sentence, witness=witness
            ),
        ),
        unknowns=(),
    )


def _lost() -> tuple[list[Event], Finding]:
    """A1: message 1 is acknowledged and comes from no queue, both drained."""
    history = without(without(sane(), kind="received", idx=1), kind="deleted", idx=1)
    return history, _violation(
        "A1",
        None,
        (1,),
        "acknowledged, and received from none of billing, shipping, all drained",
        only(history, kind="published", idx=1),
        only(history, kind="received", queue="billing", idx=END),
        only(history, kind="received", queue="shipping", idx=END),
    )


def _lost_prefix() -> tuple[list[Event], Finding]:
    """A2: nobody saw the end marker, but message 2 came from billing and message 1 never did."""
    history = without(without(sane(), kind="received", queue="billing", idx=1), idx=END)
    history = without(history, kind="deleted", queue="billing", idx=1)
    return history, _violation(
        "A2",
        "billing",
        (1, 2),
        "the second message was received, the first, before it in the group, never was",
        only(history, kind="published", idx=1),
        only(history, kind="received", queue="billing", idx=2),
    )


def _phantom() -> tuple[list[Event], Finding]:
    """A4: message 2 came although no publish of it was ever tried."""
    history = without(without(sane(), kind="published", idx=2), idx=2, queue="shipping")
    return history, _violation(
        "A4",
        "billing",
        (2,),
        "received, and no publish of it was ever tried",
        only(history, kind="received", queue="billing", idx=2),
    )


def _duplicate_in_window() -> tuple[list[Event], Finding]:
    """B1: message 1 is published twice within a second and is two messages in billing."""
    repeat = published(1, 40, publish_attempt=2)
    copy = received("billing", 1, 200, sqs_message_id="another")
    history = [*sane(), repeat, copy]
    return history, _violation(
        "B1",
        "billing",
        (1,),
        "2 messages of one deduplication id, published within the window",
        only(history, kind="published", idx=1, publish_attempt=1),
        repeat,
        only(history, kind="received", queue="billing", idx=1, sqs_message_id="billing 1"),
        copy,
    )


def _early_redelivery() -> tuple[list[Event], Finding]:
    """B7: message 2 comes again from billing ten seconds later, undeleted, with a lease of thirty."""
    history = without(without(sane(), kind="deleted", idx=2, queue="billing"), queue="billing", idx=END)
    history = without(history, kind="published", idx=END)
    history = without(history, idx=END)
    again = received("billing", 2, 10_140, receive_count=2)
    return [*history, again], _violation(
        "B7",
        "billing",
        (2,),
        "received again while the first receiver certainly still held it",
        only(history, kind="received", queue="billing", idx=2),
        again,
    )


def _reordered() -> tuple[list[Event], Finding]:
    """C1: billing delivers 0, 2, 1."""
    history = [
        *(e for e in sane() if e.queue != "billing"),
        *worked_off("billing", [0, 2, 1, END], 100),
    ]
    return history, _violation(
        "C1",
        "billing",
        (1, 2),
        "the second message was received before the first was asked for",
        only(history, kind="published", idx=1),
        only(history, kind="published", idx=2),
        only(history, kind="received", queue="billing", idx=2),
        only(history, kind="received", queue="billing", idx=1),
    )


def _reordered_in_batch() -> tuple[list[Event], Finding]:
    """C2: one answer of billing holds 2 in front of 1."""
    two = received("billing", 2, 120, call_id="batch")
    one = received("billing", 1, 120, call_id="batch", batch_position=1)
    history = [
        *(e for e in sane() if e.queue != "billing"),
        *worked_off("billing", [0], 100),
        two,
        one,
        deleted(two, 130),
        deleted(one, 130, batch_position=1),
        *worked_off("billing", [END], 160),
    ]
    return history, _violation(
        "C2", "billing", (1, 2), "one answer holds the second message in front of the first", two, one
    )


def _group_overlap() -> tuple[list[Event], Finding]:
    """D1: message 1 comes from billing while 0, undeleted, is leased for thirty seconds."""
    history = without(sane(), kind="deleted", queue="billing", idx=0)
    history = [*history, deleted(only(history, kind="received", queue="billing", idx=0), 115)]
    history = without(history, kind="received", queue="billing", idx=1)
    early = received("billing", 1, 106, took_ms=4)
    history = [*without(history, kind="deleted", queue="billing", idx=1), early, deleted(early, 118)]
    return history, _violation(
        "D1",
        "billing",
        (0, 1),
        "the second message was handed out while the first was certainly held",
        only(history, kind="received", queue="billing", idx=0),
        early,
    )


def _incomplete_fan_out() -> tuple[list[Event], Finding]:
    """E1: message 1 came from shipping, but not from billing, which was drained."""
    history = without(without(sane(), kind="received", queue="billing", idx=1), kind="deleted", queue="billing", idx=1)
    return history, _violation(
        "E1",
        None,
        (1,),
        "received from some queues, but not from billing, which were drained",
        only(history, kind="published", idx=1),
        only(history, kind="received", queue="shipping", idx=1),
        only(history, kind="received", queue="billing", idx=END),
    )


def _corrupted() -> tuple[list[Event], Finding]:
    """G1: billing delivers message 1 with another body."""
    good = only(sane(), kind="received", queue="billing", idx=1)
    bad = replace(good, body_hash="something else")
    history = [bad if event == good else event for event in sane()]
    return history, _violation(
        "G1", "billing", (1,), "the received body is not the published one", only(history, kind="published", idx=1), bad
    )


ANOMALIES = {
    "A1": _lost,
    "A2": _lost_prefix,
    "A4": _phantom,
    "B1": _duplicate_in_window,
    "B7": _early_redelivery,
    "C1": _reordered,
    "C2": _reordered_in_batch,
    "D1": _group_overlap,
    "E1": _incomplete_fan_out,
    "G1": _corrupted,
}


def test_every_judged_anomaly_has_a_history() -> None:
    """What the checker claims to judge is shown here, A6 and H7 by `check_run`."""
    assert {*ANOMALIES, "A6", "H7"} == {anomaly.id for anomaly in JUDGED}


def test_a_sane_history_proves_nothing_wrong() -> None:
    """Three messages and an end marker, in order, through two queues."""
    assert check_group(sane(), EXPECTATION) == NOTHING


def test_an_empty_history_proves_nothing() -> None:
    """No events, no finding; the run as a whole is then unknown, see below."""
    assert check_group([], EXPECTATION) == NOTHING


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_each_anomaly_is_found_once_and_nothing_else(anomaly: str) -> None:
    """The finding is compared whole: anomaly, place, messages, sentence and witness."""
    history, expected = ANOMALIES[anomaly]()

    assert check_group(history, EXPECTATION) == expected


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_without_its_rule_an_anomaly_goes_unnoticed(anomaly: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken checker, one rule short, fails the test above: the histories do tell the rules apart."""
    history, _ = ANOMALIES[anomaly]()
    kept = [rule for rule in checker._RULES if rule.__name__ != ANOMALIES[anomaly].__name__]
    monkeypatch.setattr(checker, "_RULES", kept)

    assert len(kept) == len(ANOMALIES) - 1
    assert check_group(history, EXPECTATION) == NOTHING


@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_the_order_of_the_rows_does_not_matter(shuffle: int) -> None:
    """Events are found in the order of their times, wherever they stand."""
    history, expected = _reordered()

    found = check_group([*history[shuffle * 4 :], *history[: shuffle * 4]], EXPECTATION)

    assert found == expected


def test_a_message_not_yet_drained_is_unknown_not_lost() -> None:
    """Without end marker and without a later message nobody can say whether it is still to come."""
    history = without(without(sane(), idx=END), kind="received", idx=2)

    found = check_group(history, EXPECTATION)

    assert found == Finding(
        violations=(),
        unknowns=(
            "group g1: 1 acknowledged message(s), first 2, not seen in billing, which was not drained",
            "group g1: 1 acknowledged message(s), first 2, not seen in shipping, which was not drained",
        ),
    )


def test_overlapping_calls_prove_no_reorder() -> None:
    """Message 2's call was answered first, but message 1 was asked for before that: either may have left first."""
    two, one = received("billing", 2, 120, took_ms=5), received("billing", 1, 119, took_ms=30)
    history = [
        *(e for e in sane() if e.queue != "billing"),
        *worked_off("billing", [0], 100),
        two,
        one,
        deleted(two, 125),
        deleted(one, 150),
        *worked_off("billing", [END], 180),
    ]

    assert check_group(history, EXPECTATION) == NOTHING


def test_a_redelivery_after_the_lease_is_lawful() -> None:
    """Message 2 comes again from billing, thirty-one seconds later."""
    history = without(without(sane(), kind="deleted", idx=2, queue="billing"), queue="billing", idx=END)
    again = received("billing", 2, 31_140, receive_count=2)
    history = [*history, again, deleted(again, 31_150), *worked_off("billing", [END], 31_200)]

    assert check_group(history, EXPECTATION) == NOTHING


def test_a_failed_delete_does_not_end_a_lease() -> None:
    """The delete of message 0 was refused; message 1 must not come before thirty seconds have passed."""
    history, expected = _group_overlap()
    refused = replace(only(history, kind="deleted", queue="billing", idx=0), outcome="fail", invoked_at_us=106_000)
    history = [*without(history, kind="deleted", queue="billing", idx=0), refused]

    found = check_group(history, EXPECTATION)

    assert found.violations[0] == expected.violations[0]


def test_a_lost_delete_may_have_ended_a_lease() -> None:
    """The answer to the delete of message 0 was lost: message 1 may lawfully come at once."""
    first = received("billing", 0, 100)
    history = [
        *(e for e in sane() if e.queue != "billing"),
        first,
        deleted(first, 108, took_ms=None),
        *worked_off("billing", [1, 2, END], 120),
    ]

    assert check_group(history, EXPECTATION) == NOTHING


def test_a_visibility_change_to_zero_ends_a_lease() -> None:
    """Message 2 is given back and comes again at once."""
    history = without(sane(), queue="billing", kind="deleted", idx=2)
    first = only(history, kind="received", queue="billing", idx=2)
    given_back = replace(deleted(first, 146), kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=0)
    again = received("billing", 2, 152, took_ms=2)
    history = [*history, given_back, again, deleted(again, 155)]

    assert check_group(history, EXPECTATION) == NOTHING


def test_an_extended_lease_lasts_longer() -> None:
    """Message 2's lease is extended to a minute; coming again after forty seconds is early."""
    history = without(without(sane(), queue="billing", kind="deleted", idx=2), idx=END)
    first = only(history, kind="received", queue="billing", idx=2)
    extended = replace(deleted(first, 146), kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=60)
    again = received("billing", 2, 40_000, receive_count=2)

    found = check_group([*history, extended, again], EXPECTATION)

    assert [(v.anomaly, v.witness) for v in found.violations] == [("B7", (first, again))]


def test_two_copies_published_a_window_apart_are_lawful() -> None:
    """The repeat came 301 seconds after the first publish: a new message, by the rules."""
    history = [
        *sane(),
        published(1, 301_000, publish_attempt=2),
        received("billing", 1, 301_100, sqs_message_id="second"),
        received("shipping", 1, 301_100, sqs_message_id="second"),
    ]

    assert check_group(history, EXPECTATION) == NOTHING


def test_two_copies_published_about_a_window_apart_are_unknown() -> None:
    """The first publish took a second to be answered; 300 seconds lie inside the uncertainty."""
    history = [
        *without(sane(), kind="published", idx=1),
        published(1, 10, took_ms=1_000),
        published(1, 300_500, publish_attempt=2),
        received("billing", 1, 300_600, sqs_message_id="second"),
    ]
    history = [
        replace(e, sns_sequence_number="11".zfill(39)) if e.idx == 1 and e.invoked_at_us == 10_000 else e
        for e in history
    ]

    found = check_group(history, EXPECTATION)

    assert found == Finding(
        violations=(), unknowns=("group g1: message 1 came twice from billing, and was published about a window apart",)
    )


def test_a_dead_lettered_message_is_bound_by_neither_order_nor_loss() -> None:
    """Message 1 is found in billing's DLQ: billing owes it to nobody."""
    history = without(without(sane(), queue="billing", idx=1), idx=END, queue="billing")
    history = [*history, *worked_off("billing", [END], 300), received("billing-dlq", 1, 400)]

    assert check_group(history, EXPECTATION) == NOTHING


def test_messages_of_another_run_are_left_to_the_run() -> None:
    """A foreign message in the same group is no phantom; `check_run` makes the verdict unknown."""
    assert check_group([*sane(), received("billing", 77, 300, message_run="older")], EXPECTATION) == NOTHING


@pytest.mark.parametrize("anomaly", ["A1", "A2", "E1"])
def test_where_receives_may_be_missing_absence_proves_nothing(anomaly: str) -> None:
    """A recorder of both queues did not finish: what was not seen is unknown, not lost."""
    history, _ = ANOMALIES[anomaly]()
    why = "whose recorder consume-0 did not finish"

    found = check_group(history, replace(EXPECTATION, unproven_queues={"billing": why, "shipping": why}))

    assert found.violations == ()
    assert all(sentence.endswith(f", {why}") for sentence in found.unknowns)
    assert found.unknowns != ()


def test_where_publishes_may_be_missing_there_are_no_phantoms() -> None:
    """A publisher's journal was torn: a message nobody seems to have published is unknown."""
    history, _ = _phantom()

    found = check_group(history, replace(EXPECTATION, is_publishing_recorded=False))

    assert found == Finding(
        violations=(), unknowns=("group g1: 1 message(s) received whose publishing may not be on record",)
    )


def test_after_a_move_task_duplicates_and_order_are_unknown() -> None:
    """A redriven message lawfully is a new one, behind newer ones; generations are not told apart yet."""
    history, _ = _duplicate_in_window()
    moved = Event(kind=Kind.REDRIVEN.value, message_group_id="g1", call_id="move", queue="billing-dlq")

    found = check_group([*history, moved], EXPECTATION)

    assert found == Finding(
        violations=(), unknowns=("group g1: a move task ran; duplicates and order are not judged in it yet",)
    )


def test_a_publish_that_certainly_failed_does_not_stretch_the_window() -> None:
    """A refused repeat ten minutes later had no effect; the two copies are a duplicate all the same."""
    history, expected = _duplicate_in_window()
    refused = replace(published(1, 600_000), outcome="fail", responded_at_us=None)

    assert check_group([*history, refused], EXPECTATION) == expected


def test_clocks_that_may_differ_prove_less() -> None:
    """With clocks up to a second apart, a reorder of some milliseconds between two hosts is no proof."""
    history, expected = _reordered()
    apart = [replace(e, clock_id=str(e.idx)) if e.kind == "received" else e for e in history]

    assert check_group(apart, replace(EXPECTATION, clock_bound_us=1_000_000)) == NOTHING
    assert [v.anomaly for v in check_group(apart, EXPECTATION).violations] == [v.anomaly for v in expected.violations]


FACTS = RunFacts(
    published_count=10, received_count=20, foreign_count=0, lateness_p99_us=1_000, lateness_budget_us=2_000_000
)


def test_a_run_without_trouble_has_no_reason_for_doubt() -> None:
    """Everything published and received, on time, by recorders that finished."""
    assert check_run(FACTS) == {}


@pytest.mark.parametrize(
    ("facts", "expected"),
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
            replace(FACTS, clock_count=2),
            {None: "2 clocks timed the events, and nothing says how far they are apart"},
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
def test_each_doubt_about_the_run_is_named(facts: RunFacts, expected: dict[str | None, str]) -> None:
    """A6 and H7, and what makes the whole run unknown."""
    assert check_run(facts) == expected
