"""D: one receiver at a time. H1 and H2: no standing still."""

from dataclasses import replace
from typing import Any

from sluice.history.events import HistoryEvent, answer_detail
from sluice.judge.checker import Activity, QueueContext
from tests.support.histories.builders import (
    END,
    EXPECTATION,
    WITHOUT_BILLING,
    Case,
    consume_events,
    delete_event,
    publish_of,
    receive_event,
    receive_of,
    sane,
)


def _busy(queue: str, *, from_second: int, until_second: int, served: int, empty: int = 0) -> QueueContext:
    """Return a queue with this many served and empty receives in each of these seconds."""
    return QueueContext(
        activity={
            queue: [
                Activity(
                    second=second, served_count=served, empty_count=empty, answered_by_us=(second + 1) * 1_000_000 - 1
                )
                for second in range(from_second, until_second)
            ]
        }
    )


def _overlap(worker: str) -> tuple[list[HistoryEvent], HistoryEvent, HistoryEvent]:
    """Return message 1 coming from billing while 0, undeleted, is leased for thirty seconds."""
    first = receive_of(sane(), 0)
    early = receive_event("billing", 1, 106, took_ms=4, worker=worker)
    rest = [event for event in sane() if (event.queue, event.idx) not in (("billing", 0), ("billing", 1))]
    return [*rest, first, delete_event(first, 115), early, delete_event(early, 118)], first, early


def _group_overlap() -> Case:
    """Violation: a worker receives 1 while another holds 0. Near miss: a delete of 0 without an answer came before."""
    history, first, early = _overlap("consume-billing")
    return Case(
        anomaly="D1",
        events=history,
        idxs=(0, 1),
        sentence="the second message was handed out while the first had certainly not left the queue",
        witness=(first, early),
        near_miss=[*history, delete_event(first, 105, took_ms=None, call_id="lost")],
    )


def _group_interleave() -> Case:
    """Another worker is handed 1 while the first holds 0; or the first's lease was a millisecond."""
    history, first, early = _overlap("another")
    return Case(
        anomaly="D2",
        events=history,
        idxs=(0, 1),
        sentence="the second message was handed out while the first had certainly not left the queue",
        witness=(first, early),
        near_miss=[replace(e, visibility_timeout_seconds=0) if e == first else e for e in history],
    )


def _left_waiting(until_ms: int) -> list[HistoryEvent]:
    """Return billing's message 2, enqueued at once, received only then."""
    rest = [event for event in sane() if (event.queue, event.idx) not in (("billing", 2), ("billing", END))]
    late = receive_event("billing", 2, until_ms, sent_at_us=25_000)
    return [*rest, late, delete_event(late, until_ms + 10), *consume_events("billing", [END], until_ms + 100)]


def _case_passed_over() -> Case:
    """Violation: billing serves other groups for eight seconds, five are allowed. Near miss: it serves none."""
    history = _left_waiting(10_000)
    return Case(
        anomaly="D3",
        events=history,
        expectation=replace(EXPECTATION, passed_over_seconds_max=5),
        around=_busy("billing", from_second=0, until_second=20, served=2),
        idxs=(2,),
        sentence="passed over for 9.0 s, allowed are 5 s, and 16 receives were served",
        witness=(publish_of(history, 2), receive_of(history, 2)),
        near_miss=history,
        near_around=_busy("billing", from_second=0, until_second=20, served=0),
    )


def _case_blocked_after_dead_letter() -> Case:
    """Violation: nothing behind dead message 1 is received in many polls. Near miss: billing is not polled."""
    history = [*WITHOUT_BILLING, *consume_events("billing", [0], 100)]
    item = receive_event("billing", 1, 120)
    dead = receive_event("billing-dlq", 1, 40_000, sqs_message_id="billing 1", deduplication_id="billing 1")
    return Case(
        anomaly="D4",
        events=[*history, item, dead],
        around=_busy("billing", from_second=50, until_second=60, served=0, empty=1),
        idxs=(1, 2, END),
        sentence="behind the dead letter 2 message(s) were never received, though the queue was polled",
        witness=(dead, publish_of(history, 2)),
        near_miss=[*history, item, dead],
        near_around=QueueContext(),
    )


def _batch_underfill() -> Case:
    """Seen: four receives of up to ten return one message each while the next is available.

    Near miss: one returns two.
    """
    alone: dict[str, Any] = {"max_number_of_messages": 10, "detail": answer_detail(1), "sent_at_us": 30_000}

    def singly(*, together: bool) -> list[HistoryEvent]:
        receives = [
            receive_event("billing", idx, 2_000 + index * 20, **alone) for index, idx in enumerate([0, 1, 2, END])
        ]
        if together:
            receives[3] = replace(receive_event("billing", END, 2_040, **alone), batch_position=1)
        ends = [delete_event(receive, 2_008 + index * 20) for index, receive in enumerate(receives)]
        return [*WITHOUT_BILLING, *receives, *ends]

    history = singly(together=False)
    return Case(
        anomaly="D5",
        events=history,
        idxs=(0, 1),
        sentence="3 receives that asked for more brought one message while the next was in the queue",
        witness=tuple(receive_of(history, idx) for idx in (0, 1)),
        near_miss=singly(together=True),
    )


def _case_stuck() -> Case:
    """Violation: for a minute billing is polled and does not deliver message 2. Near miss: it is not polled.

    In each second one receive brings a message of another group. Message 2 waits longer than both limits allow: five
    seconds for being passed over (D3), thirty for being stuck (H1). Such a wait counts as stuck only.
    """
    history = _left_waiting(60_000)
    return Case(
        anomaly="H1",
        events=history,
        expectation=replace(EXPECTATION, passed_over_seconds_max=5, stuck_seconds_max=30),
        around=_busy("billing", from_second=0, until_second=70, served=1),
        idxs=(2,),
        sentence="stood still for 59.0 s, allowed are 30 s, while the queue was asked 58 times",
        witness=(publish_of(history, 2), receive_of(history, 2)),
        near_miss=history,
        near_around=QueueContext(),
    )


def _false_empty() -> Case:
    """Violation: a long poll of billing is empty while message 2 is available. Near miss: the poll began before."""
    history = _left_waiting(10_000)
    return Case(
        anomaly="H2",
        events=history,
        around=_busy("billing", from_second=3, until_second=5, served=0, empty=1),
        idxs=(2,),
        sentence="2 long poll(s) came back empty while the message was there for all of their time",
        witness=(publish_of(history, 2), receive_of(history, 2)),
        near_miss=history,
        near_around=_busy("billing", from_second=0, until_second=2, served=0, empty=1),
    )


CASES = [
    _group_overlap(),
    _group_interleave(),
    _case_passed_over(),
    _case_blocked_after_dead_letter(),
    _batch_underfill(),
    _case_stuck(),
    _false_empty(),
]
