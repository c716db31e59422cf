"""A Postgres that asks its consumer for a password, which can be changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from sluice.messaging.database import engines


@contextmanager
def owner_of(postgres: Any) -> Iterator[Engine]:
    """Yield the owner's engine on a Postgres where the role `consumer` needs a password, "first" at the beginning."""
    engine = engines.engine(postgres.get_uri())
    Path(postgres.pgdata, "pg_hba.conf").write_text(
        "local all postgres trust\nlocal all all scram-sha-256\n", encoding="ascii"
    )
    execute(engine, "CREATE ROLE consumer LOGIN PASSWORD 'first'", "SELECT pg_reload_conf()")
    yield engine
    engine.dispose()


def execute(engine: Engine, *statements: str) -> None:
    """Execute statements in one transaction."""
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def change_password(owner: Engine, password: str) -> None:
    """Change the consumer's password; its open connections stay open."""
    execute(owner, f"ALTER ROLE consumer PASSWORD '{password}'")
