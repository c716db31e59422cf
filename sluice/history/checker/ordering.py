"""C: order within a group."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from sluice.history.checker.group import NEVER_US, Group, by_time, invoked, is_same_receive, number, responded
from sluice.history.checker.verdict import Violation
from sluice.history.events import Event, Outcome, is_end_marker


def reordered(group: Group) -> Iterator[Violation]:
    """C1."""
    for queue in group.expectation.queues:
        first = group.first_received.get(queue, {})
        found = [idx for idx in group.in_order if idx in first and group.is_bound(queue, idx)]
        for idx, by in overtaken(group, found, first):
            yield group.violation(
                "C1",
                queue,
                [idx, by],
                "the second message was received before the first was asked for",
                [group.acked[idx], group.acked[by], first[by], first[idx]],
            )


def overtaken(group: Group, order: Sequence[int], first: Mapping[int, Event]) -> list[tuple[int, int]]:
    """Return (idx, which of the later ones came first) for what certainly came after a later one, in that order."""
    earliest: int | None = None  # of the messages later in order, the one that came first
    found: list[tuple[int, int]] = []
    for idx in reversed(order):
        if earliest is not None and group.is_before(first[earliest], first[idx]):
            found.append((idx, earliest))
        if earliest is None or by_time(first[idx]) < by_time(first[earliest]):
            earliest = idx
    return found[::-1]


def reordered_in_batch(group: Group) -> Iterator[Violation]:
    """C2."""
    for queue in group.expectation.queues:
        calls: dict[tuple[str, int, int], list[Event]] = defaultdict(list)  # one answer has one instant
        for event in group.received.get(queue, []):
            if event.call_id is not None and event.idx in group.order and group.is_bound(queue, event.idx):
                calls[event.call_id, invoked(event), responded(event)].append(event)
        for events in calls.values():
            answer = sorted(events, key=lambda event: event.batch_position or 0)
            for earlier, other in pairwise(answer):
                if earlier.idx is None or other.idx is None or group.order[earlier.idx] <= group.order[other.idx]:
                    continue
                yield group.violation(
                    "C2",
                    queue,
                    [other.idx, earlier.idx],
                    "one answer holds the second message in front of the first",
                    [earlier, other],
                )


def head_skip(group: Group) -> Iterator[Violation]:
    """C3."""
    for (queue, _), receives in sorted(group.instances.items()):
        if queue not in group.expectation.queues or not group.is_bound(queue, receives[0].idx):
            continue
        for event, again in pairwise(receives):
            skipping = _skipping(group, queue, event, again)
            if skipping is not None:
                yield group.violation(
                    "C3",
                    queue,
                    [event.idx, skipping.idx],
                    "the second message was received while the first, before it, was available again",
                    [event, skipping, again],
                )


def _skipping(group: Group, queue: str, skipped: Event, again: Event) -> Event | None:
    """Return a receive of a later message between two receives of a message nobody held or deleted meanwhile."""
    if skipped.idx not in group.order:
        return None
    received, free_us = group.received[queue], group.possible_lease_end_us(skipped)
    for event in received[bisect_right(received, free_us, key=responded) :]:
        if responded(event) >= invoked(again):
            return None
        is_later = group.order.get(event.idx, "") > group.order[skipped.idx] if event.idx is not None else False
        is_between = group.is_after(event, free_us) and group.is_before(event, again)
        is_other = not is_same_receive(event, skipped) and not is_same_receive(event, again)
        if is_later and is_between and is_other and not group.may_be_deleted(skipped, before_us=responded(event)):
            return event
    return None


def sqs_sequence(group: Group) -> Iterator[Violation]:
    """C4."""
    for queue in group.expectation.queues:
        first = group.first_received.get(queue, {})
        found = [
            first[idx]
            for idx in group.in_order
            if idx in first and first[idx].sqs_sequence_number is not None and group.is_bound(queue, idx)
        ]
        for earlier, other in pairwise(found):
            if (earlier.sqs_sequence_number or "") >= (other.sqs_sequence_number or ""):
                yield group.violation(
                    "C4",
                    queue,
                    [earlier.idx, other.idx],
                    "the queue gave the second message no higher sequence number than the first",
                    [earlier, other],
                )
    for (queue, _), receives in sorted(group.instances.items()):
        numbered = [event for event in receives if event.sqs_sequence_number is not None]
        for earlier, other in pairwise(numbered):
            if earlier.sqs_sequence_number != other.sqs_sequence_number:
                yield group.violation(
                    "C4", queue, [earlier.idx], "one message came with two sequence numbers", [earlier, other]
                )


def sns_sequence(group: Group) -> Iterator[Violation]:
    """C5."""
    first_invoked = {
        idx: min(map(invoked, _effective(tries)), default=NEVER_US) for idx, tries in group.publishes.items()
    }
    highest: Event | None = None  # of what was acked before
    by_answer = sorted((group.acked[idx] for idx in group.order), key=by_time)
    waiting = iter(by_answer)
    upcoming = next(waiting, None)
    for later in sorted(
        (group.acked[idx] for idx in group.order), key=lambda event: (first_invoked[event.idx or 0], event.idx)
    ):
        while upcoming is not None and responded(upcoming) + _bound_us(group) < first_invoked[later.idx or 0]:
            if highest is None or (number(upcoming) or "") > (number(highest) or ""):
                highest = upcoming
            upcoming = next(waiting, None)
        if (
            highest is not None
            and (number(highest) or "") >= (number(later) or "")
            and _has_single_numbering(highest, later)
        ):
            yield group.violation(
                "C5",
                None,
                [highest.idx, later.idx],
                "the second message, published after the first was acknowledged, has no higher sequence number",
                [highest, later],
            )


def _has_single_numbering(event: Event, other: Event) -> bool:
    return event.queue == other.queue and event.idx != other.idx


def _bound_us(group: Group) -> int:
    return group.expectation.clock_bound_us


def _effective(tries: Sequence[Event]) -> list[Event]:
    return [event for event in tries if event.outcome != Outcome.FAIL]


def fan_out_divergence(group: Group) -> Iterator[Violation]:
    """C6, of messages whose order in the group is not known; of the others C1 tells."""
    for single, other in combinations(group.expectation.queues, 2):
        first, second = group.first_received.get(single, {}), group.first_received.get(other, {})
        both = [idx for idx in first if idx in second and group.is_bound(single, idx) and group.is_bound(other, idx)]
        for later, earlier in overtaken(group, sorted(both, key=lambda idx: by_time(first[idx])), second):
            is_unordered = later not in group.order or earlier not in group.order
            if is_unordered and group.is_before(first[later], first[earlier]):
                yield group.violation(
                    "C6",
                    None,
                    [later, earlier],
                    f"{single} delivered the first before the second, {other} the second before the first",
                    [first[later], first[earlier], second[earlier], second[later]],
                )


def producer_reorder(group: Group) -> Iterator[Violation]:
    """C7."""
    if not group.expectation.is_planned:
        return
    published = [
        (idx, effective)
        for idx in sorted(group.publishes, key=_plan_order)
        if (effective := _effective(group.publishes[idx]))
    ]
    latest: Event | None = None  # of what comes earlier in the plan, what was acknowledged last
    for idx, tries in published:
        first = min(tries, key=invoked)
        if latest is not None and latest.idx is not None and _overlaps(group, latest, first):
            yield group.violation(
                "C7",
                None,
                [latest.idx, idx],
                "the second message was published before the first was acknowledged",
                [latest, first],
            )
        done = group.acked.get(idx)
        if done is not None and (latest is None or responded(done) > responded(latest)):
            latest = done


def _overlaps(group: Group, earlier: Event, later: Event) -> bool:
    """Return whether `later` was asked before `earlier` was answered, and was not behind it in one call."""
    calls = {event.call_id: event.batch_position or 0 for event in _effective(group.publishes[earlier.idx or 0])}
    if later.call_id in calls and calls[later.call_id] < (later.batch_position or 0):
        return False
    return invoked(later) + group.bound_us(earlier, later) < responded(earlier)


def _plan_order(idx: int) -> tuple[bool, int]:
    return is_end_marker(idx), idx
