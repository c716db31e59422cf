"""Databases with the inbox's tables: SQLite in memory, for what runs in one thread, and a real Postgres."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from messaging import databases, schema
from tests.integration.outbox.conftest import postgres, postgres_url
from tests.integration.worker.conftest import on_postgres
from tests.integration.worker.places import create_tables

__all__ = ["engine", "in_memory", "on_postgres", "postgres", "postgres_url"]


@pytest.fixture
def in_memory() -> Iterator[Engine]:
    """Yield an engine on an SQLite database of its own."""
    made = databases.engine("sqlite://")
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return an engine on a fresh database, once for each kind of database."""
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "in_memory")
    return chosen
