"""The audit of operators' acts on an outbox or an inbox, and their reasons: an act and its row are one transaction."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text, insert, select

from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.messaging.database import engines, schema
from sluice.messaging.database.server_settings import DURABLE


def audit_table(name: str, metadata: MetaData, *, owner: str, seq: str) -> Table:
    """Return the table of what operators did."""
    return Table(
        name,
        metadata,
        Column("id", schema.NUMBER, primary_key=True, autoincrement=True),
        Column("at_us", BigInteger, nullable=False),
        Column("actor", Text, nullable=False),
        Column("action", Text, nullable=False),
        Column(owner, Text, nullable=False),
        Column("group_id", Text),
        Column(seq, BigInteger),
        Column("reason", Text, nullable=False),
        Column("detail", Text),
        comment="what operators did, and why",
        sqlite_autoincrement=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Somebody who acts, with a reason.

    Args:
        clock: for tests; None means the database's own.

    Raises:
        ConfigError: the reason is empty.
    """

    actor: str
    reason: str
    clock: Clock | None = None

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ConfigError("the reason is empty, allowed is a sentence: the audit keeps it")

    def _record(
        self,
        connection: Connection,
        table: Table,
        action: str,
        place: Mapping[str, str | int | None],
        detail: Mapping[str, Any],
    ) -> None:
        """Record an act: where it was done, and what would be lost with it."""
        row = {
            "at_us": engines.now_us(connection, self.clock),
            "actor": self.actor,
            "action": action,
            "reason": self.reason,
            "detail": json.dumps(detail, ensure_ascii=False),
        }
        connection.execute(insert(table).values({**row, **place}).returning(DURABLE))


def acts(connection: Connection, owner: Column[str], name: str, *, most: int) -> list[dict[str, Any]]:
    """Return the last `most` acts, newest first."""
    table = owner.table
    rows = connection.execute(select(table).where(owner == name).order_by(table.c.id.desc()).limit(most))
    return [dict(row) for row in rows.mappings()]
