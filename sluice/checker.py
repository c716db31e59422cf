"""The one place that says what a violation is.

`check_group` takes the events of one message group and returns every violation they prove. It never guesses: a call has
an interval, not an instant, so `a` is before `b` only when `a` was answered before `b` was made, and a message is held
only from the moment its receiver had it until the first moment it could have lost it. What the events leave open is
returned as unknown.

Terms, used below as defined here:

- *acked*: some publish of the message was answered ok. The group's *order* is that of the SNS sequence numbers of the
  first ok answers: a repeat may be given a new number without being a new message.
- *definite lease* of a received event: from its answer to the earliest of: its visibility timeout counted from the
  call, the first delete tried on the same message, an expiry brought forward by a visibility change.
- *drained* (queue, group): the group's end marker was received from the queue. The marker is published last, so in a
  FIFO queue everything before it was delivered before it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sluice import limits
from sluice.history import Event, Kind, Outcome, is_end_marker
from sluice.verdict import Violation

_NEVER_US = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the run was set up to be.

    Args:
        run: id of the run; messages of another one are foreign.
        queues: every queue subscribed to the topic, by name.
        visibility_timeout_seconds: of each of those queues.
        dead_letter_queues: the DLQ of each of those queues.
        deduplication_window_seconds: of the target.
        clock_bound_us: how far two clocks of the run may be apart, microseconds; 0 when there is one clock.
        unproven_queues: queue to why some of what was received from it may not be in the history. That something was
            not received from there proves nothing.
        is_publishing_recorded: whether every publish is in the history, if only as an intent.
    """

    run: str
    queues: tuple[str, ...]
    visibility_timeout_seconds: Mapping[str, int]
    dead_letter_queues: Mapping[str, str] = field(default_factory=dict)
    deduplication_window_seconds: int = limits.DEDUPLICATION_WINDOW_SECONDS
    clock_bound_us: int = 0
    unproven_queues: Mapping[str, str] = field(default_factory=dict)
    is_publishing_recorded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the events of one group prove, and what they leave open."""

    violations: tuple[Violation, ...]
    unknowns: tuple[str, ...]


def check_group(events: Iterable[Event], expectation: Expectation) -> Finding:
    """Return what the events of one message group prove.

    Args:
        events: all events that carry this message_group_id, in any order, settled (`history.settle`).
        expectation: what the run was set up to be.

    Returns:
        Violations in the order of the anomaly ids, then by queue and idx; unknowns as sentences.
    """
    group = _Group(list(events), expectation)
    violations = [violation for rule in _RULES for violation in rule(group)]
    return Finding(violations=tuple(violations), unknowns=tuple(_unknowns(group)))


class _Group:
    """The events of one group, arranged for the rules."""

    def __init__(self, events: Sequence[Event], expectation: Expectation) -> None:
        self.expectation = expectation
        self.id = next((event.message_group_id for event in events if event.message_group_id is not None), "")
        self.publishes: dict[int, list[Event]] = defaultdict(list)
        self.received: dict[str, list[Event]] = defaultdict(list)
        self.is_redriven = any(event.kind == Kind.REDRIVEN for event in events)
        self._tries: dict[str, list[Event]] = defaultdict(list)
        for event in sorted(events, key=_by_time):
            if event.kind == Kind.PUBLISHED and event.idx is not None:
                self.publishes[event.idx].append(event)
            elif event.kind == Kind.RECEIVED and event.message_run == expectation.run and event.queue is not None:
                self.received[event.queue].append(event)
            elif event.kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED) and event.receipt_handle_hash is not None:
                self._tries[event.receipt_handle_hash].append(event)
        self.acked = {
            idx: next(event for event in tries if event.outcome == Outcome.OK)
            for idx, tries in self.publishes.items()
            if any(event.outcome == Outcome.OK for event in tries)
        }
        self.order = {
            idx: event.sns_sequence_number for idx, event in self.acked.items() if event.sns_sequence_number is not None
        }
        self.in_order = sorted(self.order, key=lambda idx: self.order[idx])
        self.first_received = {queue: _first_by_idx(events) for queue, events in self.received.items()}
        self._instances = self._group_instances()

    def _group_instances(self) -> dict[tuple[str, str], list[Event]]:
        instances: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for queue, events in self.received.items():
            for event in events:
                if event.sqs_message_id is not None:
                    instances[queue, event.sqs_message_id].append(event)
        return instances

    @property
    def instances(self) -> Mapping[tuple[str, str], list[Event]]:
        """Return (queue, SQS message id) -> its received events by time of answer."""
        return self._instances

    def is_dead_lettered(self, queue: str, idx: int) -> bool:
        """Return whether the message was seen in the queue's DLQ: from then on order and loss do not bind it."""
        dead_letter_queue = self.expectation.dead_letter_queues.get(queue)
        return dead_letter_queue is not None and idx in self.first_received.get(dead_letter_queue, {})

    def is_drained(self, queue: str) -> bool:
        """Return whether the end marker was received from the queue, and all that was received is on record."""
        return queue not in self.expectation.unproven_queues and any(
            is_end_marker(idx) for idx in self.first_received.get(queue, {})
        )

    def lease_end_us(self, event: Event) -> int:
        """Return the end of the definite lease of a received event."""
        queue = event.queue or ""
        seconds = event.visibility_timeout_seconds
        if seconds is None:
            seconds = self.expectation.visibility_timeout_seconds.get(queue, 0)
        end = _invoked(event) + seconds * 1_000_000
        siblings = self._instances.get((queue, event.sqs_message_id or ""), [event])
        handles = {sibling.receipt_handle_hash for sibling in siblings} - {None}
        tries = [one for handle in handles for one in self._tries.get(handle or "", [])]
        for one in sorted(tries, key=_by_time):
            if one.outcome == Outcome.FAIL or _responded(one) < _invoked(event):
                continue
            end = _shortened(end, one, event)
        return end

    def is_before(self, first: Event, second: Event) -> bool:
        """Return whether `first` was answered before `second` was made, whatever their clocks show."""
        return _responded(first) + self.bound_us(first, second) < _invoked(second)

    def bound_us(self, one: Event, other: Event) -> int:
        """Return how far the clocks of two events may be apart."""
        return 0 if one.clock_id == other.clock_id else self.expectation.clock_bound_us


def _shortened(end: int, one: Event, event: Event) -> int:
    """Return the lease end after a delete or a visibility change that may have had its effect."""
    started = max(_invoked(one), _invoked(event))
    if one.kind == Kind.DELETED:
        return min(end, started)
    changed = started + (one.visibility_timeout_seconds or 0) * 1_000_000
    if one.outcome == Outcome.OK and one.receipt_handle_hash == event.receipt_handle_hash and _responded(one) < end:
        return changed
    return min(end, changed)


def _invoked(event: Event) -> int:
    return event.invoked_at_us if event.invoked_at_us is not None else 0


def _responded(event: Event) -> int:
    """Return when the answer came; never, when none did."""
    return event.responded_at_us if event.responded_at_us is not None else _NEVER_US


def _by_time(event: Event) -> tuple[int, int, str, int]:
    return _responded(event), _invoked(event), event.call_id or "", event.batch_position or 0


def _first_by_idx(events: Iterable[Event]) -> dict[int, Event]:
    first: dict[int, Event] = {}
    for event in events:
        if event.idx is not None:
            first.setdefault(event.idx, event)
    return first


# --- A and E: what should be there and is not ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Missing:
    """An acked message and the queues it was not received from, by what that proves."""

    idx: int
    drained: tuple[str, ...]
    overtaken: tuple[str, ...]
    open: tuple[str, ...]
    is_received_somewhere: bool


def _missing(group: _Group) -> Iterator[_Missing]:
    last_in_order = {
        queue: max((group.order[idx] for idx in first if idx in group.order), default="")
        for queue, first in group.first_received.items()
    }
    for idx in sorted(group.acked):
        absent = [
            queue
            for queue in group.expectation.queues
            if idx not in group.first_received.get(queue, {}) and not group.is_dead_lettered(queue, idx)
        ]
        if not absent:
            continue
        drained = tuple(queue for queue in absent if group.is_drained(queue))
        overtaken = tuple(
            queue
            for queue in absent
            if queue not in drained
            and queue not in group.expectation.unproven_queues
            and idx in group.order
            and group.order[idx] < last_in_order.get(queue, "")
        )
        still_open = tuple(queue for queue in absent if queue not in drained and queue not in overtaken)
        yield _Missing(idx, drained, overtaken, still_open, len(absent) < len(group.expectation.queues))


def _lost(group: _Group) -> Iterator[Violation]:
    for missing in _missing(group):
        if missing.drained and not missing.is_received_somewhere:
            yield Violation(
                anomaly="A1",
                message_group_id=group.id,
                queue=None,
                idxs=(missing.idx,),
                sentence=f"acknowledged, and received from none of {', '.join(missing.drained)}, all drained",
                witness=(group.acked[missing.idx], *_end_markers(group, missing.drained)),
            )


def _lost_prefix(group: _Group) -> Iterator[Violation]:
    for missing in _missing(group):
        for queue in missing.overtaken:
            later_idx, later = max(
                ((i, e) for i, e in group.first_received[queue].items() if i in group.order),
                key=lambda found: group.order[found[0]],
            )
            yield Violation(
                anomaly="A2",
                message_group_id=group.id,
                queue=queue,
                idxs=(missing.idx, later_idx),
                sentence="the second message was received, the first, before it in the group, never was",
                witness=(group.acked[missing.idx], later),
            )


def _incomplete_fan_out(group: _Group) -> Iterator[Violation]:
    for missing in _missing(group):
        if missing.drained and missing.is_received_somewhere:
            seen = [first[missing.idx] for first in group.first_received.values() if missing.idx in first]
            yield Violation(
                anomaly="E1",
                message_group_id=group.id,
                queue=None,
                idxs=(missing.idx,),
                sentence=f"received from some queues, but not from {', '.join(missing.drained)}, which were drained",
                witness=(group.acked[missing.idx], seen[0], *_end_markers(group, missing.drained)),
            )


def _end_markers(group: _Group, queues: Sequence[str]) -> list[Event]:
    return [
        next(event for idx, event in group.first_received[queue].items() if is_end_marker(idx)) for queue in queues[:3]
    ]


def _phantom(group: _Group) -> Iterator[Violation]:
    if not group.expectation.is_publishing_recorded:
        return
    for queue, first in sorted(group.first_received.items()):
        for idx, event in sorted(first.items()):
            if idx not in group.publishes:
                yield Violation(
                    anomaly="A4",
                    message_group_id=group.id,
                    queue=queue,
                    idxs=(idx,),
                    sentence="received, and no publish of it was ever tried",
                    witness=(event,),
                )


# --- B: too often ----------------------------------------------------------------------------------------------------


def _span_us(tries: Sequence[Event]) -> tuple[int, int]:
    """Return the least and the greatest time between the first and the last publish that may have had an effect."""
    ordered = sorted((one for one in tries if one.outcome != Outcome.FAIL), key=_invoked) or list(tries)
    return _invoked(ordered[-1]) - _responded(ordered[0]), max(map(_responded, ordered)) - _invoked(ordered[0])


def _copies(group: _Group) -> Iterator[tuple[str, int, list[Event]]]:
    """Yield (queue, idx, first received event of each copy) for what became several messages in one queue."""
    if group.is_redriven:  # a move task lawfully makes new messages; generations are not told apart yet
        return
    for queue in group.expectation.queues:
        by_idx: dict[int, dict[str, Event]] = defaultdict(dict)
        for event in group.received.get(queue, []):
            if event.idx is not None and event.sqs_message_id is not None:
                by_idx[event.idx].setdefault(event.sqs_message_id, event)
        for idx, copies in sorted(by_idx.items()):
            if len(copies) > 1 and idx in group.publishes and not group.is_dead_lettered(queue, idx):
                yield queue, idx, list(copies.values())


def _duplicate_in_window(group: _Group) -> Iterator[Violation]:
    window_us = group.expectation.deduplication_window_seconds * 1_000_000
    for queue, idx, copies in _copies(group):
        if _span_us(group.publishes[idx])[1] < window_us:
            yield Violation(
                anomaly="B1",
                message_group_id=group.id,
                queue=queue,
                idxs=(idx,),
                sentence=f"{len(copies)} messages of one deduplication id, published within the window",
                witness=(*group.publishes[idx][:2], *copies[:2]),
            )


def _early_redelivery(group: _Group) -> Iterator[Violation]:
    for (queue, _), receives in sorted(group.instances.items()):
        for one, other in pairwise(receives):
            if _is_same_receive(one, other) or not _is_early(group, one, other):
                continue
            yield Violation(
                anomaly="B7",
                message_group_id=group.id,
                queue=queue,
                idxs=() if one.idx is None else (one.idx,),
                sentence="received again while the first receiver certainly still held it",
                witness=(one, other),
            )


def _is_same_receive(one: Event, other: Event) -> bool:
    """Return whether two received events are one receive, or a lawful replay of it."""
    attempt = one.receive_request_attempt_id
    return one.call_id == other.call_id or (attempt is not None and attempt == other.receive_request_attempt_id)


def _is_early(group: _Group, one: Event, other: Event) -> bool:
    """Return whether the two cannot be a receive and a redelivery after it, in either order."""
    bound = group.bound_us(one, other)
    if _responded(other) + bound >= group.lease_end_us(one):
        return False
    return group.is_before(one, other) or _responded(one) + bound < group.lease_end_us(other)


# --- C: order --------------------------------------------------------------------------------------------------------


def _reordered(group: _Group) -> Iterator[Violation]:
    for queue in group.expectation.queues:
        first = group.first_received.get(queue, {})
        found = [idx for idx in group.in_order if idx in first and not group.is_dead_lettered(queue, idx)]
        if group.is_redriven:
            found = []
        earliest: int | None = None  # of the messages later in order, the one received first
        overtaken: list[tuple[int, int]] = []
        for idx in reversed(found):
            if earliest is not None and group.is_before(first[earliest], first[idx]):
                overtaken.append((idx, earliest))
            if earliest is None or _by_time(first[idx]) < _by_time(first[earliest]):
                earliest = idx
        for idx, by in reversed(overtaken):
            yield Violation(
                anomaly="C1",
                message_group_id=group.id,
                queue=queue,
                idxs=(idx, by),
                sentence="the second message was received before the first was asked for",
                witness=(group.acked[idx], group.acked[by], first[by], first[idx]),
            )


def _reordered_in_batch(group: _Group) -> Iterator[Violation]:
    for queue in group.expectation.queues:
        calls: dict[str, list[Event]] = defaultdict(list)
        for event in group.received.get(queue, []):
            if event.call_id is not None and event.idx in group.order and not group.is_dead_lettered(queue, event.idx):
                calls[event.call_id].append(event)
        for events in calls.values():
            answer = sorted(events, key=lambda event: event.batch_position or 0)
            for one, other in pairwise(answer):
                if one.idx is None or other.idx is None or group.order[one.idx] <= group.order[other.idx]:
                    continue
                yield Violation(
                    anomaly="C2",
                    message_group_id=group.id,
                    queue=queue,
                    idxs=(other.idx, one.idx),
                    sentence="one answer holds the second message in front of the first",
                    witness=(one, other),
                )


# --- D: blocking -----------------------------------------------------------------------------------------------------


def _group_overlap(group: _Group) -> Iterator[Violation]:
    for queue in group.expectation.queues:
        held: list[tuple[int, Event]] = []
        for event in group.received.get(queue, []):
            end = group.lease_end_us(event)
            held = [(until, other) for until, other in held if until > _responded(event)]
            for until, other in held:
                is_other_message = other.sqs_message_id != event.sqs_message_id
                bound = group.bound_us(other, event)
                if (
                    is_other_message
                    and not _is_same_receive(other, event)
                    and _responded(event) + bound < min(until, end)
                ):
                    yield Violation(
                        anomaly="D1",
                        message_group_id=group.id,
                        queue=queue,
                        idxs=tuple(idx for idx in (other.idx, event.idx) if idx is not None),
                        sentence="the second message was handed out while the first was certainly held",
                        witness=(other, event),
                    )
                    break
            held.append((end, event))


# --- G: content ------------------------------------------------------------------------------------------------------


def _corrupted(group: _Group) -> Iterator[Violation]:
    for queue, events in sorted(group.received.items()):
        for event in events:
            if event.idx not in group.publishes or event.body_hash is None:
                continue
            published = group.publishes[event.idx]
            if not {event.body_hash, None} & {one.body_hash for one in published}:
                yield Violation(
                    anomaly="G1",
                    message_group_id=group.id,
                    queue=queue,
                    idxs=(event.idx,),
                    sentence="the received body is not the published one",
                    witness=(published[0], event),
                )


_RULES = (
    _lost,
    _lost_prefix,
    _phantom,
    _duplicate_in_window,
    _early_redelivery,
    _reordered,
    _reordered_in_batch,
    _group_overlap,
    _incomplete_fan_out,
    _corrupted,
)


def _unknowns(group: _Group) -> Iterator[str]:
    unseen: dict[str, list[int]] = defaultdict(list)
    for missing in _missing(group):
        for queue in missing.open:
            unseen[queue].append(missing.idx)
    for queue, idxs in unseen.items():
        why = group.expectation.unproven_queues.get(queue, "which was not drained")
        yield f"group {group.id}: {len(idxs)} acknowledged message(s), first {min(idxs)}, not seen in {queue}, {why}"
    if group.is_redriven:
        yield f"group {group.id}: a move task ran; duplicates and order are not judged in it yet"
    if not group.expectation.is_publishing_recorded:
        strangers = sum(idx not in group.publishes for first in group.first_received.values() for idx in first)
        if strangers:
            yield f"group {group.id}: {strangers} message(s) received whose publishing may not be on record"
    window_us = group.expectation.deduplication_window_seconds * 1_000_000
    for queue, idx, _ in _copies(group):
        shortest, longest = _span_us(group.publishes[idx])
        if shortest < window_us <= longest:
            yield f"group {group.id}: message {idx} came twice from {queue}, and was published about a window apart"


# --- the run as a whole ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What concerns the run rather than one group.

    Args:
        published_count: publishes that were acknowledged.
        received_count: messages of this run that were received.
        foreign_count: received messages of another run, or of none.
        lateness_p99_us: 99th percentile of invoked minus intended publish time; None when nothing was published.
        lateness_budget_us: what the profile allows it to be.
        unclosed_journals: names of recorders that never finished, or whose journal is missing.
        unpublished_count: planned messages no publish was tried for, or whose last publish failed.
        failed_calls: error code to how many calls failed or went unanswered with it.
        clock_count: how many clocks the events were timed with.
        clock_bound_us: how far they may be apart.
    """

    published_count: int
    received_count: int
    foreign_count: int
    lateness_p99_us: int | None
    lateness_budget_us: int
    unclosed_journals: tuple[str, ...] = ()
    unpublished_count: int = 0
    failed_calls: Mapping[str, int] = field(default_factory=dict)
    clock_count: int = 1
    clock_bound_us: int = 0


def check_run(facts: RunFacts) -> dict[str | None, str]:
    """Return why the run as a whole cannot vouch for its result: anomaly id (None for no anomaly) to sentence."""
    reasons: dict[str | None, str] = {}
    if not facts.published_count or not facts.received_count:
        reasons[None] = (
            f"{facts.published_count} message(s) acknowledged and {facts.received_count} received: nothing to judge"
        )
    elif facts.unclosed_journals:
        reasons[None] = (
            f"{len(facts.unclosed_journals)} recorder(s) did not finish: {', '.join(facts.unclosed_journals[:4])}"
        )
    elif facts.unpublished_count:
        reasons[None] = f"{facts.unpublished_count} planned message(s) were not published"
    elif facts.clock_count > 1 and not facts.clock_bound_us:
        reasons[None] = f"{facts.clock_count} clocks timed the events, and nothing says how far they are apart"
    if None in reasons and facts.failed_calls:
        worst = max(facts.failed_calls, key=lambda code: facts.failed_calls[code])
        reasons[None] += f" ({facts.failed_calls[worst]} calls failed with {worst})"
    if facts.foreign_count:
        reasons["A6"] = f"{facts.foreign_count} message(s) of another run were received: the run was not isolated"
    if facts.lateness_p99_us is not None and facts.lateness_p99_us > facts.lateness_budget_us:
        reasons["H7"] = (
            f"the generator was late: 99 % of publishes within {facts.lateness_p99_us / 1e6:.2f} s of their time,"
            f" allowed are {facts.lateness_budget_us / 1e6:.2f} s; offer a lower rate"
        )
    return reasons
