"""A consumer's database: in memory, in a file, or on a real Postgres; and the world around it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Engine

from sluice.messaging.database import engines, schema
from tests.support.messaging.world import World, create_tables


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a consumer whose database is in memory: for what runs in one thread on one connection."""
    engine = engines.engine("sqlite://")
    create_tables(engine)
    yield World(engine)
    engine.dispose()


@pytest.fixture
def on_file(database_folder: Path) -> Iterator[Engine]:
    """Yield an engine on an SQLite file with all tables, which several threads may use."""
    made = engines.engine(f"sqlite:///{database_folder / 'inbox.db'}")
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture
def on_postgres(postgres: Engine) -> Engine:
    """Return an engine on a real Postgres with all tables."""
    create_tables(postgres)
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
