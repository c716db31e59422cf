"""Every table of ours, for the migrations of a database's owner: docs/guides/producers.md#your-own-migrations."""

from collections.abc import Mapping

from sqlalchemy import MetaData

from sluice.messaging.database.migrations import versions
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox

metadata = MetaData()
"""The tables of outbox and inbox, and that of their versions: Alembic's `target_metadata` beside the owner's own."""
for _table in (*outbox.metadata.sorted_tables, *inbox.metadata.sorted_tables, versions):
    _table.to_metadata(metadata)


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:  # noqa: ARG001
    """Return whether an object of a database is not one of Sluice's tables: a hook for Alembic.

    With it Alembic leaves Sluice's tables to `sluice schema`.
    https://alembic.sqlalchemy.org/en/latest/autogenerate.html#omitting-table-names-from-the-autogenerate-process
    (read 2026-11-26)
    """
    return type_ != "table" or name not in metadata.tables
