"""The tables of outbox and inbox from the command line: their SQL, their creation, and what differs."""

import sys
from pathlib import Path

import click
from sqlalchemy import Engine, MetaData

from sluice.cli.place import dsn_from_secret
from sluice.declaration import load_task_declaration
from sluice.messaging.database import engines, schema
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from sluice.terminal import output
from sluice.terminal.exits import PARTLY

_PARTS = {"outbox": tables.metadata, "inbox": inbox_tables.metadata}


def create(
    *,
    part: str,
    kind: str | None,
    is_applied: bool,
    environment_name: str,
    declaration: Path | None,
    dsn: str | None,
) -> None:
    """Run the command `schema` of outbox or inbox."""
    metadata = _PARTS[part]
    if is_applied == (kind is not None):
        raise click.UsageError("give one of --sql postgresql, --sql sqlite, or --apply with --dsn")
    if kind is not None:
        output.lines(schema.sql(kind, metadata).removesuffix("\n"))
        return
    engine = engines.engine(dsn or dsn_from_secret(load_task_declaration(declaration).environment(environment_name)))
    with engine.begin() as connection:
        metadata.create_all(connection)
    engine.dispose()
    output.line(f"the {part}'s tables are there", is_error=True)


def report_drift(engine: Engine, metadata: MetaData) -> None:
    """Print where a database's tables differ from what is needed, a line each; then exit with 1."""
    with engine.connect() as connection:
        found = schema.drift(connection, metadata)
    for sentence in found:
        output.line(sentence)
    if found:
        sys.exit(PARTLY)
    output.line("the tables are as this version needs them", is_error=True)
