"""R: the promises of the runtime about effects, judged if the consumers recorded the messages that they handled."""

from collections.abc import Iterator

from sluice.history.events import HistoryEvent, detail_of, is_end_marker
from sluice.judge.checker.group import Group
from sluice.judge.checker.rules import FoundViolation, rule
from sluice.judge.checker.rules.existence import missing
from sluice.judge.checker.rules.ordering import overtaken

_OUT_OF_TURN = ("late", "filled")
"""States in an inbox that allow a message to be handled after later ones."""
_REDRIVEN = ("late",)
"""The only such state where a consumer loses no number (`Expectation.gapless`): the message was dead or skipped."""


@rule("R1")
def _find_missing_effects(group: Group) -> Iterator[FoundViolation]:
    for queue in (queue for queue in group.expectation.queues if queue in group.expectation.effects_recorded):
        absent = {gap.idx for gap in missing(group) if queue in (*gap.drained, *gap.overtaken, *gap.open, *gap.excused)}
        for idx, publish in sorted(group.acked.items()):
            is_owed = not is_end_marker(idx) and queue in group.owed_queues(idx) and idx not in absent
            is_elsewhere = group.is_dead_lettered(queue, idx) or idx in group.parked.get(queue, set())
            received = group.first_received.get(queue, {}).get(idx)
            is_deleted = received is not None and group.may_be_deleted(received)
            if is_owed and not is_elsewhere and is_deleted and received and idx not in group.handled.get(queue, {}):
                yield queue, [idx], "received and deleted, and never handled or set aside", [publish, received]


@rule("R2")
def _find_double_effects(group: Group) -> Iterator[FoundViolation]:
    for queue, handled in sorted(group.handled.items()):
        for idx, events in sorted(handled.items()):
            if len(events) > 1:
                yield queue, [idx], f"its effect was committed {len(events)} times", events[:6]


@rule("R3")
def _find_reordered_effects(group: Group) -> Iterator[FoundViolation]:
    for queue, handled in sorted(group.handled.items()):
        excused = _REDRIVEN if queue in group.expectation.gapless else _OUT_OF_TURN
        first = {idx: events[0] for idx, events in handled.items() if _state_of(events[0]) not in excused}
        orders = [[idx for idx in line if idx in first and group.is_bound(queue, idx)] for line in group.lines]
        for idx, by in (pair for order in orders for pair in overtaken(group, order, first)):
            sentence = "the effect of the second was committed before the first was begun"
            yield queue, [idx, by], sentence, [first[by], first[idx]]


@rule("R4")
def _find_effects_after_delete(group: Group) -> Iterator[FoundViolation]:
    for queue, handled in sorted(group.handled.items()):
        for idx, events in sorted(handled.items()):
            if idx in group.parked.get(queue, set()):
                continue
            for event in group.receives(queue, idx):
                delete = group.settled_delete(event)
                if delete is not None and group.is_before(delete, events[0]):
                    sentence = "deleted before its effect was begun"
                    yield queue, [idx], sentence, [event, delete, events[0]]
                    break


def _state_of(event: HistoryEvent) -> object:
    return detail_of(event.detail).get("state")
