"""B: messages that arrive too often or too seldom, for the deduplication window and the leases."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sluice.history.events import CallOutcome, HistoryEvent
from sluice.judge.checker.group import (
    WINDOW_TOLERANCE_US,
    Group,
    effect_by_us,
    effective,
    invoked_us,
    is_repeat,
    is_same_receive,
    number,
    responded_us,
)
from sluice.judge.checker.rules import FoundViolation, rule
from sluice.judge.checker.standing import earliest_removal_after_us


def span_us(group: Group, tries: Sequence[HistoryEvent]) -> tuple[int, int]:
    """Return the least and the greatest time between the first and the last publish that may have had an effect.

    If none may have had an effect, all publishes count. A publish has its effect between its invocation and the time
    `effect_by_us`. The first and the last publish are those that were invoked first and last. The clocks of publishers
    may differ by `publishers_spread_us`, so the bounds are widened by it.
    """
    ordered = sorted(effective(tries), key=invoked_us) or sorted(tries, key=invoked_us)
    first, last = ordered[0], ordered[-1]
    least_us = invoked_us(last) - effect_by_us(first)
    greatest_us = max(map(effect_by_us, ordered)) - invoked_us(first)
    return least_us - group.publishers_spread_us, greatest_us + group.publishers_spread_us


def window_us(group: Group) -> int:
    """Return the deduplication window."""
    return group.expectation.deduplication_window_seconds * 1_000_000


def copies(group: Group) -> Iterator[tuple[str, int, list[HistoryEvent]]]:
    """Yield (queue, idx, first received event of each copy) of each idx that became several messages in one queue."""
    for (queue, idx), ids in sorted(group.ids.items()):
        is_judged = queue in group.expectation.queues and idx in group.publishes and group.is_bound(queue, idx)
        if len(ids) > 1 and is_judged:
            yield queue, idx, [group.instances[queue, id_][0] for id_ in ids]


@rule("B1")
def _find_duplicates_in_window(group: Group) -> Iterator[FoundViolation]:
    for queue, idx, found in copies(group):
        for count, copy in enumerate(sorted(found, key=responded_us), start=1):
            windows = windows_max(group, idx, by=copy)
            if 0 < windows < count:
                within = "within the window" if windows == 1 else f"within {windows} windows"
                sentence = f"{len(found)} messages of {_single_delivery(group, idx)}, published {within}"
                yield queue, [idx], sentence, [*group.publishes[idx][:2], *found[:2]]
                break


def windows_max(group: Group, idx: int, *, by: HistoryEvent | None = None) -> int:
    """Return how many windows the publishes of a message may have opened.

    With `by`, only the publishes before that receive.

    The first publish opens a window, and so does each publish that may have come a window after the opening of the
    last: later publishes do not make a window longer (DED-08). A purge of the queue ends a window (DED-14).
    """
    spread_us = group.publishers_spread_us
    tries = [
        event for event in effective(group.publishes[idx]) if not (by is not None and group.is_surely_before(by, event))
    ]
    opened: list[int] = []
    while tries:
        opened.append(min(max(invoked_us(event), opened[-1] + window_us(group) if opened else 0) for event in tries))
        tries = [event for event in tries if effect_by_us(event) + spread_us - opened[-1] >= window_us(group)]
    forgotten = sum(map(group.is_purged, {event.queue for event in group.publishes[idx]}))
    return len(opened) + forgotten + group.older_copies(idx) if opened else 0


def _single_delivery(group: Group, idx: int) -> str:
    """Return a phrase for the publishes of a message: under one deduplication id, or under several."""
    ids = {event.deduplication_id for event in group.publishes[idx]}
    return "one deduplication id" if len(ids) == 1 else f"what is one message under {len(ids)} deduplication ids"


@rule("B2")
def _find_duplicates_outside_window(group: Group) -> Iterator[FoundViolation]:
    for queue, idx, found in copies(group):
        least = span_us(group, group.publishes[idx])[0]
        if least >= window_us(group):
            sentence = f"{len(found)} messages of one deduplication id, published {least / 1e6:.0f} s apart"
            yield queue, [idx], sentence, [group.publishes[idx][0], group.publishes[idx][-1], *found[:2]]


@rule("B3")
def _find_suppressed_repeats(group: Group) -> Iterator[FoundViolation]:
    yield from _find_acknowledged_repeats(group)
    for idx, tries in sorted(group.publishes.items()):
        publishes = sorted(effective(tries), key=invoked_us)
        is_repeated = len(publishes) == 2 and all(event.outcome == CallOutcome.OK for event in publishes)
        is_repeated = is_repeated and publishes[0].queue == publishes[1].queue
        if not is_repeated or span_us(group, publishes)[0] < window_us(group) + WINDOW_TOLERANCE_US:
            continue
        for queue in group.expected_queues(idx):
            end = group.end_marker(queue)
            ends = group.publishes.get(end.idx or 0, []) if end is not None and group.is_drained(queue) else []
            is_over = bool(ends) and all(group.is_before(publishes[-1], attempt) for attempt in ends)
            is_kept = (
                earliest_removal_after_us(group, queue, invoked_us(publishes[-1])) > responded_us(end)
                if end is not None
                else False
            )
            if (
                end is not None
                and is_over
                and is_kept
                and len(group.ids.get((queue, idx), ())) == 1
                and group.is_bound(queue, idx)
            ):
                sentence = "published again after the window, and it came only once"
                yield queue, [idx], sentence, [*publishes, group.first_received[queue][idx], end]


def _find_acknowledged_repeats(group: Group) -> Iterator[FoundViolation]:
    for idx, tries in sorted(group.publishes.items()):
        first: dict[tuple[str | None, str], HistoryEvent] = {}  # every topic and queue counts for itself
        for event in sorted(tries, key=responded_us):
            name = number(event)
            if event.outcome != CallOutcome.OK or name is None:
                continue
            opened = first.setdefault((event.queue, name), event)
            if (
                invoked_us(event) - responded_us(opened)
                >= window_us(group) + WINDOW_TOLERANCE_US + group.publishers_spread_us
            ):
                sentence = "published again after the window, and acknowledged with the sequence number it had"
                yield None, [idx], sentence, [opened, event]
                break


@rule("B5")
def _find_mismatched_repeats(group: Group) -> Iterator[FoundViolation]:
    for idx, tries in sorted(group.publishes.items()):
        first = group.acked.get(idx)
        if first is None:
            continue
        for repeat in tries:
            is_repeat = repeat.outcome == CallOutcome.OK and number(repeat) is not None and number(first) is not None
            is_same_id = (repeat.queue, repeat.deduplication_id) == (first.queue, first.deduplication_id)
            opened_us = min(map(invoked_us, effective(tries)))
            is_same_id = is_same_id and not group.is_purged(repeat.queue)
            is_within = responded_us(repeat) + group.publishers_spread_us - opened_us < window_us(group)
            is_within = is_within and not group.may_be_repeat(idx)
            if (
                is_repeat
                and is_same_id
                and is_within
                and (other := _acknowledgement_difference(first, repeat)) is not None
            ):
                yield None, [idx], f"a repeat within the window was acknowledged with another {other}", [first, repeat]
                break


def _acknowledgement_difference(first: HistoryEvent, repeat: HistoryEvent) -> str | None:
    """Return which of a repeat's numbers and ids is not that of the first publish; of a topic both are (SNS-18)."""
    if number(repeat) != number(first):
        return "sequence number"
    ids = first.sns_message_id, repeat.sns_message_id
    return "message id" if None not in ids and ids[0] != ids[1] else None


@rule("B6")
def _find_redeliveries(group: Group) -> Iterator[FoundViolation]:
    for (queue, _), receives in sorted(group.instances.items()):
        for event, other in pairwise(receives):
            is_lawful = not _is_too_early(group, event, other) and group.settled_delete(event) is None
            if is_lawful and not is_repeat(event, other):
                yield queue, [event.idx], "received again after its lease had ended", [event, other]


@rule("B7")
def _find_early_redeliveries(group: Group) -> Iterator[FoundViolation]:
    for (queue, _), receives in sorted(group.instances.items()):
        for event, other in pairwise(receives):
            delete = group.settled_delete(event)
            is_deleted = delete is not None and group.is_before(delete, other)
            is_early = _is_too_early if group.has_stayed(queue, event.idx) else _is_within_hold
            if not is_repeat(event, other) and not is_deleted and is_early(group, event, other):  # A8
                sentence = "received again while the first receiver certainly still held it"
                yield queue, [event.idx], sentence, [event, other]


def _is_within_hold(group: Group, event: HistoryEvent, other: HistoryEvent) -> bool:
    """Return whether the second receive came while the first still held the message, so that it did not die in between.

    A moved message that kept its id (F11) may count its receives anew, so the count does not show their order.
    """
    is_after = group.is_before(event, other) or event.call_id == other.call_id
    return is_after and responded_us(other) + group.bound_us(other, event) < group.expiry_us(event)


def _is_too_early(group: Group, event: HistoryEvent, other: HistoryEvent) -> bool:
    """Return whether the two receives cannot be a receive and a redelivery after it, in either order.

    A delete does not matter: a removed message is not delivered again, and one that was not removed stays held.
    """
    if None not in (event.receive_count, other.receive_count) and event.receive_count != other.receive_count:
        first, again = sorted((event, other), key=lambda receive: receive.receive_count or 0)
        return responded_us(again) + group.bound_us(again, first) < group.expiry_us(first)
    if responded_us(other) + group.bound_us(other, event) >= group.expiry_us(event):
        return False
    return group.is_before(event, other) or responded_us(event) + group.bound_us(event, other) < group.expiry_us(other)


@rule("B8")
def _find_impossible_receive_counts(group: Group) -> Iterator[FoundViolation]:
    yield from (found for found, is_unseen in miscounts(group) if not is_unseen)


def miscounts(group: Group) -> Iterator[tuple[FoundViolation, bool]]:
    """Yield each message with an impossible receive count, and whether unrecorded receives of others explain it."""
    nameless = Counter(
        (event.queue, event.idx)
        for events in group.received.values()
        for event in events
        if event.sqs_message_id is None
    )
    for (queue, _), receives in sorted(group.instances.items()):
        if queue not in group.expectation.queues:
            continue
        is_whole = group.is_proven(queue) and not group.may_have_been_received_before(queue, receives[0].idx, receives)
        lost = group.expectation.lost_receives.get(queue, 0)
        counts = Counter(event.receive_count for event in receives)
        for event, least, most_seen in _receive_bounds(group, receives):
            if event.receive_count is None:
                continue
            has_stayed = group.has_stayed(queue, event.idx, by=event)
            most = lost + nameless[queue, event.idx] + most_seen
            is_alone = counts[event.receive_count] == 1
            same = [] if is_alone else [e for e in _others(receives, event) if e.receive_count == event.receive_count]
            twin = next((twin for twin in same if _is_twin(group, twin, event, has_stayed=has_stayed)), None)
            if twin is not None:
                sentence = f"two receives of it have the count {event.receive_count}"
                yield (queue, [event.idx], sentence, [twin, event]), False
                break
            if has_stayed and (event.receive_count < least or (is_whole and event.receive_count > most)):
                sentence = f"its receive count is {event.receive_count}, and it was received {least} to {most} times"
                witness = [*group.publishes.get(event.idx or 0, [])[:1], *_others(receives, event)[-3:], event]
                is_unseen = event.receive_count > least and not group.expectation.is_planned
                yield (queue, [event.idx], sentence, witness), is_unseen
                break


def _is_twin(group: Group, twin: HistoryEvent, event: HistoryEvent, *, has_stayed: bool) -> bool:
    """Return whether two receives with one count contradict each other: a move task counts anew, with a new handle."""
    is_same_handle = None is not event.receipt_handle_hash == twin.receipt_handle_hash
    has_stayed = has_stayed and group.has_stayed(event.queue or "", twin.idx, by=twin)
    return not is_repeat(twin, event) and (is_same_handle or has_stayed)


def _others(receives: Sequence[HistoryEvent], event: HistoryEvent) -> list[HistoryEvent]:
    return [receive for receive in receives if receive is not event]


def _receive_bounds(group: Group, receives: Sequence[HistoryEvent]) -> Iterator[tuple[HistoryEvent, int, int]]:
    """Yield each receive of a message, with the least and the largest number of receives up to it."""
    calls = {receive.call_id for receive in receives if receive.receive_request_attempt_id is None}
    if not group.clocks.ahead and len(calls) == len(receives):
        answered_us, made_us = sorted(map(responded_us, receives)), sorted(map(invoked_us, receives))
        for event in receives:
            yield event, 1 + bisect_left(answered_us, invoked_us(event)), bisect_right(made_us, responded_us(event))
        return
    for event in receives:
        others = _others(receives, event)
        before = [
            receive for receive in others if group.is_before(receive, event) and not is_same_receive(receive, event)
        ]
        least = 1 + len({receive.receive_request_attempt_id or receive.call_id for receive in before})
        yield event, least, 1 + sum(not group.is_before(event, receive) for receive in others)
