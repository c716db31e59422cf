"""B: too often, and too seldom."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sluice.history.checker.group import Group, invoked, is_same_receive, number, responded
from sluice.history.checker.verdict import Violation
from sluice.history.events import Event, Outcome

_TOLERANCE_US = 30_000_000
"""The window is documented as "minimum" and begins when the queue, not the topic, has the message."""


def span_us(tries: Sequence[Event]) -> tuple[int, int]:
    """Return the least and the greatest time between the first and the last publish that may have had an effect."""
    ordered = sorted((event for event in tries if event.outcome != Outcome.FAIL), key=invoked) or list(tries)
    return invoked(ordered[-1]) - responded(ordered[0]), max(map(responded, ordered)) - invoked(ordered[0])


def window_us(group: Group) -> int:
    """Return the deduplication window."""
    return group.expectation.deduplication_window_seconds * 1_000_000


def copies(group: Group) -> Iterator[tuple[str, int, list[Event]]]:
    """Yield (queue, idx, first received event of each copy) for what became several messages in one queue."""
    for (queue, idx), ids in sorted(group.ids.items()):
        is_judged = queue in group.expectation.queues and idx in group.publishes and group.is_bound(queue, idx)
        if len(ids) > 1 and is_judged:
            yield queue, idx, [group.instances[queue, id_][0] for id_ in ids]


def duplicate_in_window(group: Group) -> Iterator[Violation]:
    """B1."""
    for queue, idx, found in copies(group):
        if span_us(group.publishes[idx])[1] < window_us(group):
            yield group.violation(
                "B1",
                queue,
                [idx],
                f"{len(found)} messages of {_single_delivery(group, idx)}, published within the window",
                [*group.publishes[idx][:2], *found[:2]],
            )


def _single_delivery(group: Group, idx: int) -> str:
    """Return in what the publishes of a message are one."""
    ids = {event.deduplication_id for event in group.publishes[idx]}
    return "one deduplication id" if len(ids) == 1 else f"what is one message under {len(ids)} deduplication ids"


def duplicate_outside_window(group: Group) -> Iterator[Violation]:
    """B2, which is lawful."""
    for queue, idx, found in copies(group):
        least = span_us(group.publishes[idx])[0]
        if least >= window_us(group):
            yield group.violation(
                "B2",
                queue,
                [idx],
                f"{len(found)} messages of one deduplication id, published {least / 1e6:.0f} s apart",
                [group.publishes[idx][0], group.publishes[idx][-1], *found[:2]],
            )


def suppressed_too_long(group: Group) -> Iterator[Violation]:
    """B3."""
    for idx, tries in sorted(group.publishes.items()):
        publishes = sorted((event for event in tries if event.outcome != Outcome.FAIL), key=invoked)
        is_repeated = len(publishes) == 2 and all(event.outcome == Outcome.OK for event in publishes)
        if not is_repeated or span_us(publishes)[0] < window_us(group) + _TOLERANCE_US:
            continue
        for queue in group.expected_queues(idx):
            end = group.end_marker(queue)
            is_over = end is not None and group.is_drained(queue) and responded(end) > responded(publishes[-1])
            if end is not None and is_over and len(group.ids.get((queue, idx), ())) == 1 and group.is_bound(queue, idx):
                yield group.violation(
                    "B3",
                    queue,
                    [idx],
                    "published again after the window, and it came only once",
                    [*publishes, group.first_received[queue][idx], end],
                )


def dedup_ack_mismatch(group: Group) -> Iterator[Violation]:
    """B5."""
    for idx, tries in sorted(group.publishes.items()):
        first = group.acked.get(idx)
        if first is None:
            continue
        for repeat in tries:
            is_repeat = repeat.outcome == Outcome.OK and number(repeat) is not None and number(first) is not None
            is_same_id = repeat.deduplication_id == first.deduplication_id
            is_within = span_us([first, repeat])[1] < window_us(group)
            if is_repeat and is_same_id and is_within and number(repeat) != number(first):
                sentence = "a repeat within the window was acknowledged with another sequence number"
                yield group.violation("B5", None, [idx], sentence, [first, repeat])
                break


def redelivery(group: Group) -> Iterator[Violation]:
    """B6, which is lawful."""
    for (queue, _), receives in sorted(group.instances.items()):
        for event, other in pairwise(receives):
            is_lawful = not _is_early(group, event, other) and group.settled_delete(event) is None
            if is_lawful and not is_same_receive(event, other):
                yield group.violation(
                    "B6", queue, [event.idx], "received again after its lease had ended", [event, other]
                )


def early_redelivery(group: Group) -> Iterator[Violation]:
    """B7."""
    for (queue, _), receives in sorted(group.instances.items()):
        for event, other in pairwise(receives):
            if not is_same_receive(event, other) and _is_early(group, event, other):
                yield group.violation(
                    "B7",
                    queue,
                    [event.idx],
                    "received again while the first receiver certainly still held it",
                    [event, other],
                )


def _is_early(group: Group, event: Event, other: Event) -> bool:
    """Return whether the two cannot be a receive and a redelivery after it, in either order."""
    bound = group.bound_us(event, other)
    if responded(other) + bound >= group.lease_end_us(event):
        return False
    return group.is_before(event, other) or responded(event) + bound < group.lease_end_us(other)


def receive_count_jump(group: Group) -> Iterator[Violation]:
    """B8."""
    for (queue, _), receives in sorted(group.instances.items()):
        if queue not in group.expectation.queues or not group.is_proven(queue):
            continue
        lost = group.expectation.lost_receives.get(queue, 0)
        for event in receives:
            if event.receive_count is None or not group.is_bound(queue, event.idx):
                continue
            others = [receive for receive in receives if receive.call_id != event.call_id]
            before = [
                receive for receive in others if group.is_before(receive, event) and not is_same_receive(receive, event)
            ]
            least = 1 + len({receive.receive_request_attempt_id or receive.call_id for receive in before})
            most = 1 + lost + sum(not group.is_before(event, receive) for receive in others)
            if not least <= event.receive_count <= most:
                yield group.violation(
                    "B8",
                    queue,
                    [event.idx],
                    f"its receive count is {event.receive_count}, and it was received {least} to {most} times",
                    [*group.publishes.get(event.idx or 0, [])[:1], *others[-3:], event],
                )
                break
