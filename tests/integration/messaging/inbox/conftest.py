"""Databases with the inbox's tables: SQLite in memory for tests with one thread, and a real Postgres."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sluice.messaging.database import engines, schema
from sluice.messaging.inbox import tables
from tests.support.messaging import fresh_tables


@pytest.fixture
def in_memory() -> Iterator[Engine]:
    """Yield an engine on SQLite in memory with the inbox's tables."""
    made = engines.engine("sqlite://")
    with made.begin() as connection:
        fresh_tables.create(connection, tables.metadata)
    yield made
    made.dispose()


@pytest.fixture
def on_postgres(postgres: Engine) -> Engine:
    """Return an engine on a real Postgres with the inbox's tables."""
    with postgres.begin() as connection:
        fresh_tables.create(connection, tables.metadata)
    return postgres


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Run the test twice: on SQLite in memory, and on Postgres."""
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "in_memory")
    return chosen
