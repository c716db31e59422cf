"""The tables of the outbox, for SQLite and Postgres alike.

Hosts create them: `outbox schema` prints the SQL. Instants (`_us`) are microseconds UTC by the database's clock:
two databases' drivers agree on an integer.
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

PENDING, SENT, QUARANTINED = "pending", "sent", "quarantined"
_UNFINISHED = "status <> 'sent'"

groups = Table(
    "sluice_outbox_group",
    metadata,
    Column("topic", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default=text("1")),
    Column("first_seq", BigInteger, nullable=False, server_default=text("1")),
    Column("last_seq", BigInteger, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("topic", "group_id"),
    Index("sluice_outbox_group_unused", "topic", "updated_at_us"),
    comment="the last number of each group; locked from its allocation to the commit, so numbers are in commit order",
)

messages = Table(
    "sluice_outbox",
    metadata,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("topic", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("group_seq", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("deduplication_id", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("not_before_us", BigInteger, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    Column("created_at_us", BigInteger, nullable=False),
    Column("sent_at_us", BigInteger),
    Column("sns_message_id", Text),
    Column("sns_sequence_number", Text),
    CheckConstraint("status IN ('pending', 'sent', 'quarantined')", name="sluice_outbox_status"),
    UniqueConstraint("topic", "group_id", "group_seq", name="sluice_outbox_place"),
    UniqueConstraint("topic", "event_id", name="sluice_outbox_event"),
    Index(
        "sluice_outbox_unfinished",
        "topic",
        "group_id",
        "group_seq",
        sqlite_where=text(_UNFINISHED),
        postgresql_where=text(_UNFINISHED),
    ),
    Index(
        "sluice_outbox_sent",
        "topic",
        "sent_at_us",
        sqlite_where=text("status = 'sent'"),
        postgresql_where=text("status = 'sent'"),
    ),
    comment="what was committed, in the order of each group",
    sqlite_autoincrement=True,
)

leases = Table(
    "sluice_outbox_lease",
    metadata,
    Column("topic", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    Column("lease_us", BigInteger, nullable=False, server_default=text("30000000")),
    comment="which relay leads; every takeover raises the token",
)

audit = audit_table("sluice_outbox_audit", metadata, owner="topic", seq="group_seq")
