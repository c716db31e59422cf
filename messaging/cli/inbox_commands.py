"""`python -m messaging inbox …`: its commands and their options. What each does is in `messaging.cli.inbox`."""

from typing import Any

import click

from messaging.cli.options import at_consumer, json_option
from messaging.cli.schema_command import schema_command


@click.group("inbox")
def group() -> None:
    """Look after a consumer's inbox: its tables, and how many messages wait in it. What to do about them: `dlq`."""


group.add_command(schema_command("inbox"))


@group.command()
@at_consumer
def check(**given: Any) -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    from messaging.cli import inbox

    inbox.check(**given)


@group.command()
@json_option
@at_consumer
def status(**given: Any) -> None:
    """Tell how many groups are parked, messages set aside or held, and numbers missing or dead."""
    from messaging.cli import inbox

    inbox.status(**given)
