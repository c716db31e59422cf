"""A recording that begins while the service runs: the questions that stay open, and the violations it still proves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sluice.history.events import CallOutcome, HistoryEvent, Kind, pad_sequence_number
from sluice.judge.checker import Expectation, IdUse, Loss, Move, QueueContext, check_group
from sluice.judge.checker.anomalies import ANOMALIES, Severity
from sluice.judge.checker.clocks import NEVER_US
from tests.support.histories.builders import EXPECTATION, delete_event, publish_event, receive_event
from tests.support.histories.recordings import engine_of

_BEGAN_MS = 1_000_000
_WHOLE = replace(EXPECTATION, queues=("billing",), dead_letter_queues={"billing": "billing-dlq"}, is_planned=False)
_DYING = replace(_WHOLE, max_receive_count={"billing": 3})
_NOTHING_AROUND = QueueContext()


def _expect_late_start(expectation: Expectation) -> Expectation:
    """Return the expectation of a recording that began while the service ran."""
    began_us = _BEGAN_MS * 1_000
    return replace(expectation, publishing_began_us=began_us, receiving_began_us={"billing": began_us})


@dataclass(frozen=True, kw_only=True)
class _BeginningCase:
    """A history that shows an anomaly unless something happened before it began, and one that shows it in any case."""

    anomaly: str
    lawful: Sequence[HistoryEvent]
    wrong: Sequence[HistoryEvent]
    expectation: Expectation = _WHOLE


def _publish_after(idx: int, after_ms: int, **changes: Any) -> HistoryEvent:
    return publish_event(idx, _BEGAN_MS + after_ms, **changes)


def _receive_after(idx: int, after_ms: int, *, sent_ms: int, queue: str = "billing", **changes: Any) -> HistoryEvent:
    """Return a receive `after_ms` after the recording began; its message was sent `sent_ms` after that, or before."""
    fields = {"sent_at_us": (_BEGAN_MS + sent_ms) * 1_000, "visibility_timeout_seconds": 0}
    return receive_event(queue, idx, _BEGAN_MS + after_ms, **{**fields, **changes})


def _number(value: int) -> dict[str, Any]:
    return {"sns_sequence_number": pad_sequence_number(str(value))}


def _queue_number(value: int) -> dict[str, Any]:
    return {"sqs_sequence_number": pad_sequence_number(str(value))}


_RETRIED: dict[str, Any] = {"sqs_message_id": "billing 0 again"}
"""A copy of a message that was published again after its window."""
_NEW = [_publish_after(0, 0, **_number(50)), _receive_after(0, 20, sent_ms=3)]
"""A message that was certainly published for the first time after the beginning."""

CASES: Mapping[str, _BeginningCase] = {
    case.anomaly: case
    for case in (
        _BeginningCase(
            anomaly="A4",
            lawful=[*_NEW, _receive_after(7, 40, sent_ms=-60_000)],
            wrong=[*_NEW, _receive_after(7, 60_000, sent_ms=50_000)],
        ),
        _BeginningCase(
            anomaly="A5",
            lawful=[_publish_after(0, 0, outcome="fail", **_number(1)), _receive_after(0, 40, sent_ms=-60_000)],
            wrong=[_publish_after(0, 0, outcome="fail", **_number(1)), _receive_after(0, 60_000, sent_ms=50_000)],
        ),
        _BeginningCase(
            anomaly="A2",
            lawful=[
                _publish_after(1, 0, **_number(2)),
                _publish_after(2, 10, **_number(60)),
                _receive_after(2, 40, sent_ms=11),
            ],
            wrong=[
                *_NEW,
                _publish_after(1, 30, **_number(60)),
                _publish_after(2, 50, **_number(70)),
                _receive_after(2, 90, sent_ms=51),
            ],
        ),
        _BeginningCase(
            anomaly="B1",
            lawful=[
                _publish_after(0, 0),
                _receive_after(0, 40, sent_ms=-400_000),
                _receive_after(0, 40_000, sent_ms=3, **_RETRIED),
            ],
            wrong=[
                _publish_after(0, 0),
                _receive_after(0, 40, sent_ms=3),
                _receive_after(0, 40_000, sent_ms=3, **_RETRIED),
            ],
        ),
        _BeginningCase(
            anomaly="B5",
            lawful=[
                _publish_after(0, 0, **_number(2)),
                _publish_after(0, 60_000, **_number(80)),
                _receive_after(0, 61_000, sent_ms=60_001),
            ],
            wrong=[*_NEW, _publish_after(0, 60_000, **_number(80))],
        ),
        _BeginningCase(
            anomaly="B8",
            lawful=[
                _publish_after(1, 0),
                _receive_after(0, 40, sent_ms=-60_000, receive_count=4),
                _receive_after(1, 90, sent_ms=3),
            ],
            wrong=[_publish_after(0, 0), _receive_after(0, 40, sent_ms=3), _receive_after(0, 90_000, sent_ms=3)],
            expectation=replace(_WHOLE, is_planned=True),
        ),
        _BeginningCase(
            anomaly="C1",
            lawful=[
                _publish_after(1, 0, **_number(50)),
                _publish_after(0, 10, **_number(60)),
                _receive_after(0, 40, sent_ms=-400_000),
                _receive_after(1, 80_000, sent_ms=3),
                _receive_after(0, 120_000, sent_ms=13, **_RETRIED),
            ],
            wrong=[
                _publish_after(1, 0, **_number(50)),
                _publish_after(0, 10, **_number(60)),
                _receive_after(0, 40, sent_ms=13),
                _receive_after(1, 80_000, sent_ms=3),
            ],
        ),
        _BeginningCase(
            anomaly="C2",
            lawful=[
                _publish_after(1, 0, **_number(50)),
                _publish_after(0, 10, **_number(60)),
                _receive_after(0, 40, sent_ms=-400_000, call_id="one"),
                _receive_after(1, 40, sent_ms=3, call_id="one", batch_position=1),
            ],
            wrong=[
                _publish_after(1, 0, **_number(50)),
                _publish_after(0, 10, **_number(60)),
                _receive_after(0, 40, sent_ms=13, call_id="one"),
                _receive_after(1, 40, sent_ms=3, call_id="one", batch_position=1),
            ],
        ),
        _BeginningCase(
            anomaly="C4",
            lawful=[
                _publish_after(1, 0, **_number(50)),
                _publish_after(0, 10, **_number(60)),
                _receive_after(0, 40, sent_ms=-400_000, **_queue_number(5)),
                _receive_after(1, 80_000, sent_ms=3, **_queue_number(7)),
            ],
            wrong=[
                _publish_after(0, 0, **_number(50)),
                _publish_after(1, 10, **_number(60)),
                _receive_after(0, 40, sent_ms=3, **_queue_number(9)),
                _receive_after(1, 80_000, sent_ms=13, **_queue_number(7)),
            ],
        ),
        _BeginningCase(
            anomaly="C5",
            lawful=[_publish_after(1, 0, **_number(50)), _publish_after(0, 20, **_number(4))],
            wrong=[*_NEW, _publish_after(1, 40, **_number(70)), _publish_after(2, 60, **_number(60))],
        ),
        _BeginningCase(
            anomaly="F1",
            lawful=[
                _publish_after(1, 0),
                _receive_after(
                    0, 40, sent_ms=-60_000, receive_count=3, queue="billing-dlq", sqs_message_id="billing 0"
                ),
            ],
            wrong=[
                _publish_after(0, 0),
                _receive_after(0, 40, sent_ms=3),
                _receive_after(
                    0, 60_000, sent_ms=59_000, receive_count=2, queue="billing-dlq", sqs_message_id="billing 0"
                ),
            ],
            expectation=_DYING,
        ),
        _BeginningCase(
            anomaly="E2",
            lawful=[_publish_after(0, 0, queue="shipping"), _receive_after(0, 40, sent_ms=-60_000)],
            wrong=[_publish_after(0, 0, queue="shipping"), _receive_after(0, 40, sent_ms=3)],
            expectation=replace(_WHOLE, queues=("billing", "shipping")),
        ),
        _BeginningCase(
            anomaly="G1",
            lawful=[_publish_after(0, 0), _receive_after(0, 40, sent_ms=-60_000, body_hash="older")],
            wrong=[_publish_after(0, 0), _receive_after(0, 40, sent_ms=3, body_hash="older")],
        ),
    )
}


def test_a_count_above_the_receives_on_record_may_be_of_another_consumer() -> None:
    """In a load test it is a violation, because every consumer is recorded."""
    events = [publish_event(0, 0), receive_event("billing", 0, 40, receive_count=4)]

    found = check_group(events, _WHOLE, _NOTHING_AROUND)

    assert _safety(events, replace(_WHOLE, is_planned=True)) == {"B8"}
    assert found.violations == ()
    assert [why.rpartition("; ")[2] for why in found.unknowns] == ["others may have received it, unrecorded"]


def _safety(
    events: Sequence[HistoryEvent], expectation: Expectation, around: QueueContext = _NOTHING_AROUND
) -> set[str]:
    found = check_group(events, expectation, around).violations
    return {violation.anomaly for violation in found if ANOMALIES[violation.anomaly].severity is Severity.SAFETY}


@pytest.mark.parametrize("anomaly", CASES)
def test_an_anomaly_that_earlier_events_may_explain_is_left_open(anomaly: str) -> None:
    case = CASES[anomaly]

    found = check_group(case.lawful, _expect_late_start(case.expectation), _NOTHING_AROUND)

    assert anomaly in _safety(case.lawful, case.expectation)
    assert found.violations == ()
    assert any("before the recording began" in why and anomaly in why for why in found.unknowns) or anomaly == "A2"
    assert found.unknowns


@pytest.mark.parametrize("anomaly", CASES)
def test_a_recording_that_began_late_still_proves_later_anomalies(anomaly: str) -> None:
    case = CASES[anomaly]

    assert anomaly in _safety(case.wrong, _expect_late_start(case.expectation))


def test_a_message_without_a_send_time_may_precede_the_recording() -> None:
    case = CASES["A4"]
    timeless = [replace(event, sent_at_us=None) for event in case.wrong]

    assert _safety(case.wrong, _expect_late_start(_WHOLE)) == {"A4"}
    assert _safety(timeless, _expect_late_start(_WHOLE)) == set()


def test_beside_other_producers_every_copy_may_be_theirs() -> None:
    case = CASES["B1"]
    beside = replace(_WHOLE, publishing_began_us=NEVER_US, is_publishing_recorded=False)

    assert _safety(case.lawful, beside) == set()
    assert _safety(case.wrong, beside) == {"B1"}


# --- ids that several messages share ---------------------------------------------------------------------------------


def _shared_id_context(by_ms: tuple[int, int]) -> QueueContext:
    """Return the context in which another message was published under the deduplication id of message 0."""
    return QueueContext(shared_ids={("g1", 0): [IdUse(by_ms[0] * 1_000, by_ms[1] * 1_000, "events", ("g2", 0), None)]})


def test_a_publish_under_anothers_id_may_be_its_repeat() -> None:
    """A deduplication id counts in the whole topic or queue (DED-01, SNS-113): the second publish delivers nothing."""
    events = [
        publish_event(0, 1_000, **_number(3)),
        publish_event(1, 500, **_number(4)),
        publish_event(2, 1_100, **_number(5)),
        receive_event("billing", 1, 2_000),
        receive_event("billing", 2, 40_000),
    ]
    alone, first, later = _NOTHING_AROUND, _shared_id_context((200, 210)), _shared_id_context((1_200, 1_210))

    assert _safety(events, _WHOLE, alone) == {"A2", "C5"}
    assert _safety(events, _WHOLE, first) == set()
    assert _safety(events, _WHOLE, later) == {"A2", "C5"}


@pytest.mark.parametrize("place", ["events", "billing"])
def test_a_lost_message_under_a_shared_id_is_unknown_unless_a_repeat(place: str) -> None:
    """A repeat is answered with the first's message id (SNS-18, DED-10); an answer with another id shows no repeat."""
    name = "sns_message_id" if place == "events" else "sqs_message_id"
    mine: dict[str, Any] = {name: "billing 0"}
    lost = publish_event(0, 1_000, queue=place, deduplication_id="x", **mine)
    repeated = publish_event(7, 500, queue=place, message_group_id="g2", deduplication_id="x", **mine)
    other = replace(repeated, sns_message_id="other", sqs_message_id="other")
    came = receive_event("billing", 0, 1_100, deduplication_id="x")

    found = {}
    for what, events, also in (
        ("lost", [lost], other),
        ("repeat", [lost], repeated),
        ("came", [lost, came], other),
    ):
        around = QueueContext(shared_ids=engine_of([*events, also]).shared_ids())
        found[what] = check_group(events, _WHOLE, around)

    assert {what: finding.violations for what, finding in found.items()} == {"lost": (), "repeat": (), "came": ()}
    assert {what: finding.unknowns for what, finding in found.items()} == {
        "lost": (
            "group g1: 1 acknowledged message(s), first 0, not seen in billing: others were published under the same"
            " deduplication id, and on its scope rests whether it was dropped as a repeat",
        ),
        "repeat": (),
        "came": (),
    }


def test_a_deduplication_id_counts_in_one_queue_only() -> None:
    """Sends of one id to two queues are two messages; a message of a topic may be in both queues."""
    number: dict[str, Any] = {"sns_sequence_number": None, "queue": "billing"}
    mine = [
        publish_event(0, 1_000, **number, **_queue_number(3), deduplication_id="x"),
        publish_event(1, 1_100, **number, **_queue_number(4), sqs_message_id="billing 1"),
        receive_event("billing", 1, 40_000),
    ]
    other = publish_event(7, 500, queue="shipping", message_group_id="g2", deduplication_id="x")

    found = {}
    for place in ("shipping", "billing", "events"):
        shared = engine_of([*mine, replace(other, queue=place)]).shared_ids()
        found[place] = _safety(mine, replace(_WHOLE, queues=("billing", "shipping")), QueueContext(shared_ids=shared))

    assert found == {"shipping": {"A2"}, "billing": set(), "events": set()}


def test_ids_that_repeat_in_each_group_cost_no_more_memory() -> None:
    """Each group numbers its messages, so each id is used in every group; no list holds a use twice."""
    groups, count = 50, 4
    events = [
        publish_event(idx, group + idx, message_group_id=f"g{group}", deduplication_id=str(idx))
        for group in range(groups)
        for idx in range(count)
    ]

    shared = engine_of(events).shared_ids()

    assert len(shared) == len(events)
    assert sum(map(len, {id(uses): uses for uses in shared.values()}.values())) == len(events)


def test_a_message_under_a_shared_id_is_judged_like_any_other() -> None:
    events = [
        publish_event(1, 500, **_number(4)),
        publish_event(0, 1_000, **_number(5)),
        receive_event("billing", 0, 2_000),
        receive_event("billing", 1, 40_000),
    ]

    assert _safety(events, _WHOLE, _shared_id_context((200, 210))) == {"C1"}


# --- copies, purges and dead letters ---------------------------------------------------------------------------------


def test_the_copy_that_remains_after_a_purge_is_the_later_one() -> None:
    """0 is published, purged without a record, and published again behind 1, as the queue's numbers show."""
    events = [
        publish_event(0, 0, **_number(1)),
        publish_event(1, 400_000, **_number(5)),
        publish_event(0, 401_000, **_number(6)),
        receive_event("billing", 1, 402_000, call_id="one", **_queue_number(8)),
        receive_event("billing", 0, 402_000, call_id="one", batch_position=1, **_queue_number(9)),
    ]
    turned = [replace(event, batch_position=1 - (event.batch_position or 0)) for event in events[3:]]
    purged = QueueContext(purges=(Loss(queue="billing", began_at_us=10_000_000, ended_at_us=70_000_000),))
    nameless = [replace(event, sqs_sequence_number=None) for event in events]

    assert _safety(events, _WHOLE, purged) == set()
    assert _safety(nameless, _WHOLE, purged) == set()
    assert _safety([*events[:3], *turned], _WHOLE, purged) == {"C2"}


def _dead(idx: int, at_ms: int, **changes: Any) -> HistoryEvent:
    ids = {"sqs_message_id": f"billing {idx}", "deduplication_id": f"billing {idx}"}
    return receive_event("billing-dlq", idx, at_ms, **{**ids, "receive_count": 4, **changes})


def test_a_second_copy_after_a_dead_letter_is_not_the_dead_letter() -> None:
    """0 is published twice, a window apart; one copy dies, the other arrives, and a task brings the first one back."""
    events = [
        publish_event(0, 0, **_number(1)),
        publish_event(0, 400_000, **_number(6)),
        *(
            receive_event("billing", 0, at_ms, receive_count=count)
            for count, at_ms in enumerate((100, 31_000, 62_000), 1)
        ),
        _dead(0, 405_000),
        receive_event("billing", 0, 410_000, **_RETRIED),
        receive_event("billing", 0, 700_000, sqs_message_id="billing 0 moved"),
    ]
    task = Move(source="billing-dlq", destination="billing", began_at_us=600_000_000, ended_at_us=601_000_000)

    assert _safety(events, _DYING, QueueContext(moves=(task,))) == set()
    assert "F13" in _safety([*events[:1], *events[2:6], events[7]], _DYING)


# --- what move tasks bring back --------------------------------------------------------------------------------------

_DIED = [
    publish_event(0, 0, **_number(1)),
    publish_event(1, 10, **_number(2)),
    *(
        receive_event("billing", idx, at_ms, receive_count=count, visibility_timeout_seconds=1)
        for idx, from_ms in ((0, 1_000), (1, 10_000))
        for count, at_ms in enumerate((from_ms, from_ms + 2_000, from_ms + 4_000), 1)
    ),
]


def _task(began_ms: int, *, is_finished: bool = True) -> Move:
    return Move(
        source="billing-dlq",
        destination="billing",
        began_at_us=began_ms * 1_000,
        ended_at_us=(began_ms + 1_000) * 1_000,
        is_finished=is_finished,
    )


def _receive_moved(idx: int, at_ms: int, **changes: Any) -> HistoryEvent:
    return receive_event("billing", idx, at_ms, **{"sqs_message_id": f"moved {idx}", **changes})


_TASKS = {
    "finished": (_task(50_000),),
    "cancelled": (_task(50_000, is_finished=False),),
    "one of two": (_task(50_000), _task(400_000)),
    "after one that was cancelled": (_task(40_000, is_finished=False), _task(50_000)),
    "after one to another queue": (replace(_task(40_000), destination="quarantine"), _task(50_000)),
}


@pytest.mark.parametrize("tasks", _TASKS)
def test_dead_letters_of_one_answer_come_back_in_its_order(tasks: str) -> None:
    looked = [_dead(0, 20_000, call_id="look"), _dead(1, 20_000, call_id="look", batch_position=1)]
    back = [_receive_moved(1, 60_000), _receive_moved(0, 100_000)]
    right = [_receive_moved(0, 60_000), _receive_moved(1, 100_000)]
    around = QueueContext(moves=_TASKS[tasks])

    assert _safety([*_DIED, *looked, *back], _DYING, around) == {"F10"}
    assert _safety([*_DIED, *looked, *right], _DYING, around) == set()


@pytest.mark.parametrize("tasks", _TASKS)
def test_a_dead_letter_that_came_back_has_left_its_dlq(tasks: str) -> None:
    """Even if it is deleted from the DLQ in the end."""
    looked, still = _dead(0, 20_000), _dead(0, 120_000, receive_count=5, receipt_handle_hash="still")
    events = [*_DIED, looked, _receive_moved(0, 60_000), still]
    around = QueueContext(moves=_TASKS[tasks])

    assert _safety(events, _DYING, around) == {"F9"}
    assert _safety([*events, delete_event(still, 121_000)], _DYING, around) == {"F9"}
    assert _safety([*_DIED, looked, _receive_moved(0, 60_000)], _DYING, around) == set()


_SHARING = replace(
    _DYING, queues=("billing", "shipping"), dead_letter_queues=dict.fromkeys(("billing", "shipping"), "billing-dlq")
)
_TO_BOTH = (_task(50_000), replace(_task(50_000), destination="shipping"))
"""A task without a destination, from the DLQ that two queues share."""


def test_a_shared_dlq_is_judged_for_each_queue_alone() -> None:
    """Shipping's copies are in the DLQ in the opposite order, which is wrong there (F7).

    They return to shipping, and prove nothing about billing.
    """
    others = [
        receive_event("billing-dlq", idx, at_ms, sqs_message_id=f"shipping {idx}", deduplication_id=f"shipping {idx}")
        for idx, at_ms in ((1, 30_000), (0, 31_000))
    ]
    answer: dict[str, Any] = {"call_id": "both", "visibility_timeout_seconds": 1}
    died_in_shipping = [receive_event("shipping", idx, 12_000, batch_position=idx, **answer) for idx in (0, 1)]
    died = [*_DIED, *died_in_shipping, _dead(0, 20_000), _dead(1, 21_000)]
    back = [_receive_moved(1, 60_000), _receive_moved(0, 100_000)]
    right = [_receive_moved(0, 60_000), _receive_moved(1, 100_000)]
    around = QueueContext(moves=_TO_BOTH)

    assert _safety([*died, *back], _SHARING, around) == {"F10"}
    assert _safety([*died, *others, *right], _SHARING, around) == {"F7"}


def test_copies_that_another_dlq_sent_prove_no_order_and_no_duplicate() -> None:
    """Both messages also died in another queue, and a task from that queue's DLQ brought copies of them here."""
    looked = [_dead(0, 20_000), _dead(1, 21_000)]
    copies = [_receive_moved(1, 60_000, sqs_message_id="copy 1"), _receive_moved(0, 100_000, sqs_message_id="copy 0")]
    back = [_receive_moved(0, 140_000), _receive_moved(1, 180_000)]
    of_another = replace(_task(50_000), source="elsewhere-dlq")

    assert _safety([*_DIED, *looked, *copies, *back], _DYING, QueueContext(moves=(_task(50_000),))) == {"F9", "F10"}
    assert _safety([*_DIED, *looked, *copies, *back], _DYING, QueueContext(moves=(_task(50_000), of_another))) == set()


def test_a_dead_letter_that_was_deleted_does_not_come_back() -> None:
    """A task that began before the delete may have moved it first."""
    looked = _dead(0, 20_000, visibility_timeout_seconds=30)
    events = [*_DIED, looked, delete_event(looked, 30_000), _receive_moved(0, 60_000)]

    assert _safety(events, _DYING, QueueContext(moves=(_task(50_000),))) == {"F13"}
    assert _safety(events, _DYING, QueueContext(moves=(_task(25_000),))) == set()


@pytest.mark.parametrize("earlier", [(), (_task(-300_000),)], ids=["no task before", "a task before it all"])
def test_a_move_task_leaves_open_only_messages_it_may_have_sent(earlier: Sequence[Move]) -> None:
    """The recording began an hour before: no copy is older, and no earlier task can have sent the later publishes."""
    hour_before_us = -3_600_000_000
    began = replace(_DYING, publishing_began_us=hour_before_us, receiving_began_us={"billing": hour_before_us})
    looked = [_dead(0, 20_000), _dead(1, 21_000)]
    back = [_receive_moved(1, 60_000), _receive_moved(0, 100_000)]
    events = [
        replace(event, sent_at_us=51_000_000 if "moved" in (event.sqs_message_id or "") else 1_000)
        if event.kind == Kind.RECEIVED
        else event
        for event in [*_DIED, *looked, *back]
    ]

    assert _safety(events, began, QueueContext(moves=(*earlier, _task(50_000)))) == {"F10"}


# --- deletes, holds and purges ---------------------------------------------------------------------------------------


def test_a_dlq_has_to_keep_the_promises_of_a_queue() -> None:
    held = {"visibility_timeout_seconds": 60}
    first = _dead(0, 20_000, **held)
    again = _dead(0, 90_000, receive_count=5, **held)
    second = _dead(1, 30_000, **held)

    assert _safety([*_DIED, first, delete_event(first, 21_000), again], _DYING) == {"A8"}
    assert _safety([*_DIED, first, second], _DYING) == {"D1"}
    assert _safety([*_DIED, first, replace(second, worker="other")], _DYING) == {"D2"}
    assert _safety([*_DIED, first, again], _DYING) == set()


@pytest.mark.parametrize("seen", ["received before", "sent before", "acknowledged before"])
def test_a_purge_removes_what_was_in_the_queue(seen: str) -> None:
    straight: dict[str, Any] = {"queue": "billing", "sns_sequence_number": None, "sqs_message_id": "billing 0"}
    is_straight, is_received = seen == "acknowledged before", seen == "received before"
    publish = publish_event(0, 0, **straight) if is_straight else publish_event(0, 0)
    before = [receive_event("billing", 0, 1_000)] if is_received else []
    late = receive_event("billing", 0, 200_000, receive_count=1 + len(before))
    late = replace(late, sent_at_us=5_000) if seen == "sent before" else late
    purge = Loss(queue="billing", began_at_us=50_000_000, ended_at_us=111_000_000, is_certain=True)
    unknown, elsewhere = replace(purge, is_certain=False), replace(purge, queue="shipping")

    assert _safety([publish, *before, late], _WHOLE, QueueContext(purges=(purge,))) == {"A8"}
    assert _safety([publish, *before, late], _WHOLE, QueueContext(purges=(unknown,))) == set()
    assert _safety([publish, *before, late], _WHOLE, QueueContext(purges=(elsewhere,))) == set()


# --- what a publish was acknowledged with ----------------------------------------------------------------------------


def test_a_message_has_the_id_and_number_of_its_acknowledgement() -> None:
    acknowledged = {"sqs_message_id": "billing 0", **_queue_number(5), "sns_sequence_number": None}
    sent = publish_event(0, 0, queue="billing", **acknowledged)
    right = receive_event("billing", 0, 100, **_queue_number(5))

    assert _safety([sent, right], _WHOLE) == set()
    assert _safety([sent, replace(right, sqs_message_id="another")], _WHOLE) == {"G4"}
    assert _safety([sent, replace(right, **_queue_number(6))], _WHOLE) == {"G4"}
    assert _safety([sent, replace(right, sqs_sequence_number=None)], _WHOLE) == set()


def test_an_unanswered_publish_gets_its_sequence_number_from_the_envelope() -> None:
    first = publish_event(0, 0, **_number(10))
    unanswered = publish_event(1, 100, took_ms=None)
    came = [receive_event("billing", 0, 200), receive_event("billing", 1, 40_000, **_number(7), sns_message_id="m")]
    in_order = [came[0], replace(came[1], **_number(12))]

    assert unanswered.outcome == CallOutcome.INFO
    assert unanswered.kind == Kind.PUBLISHED
    assert _safety([first, unanswered, *came], _WHOLE) == {"C5"}
    assert _safety([first, unanswered, *in_order], _WHOLE) == set()
