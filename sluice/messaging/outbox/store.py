"""The outbox, as the relay sees it: the first unfinished message of each group, and what becomes of it.

Only heads are read, so a message is never taken before the one in front of it is sent; what waits behind them is not
looked at, however much it is. A quarantined head blocks its group and no other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    RowMapping,
    bindparam,
    case,
    delete,
    exists,
    func,
    select,
    text,
    tuple_,
    update,
)

from sluice.clock import Clock
from sluice.messaging.database import engines
from sluice.messaging.outbox.tables import PENDING, QUARANTINED, SENT, groups, messages

HEADS_MAX = 100
"""Groups looked at in one go."""
DELETED_MAX = 1_000
"""Messages, or counters of groups, forgotten in one transaction."""

# A walk from group to group along the index: the cost is of the groups looked at, not of what waits in them.
_HEADS = text(
    """
    WITH RECURSIVE walk (group_id, steps) AS (
        SELECT (SELECT m.group_id FROM sluice_outbox m
                WHERE m.topic = :topic AND m.status <> 'sent' AND m.group_id > :after
                ORDER BY m.group_id LIMIT 1), 1
        UNION ALL
        SELECT (SELECT m.group_id FROM sluice_outbox m
                WHERE m.topic = :topic AND m.status <> 'sent' AND m.group_id > walk.group_id
                ORDER BY m.group_id LIMIT 1), walk.steps + 1
        FROM walk WHERE walk.group_id IS NOT NULL AND walk.steps < :most
    )
    SELECT head.* FROM walk JOIN sluice_outbox head
        ON head.topic = :topic AND head.group_id = walk.group_id
        AND head.group_seq = (SELECT m.group_seq FROM sluice_outbox m
                              WHERE m.topic = :topic AND m.status <> 'sent' AND m.group_id = walk.group_id
                              ORDER BY m.group_seq LIMIT 1)
    ORDER BY walk.steps
    """
)

_MARK = (
    update(messages)
    .where(messages.c.id == bindparam("of"), messages.c.status == PENDING)
    .values(attempts=messages.c.attempts + 1)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first unfinished message of a group. Instants are microseconds UTC by the database's clock."""

    id: int
    group_id: str
    group_seq: int
    event_id: str
    body: str
    attributes: Mapping[str, str]
    deduplication_id: str
    status: str
    attempts: int
    not_before_us: int
    created_at_us: int

    def is_due(self, now_us: int) -> bool:
        """Return whether it may be published now."""
        return self.status == PENDING and self.not_before_us <= now_us


@dataclass(frozen=True, slots=True)
class Sent:
    """It is in the topic."""

    sns_message_id: str
    sns_sequence_number: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """It may or may not be in the topic, or could not be now: the same again, later."""

    error: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It will never be in the topic as it is."""

    error: str


type PublishOutcome = Sent | Retry | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far the topic is behind the commits."""

    seconds: float
    pending_count: int
    quarantined_count: int


class Store:
    """One topic's part of the outbox.

    Args:
        clock: for tests; None means the database's own.
    """

    def __init__(self, engine: Engine, topic: str, *, clock: Clock | None = None) -> None:
        self._engine, self._topic, self._clock = engine, topic, clock

    def heads(self, after: str) -> tuple[list[Head], int]:
        """Return the heads of up to HEADS_MAX groups behind the group `after`, in order of groups, and the instant."""
        with engines.reading(self._engine) as connection, engines.explaining_missing_tables():
            now_us = engines.now_us(connection, self._clock)
            rows = connection.execute(_HEADS, {"topic": self._topic, "after": after, "most": HEADS_MAX}).mappings()
            return [_head(row) for row in rows], now_us

    def mark(self, connection: Connection, marked: Sequence[tuple[Head, PublishOutcome, int]]) -> None:
        """Write what became of heads: (head, outcome, microseconds to wait before it is tried again).

        Args:
            connection: of `Lease.writing`.
            marked: only heads that are still pending are changed.
        """
        now_us = engines.now_us(connection, self._clock)
        alike: dict[type[PublishOutcome], list[dict[str, Any]]] = {}
        for head, outcome, delay_us in marked:
            alike.setdefault(type(outcome), []).append({"of": head.id, **_marks(outcome, now_us, delay_us)})
        for rows in alike.values():  # one statement for all of a kind: ten of their own cost five times as much
            connection.execute(_MARK, rows)

    def lag(self) -> Lag:
        """Return how long the oldest unpublished message waits, and how many there are. Reads all of them."""
        with engines.reading(self._engine) as connection:
            now_us = engines.now_us(connection, self._clock)
            quarantined = func.coalesce(func.sum(case((messages.c.status == QUARANTINED, 1), else_=0)), 0)
            unfinished = (messages.c.topic == self._topic, messages.c.status != SENT)
            count, held, oldest_us = connection.execute(
                select(func.count(), quarantined, func.min(messages.c.created_at_us)).where(*unfinished)
            ).one()
        seconds = 0.0 if oldest_us is None else max(0, now_us - oldest_us) / 1_000_000
        return Lag(seconds=seconds, pending_count=count - held, quarantined_count=held)

    def pending_elsewhere(self) -> dict[str, int]:
        """Return how many messages wait for another topic, by its name. Reads all of them."""
        with engines.reading(self._engine) as connection:
            found = connection.execute(
                select(messages.c.topic, func.count())
                .where(messages.c.topic != self._topic, messages.c.status == PENDING)
                .group_by(messages.c.topic)
                .order_by(messages.c.topic)
            )
            return {row.topic: row[1] for row in found}

    def is_finished(self) -> bool:
        """Return whether nothing can be published any more: all is sent, or waits behind what is quarantined."""
        after = ""
        while True:
            heads, _ = self.heads(after)
            if any(head.status == PENDING for head in heads):
                return False
            if len(heads) < HEADS_MAX:
                return True
            after = heads[-1].group_id

    def forget_sent(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand messages sent longer ago than that; return how many.

        Their groups count as used now, unless they were used since: a message may be sent long after its commit, and
        `forget_groups` goes by when the group was used last.

        Args:
            connection: of `Lease.writing`.
            keep_seconds: how long what was sent can be sent again.

        Raises:
            OperationalError: a producer is about to use one of the groups; see `databases.is_locked`.
        """
        engines.wait_briefly(connection)
        now_us = engines.now_us(connection, self._clock)
        before_us = now_us - round(keep_seconds * 1_000_000)
        old = connection.execute(
            select(messages.c.id, messages.c.group_id)
            .where(messages.c.topic == self._topic, messages.c.status == SENT, messages.c.sent_at_us < before_us)
            .order_by(messages.c.sent_at_us)
            .limit(DELETED_MAX)
        ).all()
        unused = (
            groups.c.topic == self._topic,
            groups.c.group_id.in_({row.group_id for row in old}),
            groups.c.updated_at_us < before_us,
        )
        connection.execute(update(groups).where(*unused).values(updated_at_us=now_us))
        is_old = (messages.c.id.in_([row.id for row in old]), messages.c.status == SENT)
        return connection.execute(delete(messages).where(*is_old)).rowcount

    def forget_groups(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand counters not used for longer than that, of groups without a message; return how many.

        The next event of such a group makes its counter anew: from 1, under a later epoch (`outbox.outbox`). No copy
        of the old numbers is on its way by then: the declaration holds every `inbox_retention_seconds` longer than the
        way of a message through queue, DLQ and back, and a counter was used at its group's last commit and, where its
        last message was sent later, once more by `forget_sent`. So consumers see a later epoch that begins at 1.

        A producer may be using one of them. Its number is in the counter then, which is no longer the one that was
        found, and stays. If the deletion is first, the producer waits for it and makes the counter anew.

        Args:
            connection: of `Lease.writing`.
            keep_seconds: the largest `inbox_retention_seconds` of the topic's consumers.

        Raises:
            OperationalError: a producer is about to use one of the groups; see `databases.is_locked`.
        """
        engines.wait_briefly(connection)
        before_us = engines.now_us(connection, self._clock) - round(keep_seconds * 1_000_000)
        left = exists().where(messages.c.topic == groups.c.topic, messages.c.group_id == groups.c.group_id)
        unused = (
            select(groups.c.topic, groups.c.group_id, groups.c.epoch, groups.c.last_seq)
            .where(
                groups.c.topic == self._topic,
                groups.c.updated_at_us < before_us,
                groups.c.epoch < before_us // 1_000_000,  # or, after a clock was put back, the next might not be later
                ~left,
            )
            .order_by(groups.c.updated_at_us)
            .limit(DELETED_MAX)
        )
        # Postgres compares the last number again after it waited for a producer's commit.
        found = tuple_(groups.c.topic, groups.c.group_id, groups.c.epoch, groups.c.last_seq).in_(unused)
        return connection.execute(delete(groups).where(found)).rowcount


def _marks(outcome: PublishOutcome, now_us: int, delay_us: int) -> dict[str, Any]:
    """Return the columns that say what became of a message."""
    match outcome:
        case Sent():
            return {
                "status": SENT,
                "sent_at_us": now_us,
                "last_error": None,
                "sns_message_id": outcome.sns_message_id,
                "sns_sequence_number": outcome.sns_sequence_number,
            }
        case Retry():
            return {"not_before_us": now_us + delay_us, "last_error": outcome.error}
        case Refused():
            return {"status": QUARANTINED, "last_error": outcome.error}


def _head(row: RowMapping) -> Head:
    columns: dict[str, Any] = {field.name: row[field.name] for field in fields(Head)}
    return Head(**columns | {"attributes": json.loads(columns["attributes"])})
