"""Lawful histories that look wrong, and wrong ones that look lawful; each was once misjudged.

A call has its effect at some instant between request and answer. The verdict must hold wherever that instant is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sluice.history.events import CallOutcome, HistoryEvent, Kind, pad_sequence_number
from sluice.judge.checker import Activity, Expectation, Move, QueueContext, check_group, queue_context
from tests.support.histories.builders import (
    END,
    EXPECTATION,
    consume_events,
    delete_event,
    publish_event,
    receive_event,
)

_ONE_QUEUE = replace(EXPECTATION, queues=("billing",), dead_letter_queues={})
_THREE_RECEIVES = replace(_ONE_QUEUE, dead_letter_queues={"billing": "billing-dlq"}, max_receive_count={"billing": 3})
_NOTHING_AROUND = QueueContext()
_PUBLISHED = (publish_event(0, 0), publish_event(1, 10), publish_event(END, 20))


@dataclass(frozen=True, kw_only=True)
class _PlacementCase:
    """A history and its anomalies; empty if it shows none."""

    name: str
    events: Sequence[HistoryEvent]
    anomalies: frozenset[str] = frozenset()
    expectation: Expectation = _ONE_QUEUE
    around: QueueContext = _NOTHING_AROUND


def _visibility_change(receive: HistoryEvent, at_ms: int, seconds: int, *, took_ms: int | None = 5) -> HistoryEvent:
    """Return a visibility change of a received message."""
    changed = delete_event(receive, at_ms, took_ms=took_ms, call_id=f"hide/{at_ms}")
    return replace(changed, kind=Kind.VISIBILITY_CHANGED.value, visibility_timeout_seconds=seconds)


def _both(at_ms: int) -> tuple[HistoryEvent, HistoryEvent]:
    """Return the receives of messages 0 and 1 in one answer."""
    return (
        receive_event("billing", 0, at_ms, call_id=f"both/{at_ms}"),
        receive_event("billing", 1, at_ms, call_id=f"both/{at_ms}", batch_position=1),
    )


def _again(idx: int, at_ms: int, count: int = 2, **changes: Any) -> HistoryEvent:
    again: dict[str, Any] = {"receive_count": count, "worker": "other"}
    return receive_event("billing", idx, at_ms, **(again | changes))


def _extended_second() -> _PlacementCase:
    first, second = _both(100)
    return _PlacementCase(
        name="the second of an answer is extended, the first comes again (GRP-10)",
        events=[*_PUBLISHED, first, second, _visibility_change(second, 1_000, 600), _again(0, 31_000)],
    )


def _case_given_back_in_turn() -> _PlacementCase:
    first, second = _both(100)
    return _PlacementCase(
        name="both are given back, and the first comes again in between (GRP-08)",
        events=[
            *_PUBLISHED,
            first,
            second,
            _visibility_change(first, 200, 0),
            _again(0, 206, took_ms=3),
            _visibility_change(second, 210, 0),
        ],
    )


def _overlapping_changes() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    shorter, longer = _visibility_change(receive, 1_000, 5), _visibility_change(receive, 1_001, 600, took_ms=10)
    return _PlacementCase(
        name="of two visibility changes at one time either may have been the last",
        events=[*_PUBLISHED, receive, shorter, longer, _again(0, 10_000)],
    )


def _sent_both_ways() -> _PlacementCase:
    direct = publish_event(
        1,
        10,
        queue="billing",
        sns_sequence_number=None,
        sqs_sequence_number=pad_sequence_number("18849496460467696128"),
    )
    return _PlacementCase(
        name="numbers of the topic and of the queue are not compared",
        events=[publish_event(0, 0), direct, publish_event(2, 20), *consume_events("billing", [0, 1, 2], 100)],
    )


def _sent_straight(at_ms: int) -> HistoryEvent:
    number = pad_sequence_number("18849496460467696128")
    return publish_event(0, at_ms, queue="billing", sns_sequence_number=None, sqs_sequence_number=number)


def _topic_and_queue() -> _PlacementCase:
    received_everywhere = (*consume_events("billing", [0], 100), *consume_events("shipping", [0], 100))
    return _PlacementCase(
        name="a message of the topic is sent straight to one of its queues as well, and suppressed (DED-01)",
        events=[publish_event(0, 0), *received_everywhere, _sent_straight(10_000)],
        expectation=EXPECTATION,
    )


def _topic_unanswered_and_queue() -> _PlacementCase:
    worked = (*consume_events("billing", [0, END], 1_000), *consume_events("shipping", [END], 1_000))
    return _PlacementCase(
        name="only its publish straight to one queue was acknowledged",
        events=[publish_event(0, 0, took_ms=None), _sent_straight(10), publish_event(END, 20), *worked],
        expectation=EXPECTATION,
    )


def _case_resent_after_the_window() -> _PlacementCase:
    copy = [
        replace(event, sqs_message_id=f"copy {event.idx}") for event in consume_events("billing", [0, END], 400_100)
    ]
    worked = (
        *consume_events("billing", [0], 100),
        *consume_events("shipping", [0], 100),
        *consume_events("shipping", [END], 400_200),
    )
    return _PlacementCase(
        name="a message of the topic is sent straight to one of its queues after the window, and comes again there",
        events=[publish_event(0, 0), *worked, _sent_straight(400_000), publish_event(END, 400_010), *copy],
        expectation=EXPECTATION,
    )


def _twice_in_one_answer() -> _PlacementCase:
    answer = [
        receive_event(
            "billing",
            position % 2,
            100,
            call_id="answer",
            batch_position=position,
            receive_count=1 + position // 2,
            receipt_handle_hash=f"handle {position}",
            visibility_timeout_seconds=0,
        )
        for position in range(4)
    ]
    return _PlacementCase(
        name="a receive with visibility 0 brings messages more than once in one answer (VIS-12)",
        events=[*_PUBLISHED, *answer],
    )


def _repeat_after_the_window() -> _PlacementCase:
    receives = [
        _again(0, 311_000, 2, call_id="all"),
        receive_event("billing", 1, 311_000, call_id="all", batch_position=1),
        receive_event("billing", 0, 311_000, call_id="all", batch_position=2, sqs_message_id="billing 0 copy"),
    ]
    return _PlacementCase(
        name="a message published again after its window stands behind younger ones",
        events=[
            publish_event(0, 0),
            publish_event(1, 10),
            receive_event("billing", 0, 100),
            publish_event(0, 310_000),
            *receives,
        ],
    )


def _case_shortened_before_its_delete() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    return _PlacementCase(
        name="an unanswered visibility change may have come before the delete, which then came too late",
        events=[
            *_PUBLISHED,
            receive,
            _visibility_change(receive, 200, 0, took_ms=None),
            delete_event(receive, 201),
            _again(0, 400),
        ],
    )


def _case_deleted_after_its_timeout() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    return _PlacementCase(
        name="deleted after its timeout, which the queue may not have noticed (VIS-15)",
        events=[*_PUBLISHED, receive, delete_event(receive, 31_000), *consume_events("billing", [1], 31_100)],
    )


def _case_given_back_around_its_delete() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    return _PlacementCase(
        name="given back by a call that nobody answered, or while it was deleted: the delete may have been first",
        events=[
            *_PUBLISHED,
            receive,
            _visibility_change(receive, 150, 0, took_ms=None),
            _visibility_change(receive, 198, 0, took_ms=10),
            delete_event(receive, 200),
            *consume_events("billing", [1], 400),
        ],
    )


_KEPT_A_MINUTE = replace(_ONE_QUEUE, retention_seconds={"billing": 60})
_DAY_MS = 86_400_000


def _case_expired_after_four_days() -> _PlacementCase:
    end = 4 * _DAY_MS
    return _PlacementCase(
        name="nobody set a retention, and four days are over",
        events=[publish_event(0, 0), publish_event(END, end), *consume_events("billing", [END], end + 100)],
    )


def _case_expired_in_flight() -> _PlacementCase:
    held = receive_event("billing", 0, 100, visibility_timeout_seconds=600)
    return _PlacementCase(
        name="its retention ended while it was in flight, and the group went on (VIS-16)",
        events=[publish_event(0, 0), publish_event(1, 50_000), held, *consume_events("billing", [1], 61_000)],
        expectation=_KEPT_A_MINUTE,
    )


def _expired_repeat() -> _PlacementCase:
    worked = [*consume_events("billing", [0], 100), *consume_events("billing", [END], 460_100)]
    return _PlacementCase(
        name="a repeat after the window was not kept until somebody received",
        events=[publish_event(0, 0), publish_event(0, 340_000), publish_event(END, 460_000), *worked],
        expectation=_KEPT_A_MINUTE,
    )


_PURGED = queue_context(
    [HistoryEvent(kind=Kind.PURGED.value, queue="billing", invoked_at_us=1_000_000, responded_at_us=1_010_000)]
)


def _case_sent_again_after_a_purge() -> _PlacementCase:
    again = publish_event(
        0, 70_000, queue="billing", sns_sequence_number=None, sqs_sequence_number=pad_sequence_number("9")
    )
    other = publish_event(
        1, 65_000, queue="billing", sns_sequence_number=None, sqs_sequence_number=pad_sequence_number("8")
    )
    straight = replace(_sent_straight(0), sqs_sequence_number=pad_sequence_number("7"))
    copy = receive_event("billing", 0, 71_100, sqs_message_id="copy", call_id="both", batch_position=1)
    return _PlacementCase(
        name="a purge forgets deduplication ids: sent again within the window, it is another message (DED-14)",
        events=[
            straight,
            receive_event("billing", 0, 100),
            other,
            again,
            receive_event("billing", 1, 71_100, call_id="both"),
            copy,
        ],
        around=_PURGED,
    )


def _late_after_a_timeout() -> _PlacementCase:
    seconds = [
        Activity(second=second, served_count=0, empty_count=1, answered_by_us=second * 1_000_000 + 500_000)
        for second in range(32, 36)
    ]
    return _PlacementCase(
        name="long polls are empty after a timeout ended, which the queue may notice later (VIS-15)",
        events=[
            publish_event(0, 0),
            receive_event("billing", 0, 100, sent_at_us=1_000),
            _again(0, 37_000, sent_at_us=1_000),
        ],
        around=QueueContext(activity={"billing": seconds}),
    )


def _receive_and_repeat(
    receive: HistoryEvent, at_ms: int, seconds: int | None = None, *, took_ms: int = 5
) -> tuple[HistoryEvent, HistoryEvent]:
    """Return a receive with an attempt id, and its repeat, with another visibility timeout if one is given (RCV-28)."""
    first = replace(receive, receive_request_attempt_id="attempt")
    again = receive_event("billing", 0, at_ms, took_ms=took_ms, receipt_handle_hash=receive.receipt_handle_hash)
    return first, replace(again, receive_request_attempt_id="attempt", visibility_timeout_seconds=seconds)


def _case_deleted_after_a_repeat_for_less() -> _PlacementCase:
    first, again = _receive_and_repeat(receive_event("billing", 0, 100), 200, 0)
    return _PlacementCase(
        name="confirmed, the delete of what a repeat had given back does nothing (VIS-04)",
        events=[*_PUBLISHED, first, again, delete_event(first, 300), _again(0, 400)],
    )


def _case_gone_by_a_slow_clock() -> _PlacementCase:
    receive = receive_event("billing", 0, 1_050, took_ms=500, clock_id="d")
    deleted_at_once = delete_event(receive, 1_551, took_ms=None, clock_id="d")
    return _PlacementCase(
        name="deleted, if the clock of its consumer is ahead, before the next one was received",
        events=[*_PUBLISHED, receive, deleted_at_once, replace(receive_event("billing", 1, 1_538), worker="other")],
        expectation=replace(_ONE_QUEUE, clock_bound_us=50_000),
    )


def _repeats_at_one_time() -> _PlacementCase:
    first, longer = _receive_and_repeat(receive_event("billing", 0, 100), 1_000, 60)
    (_, again) = _receive_and_repeat(first, 1_002)
    return _PlacementCase(
        name="of two repeats at one time either may have been the last",
        events=[*_PUBLISHED, first, longer, again, _again(0, 32_000)],
    )


def _tries(idx: int, times: int, from_ms: int = 100) -> list[HistoryEvent]:
    return [receive_event("billing", idx, from_ms + n * 31_000, receive_count=n + 1) for n in range(times)]


def _dead(idx: int, at_ms: int, *, dlq: str = "billing-dlq", **changes: Any) -> HistoryEvent:
    fields: dict[str, Any] = {"sqs_message_id": f"billing {idx}", "deduplication_id": f"billing {idx}"}
    return receive_event(dlq, idx, at_ms, **(fields | changes))


def _case_published_to_two_topics() -> _PlacementCase:
    """Of one id, a window apart; each topic counts for itself, and they are at one number."""
    number = publish_event(0, 0).sns_sequence_number
    to_another = publish_event(0, 400_000, queue="others", sns_sequence_number=number)
    return _PlacementCase(
        name="two topics, a window apart, give a message the same number",
        events=[publish_event(0, 0), to_another, publish_event(END, 401_000), receive_event("billing", 0, 402_000)],
        anomalies=frozenset(),
    )


_LAWFUL: Sequence[_PlacementCase] = (
    _extended_second(),
    _case_given_back_in_turn(),
    _overlapping_changes(),
    _sent_both_ways(),
    _case_published_to_two_topics(),
    _twice_in_one_answer(),
    _PlacementCase(
        name="one of its receives has no message id on record, and counts all the same",
        events=[*_PUBLISHED, receive_event("billing", 0, 100, sqs_message_id=None), _again(0, 31_000)],
    ),
    _topic_and_queue(),
    _topic_unanswered_and_queue(),
    _case_resent_after_the_window(),
    _repeat_after_the_window(),
    _PlacementCase(
        name="the window began with a publish that nobody answered",
        events=[publish_event(0, 0, took_ms=None), publish_event(0, 9_000), publish_event(0, 300_500)],
    ),
    _case_shortened_before_its_delete(),
    _PlacementCase(
        name="receives whose answers were lost may have used up a message",
        events=[*_PUBLISHED, *consume_events("billing", [1], 100_000)],
        expectation=replace(_THREE_RECEIVES, lost_receives={"billing": 3}),
    ),
    _PlacementCase(
        name="its retention ended before it was received, and a later message came (VIS-17)",
        events=[publish_event(0, 0), publish_event(1, 50_000), *consume_events("billing", [1], 61_000)],
        expectation=_KEPT_A_MINUTE,
    ),
    _case_expired_after_four_days(),
    _case_expired_in_flight(),
    _PlacementCase(
        name="received, its lease ended, then its retention, and it never came again",
        events=[
            publish_event(0, 0),
            publish_event(END, 50_000),
            receive_event("billing", 0, 100),
            *consume_events("billing", [END], 61_000),
        ],
        expectation=_KEPT_A_MINUTE,
    ),
    _expired_repeat(),
    _PlacementCase(
        name="a purge removed it, and what was sent while the purge ran (PUR-02, PUR-04)",
        events=[
            publish_event(0, 0),
            publish_event(1, 50_000),
            publish_event(END, 70_000),
            *consume_events("billing", [END], 71_000),
        ],
        around=_PURGED,
    ),
    _PlacementCase(
        name="a purge removed it while it was in flight, and released its group (PUR-05)",
        events=[
            publish_event(0, 0),
            publish_event(1, 2_000),
            receive_event("billing", 0, 100),
            *consume_events("billing", [1], 3_000),
        ],
        around=_PURGED,
    ),
    _case_sent_again_after_a_purge(),
    _late_after_a_timeout(),
    _case_deleted_after_its_timeout(),
    _case_given_back_around_its_delete(),
    _PlacementCase(
        name="a repeat with a shorter timeout ends the hold, and the message dies",
        events=[*_PUBLISHED, *_receive_and_repeat(receive_event("billing", 0, 100), 200, 0), _dead(0, 300)],
        expectation=replace(_THREE_RECEIVES, max_receive_count={"billing": 1}),
    ),
    _case_deleted_after_a_repeat_for_less(),
    _case_gone_by_a_slow_clock(),
    _repeats_at_one_time(),
)


_SHARED_DLQ = replace(
    EXPECTATION,
    dead_letter_queues={"billing": "dlq", "shipping": "dlq"},
    max_receive_count={"billing": 3, "shipping": 3},
)
_TO_BILLING = Move(source="billing-dlq", destination="billing", began_at_us=350_000_000, ended_at_us=351_000_000)
_MOVED = QueueContext(moves=(_TO_BILLING,))


def _dead_in_both() -> _PlacementCase:
    tries = [receive_event("shipping", 0, 100 + n * 31_000, receive_count=n + 1) for n in range(3)]
    other = _dead(0, 200_100, dlq="dlq", sqs_message_id="shipping 0", deduplication_id="shipping 0")
    return _PlacementCase(
        name="two queues share a DLQ, and a message died in both (DLQ-05)",
        events=[*_PUBLISHED, *tries, *_tries(0, 3), _dead(0, 200_000, dlq="dlq"), other],
        expectation=_SHARED_DLQ,
    )


def _back(at_ms: int, **changes: Any) -> HistoryEvent:
    return receive_event("billing", 0, at_ms, **({"sqs_message_id": "new 0"} | changes))


def _dead_again(at_ms: int) -> HistoryEvent:
    return _dead(0, at_ms, sqs_message_id="new 0", deduplication_id="new 0")


def _back_and_published_again() -> _PlacementCase:
    both = (_back(400_000, call_id="x"), _back(400_000, call_id="x", batch_position=1, sqs_message_id="copy 0"))
    return _PlacementCase(
        name="brought back, and published again after its window",
        events=[*_PUBLISHED, *_tries(0, 3), _dead(0, 300_000), publish_event(0, 360_000), *both],
        expectation=_THREE_RECEIVES,
        around=_MOVED,
    )


def _last_try_by_a_fast_clock() -> _PlacementCase:
    tries = [
        receive_event("billing", 0, at_ms, receive_count=count, visibility_timeout_seconds=1, clock_id=clock)
        for count, (at_ms, clock) in enumerate(((340_000, "c"), (342_000, "c"), (352_000, "fast")), start=1)
    ]
    return _PlacementCase(
        name="its last receive before it died was by a clock that shows it after the move began",
        events=[*_PUBLISHED, *tries, _dead(0, 347_000), _back(400_000)],
        expectation=replace(_THREE_RECEIVES, clock_bound_us=9_000_000),
        around=_MOVED,
    )


def _back_by_an_unanswered_task() -> _PlacementCase:
    task = HistoryEvent(
        kind=Kind.REDRIVEN.value,
        queue="billing-dlq",
        outcome=CallOutcome.INFO.value,
        invoked_at_us=350_000_000,
        detail='{"destination": "billing"}',
    )
    return _PlacementCase(
        name="brought back by a move task of which nobody knows how it ended (MOV-11, MOV-12)",
        events=[*_PUBLISHED, *_tries(0, 3), _back(400_000)],
        expectation=_THREE_RECEIVES,
        around=queue_context([task]),
    )


def _dead_unseen_and_published_again() -> _PlacementCase:
    copy = receive_event("billing", 0, 400_000, sqs_message_id="copy")
    return _PlacementCase(
        name="it died by receives nobody saw, and what came later is of another publish",
        events=[publish_event(0, 0), _dead(0, 100_000), publish_event(0, 311_000), copy],
        expectation=replace(_THREE_RECEIVES, lost_receives={"billing": 3}),
    )


def _second_copy_dead() -> _PlacementCase:
    dead = _dead(0, 600_000, sqs_message_id="copy", deduplication_id="copy")
    return _PlacementCase(
        name="deleted, published again after its window, and the copy died by receives nobody saw",
        events=[publish_event(0, 0), *consume_events("billing", [0], 100), publish_event(0, 311_000), dead],
        expectation=replace(_THREE_RECEIVES, lost_receives={"billing": 3}),
    )


def _polled_context(*, served: int, empty: int) -> QueueContext:
    activity = Activity(second=150, served_count=served, empty_count=empty, answered_by_us=150_900_000)
    return QueueContext(activity={"billing": [activity]}, empty_since_us={"billing-dlq": 200_000_000})


def _case_moved_elsewhere() -> _PlacementCase:
    elsewhere = Move(source="billing-dlq", destination="other", began_at_us=180_000_000, ended_at_us=181_000_000)
    return _PlacementCase(
        name="used up, and its DLQ was moved elsewhere",
        events=[*_PUBLISHED, *_tries(0, 3)],
        expectation=_THREE_RECEIVES,
        around=replace(_polled_context(served=0, empty=5), moves=(elsewhere,)),
    )


def _back_while_its_last_receive_was_answered() -> _PlacementCase:
    slow = receive_event("billing", 0, 349_000, took_ms=9_000, visibility_timeout_seconds=0)
    return _PlacementCase(
        name="a message dies and is back before the answer of its last receive came",
        events=[*_PUBLISHED, slow, _back(352_000)],
        expectation=replace(_THREE_RECEIVES, max_receive_count={"billing": 1}),
        around=_MOVED,
    )


def _case_brought_from_another_queue() -> _PlacementCase:
    elsewhere = replace(_TO_BILLING, source="shipping-dlq")
    died = [receive_event("shipping", 0, 100 + n * 31_000, receive_count=n + 1) for n in range(3)]
    return _PlacementCase(
        name="a move task takes another queue's dead letter here, beside the copy that was here",
        events=[*_PUBLISHED, *died, *consume_events("billing", [0], 400_000), _back(401_000)],
        expectation=replace(EXPECTATION, max_receive_count={"billing": 3, "shipping": 3}),
        around=QueueContext(moves=(elsewhere,)),
    )


_DEAD_LETTERS: Sequence[_PlacementCase] = (
    _PlacementCase(
        name="two queues share a DLQ: dead in one, worked off in the other (DLQ-05)",
        events=[*_PUBLISHED, *consume_events("shipping", [0], 100), *_tries(0, 3), _dead(0, 200_000, dlq="dlq")],
        expectation=_SHARED_DLQ,
    ),
    _dead_in_both(),
    _PlacementCase(
        name="brought back and dead again, and nobody knows after how many receives",
        events=[*_PUBLISHED, *_tries(0, 3), _dead(0, 300_000), _back(400_000), _dead_again(500_000)],
        expectation=replace(_THREE_RECEIVES, max_receive_count={}),
        around=_MOVED,
    ),
    _back_and_published_again(),
    _PlacementCase(
        name="brought back, and dead again at its first receive: whether a move resets the count is open (MOV-19)",
        events=[*_PUBLISHED, *_tries(0, 3), *_tries(1, 3, 400_000), _dead(1, 600_000), _dead_again(632_000)],
        expectation=_THREE_RECEIVES,
        around=_MOVED,
    ),
    _PlacementCase(
        name="brought back, and received by a clock that shows it before the move began",
        events=[*_PUBLISHED, *_tries(0, 3), _back(346_000, clock_id="slow")],
        expectation=replace(_THREE_RECEIVES, clock_bound_us=6_000_000),
        around=_MOVED,
    ),
    _last_try_by_a_fast_clock(),
    _back_by_an_unanswered_task(),
    _dead_unseen_and_published_again(),
    _second_copy_dead(),
    _PlacementCase(
        name="used up, and since then receives served other groups: it may still be in its queue (RCV-10)",
        events=[*_PUBLISHED, *_tries(0, 3)],
        expectation=_THREE_RECEIVES,
        around=_polled_context(served=5, empty=0),
    ),
    _PlacementCase(
        name="used up, and not all that was received from the DLQ is on record",
        events=[*_PUBLISHED, *_tries(0, 3)],
        expectation=replace(_THREE_RECEIVES, unproven_queues={"billing-dlq": "its recorder is missing"}),
        around=_polled_context(served=0, empty=5),
    ),
    _case_moved_elsewhere(),
    _PlacementCase(
        name="a move task left it in its DLQ, of which not all receives are on record (MOV-26)",
        events=[*_PUBLISHED, *_tries(0, 3), _dead(0, 349_000)],
        expectation=replace(_THREE_RECEIVES, unproven_queues={"billing-dlq": "its recorder is missing"}),
        around=replace(_MOVED, empty_since_us={"billing-dlq": 900_000_000, "billing": 900_000_000}),
    ),
    _PlacementCase(
        name="a move task that began before the message was received brings it back in the end",
        events=[*_PUBLISHED, *_tries(0, 3, 351_500), _back(500_000)],
        expectation=_THREE_RECEIVES,
        around=QueueContext(moves=(replace(_TO_BILLING, ended_at_us=450_000_000),)),
    ),
    _back_while_its_last_receive_was_answered(),
    _PlacementCase(
        name="it died by a receive nobody saw, and came first behind a later one, by a move task",
        events=[*_PUBLISHED, *consume_events("billing", [1], 100), _back(400_000)],
        expectation=replace(
            _THREE_RECEIVES, max_receive_count={"billing": 1}, lost_receives={"billing": 1}, unproven_queues={}
        ),
        around=_MOVED,
    ),
    _case_brought_from_another_queue(),
)
"""Lawful as well."""


def _dead_in_one_answer() -> _PlacementCase:
    dead = (_dead(1, 300_000, call_id="dead"), _dead(0, 300_000, call_id="dead", batch_position=1))
    return _PlacementCase(
        name="one answer of the DLQ holds the later dead letter in front",
        events=[*_PUBLISHED, *_tries(0, 3), *_tries(1, 3, 100_000), *dead],
        anomalies=frozenset({"F7"}),
        expectation=_THREE_RECEIVES,
    )


def _back_in_one_answer() -> _PlacementCase:
    dead = (_dead(0, 300_000), _dead(1, 331_000))
    back = [
        receive_event("billing", idx, 400_000, call_id="back", batch_position=position, sqs_message_id=f"new {idx}")
        for position, idx in enumerate((1, 0))
    ]
    move = Move(source="billing-dlq", destination="billing", began_at_us=350_000_000, ended_at_us=351_000_000)
    return _PlacementCase(
        name="one answer holds what a move task brought back, in another order",
        events=[*_PUBLISHED, *_tries(0, 3), *_tries(1, 3, 100_000), *dead, *back],
        anomalies=frozenset({"F10"}),
        expectation=_THREE_RECEIVES,
        around=QueueContext(moves=(move,)),
    )


def _three_copies_in_two_windows() -> _PlacementCase:
    copies = [
        receive_event("billing", 0, 320_000, call_id="all", batch_position=n, sqs_message_id=f"copy {n}")
        for n in range(3)
    ]
    repeat = publish_event(0, 10_000, sns_sequence_number=publish_event(0, 0).sns_sequence_number)
    return _PlacementCase(
        name="three copies of what was published at 0, 10 and 311 seconds",
        events=[publish_event(0, 0), repeat, publish_event(0, 311_000), *copies],
        anomalies=frozenset({"B1"}),
    )


def _topic_and_queue_but_one() -> _PlacementCase:
    worked = (*consume_events("billing", [0, END], 12_000), *consume_events("shipping", [END], 12_000))
    return _PlacementCase(
        name="published to the topic and sent straight to a queue, and another queue never gave it",
        events=[publish_event(0, 0), _sent_straight(10_000), publish_event(END, 11_000), *worked],
        anomalies=frozenset({"E1"}),
        expectation=EXPECTATION,
    )


def _answer_a_repeat_with_another_id() -> _PlacementCase:
    number = publish_event(0, 0).sns_sequence_number
    repeat = publish_event(0, 10_000, sns_sequence_number=number, sns_message_id="second")
    return _PlacementCase(
        name="a topic answers a repeat with the number of the first publish, and another message id (SNS-18)",
        events=[publish_event(0, 0, sns_message_id="first"), repeat, *consume_events("billing", [0], 11_000)],
        anomalies=frozenset({"B5"}),
    )


def _during_its_delete() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    return _PlacementCase(
        name="received while its confirmed delete ran, inside the lease",
        events=[*_PUBLISHED, receive, delete_event(receive, 200, took_ms=500), _again(0, 300, took_ms=100)],
        anomalies=frozenset({"B7"}),
    )


def _in_a_poll_that_waited() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    return _PlacementCase(
        name="received after the lease by a poll that waited since before the confirmed delete",
        events=[*_PUBLISHED, receive, delete_event(receive, 300), _again(0, 200, took_ms=31_000)],
        anomalies=frozenset({"A8"}),
    )


def _effective_stale_delete() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    return _PlacementCase(
        name="a delete with an older handle let the group go on",
        events=[
            *_PUBLISHED,
            receive,
            _again(0, 31_000),
            delete_event(receive, 31_100),
            *consume_events("billing", [1], 31_200),
        ],
        anomalies=frozenset({"D2"}),
    )


def _case_repeated_with_another_handle() -> _PlacementCase:
    first, again = _receive_and_repeat(receive_event("billing", 0, 100), 200)
    return _PlacementCase(
        name="a repeat brings the message with another handle (RCV-11)",
        events=[*_PUBLISHED, first, replace(again, receipt_handle_hash="another", receive_count=2)],
        anomalies=frozenset({"B7"}),
    )


def _held_while_a_task_ran() -> _PlacementCase:
    receive = receive_event("billing", 0, 350_100)
    twin = replace(receive_event("billing", 0, 350_200, call_id="again", receipt_handle_hash="again"), worker="other")
    return _PlacementCase(
        name="a move task ran, and a message came again while it was held: so it had not died",
        events=[*_PUBLISHED, receive, twin],
        anomalies=frozenset({"B7"}),
        expectation=replace(_THREE_RECEIVES, max_receive_count={"billing": 1}),
        around=_MOVED,
    )


def _later_copy_first() -> _PlacementCase:
    def copy(number: int, at_ms: int, **changes: Any) -> HistoryEvent:
        id_, name = f"copy {number}", pad_sequence_number(str(number))
        return receive_event("billing", number % 2, at_ms, sqs_message_id=id_, sqs_sequence_number=name, **changes)

    first = copy(3, 400_000)
    return _PlacementCase(
        name="of messages published a window apart, the queue's numbers tell the order (ORD-01)",
        events=[*_PUBLISHED, publish_event(1, 311_000), first, delete_event(first, 400_010), copy(2, 400_100)],
        anomalies=frozenset({"C1"}),
    )


def _overlapping_receives() -> _PlacementCase:
    second, first = receive_event("billing", 1, 101, worker="other"), receive_event("billing", 0, 100, took_ms=30)
    return _PlacementCase(
        name="whichever of two overlapping receives was first, the other is wrong",
        events=[*_PUBLISHED, first, second, delete_event(second, 107), delete_event(first, 131)],
        anomalies=frozenset({"D2"}),
    )


def _case_given_back_and_deleted() -> _PlacementCase:
    receive = receive_event("billing", 0, 100)
    given_back = [receive, _visibility_change(receive, 200, 0), delete_event(receive, 300)]
    return _PlacementCase(
        name="given back and then deleted, which removes nothing, and a later message came (VIS-04)",
        events=[*_PUBLISHED, *given_back, *consume_events("billing", [1], 400)],
        anomalies=frozenset({"D1"}),
    )


def _case_received_for_nothing_and_deleted() -> _PlacementCase:
    receive = receive_event("billing", 0, 100, visibility_timeout_seconds=0)
    return _PlacementCase(
        name="received with a visibility timeout of 0 and deleted, which removes nothing (VIS-04)",
        events=[*_PUBLISHED, receive, delete_event(receive, 300), *consume_events("billing", [1], 400)],
        anomalies=frozenset({"C3"}),
    )


def _one_message_twice_in_one_receive() -> _PlacementCase:
    """Return a receive that brings a message twice (B7): its first copy should have been hidden by the receive."""
    again = receive_event(
        "billing", 0, 100, call_id="x", batch_position=1, receive_count=2, receipt_handle_hash="again"
    )
    return _PlacementCase(
        name="an answer that hides what it brings holds a message twice",
        events=[*_PUBLISHED, receive_event("billing", 0, 100, call_id="x"), again],
        anomalies=frozenset({"B7"}),
    )


_WRONG: Sequence[_PlacementCase] = (
    _PlacementCase(
        name="received five times of three, and then read from the DLQ",
        events=[*_PUBLISHED, *_tries(0, 5), _dead(0, 200_000)],
        anomalies=frozenset({"F2"}),
        expectation=_THREE_RECEIVES,
    ),
    _PlacementCase(
        name="read from the DLQ half a second after its last receive, which holds it for thirty (DLQ-04)",
        events=[*_PUBLISHED, *_tries(0, 3), _dead(0, 63_000)],
        anomalies=frozenset({"F1"}),
        expectation=_THREE_RECEIVES,
    ),
    _dead_in_one_answer(),
    _back_in_one_answer(),
    _three_copies_in_two_windows(),
    _PlacementCase(
        name="a message that dies in the end was received behind a later one",
        events=[*_PUBLISHED, *consume_events("billing", [1], 100), *_tries(0, 3, 1_000), _dead(0, 200_000)],
        anomalies=frozenset({"C1"}),
        expectation=_THREE_RECEIVES,
    ),
    _PlacementCase(
        name="received before it was published",
        events=[publish_event(0, 1_000), *consume_events("billing", [0], 100)],
        anomalies=frozenset({"A4"}),
    ),
    _topic_and_queue_but_one(),
    _answer_a_repeat_with_another_id(),
    _during_its_delete(),
    _in_a_poll_that_waited(),
    _effective_stale_delete(),
    _PlacementCase(
        name="an attempt id brings another message while the first is held",
        events=[
            *_PUBLISHED,
            receive_event("billing", 0, 100, receive_request_attempt_id="attempt"),
            receive_event("billing", 1, 200, receive_request_attempt_id="attempt"),
        ],
        anomalies=frozenset({"D1"}),
    ),
    _case_repeated_with_another_handle(),
    _held_while_a_task_ran(),
    _later_copy_first(),
    _overlapping_receives(),
    _case_given_back_and_deleted(),
    _case_received_for_nothing_and_deleted(),
    _one_message_twice_in_one_receive(),
    _PlacementCase(
        name="a minute of retention had not passed when a later message came",
        events=[publish_event(0, 0), publish_event(1, 50_000), *consume_events("billing", [1], 59_000)],
        anomalies=frozenset({"A2"}),
        expectation=_KEPT_A_MINUTE,
    ),
    _PlacementCase(
        name="published when the purge was over, and lost",
        events=[publish_event(0, 62_000), publish_event(1, 63_000), *consume_events("billing", [1], 64_000)],
        anomalies=frozenset({"A2"}),
        around=_PURGED,
    ),
)


@pytest.mark.parametrize("judged", [*_LAWFUL, *_DEAD_LETTERS, *_WRONG], ids=lambda judged: judged.name)
def test_the_verdict_holds_for_every_placement(judged: _PlacementCase) -> None:
    """The checker finds exactly the anomalies of the case."""
    found = check_group(judged.events, judged.expectation, judged.around)

    assert {violation.anomaly for violation in found.violations} == judged.anomalies
