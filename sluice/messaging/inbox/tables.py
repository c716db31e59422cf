"""The tables of the inbox, in the consumer's own database, for SQLite and Postgres alike.

Hosts create them: `inbox schema` prints the SQL. Instants (`_us`) are microseconds UTC by the database's clock.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from sluice.messaging.database.audit import audit_table
from sluice.messaging.database.schema import NUMBER

metadata = MetaData()

GAP, FILLED, DEAD, REDRIVEN, SKIPPED = "gap", "filled", "dead", "redriven", "skipped"
_PARKED = "parked_at_us IS NOT NULL"
_OPEN = "closed_at_us IS NULL"
_CLOSED = "closed_at_us IS NOT NULL"

groups = Table(
    "sluice_inbox_group",
    metadata,
    Column("consumer", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_event_id", Text),
    Column("awaits_seq", BigInteger),
    Column("awaits_until_us", BigInteger),
    Column("parked_at_us", BigInteger),
    Column("updated_at_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("consumer", "group_id"),
    Index(
        "sluice_inbox_group_parked",
        "consumer",
        "group_id",
        sqlite_where=text(_PARKED),
        postgresql_where=text(_PARKED),
    ),
    Index("sluice_inbox_group_updated", "consumer", "updated_at_us"),
    comment="how far each consumer is in each group; its row is locked while one of the group's messages is handled",
)

consumers = Table(
    "sluice_inbox_consumer",
    metadata,
    Column("consumer", Text, primary_key=True),
    Column("forgotten_before_us", BigInteger, nullable=False),
    comment="up to when each consumer has forgotten groups nothing came for: an older one may have been known",
)

exceptions = Table(
    "sluice_inbox_exception",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("consumer", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("through", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("event_id", Text),
    Column("sqs_message_id", Text),
    Column("receive_count", Integer),
    Column("reason", Text),
    Column("seen_at_us", BigInteger, nullable=False),
    Column("closed_at_us", BigInteger),
    CheckConstraint("state IN ('gap', 'filled', 'dead', 'redriven', 'skipped')", name="sluice_inbox_exception_state"),
    UniqueConstraint("consumer", "group_id", "epoch", "seq", name="sluice_inbox_exception_place"),
    Index(
        "sluice_inbox_exception_open",
        "consumer",
        "group_id",
        sqlite_where=text(_OPEN),
        postgresql_where=text(_OPEN),
    ),
    Index(
        "sluice_inbox_exception_closed",
        "consumer",
        "closed_at_us",
        sqlite_where=text(_CLOSED),
        postgresql_where=text(_CLOSED),
    ),
    comment="numbers that did not simply come and pass: seq to through, open until they are accounted for",
    sqlite_autoincrement=True,
)

parked = Table(
    "sluice_inbox_parked",
    metadata,
    Column("consumer", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("sqs_message_id", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("not_before_us", BigInteger, nullable=False, server_default=text("0")),
    Column("held_at_us", BigInteger),
    Column("last_error", Text),
    Column("parked_at_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("consumer", "group_id", "epoch", "seq"),
    comment="messages set aside until the one in front of them is back; held are those whose own attempts are used up",
)

audit = audit_table("sluice_inbox_audit", metadata, owner="consumer", seq="seq")
