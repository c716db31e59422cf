"""The SQL that is shipped."""

import pytest
from sqlalchemy import MetaData

from sluice.messaging.database import schema
from sluice.messaging.errors import OutboxError


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
@pytest.mark.parametrize(("part", "tables"), [("outbox", schema.OUTBOX), ("inbox", schema.INBOX)])
def test_the_shipped_sql_is_what_the_tables_are(name: str, part: str, tables: MetaData) -> None:
    """A table changed without its SQL would reach no host."""
    shipped = (schema.FOLDER / f"{part}-{name}.sql").read_text(encoding="utf-8")

    assert shipped == schema.sql(name, tables)


def test_every_kind_of_database_has_its_file() -> None:
    """And there is no file of another kind."""
    names = [f"{part}-{name}" for part in ("outbox", "inbox") for name in schema.names()]
    assert sorted(path.stem for path in schema.FOLDER.iterdir()) == sorted(names)
    assert sorted(schema.names()) == ["postgresql", "sqlite"]


def test_sql_for_another_kind_of_database_is_refused() -> None:
    """By the name it was asked for."""
    with pytest.raises(OutboxError) as refused:
        schema.sql("oracle")

    assert str(refused.value) == "database is 'oracle', allowed is one of sqlite, postgresql"
