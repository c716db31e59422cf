"""`python -m examples.services`: the services' tables, and whether they agree with the orders."""

import sys

import click
from sqlalchemy import Engine

from examples.services.checking import differences
from examples.services.models import Base
from sluice.declaration import load_task_declaration
from sluice.errors import MessagingError
from sluice.messaging import database_engine
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables

_SERVICES = click.option(
    "--dsn", envvar="SLUICE_DSN", required=True, metavar="URL", help="The services' database.  [$SLUICE_DSN]"
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Three services that consume what `python -m examples.orders` does: billing, shipping, audit.

    \b
      python -m examples.services init
      sluice worker --consumer billing --until-idle 5
      python -m examples.services check
    """


@cli.command()
@click.option(
    "--dsn", envvar="SLUICE_DSN", metavar="URL", help="The services' database.  [$SLUICE_DSN; as a task has it]"
)
@click.option("--env", "environment", envvar="SLUICE_ENV", default="local", hidden=True)
def init(dsn: str | None, environment: str) -> None:
    """Create the services' tables, and the inbox's."""
    engine = database_engine("" if dsn else load_task_declaration().environment(environment).region, dsn)
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        tables.metadata.create_all(connection)
    engine.dispose()
    click.echo("the tables are there", err=True)


@cli.command()
@_SERVICES
@click.option("--orders", metavar="URL", help="The orders' database.  [default: the same]")
def check(dsn: str, orders: str | None) -> None:
    """Compare the services with the orders; exit code 1 and a line each where they differ."""
    shop, services = _engine(dsn if orders is None else orders), _engine(dsn)
    with engines.reading(shop) as item, engines.reading(services) as other:
        found = differences(item, other)
    for sentence in found:
        click.echo(sentence)
    if found:
        sys.exit(1)
    click.echo("each effect was once, in order, and none is missing")


def _engine(dsn: str) -> Engine:
    engine = engines.engine(dsn)
    engines.require_there(engine)
    return engine


if __name__ == "__main__":
    try:
        cli(prog_name="python -m examples.services")
    except MessagingError as error:
        sys.exit(f"services: {error}")
