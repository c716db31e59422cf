"""`sluice outbox schema` and `inbox schema`: one command for either."""

from pathlib import Path
from typing import Any

import click

_KINDS = ["postgresql", "sqlite"]


def schema_command(part: str) -> click.Command:
    """Return the command `schema` of outbox or inbox."""

    @click.command(
        "schema", help=f"Print the SQL that creates the {part}'s tables, for your migrations; or create them."
    )
    @click.option("--sql", "kind", type=click.Choice(_KINDS), help="Print the SQL for this kind of database.")
    @click.option("--apply", "is_applied", is_flag=True, help="Create what is missing in the database of --dsn.")
    @click.option("--env", "environment_name", envvar="SLUICE_ENV", default="local", hidden=True)
    @click.option("--declaration", type=click.Path(path_type=Path), hidden=True)
    @click.option("--dsn", envvar="SLUICE_DSN", metavar="URL", help=f"The {part}'s database.  [$SLUICE_DSN]")
    def schema_(**given: Any) -> None:
        from sluice.cli.tables import schema

        schema.create(part=part, **given)

    return schema_
