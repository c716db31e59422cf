"""Databases with empty tables for a test; statements are compiled once, because thousands of tests need the same."""

import functools
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, override

from sqlalchemy import Connection, Engine, MetaData, create_mock_engine, text
from sqlalchemy.engine.mock import MockConnection

from sluice.messaging.database import engines

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


class _CompiledStatements(dict[Any, Any]):
    """Statements as SQLAlchemy has compiled them for an engine: those of another with the same dialect are the same."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    @override
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), value)


_compiled = _CompiledStatements()


def make_engine(url: str) -> Engine:
    """Return an engine on a database."""
    made = engines.engine(url)
    made.update_execution_options(compiled_cache=_compiled)
    return made


@contextmanager
def sqlite(file: Path | None, *several: MetaData) -> Iterator[Engine]:
    """Yield an engine on an SQLite with these tables: a file, which several threads may use, or None for memory."""
    made = make_engine("sqlite://" if file is None else f"sqlite:///{file}")
    with made.begin() as connection:
        create(connection, *several)
    yield made
    made.dispose()


# A test that failed in the middle of a transaction would keep its locks, and the schema with them.
_END_ALL = text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = :name")
# Each change of a schema writes a row of a catalogue anew. What was large stays large on disk.
_STATE = text("""
    WITH relation AS (SELECT oid, xmin FROM pg_class WHERE relnamespace = to_regnamespace(:name)),
    change AS (
        SELECT concat(oid, ' ', xmin) AS value FROM relation
        UNION ALL SELECT concat(oid, ' is large') FROM relation WHERE pg_relation_size(oid) > 1000000
        UNION ALL SELECT concat('namespace ', xmin) FROM pg_namespace WHERE oid = to_regnamespace(:name)
        UNION ALL SELECT concat('proc ', xmin) FROM pg_proc WHERE pronamespace = to_regnamespace(:name)
        UNION ALL SELECT concat('type ', xmin) FROM pg_type WHERE typnamespace = to_regnamespace(:name)
        UNION ALL SELECT concat('attribute ', xmin) FROM pg_attribute WHERE attrelid IN (SELECT oid FROM relation)
        UNION ALL SELECT concat('attrdef ', xmin) FROM pg_attrdef WHERE adrelid IN (SELECT oid FROM relation)
        UNION ALL SELECT concat('constraint ', xmin) FROM pg_constraint WHERE conrelid IN (SELECT oid FROM relation)
        UNION ALL SELECT concat('index ', xmin) FROM pg_index WHERE indexrelid IN (SELECT oid FROM relation)
        UNION ALL SELECT concat('policy ', xmin) FROM pg_policy WHERE polrelid IN (SELECT oid FROM relation)
        UNION ALL SELECT concat('trigger ', xmin) FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM relation)
    )
    SELECT md5(string_agg(value, ', ' ORDER BY value)) FROM change
""")
_RESTART = text(
    "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence JOIN pg_class ON oid = seqrelid"
    " WHERE relnamespace = to_regnamespace(:name)"
)


class SchemaPool:
    """Schemas of a Postgres, by their tables: a test has an empty one, and then the next test has it.

    To make and drop fifteen tables costs a server more than most tests do. A schema that a test changed is dropped.

    Args:
        connection: in autocommit; it has read Postgres's catalogues, which each new one has to.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._empty: dict[tuple[MetaData, ...], tuple[str, Any]] = {}

    @contextmanager
    def lend(self, *several: MetaData) -> Iterator[str]:
        """Yield the name of an empty schema with these tables; what is connected under this name is ended then."""
        name, state = self._empty.pop(several) if several in self._empty else self._make(several)
        yield name
        self.connection.execute(_END_ALL, {"name": name})
        if self._state(name) == state:
            found = [table.name for metadata in several for table in reversed(metadata.sorted_tables)]
            emptied = ";".join(f"DELETE FROM {name}.{table}" for table in found)  # noqa: S608 (of constants)
            self.connection.exec_driver_sql(emptied)
            self.connection.execute(_RESTART, {"name": name})
            self._empty[several] = name, state
        else:
            self._drop(name)

    def close(self) -> None:
        """Drop what is there."""
        for name, _ in self._empty.values():
            self._drop(name)

    def _make(self, several: tuple[MetaData, ...]) -> tuple[str, Any]:
        name = f"test_{secrets.token_hex(8)}"
        made = ";".join(statement for metadata in several for statement in statements("postgresql", metadata))
        self.connection.exec_driver_sql(f"CREATE SCHEMA {name}; SET LOCAL search_path = {name}; {made}")
        return name, self._state(name)

    def _drop(self, name: str) -> None:
        self.connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")

    def _state(self, name: str) -> Any:
        return self.connection.execute(_STATE, {"name": name}).scalar_one()
