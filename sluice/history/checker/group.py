"""The events of one group, arranged for the rules, and what they say about time.

Terms, used by all rules as defined here:

- *acked*: some publish of the message was answered ok. The group's *order* is that of the sequence numbers of the first
  ok answers: a repeat may be given a new number without being a new message.
- *instance*: one message in one queue, known by its SQS message id. A message repeated after the window, or redriven,
  becomes another instance.
- *definite lease* of a received event: from its answer to the earliest of: its visibility timeout counted from the
  call, the first delete tried on the same message, an expiry brought forward by a visibility change.
- *possible lease*: to the latest of: its visibility timeout counted from the answer, an expiry put off by a visibility
  change; but no longer than to the answer of a delete.
- *settled delete*: answered ok, for the newest receive, before that could have expired.
- *drained* (queue, group): the group's end marker was received from the queue. The marker is published last, so in a
  FIFO queue everything before it was delivered before it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from sluice.history.checker.expectation import Expectation, QueueContext
from sluice.history.checker.verdict import Violation
from sluice.history.events import Event, Kind, Outcome, is_end_marker

NEVER_US = 2**62


def invoked(event: Event) -> int:
    """Return when the call was made."""
    return event.invoked_at_us if event.invoked_at_us is not None else 0


def responded(event: Event) -> int:
    """Return when the answer came; never, when none did."""
    return event.responded_at_us if event.responded_at_us is not None else NEVER_US


def by_time(event: Event) -> tuple[int, int, str, int]:
    """Return what sorts events by their answers."""
    return responded(event), invoked(event), event.call_id or "", event.batch_position or 0


def number(event: Event) -> str | None:
    """Return the sequence number a publish was answered with: of SNS, or of the queue it was sent straight to."""
    return event.sns_sequence_number or event.sqs_sequence_number


def is_same_receive(event: Event, other: Event) -> bool:
    """Return whether two received events are one receive, or a lawful replay of it."""
    attempt = event.receive_request_attempt_id
    return event.call_id == other.call_id or (attempt is not None and attempt == other.receive_request_attempt_id)


class Group:
    """The events of one group.

    Args:
        events: of the group, in any order, settled.
        expectation: what the run was set up to be.
        around: what happened outside the group.
    """

    def __init__(self, events: Sequence[Event], expectation: Expectation, around: QueueContext) -> None:
        self.expectation, self.around = expectation, around
        self.id = next((event.message_group_id for event in events if event.message_group_id is not None), "")
        self.publishes: dict[int, list[Event]] = defaultdict(list)
        self.received: dict[str, list[Event]] = defaultdict(list)
        self.handled: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
        self.parked: dict[str, set[int]] = defaultdict(set)
        self._tries: dict[tuple[str | None, str], list[Event]] = defaultdict(list)
        self._end_markers: dict[str, Event] = {}
        for event in _distinct_events(sorted(events, key=by_time), expectation):
            self._take(event)
        self.acked = {
            idx: next(event for event in tries if event.outcome == Outcome.OK)
            for idx, tries in self.publishes.items()
            if any(event.outcome == Outcome.OK for event in tries)
        }
        self.order = {idx: order for idx, event in self.acked.items() if (order := number(event)) is not None}
        self.in_order = sorted(self.order, key=lambda idx: self.order[idx])
        self.first_received = {queue: _first_by_idx(events) for queue, events in self.received.items()}

    def _take(self, event: Event) -> None:
        is_ours = event.message_run == self.expectation.run and event.queue is not None
        if event.kind == Kind.PUBLISHED and event.idx is not None:
            self.publishes[event.idx].append(event)
        elif event.kind == Kind.RECEIVED and is_ours:
            self.received[event.queue or ""].append(event)
            if is_end_marker(event.idx):
                self._end_markers.setdefault(event.queue or "", event)
        elif event.kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED) and event.receipt_handle_hash is not None:
            self._tries[event.queue, event.receipt_handle_hash].append(event)
        elif event.kind == Kind.HANDLED and is_ours and event.idx is not None:
            self.handled[event.queue or ""][event.idx].append(event)
        elif event.kind == Kind.PARKED and is_ours and event.idx is not None:
            self.parked[event.queue or ""].add(event.idx)

    @cached_property
    def instances(self) -> Mapping[tuple[str, str], list[Event]]:
        """Return (queue, SQS message id) -> its received events by time of answer."""
        instances: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for queue, events in self.received.items():
            for event in events:
                if event.sqs_message_id is not None:
                    instances[queue, event.sqs_message_id].append(event)
        return instances

    @cached_property
    def ids(self) -> Mapping[tuple[str, int], list[str]]:
        """Return (queue, idx) -> the SQS message ids it had there, by first receive."""
        ids: dict[tuple[str, int], list[str]] = defaultdict(list)
        for (queue, id_), events in self.instances.items():
            for idx in {event.idx for event in events if event.idx is not None}:
                ids[queue, idx].append(id_)
        return ids

    def expected_queues(self, idx: int) -> tuple[str, ...]:
        """Return the queues a message was to reach: all, or the one it was sent to."""
        sent_to = {event.queue for event in self.publishes.get(idx, ())}
        return tuple(queue for queue in self.expectation.queues if queue in sent_to) or self.expectation.queues

    def dead_letter(self, queue: str, idx: int | None) -> Event | None:
        """Return the first receive of the message from the queue's DLQ; None when it was not seen there."""
        dead_letter_queue = self.expectation.dead_letter_queues.get(queue)
        if dead_letter_queue is None or idx is None:
            return None
        return self.first_received.get(dead_letter_queue, {}).get(idx)

    def is_dead_lettered(self, queue: str, idx: int | None) -> bool:
        """Return whether the message was seen in the queue's DLQ: from then on order and loss do not bind it."""
        return self.dead_letter(queue, idx) is not None

    def is_moved(self, queue: str, idx: int) -> bool:
        """Return whether the message, for all that is known, left the queue and came back with a move task."""
        moves = [move for move in self.around.moves if move.destination == queue]
        if not moves:
            return False
        times = [event for event in self.received.get(queue, ()) if event.idx == idx]
        return bool(times) and any(
            not self.is_after(times[0], move.began_at_us) and responded(times[-1]) >= move.began_at_us for move in moves
        )

    def is_bound(self, queue: str, idx: int | None) -> bool:
        """Return whether order and uniqueness bind the message in the queue: it certainly never left it for a DLQ."""
        return idx is not None and not self.is_dead_lettered(queue, idx) and not self.is_moved(queue, idx)

    def is_proven(self, queue: str) -> bool:
        """Return whether all that was received from the queue is on record."""
        return queue not in self.expectation.unproven_queues

    def end_marker(self, queue: str) -> Event | None:
        """Return the first receive of the group's end marker from the queue."""
        return self._end_markers.get(queue)

    def is_drained(self, queue: str) -> bool:
        """Return whether the end marker was received from the queue, and all that was received is on record."""
        return self.is_proven(queue) and self.end_marker(queue) is not None

    def lease_end_us(self, event: Event) -> int:
        """Return the end of the definite lease of a received event."""
        end = self._expiry_us(event)
        for attempt in self.tries(event):
            if attempt.outcome != Outcome.FAIL and responded(attempt) >= invoked(event):
                end = _shortened(end, attempt, event)
        return end

    def possible_lease_end_us(self, event: Event) -> int:
        """Return the end of the possible lease of a received event."""
        tries = [
            attempt
            for attempt in self.tries(event)
            if attempt.outcome != Outcome.FAIL and responded(attempt) >= invoked(event)
        ]
        deleted = [
            responded(attempt) for attempt in tries if attempt.kind == Kind.DELETED and attempt.outcome == Outcome.OK
        ]
        put_off = [
            responded(attempt) + _seconds_us(attempt) for attempt in tries if attempt.kind == Kind.VISIBILITY_CHANGED
        ]
        expired = self._expiry_us(event) - invoked(event) + responded(event) if self._is_timed(event) else NEVER_US
        return min([max([expired, *put_off]), *deleted])

    def _is_timed(self, event: Event) -> bool:
        """Return whether it is known for how long the message was held; else that ends at once, or never."""
        is_given = event.visibility_timeout_seconds is not None
        return is_given or event.queue in self.expectation.visibility_timeout_seconds

    def _expiry_us(self, event: Event) -> int:
        seconds = event.visibility_timeout_seconds
        if seconds is None:
            seconds = self.expectation.visibility_timeout_seconds.get(event.queue or "", 0)
        return invoked(event) + seconds * 1_000_000

    def siblings(self, event: Event) -> list[Event]:
        """Return every receive of the same instance, by time of answer."""
        return self.instances.get((event.queue or "", event.sqs_message_id or ""), [event])

    def tries(self, event: Event) -> list[Event]:
        """Return every delete and visibility change of the same instance, by time of answer."""
        handles = {sibling.receipt_handle_hash for sibling in self.siblings(event)} - {None}
        found = [item for handle in handles for item in self._tried(event, handle)]
        return sorted(found, key=by_time) if len(handles) > 1 else found  # what was tried with one is by time

    def _tried(self, event: Event, handle: str | None) -> list[Event]:
        """Return what was tried with a handle on the message of this receive, as far as it says on which."""
        tried = self._tries.get((event.queue, handle or ""), [])
        return [attempt for attempt in tried if attempt.sqs_message_id in (None, event.sqs_message_id)]

    def may_be_deleted(self, event: Event, *, before_us: int = NEVER_US) -> bool:
        """Return whether a delete of the same instance may have had its effect before an instant."""
        return any(
            attempt.kind == Kind.DELETED and attempt.outcome != Outcome.FAIL and invoked(attempt) < before_us
            for attempt in self.tries(event)
        )

    def settled_delete(self, event: Event) -> Event | None:
        """Return the delete that certainly removed the instance this receive is of; None when none certainly did."""
        end = self._expiry_us(event)
        for attempt in self._tried(event, event.receipt_handle_hash):
            if attempt.outcome == Outcome.FAIL:
                continue
            if attempt.kind == Kind.VISIBILITY_CHANGED:
                end = _shortened(end, attempt, event)
            elif attempt.outcome == Outcome.OK and responded(attempt) <= end and self._is_newest(event, attempt):
                return attempt
        return None

    def _is_newest(self, event: Event, delete: Event) -> bool:
        return all(
            sibling.receipt_handle_hash == event.receipt_handle_hash or responded(sibling) < invoked(event)
            for sibling in self.siblings(event)
            if invoked(sibling) <= responded(delete)
        )

    def may_be_dead_lettered(self, event: Event) -> bool:
        """Return whether, for all that is known, the next receive may have moved the message to its DLQ instead."""
        queue = event.queue or ""
        most = self.expectation.max_receive_count.get(queue)
        if queue not in self.expectation.dead_letter_queues:
            return False
        lost = self.expectation.lost_receives.get(queue, 0)
        return most is None or event.receive_count is None or event.receive_count + lost >= most

    def is_before(self, first: Event, second: Event) -> bool:
        """Return whether `first` was answered before `second` was made, whatever their clocks show."""
        return responded(first) + self.bound_us(first, second) < invoked(second)

    def is_after(self, event: Event, instant_us: int) -> bool:
        """Return whether the call was made after an instant of an unknown clock."""
        return invoked(event) > instant_us + self.expectation.clock_bound_us

    def bound_us(self, event: Event, other: Event) -> int:
        """Return how far the clocks of two events may be apart."""
        return 0 if event.clock_id == other.clock_id else self.expectation.clock_bound_us

    def violation(
        self, anomaly: str, queue: str | None, idxs: Iterable[int | None], sentence: str, witness: Iterable[Event]
    ) -> Violation:
        """Return a violation in this group; an idx of None is left out."""
        return Violation(
            anomaly=anomaly,
            message_group_id=self.id,
            queue=queue,
            idxs=tuple(idx for idx in idxs if idx is not None),
            sentence=sentence,
            witness=tuple(witness),
        )


def _distinct_events(events: Sequence[Event], expectation: Expectation) -> Iterable[Event]:
    """Return the events, the receives of one message under one idx even where only its deduplication id told it.

    A dead letter has another deduplication id, its old message id, and with it, unless planned, another idx. So what
    nobody published is looked up by the ids it has, and by those it had.
    """
    if expectation.is_planned:
        return events
    published = [event for event in events if event.kind == Kind.PUBLISHED and event.idx is not None]
    known: dict[str | None, int | None] = {
        event.deduplication_id: event.idx for event in published if event.deduplication_id is not None
    }
    idxs = {event.idx for event in published}
    distinct: list[Event] = []
    for event in events:
        if event.kind == Kind.RECEIVED and event.idx not in idxs:
            idx = known.get(event.deduplication_id, known.get(event.sqs_message_id, event.idx))
            distinct.append(replace(event, idx=idx))
        else:
            distinct.append(event)
        if event.kind == Kind.RECEIVED and event.sqs_message_id is not None:
            known.setdefault(event.sqs_message_id, distinct[-1].idx)
    return distinct


def _seconds_us(change: Event) -> int:
    return (change.visibility_timeout_seconds or 0) * 1_000_000


def _shortened(end: int, change: Event, event: Event) -> int:
    """Return the lease end after a delete or a visibility change that may have had its effect."""
    started = max(invoked(change), invoked(event))
    if change.kind == Kind.DELETED:
        return min(end, started)
    changed = started + _seconds_us(change)
    if (
        change.outcome == Outcome.OK
        and change.receipt_handle_hash == event.receipt_handle_hash
        and responded(change) < end
    ):
        return changed
    return min(end, changed)


def _first_by_idx(events: Iterable[Event]) -> dict[int, Event]:
    first: dict[int, Event] = {}
    for event in events:
        if event.idx is not None:
            first.setdefault(event.idx, event)
    return first
