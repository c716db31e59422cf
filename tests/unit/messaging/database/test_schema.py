"""The SQL of the tables."""

import pytest

from sluice.messaging.database import schema
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables


def test_sql_for_another_kind_of_database_is_refused() -> None:
    """By the name it was asked for."""
    with pytest.raises(OutboxError) as refused:
        schema.sql("oracle", tables.metadata)

    assert str(refused.value) == "database is 'oracle', allowed is one of sqlite, postgresql"
