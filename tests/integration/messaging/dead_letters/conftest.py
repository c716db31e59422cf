"""A simulated queue and DLQ, and databases with the inbox's tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sluice.messaging.database import engines, schema
from sluice.messaging.inbox import tables
from sluice.simulator.hook import Simulator
from sluice.testing.plugin import simulated_aws
from tests.integration.messaging.conftest import postgres, postgres_url
from tests.support.dlq_harness import DlqHarness

__all__ = ["harness", "inbox", "postgres", "postgres_url", "simulated_aws", "simulator"]


@pytest.fixture
def simulator(simulated_aws: Simulator) -> Simulator:
    """Return what answers like SQS and SNS."""
    return simulated_aws


@pytest.fixture
def harness(simulator: Simulator) -> DlqHarness:
    """Return billing's queues on a simulator."""
    return DlqHarness(simulator)


@pytest.fixture(params=schema.names())
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Yield an engine on a fresh database with the inbox's tables, once for each kind of database."""
    if request.param == "postgresql":
        engine = request.getfixturevalue("postgres")
    else:
        engine = engines.engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    yield engine
    engine.dispose()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    """Yield an SQLite database with the inbox's tables."""
    engine = engines.engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    yield engine
    engine.dispose()
