"""Statements of every message, given to the driver itself: SQLAlchemy's own work for one takes longer than its answer.

Elsewhere than on a connection to Postgres that `engines` has made, SQLAlchemy executes the same statement.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import psycopg
from sqlalchemy import ColumnElement, Connection, Insert, Integer, TextClause, Update
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import DBAPIError

from sluice.messaging.database import connections

_PARAMETER = re.compile(r"\$(\d+)")
_DIALECT = PGDialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class DirectStatement:
    """An insert or update that is put together once.

    Args:
        columns: that it inserts or sets by parameters of their names; a text has its parameters itself.
        returning: numbers and texts of the one row that it makes or changes.
        is_prepared: whether Postgres plans it once for each connection. Not what finds rows: a plan made for few
            would be kept for many.
    """

    def __init__(
        self,
        statement: Insert | Update | TextClause,
        *,
        columns: Sequence[str] | None = None,
        returning: Sequence[ColumnElement[Any]] = (),
        is_prepared: bool = False,
    ) -> None:
        self._statement: Any = statement
        if returning and not isinstance(statement, TextClause):
            self._statement = statement.returning(*returning)
        self._columns, self._is_prepared = columns, is_prepared
        self._returned = [(str(column.key), int if isinstance(column.type, Integer) else str) for column in returning]
        self._compiled: tuple[Sequence[bytes], Sequence[str]] | None = None

    def row(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """Execute it, and return its row, which there has to be.

        Raises:
            DBAPIError: the database did not do it.
        """
        driver = _driver(connection)
        if driver is None:
            return connection.execute(self._statement, values).one()
        result, encoding = self._result(connection, driver, values), driver.info.encoding
        row = SimpleNamespace()
        for number, (name, kind) in enumerate(self._returned):
            text = result.get_value(0, number)
            setattr(row, name, None if text is None else kind(text.decode(encoding)))
        return row

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Execute it.

        Raises:
            DBAPIError: the database did not do it.
        """
        driver = _driver(connection)
        if driver is None:
            connection.execute(self._statement, values)
        else:
            self._result(connection, driver, values)

    def commit_with(self, connection: Connection, values: Mapping[str, Any]) -> bool:
        """Execute it as the last of the transaction, and return whether it changed a row.

        On our Postgres the commit does it, in one round trip, and fails with `connections.NothingChanged` where it does
        not: then True only means that.

        Raises:
            DBAPIError: the database did not do it.
        """
        driver = _driver(connection)
        if driver is None:
            return bool(connection.execute(self._statement, values).rowcount)
        with self._explained(connection, driver):
            driver.commit_with(*self._written(values))
        return True

    def _result(
        self, connection: Connection, driver: connections.Impatient, values: Mapping[str, Any]
    ) -> psycopg.pq.abc.PGresult:
        with self._explained(connection, driver):
            return driver.execute_directly(*self._written(values), is_prepared=self._is_prepared)

    def _written(self, values: Mapping[str, Any]) -> tuple[Sequence[bytes], Sequence[str | None]]:
        if self._compiled is None:
            compiled = self._compile()
            parts = _PARAMETER.split(str(compiled))
            positions = [int(number) - 1 for number in parts[1::2]]
            self._compiled = [part.encode() for part in parts[::2]], [compiled.positiontup[n] for n in positions]
        around, names = self._compiled
        return around, [None if values[name] is None else str(values[name]) for name in names]

    def _compile(self) -> Any:
        return self._statement.compile(dialect=_DIALECT, column_keys=self._columns)

    @contextmanager
    def _explained(self, connection: Connection, driver: connections.Impatient) -> Iterator[None]:
        """Raise what SQLAlchemy would, with the statement and without its values."""
        try:
            yield
        except psycopg.Error as error:
            if driver.closed:
                with suppress(DBAPIError):  # so that it sees that, too, and lets go of all connections to that server
                    connection.exec_driver_sql("SELECT 1")
            raise DBAPIError.instance(
                *(str(self._compile()), None, error, psycopg.Error),
                hide_parameters=True,
                connection_invalidated=connection.invalidated,
                dialect=connection.dialect,
            ) from error


def _driver(connection: Connection) -> connections.Impatient | None:
    """Return the connection to Postgres that is ours, in a transaction of SQLAlchemy, which ends it; else None."""
    found = connection.connection.driver_connection
    if not isinstance(found, connections.Impatient):
        return None
    if not connection.in_transaction():
        connection.begin()
    return found
