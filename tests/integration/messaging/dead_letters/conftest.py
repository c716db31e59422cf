"""A simulated graveyard, and databases with the inbox's tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from contract_tests.simulated import simulator
from sluice.messaging.database import engines, schema
from sluice.simulator.hook import Simulator
from tests.integration.messaging.conftest import postgres, postgres_url
from tests.support.dead_letter_queues import Graveyard

__all__ = ["graveyard", "inbox", "postgres", "postgres_url", "simulator"]


@pytest.fixture
def graveyard(simulator: Simulator) -> Graveyard:
    """Return billing's queues on a simulator."""
    return Graveyard(simulator)


@pytest.fixture(params=schema.names())
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on a fresh database with the inbox's tables, once for each kind of database."""
    if request.param == "postgresql":
        engine = request.getfixturevalue("postgres")
    else:
        engine = engines.engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    with engine.begin() as connection:
        schema.create(connection, schema.INBOX)
    yield engine
    engine.dispose()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    """Yield an SQLite database with the inbox's tables."""
    engine = engines.engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    with engine.begin() as connection:
        schema.create(connection, schema.INBOX)
    yield engine
    engine.dispose()
