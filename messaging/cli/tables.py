"""The tables of outbox and inbox from the command line: their SQL, their creation, and what differs."""

import sys

import click
from sqlalchemy import Engine, MetaData

from messaging import databases, schema
from messaging.cli.exits import PARTLY
from messaging.cli.place import dsn_from_secret
from sluice import environments


def schema_command(part: str, of: MetaData) -> click.Command:
    """Return the command `schema` of outbox or inbox."""

    @click.command(
        "schema", help=f"Print the SQL that creates the {part}'s tables, for your migrations; or create them."
    )
    @click.option("--sql", "kind", type=click.Choice(schema.names()), help="Print the SQL for this kind of database.")
    @click.option("--apply", "is_applied", is_flag=True, help="Create what is missing in the database of --dsn.")
    @click.option("--env", "environment_name", envvar="SLUICE_ENV", default="local", hidden=True)
    @click.option("--dsn", envvar="SLUICE_DSN", metavar="URL", help=f"The {part}'s database.  [$SLUICE_DSN]")
    def schema_(kind: str | None, is_applied: bool, environment_name: str, dsn: str | None) -> None:
        if is_applied == (kind is not None):
            raise click.UsageError("give one of --sql postgresql, --sql sqlite, or --apply with --dsn")
        if kind is not None:
            click.echo(schema.sql(kind, of), nl=False)
            return
        engine = databases.engine(dsn or dsn_from_secret(environments.environment(environment_name)))
        with engine.begin() as connection:
            schema.create(connection, of)
        engine.dispose()
        click.echo(f"the {part}'s tables are there", err=True)

    return schema_


def tell_drift(engine: Engine, of: MetaData) -> None:
    """Print where a database's tables differ from what is needed, a line each; then exit with 1."""
    with engine.connect() as connection:
        found = schema.drift(connection, of)
    for sentence in found:
        click.echo(sentence)
    if found:
        sys.exit(PARTLY)
    click.echo("the tables are as this version needs them", err=True)
