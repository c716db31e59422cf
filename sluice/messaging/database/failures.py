"""Kinds of database errors: whether a retry may succeed, and whether a handler's own query may be the cause.

Postgres has a SQLSTATE for each error. SQLite has a result code, to which a SQLSTATE is assigned here. The text of an
error decides nothing, because it is in the server's language.

https://www.postgresql.org/docs/18/errcodes-appendix.html, https://www.sqlite.org/rescode.html,
https://docs.python.org/3/library/sqlite3.html#sqlite3.Error.sqlite_errorcode (read 2026-11-26)
"""

import sqlite3
from collections import deque
from collections.abc import Iterator

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

LOST = "08000"
"""The SQLSTATE of a connection that failed or was lost, for which libpq has none: connection_exception."""
_ONLY_READS, _FORBIDDEN = "25006", "42501"  # read_only_sql_transaction; insufficient_privilege
_LOCKED = ("55P03", "40P01")  # lock_not_available, deadlock_detected
_OF_SQLITE = {
    sqlite3.SQLITE_ERROR: "42000",
    sqlite3.SQLITE_PERM: _FORBIDDEN,
    sqlite3.SQLITE_ABORT: "57014",
    sqlite3.SQLITE_BUSY: "55P03",
    sqlite3.SQLITE_LOCKED: "55P03",
    sqlite3.SQLITE_NOMEM: "53200",
    sqlite3.SQLITE_READONLY: _ONLY_READS,
    sqlite3.SQLITE_INTERRUPT: "57014",
    sqlite3.SQLITE_IOERR: "58030",
    sqlite3.SQLITE_CORRUPT: "XX001",
    sqlite3.SQLITE_FULL: "53100",
    sqlite3.SQLITE_CANTOPEN: "58030",
    sqlite3.SQLITE_PROTOCOL: "55P03",
    sqlite3.SQLITE_SCHEMA: "40001",
    sqlite3.SQLITE_TOOBIG: "54000",
    sqlite3.SQLITE_CONSTRAINT: "23000",
    sqlite3.SQLITE_MISMATCH: "22000",
    sqlite3.SQLITE_AUTH: _FORBIDDEN,
    sqlite3.SQLITE_NOTADB: "3D000",
}
_PRIMARY = 0xFF  # mask for the primary part of an extended result code
# Connection, lost races, ended transactions, resources, locks and what is closed for now, operators, files, the server.
_MAY_PASS = (
    *("08", "40001", "40003", "40P01", "25P03", "25P04", _ONLY_READS),
    *("53", "55", "57", "58", "XX"),
)
_NEVER_A_MESSAGES = ("53100", "53300")  # disk_full, too_many_connections
_OF_ITS_QUERY = ("57014", "25P04", "53200", "53400")  # query_canceled, transaction_timeout, memory, configured limits
_OF_ITS_DATA = ("22", "23", "54")  # data exception, integrity constraint, program limit
_CHAIN_MAX = 20


def state(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error of SQLAlchemy or of a driver; None if it has none.

    For an error of another kind, it is the SQLSTATE of the error from which, or during which, it was raised.
    """
    return next((found for link in _chain(error) if (found := _state(link)) is not None), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, the errors of a group, and what each was raised from or during, the nearest first."""
    links = deque([error])
    for _ in range(_CHAIN_MAX):
        if not links:
            return
        if (link := links.popleft()) is None:
            continue
        yield link
        links.extend(link.exceptions if isinstance(link, BaseExceptionGroup) else ())
        links.append(link.__cause__ if link.__cause__ is not None or link.__suppress_context__ else link.__context__)


def _state(error: BaseException) -> str | None:
    """Return the SQLSTATE of one error, without the errors it was raised from; None if it has none."""
    driver = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(driver, sqlite3.Error):
        found = _OF_SQLITE.get(getattr(driver, "sqlite_errorcode", -1) & _PRIMARY)
        is_lost = False
    else:
        found = getattr(driver, "sqlstate", None) if isinstance(error, DBAPIError | psycopg.Error) else None
        is_lost = isinstance(
            error, OperationalError | InterfaceError | psycopg.OperationalError | psycopg.InterfaceError
        )
    if isinstance(found, str):
        return found
    is_lost = is_lost or (isinstance(error, DBAPIError) and error.connection_invalidated)
    return LOST if is_lost else None


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may succeed: the database was unreachable or full, or this transaction lost a race.

    Only another transaction shows which of these it is.
    """
    return (state(error) or "").startswith(_MAY_PASS)


def is_never_a_messages(error: BaseException) -> bool:
    """Return whether the disk is full or no connection is left, for which no message is ever at fault."""
    return state(error) in _NEVER_A_MESSAGES


def is_of_its_query(error: BaseException) -> bool:
    """Return whether a handler's own query may be the cause: it took too long, or too much memory."""
    return state(error) in _OF_ITS_QUERY


def is_of_its_data(error: BaseException) -> bool:
    """Return whether the database refuses the data to store: before a handler runs, the only fault of a message."""
    return (state(error) or "").startswith(_OF_ITS_DATA)


def is_lost(error: BaseException) -> bool:
    """Return whether the connection was lost, or none could be made."""
    return (state(error) or "").startswith("08")


def is_only_read(error: BaseException) -> bool:
    """Return whether the server is read-only: then every connection of the pool has to be replaced."""
    return state(error) == _ONLY_READS


def is_locked(error: BaseException) -> bool:
    """Return whether the transaction failed because of a lock timeout or a deadlock."""
    return state(error) in _LOCKED


def is_not_supported(error: BaseException) -> bool:
    """Return whether the statement is not supported: it changes a column that a view depends on, for example."""
    return state(error) == "0A000"


def does_not_fit(error: BaseException) -> bool:
    """Return whether a statement does not fit the tables: it adds a column that exists, or needs a missing one."""
    found = state(error) or ""
    return found.startswith("42") and found != _FORBIDDEN
