"""A fast comparison of an outbox's groups with its consumers' positions, which clears most groups.

The databases count the messages of each group and send one row for each group, in the order of the group ids. All rows
are streamed, so memory does not grow with their number. Group ids are compared byte by byte on Postgres (collation
"C") and on SQLite, which is the order of Python's strings, too.

Postgres: https://www.postgresql.org/docs/18/sql-declare.html (a cursor sends rows while they are read)
SQLAlchemy: https://docs.sqlalchemy.org/en/21/core/connections.html#using-server-side-cursors-a-k-a-stream-results
(both read 2026-11-27)
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, or_, select, union

from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.tables import SENT

_ROWS = 10_000
"""The rows that are fetched at once."""


class GroupCounter(NamedTuple):
    """A group's counter in the outbox: its epoch, with the first and the last number given in it."""

    group_id: str
    epoch: int
    first_seq: int
    last_seq: int


class SentNumbers(NamedTuple):
    """The sent messages of a group: its first number and its last, and how many they are."""

    group_id: str
    first: int
    last: int
    messages: int


class PositionRow(NamedTuple):
    """A consumer's position in a group.

    Args:
        is_plain: whether the group has neither exceptions nor parked messages.
    """

    group_id: str
    epoch: int
    first_seq: int
    last_seq: int
    is_plain: bool


class Streams:
    """Reads rows while the database sends them, so that they are never all in memory.

    Args:
        connection: a connection in a transaction.
        stack: closes each unfinished result, before it closes the connection.
    """

    def __init__(self, connection: Connection, stack: ExitStack) -> None:
        self._connection, self._stack = connection, stack

    def rows(self, statement: Select[Any]) -> Iterator[Any]:
        """Yield the rows of a statement."""
        result = self._connection.execute(statement, execution_options={"yield_per": _ROWS})
        self._stack.callback(result.close)
        return chain.from_iterable(result.partitions())


def sent_messages(topic: str, *, before_us: int) -> tuple[Any, ...]:
    """Return the SQL conditions of a topic's messages that were sent up to an instant, microseconds UTC.

    A row without an instant of its sending is included; somebody must have changed it.
    """
    m = outbox.messages.c
    return m.topic == topic, m.status == SENT, or_(m.sent_at_us.is_(None), m.sent_at_us <= before_us)


def groups_of(
    outbox_rows: Streams, topic: str, *, before_us: int
) -> Iterator[tuple[str, GroupCounter | None, SentNumbers | None]]:
    """Yield (group id, counter, sent messages) of each group of a topic, in the order of the ids."""
    m, g = outbox.messages.c, outbox.groups.c
    numbers = (func.min(m.group_seq), func.max(m.group_seq), func.count())
    of_group = select(m.group_id, *numbers).where(*sent_messages(topic, before_us=before_us))
    counters = select(g.group_id, g.epoch, g.first_seq, g.last_seq).where(g.topic == topic)
    sent = map(SentNumbers._make, outbox_rows.rows(of_group.group_by(m.group_id).order_by(m.group_id)))
    found = next(sent, None)
    for counter in map(GroupCounter._make, outbox_rows.rows(counters.order_by(g.group_id))):
        while found is not None and found.group_id < counter.group_id:  # its counter was forgotten
            yield found.group_id, None, found
            found = next(sent, None)
        if found is not None and found.group_id == counter.group_id:
            yield counter.group_id, counter, found
            found = next(sent, None)
        else:
            yield counter.group_id, counter, None
    while found is not None:
        yield found.group_id, None, found
        found = next(sent, None)


def positions_of(inbox_rows: Streams, consumer: str) -> Iterator[PositionRow]:
    """Yield a consumer's position in each group, in the order of the ids."""
    g, e, p = inbox.groups.c, inbox.exceptions.c, inbox.parked.c
    unusual = union(
        select(e.group_id).where(e.consumer == consumer), select(p.group_id).where(p.consumer == consumer)
    ).subquery()
    columns = (g.group_id, g.epoch, g.first_seq, g.last_seq, unusual.c.group_id.is_(None))
    joined = select(*columns).outerjoin_from(inbox.groups, unusual, g.group_id == unusual.c.group_id)
    return map(PositionRow._make, inbox_rows.rows(joined.where(g.consumer == consumer).order_by(g.group_id)))


class Positions:
    """A consumer's positions, looked up by group ids that only rise."""

    def __init__(self, inbox_rows: Streams, consumer: str) -> None:
        self._rows = positions_of(inbox_rows, consumer)
        self._row = next(self._rows, None)

    def find(self, group_id: str) -> PositionRow | None:
        """Return the position in a group; None if the consumer has none."""
        row = self._row
        while row is not None and row.group_id < group_id:
            row = next(self._rows, None)
        self._row = row
        return row if row is not None and row.group_id == group_id else None
