"""Tiny histories: what the simulator's model does under random calls, as a recorder with luck and without writes it.

A history has one message group, one or two queues behind a topic, and two workers. Calls take time, overlap, lose their
answers; timeouts pass. A full one has receives with attempt ids too, repeated ones, and move tasks. Then, perhaps, one
thing in it is changed.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sluice.history.events import CallOutcome, HistoryEvent, Kind, pad_sequence_number
from sluice.judge.checker import Expectation, Loss, Move, QueueContext
from sluice.limits import PURGE_SECONDS_MAX
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.refusal import AwsRefusal
from tests.support.oracle.search import later

RUN = "r"
VISIBILITY_SECONDS = 30
_PAUSES_SECONDS = (0.001, 0.001, 0.02, 0.02, 1.0, 10.0, 31.0)
_CALL_SECONDS = (0.0, 0.004, 0.004, 0.5)


@dataclass(kw_only=True)
class _Life:
    """A life so far: its events, and the queues where they happened.

    Args:
        is_full: whether there are attempt ids, move tasks, and deletes from DLQs.
        attempts: what may be repeated: queue, attempt id, messages asked for, visibility timeout of the call.
        moved_count: how many messages were moved.
        purges: what was purged, and by when that is over.
    """

    rng: random.Random
    queues: dict[str, FifoQueue]
    dead: dict[str, FifoQueue]
    has_numbers: bool
    is_full: bool = False
    now: float = 1_000.0
    call_count: int = 0
    events: list[HistoryEvent] = field(default_factory=list)
    lost_receives: dict[str, int] = field(default_factory=dict)
    publishes: dict[int, float] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    handles: list[tuple[HistoryEvent, FifoQueue, str]] = field(default_factory=list)
    attempts: list[tuple[FifoQueue, str, int, int | None]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    moved_count: int = 0
    purges: list[Loss] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TinyHistory:
    """A history, and what its run was set up to be."""

    events: tuple[HistoryEvent, ...]
    expectation: Expectation
    around: QueueContext = field(default_factory=QueueContext)


def make_lawful_history(seed: int, *, is_full: bool = False, is_purged: bool = False) -> TinyHistory:
    """Return a random history of the simulator's model, which breaks no rule; the checker must call it valid.

    Args:
        seed: the same seed gives the same history.
        is_full: whether there are receives with attempt ids, move tasks, and deletes from DLQs.
        is_purged: whether there are purges, and one DLQ for all queues.
    """
    rng = random.Random(seed)  # noqa: S311 (a seed, no secret)
    receives_max = rng.choice((None, 1, 1, 2) if is_full else (None, None, 1, 2))
    names = rng.choice((("billing",), ("billing",), ("billing", "shipping")))
    life = _Life(
        rng=rng,
        has_numbers=rng.random() < 0.5,
        is_full=is_full,
        queues={name: _queue(name, receives_max) for name in names},
        dead={} if receives_max is None else {name: _queue(f"{name}-dlq", None) for name in names},
    )
    calls_max = 8 if is_full else 7
    steps: Sequence[Callable[[_Life], None]] = _FULL_STEPS if is_full else _STEPS
    if is_purged:
        life.dead = dict.fromkeys(life.dead, _queue("dlq", None))
        steps = (*_STEPS, *_STEPS, _exhaust, _exhaust, _purge, _purge, _purge)
    for step in (_publish, *(rng.choice(steps) for _ in range(rng.randint(2, calls_max)))):
        life.now += rng.choice(_PAUSES_SECONDS)
        step(life)
    if rng.random() < 0.2:
        life.now += rng.choice((290.0, 311.0))
        _publish_again(life)
        _receive(life)
    return TinyHistory(
        events=tuple(life.events),
        expectation=Expectation(
            run=RUN,
            queues=names,
            visibility_timeout_seconds=dict.fromkeys(names, VISIBILITY_SECONDS),
            dead_letter_queues={name: queue.name for name, queue in life.dead.items()},
            max_receive_count={} if receives_max is None else dict.fromkeys(names, receives_max),
            lost_receives=life.lost_receives,
        ),
        around=QueueContext(moves=tuple(life.moves), purges=tuple(life.purges), empty_since_us=_empty_since_us(life)),
    )


def _empty_since_us(life: _Life) -> dict[str, int]:
    """Return each queue and DLQ that is empty ten minutes after the last step, with that instant, as probes would.

    A life without move tasks is not probed.
    """
    life.now += 600.0
    queues = [*life.queues.values(), *life.dead.values()] if life.moves else []
    return {queue.name: round(life.now * 1e6) for queue in queues if not queue.messages}


def _queue(name: str, receives_max: int | None) -> FifoQueue:
    attributes = {
        "DeduplicationScope": "messageGroup",
        "VisibilityTimeout": str(VISIBILITY_SECONDS),
        "DelaySeconds": "0",
        "MessageRetentionPeriod": "345600",
    }
    if receives_max is not None:
        attributes["RedrivePolicy"] = f'{{"maxReceiveCount": {receives_max}, "deadLetterTargetArn": "x"}}'
    return FifoQueue(name, arn=name, url=name, attributes=attributes, created_at=0.0)


def _publish(life: _Life) -> None:
    _send(life, len(life.publishes))


def _publish_again(life: _Life) -> None:
    _send(life, life.rng.choice(list(life.publishes)))


def _send(life: _Life, idx: int) -> None:
    outcome = life.rng.choices((CallOutcome.OK, CallOutcome.INFO, CallOutcome.FAIL), (8, 1, 1))[0]
    has_effect = outcome == CallOutcome.OK or (outcome == CallOutcome.INFO and life.rng.random() < 0.5)
    life.publishes.setdefault(idx, -1e9)
    if has_effect and life.now - life.publishes[idx] >= 300:
        life.publishes[idx] = life.now
        life.numbers[idx] = max(life.numbers.values(), default=0) + 1
        for queue in life.queues.values():
            queue.send(_message(f"{queue.name}-{idx}.{life.numbers[idx]}", idx), life.now)
    _record(
        life,
        outcome,
        kind=Kind.PUBLISHED,
        worker="publish",
        queue="events",
        idx=idx,
        deduplication_id=f"r.{idx}",
        sns_sequence_number=pad_sequence_number(str(life.numbers[idx])) if outcome == CallOutcome.OK else None,
    )


def _message(id_: str, idx: int) -> QueuedMessage:
    return QueuedMessage(
        id=id_,
        body=str(idx),
        number=0,
        sent_at=0,
        retained_from=0,
        visible_at=0,
        group="g",
        deduplication_id=f"send-{id_}",
    )


def _receive(life: _Life) -> None:
    name = life.rng.choice(list(life.queues))
    if life.dead and life.rng.random() < 0.25:
        _take(life, life.dead[name], None)
    else:
        _take(life, life.queues[name], life.dead.get(name))


def _take(life: _Life, queue: FifoQueue, dead: FifoQueue | None) -> None:
    attempt_id = f"attempt-{life.call_count}" if life.is_full and dead is not None and life.rng.random() < 0.5 else None
    most, seconds = life.rng.choice((1, 1, 2, 10)), life.rng.choice((None, None, None, 0, 5))
    if attempt_id is not None:
        life.attempts.append((queue, attempt_id, most, seconds))
    _ask(life, queue, dead, attempt_id, most=most, seconds=seconds)
    if attempt_id is not None and life.rng.random() < 0.5:
        life.now += life.rng.choice((0.001, 0.02, 1.0))
        _repeat(life)


def _exhaust(life: _Life) -> None:
    """Receive and hold nothing, until something is dead-lettered."""
    name = life.rng.choice(list(life.queues))
    for _ in range(life.rng.choice((2, 2, 3))):
        _ask(life, life.queues[name], life.dead.get(name), None, most=life.rng.choice((1, 2)), seconds=0)
        life.now += life.rng.choice(_PAUSES_SECONDS)


def _repeat(life: _Life) -> None:
    """Repeat a receive with its attempt id, seldom with another timeout."""
    if life.attempts:
        queue, attempt_id, most, seconds = life.rng.choice(life.attempts[-2:])
        seconds = life.rng.choice((seconds, seconds, seconds, 0, 5, 60))
        life.now += life.rng.choice((0.0, 0.0, 0.0, 0.0, 305.0))
        _ask(life, queue, life.dead.get(queue.name), attempt_id, most=most, seconds=seconds)


def _ask(
    life: _Life, queue: FifoQueue, dead: FifoQueue | None, attempt_id: str | None, *, most: int, seconds: int | None
) -> None:
    def move_to_dlq(message: QueuedMessage) -> bool:
        if dead is not None:
            dead.take_dead_letter(message, life.now, source_arn=queue.name)
        return dead is not None

    queue.settle(life.now)
    visibility_seconds = VISIBILITY_SECONDS if seconds is None else seconds
    try:
        again = queue.retry(attempt_id or "", life.now, visibility_seconds=visibility_seconds)
    except AwsRefusal:
        return
    received = again or queue.receive(
        most, visibility_seconds=visibility_seconds, now=life.now, move_to_dlq=move_to_dlq
    )
    if attempt_id is not None and again is None:
        queue.remember_attempt(attempt_id, received, life.now)
    if received and seconds is None and queue.name in life.queues and life.rng.random() < 0.1:  # its answer was lost
        life.lost_receives[queue.name] = life.lost_receives.get(queue.name, 0) + 1
        return
    worker = life.rng.choice(("consume-1", "consume-2"))
    rows = [
        _row(
            life,
            kind=Kind.RECEIVED,
            worker=worker,
            queue=queue.name,
            idx=int(message.body),
            sqs_message_id=message.id,
            sqs_sequence_number=pad_sequence_number(message.sequence_number) if life.has_numbers else None,
            receive_count=message.receives,
            receipt_handle_hash=message.handle,
            visibility_timeout_seconds=seconds,
            receive_request_attempt_id=attempt_id,
            batch_position=position,
        )
        for position, message in enumerate(received)
    ]
    answered = _at_one_time(life, rows, CallOutcome.OK)
    if queue.name in life.queues or life.is_full:
        life.handles += [(row, queue, row.receipt_handle_hash or "") for row in answered]


def _bring_back(life: _Life) -> None:
    """Move dead letters, nearly always to where they are from; a task that fails may have moved some."""
    if not life.dead:
        return
    name = life.rng.choice(list(life.dead))
    destination = life.rng.choice((name, name, name, name, *life.queues))
    source, is_finished = life.dead[name], life.rng.random() < 0.8
    source.settle(life.now)
    waiting = source.receivable(life.now)
    for message in waiting if is_finished else waiting[: life.rng.randint(0, len(waiting))]:
        life.moved_count += 1
        del source.messages[message.id]
        life.queues[destination].settle(life.now)
        id_ = f"{destination}-{message.body}.moved{life.moved_count}"
        life.queues[destination].take_redriven(message, life.now, id_=id_)
    before, after = life.rng.choice((*_CALL_SECONDS, 20.0)), life.rng.choice((*_CALL_SECONDS, 20.0))
    life.moves.append(
        Move(
            source=source.name,
            destination=destination,
            began_at_us=round((life.now - before) * 1e6),
            ended_at_us=round((life.now + after) * 1e6),
            is_finished=is_finished,
        )
    )
    if life.rng.random() < 0.7:
        life.now += life.rng.choice(_PAUSES_SECONDS)
        _take(life, life.queues[destination], life.dead[destination])


def _purge(life: _Life) -> None:
    queue = life.rng.choice([*life.queues.values(), *life.dead.values()])
    queue.settle(life.now)
    try:
        queue.purge(life.now)
    except AwsRefusal:  # once a minute
        return
    before, after = life.rng.choice(_CALL_SECONDS), life.rng.choice(_CALL_SECONDS)
    life.purges.append(
        Loss(
            queue=queue.name,
            began_at_us=round((life.now - before) * 1e6),
            ended_at_us=round((life.now + after + PURGE_SECONDS_MAX) * 1e6),
            is_certain=True,
        )
    )
    life.now += life.rng.choice((0.001, 0.02, 1.0, 70.0))


def _delete(life: _Life) -> None:
    _settle(life, Kind.DELETED, lambda queue, handle: queue.delete(handle, life.now), None)


def _hide(life: _Life) -> None:
    seconds = life.rng.choice((0, 5, 60))
    _settle(
        life,
        Kind.VISIBILITY_CHANGED,
        lambda queue, handle: queue.change_visibility(handle, seconds, life.now),
        seconds,
    )


def _settle(life: _Life, kind: Kind, effect: Callable[[FifoQueue, str], None], seconds: int | None) -> None:
    if not life.handles:
        return
    row, queue, handle = life.rng.choice(life.handles[-2:])
    life.now = max(life.now, (row.responded_at_us or 0) / 1e6 + 0.001)
    outcome = life.rng.choices((CallOutcome.OK, CallOutcome.INFO), (8, 2))[0]
    if outcome == CallOutcome.OK or life.rng.random() < 0.5:
        queue.settle(life.now)
        try:
            effect(queue, handle)
        except AwsRefusal:
            outcome = CallOutcome.FAIL if outcome == CallOutcome.OK else outcome
    _record(
        life,
        outcome,
        kind=kind,
        worker=row.worker,
        queue=row.queue,
        idx=row.idx,
        sqs_message_id=row.sqs_message_id,
        receipt_handle_hash=handle,
        visibility_timeout_seconds=seconds,
        batch_position=0,
    )


def _record(life: _Life, outcome: CallOutcome, **fields: object) -> None:
    _at_one_time(life, [_row(life, **fields)], outcome)


def _row(life: _Life, **fields: object) -> HistoryEvent:
    return HistoryEvent(run=RUN, clock_id="c", message_group_id="g", message_run=RUN, **fields)  # type: ignore[arg-type]


def _at_one_time(life: _Life, rows: list[HistoryEvent], outcome: CallOutcome) -> list[HistoryEvent]:
    life.call_count += 1
    before, after = life.rng.choice(_CALL_SECONDS), life.rng.choice(_CALL_SECONDS)
    if rows and rows[0].kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED):  # whoever has a handle had the answer
        before = 0.0
    answered_at = round((life.now + after) * 1e6)
    recorded = [
        replace(
            row,
            call_id=f"call-{life.call_count}",
            outcome=outcome.value,
            invoked_at_us=round((life.now - before) * 1e6),
            responded_at_us=None if outcome == CallOutcome.INFO else answered_at,
        )
        for row in rows
    ]
    life.events += recorded
    return recorded


_STEPS = (_publish, _publish, _publish_again, _receive, _receive, _receive, _receive, _delete, _delete, _delete, _hide)
_FULL_STEPS = (
    *(_publish, _publish, _receive, _receive, _receive, _receive, _delete, _delete, _hide),
    *(_repeat, _repeat, _exhaust, _exhaust, _bring_back, _bring_back),
)


def mutate_history(history: TinyHistory, seed: int, *, is_full: bool = False) -> TinyHistory:
    """Return the history with one thing changed; it may still be possible."""
    rng = random.Random(seed)  # noqa: S311 (a seed, no secret)
    if is_full and history.around.moves and rng.random() < 0.4:
        return replace(history, around=_other_moves(history.around, rng))
    events = list(history.events)
    rng.choice((*_MUTATIONS, *_ATTEMPT_MUTATIONS) if is_full else _MUTATIONS)(events, rng)
    return replace(history, events=_name_handles(events)) if _is_causal(events) else history


def _name_handles(events: Sequence[HistoryEvent]) -> tuple[HistoryEvent, ...]:
    """Return the events, each use of a handle with the message that came with it: a recorder has it from there."""
    of_handle = {event.receipt_handle_hash: event for event in events if event.kind == Kind.RECEIVED}
    return tuple(
        replace(event, idx=received.idx, sqs_message_id=received.sqs_message_id)
        if event.kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED)
        and (received := of_handle.get(event.receipt_handle_hash)) is not None
        else event
        for event in events
    )


def _other_moves(around: QueueContext, rng: random.Random) -> QueueContext:
    """Return what was around, with a move task nobody recorded, or recorded otherwise."""
    moves = list(around.moves)
    position = rng.randrange(len(moves))
    move, by_us = moves.pop(position), rng.choice((-1, 1)) * rng.choice((30_000, 12_000_000, 40_000_000))
    changed = rng.choice(
        (
            [],
            [],
            [replace(move, is_finished=not move.is_finished)],
            [replace(move, began_at_us=move.began_at_us + by_us, ended_at_us=move.ended_at_us + by_us)],
        )
    )
    return replace(around, moves=(*moves[:position], *changed, *moves[position:]))


def of_two_clocks(history: TinyHistory, *, bound_us: int, by_us: int) -> TinyHistory:
    """Return the history with the calls of one consumer timed by a clock that is ahead by so much."""
    return replace(
        history,
        events=tuple(later(event, by_us) if event.worker == "consume-2" else event for event in history.events),
        expectation=replace(history.expectation, clock_bound_us=bound_us),
    )


def _is_causal(events: list[HistoryEvent]) -> bool:
    """Return whether no handle was used before its answer had come: no clock shows that."""
    given: dict[str | None, int] = {}
    for event in events:
        if event.kind == Kind.RECEIVED:
            answered_us = event.responded_at_us or 0
            given[event.receipt_handle_hash] = min(answered_us, given.get(event.receipt_handle_hash, answered_us))
    return all(
        (event.invoked_at_us or 0) >= (given.get(event.receipt_handle_hash) or 0)
        for event in events
        if event.kind in (Kind.DELETED, Kind.VISIBILITY_CHANGED)
    )


def _drop(events: list[HistoryEvent], rng: random.Random) -> None:
    events.pop(rng.randrange(len(events)))


def _swap_messages(events: list[HistoryEvent], rng: random.Random) -> None:
    received = [i for i, event in enumerate(events) if event.kind == Kind.RECEIVED]
    if len(received) > 1:
        first, second = rng.sample(received, 2)
        identity = ("idx", "sqs_message_id", "receive_count")
        here, there = events[first], events[second]
        events[first] = replace(here, **{name: getattr(there, name) for name in identity})
        events[second] = replace(there, **{name: getattr(here, name) for name in identity})


def _count(events: list[HistoryEvent], rng: random.Random) -> None:
    _change(events, rng, Kind.RECEIVED, lambda event: replace(event, receive_count=rng.choice((1, 2, 3))))


def _shift(events: list[HistoryEvent], rng: random.Random) -> None:
    call = rng.choice(events).call_id
    by_us = rng.choice((-1, 1)) * rng.choice((5_000, 30_000, 1_500_000, 12_000_000, 40_000_000, 320_000_000))
    events[:] = [later(event, by_us, clock_id=event.clock_id) if event.call_id == call else event for event in events]


def _confirm(events: list[HistoryEvent], rng: random.Random) -> None:
    def confirm(event: HistoryEvent) -> HistoryEvent:
        answered_us = event.responded_at_us or (event.invoked_at_us or 0) + 4_000
        return replace(event, outcome=CallOutcome.OK.value, responded_at_us=answered_us)

    _change(events, rng, Kind.DELETED, confirm)


def _again(events: list[HistoryEvent], rng: random.Random) -> None:
    received = [event for event in events if event.kind == Kind.RECEIVED]
    if received:
        event, by_us = rng.choice(received), rng.choice((2_000, 1_000_000, 31_000_000))
        events.append(
            replace(
                event,
                call_id="again",
                worker=rng.choice(("consume-1", "consume-2")),
                batch_position=0,
                receive_count=(event.receive_count or 0) + 1,
                receipt_handle_hash="again",
                invoked_at_us=(event.invoked_at_us or 0) + by_us,
                responded_at_us=(event.responded_at_us or 0) + by_us,
            )
        )


def _renumber(events: list[HistoryEvent], rng: random.Random) -> None:
    _change(
        events,
        rng,
        Kind.PUBLISHED,
        lambda event: (
            event
            if event.sns_sequence_number is None
            else replace(event, sns_sequence_number=pad_sequence_number(str(rng.randint(1, 4))))
        ),
    )


def _elsewhere(events: list[HistoryEvent], rng: random.Random) -> None:
    _change(events, rng, Kind.RECEIVED, lambda event: replace(event, sqs_message_id=f"{event.sqs_message_id}'"))


def _change(
    events: list[HistoryEvent], rng: random.Random, kind: Kind, change: Callable[[HistoryEvent], HistoryEvent]
) -> None:
    positions = [i for i, event in enumerate(events) if event.kind == kind]
    if positions:
        position = rng.choice(positions)
        events[position] = change(events[position])


def _reorder_answer(events: list[HistoryEvent], rng: random.Random) -> None:
    """Turn the order of one answer's messages round."""
    calls = {event.call_id for event in events if event.kind == Kind.RECEIVED and event.batch_position}
    if calls:
        call = rng.choice(sorted(call for call in calls if call is not None))
        last = max(event.batch_position or 0 for event in events if event.call_id == call)
        events[:] = [
            replace(event, batch_position=last - (event.batch_position or 0)) if event.call_id == call else event
            for event in events
        ]


def _twice(events: list[HistoryEvent], rng: random.Random) -> None:
    """Let an answer hold one of its messages again, at its end."""
    received = [event for event in events if event.kind == Kind.RECEIVED]
    if received:
        event = rng.choice(received)
        last = max(other.batch_position or 0 for other in received if other.call_id == event.call_id)
        count = (event.receive_count or 0) + rng.choice((0, 1))
        events.append(replace(event, batch_position=last + 1, receive_count=count, receipt_handle_hash="twice"))


def _give_back(events: list[HistoryEvent], rng: random.Random) -> None:
    _change(
        events,
        rng,
        Kind.VISIBILITY_CHANGED,
        lambda event: replace(event, visibility_timeout_seconds=rng.choice((0, 0, 60))),
    )


def _other_handle(events: list[HistoryEvent], rng: random.Random) -> None:
    """Let a delete or a visibility change use the handle of another receive from its queue."""
    kind = rng.choice((Kind.DELETED, Kind.VISIBILITY_CHANGED))

    def change_handle(event: HistoryEvent) -> HistoryEvent:
        others = [other for other in events if other.kind == Kind.RECEIVED and other.queue == event.queue]
        other = rng.choice(others) if others else event
        same = ("receipt_handle_hash", "sqs_message_id", "idx")
        return replace(event, **{name: getattr(other, name) for name in same})

    _change(events, rng, kind, change_handle)


_MUTATIONS = (
    *(_drop, _swap_messages, _count, _shift, _shift, _shift, _confirm, _again, _again, _renumber, _elsewhere),
    *(_reorder_answer, _twice, _give_back, _other_handle),
)


def _repeat_answer(events: list[HistoryEvent], rng: random.Random) -> None:
    """Let an answer come once more by its attempt id."""
    calls = sorted({event.call_id or "" for event in events if event.receive_request_attempt_id is not None})
    if calls:
        call, by_us = rng.choice(calls), rng.choice((10_000, 1_000_000, 31_000_000, 310_000_000))
        events += [
            replace(later(event, by_us, clock_id=event.clock_id), call_id="repeated", worker="consume-1")
            for event in events
            if event.call_id == call
        ]


def _other_attempt(events: list[HistoryEvent], rng: random.Random) -> None:
    """Let an answer have another attempt id, or none."""
    received = [event for event in events if event.kind == Kind.RECEIVED and event.queue in ("billing", "shipping")]
    if received:
        call = rng.choice(received).call_id
        id_ = rng.choice((None, *(event.receive_request_attempt_id for event in received)))
        events[:] = [
            replace(event, receive_request_attempt_id=id_) if event.call_id == call else event for event in events
        ]


def _new_handle(events: list[HistoryEvent], rng: random.Random) -> None:
    """Let a receive that was repeated have brought another handle."""
    of_attempt = [position for position, event in enumerate(events) if event.receive_request_attempt_id is not None]
    if of_attempt:
        position = rng.choice(of_attempt)
        events[position] = replace(events[position], receipt_handle_hash="new handle")


_ATTEMPT_MUTATIONS = (_repeat_answer, _repeat_answer, _other_attempt, _new_handle, _shift, _again)
