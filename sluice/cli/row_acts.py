"""Acts on rows that an operator has selected on a page: tried first, then done with a reason.

Django's admin and the console offer them. They call what `sluice outbox` and `sluice dlq` call, and write the same row
of the audit. A row has the columns of its table as attributes. An act on a DLQ needs what the commands need: the
declaration, and the rights to receive from the DLQ, to delete there, and to send to the consumer's queue.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine

from sluice.cli.consumer_pause import change_pause
from sluice.cli.dlq import moving, replacing
from sluice.cli.dlq.target import DlqTarget
from sluice.clock import SystemClock
from sluice.errors import MessagingError
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.errors import DeadLetterError, EnvelopeError
from sluice.messaging.inbox import operations, tables
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.inbox.pause import PauseOperator
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import Destination, Reading, StoredDeadLetter
from sluice.messaging.sqs.redrive import Choice, new_run

NO_REASON = "the reason is empty, allowed is a sentence: the audit keeps it"
DRY_RUN = "a dry run, which is rolled back"
ROWS_MAX = 500
_RUN_SECONDS_MAX = 20.0  # servers end a request that takes longer


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """The form of a user who acts on rows.

    Args:
        engine: the engine of the database with the rows.
        dead_letters: returns the DLQ of a consumer, by its name. It raises ConfigError if the consumer is not declared.
        actor: name of the user.
        reason: the user's reason, for the audit.
        is_confirmed: whether to do the act; without it the act is only tried.
        data: JSON that replaces an event's data; empty for an act that replaces none.
        seen: the data that the page showed to the user, as JSON. An event with other data by now is refused; None
            compares nothing.
    """

    engine: Engine
    dead_letters: Callable[[str], DlqTarget]
    actor: str
    reason: str
    is_confirmed: bool
    data: str = ""
    seen: str | None = None

    def operator(self, row: Any) -> InboxOperator:
        """Return the operator who acts on the inbox of a row's consumer, in the user's name."""
        return InboxOperator(consumer=row.consumer, actor=self.actor, reason=self.reason)


type RowsAct = Callable[[ActionForm, Sequence[Any]], Iterator[tuple[bool, str]]]
"""Acts on rows, or only tries to; yields for each row (whether it succeeded, a sentence about it)."""
type RowAct = Callable[[ActionForm, Any], str]
"""Acts on a row, or only tries to, and returns a sentence about the act."""


def for_each(act: RowAct) -> RowsAct:
    """Return a function that calls `act` for each of several rows; a refused row does not stop the others."""

    def act_on_rows(form: ActionForm, rows: Sequence[Any]) -> Iterator[tuple[bool, str]]:
        for row in rows:
            try:
                yield True, act(form, row)
            except MessagingError as error:
                yield False, str(error)

    return act_on_rows


def _in_transaction[Done](form: ActionForm, do: Callable[[Connection], Done]) -> Done:
    """Do something in a transaction, and roll it back unless the user has confirmed it."""
    with form.engine.connect() as connection, engines.explaining_missing_tables(), connection.begin() as begun:
        done = do(connection)
        if not form.is_confirmed:
            begun.rollback()
    return done


# --- acts on an outbox ------------------------------------------------------------------------------------------------


def on_outbox(method: str, words: str) -> RowsAct:
    """Return a function that calls a method of `OutboxOperator` for rows; `words` begin the sentence about each."""

    def act(form: ActionForm, row: Any) -> str:
        operator = OutboxOperator(topic=row.topic, actor=form.actor, reason=form.reason)
        do = getattr(operator, method)
        note = _in_transaction(form, lambda connection: do(connection, row.group_id, row.group_seq))
        return f"{words} {row.group_seq} of group {row.group_id}{note or ''}"

    return for_each(act)


def resend_range(form: ActionForm, topic: str, group_id: str, ranges: Sequence[tuple[int, int]]) -> str:
    """Publish the sent messages of ranges of a group's numbers again.

    Raises:
        OutboxError: none of a range's numbers is in the outbox and sent, or there are too many.
    """
    operator = OutboxOperator(topic=topic, actor=form.actor, reason=form.reason)
    wanted = [(group_id, first, last) for first, last in ranges]
    count = _in_transaction(form, lambda connection: operator.resend_ranges(connection, wanted))
    named = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)
    return f"resend {count} sent messages, numbers {named} of group {group_id}"


# --- acts on an inbox -------------------------------------------------------------------------------------------------


@for_each
def skip(form: ActionForm, row: Any) -> str:
    """Give up the number of a row."""
    return _give_up(form, row, row.seq)


@for_each
def skip_awaited(form: ActionForm, row: Any) -> str:
    """Give up the number that a group waits for; the row is the group's."""
    return _give_up(form, row, row.last_seq + 1)


def _give_up(form: ActionForm, row: Any, seq: int) -> str:
    """Give up a number of the row's group, and return a sentence about it."""
    operator = form.operator(row)
    _in_transaction(form, lambda connection: operator.skip(connection, row.group_id, seq, epoch=row.epoch))
    return f"give up number {seq} of group {row.group_id} of {row.consumer}"


@for_each
def retry(form: ActionForm, row: Any) -> str:
    """Try a held message again as it is."""
    _in_transaction(form, lambda connection: form.operator(row).retry(connection, row.group_id, row.seq))
    return f"have message {row.seq} of group {row.group_id} of {row.consumer} tried again"


def data_of_parked(_: ActionForm, row: Any) -> object:
    """Return the data of a parked message."""
    return decode(row.body).event.data


@for_each
def replace_parked(form: ActionForm, row: Any) -> str:
    """Try a held message again with other data."""
    data, operator = _data(form), form.operator(row)

    def replace(connection: Connection) -> None:
        found = operations.parked_message(connection, row.consumer, row.group_id, row.seq)
        if found is not None:
            _require_seen(form, decode(found.body).event.data)
        operator.replace(connection, row.group_id, row.seq, data)

    _in_transaction(form, replace)
    return f"replace the data of message {row.seq} of group {row.group_id} of {row.consumer} and have it tried again"


def pausing(*, is_paused: bool) -> RowsAct:
    """Return the act that pauses a consumer, or resumes it; a row has its name."""

    def change(form: ActionForm, row: Any) -> str:
        operator = PauseOperator(consumer=row.consumer, actor=form.actor, reason=form.reason)
        target, confirmed = form.dead_letters(row.consumer).target, form.is_confirmed
        return change_pause(target, operator, is_paused=is_paused, confirmed=confirmed, seconds_max=_RUN_SECONDS_MAX)

    return for_each(change)


# --- acts on a DLQ ----------------------------------------------------------------------------------------------------


def redrive(form: ActionForm, rows: Sequence[Any]) -> Iterator[tuple[bool, str]]:
    """Bring the dead letters of dead numbers back to the queue of their consumer, in a run for each consumer."""

    def choose(rows: Sequence[Any]) -> tuple[Choice, int | None]:
        event_ids = frozenset(_require_dead(row).event_id for row in rows)
        return Choice(groups=frozenset(row.group_id for row in rows), event_ids=event_ids), len(event_ids)

    yield from _redrive_chosen(form, rows, choose)


def redrive_groups(form: ActionForm, rows: Sequence[Any]) -> Iterator[tuple[bool, str]]:
    """Bring all dead letters of groups back to the queue of their consumer, in a run for each consumer."""

    def choose(rows: Sequence[Any]) -> tuple[Choice, int | None]:
        return Choice(groups=frozenset(row.group_id for row in rows)), None

    yield from _redrive_chosen(form, rows, choose)


def _redrive_chosen(
    form: ActionForm, rows: Sequence[Any], choose: Callable[[Sequence[Any]], tuple[Choice, int | None]]
) -> Iterator[tuple[bool, str]]:
    """Redrive rows in a run for each consumer; `choose` returns the choice of dead letters, and how many at most."""
    ordered = sorted(rows, key=lambda row: row.consumer)
    for consumer, of_consumer in groupby(ordered, key=lambda row: row.consumer):
        try:
            yield from _redrive_of_consumer(form, consumer, *choose(list(of_consumer)))
        except MessagingError as error:
            yield False, str(error)


def _redrive_of_consumer(
    form: ActionForm, consumer: str, choice: Choice, most: int | None
) -> Iterator[tuple[bool, str]]:
    """Redrive one consumer's chosen dead letters, or look at them only; yield the result and each warning."""
    dlq, clock = form.dead_letters(consumer), SystemClock()
    queue, destination = dlq.open(), Destination(dlq.sqs(), moving.destination_name(dlq))
    ends_at = clock.monotonic() + _RUN_SECONDS_MAX

    def is_stopped() -> bool:
        return clock.monotonic() >= ends_at

    if not form.is_confirmed:
        seen, matching = moving.look(queue, choice, clock, is_stopped=is_stopped)
        described = moving.describe_preview(queue, destination.name, choice, most, seen=seen, matching=matching)
        yield bool(seen), described.removeprefix("would ")
        return
    warnings: list[str] = []
    result = moving.bring_back(
        dlq,
        queue,
        destination,
        choice,
        who=form.actor,
        warn=warnings.append,
        why=form.reason,
        run=new_run(clock),
        clock=clock,
        most=most,
        is_stopped=is_stopped,
    )
    yield bool(result.moved), f"{queue.name}: {'; '.join(moving.describe_result(result))}"
    warnings += [] if result.error is None else [f"the last error: {result.error}"]
    warnings += [] if result.is_whole else [f"stopped after {_RUN_SECONDS_MAX:g} s or an error; do the same again"]
    yield from ((False, warning) for warning in warnings)


@for_each
def purge(form: ActionForm, row: Any) -> str:
    """Delete the message of a dead number from the DLQ for good."""
    dlq, wanted = form.dead_letters(row.consumer), _wanted_dead_letter(row)
    return replacing.purge(dlq, form.operator(row), wanted, confirmed=form.is_confirmed)


def data_of_dead(form: ActionForm, row: Any) -> object:
    """Return the data of the message of a dead number, which is read in the DLQ and released."""
    wanted = _wanted_dead_letter(row)
    with Reading(form.dead_letters(row.consumer).open(), clock=SystemClock()) as reading:
        envelope = dead_letter_queue.find(reading, wanted.described, wanted.matches).envelope
    assert envelope is not None, "it was recognized by its number"
    return envelope.event.data


@for_each
def replace_dead(form: ActionForm, row: Any) -> str:
    """Send the message of a dead number to its consumer with other data, and delete it from the DLQ."""
    body_with_data = replacing.body_with_data(_data(form))

    def body_of(dead_letter: StoredDeadLetter) -> str:
        assert dead_letter.envelope is not None, "it was recognized by its number"
        _require_seen(form, dead_letter.envelope.event.data)
        return body_with_data(dead_letter)

    dlq = form.dead_letters(row.consumer)
    return replacing.replace_dead(
        dlq, form.operator(row), _wanted_dead_letter(row), body_of, confirmed=form.is_confirmed
    )


def _wanted_dead_letter(row: Any) -> replacing.WantedDeadLetter:
    return replacing.by_number(_require_dead(row).group_id, row.seq, epoch=row.epoch)


def _require_dead(row: Any) -> Any:
    """Return a row that is about a dead number; refuse any other."""
    if row.state != tables.DEAD or row.closed_at_us is not None:
        raise DeadLetterError(
            f"number {row.seq} of group {row.group_id} of {row.consumer} is {row.state}, allowed is dead: no message of"
            " it is in the DLQ; wait for it, or give it up"
        )
    return row


def _require_seen(form: ActionForm, data: object) -> None:
    """Refuse an act on an event whose data differs from the data that the user saw."""
    if form.seen is not None and json.loads(form.seen) != data:
        raise EnvelopeError("its data has changed since you saw it, so nothing was done; look at it again")


def _data(form: ActionForm) -> object:
    """Return the form's data, parsed from JSON."""
    try:
        return json.loads(form.data)
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"the data is not JSON ({error}); correct it") from error
