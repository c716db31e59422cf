"""`python -m messaging inbox …`."""

import json

import click

from messaging import schema
from messaging.cli.place import ConsumerPlace, at_consumer
from messaging.cli.tables import schema_command, tell_drift
from messaging.inbox import Inbox, Policy


@click.group()
def inbox() -> None:
    """Look after a consumer's inbox: its tables, and how many messages wait in it. What to do about them: `dlq`."""


inbox.add_command(schema_command("inbox", schema.INBOX))


@inbox.command()
@at_consumer
def check(place: ConsumerPlace) -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    tell_drift(place.engine, schema.INBOX)


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
