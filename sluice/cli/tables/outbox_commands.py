"""`sluice outbox …`: its commands and their options. What each does is in `sluice.cli.tables.outbox`."""

from typing import Any

import click

from sluice.cli.options import audited, database_options, json_option, limit_option, runs
from sluice.terminal.groups import Group
from sluice.terminal.values import SEQ

_STATUSES = ["pending", "sent", "quarantined"]


@click.group("outbox", cls=Group, short_help="Look at an outbox, and act on its messages.")
def group() -> None:
    """Look at an outbox and act on its messages. Every act needs a reason; the audit keeps it.

    \b
    A message is pending, then sent; or quarantined, when SNS refuses it for good, and its group waits:
      sluice outbox ls
      sluice outbox unquarantine GROUP SEQ --reason "..." --yes
    """


@group.command()
@click.option("--status", type=click.Choice(_STATUSES), help="Only these.  [default: what is not sent]")
@click.option("--group", "group_id", help="Only this message group.")
@limit_option(100_000, default=50)
@json_option
@database_options
@runs("sluice.cli.tables.outbox")
def ls(**given: Any) -> None:
    """List messages of the outbox, by group and number."""


@group.command()
@json_option
@database_options
@runs("sluice.cli.tables.outbox")
def lag(**given: Any) -> None:
    """Tell how long the oldest unpublished message has waited, and how many there are: 100000 are so many or more."""


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=SEQ)
@audited
@database_options
@runs("sluice.cli.tables.outbox")
def resend(**given: Any) -> None:
    """Publish a sent message again, under a fresh deduplication id.

    For consumers that lost it. The others drop it, because it is the same event.
    """


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=SEQ)
@audited
@database_options
@runs("sluice.cli.tables.outbox")
def unquarantine(**given: Any) -> None:
    """Try a quarantined message again as it is, after its cause was mended."""


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=SEQ)
@audited
@database_options
@runs("sluice.cli.tables.outbox")
def skip(**given: Any) -> None:
    """Give a quarantined message up: a tombstone with its number is published in its place.

    Consumers see no hole; the audit keeps the body.
    """


@group.command("begin-epoch")
@audited
@database_options
@runs("sluice.cli.tables.outbox")
def begin_epoch(**given: Any) -> None:
    """Begin another epoch, once, after the database was restored to an earlier state and before producers start.

    Numbers given from now on repeat numbers given before the restore; the epoch tells consumers that they are new.
    Groups go on from their last numbers; those that the restore lost begin a later epoch by themselves.
    """


@group.command()
@limit_option(100_000, default=50)
@database_options
@runs("sluice.cli.tables.outbox")
def audit(**given: Any) -> None:
    """Print what operators did, newest first, as lines of JSON."""


@group.command()
@database_options
@runs("sluice.cli.tables.outbox")
def check(**given: Any) -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
