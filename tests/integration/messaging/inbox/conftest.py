"""Databases with the inbox's tables: SQLite in memory for tests with one thread, and a real Postgres."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sluice.messaging.database import engines, schema
from sluice.messaging.inbox import tables


@pytest.fixture
def in_memory() -> Iterator[Engine]:
    made = engines.engine("sqlite://")
    tables.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def on_postgres(postgres: Engine) -> Engine:
    tables.metadata.create_all(postgres)
    return postgres


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "in_memory")
    return chosen
