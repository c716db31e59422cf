"""A, E and G: missing messages, messages that should not exist, and changed messages."""

from dataclasses import replace
from typing import Any

from sluice.judge.checker import Loss, QueueContext
from tests.support.histories.builders import (
    END,
    EXPECTATION,
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

_GOOD = receive_of(sane(), 1)
_PUBLISHED = publish_of(sane(), 1)


def _case_lost() -> Case:
    """Violation: message 1 is acknowledged and received from no drained queue. Near miss: it is in both DLQs."""
    history = without(without(sane(), kind="received", idx=1), kind="deleted", idx=1)
    return Case(
        anomaly="A1",
        events=history,
        queue=None,
        idxs=(1,),
        sentence="acknowledged, and received from none of billing, shipping, all drained",
        witness=(publish_of(history, 1), receive_of(history, END), receive_of(history, END, "shipping")),
        near_miss=[*history, receive_event("billing-dlq", 1, 400), receive_event("shipping-dlq", 1, 400)],
    )


def _lost_prefix() -> Case:
    """Violation: message 2 was received from billing and message 1 never. Near miss: neither was received."""
    history = without(without(sane(), kind="received", queue="billing", idx=1), idx=END)
    history = without(history, kind="deleted", queue="billing", idx=1)
    return Case(
        anomaly="A2",
        events=history,
        idxs=(1, 2),
        sentence="the second message was received, the first, before it in the group, never was",
        witness=(publish_of(history, 1), receive_of(history, 2)),
        near_miss=without(history, queue="billing", idx=2),
    )


def _case_vanished() -> Case:
    """Violation: message 2 is not redelivered before a later end marker.

    Near miss: the marker is in the same answer.
    """
    history = [
        e for e in without(sane(), queue="billing", idx=END) if (e.kind, e.queue, e.idx) != ("deleted", "billing", 2)
    ]
    two, end = receive_of(history, 2), receive_event("billing", END, 31_000)
    return Case(
        anomaly="A3",
        events=[*history, end, delete_event(end, 31_010)],
        expectation=replace(EXPECTATION, max_receive_count={"billing": 3}),
        idxs=(2,),
        sentence="received, never deleted, its lease ended, and it never came again, though the queue was drained",
        witness=(two, end),
        near_miss=[
            *history,
            together := receive_event("billing", END, 140, batch_position=1),
            delete_event(together, 150),
        ],
    )


def _phantom() -> Case:
    """Violation: message 2 is received without any publish of it. Near miss: a publish without an answer."""
    history = without(without(sane(), kind="published", idx=2), idx=2, queue="shipping")
    return Case(
        anomaly="A4",
        events=history,
        idxs=(2,),
        sentence="received, and no publish of it was ever tried",
        witness=(publish_of(history, END), receive_of(history, 2)),
        near_miss=[*history, publish_event(2, 20, took_ms=None)],
        also_seen=frozenset({"A7"}),
    )


def _aborted_delivery() -> Case:
    """Violation: message 2 is received although its publish was refused. Near miss: a second try was accepted."""
    history = without(without(sane(), kind="published", idx=2), queue="shipping", idx=2)
    refused = replace(publish_event(2, 20), outcome="fail", sns_sequence_number=None)
    return Case(
        anomaly="A5",
        events=[*history, refused],
        idxs=(2,),
        sentence="received, although every publish of it was refused",
        witness=(refused, receive_of(history, 2)),
        near_miss=[*sane(), replace(refused, call_id="first try", invoked_at_us=16_000, responded_at_us=18_000)],
    )


def _case_recovered() -> Case:
    """Seen: message 2 is received although its publish had no answer. Near miss: a repeat of it was answered."""
    lost = publish_event(2, 20, took_ms=None)
    history = [*without(sane(), kind="published", idx=2), lost]
    return Case(
        anomaly="A7",
        events=history,
        idxs=(2,),
        sentence="received; nobody knew whether it was published",
        witness=(lost, receive_of(history, 2)),
        near_miss=[*sane(), publish_event(2, 16, took_ms=None)],
    )


def _case_resurrected() -> Case:
    """Violation: message 2 is received again after its delete. Near miss: the delete was answered after the lease."""
    again = receive_event("billing", 2, 400, receive_count=2)
    history = [*sane(), again]
    two = receive_of(sane(), 2)
    slow = without(without(sane(), queue="billing", idx=END), kind="deleted", queue="billing", idx=2)
    late = receive_event("billing", 2, 30_150, receive_count=2)
    return Case(
        anomaly="A8",
        events=history,
        idxs=(2,),
        sentence="received after it was deleted",
        witness=(two, only(sane(), kind="deleted", queue="billing", idx=2), again),
        near_miss=[
            *slow,
            delete_event(two, 30_100, took_ms=45),
            late,
            delete_event(late, 30_160),
            *consume_events("billing", [END], 30_200),
        ],
        also_seen=frozenset({"B6"}),
    )


def _incomplete_fan_out() -> Case:
    """Violation: message 1 is received from shipping and not from drained billing.

    Near miss: it was sent to shipping only.
    """
    history = without(without(sane(), kind="received", queue="billing", idx=1), kind="deleted", queue="billing", idx=1)
    return Case(
        anomaly="E1",
        events=history,
        queue=None,
        idxs=(1,),
        sentence="received from some queues, but not from billing, which were drained",
        witness=(publish_of(history, 1), receive_of(history, 1, "shipping"), receive_of(history, END)),
        near_miss=[replace(e, queue="shipping") if (e.kind, e.idx) == ("published", 1) else e for e in history],
    )


def _wrong_queue() -> Case:
    """Message 1 was sent to shipping alone, and billing delivered it as well; or only shipping did."""
    history = [replace(e, queue="shipping") if (e.kind, e.idx) == ("published", 1) else e for e in sane()]
    return Case(
        anomaly="E2",
        events=history,
        idxs=(1,),
        sentence="received from billing, and meant for shipping",
        witness=(publish_of(history, 1), receive_of(history, 1)),
        near_miss=without(history, queue="billing", idx=1),
    )


def _fan_out_skew() -> Case:
    """Violation: shipping delivers the end marker two seconds after billing, one is allowed.

    Near miss: just within it.
    """
    history = without(sane(), queue="shipping", idx=END)
    late = receive_event("shipping", END, 2_165)
    return Case(
        anomaly="E3",
        events=[*history, late, delete_event(late, 2_180)],
        expectation=replace(EXPECTATION, fan_out_skew_seconds_max=1),
        queue="shipping",
        idxs=(END,),
        sentence="came from shipping 2.0 s after billing, allowed are 1 s",
        witness=(receive_of(history, END), late),
        near_miss=[*history, *consume_events("shipping", [END], 1_165)],
    )


def _subscription_dead_lettered() -> Case:
    """Message 2 lies in the DLQ of shipping's subscription; or it reached shipping, and lies in no DLQ."""
    expectation = replace(EXPECTATION, subscription_dead_letter_queues={"shipping": "shipping-undelivered"})
    undelivered = receive_event("shipping-undelivered", 2, 400)
    return Case(
        anomaly="E4",
        events=[*sane(), undelivered],
        expectation=expectation,
        queue="shipping",
        idxs=(2,),
        sentence="SNS could not deliver it to shipping, and put it into shipping-undelivered",
        witness=(publish_of(sane(), 2), undelivered),
        near_miss=sane(),
    )


def _case_dropped_in_fault() -> Case:
    """Seen: message 1 is missing, published during a fault of billing.

    Near miss: nothing is missing after the fault.
    """
    history = without(sane(), queue="billing", idx=1)
    return Case(
        anomaly="E5",
        events=history,
        around=QueueContext(faults=(Loss(queue="billing", began_at_us=9_000, ended_at_us=16_000),)),
        idxs=(1,),
        sentence="published during a fault that loses messages",
        witness=(publish_of(history, 1),),
        near_miss=sane(),
    )


def _case_changed(anomaly: str, sentence: str, change: dict[str, Any], harmless: dict[str, Any]) -> Case:
    """Return the case of billing delivering message 1 with one change; the near miss has a harmless change."""
    bad, good = replace(_GOOD, **change), replace(_GOOD, **harmless)
    return Case(
        anomaly=anomaly,
        events=[bad if event == _GOOD else event for event in sane()],
        idxs=(1,),
        sentence=sentence,
        witness=(_PUBLISHED, bad),
        near_miss=[good if event == _GOOD else event for event in sane()],
    )


CASES = [
    _case_lost(),
    _lost_prefix(),
    _case_vanished(),
    _phantom(),
    _aborted_delivery(),
    _case_recovered(),
    _case_resurrected(),
    _incomplete_fan_out(),
    _wrong_queue(),
    _fan_out_skew(),
    _subscription_dead_lettered(),
    _case_dropped_in_fault(),
    _case_changed("G1", "the received body is not the published one", {"body_hash": "other"}, {"body_hash": None}),
    _case_changed("G2", "the MD5 the service gave is not that of the body", {"md5_ok": False}, {"md5_ok": True}),
    _case_changed(
        "G3",
        "the received deduplication id are not the published ones",
        {"deduplication_id": "other"},
        {"deduplication_id": None},
    ),
    _case_changed(
        "G4",
        "the envelope names another message than the publish was acknowledged as",
        {"sns_sequence_number": "99".zfill(39)},
        {"sns_sequence_number": _PUBLISHED.sns_sequence_number},
    ),
]
