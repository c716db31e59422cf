"""Statements of every message, given to the driver itself: SQLAlchemy's own work for one takes longer than its answer.

Elsewhere than on a connection to Postgres that `engines` has made, SQLAlchemy executes the same statement.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NoReturn

import psycopg
from sqlalchemy import ColumnElement, Connection, Insert, Integer, Update
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import DBAPIError

from sluice.messaging.database import engines

_DIALECT = PGDialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class DirectStatement:
    """An insert or update that is put together once.

    Args:
        columns: that it inserts or sets by parameters of their names.
        returning: numbers and texts of the one row that it makes or changes.
    """

    def __init__(
        self, statement: Insert | Update, *, columns: Sequence[str], returning: Sequence[ColumnElement[Any]] = ()
    ) -> None:
        self._statement: Any = statement.returning(*returning) if returning else statement
        self._columns = columns
        self._returned = [(str(column.key), int if isinstance(column.type, Integer) else str) for column in returning]
        self._compiled: tuple[bytes, Sequence[str]] | None = None

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

    def count(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Execute it, and return how many rows it changed.

        Raises:
            DBAPIError: the database did not do it.
        """
        driver = _driver(connection)
        if driver is None:
            return int(connection.execute(self._statement, values).rowcount)
        return self._result(connection, driver, values).command_tuples or 0

    def _result(
        self, connection: Connection, driver: engines.Impatient, values: Mapping[str, Any]
    ) -> psycopg.pq.abc.PGresult:
        if self._compiled is None:
            compiled = self._statement.compile(dialect=_DIALECT, column_keys=self._columns)
            self._compiled = (str(compiled).encode(), compiled.positiontup)
        text, names = self._compiled
        try:
            return driver.execute_directly(
                text, [None if values[name] is None else str(values[name]) for name in names]
            )
        except psycopg.Error as error:
            _refuse(connection, driver, text.decode(), error)


def _driver(connection: Connection) -> engines.Impatient | None:
    """Return the connection to Postgres that is ours, in a transaction of SQLAlchemy, which ends it; else None."""
    found = connection.connection.driver_connection
    if not isinstance(found, engines.Impatient):
        return None
    if not connection.in_transaction():
        connection.begin()
    return found


def _refuse(connection: Connection, driver: engines.Impatient, text: str, error: psycopg.Error) -> NoReturn:
    """Raise what SQLAlchemy would."""
    if driver.closed:
        with suppress(DBAPIError):  # so that it sees that, too, and lets go of all connections to that server
            connection.exec_driver_sql("SELECT 1")
    raise DBAPIError.instance(
        *(text, None, error, psycopg.Error),
        hide_parameters=True,
        connection_invalidated=connection.invalidated,
        dialect=connection.dialect,
    ) from error
