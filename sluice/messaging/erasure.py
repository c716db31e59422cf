"""Find and erase the content of one subject's messages in the tables of outbox and inbox.

An erased message is replaced by a tombstone: the same event id, group, number and epoch, without data. A consumer
counts the tombstone and calls no handler, so no number is missing anywhere. Copies of the content are erased, too: in
the audit of operators' actions, and in the reasons that handlers gave.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, ColumnElement, Connection, Table, or_, select, true, update

from sluice.messaging.bundle import read_body
from sluice.messaging.database.audit import Operator
from sluice.messaging.database.schema import may_read
from sluice.messaging.envelope import TOMBSTONE, Envelope, decode
from sluice.messaging.errors import EnvelopeError
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.tables import GAP
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.operations import let_go_alone
from sluice.messaging.outbox.tables import PENDING, QUARANTINED, SENT

ERASED = "erased"
"""The text that replaces an erased reason."""
NOT_PUBLISHED = "it is not published yet; run this again when it is"
_PAGE = 500
_MENTION_CHARACTERS = 4
_KEPT = ("body", "fault", "last_error")
"""The fields of an audit row's detail that have a message's content, or a part of it."""
_OF_TOMBSTONE = "tombstone"
"""The reason of a number whose message was a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A person, or anything else that messages are about: messages that match any of these.

    Args:
        groups: all messages of these message groups.
        event_ids: the events with these ids.
        fields: a path into the data, such as `("customer", "email")`, and the value that is there as text. A list on
            the path stands for each of its items.
    """

    groups: frozenset[str] = frozenset()
    event_ids: frozenset[str] = frozenset()
    fields: tuple[tuple[tuple[str, ...], str], ...] = ()

    def matches(self, envelope: Envelope) -> bool:
        """Return whether a message is about the subject."""
        event = envelope.event
        return (
            event.group in self.groups
            or event.id in self.event_ids
            or any(_has_value(event.data, path, value) for path, value in self.fields)
        )

    def matches_body(self, body: str, group_id: str | None) -> bool:
        """Return whether a message with this body is about the subject.

        A body that is no envelope counts if its group or one of the values in it is the subject's.
        """
        try:
            events = read_body(body)
        except EnvelopeError:
            return group_id in self.groups or self.is_mentioned_in(body)
        return any(
            self.matches_body(event.body, group_id) if event.envelope is None else self.matches(event.envelope)
            for event in events
        )

    def is_mentioned_in(self, text: str) -> bool:
        """Return whether a text contains the value of a field as a whole word, plain or as JSON escapes it.

        Values of fewer than four characters are left out, because a text may have them by chance.
        """
        values = [value for _, value in self.fields if len(value) >= _MENTION_CHARACTERS]
        forms = {form for value in values for form in (value, json.dumps(value)[1:-1])}
        return any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text) for form in forms)


def _has_value(data: object, path: tuple[str, ...], value: str) -> bool:
    """Return whether the value at a path of keys is this text; a list on the path stands for each of its items."""
    if isinstance(data, list):
        return any(_has_value(item, path, value) for item in data)
    if path:
        return isinstance(data, dict) and path[0] in data and _has_value(data[path[0]], path[1:], value)
    return data == value if isinstance(data, str) else json.dumps(data) == value


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCopy:
    """A place that has the content of a message, or a part of it.

    Args:
        place: the name of the table, or of the DLQ.
        owner: the topic's or the consumer's name.
        event_id, epoch, seq: id, epoch and number of the event; None if the place does not have them.
        left: the reason for which the copy is not erased; None if it is.
        is_sent: whether the copy is a message of the outbox that was published.
    """

    place: str
    owner: str
    group_id: str | None
    event_id: str | None
    epoch: int | None
    seq: int | None
    left: str | None = None
    is_sent: bool = False


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row of a database with content of the subject, and the function that erases that content."""

    copy: StoredCopy
    erase: Callable[[Connection], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectEraser(Operator):
    """An operator who erases a subject's content, with a reason; the audit keeps where it was, and none of it."""

    def erase(self, connection: Connection, found: FoundRow) -> None:
        """Erase the content of one row, and audit that; the caller commits."""
        found.erase(connection)
        self.write_down(connection, found.copy)

    def write_down(self, connection: Connection, copy: StoredCopy) -> None:
        """Audit the erasure of a copy: a copy of the outbox in the outbox's audit, any other in the inbox's audit."""
        is_of_topic = copy.place.split(".")[0] in (outbox.messages.name, outbox.audit.name)
        table, owner, seq = (outbox.audit, "topic", "group_seq") if is_of_topic else (inbox.audit, "consumer", "seq")
        place = {owner: copy.owner, "group_id": copy.group_id, seq: copy.seq}
        self._record(connection, table, "erase", place, {"event_id": copy.event_id, "place": copy.place})


def find_rows(connection: Connection, subject: Subject) -> Iterator[FoundRow]:
    """Yield the rows of a database that have content of a subject; missing tables are skipped.

    If the subject has fields, every message and every audit row is read.
    """
    for table, find in LOOKS:
        if may_read(connection, table):
            yield from find(connection, subject)


def with_events(subject: Subject, event_ids: Iterable[str | None]) -> Subject:
    """Return the subject with these events added, because a copy whose data was replaced may lack the sought value."""
    return replace(subject, event_ids=subject.event_ids.union(id_ for id_ in event_ids if id_ is not None))


def is_on_its_way(connection: Connection, consumer: str, copy: StoredCopy) -> bool:
    """Return whether a sent message may still arrive at a consumer, whose inbox is in this database.

    It may if the inbox has not counted the message's number, and records it neither as dead nor as parked.
    """
    g, e, p = inbox.groups.c, inbox.exceptions.c, inbox.parked.c
    place = {"consumer": consumer, "group_id": copy.group_id}
    conditions, seq = (sa.literal(copy.epoch), sa.literal(copy.seq)), copy.seq
    is_counted = sa.exists().where(*_equals_all(g, place), sa.tuple_(g.epoch, g.last_seq) >= sa.tuple_(*conditions))
    of_number = (e.epoch == copy.epoch, e.seq <= seq, e.through >= seq)
    is_missing = sa.exists().where(*_equals_all(e, place), *of_number, e.state == GAP)
    is_known = sa.exists().where(*_equals_all(e, place), *of_number, e.state != GAP)
    is_parked = sa.exists().where(*_equals_all(p, place), p.epoch == copy.epoch, p.seq == seq)
    known = sa.or_(is_known, is_parked, sa.and_(is_counted, sa.not_(is_missing)))
    return not connection.execute(sa.select(known)).scalar_one()


def _equals_all(columns: Any, values: Mapping[str, Any]) -> tuple[ColumnElement[bool], ...]:
    return tuple(columns[name] == value for name, value in values.items())


# --- messages ---------------------------------------------------------------------------------------------------------


def _find_messages(connection: Connection, subject: Subject) -> Iterator[FoundRow]:
    m = outbox.messages.c
    columns = (m.id, m.topic, m.group_id, m.group_seq, m.event_id, m.status, m.body)
    for row in _read_rows(connection, columns, m.type != TOMBSTONE, _may_match(subject, m)):
        if subject.matches_body(row["body"], row["group_id"]):
            left = NOT_PUBLISHED if row["status"] == PENDING else None
            copy = replace(
                _copy_of(outbox.messages, row["topic"], row, row["group_seq"], left), is_sent=row["status"] == SENT
            )
            yield FoundRow(copy, partial(_erase_message, row_id=row["id"]))


def _erase_message(connection: Connection, row_id: int) -> None:
    """Replace a sent or quarantined message of the outbox by its tombstone.

    The relay publishes the tombstone of a quarantined message, as after `outbox skip`.
    """
    m = outbox.messages.c
    conditions = (m.id == row_id, m.status != PENDING)
    row = connection.execute(select(outbox.messages).where(*conditions).with_for_update()).one_or_none()
    if row is None:  # the relay has deleted it, or somebody resends it
        return
    tombstone = decode(row.body).as_tombstone(is_same_event=True)
    values = {"type": TOMBSTONE, "body": tombstone.body, "attributes": json.dumps(tombstone.event.message_attributes)}
    given_up: dict[str, Any] = {}
    if row.status == QUARANTINED:
        given_up = {"status": PENDING, "attempts": 0, "not_before_us": 0}
        let_go_alone(connection, row.id)
    connection.execute(update(outbox.messages).where(*conditions).values({**values, **given_up}))


def _find_parked(connection: Connection, subject: Subject) -> Iterator[FoundRow]:
    p = inbox.parked.c
    columns = (p.consumer, p.group_id, p.epoch, p.seq, p.event_id, p.body)
    for row in _read_rows(connection, columns, _may_match(subject, p)):
        if not _is_tombstone(row["body"]) and subject.matches_body(row["body"], row["group_id"]):
            copy = _copy_of(inbox.parked, row["consumer"], row, row["seq"])
            yield FoundRow(copy, partial(_erase_parked, copy=copy))


def _erase_parked(connection: Connection, copy: StoredCopy) -> None:
    """Replace a parked message by its tombstone, which is counted when its turn in the group comes."""
    g, p = inbox.groups.c, inbox.parked.c
    group = (g.consumer == copy.owner, g.group_id == copy.group_id)
    connection.execute(select(g.last_seq).where(*group).with_for_update())  # nobody handles it meanwhile
    conditions = (p.consumer == copy.owner, p.group_id == copy.group_id, p.epoch == copy.epoch, p.seq == copy.seq)
    body = connection.execute(select(p.body).where(*conditions)).scalar_one_or_none()
    if body is None:  # it was handled
        return
    tombstone = decode(body).as_tombstone(is_same_event=True)
    content = {"body": tombstone.body, "attributes": json.dumps(tombstone.event.message_attributes)}
    fresh = {"attempts": 0, "not_before_us": 0, "held_at_us": None, "last_error": None}
    connection.execute(update(inbox.parked).where(*conditions).values({**content, **fresh}))


def _is_tombstone(body: str) -> bool:
    return decode(body).event.type == TOMBSTONE


# --- the audit --------------------------------------------------------------------------------------------------------


def _find_audit_rows(
    connection: Connection, subject: Subject, *, table: Table, owner: str, seq: str
) -> Iterator[FoundRow]:
    """Yield the rows of an audit table with content of a subject's messages."""
    columns = (table.c.id, table.c[owner], table.c.group_id, table.c[seq], table.c.detail)
    for row in _read_rows(connection, columns, table.c.detail.is_not(None)):
        kept = json.loads(row["detail"])
        if any(kept.get(name) for name in _KEPT) and _is_about(subject, row["group_id"], kept):
            found = {"group_id": row["group_id"], "event_id": _event_id_of(kept), "epoch": kept.get("epoch")}
            copy = _copy_of(table, row[owner], found, row[seq])
            yield FoundRow(copy, partial(_erase_audit_row, table=table, row_id=row["id"], kept=kept))


def _is_about(subject: Subject, group_id: str | None, kept: Mapping[str, Any]) -> bool:
    """Return whether an audit row is about a subject's message; `kept` is the row's detail."""
    if group_id in subject.groups or kept.get("event_id") in subject.event_ids:
        return True
    texts = [text for name in ("fault", "last_error") if isinstance(text := kept.get(name), str)]
    body = kept.get("body")
    return (body is not None and subject.matches_body(body, group_id)) or any(map(subject.is_mentioned_in, texts))


def _event_id_of(kept: Mapping[str, Any]) -> str | None:
    try:
        return str(kept.get("event_id") or decode(kept["body"]).event.id)
    except (KeyError, EnvelopeError):
        return None


def _erase_audit_row(connection: Connection, *, table: Table, row_id: int, kept: Mapping[str, Any]) -> None:
    detail = {name: value for name, value in kept.items() if name not in _KEPT} | {ERASED: True}
    changed = {"detail": json.dumps(detail, ensure_ascii=False)}
    connection.execute(update(table).where(table.c.id == row_id).values(changed))


# --- reasons ----------------------------------------------------------------------------------------------------------


def _find_reasons(connection: Connection, subject: Subject, *, column: Column[Any]) -> Iterator[FoundRow]:
    """Yield the rows with a reason in a column that is about a subject's message or contains a value of the subject."""
    table = column.table
    keys = [key.name for key in table.primary_key.columns]
    for row in _read_rows(connection, tuple(table.c), column.is_not(None), column.not_in((ERASED, _OF_TOMBSTONE))):
        is_ours = row["group_id"] in subject.groups or row.get("event_id") in subject.event_ids
        if is_ours or subject.is_mentioned_in(row[column.name]):
            owner = row["topic"] if "topic" in row else row["consumer"]
            copy = _copy_of(table, owner, row, row.get("group_seq", row.get("seq")))
            key = {name: row[name] for name in keys}
            yield FoundRow(
                replace(copy, place=f"{table.name}.{column.name}"), partial(_erase_reason, column=column, key=key)
            )


def _erase_reason(connection: Connection, *, column: Column[Any], key: Mapping[str, Any]) -> None:
    conditions = (column.table.c[name] == value for name, value in key.items())
    connection.execute(update(column.table).where(*conditions).values({column.name: ERASED}))


# --- rows -------------------------------------------------------------------------------------------------------------

LOOKS: tuple[tuple[Table, Callable[[Connection, Subject], Iterator[FoundRow]]], ...] = (
    (outbox.messages, _find_messages),
    (outbox.messages, partial(_find_reasons, column=outbox.messages.c.last_error)),
    (outbox.audit, partial(_find_audit_rows, table=outbox.audit, owner="topic", seq="group_seq")),
    (inbox.parked, _find_parked),
    (inbox.parked, partial(_find_reasons, column=inbox.parked.c.last_error)),
    (inbox.exceptions, partial(_find_reasons, column=inbox.exceptions.c.reason)),
    (inbox.attempts, partial(_find_reasons, column=inbox.attempts.c.last_error)),
    (inbox.audit, partial(_find_audit_rows, table=inbox.audit, owner="consumer", seq="seq")),
)
"""Each table that may have content of a message, with the function that finds it there."""


def _read_rows(connection: Connection, columns: tuple[Column[Any], ...], *conditions: Any) -> Iterator[dict[str, Any]]:
    with connection.execute(select(*columns).where(*conditions).execution_options(yield_per=_PAGE)) as rows:
        for row in rows.mappings():
            yield dict(row)


def _may_match(subject: Subject, columns: Any) -> ColumnElement[bool]:
    """Return the SQL condition of rows to read: all if the subject has fields, else those of its groups and events."""
    if subject.fields:
        return true()
    return or_(columns.group_id.in_(sorted(subject.groups)), columns.event_id.in_(sorted(subject.event_ids)))


def _copy_of(table: Table, owner: str, row: Mapping[str, Any], seq: int | None, left: str | None = None) -> StoredCopy:
    """Return the stored copy that a row is; its epoch is read from the body if the table has no such column."""
    epoch = row.get("epoch")
    if epoch is None and "body" in row:
        with suppress(EnvelopeError):
            epoch = decode(row["body"]).epoch
    place = {"place": table.name, "owner": owner, "group_id": row["group_id"], "event_id": row.get("event_id")}
    return StoredCopy(**place, epoch=epoch, seq=seq, left=left)
