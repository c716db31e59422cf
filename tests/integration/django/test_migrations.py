"""Django's migrations and `sluice schema` make the same tables, in either order."""

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from sqlalchemy import Engine, inspect, select, text

from sluice.django.databases import joined_engine
from sluice.django.migrations import __path__ as folder
from sluice.django.operations import PARTS, UpgradeTables
from sluice.messaging.database import migrations, schema
from sluice.messaging.tables import metadata


@pytest.fixture
def engine(alias: str) -> Engine:
    """Return an engine on Django's connection, in a database without the tables."""
    made = joined_engine(alias)
    for part in PARTS:
        part.metadata.drop_all(made)
    return made


def _tables(engine: Engine) -> dict[str, str]:
    """Return Sluice's tables as the database has them: columns, keys, constraints and indexes."""
    found = inspect(engine)
    return {
        name: json.dumps(
            (
                found.get_columns(name),
                found.get_pk_constraint(name),
                sorted(found.get_unique_constraints(name), key=_name),
                sorted(found.get_check_constraints(name), key=_name),
                sorted(found.get_indexes(name), key=_name),
            ),
            default=str,
        )
        for name in sorted(found.get_table_names())
        if name.startswith("sluice_")
    }


def _name(found: Any) -> str:
    return str(found["name"])


def _versions(engine: Engine) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(migrations.versions).order_by("part"))]


def test_migrate_makes_the_tables_of_our_metadata(alias: str, engine: Engine) -> None:
    call_command("migrate", "sluice", database=alias, verbosity=0)
    by_django, recorded = _tables(engine), _versions(engine)
    with engine.connect() as connection:
        assert [schema.drift(connection, part.metadata) for part in PARTS] == [[], []]
    call_command("migrate", "sluice", "zero", database=alias, verbosity=0)
    assert _tables(engine) == {}
    metadata.create_all(engine)

    assert by_django == _tables(engine)
    assert recorded == [("inbox", 7, 1), ("outbox", 5, 1)]


def test_migrate_upgrades_older_tables_and_schema_apply_finds_nothing_left(alias: str, engine: Engine) -> None:
    for part in PARTS:
        for _ in migrations.upgrade(engine, part):
            pass
    with engine.begin() as connection:
        for name in ("sluice_outbox_oldest", "sluice_outbox_quarantined"):
            connection.execute(text(f"DROP INDEX {name}"))
        connection.execute(migrations.versions.update().values(version=1))
        connection.execute(text("ALTER TABLE sluice_inbox_exception DROP COLUMN is_permanent"))

    call_command("migrate", "sluice", database=alias, verbosity=0)

    assert _versions(engine) == [("inbox", 7, 1), ("outbox", 5, 1)]
    assert [list(migrations.upgrade(engine, part)) for part in PARTS] == [[], []]


def test_makemigrations_finds_nothing_to_do(sqlite: str) -> None:
    call_command("makemigrations", "sluice", check=True, dry_run=True, verbosity=0)


def test_the_last_migration_is_of_the_tables_of_this_code() -> None:
    """A step of the tables needs a migration: without one, `migrate` would not run it."""
    from importlib import import_module  # noqa: PLC0415
    from pkgutil import iter_modules  # noqa: PLC0415

    names = sorted(module.name for module in iter_modules(folder))
    operations = import_module(f"sluice.django.migrations.{names[-1]}").Migration.operations
    (upgrade,) = (operation for operation in operations if isinstance(operation, UpgradeTables))

    assert upgrade.versions == {part.part: part.version for part in PARTS}


def test_a_migration_that_fails_leaves_no_table(alias: str, engine: Engine) -> None:
    """The migration and its record are one transaction."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sluice_inbox_group (consumer TEXT)"))

    with pytest.raises(Exception, match="made by somebody else"):
        call_command("migrate", "sluice", database=alias, verbosity=0)
    connections[alias].close()

    assert list(_tables(engine)) == ["sluice_inbox_group"]
