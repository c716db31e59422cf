"""The outbox for a producer: an event that is added in a transaction is committed with it, or not at all.

Numbers are given as the last step before the commit. Each group has one counter row, which is locked from then until
the commit; the counters are locked in the order of topics and groups. Therefore a group's numbers are in the order of
its commits and without a hole, even after rollbacks, and two transactions that share groups never wait for each other
in a circle. Writers of one group queue on its counter: order requires that.

A group's epoch is the second in which its counter was inserted, by the database's clock. A counter that is not used for
long is deleted (`Store.forget_groups`); the group's next event inserts it again, under a later epoch, and counts from
1. The epoch is evaluated by the statement that inserts the counter. So groups share nothing, and no pair of epoch and
number is given twice, whether a writer or the deletion comes first.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, TextClause, func, insert, select, text
from sqlalchemy.orm import Session, scoped_session

from sluice import limits
from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.messaging.database import connections, engines, server_settings
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.outbox import sessions, tables
from sluice.terminal.printable import printable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATEMENT_BYTES_MAX = 2**26  # far below the limit of Postgres for a message or an array, which is 1 GiB
# Counters are locked in the order given. The time of the messages is read after the locks, so that a group's times are
# in the order of its commits. A counter's time of use is updated once a minute at most: an update that changes no
# indexed column costs Postgres a sixth less. The messages have no RETURNING, so a producer needs no right to read the
# messages of other producers.
_WRITE = """
    WITH {events}counter AS (
        INSERT INTO sluice_outbox_group AS counted (topic, group_id, epoch, last_seq, updated_at_us)
        {counted}
        ON CONFLICT (topic, group_id) DO UPDATE SET
            last_seq = counted.last_seq + excluded.last_seq,
            updated_at_us = CASE WHEN excluded.updated_at_us - counted.updated_at_us < {used_us}
                THEN counted.updated_at_us ELSE excluded.updated_at_us END
        RETURNING group_id, epoch, first_seq, last_seq, {durable} AS is_durable
    ), numbered AS (
        SELECT group_id, epoch, first_seq, last_seq, {now_us} AS now_us FROM counter
    )
    INSERT INTO sluice_outbox (
        topic, group_id, group_seq, event_id, type, attributes, deduplication_id, created_at_us, body
    )
    SELECT
        {topic}, group_id, last_seq - {left}, {id}, {type}, {attributes}, {id}, now_us,
        {before} || (last_seq - {left}) || ',"epoch":' || epoch
            || CASE WHEN first_seq = 1 THEN '' ELSE ',"first":' || first_seq END
            || ',"at":"' || coalesce(nullif({instant}, ''), pg_catalog.to_char(
                timestamp '1970-01-01' + now_us * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'
            )) || '"' || {after}
    FROM {source}
"""
_MANY = {
    "events": """event AS (
        SELECT * FROM unnest(
            CAST(:all_group_id AS text[]), CAST(:all_id AS text[]), CAST(:all_type AS text[]),
            CAST(:all_attributes AS text[]), CAST(:all_before AS text[]), CAST(:all_after AS text[]),
            CAST(:all_instant AS text[]), CAST(:all_left AS bigint[])
        ) AS event (group_id, id, type, attributes, before, after, instant, still_left)
    ), """,
    "counted": """SELECT :topic, group_id, {now_us} / 1000000, added, {now_us}
        FROM unnest(CAST(:counted_groups AS text[]), CAST(:counts AS bigint[])) WITH ORDINALITY
            AS given (group_id, added, place)
        ORDER BY place""",
    "topic": ":topic",
    "left": "still_left",
    "source": "event JOIN numbered USING (group_id)",
    **{name: name for name in ("id", "type", "attributes", "before", "after", "instant")},
}
# Nearly every transaction writes one event: a statement without arrays and a join takes Postgres a fifth less time.
_SINGLE = {
    "events": "",
    "counted": "VALUES (CAST(:topic AS text), CAST(:group_id AS text), {now_us} / 1000000, 1, {now_us})",
    "left": "0",
    "source": "numbered",
    **{name: f"CAST(:{name} AS text)" for name in ("topic", "id", "type", "attributes", "before", "after", "instant")},
}
_WRITE_MANY, _WRITE_SINGLE = (
    _WRITE.format(now_us="{now_us}", durable=server_settings.DURABLE_SQL, used_us=tables.USED_EARLIER_US_MAX, **parts)
    for parts in (_MANY, _SINGLE)
)
_COUNT = """
    INSERT INTO sluice_outbox_group (topic, group_id, epoch, last_seq, updated_at_us)
    VALUES (:topic, :group_id, {now_us} / 1000000, :count, {now_us})
    ON CONFLICT (topic, group_id) DO UPDATE
        SET last_seq = last_seq + excluded.last_seq, updated_at_us = excluded.updated_at_us
    RETURNING epoch, first_seq, last_seq, {now_us} AS now_us
"""
_INSERT = insert(tables.messages).inline()
_NAME = re.compile(r"[A-Za-z0-9_-]{1,251}\.fifo")  # https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html


def channel(topic: str) -> str:
    """Return the name of the Postgres channel that notifies a relay of commits to a topic's outbox."""
    return f"sluice_outbox:{topic}"[:63]  # the longest name that Postgres accepts


class Outbox:
    """The outbox of one topic: a producer adds the events to publish. Any number of threads may share one.

    Args:
        topic: name of the topic (`sluice.declaration.naming.topic_name`).
        event_bytes_max: size of the largest message, as the environment declares it (`Environment.event_bytes_max`).
        notify: on Postgres, notify a waiting relay of each commit: the message leaves at once instead of at the next
            poll. Transactions that notify commit one after the other on Postgres, so leave it off if thousands commit a
            second. https://www.postgresql.org/docs/18/sql-notify.html (read 2026-11-21)
        clock: a clock for tests; None means the database's own.

    Raises:
        ConfigError: the topic is not the name of a FIFO topic (an ARN is not a name), or no topic accepts messages of
            that size.
    """

    def __init__(
        self,
        topic: str,
        *,
        event_bytes_max: int = limits.PUBLISH_BYTES_MAX,
        notify: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(topic, str) or not _NAME.fullmatch(topic):
            raise ConfigError(
                f"topic of Outbox is {printable(repr(topic))}, allowed is the name of a FIFO topic: up to"
                " 256 letters, digits, - and _, the last of them .fifo; naming.topic_name(environment) returns it"
            )
        if not limits.MESSAGE_BYTES_MIN <= event_bytes_max <= limits.MESSAGE_BYTES_MAX:
            raise ConfigError(
                f"event_bytes_max of Outbox is {event_bytes_max!r}, allowed is {limits.MESSAGE_BYTES_MIN} to"
                f" {limits.MESSAGE_BYTES_MAX} bytes; give the environment's event_bytes_max"
            )
        self.topic, self._event_bytes_max, self._notify, self._clock = topic, event_bytes_max, notify, clock

    def add(
        self,
        session: "Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]",
        event: Event,
    ) -> None:
        """Publish the event if, and only if, the session's transaction commits.

        This neither flushes nor commits, and is not awaited: nothing is sent before the commit. A rollback to a
        savepoint also removes the events that were added inside it. If OpenTelemetry is loaded, an event without a
        `trace` gets the current span.

        Raises:
            EnvelopeError: the message might be larger than `event_bytes_max`.
            ConfigError: the session is of another kind.
            OutboxError: the session is in the middle of its commit, and the numbers have been given; its transaction
                has failed; or its connection commits each statement by itself.
        """
        event = event.with_current_trace()
        event.check_size(self._event_bytes_max)
        found = _session_of(session)
        if not found.in_transaction():
            found.begin()
        sessions.unit_of(found).add(found, self.topic, self._write, event)

    def write(self, connection: Connection, events: Iterable[Event]) -> None:
        """Number and store events now. For code without a Session: call it once, as the last step before the commit.

        Events without a `trace` get the current span, the same as in `add`.

        Raises:
            EnvelopeError: a message might be larger than `event_bytes_max`; nothing is written.
            OutboxError: the tables are missing, or the database would not keep what it commits.
        """
        self._write(connection, [event.with_current_trace() for event in events])

    def _write(self, connection: Connection, events: Iterable[Event]) -> None:
        connections.leave_standbys(connection.engine)
        with engines.explaining_missing_tables():
            self.write_through(connection, events)

    def write_through(self, connection: Connection, events: Iterable[Event]) -> None:
        """Number and store events through a framework's own connection instead of SQLAlchemy's.

        The connection needs `dialect`, `execute`, `exec_driver_sql`, `connection` and `invalidated`, and raises the
        errors of its framework.
        """
        listed = sorted(events, key=lambda event: event.group)  # sorting is stable: the order within a group remains
        if not listed:
            return
        for event in listed:
            event.check_size(self._event_bytes_max)
        server_settings.require_durable(connection)
        sessions.require_transaction(connection)
        if connection.dialect.name != "postgresql":
            _store_after_counting(connection, self.topic, listed, self._clock)
            return
        for part in _split_by_size(listed):
            _store_in_one_statement(connection, self.topic, part, self._clock)
        if self._notify:
            connection.execute(select(func.pg_notify(channel(self.topic), "")))


def _session_of(given: object) -> Session:
    """Return the session that commits. A session of asyncio commits through its `sync_session`.

    https://docs.sqlalchemy.org/en/21/orm/extensions/asyncio.html#using-events-with-the-asyncio-extension (read
    2026-11-27)

    Raises:
        ConfigError: the argument is no session.
    """
    # a caller with such a session has imported it; importing it here would need greenlet
    loaded = sys.modules.get("sqlalchemy.ext.asyncio")
    if isinstance(given, scoped_session) or (loaded is not None and isinstance(given, loaded.async_scoped_session)):
        given = given()
    if loaded is not None and isinstance(given, loaded.AsyncSession):
        given = given.sync_session
    if not isinstance(given, Session):
        raise ConfigError(
            f"session of Outbox.add is {printable(type(given).__name__)}, allowed is SQLAlchemy's Session, AsyncSession"
            " or a scoped session of either"
        )
    return given


def _split_by_size(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events in order, in parts that fit one statement each: nearly always one part."""
    part: list[Event] = []
    room_bytes = _STATEMENT_BYTES_MAX
    for event in events:
        if part and event.size_bytes > room_bytes:
            yield part
            part, room_bytes = [], _STATEMENT_BYTES_MAX
        part.append(event)
        room_bytes -= event.size_bytes
    yield part


def _store_in_one_statement(connection: Connection, topic: str, events: Sequence[Event], clock: Clock | None) -> None:
    """Number and store events, sorted by group, in one round trip: the database puts the numbers into the bodies.

    A reader that sees number n also sees n - 1, because Postgres shows a commit before it releases the counter's lock.
    """
    if len(events) == 1:
        connection.execute(*_with_now(_WRITE_SINGLE, connection, clock, {"topic": topic, **_event_columns(events[0])}))
        return
    counts = Counter(event.group for event in events)
    left = dict(counts)
    rows = []
    for event in events:
        left[event.group] -= 1
        rows.append({**_event_columns(event), "left": left[event.group]})
    columns = {f"all_{name}": [row[name] for row in rows] for name in rows[0]}
    parameters = {"topic": topic, "counted_groups": list(counts), "counts": list(counts.values()), **columns}
    connection.execute(*_with_now(_WRITE_MANY, connection, clock, parameters))


def _event_columns(event: Event) -> dict[str, Any]:
    before, after = event.body_around_numbers
    return {
        "group_id": event.group,
        "id": event.id,
        "type": event.type,
        "attributes": _attributes(event),
        "before": before,
        "after": after,
        "instant": "" if event.at is None else event.at.astimezone(UTC).isoformat(),
    }


def _store_after_counting(connection: Connection, topic: str, events: Sequence[Event], clock: Clock | None) -> None:
    """Advance the counter of each group, then store its events, sorted by group. SQLite has no INSERT inside a WITH."""
    rows = []
    for group, grouped in groupby(events, key=lambda event: event.group):
        of_group = list(grouped)
        parameters = {"topic": topic, "group_id": group, "count": len(of_group)}
        counter = connection.execute(*_with_now(_COUNT, connection, clock, parameters)).one()
        instant = _EPOCH + timedelta(microseconds=counter.now_us)
        for seq, event in enumerate(of_group, counter.last_seq - len(of_group) + 1):
            envelope = Envelope(
                event=event, seq=seq, epoch=counter.epoch, first=counter.first_seq, committed_at=instant
            )
            rows.append(
                {
                    "topic": topic,
                    "group_id": group,
                    "group_seq": seq,
                    "event_id": event.id,
                    "type": event.type,
                    "body": envelope.body,
                    "attributes": _attributes(event),
                    "deduplication_id": envelope.deduplication_id,
                    "created_at_us": counter.now_us,
                }
            )
    connection.execute(_INSERT, rows)


def _with_now(
    statement: str, connection: Connection, clock: Clock | None, parameters: dict[str, Any]
) -> tuple[TextClause, dict[str, Any]]:
    return _fill_in_now(statement, engines.now_us_text(connection.dialect.name, clock)), parameters | _now(clock)


def _now(clock: Clock | None) -> dict[str, int]:
    return {} if clock is None else {"now_us": clock.now_us()}


@cache
def _fill_in_now(statement: str, now_us: str) -> TextClause:
    return text(statement.format(now_us=now_us))


def _attributes(event: Event) -> str:
    return json.dumps(event.message_attributes, ensure_ascii=False)
