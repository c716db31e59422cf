"""C: order within a group."""

from dataclasses import replace

from sluice.history.events import Event, pad_sequence_number
from tests.support.histories.by_hand import (
    END,
    QUEUES,
    WITHOUT_BILLING,
    Case,
    deleted,
    only,
    publish_of,
    published,
    receive_of,
    received,
    sane,
    without,
    worked_off,
)


def _reordered() -> Case:
    """Billing delivers 0, 2, 1; or nobody knows the order of 1 and 2, whose publishes were not answered."""
    history = [*WITHOUT_BILLING, *worked_off("billing", [0, 2, 1, END], 100)]
    return Case(
        anomaly="C1",
        events=history,
        idxs=(1, 2),
        sentence="the second message was received before the first was asked for",
        witness=(publish_of(history, 1), publish_of(history, 2), receive_of(history, 2), receive_of(history, 1)),
        also_seen=frozenset({"A7"}),
        near_miss=[
            *(published(0, 0), published(1, 10, took_ms=None), published(2, 20, took_ms=None), published(END, 30)),
            *(event for queue in QUEUES for event in worked_off(queue, [0, 2, 1, END], 100)),
        ],
    )


def _reordered_in_batch() -> Case:
    """One answer of billing holds 2 in front of 1; or behind it."""
    two, first = (
        received("billing", 2, 120, call_id="batch"),
        received("billing", 1, 120, call_id="batch", batch_position=1),
    )
    rest = [*WITHOUT_BILLING, *worked_off("billing", [0], 100), *worked_off("billing", [END], 160)]
    deletes = [deleted(two, 130), deleted(first, 130, batch_position=1)]
    return Case(
        anomaly="C2",
        events=[*rest, two, first, *deletes],
        idxs=(1, 2),
        sentence="one answer holds the second message in front of the first",
        witness=(two, first),
        near_miss=[*rest, replace(two, batch_position=1), replace(first, batch_position=0), *deletes],
    )


def _head_skip() -> Case:
    """An answer with 1 and 2 is abandoned; 2 comes again before 1, or behind it."""
    single, two = (
        received("billing", 1, 120, call_id="batch"),
        received("billing", 2, 120, call_id="batch", batch_position=1),
    )
    rest = [*WITHOUT_BILLING, *worked_off("billing", [0], 100), *worked_off("billing", [END], 32_000), single, two]

    def again(first: int, second: int) -> list[Event]:
        receives = [
            received("billing", idx, received_ms, receive_count=2)
            for idx, received_ms in ((first, 31_000), (second, 31_100))
        ]
        return [
            event
            for receive in receives
            for event in (receive, deleted(receive, (receive.invoked_at_us or 0) // 1_000 + 10))
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

    def numbered(two: str) -> list[Event]:
        numbers = {0: "10", 1: "20", 2: two}
        return [
            replace(event, sqs_sequence_number=pad_sequence_number(numbers.get(event.idx or 0, "99")))
            if (event.kind, event.queue) == ("received", "billing")
            else event
            for event in sane()
        ]

    return Case(
        anomaly="C4",
        events=numbered("15"),
        idxs=(1, 2),
        sentence="the queue gave the second message no higher sequence number than the first",
        witness=tuple(only(numbered("15"), kind="received", queue="billing", idx=idx) for idx in (1, 2)),
        near_miss=numbered("25"),
    )


def _sns_sequence() -> Case:
    """Message 2 is published after 1 was acknowledged, numbered below it and received before it; or asked before."""
    rest = [event for event in sane() if event.kind == "published" and event.idx != 2]
    low = published(2, 20, sns_sequence_number=pad_sequence_number("5"))
    received_so = [*worked_off("billing", [0, 2, 1, END], 100), *worked_off("shipping", [0, 2, 1, END], 105)]
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
    """Nobody knows whether 1 and 2 were published; billing delivers 1 and 2, shipping 2 and 1. Or both 1 and 2."""
    rest = [
        *(event for event in sane() if event.kind == "published" and event.idx not in (1, 2)),
        published(1, 10, took_ms=None),
        published(2, 20, took_ms=None),
    ]
    billing, shipping = worked_off("billing", [0, 1, 2, END], 100), worked_off("shipping", [0, 2, 1, END], 105)
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
        near_miss=[*rest, *billing, *worked_off("shipping", [0, 1, 2, END], 105)],
        also_seen=frozenset({"A7"}),
    )


def _producer_reorder() -> Case:
    """Message 2 is published while nobody has acknowledged 1; or behind it in one call."""
    early = published(2, 12, took_ms=13, sns_sequence_number=pad_sequence_number("21"))
    rest = without(sane(), kind="published", idx=2)
    together = [published(1, 10, call_id="both", batch_position=0), published(2, 10, call_id="both", batch_position=1)]
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
    _reordered(),
    _reordered_in_batch(),
    _head_skip(),
    _sqs_sequence(),
    _sns_sequence(),
    _fan_out_divergence(),
    _producer_reorder(),
]
