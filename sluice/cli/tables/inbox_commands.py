"""`sluice inbox …`: its commands and their options. What each does is in `sluice.cli.tables.inbox`."""

from typing import Any

import click

from sluice.cli.options import audited, consumer_options, json_option, limit_option, runs
from sluice.terminal.groups import Group
from sluice.terminal.values import SEQ


@click.group("inbox", cls=Group, short_help="Look after a consumer's inbox.")
def group() -> None:
    """Look after a consumer's inbox: its tables, its groups, and how many messages wait in it.

    To act on messages that wait: `sluice dlq`.
    """


@group.command()
@consumer_options
@runs("sluice.cli.tables.inbox")
def check(**given: Any) -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""


@group.command()
@json_option
@consumer_options
@runs("sluice.cli.tables.inbox")
def status(**given: Any) -> None:
    """Tell how many groups are parked, messages set aside or held, and numbers missing or dead."""


@group.command("ls")
@click.option("--group", "group_id", help="Only this message group.")
@limit_option(100_000, default=50)
@json_option
@consumer_options
@runs("sluice.cli.tables.inbox")
def ls(**given: Any) -> None:
    """List groups: where each begins for this consumer (its baseline), and how far it is."""


@group.command("lower-baseline")
@click.argument("group_id", metavar="GROUP")
@click.argument("seq", metavar="SEQ", type=SEQ)
@audited
@consumer_options
@runs("sluice.cli.tables.inbox")
def lower_baseline(**given: Any) -> None:
    """Expect the numbers of a group from SEQ on: those before its baseline are missing until they come.

    For a consumer that joined late, if a group's baseline is too high. A message from before the baseline is handled
    in any case, once, as late. Missing numbers are listed (`dlq ls`) and counted (`InboxOpenExceptions`).
    """
