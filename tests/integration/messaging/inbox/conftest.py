"""Databases with the inbox's tables: SQLite in memory, for what runs in one thread, and a real Postgres."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sluice.messaging.database import engines, schema
from tests.integration.messaging.worker.conftest import on_postgres
from tests.support.messaging.worker_harness import create_tables

__all__ = ["on_postgres"]


@pytest.fixture
def in_memory() -> Iterator[Engine]:
    made = engines.engine("sqlite://")
    create_tables(made)
    yield made
    made.dispose()


@pytest.fixture(params=schema.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.getfixturevalue("on_postgres" if request.param == "postgresql" else "in_memory")
    return chosen
