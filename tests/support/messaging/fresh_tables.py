"""Tables for a test, made by statements that are compiled once: thousands of tests need the same."""

import functools
import re

from sqlalchemy import Connection, MetaData, create_mock_engine
from sqlalchemy.engine.mock import MockConnection

_CREATE = re.compile(r"^\s*CREATE (TABLE|INDEX|UNIQUE INDEX) ")


@functools.cache
def statements(dialect: str, metadata: MetaData) -> list[str]:
    """Return what `create_all` runs; tables that are there already are left as they are."""
    found: list[str] = []
    engine: MockConnection = create_mock_engine(
        f"{dialect}://", lambda statement, *_: found.append(str(statement.compile(dialect=engine.dialect)))
    )
    metadata.create_all(engine, checkfirst=False)
    return [_CREATE.sub(r"CREATE \1 IF NOT EXISTS ", statement) for statement in found]


def create(connection: Connection, *several: MetaData) -> None:
    """Create the tables; on Postgres by one call."""
    found = [statement for metadata in several for statement in statements(connection.dialect.name, metadata)]
    for statement in [";".join(found)] if connection.dialect.name == "postgresql" else found:
        connection.exec_driver_sql(statement)
