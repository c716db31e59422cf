"""C: order within a group."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from sluice.history.events import CallOutcome, HistoryEvent, is_end_marker
from sluice.judge.checker.group import Group, by_time, effective, invoked_us, number, responded_us
from sluice.judge.checker.rules import FoundViolation, rule
from sluice.judge.checker.rules.existence import has_vanished
from sluice.judge.checker.standing import Overtaking, is_free, overtakings, queue_lines


@rule("C1")
def _find_reordered_messages(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.queues:
        first = group.first_received.get(queue, {})
        for line in group.lines:
            found = [idx for idx in line if idx in first and group.has_stayed(queue, idx, by=first[idx])]
            for idx, by in overtaken(group, found, first):
                if first[idx].call_id is not None and first[idx].call_id == first[by].call_id:
                    continue  # C2
                sentence = "the second message was received before the first was asked for"
                yield queue, [idx, by], sentence, [group.acked[idx], group.acked[by], first[by], first[idx]]
        yield from _reordered_copies(group, queue)


def _reordered_copies(group: Group, queue: str) -> Iterator[FoundViolation]:
    """Yield reordered messages whose publishes give them no place: without an answer, or a window apart."""
    for line in queue_lines(group, queue):
        first = {place: receives[0] for place, receives in enumerate(line)}
        for place, by in overtaken(group, range(len(line)), first):
            idxs = first[place].idx, first[by].idx
            is_one_answer = first[place].call_id is not None and first[place].call_id == first[by].call_id  # C2
            if not is_one_answer and not all(idx in group.order for idx in idxs):
                sentence = "the second message was received before the first was asked for"
                yield queue, idxs, sentence, [first[by], first[place]]


def overtaken(group: Group, order: Sequence[int], first: Mapping[int, HistoryEvent]) -> list[tuple[int, int]]:
    """Return (idx, the later message that came first) of each message that certainly arrived after a later one.

    Within one answer, the message further behind arrived later.
    """
    earliest: int | None = None  # the first received of the messages later in order
    found: list[tuple[int, int]] = []
    for idx in reversed(order):
        if earliest is not None and came_before(group, first[earliest], first[idx]):
            found.append((idx, earliest))
        if earliest is None or by_time(first[idx]) < by_time(first[earliest]):
            earliest = idx
    return found[::-1]


def came_before(group: Group, first: HistoryEvent, second: HistoryEvent) -> bool:
    """Return whether one message was received before the other was requested, or stands before it in one answer."""
    if first.call_id is not None and first.call_id == second.call_id:
        return (first.batch_position or 0) < (second.batch_position or 0)
    return group.is_before(first, second)


@rule("C2")
def _find_reordered_in_batch(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.queues:
        # all messages of one answer have one time
        calls: dict[tuple[str, int, int], list[HistoryEvent]] = defaultdict(list)
        for event in group.received.get(queue, []):
            if event.call_id is not None and group.has_stayed(queue, event.idx, by=event):
                calls[event.call_id, invoked_us(event), responded_us(event)].append(event)
        for events in calls.values():
            answer = _first_of_each(sorted(events, key=lambda event: event.batch_position or 0))
            for earlier, other in pairwise(answer):
                if _is_out_of_order(group, earlier, other):
                    sentence = "one answer holds the second message in front of the first"
                    yield queue, [other.idx, earlier.idx], sentence, [earlier, other]


def _first_of_each(answer: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return the first position of each message in an answer: a receive with timeout 0 may repeat one (VIS-12)."""
    first: dict[object, HistoryEvent] = {}
    for position, event in enumerate(answer):
        first.setdefault(event.sqs_message_id or position, event)
    return list(first.values())


def _is_out_of_order(group: Group, first: HistoryEvent, second: HistoryEvent) -> bool:
    numbers = first.sqs_sequence_number, second.sqs_sequence_number
    if None not in numbers and (numbers[0] or "") > (numbers[1] or ""):
        return True
    if None not in numbers and any(idx in group.acked and idx not in group.order for idx in (first.idx, second.idx)):
        return False  # several messages of one idx: only the queue's numbers show which one was received
    place, other = group.place(first), group.place(second)
    if place is not None and other is not None:
        return place[0] == other[0] and place[1] > other[1]
    return group.is_ahead(second.idx, first.idx)


@rule("C3")
def _find_head_skips(group: Group) -> Iterator[FoundViolation]:
    """Find a message that was available again, and passed over.

    AWS: a delete with an older handle `succeeds, but the message might not be deleted` (API_DeleteMessage, read
    2026-11-20). LocalStack deletes the message (VIS-05). So such a delete, from a worker that was paused before it,
    proves nothing, unless the message is received again.
    """
    for skip in overtakings(group):
        siblings = group.siblings(skip.ahead)
        again = [event for event in siblings if group.is_before(skip.event, event)]
        may_be_deleted = not again and _is_deleted_by_any_handle(group, skip)
        if is_free(group, skip) and not has_vanished(group, siblings[-1]) and not may_be_deleted:
            sentence = "the second message was received while the first, before it, was available again"
            yield skip.event.queue, [skip.ahead.idx, skip.event.idx], sentence, [skip.ahead, skip.event, *again[:1]]


def _is_deleted_by_any_handle(group: Group, skip: Overtaking) -> bool:
    return any(
        attempt.outcome == CallOutcome.OK
        and group.may_delete(attempt, skip.ahead)
        and not group.is_before(attempt, skip.ahead)
        and not group.is_before(skip.event, attempt)
        for attempt in group.tries(skip.ahead)
    )


@rule("C4")
def _find_falling_sqs_numbers(group: Group) -> Iterator[FoundViolation]:
    for queue in group.expectation.queues:
        for earlier, other in (
            pair for line in group.lines for pair in pairwise(_receives_with_number(group, queue, line))
        ):
            if (earlier.sqs_sequence_number or "") >= (other.sqs_sequence_number or ""):
                sentence = "the queue gave the second message no higher sequence number than the first"
                yield queue, [earlier.idx, other.idx], sentence, [earlier, other]
    for (queue, _), receives in sorted(group.instances.items()):
        numbered = [event for event in receives if event.sqs_sequence_number is not None]
        for earlier, other in pairwise(numbered):
            if earlier.sqs_sequence_number != other.sqs_sequence_number:
                yield queue, [earlier.idx], "one message came with two sequence numbers", [earlier, other]


def _receives_with_number(group: Group, queue: str, line: Sequence[int]) -> list[HistoryEvent]:
    first = group.first_received.get(queue, {})
    return [
        first[idx]
        for idx in line
        if idx in first and first[idx].sqs_sequence_number is not None and group.has_stayed(queue, idx, by=first[idx])
    ]


@rule("C5")
def _find_falling_sns_numbers(group: Group) -> Iterator[FoundViolation]:
    places: dict[str | None, list[HistoryEvent]] = defaultdict(list)
    for idx in group.publishes:
        for event in _numbered_publishes(group, idx):
            places[event.queue].append(event)
    for published in places.values():
        yield from _find_fallen_numbers(group, published)
        yield from _find_reversed_entries(group, published)
        yield from _find_shared_numbers(published)


def _numbered_publishes(group: Group, idx: int) -> list[HistoryEvent]:
    """Return the first acknowledgement of each sequence number of a message's publishes.

    If a message has a single publish without an answer, the first received envelope gives the number.
    """
    first: dict[tuple[str | None, str], HistoryEvent] = {}
    for event in sorted((*group.publishes[idx], *_publishes_with_envelope_number(group, idx)), key=by_time):
        name = number(event)
        if event.outcome == CallOutcome.OK and name is not None:
            first.setdefault((event.queue, name), event)
    return list(first.values())


def _publishes_with_envelope_number(group: Group, idx: int) -> Iterator[HistoryEvent]:
    tries = effective(group.publishes[idx])
    enveloped = [receive for first in group.first_received.values() if (receive := first.get(idx)) is not None]
    enveloped = [
        receive for receive in enveloped if receive.sns_sequence_number is not None and not group.may_be_older(receive)
    ]
    if (
        len(tries) == 1
        and tries[0].outcome == CallOutcome.INFO
        and tries[0].queue not in group.expectation.queues
        and enveloped
    ):
        receive = min(enveloped, key=responded_us)
        yield replace(
            tries[0],
            outcome=CallOutcome.OK.value,
            responded_at_us=responded_us(receive) + group.bound_us(tries[0], receive),
            sns_sequence_number=receive.sns_sequence_number,
        )


def _find_fallen_numbers(group: Group, published: Sequence[HistoryEvent]) -> Iterator[FoundViolation]:
    """Yield each message that was published after the acknowledgement of a higher number."""
    tried_us = {event: _tried_us(group, event) for event in published}
    highest: HistoryEvent | None = None  # the highest number acknowledged before
    waiting = iter(sorted(published, key=by_time))
    upcoming = next(waiting, None)
    for later in sorted(published, key=lambda event: (tried_us[event], event.idx)):
        while upcoming is not None and responded_us(upcoming) + group.publishers_spread_us < tried_us[later]:
            if highest is None or (number(upcoming) or "") > (number(highest) or ""):
                highest = upcoming
            upcoming = next(waiting, None)
        is_fallen = highest is not None and highest is not later and (number(highest) or "") >= (number(later) or "")
        if highest is not None and is_fallen and not group.may_be_repeat(later.idx or 0):
            sentence = "the second message, published after the first was acknowledged, has no higher sequence number"
            yield None, [highest.idx, later.idx], sentence, [highest, later]


def _find_reversed_entries(group: Group, published: Sequence[HistoryEvent]) -> Iterator[FoundViolation]:
    """Yield two entries of a batch of which the later has the lower number: a batch is taken in its order (BAT-09).

    An entry that may repeat an earlier publish may have the number of that publish.
    """
    calls: dict[str, list[HistoryEvent]] = defaultdict(list)
    for event in published:
        is_new = _tried_us(group, event) == invoked_us(event) and not group.may_be_repeat(event.idx or 0)
        if event.call_id is not None and is_new:
            calls[event.call_id].append(event)
    for entries in calls.values():
        for earlier, later in pairwise(sorted(entries, key=lambda event: event.batch_position or 0)):
            if (number(earlier) or "") > (number(later) or ""):
                sentence = "the second message stands behind the first in a batch, and has a lower sequence number"
                yield None, [earlier.idx, later.idx], sentence, [earlier, later]


def _tried_us(group: Group, event: HistoryEvent) -> int:
    """Return the earliest time at which the publish with this number may have been made.

    A publish without an answer may have got the number; a queue also numbers the messages that a topic sends to it.
    """
    is_of_queue = event.queue in group.expectation.queues
    tries = [
        attempt
        for attempt in effective(group.publishes[event.idx or 0])
        if number(attempt) in (None, number(event)) or (is_of_queue and attempt.queue != event.queue)
    ]
    return min(map(invoked_us, tries))


def _find_shared_numbers(published: Sequence[HistoryEvent]) -> Iterator[FoundViolation]:
    """Yield two messages with the same number."""
    owners: dict[str | None, HistoryEvent] = {}
    for event in sorted(published, key=by_time):
        owner = owners.setdefault(number(event), event)
        if owner.idx != event.idx:
            sentence = "the two messages were acknowledged with one sequence number"
            yield None, [owner.idx, event.idx], sentence, [owner, event]


@rule("C6")
def _find_fan_out_divergence(group: Group) -> Iterator[FoundViolation]:
    """Find messages without a known order in the group that two queues delivered in different orders.

    C1 has the others.
    """
    for single, other in combinations(group.expectation.queues, 2):
        first, second = group.first_received.get(single, {}), group.first_received.get(other, {})
        both = [
            idx for idx in first if idx in second and group.has_stayed(single, idx) and group.has_stayed(other, idx)
        ]
        for later, earlier in overtaken(group, sorted(both, key=lambda idx: by_time(first[idx])), second):
            is_unordered = later not in group.order or earlier not in group.order
            is_unordered = is_unordered and group.are_of_one_place(later, earlier)
            if is_unordered and group.is_before(first[later], first[earlier]):
                sentence = f"{single} delivered the first before the second, {other} the second before the first"
                yield None, [later, earlier], sentence, [first[later], first[earlier], second[earlier], second[later]]


@rule("C7")
def _find_producer_reorders(group: Group) -> Iterator[FoundViolation]:
    if not group.expectation.is_planned:
        return
    published = [
        (idx, sent)
        for idx in sorted(group.publishes, key=lambda idx: (is_end_marker(idx), idx))
        if (sent := effective(group.publishes[idx]))
    ]
    latest: HistoryEvent | None = None  # the last acknowledged message of those earlier in the plan
    for idx, tries in published:
        first = min(tries, key=invoked_us)
        if latest is not None and latest.idx is not None and _overlaps(group, latest, first):
            sentence = "the second message was published before the first was acknowledged"
            yield None, [latest.idx, idx], sentence, [latest, first]
        done = group.acked.get(idx)
        if done is not None and (latest is None or responded_us(done) > responded_us(latest)):
            latest = done


def _overlaps(group: Group, earlier: HistoryEvent, later: HistoryEvent) -> bool:
    """Return whether `later` was called before `earlier` was answered, and did not stand behind it in one call."""
    calls = {event.call_id: event.batch_position or 0 for event in effective(group.publishes[earlier.idx or 0])}
    if later.call_id in calls and calls[later.call_id] < (later.batch_position or 0):
        return False
    return invoked_us(later) + group.bound_us(later, earlier) < responded_us(earlier)
