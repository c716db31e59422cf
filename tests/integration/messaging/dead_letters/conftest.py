"""A simulated queue and DLQ, and databases with the inbox's tables."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, MetaData

from sluice.cli.main import cli
from sluice.messaging.database import schema
from sluice.messaging.inbox import tables
from sluice.messaging.sqs import queue
from sluice.simulator.hook import Simulator
from sluice.testing.plugin import simulated_aws
from tests.support.messaging import fresh_tables
from tests.support.messaging.dlq_harness import DlqHarness

__all__ = ["simulated_aws"]


@pytest.fixture
def simulator(simulated_aws: Simulator) -> Simulator:
    """Return a simulated AWS that commands reach, too."""
    return simulated_aws


@pytest.fixture
def harness(simulator: Simulator) -> DlqHarness:
    """Return billing's queues on the simulator."""
    return DlqHarness(simulator)


@pytest.fixture
def postgres_tables() -> tuple[MetaData, ...]:
    """Return the inbox's tables."""
    return (tables.metadata,)


@pytest.fixture(params=schema.names())
def inbox(request: pytest.FixtureRequest) -> Engine:
    """Return an engine on a fresh database with the inbox's tables, once for each kind of database."""
    chosen: Engine = request.getfixturevalue("postgres" if request.param == "postgresql" else "database")
    return chosen


@pytest.fixture
def database(database_folder: Path) -> Iterator[Engine]:
    """Yield an engine on an SQLite file with the inbox's tables."""
    with fresh_tables.sqlite(database_folder / "inbox.db", tables.metadata) as made:
        yield made


@pytest.fixture
def run(harness: DlqHarness, database: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a dlq command for billing, with its database."""
    monkeypatch.setattr(queue, "client", lambda *_, **__: harness.tools_sqs)
    for name in ("SLUICE_ENV", "SLUICE_CONSUMER", "SLUICE_DSN", "SLUICE_DATABASE_SECRET_ARN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    variables = {"SLUICE_CONSUMER": "billing", "SLUICE_DSN": str(database.url)}

    def run(*arguments: str, **more: Any) -> Result:
        given = {"env": variables, "catch_exceptions": False, **more}
        return CliRunner().invoke(cli, ["dlq", *arguments], **given)

    return run
