"""The shop from the shell: `python -m examples.orders`."""

import sys
from typing import Any

import click
from sqlalchemy import Engine

from examples.orders.checking import differences
from examples.orders.models import Base
from examples.orders.service import Shop
from examples.orders.trade import trade
from sluice.declaration import load_task_declaration, naming
from sluice.errors import MessagingError
from sluice.messaging import Outbox
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables

_database_url = click.option(
    "--dsn",
    envvar="SLUICE_DSN",
    default="sqlite:///orders.db",
    show_default=True,
    help="URL of the database.  [$SLUICE_DSN]",
)
_for_topic = click.option("--env", "environment_name", envvar="SLUICE_ENV", default="local", show_default=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Take orders, each with its events, in one database."""


@cli.command()
@_database_url
def init(dsn: str) -> None:
    """Create the tables of the shop and of its outbox."""
    with engines.engine(dsn).begin() as connection:
        Base.metadata.create_all(connection)
        tables.metadata.create_all(connection)
    click.echo("the tables are there")


@cli.command()
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="Of transactions.")
@click.option("--groups", type=click.IntRange(1), default=10, show_default=True, help="Orders open at once, at most.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the choices.")
@click.option("--rollbacks", type=click.FloatRange(0, 1), default=0.2, show_default=True, help="Share taken back.")
@click.option(
    "--threads", type=click.IntRange(1, 32), default=1, show_default=True, help="How many trade at the same time."
)
@click.option("--notify", is_flag=True, help="Wake a relay that was started with --listen.")
@_for_topic
@_database_url
def run(dsn: str, environment_name: str, *, notify: bool, **choices: Any) -> None:
    """Do business: place orders, add to them, have them paid or cancelled."""
    engine = _engine(dsn)
    done = trade(engine, Shop(_outbox(environment_name, notify=notify)), **choices)
    committed = ", ".join(f"{count} {what}" for what, count in sorted(done.committed.items()))
    click.echo(f"committed {committed or 'nothing'}; rolled back {done.rolled_back}; too late {done.too_late}")


@cli.command()
@_for_topic
@_database_url
def check(dsn: str, environment_name: str) -> None:
    """Compare orders and outbox; exit code 1 and a line each where they differ."""
    with engines.reading(_engine(dsn)) as connection:
        found = differences(connection, _topic(environment_name))
    for sentence in found:
        click.echo(sentence)
    if found:
        sys.exit(1)
    click.echo("each committed change has one event, in order, and nothing else has")


def _engine(dsn: str) -> Engine:
    engine = engines.engine(dsn)
    engines.require_there(engine)
    return engine


def _outbox(environment_name: str, *, notify: bool) -> Outbox:
    environment = load_task_declaration().environment(environment_name)
    return Outbox(naming.topic_name(environment), event_bytes_max=environment.event_bytes_max, notify=notify)


def _topic(environment_name: str) -> str:
    return naming.topic_name(load_task_declaration().environment(environment_name))


if __name__ == "__main__":
    try:
        cli(prog_name="python -m examples.orders")
    except MessagingError as error:
        sys.exit(f"orders: {error}")
