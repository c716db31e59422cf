"""A and E: messages that should be there and are not, and messages that should not be there and are."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sluice.history.bundles import message_number
from sluice.history.events import CallOutcome, HistoryEvent
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.group import ENQUEUED_WITHIN_US, Group, effective, invoked_us, is_same_receive, responded_us
from sluice.judge.checker.rules import FoundViolation, rule
from sluice.judge.checker.standing import may_be_removed


@dataclass(frozen=True, slots=True)
class MissingMessage:
    """An acked message and the queues from which it was not received, sorted by what that proves.

    Args:
        drained: queues that were drained, so that it will not arrive any more.
        overtaken: queues that were not drained, in which a later message arrived.
        open: queues in which it may still arrive.
        removed: those of the open queues whose retention may have ended.
        excused: queues that a documented fault may have kept it from.
        is_received_somewhere: whether another of its queues delivered it.
    """

    idx: int
    drained: tuple[str, ...] = ()
    overtaken: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    excused: tuple[str, ...] = ()
    is_received_somewhere: bool = False


@lru_cache(maxsize=1)  # five rules call it with the same group
def missing(group: Group) -> Sequence[MissingMessage]:
    """Return the acked messages that were not received from every queue they had to reach."""
    return tuple(_all_missing(group))


def _all_missing(group: Group) -> Iterator[MissingMessage]:
    furthest, bundles = _last_received_of_lines(group), _received_bundles(group)
    for idx in sorted(group.acked):
        expected = group.owed_queues(idx)
        absent = [
            queue
            for queue in expected
            if idx not in group.first_received.get(queue, {}) and not group.is_dead_lettered(queue, idx)
        ]
        if not absent:
            continue
        unseen = tuple(
            queue
            for queue in absent
            if group.may_be_dead_lettered_unseen(queue)
            or _may_predate(group, queue, idx)
            or not group.is_certainly_owed(queue, idx)
        )
        excused = tuple(queue for queue in absent if _is_excused(group, queue, idx))
        removed = tuple(queue for queue in absent if may_be_removed(group, queue, idx))
        left_open = (*excused, *unseen, *removed)
        drained = tuple(queue for queue in absent if queue not in left_open and group.is_drained(queue))
        overtaken = tuple(
            queue
            for queue in absent
            if queue not in (*left_open, *drained)
            and group.is_proven(queue)
            and _came_instead(group, idx, furthest[queue], bundles[queue]) is not None
        )
        yield MissingMessage(
            idx=idx,
            drained=drained,
            overtaken=overtaken,
            open=tuple(queue for queue in absent if queue not in (*excused, *drained, *overtaken)),
            removed=removed,
            excused=excused,
            is_received_somewhere=len(absent) < len(expected),
        )


def _may_predate(group: Group, queue: str, idx: int) -> bool:
    """Return whether an acked message may have been received, and deleted, before the recording began."""
    began_us = group.expectation.receiving_began_us.get(queue)
    return (
        group.may_be_repeat(idx)
        or group.may_be_swallowed(queue, idx)
        or (began_us is not None and min(map(invoked_us, effective(group.publishes[idx]))) < began_us)
    )


def _last_received_of_lines(group: Group) -> Mapping[str, Sequence[int]]:
    """Return for each queue the last received message of each line, and the received ones published behind a line."""
    furthest: dict[str, list[int]] = {}
    for queue in group.expectation.queues:
        first = group.first_received.get(queue, {})
        came = [next((idx for idx in reversed(line) if idx in first), None) for line in group.lines]
        followers = [max(behind)[1] for behind in group.followers(queue).values()]
        furthest[queue] = [idx for idx in (*came, *followers) if idx is not None]
    return furthest


def _received_bundles(group: Group) -> Mapping[str, Mapping[tuple[str | None, str], int]]:
    """Return for each queue the bundles of which an event was received: place and number to that event."""
    return {
        queue: {
            (group.acked[idx].queue, message_number(group.order[idx])): idx
            for idx in group.first_received.get(queue, {})
            if idx in group.order
        }
        for queue in group.expectation.queues
    }


def _came_instead(
    group: Group, idx: int, furthest: Sequence[int], bundles: Mapping[tuple[str | None, str], int]
) -> int | None:
    """Return a received message that proves another lost: one behind it, or in its bundle. None if there is none."""
    later = next((later for later in furthest if group.is_ahead(idx, later)), None)
    if later is not None or idx not in group.order:
        return later
    return bundles.get((group.acked[idx].queue, message_number(group.order[idx])))


def _is_excused(group: Group, queue: str, idx: int) -> bool:
    return any(
        invoked_us(publish) - group.around_bound_us <= fault.ended_at_us
        and fault.began_at_us <= responded_us(publish) + group.around_bound_us
        for publish in group.publishes[idx]
        for fault in group.around.faults
        if fault.queue == queue
    )


@rule("A1")
def _find_lost_messages(group: Group) -> Iterator[FoundViolation]:
    for gap in missing(group):
        if gap.drained and not gap.is_received_somewhere:
            sentence = f"acknowledged, and received from none of {', '.join(gap.drained)}, all drained"
            yield None, [gap.idx], sentence, [group.acked[gap.idx], *_end_markers(group, gap.drained)]


@rule("A2")
def _find_lost_prefixes(group: Group) -> Iterator[FoundViolation]:
    furthest, bundles = _last_received_of_lines(group), _received_bundles(group)
    for gap in missing(group):
        for queue in gap.overtaken:
            other = _came_instead(group, gap.idx, furthest[queue], bundles[queue])
            where = "before it in the group" if group.is_ahead(gap.idx, other) else "in the same bundle"
            sentence = f"the second message was received, the first, {where}, never was"
            witness = [group.acked[gap.idx], *([group.first_received[queue][other]] if other is not None else [])]
            yield queue, [gap.idx, other], sentence, witness


@rule("A3")
def _find_vanished_messages(group: Group) -> Iterator[FoundViolation]:
    for (queue, _), receives in sorted(group.instances.items()):
        last, end = receives[-1], group.end_marker(queue)
        if queue in group.expectation.queues and end is not None and has_vanished(group, last):
            sentence = "received, never deleted, its lease ended, and it never came again, though the queue was drained"
            yield queue, [last.idx], sentence, [last, end]


def has_vanished(group: Group, last: HistoryEvent) -> bool:
    """Return whether a message was not redelivered after its last receive, although it had to be."""
    queue = last.queue or ""
    end = group.end_marker(queue)
    if end is None or not group.is_drained(queue) or not group.is_bound(queue, last.idx):
        return False
    is_left = not group.may_be_deleted(last) and not group.may_be_dead_lettered(last)
    is_left = is_left and not may_be_removed(group, queue, last.idx or 0)
    return (
        is_left and not is_same_receive(last, end) and group.is_after(end, group.possible_lease_end_us(last), by=last)
    )


@rule("A4")
def _find_phantoms(group: Group) -> Iterator[FoundViolation]:
    if not group.expectation.is_publishing_recorded:
        return
    published = sorted((attempt for tries in group.publishes.values() for attempt in tries), key=invoked_us)
    for queue, first in sorted(group.first_received.items()):
        for idx, event in sorted(first.items()):
            tries = group.publishes.get(idx, [])
            sent = effective(tries) or tries
            is_early = all(group.is_surely_before(event, attempt) for attempt in sent)
            if is_early and not is_moved_stranger(group, event) and not group.may_be_older(event):
                before = bisect_left(published, responded_us(event), key=invoked_us)
                # the last published event, and the received event that nobody published
                witness = [*published[before - 1 : before], event]
                when = "before any" if idx in group.publishes else "and no"
                yield queue, [idx], f"received, {when} publish of it was ever tried", witness


def is_moved_stranger(group: Group, event: HistoryEvent) -> bool:
    """Return whether a move task may have brought a message with unpublished ids: moved messages get new ids."""
    return not group.expectation.is_planned and event.idx not in group.publishes and group.may_be_from_dlq(event)


@rule("A5")
def _find_refused_messages(group: Group) -> Iterator[FoundViolation]:
    if not group.expectation.is_publishing_recorded:
        return
    for idx, publishes in sorted(group.publishes.items()):
        seen = _first_seen(group, idx)
        is_refused = all(publish.outcome == CallOutcome.FAIL for publish in publishes)
        if seen is not None and is_refused and not group.may_be_older(seen):
            yield seen.queue, [idx], "received, although every publish of it was refused", [publishes[-1], seen]


@rule("A7")
def _find_recovered_messages(group: Group) -> Iterator[FoundViolation]:
    for idx, publishes in sorted(group.publishes.items()):
        unanswered = [publish for publish in publishes if publish.outcome == CallOutcome.INFO]
        seen = _first_seen(group, idx)
        if seen is not None and unanswered and idx not in group.acked:
            yield seen.queue, [idx], "received; nobody knew whether it was published", [unanswered[0], seen]


@rule("A8")
def _find_resurrected_messages(group: Group) -> Iterator[FoundViolation]:
    yield from _find_messages_after_purge(group)
    for (queue, _), receives in sorted(group.instances.items()):
        if queue not in group.judged_queues:
            continue
        for number, event in enumerate(receives):
            delete = group.settled_delete(event)
            later = [
                other
                for other in receives[number + 1 :]
                if delete is not None and (group.is_before(delete, other) or _has_waited(group, event, other))
            ]
            if delete is not None and later:
                yield queue, [event.idx], "received after it was deleted", [event, delete, later[0]]
                break


def _has_waited(group: Group, event: HistoryEvent, other: HistoryEvent) -> bool:
    """Return whether the first receive came earlier, and the second may have come after the lease of the first ended.

    A second receive that certainly came within the lease is a B7.
    """
    is_over = responded_us(other) + group.bound_us(other, event) >= group.expiry_us(event)
    return group.is_earlier_receive(event, other) and is_over


def _find_messages_after_purge(group: Group) -> Iterator[FoundViolation]:
    """Yield each message that was in a queue at a purge, and was received more than a minute after it.

    AWS: a purge takes up to 60 seconds, and removes the messages sent before it, in flight or not (PUR-02).
    """
    for purge in group.around.purges if group.around_bound_us < NEVER_US else ():
        for (queue, _), receives in sorted(group.instances.items()):
            late = [event for event in receives if group.is_after(event, purge.ended_at_us)]
            if not purge.is_certain or queue != purge.queue or not late or not group.has_stayed(queue, late[0].idx):
                continue
            until_us = purge.began_at_us - group.around_bound_us
            sent = [publish for publish in group.publishes[late[0].idx or 0] if _is_made_by(publish, receives[0])]
            before = [event for event in (*sent, *receives) if responded_us(event) < until_us]
            sent_us = receives[0].sent_at_us if queue in group.expectation.queues else None
            if before or (sent_us is not None and sent_us + ENQUEUED_WITHIN_US < until_us):
                yield (
                    queue,
                    [late[0].idx],
                    "received more than a minute after a purge that had to remove it",
                    [
                        *before[:1],
                        late[0],
                    ],
                )


def _is_made_by(publish: HistoryEvent, receive: HistoryEvent) -> bool:
    """Return whether this publish sent the received message directly to its queue, by the id in its acknowledgement."""
    is_same = publish.queue == receive.queue and publish.sqs_message_id == receive.sqs_message_id
    return is_same and receive.sqs_message_id is not None


@rule("E1")
def _find_incomplete_fan_out(group: Group) -> Iterator[FoundViolation]:
    for gap in missing(group):
        if gap.drained and gap.is_received_somewhere:
            seen = [first[gap.idx] for first in group.first_received.values() if gap.idx in first]
            sentence = f"received from some queues, but not from {', '.join(gap.drained)}, which were drained"
            yield None, [gap.idx], sentence, [group.acked[gap.idx], seen[0], *_end_markers(group, gap.drained)]


@rule("E2")
def _find_messages_in_wrong_queue(group: Group) -> Iterator[FoundViolation]:
    expectation = group.expectation
    known = {*expectation.dead_letter_queues.values(), *expectation.subscription_dead_letter_queues.values()}
    for queue, first in sorted(group.first_received.items()):
        for idx, event in sorted(first.items()):
            if queue in known or queue in group.expected_queues(idx) or group.may_be_older(event):
                continue
            if idx in group.publishes and not group.publishes_by(event):
                continue  # A4
            sentence = f"received from {queue}, and meant for {', '.join(group.expected_queues(idx))}"
            yield queue, [idx], sentence, [*group.publishes.get(idx, [])[:1], event]


@rule("E3")
def _find_fan_out_skew(group: Group) -> Iterator[FoundViolation]:
    allowed = group.expectation.fan_out_skew_seconds_max
    if allowed is None:
        return
    for idx in sorted(group.publishes):
        queues = [group.first_received.get(queue, {}) for queue in group.expected_queues(idx)]
        came = [of_queue[idx] for of_queue in queues if idx in of_queue]
        if not came:
            continue
        first, last = min(came, key=responded_us), max(came, key=invoked_us)
        apart_us = invoked_us(last) - responded_us(first) - group.bound_us(first, last)
        if apart_us > allowed * 1_000_000:
            sentence = f"came from {last.queue} {apart_us / 1e6:.1f} s after {first.queue}, allowed are {allowed:g} s"
            yield last.queue, [idx], sentence, [first, last]


@rule("E4")
def _find_undelivered_messages(group: Group) -> Iterator[FoundViolation]:
    for queue, dead_letter_queue in sorted(group.expectation.subscription_dead_letter_queues.items()):
        for idx, event in sorted(group.first_received.get(dead_letter_queue, {}).items()):
            sentence = f"SNS could not deliver it to {queue}, and put it into {dead_letter_queue}"
            yield queue, [idx], sentence, [*group.publishes.get(idx, [])[:1], event]


@rule("E5")
def _find_messages_dropped_in_fault(group: Group) -> Iterator[FoundViolation]:
    for gap in missing(group):
        for queue in gap.excused:
            sentence = "published during a fault that loses messages"
            yield queue, [gap.idx], sentence, [group.acked[gap.idx]]


def _first_seen(group: Group, idx: int) -> HistoryEvent | None:
    seen = [first[idx] for _, first in sorted(group.first_received.items()) if idx in first]
    return seen[0] if seen else None


def _end_markers(group: Group, queues: Sequence[str]) -> list[HistoryEvent]:
    return [end for queue in queues[:3] if (end := group.end_marker(queue)) is not None]
