"""No rule is switched off by what does not concern it: each anomaly is found whatever else happened elsewhere.

What mutes a rule has to concern the message, its queue and its time. The circumstances here do not.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from sluice.history.events import Event, Kind
from sluice.judge.checker import Expectation, IdUse, Loss, Move, QueueContext, check_group
from tests.support.anomalies import CASES
from tests.support.histories.by_hand import Case

_BEFORE_US, _HOUR_US = -7_200_000_000, 3_600_000_000
type Around = Callable[[Expectation, QueueContext], tuple[Expectation, QueueContext]]


def _moved(source: str, destination: str, *, is_finished: bool = True) -> Around:
    """Return a move task that was over an hour before the history begins."""
    move = Move(
        source=source,
        destination=destination,
        began_at_us=_BEFORE_US,
        ended_at_us=_BEFORE_US + _HOUR_US,
        is_finished=is_finished,
    )
    return lambda expectation, around: (expectation, replace(around, moves=(*around.moves, move)))


def _purge(queue: str, *, at_us: int = _BEFORE_US) -> Around:
    purge = Loss(queue=queue, began_at_us=at_us, ended_at_us=at_us + 60_000_000, is_certain=True)
    return lambda expectation, around: (expectation, replace(around, purges=(*around.purges, purge)))


def _lost(queue: str) -> Around:
    return lambda expectation, around: (replace(expectation, lost_receives={queue: 1}), around)


def _attached(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
    """Return what is expected of a recording that began an hour before."""
    began_us = dict.fromkeys(expectation.queues, _BEFORE_US)
    return replace(expectation, publishing_began_us=_BEFORE_US, receiving_began_us=began_us), around


def _shared(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
    """Return that other messages share their deduplication ids."""
    use = IdUse(0, 1, "events", ("g3", 0), None)
    return expectation, replace(around, shared_ids={("g1", 9_999): [use], ("g2", 0): [use]})


def _faulty(expectation: Expectation, around: QueueContext) -> tuple[Expectation, QueueContext]:
    fault = Loss(queue="elsewhere", began_at_us=-1, ended_at_us=_HOUR_US)
    return expectation, replace(around, faults=(*around.faults, fault))


_CIRCUMSTANCES: Mapping[str, Around] = {
    "a move task between other queues": _moved("elsewhere-dlq", "elsewhere"),
    "a cancelled move task between other queues": _moved("elsewhere-dlq", "elsewhere", is_finished=False),
    "an earlier move task of the queue": _moved("billing-dlq", "billing"),
    "an earlier purge of the queue": _purge("billing"),
    "an earlier purge of the DLQ": _purge("billing-dlq"),
    "a purge of another queue": _purge("elsewhere", at_us=150_000),
    "a lost receive of another queue": _lost("elsewhere"),
    "a recorder that was attached long before": _attached,
    "deduplication ids that other messages share": _shared,
    "a fault of another queue": _faulty,
}


def _timed(case: Case) -> list[Event]:
    """Return the events with the times of sending: those of the publishes, if they are on record."""
    sent_us = {event.idx: event.invoked_at_us for event in reversed(case.events) if event.kind == Kind.PUBLISHED}
    return [
        replace(event, sent_at_us=event.sent_at_us or sent_us.get(event.idx) or (event.invoked_at_us or 0) - 1_000)
        if event.kind == Kind.RECEIVED
        else event
        for event in case.events
    ]


def _is_shown(case: Case, anomaly: str, does: Around) -> bool:
    expectation, around = does(case.expectation, case.around)
    found = check_group(_timed(case), expectation, around)
    return anomaly in {violation.anomaly for violation in (*found.violations, *found.seen)}


@pytest.mark.parametrize("circumstance", _CIRCUMSTANCES)
def test_what_happens_elsewhere_silences_no_rule(circumstance: str) -> None:
    silent = {anomaly for anomaly, case in CASES.items() if not _is_shown(case, anomaly, _CIRCUMSTANCES[circumstance])}

    assert silent == set()
