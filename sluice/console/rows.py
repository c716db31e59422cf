"""Rows of inbox and outbox for pages, in the order of a key: the next page begins after the key of the last row."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, select, tuple_

from sluice.messaging.database.choice import RowChoice
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.death_reasons import DeathReason, group_reasons
from sluice.messaging.inbox.pause import Pause, find_pause
from sluice.messaging.inbox.tables import exceptions, groups, parked
from sluice.messaging.outbox.operations import find_types
from sluice.messaging.outbox.tables import messages

PAGE = 50
"""The rows of one page."""
REASONS_READ_MAX = 50_000
"""The most dead numbers whose reasons are counted."""
_TYPED_AT_ONCE = 500  # rows whose types are looked up together
_TYPED_MAX = 20_000  # rows that are read for one page of a type; then the page ends, also if it is not full
_PARKED_KEY = re.compile("[0-9]{1,18}:[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNumber:
    """A number, or a range of numbers, that is dead or missing, with the type of its event where that is known."""

    row: Row[Any]
    type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage[Item]:
    """A page of rows.

    Args:
        next_after: the key after which the next page begins; None on the last page.
    """

    rows: list[Item]
    next_after: str | None


def open_numbers(
    connection: Connection, consumer: str, state: str, choice: RowChoice, *, after: int
) -> RowPage[OpenNumber]:
    """Return a page of the dead or missing numbers of a consumer, by the order in which they were recorded."""
    found: list[OpenNumber] = []
    last_read = after
    for row, type_ in _typed_rows(connection, consumer, state, choice, after):
        if choice.matches_type(type_):
            if len(found) == PAGE:
                return RowPage(rows=found, next_after=str(found[-1].row.id))
            found.append(OpenNumber(row=row, type=type_))
        last_read = row.id
    is_cut = choice.types and last_read != after and _has_more(connection, consumer, state, choice, last_read)
    return RowPage(rows=found, next_after=str(last_read) if is_cut else None)


def _typed_rows(
    connection: Connection, consumer: str, state: str, choice: RowChoice, after: int
) -> Iterator[tuple[Row[Any], str | None]]:
    """Yield rows with the types of their events, up to the number that one page may read."""
    at_once = _TYPED_AT_ONCE if choice.types else PAGE + 1
    read = 0
    while read < (_TYPED_MAX if choice.types else at_once):
        ordered = select(exceptions).where(*_is_chosen(consumer, state, choice), exceptions.c.id > after)
        rows = connection.execute(ordered.order_by(exceptions.c.id).limit(at_once)).all()
        types = find_types(connection, {row.event_id for row in rows if row.event_id is not None})
        for row in rows:
            yield row, types.get(row.event_id)
        if len(rows) < at_once:
            return
        read, after = read + len(rows), rows[-1].id


def _has_more(connection: Connection, consumer: str, state: str, choice: RowChoice, after: int) -> bool:
    more = select(1).where(*_is_chosen(consumer, state, choice), exceptions.c.id > after).limit(1)
    return connection.execute(more).first() is not None


def _is_chosen(consumer: str, state: str, choice: RowChoice) -> tuple[Any, ...]:
    return (
        exceptions.c.consumer == consumer,
        exceptions.c.state == state,
        exceptions.c.closed_at_us.is_(None),
        choice.in_groups(exceptions.c.group_id),
        choice.is_since(exceptions.c.seen_at_us),
        choice.of_reason(exceptions.c.reason),
    )


def count_open(connection: Connection, consumer: str, state: str, choice: RowChoice) -> int:
    """Return how many numbers are open; types are not looked at."""
    numbers = func.coalesce(func.sum(exceptions.c.through - exceptions.c.seq + 1), 0)
    return int(connection.execute(select(numbers).where(*_is_chosen(consumer, state, choice))).scalar_one())


def death_reasons(connection: Connection, consumer: str, choice: RowChoice) -> tuple[list[DeathReason], bool]:
    """Return the reasons of a consumer's dead numbers, and whether there were more than could be read."""
    e = exceptions.c
    wanted = select(e.group_id, e.reason, e.seen_at_us).where(*_is_chosen(consumer, inbox.DEAD, choice))
    rows = connection.execute(wanted.limit(REASONS_READ_MAX + 1)).all()
    reasons = group_reasons((row.group_id, row.reason, row.seen_at_us) for row in rows[:REASONS_READ_MAX])
    return reasons, len(rows) > REASONS_READ_MAX


def dead_groups(connection: Connection, consumer: str, choice: RowChoice, *, after: str) -> RowPage[Row[Any]]:
    """Return a page of the groups that have dead numbers, by their ids: group_id, dead, since_us, parked_at_us."""
    e = exceptions.c
    counted = (
        select(e.group_id, func.count().label("dead"), func.min(e.seen_at_us).label("since_us"))
        .where(*_is_chosen(consumer, inbox.DEAD, choice), e.group_id > after)
        .group_by(e.group_id)
        .order_by(e.group_id)
        .limit(PAGE + 1)
    ).subquery()
    here = (groups.c.consumer == consumer) & (groups.c.group_id == counted.c.group_id)
    positions = (groups.c.parked_at_us, groups.c.last_seq, groups.c.epoch)
    joined = select(counted, *positions).select_from(counted.outerjoin(groups, here)).order_by(counted.c.group_id)
    rows = connection.execute(joined).all()
    return RowPage(rows=list(rows[:PAGE]), next_after=rows[PAGE - 1].group_id if len(rows) > PAGE else None)


def open_number(connection: Connection, consumer: str, number_id: int) -> OpenNumber | None:
    """Return the record of a number by its id; None where there is none."""
    row = connection.execute(
        select(exceptions).where(exceptions.c.id == number_id, exceptions.c.consumer == consumer)
    ).one_or_none()
    if row is None:
        return None
    types = find_types(connection, {row.event_id} if row.event_id is not None else set())
    return OpenNumber(row=row, type=types.get(row.event_id))


# --- keys of rows in forms --------------------------------------------------------------------------------------------


def key_of_number(row: Any) -> str:
    """Return the key of a record of a number: another death of the same number has another key."""
    return json.dumps([row.id, row.state, row.sqs_message_id])


def key_of_group(consumer: str, row: Any) -> str:
    """Return the key of a group at its position: it changes when the group goes on."""
    return json.dumps([consumer, row["group_id"], row["epoch"], row["last_seq"]])


def key_of_parked(row: Any) -> str:
    """Return the key of a message that is set aside."""
    return json.dumps([row.consumer, row.group_id, row.epoch, row.seq, row.held_at_us])


def key_of_message(topic: str, row: Any) -> str:
    """Return the key of a message of the outbox, in its state."""
    return json.dumps([topic, row["group_id"], row["group_seq"], row["status"]])


def key_of_letters(consumer: str, group_id: str) -> str:
    """Return the key of all dead letters of a group."""
    return json.dumps([consumer, group_id])


def key_of_consumer(consumer: str, pause: Pause | None) -> str:
    """Return the key of a consumer with the pause that it has."""
    return json.dumps([consumer, None if pause is None else pause.paused_at_us])


type Load = Callable[[Connection, Sequence[Any]], Any]
"""Returns the row of a key; None if it is gone or has changed since its key was made."""


def load_number(connection: Connection, key: Sequence[Any]) -> Any:
    """Return the record of a number; None if it is closed or has changed since its key was made."""
    id_, state, sqs_message_id = key
    here = (exceptions.c.id == int(id_), exceptions.c.state == str(state), exceptions.c.closed_at_us.is_(None))
    row = connection.execute(select(exceptions).where(*here)).one_or_none()
    return row if row is not None and row.sqs_message_id == sqs_message_id else None


def load_group(connection: Connection, key: Sequence[Any]) -> Any:
    """Return a group at the position of its key; None if it has gone on."""
    consumer, group_id, epoch, last_seq = key
    here = (groups.c.consumer == str(consumer), groups.c.group_id == str(group_id), groups.c.epoch == int(epoch))
    return connection.execute(select(groups).where(*here, groups.c.last_seq == int(last_seq))).one_or_none()


def load_parked(connection: Connection, key: Sequence[Any]) -> Any:
    """Return a parked message; None if it is gone, or was held or released since its key was made."""
    consumer, group_id, epoch, seq, held_at_us = key
    here = (parked.c.consumer == str(consumer), parked.c.group_id == str(group_id), parked.c.epoch == int(epoch))
    row = connection.execute(select(parked).where(*here, parked.c.seq == int(seq))).one_or_none()
    return row if row is not None and row.held_at_us == held_at_us else None


def load_message(connection: Connection, key: Sequence[Any]) -> Any:
    """Return a message of the outbox with the status of its key; None if the status has changed."""
    topic, group_id, group_seq, status = key
    here = (
        messages.c.topic == str(topic),
        messages.c.group_id == str(group_id),
        messages.c.group_seq == int(group_seq),
    )
    return connection.execute(select(messages).where(*here, messages.c.status == str(status))).one_or_none()


def load_letters(connection: Connection, key: Sequence[Any]) -> Any:
    """Return consumer and group of a group that has dead numbers; None if it has none any more."""
    consumer, group_id = key
    here = (exceptions.c.consumer == str(consumer), exceptions.c.group_id == str(group_id))
    is_dead = (exceptions.c.state == inbox.DEAD, exceptions.c.closed_at_us.is_(None))
    columns = select(exceptions.c.consumer, exceptions.c.group_id)
    return connection.execute(columns.where(*here, *is_dead).limit(1)).one_or_none()


def group_position(connection: Connection, consumer: str, group_id: str) -> Any:
    """Return a group's row as a mapping; None where nothing of it has come."""
    here = (groups.c.consumer == consumer, groups.c.group_id == group_id)
    return connection.execute(select(groups).where(*here)).mappings().one_or_none()


def find_parked(connection: Connection, consumer: str, group_id: str, *, after: str) -> RowPage[Row[Any]]:
    """Return a page of a group's messages that are set aside, without their bodies, in the order of their turns.

    `after` is the key of the last row of the page before, `EPOCH:NUMBER`; anything else begins with the first page.
    """
    columns = [column for column in parked.c if column.name not in ("body", "attributes")]
    here = [parked.c.consumer == consumer, parked.c.group_id == group_id]
    if _PARKED_KEY.fullmatch(after):
        epoch, _, seq = after.partition(":")
        here.append(tuple_(parked.c.epoch, parked.c.seq) > (int(epoch), int(seq)))
    ordered = select(*columns).where(*here).order_by(parked.c.epoch, parked.c.seq).limit(PAGE + 1)
    rows = list(connection.execute(ordered))
    last = rows[:PAGE][-1] if len(rows) > PAGE else None
    return RowPage(rows=rows[:PAGE], next_after=None if last is None else f"{last.epoch}:{last.seq}")


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """A consumer, for acts on it as a whole."""

    consumer: str


def load_consumer(connection: Connection, key: Sequence[Any]) -> Any:
    """Return a consumer; None if it has been paused or resumed since its key was made."""
    consumer, paused_at_us = key
    found = find_pause(connection, str(consumer))
    is_same = paused_at_us == (None if found is None else found.paused_at_us)
    return ConsumerRow(str(consumer)) if is_same else None
