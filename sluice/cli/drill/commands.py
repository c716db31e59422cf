"""The options of `sluice drill restore`."""

from pathlib import Path
from typing import Any

import click

from sluice.cli.options import environment_option, json_option
from sluice.terminal.groups import CommandGroup


@click.group(cls=CommandGroup)
def drill() -> None:
    """Practise on copies what has to work on a bad day."""


@drill.command()
@environment_option("Declared environment whose topic and consumers are played.")
@click.option("--topic", metavar="NAME", help="The topic, as declared.  [default: the first]")
@click.option(
    "--backup",
    "backup_url",
    required=True,
    metavar="URL",
    help="A database that a backup was restored to, not the environment's own.",
)
@click.option(
    "--now",
    "now_url",
    metavar="URL",
    help="A copy of the same database as it is now: it says what was under way in queues, and what the restore lost.",
)
@click.option(
    "--inbox",
    "inboxes",
    multiple=True,
    metavar="CONSUMER=URL",
    help="A copy of the database of that consumer's inbox, which is not restored; may be repeated.",
)
@click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write the drill as a page."
)
@json_option
def restore(**options: Any) -> None:
    """Restore an older backup on copies: new epoch, verify, resend, verdict; each step with its time.

    Databases that are given are only copied from, and the copies are dropped at the end. Queues and topic are
    simulated in this process; no handler of yours is called, and AWS is not called. Postgres copies a database only
    while nobody is connected to it, and the user needs CREATEDB.

    \b
      sluice drill restore --backup postgresql://me@host/restored --now postgresql://me@host/copy --page drill.html

    \b
    Exit codes:
      0  VALID: afterwards every consumer has, or has accounted for, whatever the restored outbox has sent
      1  INVALID: something is lost, and is listed
      2  UNKNOWN: something could not be judged, or a copy could not be made
      3  refused: a database is the environment's own
    """
    from sluice.cli.drill import restoring

    restoring.restore(**options)
