"""The order of messages in a queue, and the earliest time at which each of them may have been removed.

No message of a group is delivered while one before it is hidden (GRP-01, GRP-10), and a redelivered message comes
before younger ones (ORD-02). So every receive proves that the messages before it in the queue were deleted or
dead-lettered by then, or are in the same answer. If a call may have had its effect at several times, a conclusion is
proven only if it holds for all of them.

SQS itself removes only messages that are older than the queue's retention, and messages that are purged.

AWS: a message is gone when its retention ends, in flight or not, and its group goes on (VIS-16, VIS-17); retention
counts anew in the DLQ of a FIFO queue (DLQ-08) and after a move task (MOV-18). A purge takes up to 60 seconds, removes
messages in flight too, and may remove messages that are sent meanwhile (PUR-02, PUR-04). It forgets deduplication ids
(DED-14).
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from sluice import limits
from sluice.history.events import HistoryEvent
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.group import Group, effective, invoked_us, responded_us

_AHEAD_MAX = 16  # keep only the messages that stay longest: those of an answer of ten, and enough others


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A receive of a message behind another one that was received before and was certainly still in the queue.

    Args:
        ahead: the last receive of the message in front that may have come before.
        event: the receive that passed it.
    """

    ahead: HistoryEvent
    event: HistoryEvent


@lru_cache(maxsize=1)  # three rules call it for the same group
def overtakings(group: Group) -> Sequence[Overtaking]:
    """Return each receive that passed a message, with the passed message that stayed longest."""
    return tuple(_all_passed(group))


def _all_passed(group: Group) -> Iterator[Overtaking]:
    for queue in group.expectation.queues:
        for line in queue_lines(group, queue):
            yield from _overtakings_in(group, line)
        yield from _overtakings_by_followers(group, queue)


def is_free(group: Group, skip: Overtaking) -> bool:
    """Return whether the message in front was certainly available again; otherwise it may still have been held."""
    return group.is_after(skip.event, group.possible_expiry_us(skip.ahead), by=skip.ahead)


def queue_lines(group: Group, queue: str) -> Iterator[Sequence[Sequence[HistoryEvent]]]:
    """Yield the receives of each message whose place among others in the queue is known, in that order.

    The queue's own sequence numbers order all its messages. Without them the numbers of the publishes order the
    messages that were published to one place.
    """
    bound = [
        receives
        for (of, _), receives in group.instances.items()
        if of == queue and group.has_stayed(queue, receives[0].idx)
    ]
    if all(receives[0].sqs_sequence_number is not None for receives in bound):
        yield sorted(bound, key=lambda receives: receives[0].sqs_sequence_number or "")
        return
    by_place: dict[str | None, list[tuple[str, Sequence[HistoryEvent]]]] = defaultdict(list)
    for receives in bound:
        place = group.place(receives[0])
        if place is not None:
            by_place[place[0]].append((place[1], receives))
    for line in by_place.values():
        yield [receives for _, receives in sorted(line, key=itemgetter(0))]


def earliest_end_us(group: Group, receives: Sequence[HistoryEvent]) -> int:
    """Return the earliest time at which a received message may have left its queue; NEVER_US if it cannot have left.

    The message was in the queue at its last receive. A delete works only with the handle of the last receive (VIS-05),
    and retention and purges remove messages that nobody deleted (VIS-16, PUR-02). A receive after a delete that
    certainly worked is another anomaly, A8.
    """
    last = receives[-1]
    seen_us, spread_us = max(map(invoked_us, receives)), group.spread_us(last.queue)
    candidates = [
        max(invoked_us(attempt), seen_us)
        for attempt in group.tries(last)
        if group.may_delete(attempt, last)
        and responded_us(attempt) + spread_us >= seen_us
        and _may_be_last(group, receives, attempt.receipt_handle_hash)
    ]
    candidates += [invoked_us(delete) for receive in receives if (delete := group.settled_delete(receive)) is not None]
    is_left_open = any(map(group.may_be_dead_lettered, receives)) or group.is_dead_lettered(last.queue or "", last.idx)
    if is_left_open or not group.is_proven(last.queue or ""):
        latest = [e for e in receives if _may_be_last(group, receives, e.receipt_handle_hash)] or receives
        candidates.append(max(seen_us, min(map(group.expiry_us, latest))))
    if last.idx is not None and may_be_removed(group, last.queue or "", last.idx):
        candidates.append(max(seen_us, earliest_removal_us(group, last.queue or "", last.idx)))
    return min(candidates, default=NEVER_US)


def _may_be_last(group: Group, receives: Sequence[HistoryEvent], handle: str | None) -> bool:
    """Return whether the receive that gave this handle may have been the last one."""
    own = [receive for receive in receives if receive.receipt_handle_hash == handle]
    others = [receive for receive in receives if receive.receipt_handle_hash != handle]
    return any(all(not group.is_before(receive, other) for other in others) for receive in own)


def _overtakings_in(group: Group, line: Sequence[Sequence[HistoryEvent]]) -> Iterator[Overtaking]:
    longest: list[tuple[int, int]] = []  # (when it was last in the queue, its place in the line)
    for place, receives in enumerate(line):
        for event in receives:
            found = _still_ahead(group, line, sorted(longest, reverse=True), event)
            if found is not None:
                yield Overtaking(found, event)
        longest = heapq.nlargest(_AHEAD_MAX, [*longest, (earliest_end_us(group, receives), place)])


def _overtakings_by_followers(group: Group, queue: str) -> Iterator[Overtaking]:
    """Yield overtakings by messages without a place, which were published behind acknowledged messages."""
    followers = group.followers(queue)
    for line in queue_lines(group, queue) if followers else ():
        for published_to, behind in followers.items():
            yield from _overtakings_by(group, queue, line, published_to, sorted(behind))


def _overtakings_by(
    group: Group,
    queue: str,
    line: Sequence[Sequence[HistoryEvent]],
    published_to: str | None,
    followers: Sequence[tuple[str, int]],
) -> Iterator[Overtaking]:
    numbered = sorted(
        (group.order[idx], place)
        for place, receives in enumerate(line)
        if (idx := receives[0].idx) in group.order and idx is not None and group.acked[idx].queue == published_to
    )
    ahead = iter(numbered)
    upcoming = next(ahead, None)
    longest: list[tuple[int, int]] = []
    for last, idx in followers:
        while upcoming is not None and upcoming[0] <= last:
            stay = (earliest_end_us(group, line[upcoming[1]]), upcoming[1])
            longest = heapq.nlargest(_AHEAD_MAX, [*longest, stay])
            upcoming = next(ahead, None)
        for event in group.receives(queue, idx):
            found = _still_ahead(group, line, longest, event)
            if found is not None:
                yield Overtaking(found, event)


def _still_ahead(
    group: Group, line: Sequence[Sequence[HistoryEvent]], longest: Sequence[tuple[int, int]], event: HistoryEvent
) -> HistoryEvent | None:
    by_us = responded_us(event) + group.spread_us(event.queue)
    for until_us, place in longest:
        if until_us <= by_us:
            return None
        before = [receive for receive in line[place] if not group.is_surely_before(event, receive)]
        if before and not group.are_in_answer_of(line[place], event):
            return before[-1]
    return None


def earliest_removal_us(group: Group, queue: str, idx: int | None) -> int:
    """Return the earliest time at which a message may have been removed from its queue.

    NEVER_US if it cannot have been.

    The time is by any clock of the group, widened by the differences between them.
    """
    sent_us = list(map(invoked_us, effective(group.publishes.get(idx or 0, ()))))
    for event in group.receives(queue, idx):
        if not sent_us or group.may_be_older(event):
            sent_us.append(invoked_us(event) if event.sent_at_us is None else event.sent_at_us)
    return earliest_removal_after_us(group, queue, min(sent_us)) if sent_us else NEVER_US


def earliest_removal_after_us(group: Group, queue: str, arrived_us: int) -> int:
    """Return the earliest removal of a message that arrived in the queue no earlier than a given time."""
    bound_us = group.widest_us if group.widest_us < NEVER_US else 0
    around_us = group.around_bound_us if group.around_bound_us < NEVER_US else 0
    kept_us = group.expectation.retention_seconds.get(queue, limits.MESSAGE_RETENTION_SECONDS) * 1_000_000
    purged_us = [
        max(purge.began_at_us - around_us, arrived_us - bound_us)
        for purge in group.around.purges
        if purge.queue == queue and arrived_us <= purge.ended_at_us + around_us
    ]
    return min([arrived_us + kept_us - bound_us, *purged_us])


def may_be_removed(group: Group, queue: str, idx: int) -> bool:
    """Return whether a message may have been taken out of a queue before its group was received there last."""
    if not group.may_be_kept_no_longer:
        return False
    received = group.received.get(queue, [])
    removed_us = earliest_removal_us(group, queue, idx)
    return any(removed_us <= responded_us(event) for event in received[-1:])
