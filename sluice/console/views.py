"""Parts of every view: its answer, and the parameters of its request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click
from sqlalchemy import Connection, Engine
from starlette.requests import Request

from sluice.console.state import Console
from sluice.errors import ConfigError
from sluice.messaging.database import engines
from sluice.messaging.database.choice import RowChoice
from sluice.terminal.values import SINCE


@dataclass(frozen=True, slots=True)
class Draw:
    """A page to draw: a template, and the values of its names."""

    template: str
    values: dict[str, Any] = field(default_factory=dict)


type Answer = Draw | str
"""A page, or the address of another one."""


class PageNotFoundError(Exception):
    """Raised for the address of a row that does not exist; the message is a sentence for the page."""


def parameter(request: Request, name: str) -> str:
    """Return a parameter of an address, without white space around it; empty where it is not given."""
    return request.query_params.get(name, "").strip()


def shown_consumer(console: Console, request: Request) -> str:
    """Return the name of the consumer that a page is about: the one of the address, or the first.

    Raises:
        ConfigError: there is no such consumer.
    """
    name = parameter(request, "consumer") or console.consumers[0].name
    return console.consumer(name).name


def whole_number(text: str, *, default: int = 0) -> int:
    """Return a parameter as a number; text that is no number of ours gives `default`, by which a page is the first."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else default


def convert[Value](kind: "click.ParamType[Value]", value: str, name: str) -> Value:
    """Return a value as the option of a command reads it.

    Raises:
        ConfigError: it cannot be read; the message says what is allowed.
    """
    try:
        return kind.convert(value, None, None)
    except click.UsageError as error:
        raise ConfigError(f"{name}: {error.message}") from error


def chosen_rows(request: Request) -> RowChoice:
    """Return the choice of rows that an address makes.

    Raises:
        ConfigError: its `since` is no time.
    """
    group, type_, since = parameter(request, "group"), parameter(request, "type"), parameter(request, "since")
    return RowChoice(
        groups=frozenset({group} if group else ()),
        types=frozenset({type_} if type_ else ()),
        died_of=parameter(request, "died_of") or None,
        since_us=convert(SINCE, since, "since") if since else None,
    )


def filters_of(request: Request) -> dict[str, str]:
    """Return the filters of an address as they were typed, for forms and links."""
    return {name: parameter(request, name) for name in ("group", "type", "died_of", "since")}


def read[Found](engine: Engine, look: Callable[[Connection], Found]) -> Found:
    """Return the result of `look`, which gets a connection in a short, read-only transaction."""
    with engines.reading(engine) as connection, engines.explaining_missing_tables():
        return look(connection)
