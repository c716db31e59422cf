"""The audit of operators' actions on an outbox or an inbox, with their reasons.

An action and its row are one transaction.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    Text,
    and_,
    false,
    insert,
    or_,
    select,
)

from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.messaging.database import engines, schema
from sluice.messaging.database.choice import EVERYTHING, RowChoice
from sluice.messaging.database.server_settings import DURABLE
from sluice.messaging.envelope import decode
from sluice.messaging.errors import EnvelopeError

_PAGE = 500


def audit_table(name: str, metadata: MetaData, *, owner: str, seq: str) -> Table:
    """Return the table that records operators' actions.

    Args:
        name: of the table.
        metadata: the metadata that the table belongs to.
        owner: the name of the column for the topic or the consumer.
        seq: the name of the column for the number of a message in its group.
    """
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
    """An operator, who acts with a reason.

    Args:
        clock: a clock for tests; None means the database's own.

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
        """Insert an action's row: the columns of its place, and as JSON the data that the action deletes."""
        row = {
            "at_us": engines.now_us(connection, self.clock),
            "actor": self.actor,
            "action": action,
            "reason": self.reason,
            "detail": json.dumps(detail, ensure_ascii=False),
        }
        connection.execute(insert(table).values({**row, **place}).returning(DURABLE))


def acts(
    connection: Connection,
    owner: Column[str],
    name: str,
    *,
    choice: RowChoice = EVERYTHING,
    most: int,
    before_id: int | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of the last actions, newest first.

    Args:
        connection: to the database of the audit.
        owner: the audit table's column for the topic or the consumer.
        name: the topic's or the consumer's name.
        choice: by the type of the action's message, and by the error with which the message had failed. A redrive is
            an action on each group of which it brought back a message.
        most: the number of rows at most.
        before_id: only rows with a smaller id; None begins with the newest.
    """
    table = owner.table
    here = (owner == name, _is_of_groups(table, choice), choice.is_since(table.c.at_us))
    ordered = select(table).where(*here).order_by(table.c.id.desc())
    if before_id is not None:
        ordered = ordered.where(table.c.id < before_id)
    if not choice.types and choice.died_of is None and not choice.groups:
        ordered = ordered.limit(most)
    with connection.execute(ordered.execution_options(yield_per=_PAGE)) as found:  # Postgres has a cursor open for it
        rows = (dict(row) for row in found.mappings())
        chosen = (row for row in rows if _is_of_group(row, choice) and _is_chosen(row["detail"], choice))
        return list(islice(chosen, most))


def moved_numbers(detail: str | None) -> list[tuple[str, int | None, int | None]]:
    """Return group, epoch and number of each message that a redrive brought back, as far as the audit has them."""
    return [(group, epoch, seq) for group, epoch, seq in json.loads(detail or "{}").get("moved", ())]


def _is_of_groups(table: Table, choice: RowChoice) -> ColumnElement[bool]:
    """Return the condition that an action may be about one of the chosen groups: a redrive names them in its data."""
    named = (table.c.detail.contains(json.dumps(group, ensure_ascii=False), autoescape=True) for group in choice.groups)
    return or_(choice.in_groups(table.c.group_id), and_(table.c.group_id.is_(None), or_(false(), *named)))


def _is_of_group(row: Mapping[str, Any], choice: RowChoice) -> bool:
    moved = [] if row["group_id"] is not None or not choice.groups else moved_numbers(row["detail"])
    return choice.matches_group(row["group_id"]) or any(choice.matches_group(group) for group, *_ in moved)


def _is_chosen(detail: str | None, choice: RowChoice) -> bool:
    """Return whether an action is chosen, by the type and the error of its message in `detail`, which is JSON."""
    if not choice.types and choice.died_of is None:
        return True
    kept = json.loads(detail or "{}")
    type_ = kept.get("type")
    if type_ is None and "body" in kept:
        try:
            type_ = decode(kept["body"]).event.type
        except EnvelopeError:
            type_ = None
    return choice.matches_type(type_) and choice.matches_reason(kept.get("last_error") or kept.get("fault"))
