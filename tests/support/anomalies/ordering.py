"""C: order within a group."""

from dataclasses import replace

from sluice.history.events import HistoryEvent, pad_sequence_number
from tests.support.histories.builders import (
    END,
    QUEUES,
    WITHOUT_BILLING,
    Case,
    consume_events,
    delete_event,
    only,
    publish_event,
    publish_of,
    receive_event,
    receive_of,
    sane,
    without,
)


def _case_reordered() -> Case:
    """Violation: billing delivers 0, 2, 1.

    Near miss: the publishes of 1 and 2 had no answer, so their order is unknown.
    """
    history = [*WITHOUT_BILLING, *consume_events("billing", [0, 2, 1, END], 100)]
    return Case(
        anomaly="C1",
        events=history,
        idxs=(1, 2),
        sentence="the second message was received before the first was asked for",
        witness=(publish_of(history, 1), publish_of(history, 2), receive_of(history, 2), receive_of(history, 1)),
        also_seen=frozenset({"A7"}),
        near_miss=[
            *(
                publish_event(0, 0),
                publish_event(1, 10, took_ms=None),
                publish_event(2, 20, took_ms=None),
                publish_event(END, 30),
            ),
            *(event for queue in QUEUES for event in consume_events(queue, [0, 2, 1, END], 100)),
        ],
    )


def _case_reordered_in_batch() -> Case:
    """Violation: one answer of billing has 2 before 1. Near miss: behind it."""
    two, first = (
        receive_event("billing", 2, 120, call_id="batch"),
        receive_event("billing", 1, 120, call_id="batch", batch_position=1),
    )
    rest = [*WITHOUT_BILLING, *consume_events("billing", [0], 100), *consume_events("billing", [END], 160)]
    deletes = [delete_event(two, 130), delete_event(first, 130, batch_position=1)]
    return Case(
        anomaly="C2",
        events=[*rest, two, first, *deletes],
        idxs=(1, 2),
        sentence="one answer holds the second message in front of the first",
        witness=(two, first),
        near_miss=[*rest, replace(two, batch_position=1), replace(first, batch_position=0), *deletes],
    )


def _head_skip() -> Case:
    """Violation: after an abandoned answer with 1 and 2, message 2 is redelivered before 1. Near miss: behind it."""
    single, two = (
        receive_event("billing", 1, 120, call_id="batch"),
        receive_event("billing", 2, 120, call_id="batch", batch_position=1),
    )
    rest = [
        *WITHOUT_BILLING,
        *consume_events("billing", [0], 100),
        *consume_events("billing", [END], 32_000),
        single,
        two,
    ]

    def again(first: int, second: int) -> list[HistoryEvent]:
        receives = [
            receive_event("billing", idx, received_ms, receive_count=2)
            for idx, received_ms in ((first, 31_000), (second, 31_100))
        ]
        return [
            event
            for receive in receives
            for event in (receive, delete_event(receive, (receive.invoked_at_us or 0) // 1_000 + 10))
        ]

    return Case(
        anomaly="C3",
        events=[*rest, *again(2, 1)],
        idxs=(1, 2),
        sentence="the second message was received while the first, before it, was available again",
        witness=(single, only(again(2, 1), kind="received", idx=2), only(again(2, 1), kind="received", idx=1)),
        near_miss=[*rest, *again(1, 2)],
        also_seen=frozenset({"B6"}),
    )


def _sqs_sequence() -> Case:
    """Billing numbers message 2 below message 1; or above it."""

    def history_with(two: str) -> list[HistoryEvent]:
        numbers = {0: "10", 1: "20", 2: two}
        return [
            replace(event, sqs_sequence_number=pad_sequence_number(numbers.get(event.idx or 0, "99")))
            if (event.kind, event.queue) == ("received", "billing")
            else event
            for event in sane()
        ]

    return Case(
        anomaly="C4",
        events=history_with("15"),
        idxs=(1, 2),
        sentence="the queue gave the second message no higher sequence number than the first",
        witness=tuple(only(history_with("15"), kind="received", queue="billing", idx=idx) for idx in (1, 2)),
        near_miss=history_with("25"),
    )


def _sns_sequence() -> Case:
    """Message 2 is published after 1 was acknowledged, numbered below it and received before it; or asked before."""
    rest = [event for event in sane() if event.kind == "published" and event.idx != 2]
    low = publish_event(2, 20, sns_sequence_number=pad_sequence_number("5"))
    received_so = [*consume_events("billing", [0, 2, 1, END], 100), *consume_events("shipping", [0, 2, 1, END], 105)]
    return Case(
        anomaly="C5",
        events=[*rest, low, *received_so],
        queue=None,
        idxs=(1, 2),
        sentence="the second message, published after the first was acknowledged, has no higher sequence number",
        witness=(publish_of(rest, 1), low),
        near_miss=sane(),
    )


def _fan_out_divergence() -> Case:
    """Violation: billing delivers 1, 2 and shipping 2, 1, published without answers. Near miss: both deliver 1, 2."""
    rest = [
        *(event for event in sane() if event.kind == "published" and event.idx not in (1, 2)),
        publish_event(1, 10, took_ms=None),
        publish_event(2, 20, took_ms=None),
    ]
    billing, shipping = (
        consume_events("billing", [0, 1, 2, END], 100),
        consume_events("shipping", [0, 2, 1, END], 105),
    )
    return Case(
        anomaly="C6",
        events=[*rest, *billing, *shipping],
        queue=None,
        idxs=(1, 2),
        sentence="billing delivered the first before the second, shipping the second before the first",
        witness=(
            only(billing, kind="received", idx=1),
            only(billing, kind="received", idx=2),
            only(shipping, kind="received", idx=2),
            only(shipping, kind="received", idx=1),
        ),
        near_miss=[*rest, *billing, *consume_events("shipping", [0, 1, 2, END], 105)],
        also_seen=frozenset({"A7"}),
    )


def _producer_reorder() -> Case:
    """Violation: message 2 is published before 1 is acknowledged. Near miss: behind 1 in one call."""
    early = publish_event(2, 12, took_ms=13, sns_sequence_number=pad_sequence_number("21"))
    rest = without(sane(), kind="published", idx=2)
    together = [
        publish_event(1, 10, call_id="both", batch_position=0),
        publish_event(2, 10, call_id="both", batch_position=1),
    ]
    together[1] = replace(together[1], sns_sequence_number=pad_sequence_number("12"))
    return Case(
        anomaly="C7",
        events=[*rest, early],
        queue=None,
        idxs=(1, 2),
        sentence="the second message was published before the first was acknowledged",
        witness=(publish_of(rest, 1), early),
        near_miss=[*without(rest, kind="published", idx=1), *together],
    )


CASES = [
    _case_reordered(),
    _case_reordered_in_batch(),
    _head_skip(),
    _sqs_sequence(),
    _sns_sequence(),
    _fan_out_divergence(),
    _producer_reorder(),
]
