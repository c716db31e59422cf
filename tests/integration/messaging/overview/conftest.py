"""A shop on SQLite, or on either kind of database, and the command line that looks at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sluice.messaging.outbox import tables
from tests.support.command_line import Run, command_line
from tests.support.messaging import fresh_tables
from tests.support.messaging.operated_shop import OperatedShop, operated_shop


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs `sluice` in this process, and returns exit code, output and error output."""
    with command_line(monkeypatch, capsys) as made:
        yield made


@pytest.fixture
def shop(database_folder: Path, run: Run) -> Iterator[OperatedShop]:
    """Yield a shop on SQLite: outbox, relay and three consumers with their inboxes."""
    with (
        fresh_tables.sqlite(database_folder / "shop.db", tables.metadata) as engine,
        operated_shop(engine, run) as made,
    ):
        yield made


@pytest.fixture
def either_shop(engine: Engine, run: Run) -> Iterator[OperatedShop]:
    """Yield a shop once for each kind of database."""
    with operated_shop(engine, run) as made:
        yield made
