"""A consumer's database: in memory, in a file, or on a real Postgres; and the world around it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Engine, MetaData

from sluice.messaging.database import schema
from tests.support.messaging import fresh_tables
from tests.support.messaging.world import METADATA, World


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a consumer whose database is in memory: for what runs in one thread on one connection."""
    with fresh_tables.sqlite(None, *METADATA) as engine:
        yield World(engine)


@pytest.fixture
def on_file(database_folder: Path) -> Iterator[Engine]:
    """Yield an engine on an SQLite file with all tables, which several threads may use."""
    with fresh_tables.sqlite(database_folder / "inbox.db", *METADATA) as made:
        yield made


@pytest.fixture
def postgres_tables() -> tuple[MetaData, ...]:
    """Return all tables, which a database of a worker's tests has."""
    return METADATA


@pytest.fixture
def on_postgres(postgres: Engine) -> Engine:
    """Return an engine on a real Postgres with all tables."""
    return postgres


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Run the test twice: with the tables in an SQLite file, and in Postgres."""
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "on_file")
    return chosen


@pytest.fixture
def world_on_each_database(engine: Engine) -> World:
    """Return a consumer whose database is first an SQLite file, then Postgres."""
    return World(engine)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Render no log lines, because drawing a traceback for a terminal takes longer than a test."""
    with structlog.testing.capture_logs():
        yield
