"""Shared parts of an operator's acts: the actor, a dry run, and one transaction."""

import getpass
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sluice.clock import utc
from sluice.terminal import output

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Engine

    from sluice.messaging.database.choice import RowChoice


def actor() -> str:
    """Return who acts: by number where the system knows no name, as in a container that runs as any number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # of Python 3.12, and of later ones
        return f"user {os.getuid()}"


def act[Done](engine: "Engine", description: str, do: "Callable[[Connection], Done]", *, confirmed: bool) -> Done:
    """Do something to a database in one transaction, or try it and take it back, say which, and return what it does."""
    from sluice.messaging.database import engines

    with engine.connect() as connection, engines.explaining_missing_tables():
        done = do(connection)
        if confirmed:
            connection.commit()
        else:
            connection.rollback()
    print_intent(description, confirmed=confirmed)
    return done


def print_intent(description: str, *, confirmed: bool) -> None:
    """Print the act: that it was done, or would be."""
    output.line(f"done: {description}" if confirmed else f"would {description}; add --yes to do it")


def print_acts(engine: "Engine", owner: "Column[str]", name: str, *, choice: "RowChoice", most: int) -> None:
    """Print what operators did, a line of JSON each; see `sluice.messaging.database.audit.acts`."""
    from sluice.messaging.database import audit, engines

    with engines.reading(engine) as connection, engines.explaining_missing_tables():
        for row in audit.acts(connection, owner, name, choice=choice, most=most):
            output.as_json({**row, "at": instant_text(row["at_us"])}, indent=None)


def instant_text(at_us: int) -> str:
    """Return an instant as people read it."""
    return utc(at_us).isoformat(timespec="milliseconds")
