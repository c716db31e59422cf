"""`python -m messaging inbox …`."""

import json
import sys

import click

from messaging import databases, schema
from messaging.cli.exits import PARTLY
from messaging.cli.place import ConsumerPlace, at_consumer, dsn_from_secret
from messaging.inbox import Inbox, Policy
from sluice import environments


@click.group()
def inbox() -> None:
    """Look after a consumer's inbox: its tables, and how many messages wait in it. What to do about them: `dlq`."""


@inbox.command("schema")
@click.option("--sql", "kind", type=click.Choice(schema.names()), help="Print the SQL for this kind of database.")
@click.option("--apply", "is_applied", is_flag=True, help="Create what is missing in the database of --dsn.")
@click.option("--env", "environment_name", envvar="SLUICE_ENV", default="local", hidden=True)
@click.option("--dsn", envvar="SLUICE_DSN", metavar="URL", help="The inbox's database.  [$SLUICE_DSN]")
def schema_(kind: str | None, is_applied: bool, environment_name: str, dsn: str | None) -> None:
    """Print the SQL that creates the inbox's tables, for your migrations; or create them."""
    if is_applied == (kind is not None):
        raise click.UsageError("give one of --sql postgresql, --sql sqlite, or --apply with --dsn")
    if kind is not None:
        click.echo(schema.sql(kind, schema.INBOX), nl=False)
        return
    engine = databases.engine(dsn or dsn_from_secret(environments.environment(environment_name)))
    with engine.begin() as connection:
        schema.create(connection, schema.INBOX)
    engine.dispose()
    click.echo("the inbox's tables are there", err=True)


@inbox.command()
@at_consumer
def check(place: ConsumerPlace) -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    with place.engine.connect() as connection:
        found = schema.drift(connection, schema.INBOX)
    for sentence in found:
        click.echo(sentence)
    if found:
        sys.exit(PARTLY)
    click.echo("the tables are as this version needs them", err=True)


@inbox.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@at_consumer
def status(place: ConsumerPlace, as_json: bool) -> None:
    """Tell how many groups are parked, messages set aside or held, and numbers missing or dead."""
    counted = Inbox(Policy.declared(place.consumer)).counts(place.engine)
    if as_json:
        click.echo(json.dumps({"consumer": place.consumer.name, **counted}, indent=2))
        return
    click.echo(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counted.items()))
