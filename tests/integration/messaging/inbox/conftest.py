"""Databases with the inbox's tables: SQLite in memory for tests with one thread, and a real Postgres."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, MetaData

from sluice.messaging.database import schema
from sluice.messaging.inbox import tables
from tests.support.messaging import fresh_tables
from tests.support.messaging.world import METADATA


@pytest.fixture
def in_memory() -> Iterator[Engine]:
    """Yield an engine on SQLite in memory with the inbox's tables."""
    with fresh_tables.sqlite(None, tables.metadata) as made:
        yield made


@pytest.fixture
def postgres_tables() -> tuple[MetaData, ...]:
    """Return all tables, for the tests with a worker."""
    return METADATA


@pytest.fixture
def on_postgres(postgres: Engine) -> Engine:
    """Return an engine on a real Postgres with the inbox's tables."""
    return postgres


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Run the test twice: on SQLite in memory, and on Postgres."""
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "in_memory")
    return chosen
