"""R: what the runtime promises about effects, judged where consumers wrote down what they handled."""

from collections.abc import Iterator

from sluice.history.events import Event, detail_of, is_end_marker
from sluice.judge.checker.group import Group
from sluice.judge.checker.rules.existence import missing
from sluice.judge.checker.rules.ordering import overtaken
from sluice.judge.checker.verdict import Violation

_OUT_OF_TURN = ("late", "filled")
"""States that say of a message that it was handled behind later ones, as its consumer's policy allows."""


def effect_missing(group: Group) -> Iterator[Violation]:
    """R1."""
    for queue in (queue for queue in group.expectation.queues if queue in group.expectation.effects_recorded):
        absent = {
            missing_message.idx
            for missing_message in missing(group)
            if queue
            in (*missing_message.drained, *missing_message.overtaken, *missing_message.open, *missing_message.excused)
        }
        for idx, publish in sorted(group.acked.items()):
            is_owed = not is_end_marker(idx) and queue in group.owed_queues(idx) and idx not in absent
            is_elsewhere = group.is_dead_lettered(queue, idx) or idx in group.parked.get(queue, set())
            received = group.first_received.get(queue, {}).get(idx)
            is_deleted = received is not None and group.may_be_deleted(received)
            if is_owed and not is_elsewhere and is_deleted and received and idx not in group.handled.get(queue, {}):
                yield group.violation(
                    "R1", queue, [idx], "received and deleted, and never handled or set aside", [publish, received]
                )


def effect_twice(group: Group) -> Iterator[Violation]:
    """R2."""
    for queue, handled in sorted(group.handled.items()):
        for idx, events in sorted(handled.items()):
            if len(events) > 1:
                yield group.violation("R2", queue, [idx], f"its effect was committed {len(events)} times", events[:6])


def effects_reordered(group: Group) -> Iterator[Violation]:
    """R3."""
    for queue, handled in sorted(group.handled.items()):
        first = {idx: events[0] for idx, events in handled.items() if _is_in_turn(events[0])}
        orders = [[idx for idx in line if idx in first and group.is_bound(queue, idx)] for line in group.lines]
        for idx, by in (pair for order in orders for pair in overtaken(group, order, first)):
            yield group.violation(
                "R3",
                queue,
                [idx, by],
                "the effect of the second was committed before the first was begun",
                [first[by], first[idx]],
            )


def effect_after_delete(group: Group) -> Iterator[Violation]:
    """R4."""
    for queue, handled in sorted(group.handled.items()):
        for idx, events in sorted(handled.items()):
            if idx in group.parked.get(queue, set()):
                continue
            for event in group.receives(queue, idx):
                delete = group.settled_delete(event)
                if delete is not None and group.is_before(delete, events[0]):
                    sentence = "deleted before its effect was begun"
                    yield group.violation("R4", queue, [idx], sentence, [event, delete, events[0]])
                    break


def _is_in_turn(event: Event) -> bool:
    return detail_of(event.detail).get("state") not in _OUT_OF_TURN


RULES = {
    "R1": effect_missing,
    "R2": effect_twice,
    "R3": effects_reordered,
    "R4": effect_after_delete,
}
"""Anomaly to its rule."""
