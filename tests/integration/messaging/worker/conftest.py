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
    made = engines.engine(f"sqlite:///{database_folder / 'inbox.db'}")
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture
def on_postgres(postgres: Engine) -> Engine:
    create_tables(postgres)
    return postgres


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "on_file")
    return chosen


@pytest.fixture
def world_anywhere(engine: Engine) -> World:
    return World(engine)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Render no log lines, because drawing a traceback for a terminal takes longer than a test."""
    with structlog.testing.capture_logs():
        yield
