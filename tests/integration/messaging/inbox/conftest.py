"""Databases with the inbox's tables: SQLite in memory, for what runs in one thread, and a real Postgres."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sluice.messaging.database import engines, schema
from tests.integration.messaging.conftest import postgres, postgres_url
from tests.integration.messaging.worker.conftest import on_postgres
from tests.support.worker_harness import create_tables

__all__ = ["engine", "in_memory", "on_postgres", "postgres", "postgres_url"]


@pytest.fixture
def in_memory() -> Iterator[Engine]:
    """Yield an engine on an SQLite database of its own."""
    made = engines.engine("sqlite://")
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return an engine on a fresh database, once for each kind of database."""
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "in_memory")
    return chosen
