"""The transaction a handler runs in: nobody but the worker ends it, and all of it is committed, or nothing."""

import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from sluice.messaging.database import connections

_SAVEPOINT = "sluice_handler"
_ENDS_TRANSACTION = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/|;)*(COMMIT|END|ABORT|ROLLBACK(?!\s+((WORK|TRANSACTION)\s+)?TO\b)|PREPARE\s+TRANSACTION)\b",
    re.IGNORECASE | re.DOTALL,
)
_TRANSACTION_ID, _TRANSACTION_ID_IF_ANY = text("SELECT txid_current()"), text("SELECT txid_current_if_assigned()")
_IN_ERROR = 3  # libpq's PQTRANS_INERROR


type Mark = Callable[[Connection], bool | None]
"""Writes into a transaction, and returns whether that was still the one that was begun; None where it does not know."""


class TransactionEnded(Exception):
    """Raised when anybody but the worker ends, or has ended, a handler's transaction."""

    ENDED = "the handler ended its transaction, allowed is neither commit nor rollback: the worker does that"
    FAILED = "the handler went on after an error of the database, allowed is to let it pass, or a savepoint around it"


class BegunTransaction:
    """The transaction a session is in, guarded while a handler runs: only `commit` commits it, and all of it.

    A commit through SQLAlchemy, and a statement that ends a transaction, are refused where they are tried. A rollback
    through the session is seen. What the driver is told itself is not: so before the commit, after all hooks of the
    session, the database is asked whether it is still that transaction, Postgres for its id, SQLite for a savepoint,
    which ends with its transaction. SQLite commits every statement by itself once its transaction has ended, so there
    the driver is refused too.
    https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-SNAPSHOT,
    https://www.sqlite.org/c3ref/set_authorizer.html, https://www.sqlite.org/lang_transaction.html (read 2026-11-22)

    Args:
        transaction_id: Postgres's, where a statement of it has returned that; None asks.
    """

    def __init__(self, session: Session, transaction_id: int | None = None) -> None:
        self._session, self._transaction = session, session.get_transaction()
        self._connection = session.connection()
        self._driver: Any = self._connection.connection.driver_connection
        self._is_sqlite = self._connection.dialect.name == "sqlite"
        self._id = transaction_id
        self._mark: Mark | None = None
        self._has_committed = self.has_refused_driver = False

    def __enter__(self) -> Self:
        if self._is_sqlite:
            self._connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
            self._driver.set_authorizer(self._authorize)
        elif self._id is None:
            self._id = self._connection.execute(_TRANSACTION_ID).scalar_one()
        listen(self._connection.engine)
        _guarded[self._connection] = self
        return self

    def __exit__(self, *_: object) -> None:
        _guarded.pop(self._connection, None)
        self._let_go()

    def require_open(self) -> None:
        """Raise unless the session is still in this transaction, as far as is known without a query.

        Raises:
            TransactionEnded: it is not, or a statement of it has failed.
        """
        is_same = self._session.get_transaction() is self._transaction
        if not is_same or (self._is_sqlite and not self._driver.in_transaction):
            raise TransactionEnded(TransactionEnded.ENDED)
        if _has_failed(self._connection):
            raise TransactionEnded(TransactionEnded.FAILED)

    def commit(self, mark: Mark) -> None:
        """Commit it, and with it all that was done since it was begun.

        Args:
            mark: writes what belongs to it last, after all hooks of the session.

        Raises:
            TransactionEnded: it has ended meanwhile; nothing was committed here.
            DBAPIError: the database did not do it; whether it was committed is unknown when the connection is lost.
        """
        self._mark = mark
        self._session.commit()
        # After our listener, another may have told the driver to roll back: then the commit was one of nothing.
        if not self._has_committed:
            raise TransactionEnded(TransactionEnded.ENDED)

    def on_commit(self, connection: Connection) -> None:
        """Let the mark be written, or refuse: SQLAlchemy is about to commit, and calls other listeners first."""
        if isinstance(self._driver, connections.HookedConnection):
            self._driver.before_commit = partial(self._end, connection)
        elif not self._has_committed:  # an engine with options also calls the listeners of the one it is made of
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        try:
            self._require_whole(connection)
        except BaseException:
            # SQLAlchemy takes it for committed, and would give the connection back with the transaction open.
            self._let_go()
            with suppress(psycopg.Error):  # the connection may be gone, and then says so first
                self._driver.rollback()
            raise
        self._let_go()
        self._has_committed = True

    def _require_whole(self, connection: Connection) -> None:
        if self._mark is None:
            raise TransactionEnded(TransactionEnded.ENDED)
        if _has_failed(connection):
            raise TransactionEnded(TransactionEnded.FAILED)
        is_whole = self._mark(connection)
        if not (self._is_whole(connection) if is_whole is None else is_whole):
            raise TransactionEnded(TransactionEnded.ENDED)

    def _is_whole(self, connection: Connection) -> bool:
        if not self._is_sqlite:
            return bool(connection.execute(_TRANSACTION_ID_IF_ANY).scalar_one() == self._id)
        try:
            connection.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except OperationalError as error:
            if "no such savepoint" not in str(error.orig):
                raise
            return False
        return True

    def on_rollback(self) -> None:
        """Let go: SQLAlchemy rolls back."""
        self._let_go()

    def on_statement(self, statement: str) -> None:
        """Refuse a statement that would end the transaction."""
        if self._mark is None and _ENDS_TRANSACTION.match(statement):
            raise TransactionEnded(TransactionEnded.ENDED)

    def _authorize(self, action: int, *_: object) -> int:
        is_write = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
        if action != sqlite3.SQLITE_TRANSACTION and not (is_write and not self._driver.in_transaction):
            return sqlite3.SQLITE_OK
        self.has_refused_driver = True
        return sqlite3.SQLITE_DENY

    def _let_go(self) -> None:
        """Refuse the driver nothing any more."""
        if self._is_sqlite:
            with suppress(sqlite3.ProgrammingError):  # a handler may have closed it
                self._driver.set_authorizer(None)


_guarded: WeakKeyDictionary[Connection, BegunTransaction] = WeakKeyDictionary()
_listened: WeakSet[Engine] = WeakSet()
_listening = threading.Lock()


def listen(engine: Engine) -> None:
    """Listen to an engine once: to listen to the connection of each transaction takes a tenth of a message's time."""
    if engine in _listened:
        return
    with _listening:
        if engine not in _listened:
            event.listen(engine, "commit", _on_commit)
            event.listen(engine, "rollback", _on_rollback)
            event.listen(engine, "before_cursor_execute", _on_statement)
            _listened.add(engine)


def _on_commit(connection: Connection) -> None:
    if (begun := _guarded.get(connection)) is not None:
        begun.on_commit(connection)


def _on_rollback(connection: Connection) -> None:
    if (begun := _guarded.get(connection)) is not None:
        begun.on_rollback()


def _on_statement(connection: Connection, _: object, statement: str, *__: object) -> None:
    if (begun := _guarded.get(connection)) is not None:
        begun.on_statement(statement)


def _has_failed(connection: Connection) -> bool:
    """Return whether a statement of the transaction has failed, so that its commit would silently be a rollback."""
    driver: Any = connection.connection.driver_connection
    return connection.dialect.name == "postgresql" and int(driver.info.transaction_status) == _IN_ERROR
