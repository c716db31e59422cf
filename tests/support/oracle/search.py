"""Is there any run of the queues that produces this history? All orders of all calls are tried.

Each call has its effect at one instant between its call and its answer; a call without an answer at any instant after
it was made, or never. Times have only lower bounds in this model but for a call's answer, so the earliest instant that
an order allows is as good as any other, and a depth-first search over the orders decides.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

from sluice.history.events import CallOutcome, HistoryEvent, Kind
from sluice.judge.checker import Expectation, QueueContext
from tests.support.oracle.queues import NEVER_US, AnsweredMessage, Copy, GroupCopies


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call, with its answer's rows in their order."""

    kind: str
    events: tuple[HistoryEvent, ...]
    from_us: int
    until_us: int
    is_answered: bool


@dataclass(frozen=True, slots=True)
class First:
    """The publish that opened a deduplication window."""

    instance: int
    from_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class SystemState:
    """Topic and queues at one instant.

    Args:
        numbers: of every instance, in the order they were taken, the topic or queue that took it, and the number that
            it gave; None while no answer showed it.
        first: topic or queue, and deduplication id there, to the publish that opened its window last.
        queues: by name, DLQs too.
        lost: queue to how many receives without an answer may still come.
    """

    numbers: tuple[tuple[str, str | None], ...] = ()
    first: Mapping[tuple[str, str], First] = field(default_factory=dict)
    queues: Mapping[str, GroupCopies] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)

    def key(self) -> tuple[object, ...]:
        """Return what makes two worlds the same."""
        parts = (self.first, self.queues, self.lost)
        return (self.numbers, *(tuple(sorted(part.items(), key=itemgetter(0))) for part in parts))


def possible_offsets(events: Sequence[HistoryEvent], expectation: Expectation) -> tuple[int, int]:
    """Return at how many offsets between two clocks the events are possible, and how many were tried.

    Tried are, within the bound, all at which a time of the one clock passes a time of the other, or one that is a
    timeout away from it: nothing else can change what is possible. Left out is what no clocks can show: a message
    received before its publish, a handle used before it was received.
    """
    clocks = sorted({event.clock_id or "" for event in events})
    if len(clocks) <= 1:
        return int(is_possible(events, expectation)), 1
    first, other = ([event for event in events if (event.clock_id or "") == clock] for clock in clocks)
    bound_us = expectation.clock_bound_us
    spans = {0, *(us for span in _spans_us(events, expectation) for us in (span, -span))}
    meets = {later - sooner + span for later in _times(other) for sooner in _times(first) for span in spans}
    offsets = {0, -bound_us, bound_us} | {
        us for meet in meets for us in (meet - 1, meet, meet + 1) if -bound_us <= us <= bound_us
    }
    timed = [[*first, *(later(event, -us) for event in other)] for us in offsets]
    causal = [events for events in timed if is_causal(events)]
    return sum(is_possible(events, replace(expectation, clock_bound_us=0)) for events in causal), len(causal)


def is_causal(events: Sequence[HistoryEvent]) -> bool:
    """Return whether no copy was received before there was a publish for it, and no handle used before its answer."""
    received = [event for event in events if event.kind == Kind.RECEIVED]
    given: dict[str | None, int] = {}
    for event in received:
        answered_us = event.responded_at_us or 0
        given[event.receipt_handle_hash] = min(answered_us, given.get(event.receipt_handle_hash, answered_us))
    is_late = any(
        (event.invoked_at_us or 0) < given.get(event.receipt_handle_hash, 0)
        for event in events
        if event.kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED)
    )
    return not is_late and all(
        invoked_us <= seen_us
        for idx in {event.idx for event in received}
        for queue in {event.queue for event in received}
        for invoked_us, seen_us in zip(_published_us(events, idx), _seen_us(received, queue, idx), strict=False)
    )


def _published_us(events: Sequence[HistoryEvent], idx: int | None) -> list[int]:
    """Return when each message may have been published first; without an answer each publish may be one of its own."""
    first: dict[object, int] = {}
    for position, event in enumerate(events):
        if (event.kind, event.idx) == (Kind.PUBLISHED, idx) and event.outcome != CallOutcome.FAIL:
            number, invoked_us = event.sns_sequence_number or position, event.invoked_at_us or 0
            first[number] = min(invoked_us, first.get(number, invoked_us))
    return sorted(first.values())


def _seen_us(received: Sequence[HistoryEvent], queue: str | None, idx: int | None) -> list[int]:
    """Return when each copy of a message was seen first."""
    first: dict[str | None, int] = {}
    for event in sorted(received, key=lambda event: event.responded_at_us or 0):
        if (event.queue, event.idx) == (queue, idx):
            first.setdefault(event.sqs_message_id, event.responded_at_us or 0)
    return sorted(first.values())


def _times(events: Sequence[HistoryEvent]) -> set[int]:
    return {us for event in events for us in (event.invoked_at_us, event.responded_at_us) if us is not None}


def _spans_us(events: Sequence[HistoryEvent], expectation: Expectation) -> set[int]:
    seconds = {event.visibility_timeout_seconds or 0 for event in events}
    window = expectation.deduplication_window_seconds
    spans = {*seconds, *expectation.visibility_timeout_seconds.values(), window}
    return {span * 1_000_000 for span in spans} | {window * 1_000_000 + _TOLERANCE_US, _UNANSWERED_WITHIN_US}


def later(event: HistoryEvent, by_us: int, *, clock_id: str | None = "d") -> HistoryEvent:
    """Return the event as another clock timed it, or at another time of the same."""
    answered_us = None if event.responded_at_us is None else event.responded_at_us + by_us
    return replace(
        event, clock_id=clock_id, invoked_at_us=(event.invoked_at_us or 0) + by_us, responded_at_us=answered_us
    )


_NOWHERE = QueueContext()
_STATES_MAX = 2**62


class LargeSearchError(Exception):
    """There are more states than the search was to look at."""


def is_possible(
    events: Iterable[HistoryEvent],
    expectation: Expectation,
    around: QueueContext = _NOWHERE,
    subscribed: Mapping[str, Sequence[str]] | None = None,
    *,
    states_max: int = _STATES_MAX,
) -> bool:
    """Return whether the events of one group, settled, may come from queues that keep all of AWS's promises.

    Judged are publishes to topics and queues, receives, deletes, visibility changes, move tasks and purges, all of one
    clock, and that a DLQ was empty, and its queue of what was brought back; without effects. `subscribed` are the
    queues that each topic reaches; None where it reaches all.

    Raises:
        LargeSearchError: there are more than `states_max` states, and none so far explained all.
    """
    calls = (*_calls(events), *_probes(around))
    queues = {
        name: GroupCopies(
            receives_max=expectation.max_receive_count.get(name) if name in expectation.dead_letter_queues else None,
            may_die_early=name in expectation.dead_letter_queues and name not in expectation.max_receive_count,
        )
        for name in expectation.queues
    } | {name: GroupCopies(is_dead_letter_queue=True) for name in expectation.dead_letter_queues.values()}
    queues = {
        name: replace(
            state,
            purges=tuple((p.began_at_us, p.ended_at_us) for p in around.purges if p.queue == name and p.is_certain),
        )
        for name, state in queues.items()
    }
    return _Search(expectation, around, subscribed, states_max).reach(
        calls, SystemState(queues=queues, lost=dict(expectation.lost_receives)), 0
    )


def _probes(around: QueueContext) -> Iterator[Call]:
    for queue, since_us in around.empty_since_us.items():
        yield Call(Kind.PROBE, (HistoryEvent(queue=queue),), since_us, since_us, is_answered=True)


def _calls(events: Iterable[HistoryEvent]) -> tuple[Call, ...]:
    rows: dict[tuple[str, str | None, int | None], list[HistoryEvent]] = defaultdict(list)
    for event in events:
        entry = None if event.kind == Kind.RECEIVED else event.batch_position
        if event.outcome != CallOutcome.FAIL and event.kind in _EFFECTS:
            rows[event.kind, event.call_id, entry].append(event)
    return tuple(
        Call(
            kind=kind,
            events=tuple(sorted(found, key=lambda event: event.batch_position or 0)),
            from_us=found[0].invoked_at_us or 0,
            until_us=NEVER_US if found[0].outcome == CallOutcome.INFO else (found[0].responded_at_us or NEVER_US),
            is_answered=found[0].outcome == CallOutcome.OK,
        )
        for (kind, *_), found in rows.items()
    )


_OF_QUEUE = 1_000
_UNANSWERED_WITHIN_US = 60_000_000  # no service works on a call any longer
_TOLERANCE_US = 30_000_000  # the window is documented as a minimum
_ENQUEUED_WITHIN_US = 1_000_000
_EFFECTS = (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED, Kind.VISIBILITY_CHANGED)


class _Search:
    def __init__(
        self,
        expectation: Expectation,
        around: QueueContext,
        subscribed: Mapping[str, Sequence[str]] | None,
        states_max: int,
    ) -> None:
        self._states_max = states_max
        self._expectation, self._moves, self._purges = expectation, around.moves, around.purges
        self._shared_ids, self._subscribed = around.shared_ids, subscribed
        self._seen: set[object] = set()

    def reach(self, calls: tuple[Call, ...], world: SystemState, now_us: int) -> bool:
        """Return whether all answered calls can still happen, from this world on."""
        latest_us = min((call.until_us for call in calls if call.is_answered), default=None)
        if latest_us is None:
            return True
        here = (calls, world.key(), now_us)
        if here in self._seen:
            return False
        if len(self._seen) >= self._states_max:
            raise LargeSearchError
        self._seen.add(here)
        for position, call in enumerate(calls):
            rest = calls[:position] + calls[position + 1 :]
            for at_us in _instants(world, call, max(now_us, call.from_us), latest_us):
                for after, after_us in self._effects(call, _bound_world(world, call), at_us):
                    if after_us <= latest_us and self.reach(rest, after, after_us):
                        return True
        unrecorded = (
            *self._lost_receives(world, now_us, latest_us),
            *self._after_moves(world, now_us, latest_us),
            *self._after_purges(world, now_us, latest_us),
        )
        return any(self.reach(calls, after, at_us) for after, at_us in unrecorded)

    def _effects(self, call: Call, world: SystemState, at_us: int) -> Iterator[tuple[SystemState, int]]:
        if call.kind == Kind.PUBLISHED:
            yield from ((after, at_us) for after in self._after_publish(call, world, at_us))
        elif call.kind == Kind.RECEIVED:
            yield from ((after, at_us) for after in self._after_receive(call, world, at_us))
        elif call.kind == Kind.PROBE:
            yield from ((after, at_us) for after in self._after_empty_answer(call.events[0].queue or "", world, at_us))
        else:
            (event,) = call.events
            queue = world.queues.get(event.queue or "")
            if queue is None:
                return
            seconds = None if call.kind == Kind.DELETED else event.visibility_timeout_seconds or 0
            changed = queue.settling(
                event.receipt_handle_hash or "", seconds, at_us, call.until_us if call.is_answered else None
            )
            for state, then_us in changed:
                yield replace(world, queues={**world.queues, event.queue or "": state}), then_us

    def _after_publish(self, call: Call, world: SystemState, at_us: int) -> Iterator[SystemState]:
        (event,) = call.events
        place, key = event.queue or "", event.deduplication_id or event.body_hash or ""
        first = world.first.get((place, key))
        by_us = min(call.until_us, call.from_us + _UNANSWERED_WITHIN_US)
        if first is not None and self._may_be_repeat(first, at_us):
            yield from self._after_repeat(event, world, first)
        if (event.message_group_id or "", event.idx or 0) in self._shared_ids:
            yield world  # which of several messages of one id came, the oracle leaves open
        if self._may_be_new(first, place, by_us):
            numbers = [*world.numbers, (place, event.sns_sequence_number)]
            if _ascend(numbers) and event.idx is not None:
                opened = First(len(world.numbers), at_us, by_us)
                taken = replace(world, numbers=tuple(numbers), first={**world.first, (place, key): opened})
                yield from self._after_send(event, taken, opened, at_us)

    def _after_repeat(self, event: HistoryEvent, world: SystemState, first: First) -> Iterator[SystemState]:
        """Yield the world in which a publish was answered as the one whose window it fell into."""
        place, number = event.queue or "", event.sns_sequence_number
        if place in self._expectation.queues:
            queue = world.queues[place].answering(first.instance, event.sqs_message_id, event.sqs_sequence_number)
            if queue is not None:
                yield replace(world, queues={**world.queues, place: queue})
            return
        numbers = list(world.numbers)
        if number is None or numbers[first.instance][1] in (None, number):
            numbers[first.instance] = (place, numbers[first.instance][1] or number)
            if _ascend(numbers):
                yield replace(world, numbers=tuple(numbers))

    def _after_send(self, event: HistoryEvent, world: SystemState, opened: First, at_us: int) -> Iterator[SystemState]:
        """Yield the worlds in which what a topic or queue took is in its queues, or was dropped there as a repeat.

        A queue that is sent to from several places has the deduplication ids of all.
        """
        key, worlds = event.deduplication_id or event.body_hash or "", [world]
        for name in self._reachable_worlds(event.queue or ""):
            found = []
            for before in worlds:
                first = before.first.get((name, key)) if name != event.queue else None
                if first is not None and self._may_be_repeat(first, at_us):
                    found.append(before)
                if self._may_be_new(first, name, opened.until_us):
                    queue = before.queues[name].with_copy(Copy(event.idx or 0, opened.instance))
                    if name == event.queue:
                        answered = queue.answering(opened.instance, event.sqs_message_id, event.sqs_sequence_number)
                        if answered is None:
                            continue
                        queue = answered
                    queues, first_of = {**before.queues, name: queue}, {**before.first, (name, key): opened}
                    found.append(replace(before, queues=queues, first=first_of))
            worlds = found
        yield from worlds

    def _reachable_worlds(self, place: str) -> Sequence[str]:
        if place in self._expectation.queues:
            return [place]
        return self._expectation.queues if self._subscribed is None else self._subscribed.get(place, ())

    def _may_be_repeat(self, first: First, at_us: int) -> bool:
        """Return whether a publish at an instant may be within the window that another opened."""
        return at_us - first.until_us < self._expectation.deduplication_window_seconds * 1_000_000 + _TOLERANCE_US

    def _may_be_new(self, first: First | None, place: str, by_us: int) -> bool:
        """Return whether a publish by an instant may be a message of its own; a purge forgets the ids (DED-14)."""
        window_us = self._expectation.deduplication_window_seconds * 1_000_000
        return (
            first is None
            or by_us - first.from_us >= window_us
            or any(purge.queue == place and first.from_us <= purge.ended_at_us for purge in self._purges)
        )

    def _after_receive(self, call: Call, world: SystemState, at_us: int) -> Iterator[SystemState]:
        name = call.events[0].queue or ""
        is_dlq = name in self._expectation.dead_letter_queues.values()
        answer = [self._entry(event, is_dlq=is_dlq) for event in call.events]
        attempt_id, queue = call.events[0].receive_request_attempt_id, world.queues.get(name)
        if attempt_id is not None and queue is not None:
            for state in queue.repeating(attempt_id, answer, at_us):
                yield replace(world, queues={**world.queues, name: state})
            if not queue.may_be_new(attempt_id, at_us, min(call.until_us, call.from_us + _UNANSWERED_WITHIN_US)):
                return
        for before in self._after_burials(world, name, at_us):
            for after in self._after_taking(before, name, answer, at_us):
                if attempt_id is not None:
                    state = after.queues[name].remembering(attempt_id, before.queues[name], from_us=call.from_us)
                    yield replace(after, queues={**after.queues, name: state})
                else:
                    yield after

    def _after_burials(self, world: SystemState, dead_letter_queue: str, at_us: int) -> Sequence[SystemState]:
        """Return the worlds there may be when a DLQ is looked at.

        A receive that brought nothing, or another group, moves dead letters too.
        """
        worlds = [world]
        for source, dlq in self._expectation.dead_letter_queues.items():
            if dlq == dead_letter_queue:
                worlds = [after for before in worlds for after in self._after_taking(before, source, [], at_us)]
        return worlds

    def _after_empty_answer(self, name: str, world: SystemState, at_us: int) -> Iterator[SystemState]:
        """Yield the worlds in which a queue holds nothing more: of a DLQ at all, else of what a move task brought."""
        is_dlq = name in self._expectation.dead_letter_queues.values()
        for after in [world] if is_dlq else self._after_taking(world, name, [], at_us):
            if not any(
                copy.place in ("waiting", "held") and (is_dlq or copy.is_moved) for copy in after.queues[name].copies
            ):
                yield after

    def _after_moves(self, world: SystemState, from_us: int, until_us: int) -> Iterator[tuple[SystemState, int]]:
        """Yield what every next step of a move task may leave, and when."""
        for number, move in enumerate(self._moves):
            latest_us = min(until_us, move.ended_at_us) if move.is_finished else until_us
            for at_us in _instants(world, None, max(from_us, move.began_at_us), latest_us):
                for before in self._after_burials(world, move.source, at_us):
                    taken = before.queues[move.source].moving(number, at_us)
                    if taken is not None:
                        state, copy = taken
                        queues = {**before.queues, move.source: state}
                        queues[move.destination] = queues[move.destination].with_moved(copy)
                        yield replace(before, queues=queues), at_us

    def _after_purges(self, world: SystemState, from_us: int, until_us: int) -> Iterator[tuple[SystemState, int]]:
        """Yield what every next step of a purge may leave, and when: it removes one message after the other."""
        for purge in self._purges:
            at_us = max(from_us, purge.began_at_us)
            state = world.queues.get(purge.queue)
            for position, copy in enumerate(
                state.copies if state and at_us <= min(until_us, purge.ended_at_us) else ()
            ):
                assert state is not None
                if copy.place in ("waiting", "held"):
                    yield replace(world, queues={**world.queues, purge.queue: state.removing(position)}), at_us

    def _after_taking(
        self, world: SystemState, name: str, answer: list[AnsweredMessage], at_us: int
    ) -> Iterator[SystemState]:
        queue = world.queues.get(name)
        if queue is not None:
            for state, dead in queue.receiving(answer, at_us):
                yield self._with_dead(replace(world, queues={**world.queues, name: state}), name, dead)

    def _with_dead(self, world: SystemState, name: str, dead: tuple[Copy, ...]) -> SystemState:
        dlq = self._expectation.dead_letter_queues.get(name)
        if dlq is None or not dead:
            return world
        state = world.queues[dlq]
        apart = _OF_QUEUE * [*self._expectation.dead_letter_queues].index(name)  # one DLQ may be that of several queues
        for copy in dead:
            buried = Copy(copy.idx, apart + copy.instance, copy.sqs_message_id, moved_by=copy.moved_by)
            state = state.with_copy(buried)
        return replace(world, queues={**world.queues, dlq: state})

    def _lost_receives(self, world: SystemState, from_us: int, until_us: int) -> Iterator[tuple[SystemState, int]]:
        """Yield what every receive whose answer was lost may leave, and when."""
        for name, count in world.lost.items():
            queue = world.queues.get(name)
            for at_us in _instants(world, None, from_us, until_us) if queue is not None and count else ():
                assert queue is not None
                for state, dead in queue.receiving_unseen(at_us):
                    after = replace(world, queues={**world.queues, name: state}, lost={**world.lost, name: count - 1})
                    yield self._with_dead(after, name, dead), at_us

    def _entry(self, event: HistoryEvent, *, is_dlq: bool) -> AnsweredMessage:
        seconds = event.visibility_timeout_seconds
        if seconds is None:
            seconds = self._expectation.visibility_timeout_seconds.get(event.queue or "", 0)
        return AnsweredMessage(
            idx=event.idx if event.idx is not None else 0,
            sqs_message_id=event.sqs_message_id,
            sqs_sequence_number=None if is_dlq else event.sqs_sequence_number,
            handle=event.receipt_handle_hash or "",
            receive_count=event.receive_count,
            visibility_us=seconds * 1_000_000,
            is_given_back=seconds == 0 and not (is_dlq and event.visibility_timeout_seconds is None),
            in_queue_us=min(event.responded_at_us or NEVER_US, NEVER_US if is_dlq else _latest_send_us(event)),
        )


def _latest_send_us(event: HistoryEvent) -> int:
    return NEVER_US if event.sent_at_us is None else event.sent_at_us + _ENQUEUED_WITHIN_US


def _ascend(numbers: Sequence[tuple[str, str | None]]) -> bool:
    """Return whether each place gave higher numbers to what it took later."""
    of_place: dict[str, list[str]] = defaultdict(list)
    for place, number in numbers:
        if number is not None:
            of_place[place].append(number)
    return all(earlier < later for of in of_place.values() for earlier, later in pairwise(of))


def _instants(world: SystemState, call: Call | None, from_us: int, until_us: int) -> list[int]:
    """Return the instants that matter: the earliest, and for a receive also when a message is free again."""
    instants = {from_us}
    if call is None or call.kind == Kind.RECEIVED:
        instants |= {copy.free_at_us for queue in world.queues.values() for copy in queue.copies}
    return sorted(instant for instant in instants if from_us <= instant <= until_us)


def _bound_world(world: SystemState, call: Call) -> SystemState:
    """Return the world, in which everything so far happened before this call was answered."""
    first = {key: replace(opened, until_us=min(opened.until_us, call.until_us)) for key, opened in world.first.items()}
    queues = {name: queue.settle_attempts(call.until_us) for name, queue in world.queues.items()}
    return replace(world, first=first, queues=queues)
