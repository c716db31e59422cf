"""The only package that decides what a violation is.

`check_group` takes the events of one message group and returns every violation they prove. It never guesses: a call has
an interval, not an instant, so `a` is before `b` only when `a` was answered before `b` was made, and a message is in
its queue from its receive until the first moment a delete or its last timeout could have removed it (`standing`). An
anomaly that the events neither prove nor exclude is unknown, a lawful and counted one is seen. The terms are defined in
`group`; each anomaly of `sluice.judge.checker.anomalies` is one function, in its family's module of `rules`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sluice import limits
from sluice.history.bundles import whole_bundles
from sluice.history.events import HistoryEvent
from sluice.judge.checker.anomalies import ANOMALIES, Severity
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.expectation import Activity, Expectation, IdUse, Loss, Move, QueueContext, queue_context
from sluice.judge.checker.group import Group
from sluice.judge.checker.rules import (  # noqa: F401 (each puts its rules into RULES)
    AnomalyRule,
    blocking,
    content,
    dead_letters,
    duplication,
    effects,
    existence,
    ordering,
    registry,
)
from sluice.judge.checker.run import MeasuredValues, RunCounts, Thresholds, check_run, check_thresholds, open_thresholds
from sluice.judge.checker.verdict import Violation

__all__ = [
    "RULES",
    "Activity",
    "Expectation",
    "Finding",
    "IdUse",
    "Loss",
    "MeasuredValues",
    "Move",
    "QueueContext",
    "RunCounts",
    "Thresholds",
    "check_group",
    "check_run",
    "check_thresholds",
    "open_thresholds",
    "queue_context",
]

RULES: Mapping[str, AnomalyRule] = {anomaly: registry[anomaly] for anomaly in ANOMALIES if anomaly in registry}
"""The rule that finds each anomaly in a group, in the order of the anomaly ids."""

OF_THE_RUN = ("A6", "H3", "H4", "H5", "H6", "H7")
"""The anomalies that `check_run` and `check_thresholds` judge."""

_NOWHERE = QueueContext()
_NOT_DRAINED = "which was not drained"
_SELECTIVE = {
    True: "and nothing on record says that they are for it: a filter policy may exclude them, or it was not subscribed;"
    " if its topic sends it every message, say --unfiltered",
    False: "of which another process changed the subscription: its filter policy may leave them out; if its topic sends"
    " it every message, say --unfiltered",
}
"""By whether the publishes on record tell which messages the queue gets."""
_REMOVED = "where its retention may have ended, or a purge or a restart may have removed it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Results for one group: the violations that its events prove, and the questions that they leave open.

    Args:
        violations: the violations that are proven.
        unknowns: the open questions, as sentences.
        seen: anomalies that are lawful, and only counted.
    """

    violations: tuple[Violation, ...]
    unknowns: tuple[str, ...]
    seen: tuple[Violation, ...] = ()


def check_group(events: Iterable[HistoryEvent], expectation: Expectation, around: QueueContext = _NOWHERE) -> Finding:
    """Return the violations that the events of one message group prove.

    Args:
        events: all events that carry this message_group_id, in any order, settled (`history.settle`).
        expectation: the declared setup of the run.
        around: events outside the group; a rule that depends on an unknown part of them does not judge.

    Returns:
        Violations in the order of the anomaly ids, then by queue and idx; unknowns as sentences.
    """
    listed = list(events)
    whole = whole_bundles(listed)
    if whole:
        return Finding(violations=(), unknowns=(_not_unpacked(listed, whole),))
    group = Group(listed, expectation, around)
    found = [violation for rule in RULES.values() for violation in rule(group)]
    proven = [violation for violation in found if not _is_of_two_queues(group, violation)]
    return Finding(
        violations=tuple(violation for violation in proven if not _is_lawful(violation)),
        unknowns=(
            *_unknowns(group),
            *_clock_reservations(group, listed, found),
            *_beginning_reservations(group, listed, found),
            *_deletion_reservations(group, found, proven),
            *_dead_letter_reservations(group, listed, found),
        ),
        seen=tuple(violation for violation in found if _is_lawful(violation)),
    )


def _not_unpacked(events: Sequence[HistoryEvent], ids: Iterable[str]) -> str:
    group = next((event.message_group_id for event in events if event.message_group_id is not None), "")
    return (
        f"group {group}: bundle {min(ids)} is on record as one message by one process, and as its events by another;"
        " record every process with the same version of Sluice"
    )


def _clock_reservations(group: Group, events: Sequence[HistoryEvent], found: Iterable[Violation]) -> Iterator[str]:
    """Yield reservations about clocks: anomalies that are violations for some possible clock differences only."""
    if not group.widest_us:
        return
    suspicious = Group(events, group.expectation, group.around, is_suspicious=True)
    if open_ := _anomalies_only_in(suspicious, found):
        apart = f"up to {group.widest_us / 1_000:g} ms" if group.widest_us < NEVER_US else "nobody knows how far"
        yield (
            f"group {group.id}: {len(group.clocks.ahead)} clocks timed it, {apart} apart, and on that rests whether it"
            f" shows {', '.join(open_)}"
        )


def _beginning_reservations(group: Group, events: Sequence[HistoryEvent], found: Iterable[Violation]) -> Iterator[str]:
    """Yield reservations about unrecorded events and settings: anomalies that are violations only without these."""
    expectation = group.expectation
    timeouts, receive_counts = expectation.changed_timeouts, expectation.changed_receive_counts
    if timeouts or receive_counts:
        unchanged = replace(
            expectation,
            visibility_timeout_seconds={**expectation.visibility_timeout_seconds, **timeouts},
            max_receive_count={**expectation.max_receive_count, **receive_counts},
        )
        if open_ := _anomalies_only_in(Group(events, unchanged, group.around), found):
            yield (
                f"group {group.id}: {', '.join(sorted({*timeouts, *receive_counts}))} got other settings meanwhile, and"
                f" on these rests whether it shows {', '.join(open_)}"
            )
    if expectation.publishing_began_us is None and not expectation.receiving_began_us:
        return
    whole = replace(expectation, publishing_began_us=None, receiving_began_us={})
    if open_ := _anomalies_only_in(Group(events, whole, group.around), found):
        yield (
            f"group {group.id}: on what happened before the recording began, or was not recorded, rests whether it"
            f" shows {', '.join(open_)}"
        )


def _is_of_two_queues(group: Group, violation: Violation) -> bool:
    """Return whether a violation rests on events before and after its queue was deleted: each half had its own queue.

    A new queue of the same name numbers its messages anew, and knows no deduplication id of the old one.
    """
    queues = {violation.queue, *(event.queue for event in violation.witness)}
    for deletion in group.around.purges:
        if deletion.is_deletion and deletion.queue in queues:
            events = [
                event
                for idx in violation.idxs
                for event in (*group.publishes.get(idx, ()), *group.receives(deletion.queue, idx))
            ]
            after = [event for event in events if group.is_after(event, deletion.began_at_us)]
            if len(after) < len(events) and after:
                return True
    return False


def _deletion_reservations(group: Group, found: Iterable[Violation], proven: Sequence[Violation]) -> Iterator[str]:
    open_ = {violation.anomaly for violation in found if violation not in proven and not _is_lawful(violation)}
    if open_:
        yield (
            f"group {group.id}: its queue was deleted meanwhile, and another has its name: on which of the two the"
            f" messages were in rests whether it shows {', '.join(sorted(open_))}"
        )


def _dead_letter_reservations(
    group: Group, events: Sequence[HistoryEvent], found: Iterable[Violation]
) -> Iterator[str]:
    """Yield a reservation about dead letters that came again after their delete, if nobody says how long they are held.

    Only a visibility timeout that had ended before the delete would explain it.
    """
    expectation = group.expectation
    timeouts = expectation.visibility_timeout_seconds
    untimed = set(expectation.dead_letter_queues.values()) & group.received.keys() - timeouts.keys()
    if not untimed or any(violation.anomaly == "A8" for violation in found):
        return
    longest = dict.fromkeys(untimed, limits.VISIBILITY_TIMEOUT_SECONDS_MAX)
    held = replace(expectation, visibility_timeout_seconds={**timeouts, **longest})
    again = sorted({violation.queue or "" for violation in RULES["A8"](Group(events, held, group.around))} & untimed)
    if again:
        yield (
            f"group {group.id}: a dead letter of {', '.join(again)} was received after its delete, and on the"
            " visibility timeout there rests whether it shows A8; receive dead letters with a VisibilityTimeout"
        )


def _anomalies_only_in(group: Group, found: Iterable[Violation]) -> list[str]:
    """Return the anomalies that a group shows and that were not found."""
    certain = {violation.anomaly for violation in found}
    return [
        anomaly
        for anomaly, rule in RULES.items()
        if ANOMALIES[anomaly].severity is Severity.SAFETY and anomaly not in certain and any(True for _ in rule(group))
    ]


def _is_lawful(violation: Violation) -> bool:
    return ANOMALIES[violation.anomaly].severity is Severity.INFORMATION


def _unknowns(group: Group) -> Iterator[str]:
    yield from _unseen(group)
    yield from _drop_reservations(group)
    yield from _move_reservations(group)
    for (queue, idxs, sentence, _), is_unseen in duplication.miscounts(group):
        if is_unseen:
            idx = next(iter(idxs))
            yield f"group {group.id}: message {idx} from {queue}: {sentence}; others may have received it, unrecorded"
    if not group.expectation.is_publishing_recorded and (back := len(list(dead_letters.returns_without_move(group)))):
        yield f"group {group.id}: {back} dead letter(s) came back, and the move task may not be on record"
    moved = sum(existence.is_moved_stranger(group, e) for of in group.first_received.values() for e in of.values())
    if moved and group.expectation.is_publishing_recorded:
        yield f"group {group.id}: {moved} message(s) nobody published may have come with a move task"
    if not group.expectation.is_publishing_recorded:
        strangers = sum(idx not in group.publishes for first in group.first_received.values() for idx in first)
        if strangers:
            yield f"group {group.id}: {strangers} message(s) received whose publishing may not be on record"
    for queue, idx, _ in duplication.copies(group):
        shortest, longest = duplication.span_us(group, group.publishes[idx])
        if shortest < duplication.window_us(group) <= longest:
            yield f"group {group.id}: message {idx} came twice from {queue}, and was published about a window apart"


def _unseen(group: Group) -> Iterator[str]:
    known = {(blocked.queue, idx) for blocked in blocking.find_blockades(group) for idx in blocked.successors}
    unseen: dict[tuple[str, str], list[int]] = defaultdict(list)
    for missing in existence.missing(group):
        for queue in missing.open:
            if (queue, missing.idx) not in known:
                unseen[queue, _reason_unseen(group, queue, missing)].append(missing.idx)
    for (queue, why), idxs in unseen.items():
        yield f"group {group.id}: {len(idxs)} acknowledged message(s), first {min(idxs)}, not seen in {queue}, {why}"


def _reason_unseen(group: Group, queue: str, missing: existence.MissingMessage) -> str:
    if queue in group.expectation.unproven_queues:
        return group.expectation.unproven_queues[queue]
    if queue in missing.removed:
        return _REMOVED
    is_owed = group.is_certainly_owed(queue, missing.idx)
    return _NOT_DRAINED if is_owed else _SELECTIVE[group.expectation.selective_queues[queue]]


def _drop_reservations(group: Group) -> Iterator[str]:
    dropped: dict[str, list[int]] = defaultdict(list)
    for queue, idx in group.maybe_dropped():
        dropped[queue].append(idx)
    for queue, idxs in sorted(dropped.items()):
        yield (
            f"group {group.id}: {len(idxs)} acknowledged message(s), first {min(idxs)}, not seen in {queue}: others"
            " were published under the same deduplication id, and on its scope rests whether it was dropped as a repeat"
        )


def _move_reservations(group: Group) -> Iterator[str]:
    for queue, first in sorted(group.first_received.items()):
        moved = sum(group.is_moved(queue, idx) and not group.is_dead_lettered(queue, idx) for idx in first)
        if moved:
            yield (
                f"group {group.id}: {moved} message(s) may have come back to {queue} with a move task, and were not"
                " seen in its DLQ: duplicates and order are not judged for them"
            )
