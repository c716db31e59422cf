"""Functions that every command shares which changes something: who acts, one transaction with a dry run, the audit."""

import getpass
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from sluice.clock import utc
from sluice.terminal import output

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Engine

    from sluice.messaging.database.choice import RowChoice


def actor() -> str:
    """Return the name of the system's user for the audit; `user NUMBER` if he has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # Python 3.12 raises KeyError, later versions OSError
        return f"user {os.getuid()}"


def act[Done](engine: "Engine", description: str, do: "Callable[[Connection], Done]", *, confirmed: bool) -> Done:
    """Run `do` in one transaction, print `description`, and behind it a text that `do` returns; return its result.

    Without `confirmed`, a dry run: the transaction is rolled back, and the printed line says what would be done.
    """
    from sluice.messaging.database import engines

    with engine.connect() as connection, engines.explaining_missing_tables():
        result = do(connection)
        if confirmed:
            connection.commit()
        else:
            connection.rollback()
    print_intent(f"{description}{result if isinstance(result, str) else ''}", confirmed=confirmed)
    return result


def print_intent(description: str, *, confirmed: bool) -> None:
    """Print that an act was done, or would be done with --yes."""
    output.line(f"done: {description}" if confirmed else f"would {description}; add --yes to do it")


def place_of[Number](
    group_id: str | None,
    number: Number | None,
    choice: "RowChoice",
    most: int | None,
    *,
    needed: str = "GROUP and SEQ",
) -> tuple[str, Number] | None:
    """Return (group, number) that a command acts on; None if it acts on all messages that match the filters.

    Raises:
        UsageError: neither a number nor a filter is given, or both.
    """
    is_chosen = not choice.is_any
    if group_id is not None and number and not is_chosen and most is None:
        return group_id, number
    if not is_chosen or group_id is not None:
        raise click.UsageError(f"give {needed}, or one or more of --group, --type, --died-of and --since")
    return None


def print_count(count: int, things: str, done: str, intended: str, *, confirmed: bool) -> None:
    """Print a count of things with the word `done`, or without `confirmed` with the word `intended`."""
    output.line(f"{count} {things} {done if confirmed else intended}")


def print_acts(engine: "Engine", owner: "Column[str]", name: str, *, choice: "RowChoice", most: int) -> None:
    """Print the acts of operators from an audit table, newest first, each as a line of JSON.

    Args:
        engine: of the database that has the audit table.
        owner: the table's column that says whose rows they are: the topic's or the consumer's.
        name: of that topic or consumer.
        choice: the filters of the command line.
        most: at most this many acts.
    """
    from sluice.messaging.database import audit, engines

    with engines.reading(engine) as connection, engines.explaining_missing_tables():
        for row in audit.acts(connection, owner, name, choice=choice, most=most):
            output.as_json({**row, "at": instant_text(row["at_us"])}, indent=None)


def instant_text(at_us: int) -> str:
    """Return microseconds UTC as ISO 8601 with milliseconds."""
    return utc(at_us).isoformat(timespec="milliseconds")
