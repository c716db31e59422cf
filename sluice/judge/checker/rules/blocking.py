"""D: at any time one receiver has a group. H1 and H2: a group with available messages does not wait."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from sluice.history.bundles import part_position
from sluice.history.events import HistoryEvent, answer_detail
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.group import ENQUEUED_WITHIN_US, Group, effective, invoked_us, responded_us
from sluice.judge.checker.rules import FoundViolation, rule
from sluice.judge.checker.standing import earliest_removal_us, is_free, may_be_removed, overtakings

_HELD_MAX = 16  # the longest holds that are kept: an answer has at most ten messages
_SERVED_MIN = 10
_EMPTY_MIN = 3
UNDERFILLED_MIN = 3
_FANNED_OUT_WITHIN_US = 10_000_000
"""A message counts as being in every queue so long after its acknowledgement; AWS documents no bound."""


@rule("D1")
def _find_overlaps_in_a_worker(group: Group) -> Iterator[FoundViolation]:
    yield from _find_held_together(group, lambda event, other: event.worker == other.worker)


@rule("D2")
def _find_overlaps_between_workers(group: Group) -> Iterator[FoundViolation]:
    yield from _find_held_together(group, lambda event, other: event.worker != other.worker)


def _find_held_together(
    group: Group, concerns: Callable[[HistoryEvent, HistoryEvent], bool]
) -> Iterator[FoundViolation]:
    found: set[tuple[int | None, int | None]] = set()
    skips = ((skip.ahead, skip.event) for skip in overtakings(group) if not is_free(group, skip))
    for event, other in chain(skips, _overlaps(group)):
        if concerns(event, other) and (event.idx, other.idx) not in found:
            found.add((event.idx, other.idx))
            sentence = "the second message was handed out while the first had certainly not left the queue"
            yield event.queue, [event.idx, other.idx], sentence, [event, other]


def _overlaps(group: Group) -> Iterator[tuple[HistoryEvent, HistoryEvent]]:
    """Yield each first receive, with a receive of another message of the group that was certainly held at that time.

    A redelivered message may stand before the held one: they were received together, and its hold ended earlier.
    """
    for queue in group.judged_queues:
        held: list[tuple[int, HistoryEvent]] = []
        for event in group.received.get(queue, []):
            end = _hold_end_us(group, event)
            held = [(until, other) for until, other in held if responded_us(event) - group.widest_us < until]
            for until, other in held:
                is_other_message = other.sqs_message_id != event.sqs_message_id and _is_first(group, event)
                is_both = responded_us(event) + group.bound_us(event, other) < until
                is_both = is_both and max(responded_us(event), responded_us(other) + group.bound_us(other, event)) < end
                if is_other_message and is_both and not group.are_in_answer_of([other], event):
                    yield other, event
                    break
            held = heapq.nlargest(_HELD_MAX, [*held, (end, event)], key=lambda value: value[0])


def _hold_end_us(group: Group, event: HistoryEvent) -> int:
    end = group.lease_end_us(event)
    if event.idx is not None and may_be_removed(group, event.queue or "", event.idx):
        return min(end, earliest_removal_us(group, event.queue or "", event.idx))
    return end


def _is_first(group: Group, event: HistoryEvent) -> bool:
    """Return whether a message was not received before.

    In a DLQ its count continues, and does not show that (DLQ-07).
    """
    if event.receive_count is not None and event.queue in group.expectation.queues:
        return event.receive_count == 1
    return group.siblings(event)[0] is event and not group.expectation.lost_receives.get(event.queue or "")


@dataclass(frozen=True, slots=True)
class Blockade:
    """A dead-lettered message behind which the group never moved on.

    Args:
        dead: its first receive from the DLQ.
        successors: the acked messages behind it; none of them was ever received.
    """

    queue: str
    dead: HistoryEvent
    successors: tuple[int, ...]


def find_blockades(group: Group) -> Iterator[Blockade]:
    """Yield each queue in which the group ends at a dead letter although the queue was polled again and again."""
    for queue in group.expectation.queues:
        for line in group.lines if group.is_proven(queue) else ():
            places = [place for place, idx in enumerate(line) if group.is_dead_lettered(queue, idx)]
            event = group.dead_letter(queue, line[places[-1]]) if places else None
            behind = [idx for idx in line[places[-1] + 1 :] if group.is_certainly_owed(queue, idx)] if places else []
            if event is not None and _is_blocked_behind(group, queue, event, behind):
                yield Blockade(queue, event, tuple(behind))


def _is_blocked_behind(group: Group, queue: str, dead: HistoryEvent, behind: Sequence[int]) -> bool:
    """Return whether no message behind a dead letter ever arrived, although none had expired.

    The queue must have answered empty several times after all of them had certainly reached it.
    """
    since_us = max([responded_us(dead), *(responded_us(group.acked[idx]) + _FANNED_OUT_WITHIN_US for idx in behind)])
    _, empty_count = group.around.polls(queue, from_us=since_us + group.around_bound_us, until_us=NEVER_US)
    has_none_arrived = not any(idx in group.first_received.get(queue, {}) for idx in behind)
    has_none_expired = all(earliest_removal_us(group, queue, idx) > group.around.last_poll_us(queue) for idx in behind)
    return bool(behind) and has_none_arrived and has_none_expired and empty_count >= _EMPTY_MIN


@rule("D4")
def _find_blocks_after_dead_letters(group: Group) -> Iterator[FoundViolation]:
    for block in find_blockades(group):
        count, witness = len(block.successors), [block.dead, group.acked[block.successors[0]]]
        sentence = f"behind the dead letter {count} message(s) were never received, though the queue was polled"
        yield block.queue, [block.dead.idx, *block.successors[:3]], sentence, witness


@rule("D5")
def _find_underfilled_batches(group: Group) -> Iterator[FoundViolation]:
    """Find receives that returned fewer messages than were available, which is lawful.

    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html (2026-11-20)
    """
    for queue in group.expectation.queues:
        received = [
            event
            for event in group.received.get(queue, [])
            if part_position(event.sqs_message_id) == 0 and not group.is_dead_lettered(queue, event.idx)
        ]
        underfilled = [
            (first, after)
            for first, after in pairwise(received)
            if _is_alone(first)
            and after.sent_at_us is not None
            and after.sent_at_us + ENQUEUED_WITHIN_US + group.around_bound_us < invoked_us(first)
            and len(group.siblings(after)) == 1
        ]
        if len(underfilled) >= UNDERFILLED_MIN and len({event.call_id for event in received}) == len(received):
            earlier, after = underfilled[0]
            sentence = (
                f"{len(underfilled)} receives that asked for more brought one message while the next was in the queue"
            )
            yield queue, [earlier.idx, after.idx], sentence, [earlier, after]


def _is_alone(event: HistoryEvent) -> bool:
    """Return whether the message was the only one of an answer that had room for more."""
    return (event.max_number_of_messages or 1) > 1 and event.detail == answer_detail(1)


@dataclass(frozen=True, slots=True)
class GroupWait:
    """A time in which a queue certainly had an available message of the group, and no consumer held the group.

    Args:
        message: the receive that ended the wait, or the last receive before a wait that did not end.
        is_freed_by_time: whether the last hold of the group ended by its visibility timeout and not by a delete. No
            document says how soon a queue notices the end of a visibility timeout (VIS-15).
    """

    queue: str
    message: HistoryEvent
    from_us: int
    until_us: int
    is_freed_by_time: bool


def waits(group: Group) -> Iterator[GroupWait]:
    """Yield every wait of the group in queues whose receives were all answered.

    A lost answer leaves waits uncertain.
    """
    for queue in group.expectation.queues:
        if group.is_proven(queue) and not group.expectation.lost_receives.get(queue):
            yield from _waits_in_queue(group, queue, group.received.get(queue, []))


def _waits_in_queue(group: Group, queue: str, received: Sequence[HistoryEvent]) -> Iterator[GroupWait]:
    bound = group.around_bound_us
    received_instants = _minimum_from_here([invoked_us(event) for event in received])
    free_us, is_freed_by_time = _free_us(group, queue), False
    delay_us = _delay_us(group, queue, received)
    for event, next_invoked_us in zip(received, received_instants, strict=True):
        if event.sent_at_us is not None:
            from_us = max(free_us, event.sent_at_us + delay_us + ENQUEUED_WITHIN_US) + bound
            if from_us < next_invoked_us - bound:
                yield GroupWait(queue, event, from_us, next_invoked_us - bound, is_freed_by_time)
        end_us = group.possible_lease_end_us(event)
        if end_us >= free_us:
            free_us, is_freed_by_time = end_us, end_us == group.possible_expiry_us(event)
    last = [event for event in received if group.siblings(event)[-1] is event]
    left = [event for event in last if not group.may_be_deleted(event) and not group.may_be_dead_lettered(event)]
    until_us = group.around.last_poll_us(queue) - bound
    if left:
        until_us = min(until_us, earliest_removal_us(group, queue, left[-1].idx))
    if left and free_us + bound < until_us:
        yield GroupWait(queue, left[-1], free_us + bound, until_us, is_freed_by_time)


def _free_us(group: Group, queue: str) -> int:
    """Return when the holds from before the recording end at the latest, unless somebody prolonged them."""
    began_us = group.expectation.receiving_began_us.get(queue)
    held_us = group.expectation.visibility_timeout_seconds.get(queue, 0) * 1_000_000
    return 0 if began_us is None else began_us + held_us


def _delay_us(group: Group, queue: str, received: Sequence[HistoryEvent]) -> int:
    """Return for how long the queue may hide a message after it was sent."""
    seconds = group.expectation.delay_seconds.get(queue, 0)
    if seconds is not None:
        return seconds * 1_000_000
    waited = [responded_us(event) - event.sent_at_us for event in received if event.sent_at_us is not None]
    return max(0, min(waited, default=0))


def _minimum_from_here(values: Sequence[int]) -> list[int]:
    """Return for each position the smallest value from there to the end."""
    least, found = NEVER_US, []
    for value in reversed(values):
        least = min(least, value)
        found.append(least)
    return found[::-1]


@rule("D3")
def _find_groups_passed_over(group: Group) -> Iterator[FoundViolation]:
    allowed, stuck = group.expectation.passed_over_seconds_max, group.expectation.stuck_seconds_max
    for wait in waits(group) if allowed is not None else ():
        seconds = (wait.until_us - wait.from_us) / 1e6
        served_count, _ = group.around.polls(wait.queue, from_us=wait.from_us, until_us=wait.until_us)
        if allowed is not None and allowed < seconds <= (stuck or seconds) and served_count >= _SERVED_MIN:
            sentence = (
                f"passed over for {seconds:.1f} s, allowed are {allowed:g} s, and {served_count} receives were served"
            )
            yield _wait_finding(group, wait, sentence)


@rule("H1")
def _find_stuck_groups(group: Group) -> Iterator[FoundViolation]:
    allowed = group.expectation.stuck_seconds_max
    for wait in waits(group) if allowed is not None else ():
        seconds = (wait.until_us - wait.from_us) / 1e6
        polls = sum(group.around.polls(wait.queue, from_us=wait.from_us, until_us=wait.until_us))
        if allowed is not None and seconds > allowed and polls >= _SERVED_MIN:
            sentence = (
                f"stood still for {seconds:.1f} s, allowed are {allowed:g} s, while the queue was asked {polls} times"
            )
            yield _wait_finding(group, wait, sentence)


@rule("H2")
def _find_false_empty_polls(group: Group) -> Iterator[FoundViolation]:
    for wait in waits(group):
        _, empty_count = group.around.polls(wait.queue, from_us=wait.from_us, until_us=wait.until_us)
        if empty_count and not wait.is_freed_by_time:
            sentence = f"{empty_count} long poll(s) came back empty while the message was there for all of their time"
            yield _wait_finding(group, wait, sentence)


def _wait_finding(group: Group, wait: GroupWait, sentence: str) -> FoundViolation:
    publishes = group.publishes.get(wait.message.idx or 0, [])
    published = effective(publishes)[:1]
    return wait.queue, [wait.message.idx], sentence, [*published, wait.message]
