"""The tables of the inbox, in the consumer's own database, on SQLite and on Postgres.

`sluice schema` creates the tables, or prints the SQL. Instants (`_us`) are microseconds UTC by the database's clock.
"""

import sqlalchemy as sa

from sluice.messaging.database.audit import audit_table
from sluice.messaging.database.migrations import Step, VersionedTables
from sluice.messaging.database.schema import KEY, NUMBER, partial_index

metadata = sa.MetaData()

GAP, FILLED, DEAD, REDRIVEN, SKIPPED = "gap", "filled", "dead", "redriven", "skipped"
_PARKED = "parked_at_us IS NOT NULL"
_OPEN = "closed_at_us IS NULL"
_CLOSED = "closed_at_us IS NOT NULL"

groups = sa.Table(
    "sluice_inbox_group",
    metadata,
    sa.Column("consumer", KEY, nullable=False),
    sa.Column("group_id", KEY, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("first_seq", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("last_event_id", sa.Text),
    sa.Column("awaits_seq", sa.BigInteger),
    sa.Column("awaits_until_us", sa.BigInteger),
    sa.Column("parked_at_us", sa.BigInteger),
    sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    sa.Column("handled_epoch", sa.BigInteger),
    sa.Column("handled_seq", sa.BigInteger),
    sa.Column("handled_at_us", sa.BigInteger),
    sa.Column("handled_attempt", sa.Integer),
    sa.Column("handled_by", sa.Text),
    sa.PrimaryKeyConstraint("consumer", "group_id"),
    partial_index("sluice_inbox_group_parked", "consumer", "group_id", where=_PARKED),
    sa.Index("sluice_inbox_group_updated", "consumer", "updated_at_us"),
    comment="how far each consumer is in each group; its row is locked while one of the group's messages is handled",
)

consumers = sa.Table(
    "sluice_inbox_consumer",
    metadata,
    sa.Column("consumer", KEY, primary_key=True),
    sa.Column("forgotten_before_us", sa.BigInteger, nullable=False),
    comment="up to when each consumer has forgotten groups nothing came for: an older one may have been known",
)

exceptions = sa.Table(
    "sluice_inbox_exception",
    metadata,
    sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
    sa.Column("consumer", KEY, nullable=False),
    sa.Column("group_id", KEY, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("through", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text),
    sa.Column("sqs_message_id", sa.Text),
    sa.Column("receive_count", sa.Integer),
    sa.Column("reason", sa.Text),
    sa.Column("is_permanent", sa.Boolean),
    sa.Column("seen_at_us", sa.BigInteger, nullable=False),
    sa.Column("closed_at_us", sa.BigInteger),
    sa.Column("handled_attempt", sa.Integer),
    sa.Column("handled_by", sa.Text),
    sa.CheckConstraint(
        "state IN ('gap', 'filled', 'dead', 'redriven', 'skipped')", name="sluice_inbox_exception_state"
    ),
    sa.UniqueConstraint("consumer", "group_id", "epoch", "seq", name="sluice_inbox_exception_place"),
    partial_index("sluice_inbox_exception_open", "consumer", "group_id", where=_OPEN),
    partial_index("sluice_inbox_exception_closed", "consumer", "closed_at_us", where=_CLOSED),
    comment="numbers that did not simply come and pass: seq to through, open until they are accounted for",
    sqlite_autoincrement=True,
)

parked = sa.Table(
    "sluice_inbox_parked",
    metadata,
    sa.Column("consumer", KEY, nullable=False),
    sa.Column("group_id", KEY, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("attributes", sa.Text, nullable=False),
    sa.Column("sqs_message_id", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("not_before_us", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("held_at_us", sa.BigInteger),
    sa.Column("last_error", sa.Text),
    sa.Column("parked_at_us", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("consumer", "group_id", "epoch", "seq"),
    comment="messages set aside until the one in front of them is back; held are those whose own attempts are used up",
)

attempts = sa.Table(
    "sluice_inbox_attempt",
    metadata,
    sa.Column("consumer", KEY, nullable=False),
    sa.Column("sqs_message_id", KEY, nullable=False),
    sa.Column("group_id", KEY, nullable=False),
    sa.Column("failed_count", sa.Integer, nullable=False),
    sa.Column("unfinished_count", sa.Integer, nullable=False),
    sa.Column("receive_count", sa.Integer, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("consumer", "sqs_message_id"),
    sa.Index("sluice_inbox_attempt_updated", "consumer", "updated_at_us"),
    comment="attempts at messages that came more than once, of consumers that Lambda invokes: a receive may be none",
)

bundles = sa.Table(
    "sluice_inbox_bundle",
    metadata,
    sa.Column("consumer", KEY, nullable=False),
    sa.Column("sqs_message_id", KEY, nullable=False),
    sa.Column("settled_count", sa.Integer, nullable=False),
    sa.Column("receive_count", sa.Integer, nullable=False),
    sa.Column("updated_at_us", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("consumer", "sqs_message_id"),
    sa.Index("sluice_inbox_bundle_updated", "consumer", "updated_at_us"),
    comment="bundles that come again: how many events at the front are settled, the dead ones in the DLQ",
)

redrives = sa.Table(
    "sluice_inbox_redrive",
    metadata,
    sa.Column("consumer", KEY, primary_key=True),
    sa.Column("run", sa.Text),
    sa.Column("held_until_us", sa.BigInteger),
    sa.Column("off_at_us", sa.BigInteger),
    comment="automatic redrive of each consumer: the run that has it now, and since when it is off",
)

pauses = sa.Table(
    "sluice_inbox_pause",
    metadata,
    sa.Column("consumer", KEY, primary_key=True),
    sa.Column("paused_at_us", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    comment="consumers that are paused, since when, by whom and why; a resumed consumer has no row",
)

audit = audit_table("sluice_inbox_audit", metadata, owner="consumer", seq="seq")

WORKER_RIGHTS = {
    "sluice_inbox_group": "SELECT, INSERT, UPDATE, DELETE",
    "sluice_inbox_exception": "SELECT, INSERT, UPDATE, DELETE",
    "sluice_inbox_parked": "SELECT, INSERT, UPDATE, DELETE",
    "sluice_inbox_consumer": "SELECT, INSERT, UPDATE",
    "sluice_inbox_redrive": "SELECT",
    "sluice_inbox_pause": "SELECT",
    "sluice_inbox_attempt": "SELECT, INSERT, UPDATE, DELETE",
    "sluice_inbox_bundle": "SELECT, INSERT, UPDATE, DELETE",
}
"""The rights that a worker or a Lambda function needs on each table. Whatever is declared, a bundle may come."""

versioned = VersionedTables(
    "inbox",
    metadata,
    steps=(
        Step(("ALTER TABLE sluice_inbox_exception ADD COLUMN is_permanent BOOLEAN",)),
        Step(recollates=True),
        Step(),  # sluice_inbox_attempt is new
        Step(
            (
                "ALTER TABLE sluice_inbox_group ADD COLUMN handled_epoch BIGINT",
                "ALTER TABLE sluice_inbox_group ADD COLUMN handled_seq BIGINT",
                "ALTER TABLE sluice_inbox_group ADD COLUMN handled_at_us BIGINT",
                "ALTER TABLE sluice_inbox_group ADD COLUMN handled_attempt INTEGER",
                "ALTER TABLE sluice_inbox_group ADD COLUMN handled_by TEXT",
                "ALTER TABLE sluice_inbox_exception ADD COLUMN handled_attempt INTEGER",
                "ALTER TABLE sluice_inbox_exception ADD COLUMN handled_by TEXT",
            )
        ),
        Step(),  # sluice_inbox_bundle is new
        Step(),  # sluice_inbox_pause is new
    ),
)
