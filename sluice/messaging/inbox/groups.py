"""A consumer's position in each group: one row per group, locked by the transaction that works on the group.

The parts of the inbox share this: the consumer's policy, a message as it arrived, and the rows of the groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Executable,
    Row,
    Select,
    bindparam,
    case,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from sluice.clock import Clock
from sluice.declaration import Consumer, Gaps, Poison
from sluice.messaging.database import engines
from sluice.messaging.database.server_settings import DURABLE
from sluice.messaging.envelope import TOMBSTONE, Envelope
from sluice.messaging.inbox.gaps import SequenceGaps
from sluice.messaging.inbox.sequence import Arrival, Decision, Position, State, baseline
from sluice.messaging.inbox.tables import consumers, groups


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPolicy:
    """The policy of a consumer's inbox for missing numbers.

    Args:
        consumer: name of the consumer; several consumers may have their inboxes in one database.
        parks_poison: whether messages behind a dead message are set aside.
        parks_gaps: whether messages behind a missing number are set aside.
        gap_wait_us: how long a missing number is waited for, microseconds; None means until an operator acts.
        records_gaps: whether a missing number is recorded; False if a filter policy leaves messages out.
        joined_at_us: when the consumer joined a topic that was in use, microseconds UTC: an older group begins with its
            first message that arrives. None means that every group begins with its first number.
    """

    consumer: str
    parks_poison: bool = False
    parks_gaps: bool = False
    gap_wait_us: int | None = None
    records_gaps: bool = True
    joined_at_us: int | None = None

    @classmethod
    def of_consumer(cls, consumer: Consumer) -> "InboxPolicy":
        """Return the policy that a consumer declares."""
        return cls(
            consumer=consumer.name,
            parks_poison=consumer.poison is Poison.PARK,
            parks_gaps=consumer.gaps is not Gaps.RECORD,
            gap_wait_us=consumer.gap_wait_seconds * 1_000_000 if consumer.gaps is Gaps.WAIT else None,
            records_gaps=consumer.filter_policy is None,
            joined_at_us=None if consumer.joined_at is None else round(consumer.joined_at.timestamp() * 1_000_000),
        )

    @property
    def parks(self) -> bool:
        """Return whether anything is ever set aside."""
        return self.parks_poison or self.parks_gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMessage:
    """A received message after decoding.

    Args:
        receive_count: how often the message was received, including this time.
        attempt: the number of the attempt that is made at the message, from 1.
        position: the place of the event in its bundle, from 0; None if it came in a message of its own.
    """

    envelope: Envelope
    body: str
    attributes: Mapping[str, str]
    sqs_message_id: str
    receive_count: int
    attempt: int = 1
    position: int | None = None

    @property
    def dead_letter_id(self) -> str:
        """Return the id by which a dead letter of the event is found: its SQS message id, or part of a bundle's."""
        return self.sqs_message_id if self.position is None else f"{self.sqs_message_id}.{self.position}"

    @property
    def arrival(self) -> Arrival:
        """Return the part of the message that the rules of `sequence` need."""
        return Arrival(
            epoch=self.envelope.epoch,
            seq=self.envelope.seq,
            event_id=self.envelope.event.id,
            sqs_message_id=self.dead_letter_id,
            receive_count=self.receive_count,
            first=self.envelope.first,
        )


class LockedGroup(NamedTuple):
    """A consumer's position in a group whose row is locked, the time of the lock, and Postgres' identity of it."""

    position: Position
    now_us: int
    lock: "RowLock | None"


class RowLock(NamedTuple):
    """Postgres's ids of the transaction that has locked a group's row, and of the row's table."""

    transaction_id: int
    table_id: int


class GroupRows:
    """The rows of one consumer's groups. The caller of each method that changes a row has locked the row.

    Args:
        clock: a clock for tests; None means the database's own.
        worker: the name of this process, which stands beside each number that it handles; None is unknown.
    """

    def __init__(self, policy: InboxPolicy, *, clock: Clock | None, worker: str | None = None) -> None:
        self._policy, self._clock, self._worker = policy, clock, worker
        self.gaps = SequenceGaps(policy.consumer, records_gaps=policy.records_gaps)

    def now_us(self, connection: Connection) -> int:
        """Return the instant, microseconds UTC."""
        return engines.now_us(connection, self._clock)

    def find(self, group_id: str) -> Select[Any]:
        """Return the statement that selects a group's row; the caller adds the lock."""
        return select(groups).where(groups.c.consumer == self._policy.consumer, groups.c.group_id == group_id)

    def lock(self, connection: Connection, group_id: str, arrival: Arrival) -> "LockedGroup":
        """Lock the row of a group, inserting it if it is missing, and return the consumer's position in the group.

        One statement does both. If the message begins an epoch, the position is the one before the epoch's baseline;
        the row does not have the new epoch yet.
        """
        values = {"consumer": self._policy.consumer, "group_id": group_id, "epoch": 0, "first_seq": 0, "last_seq": 0}
        if self._clock is not None:
            values["updated_at_us"] = self._clock.now_us()
        row = connection.execute(_locking(connection.dialect.name, is_timed=self._clock is None), values).one()
        position = position_of(row)
        if arrival.epoch > position.epoch and not position.is_parked:
            position = self.enter_epoch(connection, group_id, position, arrival, row.updated_at_us)
        lock = None if row.transaction_id is None else RowLock(row.transaction_id, row.table_id)
        return LockedGroup(position, row.updated_at_us, lock)

    def row_lock(self, connection: Connection) -> RowLock | None:
        """Return Postgres' identity of the locks of this transaction; None on SQLite."""
        return None if connection.dialect.name == "sqlite" else RowLock(*connection.execute(_LOCK).one())

    def was_locked_since(self, connection: Connection, group_id: str, now_us: int) -> bool:
        """Return whether a transaction that locked a group's row at an instant or later was committed."""
        locked_at_us = connection.execute(self.find(group_id).with_only_columns(groups.c.updated_at_us)).scalar()
        return locked_at_us is not None and locked_at_us >= now_us

    def holds(self, connection: Connection, lock: RowLock) -> bool:
        """Return whether this transaction holds the lock, and the tables' names still mean the inbox's own tables."""
        return bool(connection.execute(_HOLDS, lock._asdict()).scalar_one())

    def enter_epoch(
        self, connection: Connection, group_id: str, before: Position, arrival: Arrival, now_us: int
    ) -> Position:
        """Record the numbers that are missing at the end of the earlier epoch; return the position in the new one."""
        is_known = before.epoch > 0
        if is_known:  # a restored producer continues after its last stored number
            missing = (before.last_seq + 1, arrival.first - 1)
            self.gaps.write_missing(connection, group_id, before.epoch, missing, now_us)
        is_first = is_known or arrival.seq == arrival.first
        first_seq = baseline(
            arrival,
            joined_at_us=self._policy.joined_at_us,
            forgotten_before_us=None if is_first else self.oldest_kept_us(connection),
        )
        return Position(epoch=arrival.epoch, first_seq=first_seq, last_seq=first_seq - 1, is_parked=before.is_parked)

    def oldest_kept_us(self, connection: Connection) -> int | None:
        """Return up to when groups without messages may have been forgotten, microseconds UTC; None if none were."""
        mine = consumers.c.consumer == self._policy.consumer
        return connection.execute(select(consumers.c.forgotten_before_us).where(mine)).scalar()

    def advance(
        self,
        connection: Connection,
        envelope: Envelope,
        position: Position,
        decision: Decision,
        now_us: int,
        *,
        attempt: int | None,
        lock: RowLock | None = None,
    ) -> bool | None:
        """Count the number of a message, and record missing numbers before it or close its own record.

        If `lock` is given, rows change only if this transaction holds the lock and the tables are the inbox's own.
        `attempt` is the attempt that handled the message, and None if the message died.

        Returns:
            Whether the rows were changed; None without a `lock`.
        """
        group_id, epoch, seq = envelope.event.group, envelope.epoch, envelope.seq
        if lock is not None and not (_is_plain(envelope, position, decision) or self.holds(connection, lock)):
            return False
        is_handled = attempt is not None
        handled = {"handled_attempt": attempt, "handled_by": self._worker}
        may_close = is_handled and (decision.state in (State.LATE, State.FILLED) or position.is_parked)
        is_closed = may_close and self.gaps.close(connection, envelope, now_us, handled)
        if envelope.event.type == TOMBSTONE and not is_closed:
            self.gaps.write_skipped(connection, group_id, epoch, seq, now_us, reason="tombstone")
            is_closed = True
        if (epoch, seq) <= (position.epoch, position.last_seq):
            if decision.state is State.FILLED and not is_closed:
                self.gaps.write_filled(connection, envelope, now_us, handled)
            return None if lock is None else True
        self.gaps.write_missing(connection, group_id, epoch, (position.last_seq + 1, seq - 1), now_us)
        last_seq = self.gaps.over_skipped(connection, group_id, epoch, seq) if position.is_parked else seq
        advanced = self._columns_behind(envelope, position, last_seq, now_us, attempt)
        if lock is None:
            self.write(connection, group_id, advanced)
            return None
        return connection.execute(_CHANGE_IN, advanced | self._key(group_id) | lock._asdict()).rowcount == 1

    def advance_at_once(
        self, envelope: Envelope, position: Position, decision: Decision, now_us: int, *, attempt: int, lock: RowLock
    ) -> tuple[str, dict[str, Any]] | None:
        """Return the one statement of Postgres that `advance` executes, for psycopg, with its parameters.

        It divides by zero if it changes no row. None means that `advance` needs more than one.
        """
        if envelope.event.type == TOMBSTONE or not _is_plain(envelope, position, decision):
            return None
        advanced = self._columns_behind(envelope, position, envelope.seq, now_us, attempt)
        return _change_at_once(), advanced | self._key(envelope.event.group) | lock._asdict()

    def _columns_behind(
        self, envelope: Envelope, position: Position, last_seq: int, now_us: int, attempt: int | None
    ) -> dict[str, Any]:
        """Return the columns of a group's row behind a message; `attempt` is None if it died."""
        advanced = {
            "epoch": envelope.epoch,
            "first_seq": position.first_seq,
            "last_seq": last_seq,
            "last_event_id": envelope.event.id if attempt is not None and last_seq == envelope.seq else None,
        }
        if attempt is not None:
            advanced |= {
                "handled_epoch": envelope.epoch,
                "handled_seq": envelope.seq,
                "handled_at_us": now_us,
                "handled_attempt": attempt,
                "handled_by": self._worker,
            }
        return advanced

    def _key(self, group_id: str) -> dict[str, Any]:
        return {"of_consumer": self._policy.consumer, "of_group": group_id}

    def write(self, connection: Connection, group_id: str, values: Mapping[str, Any]) -> None:
        """Change the row of a group."""
        connection.execute(_CHANGE, self._key(group_id) | dict(values))


def _is_plain(envelope: Envelope, position: Position, decision: Decision) -> bool:
    """Return whether a message is the next of a group that nothing holds up, so that only its number has to change."""
    is_next = (envelope.epoch, envelope.seq) == (position.epoch, position.last_seq + 1)
    return is_next and decision.state is State.CONTIGUOUS and not position.is_parked


def position_of(row: Row[Any]) -> Position:
    """Return the position that the row of a group contains."""
    return Position(
        epoch=row.epoch,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        last_event_id=row.last_event_id,
        awaits_seq=row.awaits_seq,
        is_parked=row.parked_at_us is not None,
    )


def columns_of(position: Position) -> dict[str, Any]:
    """Return the columns of a group's row that say how far the consumer is."""
    return {
        "epoch": position.epoch,
        "first_seq": position.first_seq,
        "last_seq": position.last_seq,
        "last_event_id": position.last_event_id,
    }


_CHANGE = update(groups).where(
    groups.c.consumer == bindparam("of_consumer"), groups.c.group_id == bindparam("of_group"), DURABLE
)

_CHANGE_IN = _CHANGE.where(
    literal_column("pg_catalog.txid_current_if_assigned()") == bindparam("transaction_id", type_=BigInteger),
    literal_column("tableoid") == bindparam("table_id", type_=BigInteger),
)
"""Changes the row only if this transaction holds the lock. A check of its own would be one more round trip."""


@cache
def _change_at_once() -> str:
    """Return `_CHANGE_IN` of a handled message as psycopg's text, with an error where it changes no row."""
    of_handled = ("epoch", "seq", "at_us", "attempt", "by")
    columns = ["epoch", "first_seq", "last_seq", "last_event_id", *(f"handled_{name}" for name in of_handled)]
    dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
    change = _CHANGE_IN.compile(dialect=dialect, column_keys=columns)
    return f"WITH changed AS ({change} RETURNING 1) SELECT 1 / pg_catalog.count(*) FROM changed"  # noqa: S608 (of constants)


# A handler may have created a temporary table of the same name, or set a search path: then the name means a table
# that is not the inbox's.
# https://www.postgresql.org/docs/18/runtime-config-client.html#GUC-SEARCH-PATH,
# https://www.postgresql.org/docs/18/ddl-system-columns.html (read 2026-11-27)
_LOCK = text("SELECT pg_catalog.txid_current(), CAST(pg_catalog.to_regclass('sluice_inbox_group') AS oid)")
_HOLDS = text("""
    SELECT pg_catalog.txid_current_if_assigned() = :transaction_id AND pg_catalog.count(*) = 3
    FROM pg_catalog.pg_class AS locked JOIN pg_catalog.pg_class AS found USING (relnamespace)
    WHERE locked.oid = :table_id AND found.oid IN (pg_catalog.to_regclass('sluice_inbox_group'),
        pg_catalog.to_regclass('sluice_inbox_exception'), pg_catalog.to_regclass('sluice_inbox_parked'))
""")


@cache
def _locking(dialect: str, *, is_timed: bool) -> Executable:
    """Return the statement that inserts or finds a group's row and locks it, with the database's time if `is_timed`.

    The statement is built once, like `_CHANGE`, because building takes longer than executing.
    """
    made = engines.insert(dialect, groups)
    if is_timed:
        made = made.values(updated_at_us=engines.now_us_sql(dialect))
    set_ = {"updated_at_us": made.excluded.updated_at_us}
    locking = made.on_conflict_do_update(index_elements=["consumer", "group_id"], set_=set_)
    of_position = ("epoch", "first_seq", "last_seq", "last_event_id", "awaits_seq", "parked_at_us", "updated_at_us")
    lock = [case((DURABLE, engines.transaction_id_sql(dialect))).label("transaction_id")]
    if dialect == "postgresql":
        lock.append(literal_column(f"{groups.name}.tableoid", BigInteger).label("table_id"))
    return locking.returning(*(groups.c[name] for name in of_position), *lock)
