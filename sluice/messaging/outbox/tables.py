"""The tables of the outbox, for SQLite and Postgres.

`sluice schema` creates the tables, or prints the SQL. Times (`_us`) are microseconds UTC by the database's clock,
because the drivers of both databases agree on an integer.
"""

import sqlalchemy as sa

from sluice.messaging.database.audit import audit_table
from sluice.messaging.database.migrations import Step, VersionedTables
from sluice.messaging.database.schema import KEY, NUMBER, partial_index

metadata = sa.MetaData()

PENDING, SENT, QUARANTINED = "pending", "sent", "quarantined"
USED_EARLIER_US_MAX = 60_000_000
"""A group may have been used so much later than `updated_at_us` says."""
_UNFINISHED, _QUARANTINED = "status <> 'sent'", "status = 'quarantined'"

groups = sa.Table(
    "sluice_outbox_group",
    metadata,
    sa.Column("topic", KEY, nullable=False),
    sa.Column("group_id", KEY, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    sa.Column("first_seq", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("updated_at_us", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.PrimaryKeyConstraint("topic", "group_id"),
    sa.Index("sluice_outbox_group_unused", "topic", "updated_at_us"),
    comment="the last number of each group; locked from its allocation to the commit, so numbers are in commit order",
)

messages = sa.Table(
    "sluice_outbox",
    metadata,
    sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
    sa.Column("topic", KEY, nullable=False),
    sa.Column("group_id", KEY, nullable=False),
    sa.Column("group_seq", sa.BigInteger, nullable=False),
    sa.Column("event_id", KEY, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("attributes", sa.Text, nullable=False),
    sa.Column("deduplication_id", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default=sa.text("'pending'")),
    sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("not_before_us", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("last_error", sa.Text),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("sent_at_us", sa.BigInteger),
    sa.Column("sns_message_id", sa.Text),
    sa.Column("sns_sequence_number", sa.Text),
    sa.CheckConstraint("status IN ('pending', 'sent', 'quarantined')", name="sluice_outbox_status"),
    sa.UniqueConstraint("topic", "group_id", "group_seq", name="sluice_outbox_place"),
    sa.UniqueConstraint("topic", "event_id", name="sluice_outbox_event"),
    partial_index("sluice_outbox_unfinished", "topic", "group_id", "group_seq", where=_UNFINISHED),
    partial_index("sluice_outbox_oldest", "topic", "created_at_us", where=_UNFINISHED),
    partial_index("sluice_outbox_quarantined", "topic", "group_id", where=_QUARANTINED),
    partial_index("sluice_outbox_sent", "topic", "sent_at_us", where="status = 'sent'"),
    comment="what was committed, in the order of each group",
    sqlite_autoincrement=True,
)

leases = sa.Table(
    "sluice_outbox_lease",
    metadata,
    sa.Column("topic", KEY, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    sa.Column("lease_us", sa.BigInteger, nullable=False, server_default=sa.text("30000000")),
    sa.Column("led_token", sa.BigInteger),
    sa.Column("led_since_us", sa.BigInteger),
    comment="which relay leads; every takeover raises the token",
)

bundles = sa.Table(
    "sluice_outbox_bundle",
    metadata,
    sa.Column("first_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_count", sa.Integer, nullable=False),
    comment="messages that are to be sent, or may have been, as so many events from this row of sluice_outbox on",
)

switches = sa.Table(
    "sluice_outbox_switch",
    metadata,
    sa.Column("topic", KEY, primary_key=True),
    sa.Column("bundle_events_max", sa.Integer, nullable=False),
    sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    comment="how many events of a group a relay may send in one message, as an operator switched it",
)

audit = audit_table("sluice_outbox_audit", metadata, owner="topic", seq="group_seq")

RELAY_RIGHTS = {
    "sluice_outbox": "SELECT, UPDATE, DELETE",
    "sluice_outbox_group": "SELECT, UPDATE, DELETE",
    "sluice_outbox_lease": "SELECT, INSERT, UPDATE",
    "sluice_outbox_bundle": "SELECT, INSERT, DELETE",
    "sluice_outbox_switch": "SELECT",
}
"""The rights that a relay needs on each table."""

versioned = VersionedTables(
    "outbox",
    metadata,
    steps=(
        Step(
            (
                f"CREATE INDEX sluice_outbox_oldest ON sluice_outbox (topic, created_at_us) WHERE {_UNFINISHED}",
                f"CREATE INDEX sluice_outbox_quarantined ON sluice_outbox (topic, group_id) WHERE {_QUARANTINED}",
            )
        ),
        Step(recollates=True),
        Step(
            (
                "ALTER TABLE sluice_outbox_lease ADD COLUMN led_token BIGINT",
                "ALTER TABLE sluice_outbox_lease ADD COLUMN led_since_us BIGINT",
            )
        ),
        Step(),  # sluice_outbox_bundle and sluice_outbox_switch are new
    ),
)
