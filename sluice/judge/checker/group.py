"""The events of one group, arranged for the rules, and what they say about time.

Terms, used by all rules as defined here:

- *acked*: some publish of the message was answered ok. The group's *order* is that of the sequence numbers of the first
  ok answers: a repeat may be given a new number without being a new message.
- *instance*: one message in one queue, known by its SQS message id. A message repeated after the window, or redriven,
  becomes another instance.
- *definite lease* of a received event: from its answer to the earliest of: its visibility timeout counted from the
  call, or from a visibility change that certainly replaced it; the first delete tried on the same message; an expiry
  that a visibility change may have brought forward. To repeat a receive with its attempt id is a visibility change.
- *possible lease*: to the latest of: its visibility timeout counted from the answer, an expiry put off by a visibility
  change; but no longer than to the answer of a delete.
- *settled delete*: answered ok, for the newest receive, before that could have expired.
- *drained* (queue, group): the group's end marker was received from the queue. The marker is published last, so in a
  FIFO queue everything before it was delivered before it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, permutations
from typing import Any

from sluice import limits
from sluice.history.events import CallOutcome, HistoryEvent, Kind, acceptances_in, is_end_marker
from sluice.judge.checker.clocks import NEVER_US, Clocks, apart_us_max, clock_of
from sluice.judge.checker.expectation import Expectation, Move, QueueContext
from sluice.judge.checker.verdict import Violation

_OF_HOLDS = frozenset(("A3", "A8", "B7", "C3", "D1", "D2", "R4"))
"""Anomalies that are proven by how long a message was held."""
WINDOW_TOLERANCE_US = 30_000_000
"""The window is documented as "minimum" and begins when the queue, not the topic, has the message."""
ENQUEUED_WITHIN_US = 1_000_000
"""After its SentTimestamp, which is of the service's clock and in milliseconds, a message is certainly in the queue."""
_FANNED_OUT_WITHIN_US = 10_000_000  # SNS delivers at once, and says not by when
_SENT_ROUNDED_US = 1_000
_HIGHEST = "~"  # greater than every sequence number
UNANSWERED_WITHIN_US = 60_000_000
"""A call without an answer has its effect within this time, or never: no service works on a call for longer."""


def invoked_us(event: HistoryEvent) -> int:
    """Return when the call was made."""
    return event.invoked_at_us if event.invoked_at_us is not None else 0


def responded_us(event: HistoryEvent) -> int:
    """Return when the call was answered; NEVER_US if it was not."""
    return event.responded_at_us if event.responded_at_us is not None else NEVER_US


def effect_by_us(event: HistoryEvent) -> int:
    """Return the latest time at which a call had its effect, if it had any."""
    return event.responded_at_us if event.responded_at_us is not None else invoked_us(event) + UNANSWERED_WITHIN_US


def by_time(event: HistoryEvent) -> tuple[int, int, str, int]:
    """Return a sort key of events: the instant of the answer."""
    return responded_us(event), invoked_us(event), event.call_id or "", event.batch_position or 0


def effective(tries: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """Return the calls that may have had an effect."""
    return [event for event in tries if event.outcome != CallOutcome.FAIL]


def number(event: HistoryEvent) -> str | None:
    """Return the sequence number in the answer to a publish: that of SNS, or of the queue it was sent to."""
    return event.sns_sequence_number or event.sqs_sequence_number


def is_same_receive(event: HistoryEvent, other: HistoryEvent) -> bool:
    """Return whether two received events are from one answer, or from one repeated with its attempt id (RCV-11)."""
    return event.call_id == other.call_id or is_repeat(event, other)


def is_repeat(event: HistoryEvent, other: HistoryEvent) -> bool:
    """Return whether another call returned the message again for the same attempt id, and so with the same handle."""
    attempt = event.receive_request_attempt_id
    return (
        event.call_id != other.call_id
        and attempt is not None
        and attempt == other.receive_request_attempt_id
        and event.receipt_handle_hash == other.receipt_handle_hash
    )


class _Lists[K](dict[K, list[HistoryEvent]]):
    """Lists of events by key. A missing key reads as an empty list and stays missing, because rules only read."""

    def __missing__(self, key: K) -> list[HistoryEvent]:
        return []

    def add(self, key: K, event: HistoryEvent) -> None:
        """Append an event to the list of its key."""
        self.setdefault(key, []).append(event)


class Group:
    """The events of one group.

    Args:
        events: the events of the group, in any order, settled.
        expectation: the declared setup of the run.
        around: events outside the group.
        is_suspicious: whether possible clock differences are assumed in the way that makes a violation. A violation
            that is found only then depends on the differences of the clocks.
    """

    def __init__(
        self,
        events: Sequence[HistoryEvent],
        expectation: Expectation,
        around: QueueContext,
        *,
        is_suspicious: bool = False,
    ) -> None:
        self.expectation, self.around, self._is_suspicious = expectation, around, is_suspicious
        self._dropped: dict[int, tuple[str, ...]] = {}
        if around.shared_ids:
            events = self._unless_shared(events)
        times = [us for event in events for us in (event.invoked_at_us, event.responded_at_us) if us is not None]
        self._span_us = max(times, default=0) - min(times, default=0)
        self.clocks = Clocks.of(
            {clock_of(event) for event in events},
            bound_us=expectation.clock_bound_us,
            proven=expectation.clocks_ahead_us,
        )
        if self.clocks.shift_us:
            events = [self.clocks.correct(event) for event in events]
        self.id = next((event.message_group_id for event in events if event.message_group_id is not None), "")
        self.publishes = _Lists[int]()
        self.received = _Lists[str]()
        self.handled: dict[str, _Lists[int]] = {}
        self.parked: dict[str, set[int]] = {}
        self._tries = _Lists[tuple[str | None, str]]()
        self._instance_tries: dict[tuple[str | None, str], list[HistoryEvent]] = {}
        self._end_markers: dict[str, HistoryEvent] = {}
        self._spreads_us = self._spreads(events) if self.clocks.ahead else {}
        events = self._without_sent_letters(events)
        for event in self._distinct_events(sorted(events, key=by_time)):
            self._take(event)
        self.acked = {
            idx: next(event for event in tries if event.outcome == CallOutcome.OK)
            for idx, tries in self.publishes.items()
            if any(event.outcome == CallOutcome.OK for event in tries)
        }
        self.order = {
            idx: order
            for idx, event in self.acked.items()
            if (order := number(event)) is not None and self._is_one_message(idx)
        }
        self.lines = self._lines()
        self.first_received = {queue: _first_by_idx(events) for queue, events in self.received.items()}

    def _unless_shared(self, events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
        """Return the events; a publish that may be a repeat of another message's publish counts as unanswered.

        If a message arrived from every queue it was sent to, under one number, its own publish certainly had the
        effect.
        """
        tries, came = _Lists[int](), defaultdict[int | None, set[str | None]](set)
        for event in events:
            if event.kind == Kind.PUBLISHED and event.outcome == CallOutcome.OK and event.idx is not None:
                tries.add(event.idx, event)
            elif event.kind == Kind.RECEIVED:
                came[event.idx].add(event.queue)
        doubtful = set[int]()
        for idx, acked in tries.items():
            sent_to = self._queues_owed_by(acked)
            if not came[idx].issuperset(sent_to) or len(set(map(number, acked))) > 1:
                later = [event for event in acked if not self._is_first_of_its_id(event)]
                doubtful.update(map(id, later))
                if later and not any(map(self._is_answered_as_repeat, later)):
                    self._dropped[idx] = sent_to
        ids: dict[str, Any] = dict.fromkeys(
            ("sns_message_id", "sns_sequence_number", "sqs_message_id", "sqs_sequence_number")
        )
        return [
            replace(event, outcome=CallOutcome.INFO.value, **ids) if id(event) in doubtful else event
            for event in events
        ]

    def _without_sent_letters(self, events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
        """Return the events without the sends of dead letters by their consumer, which are no further publishes.

        A consumer that counts attempts itself sends a dead message to its queue's DLQ, under the SQS message id of the
        message as deduplication id; of an event of a bundle, under that and its position.
        """
        dead_letter_queues = {*self.expectation.dead_letter_queues.values()}
        sent = [event for event in events if event.kind == Kind.PUBLISHED and event.queue in dead_letter_queues]
        received = (
            {(event.queue, event.sqs_message_id) for event in events if event.kind == Kind.RECEIVED} if sent else set()
        )
        found = {
            id(event): (queue, event.deduplication_id)
            for event in sent
            for queue, dead_letter_queue in self.expectation.dead_letter_queues.items()
            if event.queue == dead_letter_queue and event.deduplication_id is not None
            if (queue, event.deduplication_id) in received
        }
        self._sent_letters = frozenset(found.values())
        return [event for event in events if id(event) not in found] if found else events

    def is_sent_by_consumer(self, queue: str, dead: HistoryEvent) -> bool:
        """Return whether the consumer of a queue sent a dead letter itself, as its deduplication id tells."""
        return (queue, dead.deduplication_id) in self._sent_letters

    def _is_first_of_its_id(self, event: HistoryEvent) -> bool:
        """Return whether no other message was published to this place under the same id in the window before."""
        bound_us = self.expectation.clock_bound_us
        kept_us = self._window_us + WINDOW_TOLERANCE_US + bound_us
        message = event.message_group_id or "", event.idx or 0
        uses = self.around.shared_ids.get(message, ())
        first = bisect_left(uses, invoked_us(event) - kept_us - UNANSWERED_WITHIN_US, key=lambda use: use.from_us)
        for use in islice(uses, first, None):
            if effect_by_us(event) + bound_us < use.from_us:
                break
            is_within = use.until_us + kept_us >= invoked_us(event)
            if is_within and use.message != message and not self._are_two_queues(use.queue, event.queue):
                return False
        return True

    def _is_answered_as_repeat(self, event: HistoryEvent) -> bool:
        """Return whether another message was acknowledged with the same message id."""
        message = event.message_group_id or "", event.idx or 0
        own = event.sns_message_id or event.sqs_message_id
        return any(use.id == own is not None and use.message != message for use in self.around.shared_ids[message])

    def publishes_by(self, receive: HistoryEvent) -> list[HistoryEvent]:
        """Return the publishes of a received message's idx, without those that were certainly made after the receive.

        Who receives a message and sends a copy of it under its deduplication id publishes after the receive.
        """
        tries = self.publishes.get(receive.idx or 0, ()) if receive.idx is not None else ()
        return [publish for publish in tries if not self.is_surely_before(receive, publish)]

    def maybe_dropped(self) -> Iterator[tuple[str, int]]:
        """Yield (queue, idx) of each message that never arrived, and may have been dropped as a repeat of another."""
        for idx, queues in self._dropped.items():
            for queue in queues:
                if idx not in self.first_received.get(queue, {}) and not self.is_dead_lettered(queue, idx):
                    yield queue, idx

    def _are_two_queues(self, place: str | None, other: str | None) -> bool:
        """Return whether the places are two different queues, which have separate deduplication ids.

        A topic sends to many.
        """
        return place != other and {place, other}.issubset(self.judged_queues)

    def _take(self, event: HistoryEvent) -> None:
        is_ours = event.message_run == self.expectation.run and event.queue is not None
        if event.kind == Kind.PUBLISHED and event.idx is not None:
            self.publishes.add(event.idx, event)
        elif event.kind == Kind.RECEIVED and is_ours:
            self.received.add(event.queue or "", event)
            if is_end_marker(event.idx):
                self._end_markers.setdefault(event.queue or "", event)
        elif event.kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED) and event.receipt_handle_hash is not None:
            self._tries.add((event.queue, event.receipt_handle_hash), event)
        elif event.kind == Kind.HANDLED and is_ours and event.idx is not None:
            self.handled.setdefault(event.queue or "", _Lists()).add(event.idx, event)
        elif event.kind == Kind.PARKED and is_ours and event.idx is not None:
            self.parked.setdefault(event.queue or "", set()).add(event.idx)

    def _distinct_events(self, events: Sequence[HistoryEvent]) -> Iterable[HistoryEvent]:
        """Return the events; each receive of a moved message gets the idx of the original message.

        The deduplication id of a dead letter is its old message id, so it comes with another idx, unless idxs are
        planned. A receive whose idx nobody had published by then is looked up by its deduplication id, among those that
        were published and, where it may be a dead letter or have been one, the message ids received before; then by its
        message id. AWS says nothing about the new ids of a message that a move task brought (MOV-17): if the ids lead
        nowhere, it is looked up by its body, if only one message was published with that body.
        """
        if self.expectation.is_planned:
            return events
        published = [event for event in events if event.kind == Kind.PUBLISHED and event.idx is not None]
        known: dict[str | None, int | None] = {
            event.deduplication_id: event.idx for event in published if event.deduplication_id is not None
        }
        first = {event.idx: event for event in sorted(published, key=invoked_us, reverse=True)}
        of_body: dict[str | None, set[int | None]] = defaultdict(set)
        for event in published:
            of_body[event.body_hash].add(event.idx)
        of_id: dict[str | None, int | None] = {}
        dead: set[str | None] = set()
        distinct: list[HistoryEvent] = []
        for event in events:
            if event.kind != Kind.RECEIVED:
                distinct.append(event)
                continue
            idx, may_be_moved = event.idx, self.may_be_from_dlq(event)
            if idx not in first or self.is_surely_before(event, first[idx]):
                may_have_died = (
                    may_be_moved or self._may_be_dead_letter_queue(event.queue) or event.deduplication_id in dead
                )
                own = of_id.get(event.deduplication_id) if may_have_died else None
                own = known.get(event.deduplication_id) if own is None else own
                idx = of_id.get(event.sqs_message_id, idx) if own is None else own
                same = of_body.get(event.body_hash, set())
                if idx not in first and len(same) == 1 and event.body_hash is not None and may_be_moved:
                    (idx,) = same
            distinct.append(replace(event, idx=idx))
            if event.sqs_message_id is not None:
                of_id.setdefault(event.sqs_message_id, idx)
                if self._may_be_dead_letter_queue(event.queue):
                    dead.add(event.sqs_message_id)
        return distinct

    def _may_be_dead_letter_queue(self, queue: str | None) -> bool:
        return queue not in self.expectation.queues or queue in self.expectation.dead_letter_queues.values()

    def _is_one_message(self, idx: int) -> bool:
        """Return whether all publishes of an idx are one message, which therefore has one place in the group."""
        tries = effective(self.publishes[idx])
        numbers = {number(event) for event in tries}
        span_us = max(map(effect_by_us, tries)) - min(map(invoked_us, tries)) + self.publishers_spread_us
        is_forgotten = any(self.is_purged(event.queue) for event in tries)
        is_single = len(numbers) == 1 or (span_us < self._window_us and not is_forgotten)
        # a queue delivers the first of them that arrives (DED-01)
        is_of_one_place = len({event.queue for event in tries}) == 1
        return is_single and is_of_one_place and not self.older_copies(idx)

    @property
    def _window_us(self) -> int:
        return self.expectation.deduplication_window_seconds * 1_000_000

    def may_be_older(self, copy: HistoryEvent) -> bool:
        """Return whether a received copy may come from an unrecorded publish, before or beside the recorded ones."""
        began_us = self.expectation.publishing_began_us
        if began_us is None:
            return False
        sent_us = self._sent_us(copy)
        if sent_us is None:
            return True
        tried_us = min(map(invoked_us, effective(self.publishes.get(copy.idx or 0, ()))), default=NEVER_US)
        return sent_us < began_us + _FANNED_OUT_WITHIN_US and sent_us + _SENT_ROUNDED_US < tried_us

    def _sent_us(self, copy: HistoryEvent) -> int | None:
        """Return when a copy was sent; None if unknown, because dead letters and returned messages are sent anew."""
        sent = [event.sent_at_us for event in self._in_its_queue(copy) if not self._may_be_sent_by_task(event)]
        return sent[0] if sent else None

    def _in_its_queue(self, copy: HistoryEvent) -> Iterator[HistoryEvent]:
        """Yield the receives of a copy from its queue; a dead letter keeps the message id that it had there."""
        for queue in self.expectation.queues:
            for event in self.receives(queue, copy.idx):
                if event.sqs_message_id == copy.sqs_message_id:
                    yield event

    def _may_be_sent_by_task(self, event: HistoryEvent) -> bool:
        """Return whether a move task may have sent the received message: a task that had begun and had not ended."""
        sent_us, within_us = event.sent_at_us, ENQUEUED_WITHIN_US + self.around_bound_us
        return any(
            sent_us is None
            or (
                move.began_at_us <= sent_us + within_us
                and not (move.is_finished and move.ended_at_us < sent_us - within_us)
            )
            for move in self.moves_before(event, event.queue)
        )

    def older_copies(self, idx: int) -> int:
        """Return how many copies of a message a queue may have had from before the publishes on record began."""
        if self.expectation.publishing_began_us is None:
            return 0
        of_queue = [
            sum(self._is_older(self.instances[queue, id_][0]) for id_ in ids)
            for (queue, of), ids in self.ids.items()
            if of == idx and queue in self.judged_queues
        ]
        return max(of_queue, default=0)

    def _is_older(self, copy: HistoryEvent) -> bool:
        """Return whether `may_be_older` holds for a copy that no move task may have sent, even before it died."""
        return self.may_be_older(copy) and not any(map(self._may_be_sent_by_task, (copy, *self._in_its_queue(copy))))

    def may_be_repeat(self, idx: int) -> bool:
        """Return whether the first publish of a message may be a repeat of a publish that is not on record.

        If a copy was sent at or after the publish, and before the next one, the publish made that copy and was no
        repeat. A message with a higher number than such a message was published after it.
        """
        began_us, tries = self.expectation.publishing_began_us, effective(self.publishes.get(idx, ()))
        if began_us is None or not tries:
            return False
        first = min(tries, key=invoked_us)
        if invoked_us(first) >= began_us + self._window_us + WINDOW_TOLERANCE_US + self.publishers_spread_us:
            return False
        least = self._certainly_new.get(first.queue, _HIGHEST)
        return (number(first) or "") <= least and not self._has_own_copy(idx)

    def may_be_swallowed(self, queue: str, idx: int) -> bool:
        """Return whether a queue may have dropped a message as a repeat of one from before the recording began.

        This is possible for a queue with several senders, because it has the ids of all of them (DED-01). The senders
        of messages from before the recording are unknown.
        """
        began_us, tries = self.expectation.publishing_began_us, effective(self.publishes.get(idx, ()))
        if began_us is None or not tries:
            return False
        is_late = min(map(invoked_us, tries)) >= began_us + self._window_us + WINDOW_TOLERANCE_US
        places = {event.queue for of in self.publishes.values() for event in of}
        return not is_late and (len(places) > 1 or any(map(self.may_be_older, self.received.get(queue, ()))))

    def _has_own_copy(self, idx: int) -> bool:
        """Return whether a copy of a message was sent between its first and its second publish.

        A move task sends its messages anew.
        """
        from_us, until_us, *_ = *sorted(map(invoked_us, effective(self.publishes[idx]))), NEVER_US
        return any(
            copy.sent_at_us is not None and from_us < copy.sent_at_us + _SENT_ROUNDED_US and copy.sent_at_us < until_us
            for queue in self.expectation.queues
            for copy in self.receives(queue, idx)
            if not self._may_be_sent_by_task(copy)
        )

    @cached_property
    def _certainly_new(self) -> Mapping[str | None, str]:
        """Return for each place the lowest number of a message of which the first publish is on record."""
        lowest: dict[str | None, str] = {}
        for idx, event in self.acked.items():
            name = number(event)
            if name is not None and self._has_own_copy(idx):
                lowest[event.queue] = min(name, lowest.get(event.queue, name))
        return lowest

    def may_have_been_received_before(self, queue: str, idx: int | None, receives: Sequence[HistoryEvent]) -> bool:
        """Return whether a message may have been received before the receives of its queue are on record.

        Args:
            queue: the queue of the message.
            idx: the message.
            receives: its receives, by time of answer, from this queue or its DLQ.
        """
        began_us = self.expectation.receiving_began_us.get(queue)
        if began_us is None:
            return False
        tries = effective(self.publishes.get(idx or 0, ()))
        if tries and min(map(invoked_us, tries)) >= began_us and idx is not None and not self.may_be_repeat(idx):
            return any(map(self.may_be_older, receives))
        return not receives or self._may_be_known(queue, receives[0])

    def _may_have_died_before(self, queue: str, event: HistoryEvent) -> bool:
        """Return whether a received message may have been received and dead-lettered before the recording began."""
        tries = effective(self.publishes.get(event.idx or 0, ()))
        tried_us = min(
            (invoked_us(publish) for publish in tries if not self.is_surely_before(event, publish)), default=0
        )
        published_us, received_us = self.expectation.publishing_began_us, self.expectation.receiving_began_us.get(queue)
        is_repeat = published_us is not None and tried_us < published_us + self._window_us + WINDOW_TOLERANCE_US
        return is_repeat or (received_us is not None and tried_us < received_us)

    def _may_be_known(self, queue: str, first: HistoryEvent) -> bool:
        """Return whether the first receive of a message on record may not have been its first from a queue."""
        began_us = self.expectation.receiving_began_us.get(queue)
        since_us = first.first_received_at_us or first.sent_at_us
        return began_us is not None and (since_us is None or since_us < began_us + ENQUEUED_WITHIN_US)

    def _lines(self) -> list[list[int]]:
        """Return the group's order, one list for each place of publishing: numbers of two places cannot be compared."""
        lines: dict[str | None, list[int]] = defaultdict(list)
        for idx in sorted(self.order, key=lambda idx: self.order[idx]):
            lines[self.acked[idx].queue].append(idx)
        return list(lines.values())

    def is_ahead(self, idx: int | None, other: int | None) -> bool:
        """Return whether the first message is known to come before the second in the group.

        A message published after the acknowledgement of another comes behind it, even if its own publish had no answer.
        """
        if idx not in self.order or other is None:
            return False
        if other in self.behind:
            queue, last = self.behind[other]
            return queue == self.acked[idx].queue and self.order[idx] <= last
        return (
            other in self.order
            and self.acked[idx].queue == self.acked[other].queue
            and self.order[idx] < self.order[other]
        )

    def are_of_one_place(self, idx: int, other: int) -> bool:
        """Return whether two messages were published to one topic or queue, which gave them one order."""
        return len({event.queue for of in (idx, other) for event in effective(self.publishes.get(of, ()))}) == 1

    def place(self, receive: HistoryEvent) -> tuple[str | None, str] | None:
        """Return the place where a received message was published, and its sequence number there; None if unknown.

        Several messages of one idx, published a window apart, arrive in the order of their numbers.
        """
        queue, idx, id_ = receive.queue or "", receive.idx, receive.sqs_message_id
        ids = self.ids.get((queue, idx), []) if idx is not None else []
        if idx not in self.acked or id_ not in ids:
            return None
        if idx in self.order:
            return (self.acked[idx].queue, self.order[idx]) if len(ids) == 1 else None
        tries = effective(self.publishes[idx])
        numbers = sorted({number(event) or "" for event in tries})
        is_certain = (
            "" not in numbers
            and len({event.queue for event in tries}) == 1
            and not self.spread_us(queue)
            and self.is_proven(queue)
        )
        is_certain = is_certain and not self.expectation.lost_receives.get(queue) and not self.older_copies(idx)
        is_each_here = len(ids) == len(numbers) or (len(ids) < len(numbers) and not self.may_be_kept_no_longer)
        return (self.acked[idx].queue, numbers[ids.index(id_)]) if is_certain and is_each_here else None

    @cached_property
    def behind(self) -> Mapping[int, tuple[str | None, str]]:
        """Return for each unacknowledged message its place of publishing, and the last number certainly before it."""
        answered: dict[str | None, list[int]] = defaultdict(list)
        # the highest number of each place that was answered by then
        highest: dict[str | None, list[str]] = defaultdict(list)
        for idx in sorted(self.order, key=lambda idx: responded_us(self.acked[idx])):
            acked, order = self.acked[idx], self.order[idx]
            numbers = highest[acked.queue]
            answered[acked.queue].append(responded_us(acked))
            numbers.append(max(numbers[-1], order) if numbers else order)
        behind = {}
        for idx, tries in self.publishes.items():
            sent = effective(tries)
            if idx in self.acked or not sent:
                continue
            tried_us = min(map(invoked_us, sent)) - self.publishers_spread_us
            queue = sent[0].queue
            before = bisect_left(answered[queue], tried_us)
            if before:
                behind[idx] = (queue, highest[queue][before - 1])
        return behind

    def followers(self, queue: str) -> Mapping[str | None, list[tuple[str, int]]]:
        """Return the received messages of `behind`, by place of publishing: (the last number before it, idx)."""
        followers: dict[str | None, list[tuple[str, int]]] = defaultdict(list)
        for idx in self.first_received.get(queue, {}):
            if idx in self.behind:
                published_to, last = self.behind[idx]
                followers[published_to].append((last, idx))
        return followers

    def spread_us(self, queue: str | None) -> int:
        """Return the largest difference between the clocks that timed a queue's receives, or the publishes (None)."""
        return self._spreads_us.get(queue, 0)

    def _spreads(self, events: Iterable[HistoryEvent]) -> dict[str | None, int]:
        timed: dict[str | None, dict[str | None, HistoryEvent]] = defaultdict(dict)
        for event in events:
            timed[None if event.kind == Kind.PUBLISHED else event.queue].setdefault(event.clock_id, event)
        return {
            queue: max(self.bound_us(event, other) for event, other in permutations(of_clock.values(), 2))
            for queue, of_clock in timed.items()
            if len(of_clock) > 1
        }

    @cached_property
    def publishers_spread_us(self) -> int:
        """Return the largest difference between the clocks that timed publishes."""
        return self.spread_us(None)

    @cached_property
    def widest_us(self) -> int:
        """Return the largest difference between any two clocks of the group."""
        return apart_us_max(self.clocks.ahead)

    @cached_property
    def around_bound_us(self) -> int:
        """Return the largest difference between a time of the group and a time by an unknown clock."""
        return self.expectation.clock_bound_us + self.clocks.shift_us

    @cached_property
    def instances(self) -> Mapping[tuple[str, str], list[HistoryEvent]]:
        """Return the received events of each instance, by time of answer.

        An instance is one message in one queue (see the terms at the top); its key is (queue, SQS message id).
        """
        instances: dict[tuple[str, str], list[HistoryEvent]] = defaultdict(list)
        for queue, events in self.received.items():
            for event in events:
                if event.sqs_message_id is not None:
                    instances[queue, event.sqs_message_id].append(event)
        return instances

    @cached_property
    def _receives(self) -> Mapping[tuple[str, int], list[HistoryEvent]]:
        receives: dict[tuple[str, int], list[HistoryEvent]] = defaultdict(list)
        for queue, events in self.received.items():
            for event in events:
                if event.idx is not None:
                    receives[queue, event.idx].append(event)
        return dict(receives)

    def receives(self, queue: str, idx: int | None) -> Sequence[HistoryEvent]:
        """Return every receive of a message from a queue, of all its copies, by time of answer."""
        return self._receives.get((queue, idx), ()) if idx is not None else ()

    @cached_property
    def ids(self) -> Mapping[tuple[str, int], list[str]]:
        """Return for each (queue, idx) the SQS message ids of the message in that queue, by first receive."""
        ids: dict[tuple[str, int], list[str]] = defaultdict(list)
        for (queue, id_), events in self.instances.items():
            for idx in {event.idx for event in events if event.idx is not None}:
                ids[queue, idx].append(id_)
        return ids

    @cached_property
    def judged_queues(self) -> tuple[str, ...]:
        """Return the queues and their DLQs: both are FIFO queues."""
        return (*self.expectation.queues, *sorted({*self.expectation.dead_letter_queues.values()}))

    def expected_queues(self, idx: int) -> tuple[str, ...]:
        """Return the queues that a message may have reached: all, or only those it was sent to directly."""
        return self._target_queues(self.publishes.get(idx, ()))

    def owed_queues(self, idx: int) -> tuple[str, ...]:
        """Return the queues a message had to reach, by its acknowledgements, for all that is known."""
        return self._queues_owed_by(self._acknowledgements(idx))

    def is_certainly_owed(self, queue: str, idx: int) -> bool:
        """Return whether a message certainly had to reach a queue, by its acknowledgements."""
        acked = self._acknowledgements(idx)
        return queue in self._target_queues(acked) and self._is_accepted(queue, acked) is True

    def _acknowledgements(self, idx: int) -> list[HistoryEvent]:
        return [event for event in self.publishes.get(idx, ()) if event.outcome == CallOutcome.OK]

    def _queues_owed_by(self, acked: Sequence[HistoryEvent]) -> tuple[str, ...]:
        return tuple(queue for queue in self._target_queues(acked) if self._is_accepted(queue, acked) is not False)

    def _is_accepted(self, queue: str, acked: Sequence[HistoryEvent]) -> bool | None:
        """Return whether a queue gets a message of these acknowledged publishes; None if it is not known."""
        is_recorded = self.expectation.selective_queues.get(queue)
        if is_recorded is None or any(event.queue == queue for event in acked):
            return True
        accepted = {acceptances_in(event.detail).get(queue) if is_recorded else None for event in acked}
        return accepted.pop() if len(accepted) == 1 else None  # of several publishes one may be another's repeat

    def _target_queues(self, publishes: Iterable[HistoryEvent]) -> tuple[str, ...]:
        names, queues = {event.queue for event in publishes}, self.expectation.queues
        return tuple(queue for queue in queues if queue in names) if names and names <= set(queues) else queues

    def dead_letter(self, queue: str, idx: int | None) -> HistoryEvent | None:
        """Return the first receive of the message from the queue's DLQ; None if it was not received there."""
        dead_letter_queue = self.expectation.dead_letter_queues.get(queue)
        if dead_letter_queue is None or idx is None:
            return None
        return self.first_received.get(dead_letter_queue, {}).get(idx)

    def is_dead_lettered(self, queue: str, idx: int | None) -> bool:
        """Return whether the message was seen in the queue's DLQ: from then on order and loss do not bind it."""
        return self.dead_letter(queue, idx) is not None

    def is_moved(self, queue: str, idx: int) -> bool:
        """Return whether a move task may have returned the message to the queue, behind others or as a second copy.

        The task may have begun long before. It may be that of another queue's DLQ, or return a copy that was never
        received here.
        """
        times = self.receives(queue, idx)
        return bool(times) and any(
            self._may_have_brought(move, times) for move in self.around.moves if move.destination == queue
        )

    def _may_have_brought(self, move: Move, times: Sequence[HistoryEvent]) -> bool:
        """Return whether a move task to the queue may have returned the copy of the last of these receives.

        The receives after which a message dies are on record, lost, or were under way when the task began.
        """
        queue, began_us = times[0].queue or "", move.began_at_us
        if responded_us(times[-1]) + self.around_bound_us < began_us:
            return False
        is_in_between = any(
            not self.is_after(e, began_us) and responded_us(e) + self.around_bound_us >= began_us for e in times
        )
        if is_in_between or not self.is_proven(queue) or self._may_have_died_before(queue, times[0]):
            return True
        lost, most = self.expectation.lost_receives.get(queue, 0), self.expectation.max_receive_count.get(queue, 1)
        if move.source != self.expectation.dead_letter_queues.get(queue):
            # its own copy may have been removed without a receive on record
            return len(times) + lost > 1 or self.may_be_kept_no_longer
        is_over = move.is_finished and all(self.is_after(event, move.ended_at_us) for event in times)
        return len(times) + lost > most and (lost >= most or not is_over)

    def moves_before(self, event: HistoryEvent, queue: str | None) -> list[Move]:
        """Return the move tasks to a queue that may have begun before a message was received."""
        by_us = responded_us(event) + self.around_bound_us
        return [move for move in self.around.moves if move.destination == queue and move.began_at_us <= by_us]

    def may_be_from_dlq(self, event: HistoryEvent) -> bool:
        """Return whether a move task to its queue may have begun before a message was received."""
        return bool(self.moves_before(event, event.queue))

    def has_stayed(self, queue: str, idx: int | None, *, by: HistoryEvent | None = None) -> bool:
        """Return whether the message certainly did not leave the queue and return, which would give it another place.

        The order holds for a message until it dies; a copy that arrives later under another id is another instance.

        Args:
            queue: the queue of the message.
            idx: the message.
            by: a receive of it; moves after that receive do not count. None means all receives.
        """
        if idx is None or ((by is None or self.may_be_from_dlq(by)) and self.is_moved(queue, idx)):
            return False
        dead = self.dead_letter(queue, idx)
        if by is not None and dead is not None and self.is_before(by, dead):
            return True
        return dead is None or all(
            self.is_before(receive, dead)
            for receive in self.receives(queue, idx)
            if dead.sqs_message_id in (None, receive.sqs_message_id)
        )

    def is_bound(self, queue: str, idx: int | None) -> bool:
        """Return whether order and uniqueness bind the message in the queue: it certainly never left it for a DLQ."""
        return idx is not None and not self.is_dead_lettered(queue, idx) and not self.is_moved(queue, idx)

    def is_proven(self, queue: str) -> bool:
        """Return whether all that was received from the queue is on record."""
        return queue not in self.expectation.unproven_queues

    @cached_property
    def may_be_kept_no_longer(self) -> bool:
        """Return whether a queue was purged, or the group is as old as the shortest retention."""
        kept = (*self.expectation.retention_seconds.values(), limits.MESSAGE_RETENTION_SECONDS)
        return bool(self.around.purges) or self._span_us + self.widest_us >= min(kept) * 1_000_000

    def is_purged(self, queue: str | None) -> bool:
        """Return whether the queue was ever purged."""
        return any(purge.queue == queue for purge in self.around.purges)

    def end_marker(self, queue: str) -> HistoryEvent | None:
        """Return the first receive of the group's end marker from the queue."""
        return self._end_markers.get(queue)

    def is_drained(self, queue: str) -> bool:
        """Return whether the end marker was received from the queue, and all that was received is on record."""
        return self.is_proven(queue) and self.end_marker(queue) is not None

    def lease_end_us(self, event: HistoryEvent) -> int:
        """Return the end of the definite lease of a received event: until then its receiver surely held the message."""
        return self._hold_end_us(event, self._effective_tries(event))

    def possible_lease_end_us(self, event: HistoryEvent) -> int:
        """Return the end of the possible lease of a received event: its receiver surely held it no longer.

        It is the latest instant at which the visibility timeout may have expired (`possible_expiry_us`), or the answer
        of a delete that was ok, if that came earlier. All times are by the clock of the received event.
        """
        deleted = [
            self._latest_us(attempt, event)
            for attempt in self._effective_tries(event)
            if attempt.kind == Kind.DELETED and attempt.outcome == CallOutcome.OK
        ]
        return min([self.possible_expiry_us(event), *deleted])

    def possible_expiry_us(self, event: HistoryEvent) -> int:
        """Return the latest instant at which the hold of a receive may have ended without a delete.

        It is `NEVER_US` if the visibility timeout is not known.
        """
        put_off = [
            self._latest_us(attempt, event) + self._held_us(attempt)
            for attempt in self._effective_tries(event)
            if attempt.kind != Kind.DELETED
        ]
        expired = (
            self._expiry_us(event) - invoked_us(event) + responded_us(event) if self._is_timed(event) else NEVER_US
        )
        return max([expired, *put_off])

    def _effective_tries(self, event: HistoryEvent) -> list[HistoryEvent]:
        """Return the calls that may have had their effect after this receive was sent."""
        return [
            attempt
            for attempt in effective(self._with_repeats(event, self.tries(event)))
            if self._latest_us(attempt, event) >= invoked_us(event)
        ]

    def _latest_us(self, attempt: HistoryEvent, event: HistoryEvent) -> int:
        """Return when a call was answered at the latest, by the clock of an event."""
        return responded_us(attempt) + self.bound_us(attempt, event)

    def _with_repeats(self, event: HistoryEvent, tries: list[HistoryEvent]) -> list[HistoryEvent]:
        """Return the tries, and the repeats of this receive by its attempt id, which hide the message anew (RCV-28)."""
        if event.receive_request_attempt_id is None:
            return tries
        repeats = [
            sibling
            for sibling in self.siblings(event)
            if is_repeat(event, sibling) and not self.is_before(sibling, event)
        ]
        return sorted([*tries, *repeats], key=by_time) if repeats else tries

    def _held_us(self, attempt: HistoryEvent) -> int:
        """Return for how long a visibility change hides a message, or a receive."""
        seconds = attempt.visibility_timeout_seconds
        if seconds is None and attempt.kind == Kind.RECEIVED:
            seconds = self.expectation.visibility_timeout_seconds.get(attempt.queue or "", 0)
        return (seconds or 0) * 1_000_000

    def _is_timed(self, event: HistoryEvent) -> bool:
        """Return whether the length of the hold is known; otherwise the hold counts as ending at once, or never."""
        is_given = event.visibility_timeout_seconds is not None
        return is_given or event.queue in self.expectation.visibility_timeout_seconds

    def _expiry_us(self, event: HistoryEvent) -> int:
        return invoked_us(event) + self._held_us(event)

    def expiry_us(self, event: HistoryEvent) -> int:
        """Return the earliest instant at which the hold of a receive may have ended without a delete."""
        changes = [
            attempt
            for attempt in effective(self._tries_with(event, event.receipt_handle_hash))
            if attempt.kind == Kind.VISIBILITY_CHANGED
        ]
        return self._hold_end_us(event, self._with_repeats(event, changes))

    def _hold_end_us(self, event: HistoryEvent, tries: Iterable[HistoryEvent]) -> int:
        """Return the earliest end of a hold after the deletes and changes that may have had effects, sorted by answer.

        A change that certainly worked replaces the end before it. Of two overlapping changes either may be the last.
        """
        ends: list[tuple[HistoryEvent | None, int]] = [(None, self._expiry_us(event))]
        for attempt in tries:
            is_certain = (
                attempt.kind != Kind.DELETED
                and attempt.outcome == CallOutcome.OK
                and attempt.receipt_handle_hash == event.receipt_handle_hash
                and (attempt.kind != Kind.RECEIVED or self.is_before(event, attempt))
                and self._latest_us(attempt, event) < min(end for _, end in ends)
            )
            if is_certain:
                ends = [(by, end) for by, end in ends if by is not None and not self.is_before(by, attempt)]
            held_us = self._held_us(attempt) if attempt.kind != Kind.DELETED else 0
            earliest_us = invoked_us(attempt) - self.bound_us(event, attempt)  # converted to the clock of the event
            ends.append((attempt, max(earliest_us, invoked_us(event)) + held_us))
        return min(end for _, end in ends)

    def siblings(self, event: HistoryEvent) -> list[HistoryEvent]:
        """Return every receive of the same message in the queue, by time of answer."""
        return self.instances.get((event.queue or "", event.sqs_message_id or ""), [event])

    def are_in_answer_of(self, others: Iterable[HistoryEvent], event: HistoryEvent) -> bool:
        """Return whether one of `others` is in the answer that contained the event, or in the answer it replays."""
        calls = {sibling.call_id for sibling in self.siblings(event) if is_same_receive(sibling, event)}
        return any(other.call_id in calls for other in others)

    def tries(self, event: HistoryEvent) -> list[HistoryEvent]:
        """Return every delete and visibility change of the same instance, by time of answer."""
        if event.sqs_message_id is None:
            return self._tries_of(event)
        key = event.queue, event.sqs_message_id
        if key not in self._instance_tries:
            self._instance_tries[key] = self._tries_of(event)
        return self._instance_tries[key]

    def _tries_of(self, event: HistoryEvent) -> list[HistoryEvent]:
        handles = {sibling.receipt_handle_hash for sibling in self.siblings(event)} - {None}
        found = [attempt for handle in handles for attempt in self._tries_with(event, handle)]
        # the tries of one handle are sorted by time already
        return sorted(found, key=by_time) if len(handles) > 1 else found

    def _tries_with(self, event: HistoryEvent, handle: str | None) -> list[HistoryEvent]:
        """Return the deletes and changes that were tried with a handle on the message of this receive."""
        tried = self._tries.get((event.queue, handle or ""), [])
        return [attempt for attempt in tried if attempt.sqs_message_id in (None, event.sqs_message_id)]

    def may_be_deleted(self, event: HistoryEvent) -> bool:
        """Return whether a delete of the same instance may have had its effect."""
        return any(self.may_delete(attempt, event) for attempt in self.tries(event))

    def may_delete(self, attempt: HistoryEvent, event: HistoryEvent) -> bool:
        """Return whether an attempt is a delete that may have removed the received message.

        A message that was released, or received with a timeout of 0, is held by nobody from then on, and cannot be
        deleted (VIS-04, VIS-11). A timeout that ended proves nothing, because no document says how soon a queue notices
        it (VIS-15).
        """
        if attempt.kind != Kind.DELETED or attempt.outcome == CallOutcome.FAIL:
            return False
        changes = [
            change
            for change in effective(self._tries_with(event, attempt.receipt_handle_hash))
            if change.kind == Kind.VISIBILITY_CHANGED and not self.is_surely_before(attempt, change)
        ]
        if any(change.visibility_timeout_seconds != 0 for change in changes):
            return True
        given = [e for e in self.siblings(event) if e.receipt_handle_hash == attempt.receipt_handle_hash]
        is_given_back = any(change.outcome == CallOutcome.OK and self.is_before(change, attempt) for change in changes)
        return not is_given_back and not (given and all(receive.visibility_timeout_seconds == 0 for receive in given))

    def settled_delete(self, event: HistoryEvent) -> HistoryEvent | None:
        """Return the delete that certainly removed the instance of this receive; None if there is none."""
        tried = self._with_repeats(event, effective(self._tries_with(event, event.receipt_handle_hash)))
        for delete in tried:
            if delete.kind != Kind.DELETED or delete.outcome != CallOutcome.OK:
                continue
            changes = [change for change in tried if change.kind != Kind.DELETED and not self.is_before(delete, change)]
            end = self._hold_end_us(event, changes)
            # later tries come after the end of the hold
            if self._latest_us(delete, event) <= end and self._is_newest(event, delete):
                return delete
        return None

    def _is_newest(self, event: HistoryEvent, delete: HistoryEvent) -> bool:
        return all(
            sibling.receipt_handle_hash == event.receipt_handle_hash
            or self.is_earlier_receive(sibling, event)
            or self.is_earlier_receive(event, sibling)
            for sibling in self.siblings(event)
            if not self.is_before(delete, sibling)
        )

    def is_earlier_receive(self, event: HistoryEvent, other: HistoryEvent) -> bool:
        """Return whether one receive of an instance certainly came before another, which waited for the hold to end."""
        if None not in (event.receive_count, other.receive_count):
            return (event.receive_count or 0) < (other.receive_count or 0)
        return self.is_before(event, other)

    def may_be_dead_lettered(self, event: HistoryEvent) -> bool:
        """Return whether, for all that is known, the next receive may have moved the message to its DLQ instead."""
        queue = event.queue or ""
        most = self.expectation.max_receive_count.get(queue)
        if queue not in self.expectation.dead_letter_queues:
            return False
        lost = self.expectation.lost_receives.get(queue, 0)
        return most is None or event.receive_count is None or event.receive_count + lost >= most

    def may_be_dead_lettered_unseen(self, queue: str) -> bool:
        """Return whether receives without an answer may have moved a message to the DLQ."""
        most = self.expectation.max_receive_count.get(queue, 1)
        return queue in self.expectation.dead_letter_queues and self.expectation.lost_receives.get(queue, 0) >= most

    def is_before(self, first: HistoryEvent, second: HistoryEvent) -> bool:
        """Return whether `first` was answered before `second` was made, whatever their clocks show."""
        return responded_us(first) + self.bound_us(first, second) < invoked_us(second)

    def is_surely_before(self, first: HistoryEvent, second: HistoryEvent) -> bool:
        """Return `is_before` by the bounds of unsuspicious clocks.

        Used to excuse a violation, so it must never overestimate.
        """
        return responded_us(first) + self.clocks.bound_us(first, second) < invoked_us(second)

    def is_after(self, event: HistoryEvent, instant_us: int, *, by: HistoryEvent | None = None) -> bool:
        """Return whether the call was made after a time that is by the clock of `by`, or by an unknown clock."""
        bound_us = self.around_bound_us if by is None else self.bound_us(by, event)
        return invoked_us(event) > instant_us + bound_us

    def bound_us(self, first: HistoryEvent, second: HistoryEvent) -> int:
        """Return the most by which the clock of the second event may be ahead of that of the first."""
        return self.clocks.bound_us(first, second, is_least=self._is_suspicious)

    def violation(
        self,
        anomaly: str,
        queue: str | None,
        idxs: Iterable[int | None],
        sentence: str,
        witness: Iterable[HistoryEvent],
    ) -> Violation:
        """Return a violation in this group; an idx of None is left out.

        If the violation is about a hold, the visibility change that prolonged the hold is added to the witness behind
        the receive.
        """
        shown = list(witness)
        if anomaly in _OF_HOLDS:
            shown = [event for receive in shown for event in (receive, *self._put_off(receive, shown))]
        return Violation(
            anomaly=anomaly,
            message_group_id=self.id,
            queue=queue,
            idxs=tuple(idx for idx in idxs if idx is not None),
            sentence=sentence,
            witness=tuple(map(self.clocks.restore, shown)),
        )

    def _put_off(self, receive: HistoryEvent, witness: Sequence[HistoryEvent]) -> list[HistoryEvent]:
        """Return the visibility change that prolonged a hold, in a list.

        Empty if the hold was long enough without a change.

        If there are several, it is the last one that was answered ok before the event that the hold contradicts; the
        history has the others.
        """
        if receive.kind != Kind.RECEIVED or not self._is_timed(receive):
            return []
        deletes = [event for event in witness if event.kind == Kind.DELETED]
        until_us = max(responded_us(event) for event in deletes or witness)
        own_us = self._expiry_us(receive)
        changes = [
            attempt
            for attempt in self._tries_with(receive, receive.receipt_handle_hash)
            if attempt.kind == Kind.VISIBILITY_CHANGED
            and attempt.outcome == CallOutcome.OK
            and responded_us(attempt) <= until_us
            and responded_us(attempt) + self._held_us(attempt) > own_us
        ]
        return changes[-1:] if own_us < until_us else []


def _first_by_idx(events: Iterable[HistoryEvent]) -> dict[int, HistoryEvent]:
    first: dict[int, HistoryEvent] = {}
    for event in events:
        if event.idx is not None:
            first.setdefault(event.idx, event)
    return first
