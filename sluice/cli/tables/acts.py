"""What every act of an operator has: who acts, a dry run, and one transaction."""

import getpass
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import Column, Connection, Engine

from sluice.messaging.database import audit, engines
from sluice.terminal import output


def actor() -> str:
    """Return who acts."""
    return getpass.getuser()


def act(engine: Engine, said: str, do: Callable[[Connection], object], *, is_meant: bool) -> None:
    """Do something to a database in one transaction, or try it and take it back, and say which."""
    with engine.connect() as connection, engines.explaining_missing_tables():
        do(connection)
        if is_meant:
            connection.commit()
        else:
            connection.rollback()
    say(said, is_meant=is_meant)


def say(said: str, *, is_meant: bool) -> None:
    """Say what was done, or would be."""
    output.line(f"done: {said}" if is_meant else f"would {said}; add --yes to do it")


def print_acts(engine: Engine, owner: Column[str], name: str, *, most: int) -> None:
    """Print what operators did, a line of JSON each; see `sluice.messaging.database.audit.acts`."""
    with engines.reading(engine) as connection, engines.explaining_missing_tables():
        for row in audit.acts(connection, owner, name, most=most):
            output.as_json({**row, "at": written(row["at_us"])}, indent=None)


def written(at_us: int) -> str:
    """Return an instant as people read it."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
