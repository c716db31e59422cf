"""A circumstance, such as a move task, silences only its own rules; each other anomaly is still found."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker import Expectation, IdUse, Loss, Move, QueueContext, check_group
from sluice.judge.checker.clocks import NEVER_US
from tests.support.anomalies import CASES
from tests.support.histories.builders import Case

_BEFORE_US, _HOUR_US = -7_200_000_000, 3_600_000_000
type Around = Callable[[Expectation, QueueContext], tuple[Expectation, QueueContext]]


def _move_task(source: str, destination: str, *, is_finished: bool = True, at_us: int = _BEFORE_US) -> Around:
    """Return a move task: one that ended an hour before the history begins, or one that runs for an hour."""
    move = Move(
        source=source,
        destination=destination,
        began_at_us=at_us,
        ended_at_us=at_us + _HOUR_US,
        is_finished=is_finished,
    )
    return lambda expectation, around: (expectation, replace(around, moves=(*around.moves, move)))


def _purge(queue: str, *, at_us: int = _BEFORE_US, for_us: int = 60_000_000) -> Around:
    purge = Loss(queue=queue, began_at_us=at_us, ended_at_us=at_us + for_us, is_certain=True)
    return lambda expectation, around: (expectation, replace(around, purges=(*around.purges, purge)))


def _with_lost_receive(queue: str, count: int = 1) -> Around:
    return lambda expectation, around: (replace(expectation, lost_receives={queue: count}), around)


def _with_late_start(at_us: int) -> Around:
    """Return the expectation of a recording that began at a given time."""

    def attach(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
        began_us = dict.fromkeys(expectation.queues, at_us)
        return replace(expectation, publishing_began_us=at_us, receiving_began_us=began_us), around

    return attach


def _with_other_consumers(queue: str) -> Around:
    return lambda expectation, around: (
        replace(expectation, unproven_queues={queue: "others"}, receiving_began_us={queue: NEVER_US}),
        around,
    )


def _with_other_producers(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
    return replace(expectation, is_publishing_recorded=False, publishing_began_us=NEVER_US), around


def _with_shared_ids(*of: tuple[str, int]) -> Around:
    """Return a context in which other messages were published under the same deduplication ids."""
    use = IdUse(-1, 0, "events", ("g3", 0), None)
    return lambda expectation, around: (expectation, replace(around, shared_ids={message: [use] for message in of}))


def _with_fault(queue: str) -> Around:
    fault = Loss(queue=queue, began_at_us=-1, ended_at_us=_HOUR_US)
    return lambda expectation, around: (expectation, replace(around, faults=(*around.faults, fault)))


def _with_retention_of_a_minute(*queues: str) -> Around:
    return lambda expectation, around: (replace(expectation, retention_seconds=dict.fromkeys(queues, 60)), around)


def _without_timeouts(*queues: str) -> Around:
    def forget(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
        known = {name: of for name, of in expectation.visibility_timeout_seconds.items() if name not in queues}
        return replace(expectation, visibility_timeout_seconds=known), around

    return forget


def _without_max_receive_counts(*queues: str) -> Around:
    def forget(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
        known = {name: of for name, of in expectation.max_receive_count.items() if name not in queues}
        return replace(expectation, max_receive_count=known), around

    return forget


def _without_plan(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
    return replace(expectation, is_planned=False), around


def _with_clocks_apart(bound_us: int) -> Around:
    return lambda expectation, around: (replace(expectation, clock_bound_us=bound_us), around)


_CIRCUMSTANCES: Mapping[str, Around] = {
    "a move task between other queues": _move_task("elsewhere-dlq", "elsewhere"),
    "a cancelled move task between other queues": _move_task("elsewhere-dlq", "elsewhere", is_finished=False),
    "an earlier move task of the queue": _move_task("billing-dlq", "billing"),
    "an earlier purge of the queue": _purge("billing"),
    "an earlier purge of the DLQ": _purge("billing-dlq"),
    "a purge of another queue": _purge("elsewhere", at_us=150_000),
    "a lost receive of another queue": _with_lost_receive("elsewhere"),
    "other consumers of another queue": _with_other_consumers("elsewhere"),
    "a recorder that was attached long before": _with_late_start(_BEFORE_US),
    "deduplication ids that other messages share": _with_shared_ids(("g1", 9_999), ("g2", 0)),
    "a fault of another queue": _with_fault("elsewhere"),
    "a minute of retention in another queue": _with_retention_of_a_minute("elsewhere"),
    "a timeout of another queue that is not known": _without_timeouts("elsewhere"),
    "maxReceiveCount of another queue that is not known": _without_max_receive_counts("elsewhere"),
    "clocks a microsecond apart": _with_clocks_apart(1),
}

_QUEUES = ("billing", "shipping")
_MUTED: Mapping[str, tuple[Around, str]] = {
    "a move task of its DLQ meanwhile": (
        _move_task("billing-dlq", "billing", is_finished=False, at_us=-1),
        "B1 B2 C3 F13 F2 F3 F7 F8 F9",  # a copy may be brought back, behind others, with a count of its own
    ),
    "a move task of another DLQ meanwhile": (
        _move_task("elsewhere-dlq", "billing", is_finished=False, at_us=-1),
        "B1 B2 C3 F10 F13 F2 F3 F7 F9",  # what came may be a copy that died in another queue
    ),
    "a purge of the queue meanwhile": (
        _purge("billing", at_us=-1, for_us=_HOUR_US),
        "A2 A3 B3 D1 D2 D4 E1 F3 F8",  # what is not there may have been removed
    ),
    "a purge of the DLQ meanwhile": (_purge("billing-dlq", at_us=-1, for_us=_HOUR_US), "F3 F8"),
    "receives without an answer": (
        _with_lost_receive("billing", 9),
        "A2 A3 B8 D3 E1 F1 F10 H1 H2",  # they may have counted, held, and used up what is missed
    ),
    "other consumers": (
        _with_other_consumers("billing"),
        "A2 A3 B3 B8 D3 D4 E1 F1 F10 F3 F8 F9 H1 H2",  # they may have what is missed
    ),
    "other producers": (_with_other_producers, "A4 A5 F13"),  # they may have published what came
    "a recorder that was attached afterwards": (
        _with_late_start(_HOUR_US),
        "A1 A2 A4 A5 B8 D3 E1 F1 H1 H2",  # it may have come, and have been published, before
    ),
    "deduplication ids that are shared": (
        _with_shared_ids(*(("g1", idx) for idx in range(10))),
        "A1 A2 B3 B5 E1 E5",  # it may have been dropped for the other message
    ),
    "a fault of the queue that loses messages": (_with_fault("billing"), "A2 E1"),
    "a minute of retention": (_with_retention_of_a_minute("billing", "billing-dlq"), "F3 F8"),
    "a timeout that is not known": (
        _without_timeouts(*_QUEUES),
        "A3 A8 B7 C3 D1 D2 F3 F5 R4",  # nothing is certainly held
    ),
    "maxReceiveCount that is not known": (
        _without_max_receive_counts(*_QUEUES),
        "A3 F1 F2 F3",  # each receive may have been the last
    ),
    "messages that nobody planned": (_without_plan, "B8 C7"),  # more may have received, and no order was meant
    "clocks that nobody knows to be how far apart": (
        _with_clocks_apart(NEVER_US),
        "D3 D4 D5 F10 F3 F8 F9 H1 H2",  # what is around the group is of other clocks
    ),
}
"""Of each circumstance the anomalies that it mutes: a rule that gains another one has to be added, with its reason."""


def _with_sent_times(case: Case) -> list[HistoryEvent]:
    """Return the events with times of sending: those of their publishes, if the publishes are recorded."""
    sent_us = {event.idx: event.invoked_at_us for event in reversed(case.events) if event.kind == Kind.PUBLISHED}
    return [
        replace(event, sent_at_us=event.sent_at_us or sent_us.get(event.idx) or (event.invoked_at_us or 0) - 1_000)
        if event.kind == Kind.RECEIVED
        else event
        for event in case.events
    ]


def _is_shown(case: Case, anomaly: str, apply: Around) -> bool:
    expectation, around = apply(case.expectation, case.around)
    found = check_group(_with_sent_times(case), expectation, around)
    return anomaly in {violation.anomaly for violation in (*found.violations, *found.seen)}


@pytest.mark.parametrize("circumstance", _MUTED)
def test_each_circumstance_mutes_exactly_its_rules(circumstance: str) -> None:
    apply, muted = _MUTED[circumstance]

    silent = {anomaly for anomaly, case in CASES.items() if not _is_shown(case, anomaly, apply)}

    assert silent == {*muted.split()}


@pytest.mark.parametrize("circumstance", _CIRCUMSTANCES)
def test_events_elsewhere_silence_no_rule(circumstance: str) -> None:
    silent = {anomaly for anomaly, case in CASES.items() if not _is_shown(case, anomaly, _CIRCUMSTANCES[circumstance])}

    assert silent == set()


@pytest.mark.parametrize("anomaly", ["B8", "C1", "C2", "C4", "F2"])
def test_a_move_task_that_began_later_silences_no_rule(anomaly: str) -> None:
    """Although a copy arrived later that the task may have brought."""
    case = CASES[anomaly]
    shown = check_group(_with_sent_times(case), case.expectation, case.around).violations
    witness = [event for violation in shown if violation.anomaly == anomaly for event in violation.witness]
    last = max(
        (event for event in witness if event.kind == Kind.RECEIVED), key=lambda event: event.responded_at_us or 0
    )
    at_us = (last.responded_at_us or 0) + 1_000
    copies = [
        replace(
            event,
            call_id=f"moved {number}",
            sqs_message_id=f"moved {number}",
            receipt_handle_hash=f"moved {number}",
            sqs_sequence_number=None,
            receive_count=1,
            invoked_at_us=at_us + _HOUR_US,
            responded_at_us=at_us + _HOUR_US + 1_000,
        )
        for number, event in enumerate(witness)
        if event.kind == Kind.RECEIVED
    ]
    apply = _move_task(f"{last.queue}-dlq", last.queue or "", is_finished=False, at_us=at_us)

    found = check_group([*_with_sent_times(case), *copies], *apply(case.expectation, case.around))

    assert anomaly in {violation.anomaly for violation in found.violations}
