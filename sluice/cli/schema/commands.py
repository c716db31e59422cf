"""`sluice schema …`: the tables of outbox and inbox are created, upgraded, or printed as SQL."""

from typing import Any

import click

from sluice.cli.options import dsn_option, log_level_option
from sluice.terminal.groups import CommandGroup
from sluice.terminal.options import declaration_option
from sluice.terminal.values import DAY_SECONDS, NumberType, Whole

_KINDS = ["postgresql", "sqlite"]
_PARTS = ["inbox", "outbox"]
_part_argument = click.argument("part", type=click.Choice(_PARTS), metavar="[inbox|outbox]", required=False)


@click.group(cls=CommandGroup)
def schema() -> None:
    """Create the tables of outbox and inbox, bring them to this version, or print their SQL for your migrations.

    Producers and relays need those of the outbox, consumers those of the inbox; one database may hold both.
    """


@schema.command()
@_part_argument
@click.option(
    "--wait",
    "wait_seconds",
    type=NumberType("seconds", 0, DAY_SECONDS),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="Try again for so long while the database does not answer, as one that wakes up.",
)
@click.option(
    "--roles",
    "has_roles",
    is_flag=True,
    envvar="SLUICE_DATABASE_ROLES",
    help="Also make a user of the database for each part, with the rights it needs; only on Postgres."
    "  [$SLUICE_DATABASE_ROLES]",
)
@click.option(
    "--migrate",
    "migration",
    metavar="COMMAND",
    help="Then run this, which makes your own tables: one process of all that do, while the others wait. It finds the"
    " database in SLUICE_DSN, or as a task does.",
)
@click.option("--env", "environment_name", envvar="SLUICE_ENV", default="local", hidden=True)
@declaration_option
@dsn_option("The database, e.g. sqlite:///outbox.db")
@log_level_option
def apply(**options: Any) -> None:
    """Create what is missing, and bring tables of an older version to this one; without a part both parts.

    \b
    Any number of processes may do it at once, while workers and relays run. One that was interrupted is taken up again
    by the next. Exit codes: 0 the tables are as this version needs them, 2 the database does not answer or the tables
    were changed by somebody else or COMMAND failed, 3 this version is too old for the tables.
      sluice schema apply --dsn sqlite:///shop.db
      sluice schema apply --dsn sqlite:///shop.db --migrate 'alembic upgrade head'
    """
    from sluice.cli.schema.upgrading import upgrade

    upgrade(**options)


@schema.command()
@click.argument("kind", type=click.Choice(_KINDS))
@_part_argument
@click.option(
    "--from",
    "version",
    type=Whole(1, 1_000),
    metavar="VERSION",
    help="Of the tables that exist: print what changes them.",
)
def sql(kind: str, part: str | None, version: int | None) -> None:
    """Print the SQL that creates the tables in this kind of database, or upgrades them, for your own migrations.

    \b
      sluice schema sql postgresql
      sluice schema sql postgresql outbox --from 2
    """
    from sluice.cli.schema.upgrading import print_sql

    print_sql(kind, part, version)
