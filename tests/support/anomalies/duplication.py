"""B: too often, and too seldom."""

from dataclasses import replace

from sluice.history.events import HistoryEvent, Kind
from tests.support.histories.builders import (
    END,
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


def _duplicate_in_window() -> Case:
    """Violation: message 1, published twice within a second, is two messages in billing. Near miss: it is one."""
    number = publish_of(sane(), 1).sns_sequence_number
    repeat = publish_event(1, 40, publish_attempt=2, sns_sequence_number=number)
    copy = receive_event("billing", 1, 200, sqs_message_id="another")
    return Case(
        anomaly="B1",
        events=[*sane(), repeat, copy],
        idxs=(1,),
        sentence="2 messages of one deduplication id, published within the window",
        witness=(publish_of(sane(), 1), repeat, receive_of(sane(), 1), copy),
        near_miss=[*sane(), repeat],
    )


def _duplicate_outside_window() -> Case:
    """Violation: a repeat 301 seconds later is a second message. Near miss: it is not received again."""
    first, repeat = publish_of(sane(), 1), publish_event(1, 301_000, publish_attempt=2)
    copy = receive_event("billing", 1, 301_100, sqs_message_id="another")
    return Case(
        anomaly="B2",
        events=[*sane(), repeat, copy],
        idxs=(1,),
        sentence="2 messages of one deduplication id, published 301 s apart",
        witness=(first, repeat, receive_of(sane(), 1), copy),
        near_miss=[*sane(), repeat],
    )


def _suppressed_too_long() -> Case:
    """Violation: of a repeat 340 seconds later, a drained queue has one message. Near miss: both queues have two."""
    repeat = publish_event(1, 340_000, publish_attempt=2)
    ends = [
        publish_event(END, 340_100),
        *consume_events("billing", [END], 340_400),
        *consume_events("shipping", [END], 340_400),
    ]
    history = [*without(sane(), idx=END), repeat, *ends, *_another("shipping")]
    return Case(
        anomaly="B3",
        events=history,
        idxs=(1,),
        sentence="published again after the window, and it came only once",
        witness=(publish_of(sane(), 1), repeat, receive_of(sane(), 1), only(ends, kind="received", queue="billing")),
        near_miss=[*history, *_another("billing")],
        also_seen=frozenset({"B2"}),
    )


def _another(queue: str) -> list[HistoryEvent]:
    """Return a second message 1 being received and deleted."""
    copy = receive_event(queue, 1, 340_200, sqs_message_id="another")
    return [copy, delete_event(copy, 340_210)]


def _dedup_ack_mismatch() -> Case:
    """Violation: the repeat of message 1 within the window gets its own number. Near miss: the first one's."""
    first, repeat = publish_of(sane(), 1), publish_event(1, 40, publish_attempt=2)
    return Case(
        anomaly="B5",
        events=[*sane(), repeat],
        queue=None,
        idxs=(1,),
        sentence="a repeat within the window was acknowledged with another sequence number",
        witness=(first, repeat),
        near_miss=[*sane(), replace(repeat, sns_sequence_number=first.sns_sequence_number)],
    )


def _redelivery() -> Case:
    """Seen: message 2 is received again after its lease. Near miss: a retry with its attempt id repeats the receive."""
    history = without(without(sane(), kind="deleted", queue="billing", idx=2), queue="billing", idx=END)
    first = receive_of(history, 2)
    again = receive_event("billing", 2, 31_000, receive_count=2)
    handle = first.receipt_handle_hash
    repeated = receive_event("billing", 2, 146, receipt_handle_hash=handle, receive_request_attempt_id="a")
    replayed = [replace(first, receive_request_attempt_id="a"), repeated]
    return Case(
        anomaly="B6",
        events=[*history, again, delete_event(again, 31_010), *consume_events("billing", [END], 31_100)],
        idxs=(2,),
        sentence="received again after its lease had ended",
        witness=(first, again),
        near_miss=[
            *(e for e in history if e != first),
            *replayed,
            delete_event(repeated, 152),
            *consume_events("billing", [END], 160),
        ],
    )


def _early_redelivery() -> Case:
    """Violation: message 2 is received again within its lease. Near miss: it was released before."""
    history = without(sane(), kind="deleted", idx=2, queue="billing")
    history = without(history, idx=END)
    first = receive_of(history, 2)
    again = receive_event("billing", 2, 10_140, receive_count=2)
    given_back = replace(delete_event(first, 9_000), kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=0)
    return Case(
        anomaly="B7",
        events=[*history, again],
        idxs=(2,),
        sentence="received again while the first receiver certainly still held it",
        witness=(first, again),
        near_miss=[*history, given_back, again],
        also_seen=frozenset({"B6"}),
    )


def _receive_count_jump() -> Case:
    """Violation: message 2 is received once with a receive count of 3. Near miss: it was received three times."""
    third = receive_event("billing", 2, 140, receive_count=3)
    others = [e for e in sane() if (e.queue, e.idx) not in (("billing", 2), ("billing", END))]
    receives = [
        receive_event("billing", 2, at_ms, receive_count=count) for count, at_ms in ((1, 140), (2, 31_000), (3, 70_000))
    ]
    return Case(
        anomaly="B8",
        events=[*others, third, delete_event(third, 148), *consume_events("billing", [END], 160)],
        idxs=(2,),
        sentence="its receive count is 3, and it was received 1 to 1 times",
        witness=(publish_of(others, 2), third),
        near_miss=[*others, *receives, delete_event(receives[-1], 70_010), *consume_events("billing", [END], 70_100)],
        also_seen=frozenset({"B6"}),
    )


CASES = [
    _duplicate_in_window(),
    _duplicate_outside_window(),
    _suppressed_too_long(),
    _dedup_ack_mismatch(),
    _redelivery(),
    _early_redelivery(),
    _receive_count_jump(),
]
