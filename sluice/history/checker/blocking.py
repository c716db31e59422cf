"""D: a group is with one receiver at a time, and H1, H2: it does not stand still either."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sluice.history.checker.group import NEVER_US, Group, invoked, is_same_receive, responded
from sluice.history.checker.verdict import Violation
from sluice.history.events import Event, Outcome, answer_detail

_HELD_MAX = 16  # the longest held of a group: an answer of ten, and enough others
_SERVED_MIN = 10
_EMPTY_MIN = 3
UNDERFILLED_MIN = 3
ENQUEUED_WITHIN_US = 1_000_000
"""After its SentTimestamp, which is of the service's clock and in milliseconds, a message is certainly in the queue."""
_FANNED_OUT_WITHIN_US = 10_000_000
"""After its acknowledgement a message is taken to be in every queue: SNS delivers at once, and says not by when."""


def group_overlap(group: Group) -> Iterator[Violation]:
    """D1: of one worker."""
    yield from _held_together(group, "D1", lambda event, other: event.worker == other.worker)


def group_interleave(group: Group) -> Iterator[Violation]:
    """D2: of two workers."""
    yield from _held_together(group, "D2", lambda event, other: event.worker != other.worker)


def _held_together(group: Group, anomaly: str, concerns: Callable[[Event, Event], bool]) -> Iterator[Violation]:
    for event, other in _overlaps(group):
        if concerns(event, other):
            yield group.violation(
                anomaly,
                event.queue,
                [event.idx, other.idx],
                "the second message was handed out while the first was certainly held",
                [event, other],
            )


def _overlaps(group: Group) -> Iterator[tuple[Event, Event]]:
    """Yield, for each receive, one of another message that was certainly held at the same time."""
    for queue in group.expectation.queues:
        held: list[tuple[int, Event]] = []
        for event in group.received.get(queue, []):
            end = group.lease_end_us(event)
            held = [(until, other) for until, other in held if until > responded(event)]
            for until, other in held:
                is_other_message = other.sqs_message_id != event.sqs_message_id
                is_both = responded(event) + group.bound_us(other, event) < min(until, end)
                if is_other_message and is_both and not is_same_receive(other, event):
                    yield other, event
                    break
            held = heapq.nlargest(_HELD_MAX, [*held, (end, event)], key=lambda value: value[0])


@dataclass(frozen=True, slots=True)
class Blocked:
    """A dead-lettered message behind which the group never moved on.

    Args:
        queue: where.
        dead: its first receive from the DLQ.
        successors: the acked messages behind it; none of them was ever received.
    """

    queue: str
    dead: Event
    successors: tuple[int, ...]


def blocked(group: Group) -> Iterator[Blocked]:
    """Yield where a group ends at a dead letter, although the queue was asked again and again."""
    for queue in group.expectation.queues:
        first = group.first_received.get(queue, {})
        dead = [idx for idx in group.in_order if group.is_dead_lettered(queue, idx)]
        event = group.dead_letter(queue, dead[-1]) if dead else None
        if event is None or not group.is_proven(queue):
            continue
        behind = tuple(idx for idx in group.in_order if group.order[idx] > group.order[dead[-1]])
        since_us = max([responded(event), *(responded(group.acked[idx]) + _FANNED_OUT_WITHIN_US for idx in behind)])
        _, empty_count = group.around.polls(
            queue, from_us=since_us + group.expectation.clock_bound_us, until_us=NEVER_US
        )
        if behind and not any(idx in first for idx in behind) and empty_count >= _EMPTY_MIN:
            yield Blocked(queue, event, behind)


def blocked_after_dead_letter(group: Group) -> Iterator[Violation]:
    """D4."""
    for block in blocked(group):
        yield group.violation(
            "D4",
            block.queue,
            [block.dead.idx, *block.successors[:3]],
            f"behind the dead letter {len(block.successors)} message(s) were never received, though the queue was"
            f" polled",
            [block.dead, group.acked[block.successors[0]]],
        )


def batch_underfill(group: Group) -> Iterator[Violation]:
    """D5."""
    for queue in group.expectation.queues:
        received = [event for event in group.received.get(queue, []) if not group.is_dead_lettered(queue, event.idx)]
        underfilled = [
            (first, after)
            for first, after in pairwise(received)
            if _is_alone(first)
            and after.sent_at_us is not None
            and after.sent_at_us + ENQUEUED_WITHIN_US < invoked(first)
            and len(group.siblings(after)) == 1
        ]
        if len(underfilled) >= UNDERFILLED_MIN and len({event.call_id for event in received}) == len(received):
            earlier, after = underfilled[0]
            yield group.violation(
                "D5",
                queue,
                [earlier.idx, after.idx],
                f"{len(underfilled)} receives that asked for more brought one message while the next was in the queue",
                [earlier, after],
            )


def _is_alone(event: Event) -> bool:
    """Return whether the message was the only one of an answer that could have held more."""
    return (event.max_number_of_messages or 1) > 1 and event.detail == answer_detail(1)


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which a queue certainly had a message of the group to give, and nobody held the group.

    Args:
        queue: where.
        message: its receive: what ended the wait, or the last before a wait nothing ended.
        from_us: since when.
        until_us: until when.
    """

    queue: str
    message: Event
    from_us: int
    until_us: int


def waits(group: Group) -> Iterator[Wait]:
    """Yield every such time. Where a receive was never answered nothing is certain."""
    for queue in group.expectation.queues:
        if group.is_proven(queue) and not group.expectation.lost_receives.get(queue):
            yield from _waits(group, queue, group.received.get(queue, []))


def _waits(group: Group, queue: str, received: Sequence[Event]) -> Iterator[Wait]:
    bound = group.expectation.clock_bound_us
    received_instants = _least_to_come([invoked(event) for event in received])
    free_us = 0
    for event, next_invoked_us in zip(received, received_instants, strict=True):
        if event.sent_at_us is not None:
            from_us = max(free_us, event.sent_at_us + ENQUEUED_WITHIN_US) + bound
            if from_us < next_invoked_us - bound:
                yield Wait(queue, event, from_us, next_invoked_us - bound)
        free_us = max(free_us, group.possible_lease_end_us(event))
    last = [event for event in received if group.siblings(event)[-1] is event]
    left = [event for event in last if not group.may_be_deleted(event) and not group.may_be_dead_lettered(event)]
    until_us = group.around.last_poll_us(queue) - bound
    if left and free_us + bound < until_us:
        yield Wait(queue, left[-1], free_us + bound, until_us)


def _least_to_come(values: Sequence[int]) -> list[int]:
    least, found = NEVER_US, []
    for value in reversed(values):
        least = min(least, value)
        found.append(least)
    return found[::-1]


def passed_over(group: Group) -> Iterator[Violation]:
    """D3."""
    allowed, stuck = group.expectation.passed_over_seconds_max, group.expectation.stuck_seconds_max
    for wait in waits(group) if allowed is not None else ():
        seconds = (wait.until_us - wait.from_us) / 1e6
        served_count, _ = group.around.polls(wait.queue, from_us=wait.from_us, until_us=wait.until_us)
        if allowed is not None and allowed < seconds <= (stuck or seconds) and served_count >= _SERVED_MIN:
            yield group.violation(
                "D3",
                wait.queue,
                [wait.message.idx],
                f"passed over for {seconds:.1f} s, allowed are {allowed:g} s, and {served_count} receives were served",
                [*_published(group, wait.message), wait.message],
            )


def stuck(group: Group) -> Iterator[Violation]:
    """H1."""
    allowed = group.expectation.stuck_seconds_max
    for wait in waits(group) if allowed is not None else ():
        seconds = (wait.until_us - wait.from_us) / 1e6
        polls = sum(group.around.polls(wait.queue, from_us=wait.from_us, until_us=wait.until_us))
        if allowed is not None and seconds > allowed and polls >= _SERVED_MIN:
            yield group.violation(
                "H1",
                wait.queue,
                [wait.message.idx],
                f"stood still for {seconds:.1f} s, allowed are {allowed:g} s, while the queue was asked {polls} times",
                [*_published(group, wait.message), wait.message],
            )


def false_empty(group: Group) -> Iterator[Violation]:
    """H2."""
    for wait in waits(group):
        _, empty_count = group.around.polls(wait.queue, from_us=wait.from_us, until_us=wait.until_us)
        if empty_count:
            yield group.violation(
                "H2",
                wait.queue,
                [wait.message.idx],
                f"{empty_count} long poll(s) came back empty while the message was there for all of their time",
                [*_published(group, wait.message), wait.message],
            )


def _published(group: Group, event: Event) -> list[Event]:
    return [publish for publish in group.publishes.get(event.idx or 0, []) if publish.outcome != Outcome.FAIL][:1]
