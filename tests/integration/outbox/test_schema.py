"""The outbox's tables in a real database, and what is told of tables that differ from them."""

from sqlalchemy import Engine

from messaging import schema


def test_fresh_tables_do_not_differ(engine: Engine) -> None:
    """What `create` makes is what this version needs."""
    with engine.connect() as connection:
        assert schema.drift(connection) == []
