"""A shop on SQLite with troubles, and a console that looks at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.cli.overview.sources import Sources, opening
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables
from tests.support.command_line import Run, command_line
from tests.support.console import ConsoleBrowser
from tests.support.messaging.operated_shop import OperatedShop, operated_shop


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with command_line(monkeypatch, capsys) as made:
        yield made


@pytest.fixture
def shop(tmp_path: Path, run: Run) -> Iterator[OperatedShop]:
    engine = engines.engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    with operated_shop(engine, run) as made:
        yield made
    engine.dispose()


@pytest.fixture
def sources(shop: OperatedShop) -> Iterator[Sources]:
    with opening(shop.environment, shop.dsn, (), shop.endpoint.url) as found:
        yield found


@pytest.fixture
def browser(sources: Sources) -> ConsoleBrowser:
    """Return a browser in which the console is open and may act."""
    made = ConsoleBrowser(sources)
    made.open()
    return made
