"""F: dead letters and their way back. Message 1 of billing dies after three receives, unless said otherwise."""

from dataclasses import replace
from typing import Any

from sluice.history.events import HistoryEvent
from sluice.judge.checker import Activity, Move, QueueContext
from tests.support.histories.builders import (
    END,
    EXPECTATION,
    WITHOUT_BILLING,
    Case,
    consume_events,
    delete_event,
    receive_event,
)

_THREE = replace(EXPECTATION, max_receive_count={"billing": 3, "shipping": 3})
_MOVE = Move(source="billing-dlq", destination="billing", began_at_us=300_000_000, ended_at_us=301_000_000)
_MOVED = QueueContext(moves=(_MOVE,))


def _attempts(idx: int, *, from_ms: int, times: int = 3) -> list[HistoryEvent]:
    """Return a message being received and given up again and again, 31 seconds each."""
    return [receive_event("billing", idx, from_ms + index * 31_000, receive_count=index + 1) for index in range(times)]


def _dead(idx: int, at_ms: int, **changes: Any) -> HistoryEvent:
    """Return a message being read from billing's DLQ."""
    fields = {"sqs_message_id": f"billing {idx}", "deduplication_id": f"billing {idx}"}
    return receive_event("billing-dlq", idx, at_ms, **(fields | changes))


def _death(times: int = 3) -> list[HistoryEvent]:
    """Return message 1 dying, and the rest of billing coming afterwards."""
    return [
        *WITHOUT_BILLING,
        *consume_events("billing", [0], 100),
        *_attempts(1, from_ms=120, times=times),
        *consume_events("billing", [2, END], 200_000),
    ]


def _first(history: list[HistoryEvent], idx: int) -> HistoryEvent:
    return next(event for event in history if (event.kind, event.queue, event.idx) == ("received", "billing", idx))


def _case(anomaly: str, events: list[HistoryEvent], **more: Any) -> Case:
    fields: dict[str, Any] = {"expectation": _THREE, "idxs": (1,), "also_seen": frozenset({"B6"})}
    return Case(anomaly=anomaly, events=events, **(fields | more))


def _premature() -> Case:
    """Violation: a message is dead after two receives. Near miss: after three."""
    return _case(
        "F1",
        [*_death(times=2), _dead(1, 210_000)],
        sentence="dead-lettered after 2 receive(s), 3 were allowed",
        witness=(*_attempts(1, from_ms=120, times=2), _dead(1, 210_000)),
        near_miss=[*_death(), _dead(1, 210_000)],
    )


def _late() -> Case:
    """Violation: a message is received a fourth time. Near miss: it is dead after three."""
    history = _death(times=4)
    return _case(
        "F2",
        [*history, delete_event(_attempts(1, from_ms=120, times=4)[-1], 94_000)],
        sentence="delivered the 4th time, and 3 were allowed",
        witness=tuple(_attempts(1, from_ms=120, times=4)[-3:]),
        near_miss=[*_death(), _dead(1, 210_000)],
    )


def _absent() -> Case:
    """Violation: after three receives and later polls the message is not in the DLQ. Near miss: it is there."""
    polled = {
        "billing": [
            Activity(second=second, served_count=0, empty_count=1, answered_by_us=second * 1_000_000)
            for second in range(99, 120)
        ]
    }
    return _case(
        "F3",
        _death(),
        around=QueueContext(activity=polled, empty_since_us={"billing-dlq": 250_000_000}),
        sentence="used up its 3 receives, was not deleted, and never was in billing-dlq",
        witness=tuple(_attempts(1, from_ms=120)),
        near_miss=[*_death(), _dead(1, 210_000)],
    )


def _wrong_target() -> Case:
    """Violation: billing's dead letter is in shipping's DLQ. Near miss: it is in billing's."""
    stray = replace(_dead(1, 210_000), queue="shipping-dlq")
    return _case(
        "F4",
        [*_death(), stray],
        sentence="a message of billing was found in shipping-dlq",
        witness=(_attempts(1, from_ms=120)[0], stray),
        near_miss=[*_death(), _dead(1, 210_000)],
    )


def _after_delete() -> Case:
    """Violation: a message is dead although it was deleted in its last lease. Near miss: the delete came too late."""
    last = _attempts(1, from_ms=120)[-1]
    in_time, too_late = delete_event(last, 70_000), delete_event(last, 93_000)
    return _case(
        "F5",
        [*_death(), in_time, _dead(1, 210_000)],
        sentence="dead-lettered after it was deleted",
        witness=(last, in_time, _dead(1, 210_000)),
        near_miss=[*_death(), too_late, _dead(1, 210_000)],
    )


def _content() -> Case:
    """Violation: a dead letter has its published deduplication id. Near miss: it has its message id."""
    kept = _dead(1, 210_000, deduplication_id="r.1")
    return _case(
        "F6",
        [*_death(), kept],
        sentence="in the DLQ its deduplication id is r.1, and not its message id",
        witness=(_attempts(1, from_ms=120)[0], kept),
        near_miss=[*_death(), _dead(1, 210_000)],
    )


def _both_died() -> list[HistoryEvent]:
    """Return messages 1 and 2 dying, one after the other."""
    tried = [*_attempts(1, from_ms=120), *_attempts(2, from_ms=100_000)]
    return [
        *WITHOUT_BILLING,
        *consume_events("billing", [0], 100),
        *tried,
        *consume_events("billing", [END], 200_000),
    ]


def _order() -> Case:
    """Violation: messages 1 and 2 die in this order, and 2 stands before 1 in the DLQ. Near miss: behind it."""
    history = _both_died()
    return _case(
        "F7",
        [*history, _dead(2, 210_000), _dead(1, 210_100)],
        idxs=(1, 2),
        sentence="the first stood before the second in the queue, and stands behind it in the DLQ",
        witness=(_first(history, 1), _first(history, 2), _dead(2, 210_000), _dead(1, 210_100)),
        near_miss=[*history, _dead(1, 210_000), _dead(2, 210_100)],
    )


def _back(idx: int, at_ms: int, **changes: Any) -> list[HistoryEvent]:
    """Return a redriven message being received and deleted, under a new id."""
    receive = receive_event("billing", idx, at_ms, **({"sqs_message_id": f"billing {idx} again"} | changes))
    return [receive, delete_event(receive, at_ms + 10)]


def _redrive_loss() -> Case:
    """Violation: a moved message is received from no queue, and both are empty. Near miss: it is received."""
    history = [*_death(), _dead(1, 210_000)]
    empty = {"billing": 400_000_000, "billing-dlq": 400_000_000}
    return _case(
        "F8",
        history,
        around=QueueContext(moves=(_MOVE,), empty_since_us=empty),
        sentence="brought back from billing-dlq, and in neither queue since",
        witness=(_first(history, 1), _dead(1, 210_000)),
        near_miss=[*history, *_back(1, 302_000)],
    )


def _redrive_duplicate() -> Case:
    """Violation: a moved message is two messages afterwards. Near miss: it is one."""
    history = [*_death(), _dead(1, 210_000), *_back(1, 302_000)]
    other = _back(1, 303_000, sqs_message_id="and again")
    return _case(
        "F9",
        [*history, *other],
        around=_MOVED,
        sentence="brought back once, and 2 messages since",
        witness=(_dead(1, 210_000), other[0], _back(1, 302_000)[0]),
        near_miss=history,
    )


def _redrive_reorder() -> Case:
    """Violation: dead letters 1 and 2 are moved back as 2 and 1. Near miss: as 1 and 2."""
    dead = [_dead(1, 210_000), _dead(2, 210_100)]
    return _case(
        "F10",
        [*_both_died(), *dead, *_back(2, 302_000), *_back(1, 302_100)],
        around=_MOVED,
        idxs=(1, 2),
        sentence="the first stood before the second in the DLQ, and came back behind it",
        witness=(*dead, _back(2, 302_000)[0], _back(1, 302_100)[0]),
        near_miss=[*_both_died(), *dead, *_back(1, 302_000), *_back(2, 302_100)],
    )


def _stale_identity() -> Case:
    """Violation: a moved message keeps its message id. Near miss: it has another one."""
    history, kept = [*_death(), _dead(1, 210_000)], _back(1, 302_000, sqs_message_id="billing 1")
    return _case(
        "F11",
        [*history, *kept],
        around=_MOVED,
        sentence="came back from the DLQ with the message id it had there",
        witness=(_dead(1, 210_000), kept[0]),
        near_miss=[*history, *_back(1, 302_000)],
    )


def _escape() -> Case:
    """Violation: a dead letter returns as another message without a move task. Near miss: a move task moved it."""
    history = [*_death(), _dead(1, 210_000), *_back(1, 302_000)]
    return _case(
        "F13",
        history,
        sentence="was in billing-dlq, came back to billing, and no move task is on record",
        witness=(_dead(1, 210_000), _back(1, 302_000)[0]),
        near_miss=history,
        near_around=_MOVED,
    )


def _poison_escape() -> Case:
    """Violation: message 2 is behind message 1 in all three answers, and both die. Near miss: once it came alone."""
    poison, behind = _attempts(1, from_ms=120), [replace(item, batch_position=1) for item in _attempts(2, from_ms=120)]
    rest = [
        *WITHOUT_BILLING,
        *consume_events("billing", [0], 100),
        *consume_events("billing", [END], 200_000),
        *poison,
    ]
    dead = [_dead(1, 210_000), _dead(2, 210_100)]
    alone = receive_event("billing", 2, 93_000, receive_count=3)
    return _case(
        "F12",
        [*rest, *behind, *dead],
        idxs=(1, 2),
        sentence="the second was dead-lettered, and in every answer it stood behind the first, which was too",
        witness=(poison[0], behind[0], dead[1]),
        near_miss=[*rest, *behind[:2], alone, *dead],
    )


CASES = [
    _premature(),
    _late(),
    _absent(),
    _wrong_target(),
    _after_delete(),
    _content(),
    _order(),
    _redrive_loss(),
    _redrive_duplicate(),
    _redrive_reorder(),
    _stale_identity(),
    _poison_escape(),
    _escape(),
]
