"""A Django project with new databases for each test."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy import make_url, text

from sluice.messaging.database import engines
from tests.integration.messaging.conftest import database_folder, postgres_url
from tests.support import shop

__all__ = ["database_folder", "postgres_url"]
shop.set_up()


def _create_tables(alias: str) -> None:
    from django.db import connections  # noqa: PLC0415 (once it is set up)

    from sluice.django import databases, operations  # noqa: PLC0415
    from tests.support.shop.models import Invoice  # noqa: PLC0415

    for part in operations.PARTS:  # as the migration does, and in a tenth of its time
        part.metadata.create_all(databases.joined_engine(alias))
    with connections[alias].schema_editor() as editor:
        editor.create_model(Invoice)


@pytest.fixture
def sqlite(database_folder: Path) -> Iterator[str]:
    """Yield the alias of a new SQLite file with the tables."""
    from django.db import connections  # noqa: PLC0415

    options = {"transaction_mode": "IMMEDIATE"}
    shop.use("default", NAME=str(database_folder / "shop.db"), OPTIONS=options)
    _create_tables("default")
    yield "default"
    connections.close_all()


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[str]:
    """Yield the alias of a new schema of Postgres with the tables."""
    from django.db import connections  # noqa: PLC0415

    name, url = f"test_{secrets.token_hex(8)}", make_url(postgres_url)
    server = engines.engine(postgres_url)
    with server.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    host = url.query.get("host", url.host)
    shop.use(
        "postgresql",
        NAME=url.database,
        USER=url.username or "",
        PASSWORD=url.password or "",
        HOST=host if isinstance(host, str) else "",
        PORT=url.port or "",
        OPTIONS={"options": f"-c search_path={name}"},
    )
    _create_tables("postgresql")
    yield "postgresql"
    connections.close_all()
    with server.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    server.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def alias(request: pytest.FixtureRequest) -> str:
    """Yield the alias of each kind of database."""
    chosen: str = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield
