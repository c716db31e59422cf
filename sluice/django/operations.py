"""The operation of the app's migrations: it upgrades the tables as `sluice schema apply` does, in Django's transaction.

https://docs.djangoproject.com/en/5.2/ref/migration-operations/#writing-your-own (read 2026-11-27)
"""

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation
from sqlalchemy import delete, inspect

from sluice.django.databases import joined_engine
from sluice.messaging.database import migrations
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox

PARTS = (outbox.versioned, inbox.versioned)


class UpgradeTables(Operation):
    """Brings the tables to this code's version, and records the version; tables of this or a newer version stay.

    `sluice schema apply` may run before or after.

    Args:
        versions: the version of each part (`outbox`, `inbox`) when this migration was written. Later code upgrades to
            its own, higher version at once.
    """

    reversible = True

    def __init__(self, **versions: int) -> None:
        self.versions = versions

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change no model."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        """Upgrade the tables of both parts, if the project's routers allow it in this database."""
        alias = schema_editor.connection.alias
        if router.allow_migrate(alias, app_label):
            for part in PARTS:
                for _ in migrations.upgrade(joined_engine(alias), part):
                    pass

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        """Drop the tables if the app has no model left in `to_state`; a step to an earlier version changes nothing."""
        alias = schema_editor.connection.alias
        if not router.allow_migrate(alias, app_label) or any(label == app_label for label, _ in to_state.models):
            return
        with joined_engine(alias).begin() as connection:
            for part in PARTS:
                part.metadata.drop_all(connection)
                connection.execute(delete(migrations.versions).where(migrations.versions.c.part == part.part))
            if inspect(connection).has_table(migrations.versions.name):
                migrations.versions.drop(connection)

    def describe(self) -> str:
        """Return the operation in words, for the output of `migrate --plan`."""
        versions = ", ".join(f"{part} {version}" for part, version in self.versions.items())
        return f"Bring the tables of Sluice to version {versions}, or this code's"
