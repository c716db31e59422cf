"""Connections of outbox and inbox: how they are opened, how long they wait, and how they return to their pool.

A handler always gets a connection in the state of a new one. After a handler, a connection returns to its pool in the
state of a new one, or is closed.
- Postgres: together with COMMIT, or with the ROLLBACK before its return, `HookedConnection` sends in one string the
statements that make the session new (`_RESET`). The driver's state is compared with the initial one when the
connection is taken again: factories, adapters, handlers of notices, pipeline, and further references to it. Behind a
pooler, the string is executed by the server's connection that had the transaction.
- SQLite: the connection is closed and a new one opened, unless `SqliteConnection` has seen that its handler changed
rows only. SQLite's counters continue: `total_changes()`, and `last_insert_rowid()` until the next insert. A database in
memory would be lost by a close: its connection stays as its handlers leave it.
- An engine that the user made: the connection is closed.

A connection that a handler, or a thread of the handler, takes from the worker's pool itself returns in the same way.
"""

import asyncio
import functools
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Any
from weakref import WeakSet, finalize, getweakrefcount

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types import TypeInfo, TypesRegistry
from sqlalchemy import Connection, Engine, ExceptionContext, event
from sqlalchemy.exc import DatabaseError, DisconnectionError, InvalidatePoolError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from sluice.clock import SystemClock
from sluice.messaging.database import failures
from sluice.messaging.database.answer_watch import AnswerWatch, shut_down
from sluice.messaging.database.refused_connections import with_sqlstate
from sluice.terminal.logger import Logger

_log = Logger()
_IDLE_SECONDS = 1.0
_RETURNED_AT, _LENT, _OPENED_FOR = "sluice_returned_at", "sluice_lent", "sluice_opened_for"
_BUSY_SECONDS = 5
_REPEATS = 5  # psycopg's own threshold, https://www.psycopg.org/psycopg3/docs/advanced/prepare.html (read 2026-11-26)
ENDED = "the handler ended its transaction, allowed is neither commit nor rollback: the worker does that"
LEFT_BEHIND = "this connection was its handler's, which has returned; a thread opens a session of its own"
# A plan prepared while the outbox was small would be kept when it is large: a head query then takes seconds, not
# milliseconds, until Postgres has counted again. https://www.psycopg.org/psycopg3/docs/advanced/prepare.html
# (read 2026-11-21).
# A host that is gone without a word is noticed within half a minute, not after the two hours of the system's keepalive.
# https://www.postgresql.org/docs/18/libpq-connect.html (read 2026-11-21).
# What a DSN could name besides libpq's options are psycopg's own arguments: text is none of their values.
_POSTGRES: dict[str, Any] = {
    "autocommit": False,
    "row_factory": None,
    "cursor_factory": None,
    "prepare_threshold": None,
    "client_encoding": "utf8",  # the role may have another encoding
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# DISCARD ALL, which may stand in no string with another statement, without DISCARD PLANS, which forgets nothing but
# time, and with RESET ROLE, for a role that a login role has by ALTER ROLE.
# https://www.postgresql.org/docs/18/sql-discard.html,
# https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-MULTI-STATEMENT (read 2026-11-26)
_RESET = "; ".join(
    (
        *("CLOSE ALL", "RESET SESSION AUTHORIZATION", "RESET ROLE", "RESET ALL", "DEALLOCATE ALL", "UNLISTEN *"),
        *("SELECT pg_catalog.pg_advisory_unlock_all()", "DISCARD TEMP", "DISCARD SEQUENCES"),
    )
)
# Between two handlers of one transaction. Their own plans stay: psycopg knows which there are.
_RESET_WITHIN = _RESET.replace("DEALLOCATE ALL; ", "")
_SEED_BYTES = 6


def _reset_statements() -> str:
    """Return the statements that reset a session of Postgres, with a new seed for `random()`.

    https://www.postgresql.org/docs/18/functions-math.html#FUNCTIONS-MATH-RANDOM-TABLE (read 2026-11-27)
    """
    return f"{_RESET}; SET seed = {int.from_bytes(os.urandom(_SEED_BYTES)) / 2 ** (8 * _SEED_BYTES - 1) - 1:.15f}"


# What listeners of the engine set when they opened the connection, RESET would take away, and nothing brings back. Two
# settings are ours, and the transaction's alone.
_OPENED_WITH = (
    "SAVEPOINT sluice_look; SELECT pg_catalog.current_setting('role'), (SELECT pg_catalog.count(*)"
    " FROM pg_catalog.pg_settings WHERE source = 'session'"
    " AND name NOT IN ('idle_in_transaction_session_timeout', 'synchronous_commit'));"
    " RESET ROLE; SELECT pg_catalog.current_setting('role');"
    " ROLLBACK TO SAVEPOINT sluice_look; RELEASE SAVEPOINT sluice_look"
)

_OF_ROWS = frozenset(
    (
        *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE),
        *(sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE),
        *(sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT),
    )
)
# Functions that change what the connection has: https://www.sqlite.org/fts3.html#custom_application_defined_tokenizers,
# https://www.sqlite.org/src/doc/trunk/ext/icu/README.txt (read 2026-11-26)
_CHANGING_FUNCTIONS = ("load_extension", "fts3_tokenizer", "icu_load_collation")
# Methods that may change more than rows.
# https://docs.python.org/3/library/sqlite3.html#connection-objects (read 2026-11-26)
_CHANGES_OF_SQLITE = {
    *("create_function", "create_aggregate", "create_window_function", "create_collation", "set_progress_handler"),
    *("set_trace_callback", "enable_load_extension", "load_extension", "setlimit", "setconfig", "deserialize"),
    *("interrupt", "blobopen", "backup"),
}


class _Types(TypesRegistry):
    """psycopg's types of a connection, with the count of registrations."""

    changes = 0

    def add(self, info: TypeInfo) -> None:
        self.changes += 1
        super().add(info)


class _Adapters(AdaptersMap):
    """psycopg's adapters of a connection, with the count of registrations, those of types included."""

    def __init__(self, template: AdaptersMap) -> None:
        super().__init__(template)
        self._changes, self._types = 0, _Types(template.types)
        self.types = self._types

    @property
    def changes(self) -> int:
        return self._changes + self._types.changes

    def register_dumper(self, *arguments: Any) -> None:
        self._changes += 1
        super().register_dumper(*arguments)

    def register_loader(self, *arguments: Any) -> None:
        self._changes += 1
        super().register_loader(*arguments)


class HookedConnection(psycopg.Connection[Any]):
    """A connection to Postgres that a handler may use: it is reset afterwards, or reports that it could not be.

    While it is lent to a handler, it commits only if `before_commit` is set. After the end of the handler's transaction
    it executes nothing more, and after `keep_to_this_thread` nothing for another thread.
    """

    _thread: int | None = None
    _is_allowed: Callable[[], bool] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; a factory only for the handler or thread that has the connection."""
        if name.endswith("_factory"):
            self._require_this_thread()
        super().__setattr__(name, value)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._own_lock = self.lock
        self.before_commit: Callable[[], None] | None = None
        """Called once, by the next commit, after every listener of SQLAlchemy. If it raises, the commit raises that and
        does not commit. A rollback forgets it."""
        self._is_lent = self._has_ended = self._has_ended_itself = False
        self._is_first = self._is_resettable = True
        self._is_borrowed = self._is_new = self._is_pooled = False
        self._thread = self._is_allowed = None
        self._transactions = self._changes = self._fewest = 0
        self._limit = "SELECT"
        self._opened: tuple[Any, ...] | None = None
        self._watched: _Adapters | None = None
        self.note_question: Callable[[HookedConnection], None] | None = None
        """Called with this connection before each message to the server, for which an answer is awaited."""

    @property
    def adapters(self) -> _Adapters:
        """Return the adapters of this connection, which count registrations; copied at the first access."""
        if self._watched is None:
            self._watched = _Adapters(super().adapters)
        return self._watched

    @property
    def may_have_committed(self) -> bool:
        """Return whether a statement of the handler, and not a rollback, has ended its transaction."""
        self._notice_end()
        return self._has_ended_itself

    def borrow(self) -> None:
        """Note that code other than the worker takes the connection from the pool, for transactions of its own."""
        if self._is_first:
            self._note_initial_settings()
            super().rollback()
        self._is_borrowed, self._is_new = True, False

    def lend(self) -> None:
        """Note that a handler is about to get the connection, in a transaction."""
        if self._is_first:
            self._note_initial_settings()
        self._is_lent = self._is_borrowed = True
        self._has_ended = self._has_ended_itself = False

    def keep_to_this_thread(self) -> None:
        """Execute nothing of other threads from now on, because the handler has returned."""
        self._thread, self._is_allowed = threading.get_ident(), None

    def keep_to(self, is_allowed: Callable[[], bool]) -> None:
        """Execute only what this function allows, which is called on the thread of each call."""
        self._thread, self._is_allowed = None, is_allowed

    def require_lent(self) -> None:
        """Raise unless the handler's transaction is still open and no call is under way in it.

        Raises:
            psycopg.ProgrammingError: the transaction has ended, or the handler left a pipeline, a COPY or a running
                thread.
        """
        self._notice_end()
        if self._has_ended:
            raise psycopg.ProgrammingError(ENDED)
        if not self.is_at_rest():
            raise psycopg.ProgrammingError(
                "the handler left its connection at work (a pipeline, a COPY, results unread, a thread), allowed is to"
                " end that before it returns"
            )

    def transaction_id(self) -> int | None:
        """Return the id of its transaction, independent of the handler's type adapters; None if it has none."""
        with self.lock:
            answer = self.pgconn.exec_(b"SELECT pg_catalog.txid_current_if_assigned()")
        value = answer.get_value(0, 0) if answer.ntuples else None
        return None if value is None else int(value)

    def execute_at_once(self, *statements: str) -> None:
        """Execute statements without parameters in one round trip; the last one returns no rows.

        Raises:
            psycopg.Error: the server refused one, or did not answer.
        """
        self._require_this_thread()
        if self.note_question is not None:
            self.note_question(self)
        with self.lock:
            answer = self.pgconn.exec_("; ".join(statements).encode(self.info.encoding))
        if answer.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(answer)

    def renew(self, *statements: str) -> None:
        """Execute statements at once, and before the last one reset the session, with the transaction left open.

        Raises:
            psycopg.Error: the server refused one, or did not answer.
        """
        *before, last = statements
        self.execute_at_once(*before, *((_RESET_WITHIN, self._limit) if self._is_resettable else ()), last)

    def begin(self, idle_seconds: float) -> None:
        """Begin a transaction, unless one is open, which Postgres ends if no statement arrives for `idle_seconds`.

        The limit applies to this transaction only, because sessions are shared behind a pooler.
        """
        if self.pgconn.transaction_status != TransactionStatus.IDLE or self.autocommit or self._has_ended:
            return
        limit = f"SET LOCAL idle_in_transaction_session_timeout = {round(idle_seconds * 1_000)}"
        self._limit = limit
        if (self.isolation_level, self.read_only, self.deferrable) != (None, None, None):
            self.execute(limit)  # after psycopg's BEGIN with these options
            return
        if self.note_question is not None:
            self.note_question(self)
        with self.lock:
            self.pgconn.exec_(f"BEGIN; {limit}".encode())  # if it fails, the next statement fails too

    def commit(self) -> None:
        """Call `before_commit`, then commit; reset the session if a handler had the connection.

        Raises:
            psycopg.ProgrammingError: the connection is lent, and the caller is not the worker.
        """
        call, self.before_commit = self.before_commit, None
        if call is not None:
            call()
        elif self._is_lent:
            raise psycopg.ProgrammingError(ENDED)
        if not self._is_lent or self._transactions:  # of which psycopg refuses the commit
            super().commit()
            return
        self._end("COMMIT")

    def rollback(self) -> None:
        """Roll back, and forget `before_commit`."""
        self.before_commit = None
        if not self._is_lent:
            super().rollback()
            return
        self._require_this_thread()
        self._notice_end()
        if self.interrupt():  # psycopg would wait for the running call for ever
            self.close()
        elif self.pgconn.transaction_status != TransactionStatus.IDLE:
            if self.note_question is not None:
                self.note_question(self)
            with self.lock:
                self.pgconn.exec_(b"ROLLBACK")  # psycopg refuses a rollback inside an open `transaction()` block
        self._has_ended = True

    @contextmanager
    def transaction(self, *arguments: Any, **named: Any) -> Iterator[psycopg.Transaction]:
        """Begin a savepoint, or a transaction, as psycopg does."""
        self._transactions += 1
        try:
            with super().transaction(*arguments, **named) as begun:
                yield begun
        finally:
            self._transactions -= 1

    def add_notice_handler(self, callback: Callable[..., None]) -> None:
        """Call back for each notice."""
        self._changes += 1
        super().add_notice_handler(callback)

    def add_notify_handler(self, callback: Callable[..., None]) -> None:
        """Call back for each notification."""
        self._changes += 1
        super().add_notify_handler(callback)

    @property
    def prepare_threshold(self) -> int | None:
        """Return after how many executions psycopg prepares a statement; None for never."""
        return super().prepare_threshold

    @prepare_threshold.setter
    def prepare_threshold(self, value: int | None) -> None:
        """Set the threshold, and note the change: psycopg would use prepared statements that a reset has removed."""
        self._changes += 1
        psycopg.Connection.prepare_threshold.__set__(self, value)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the connection.

        Raises:
            psycopg.InterfaceError: another thread uses it.
        """
        if self._is_lent:
            self._require_this_thread()
        super().close()

    def wait(self, gen: Any, *arguments: Any, **named: Any) -> Any:
        """Run psycopg's communication with the server; every call passes through here.

        Raises:
            psycopg.InterfaceError: another thread uses the connection.
            psycopg.ProgrammingError: the handler's transaction has ended, and the connection may be in its pool.
        """
        self._require_this_thread()
        self._notice_end()
        if self._is_pooled or (self._is_lent and self._has_ended):
            raise psycopg.ProgrammingError(ENDED)
        self._is_new = False
        if self.note_question is not None:
            self.note_question(self)
        return super().wait(gen, *arguments, **named)

    def give_back(self) -> bool:
        """Roll back, and reset the session if a handler had it; return False if it could not be reset."""
        if self._is_borrowed and not self._is_new:
            if self.interrupt():
                return False
            self._end("ROLLBACK")
        self._is_borrowed = False
        if self._transactions or self.pgconn.transaction_status != TransactionStatus.IDLE:
            super().rollback()  # refused where a handler left a transaction of psycopg's open
        return self._is_resettable

    def put_away(self) -> None:
        """Execute nothing from now on, until the connection is taken from its pool."""
        self._is_pooled = True

    def interrupt(self) -> bool:
        """End a call that is under way in another thread, or a COPY; return whether there was one."""
        if self.is_at_rest():
            return False
        shut_down(self)
        return True

    def is_as_new(self) -> bool:
        """Return whether the connection, taken from its pool, has the state of a new one, and nobody else has it.

        Somebody has it if there are more references to it than when it was opened: a cursor, or a thread's variable.
        """
        count = sys.getrefcount(self) + sys.getrefcount(self.pgconn)
        self._is_pooled = False
        if self._opened is None:  # as its engine's listeners have left it
            self._opened, self._fewest = self.state(), count
            return True
        self._thread, self._fewest = None, min(count, self._fewest)
        is_idle = self.pgconn.transaction_status == TransactionStatus.IDLE
        if not (is_idle and count == self._fewest and self.is_at_rest()):
            return False
        if self.isolation_level != self._opened[1]:  # SQLAlchemy names the default after a look in AUTOCOMMIT
            self.isolation_level = self._opened[1]
        return self.state() == self._opened

    def _note_initial_settings(self) -> None:
        """Note whether a reset restores the settings that the engine's listeners made; warn if it does not."""
        cursor, rows = psycopg.Cursor(self, row_factory=tuple_row), list[Any]()
        cursor.execute(_OPENED_WITH, prepare=False)
        while cursor.nextset():
            rows += cursor.fetchall() if cursor.description else []
        (role, settings), (of_new,) = rows
        self._is_first = False
        self._is_resettable = settings == 0 and role == of_new and self.prepare_threshold is None
        if not self._is_resettable:
            _log.warning(
                "connections are closed after each message, as listeners of the engine set something when they are"
                " opened; give the DSN options=-csearch_path=… or the like, or use ALTER ROLE … SET"
            )

    def state(self) -> tuple[Any, ...]:
        """Return the values that a handler may change on the driver's side of the connection."""
        return (
            *(self.autocommit, self.isolation_level, self.read_only, self.deferrable),
            *(self.row_factory, self.cursor_factory, self.server_cursor_factory),
            *(self.prepare_threshold, self.prepared_max, self._changes, self._transactions),
            *(self.pgconn.notice_handler, self.pgconn.notify_handler),
            *(self.adapters.changes, frozenset(vars(self))),
        )

    def is_at_rest(self) -> bool:
        """Return whether nothing is under way on it: no statement, COPY or pipeline, here or in another thread."""
        is_idle = self.pgconn.transaction_status not in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)
        is_unlocked = self.lock is self._own_lock and not self._own_lock.locked()
        return bool(is_idle and self.pgconn.pipeline_status == PipelineStatus.OFF) and is_unlocked

    def _require_this_thread(self) -> None:
        if self._thread not in (None, threading.get_ident()) or not (self._is_allowed is None or self._is_allowed()):
            raise psycopg.InterfaceError(LEFT_BEHIND)

    def _notice_end(self) -> None:
        """Note whether the last statement has ended the handler's transaction."""
        if self._is_lent and not self._has_ended and self.pgconn.transaction_status == TransactionStatus.IDLE:
            self._has_ended = self._has_ended_itself = True

    def _end(self, command: str) -> None:
        """End the transaction by COMMIT or ROLLBACK, and reset the session, in one round trip.

        Raises:
            psycopg.Error: the server refused or did not answer, or another thread uses the connection.
        """
        self._require_this_thread()
        self._has_ended = True  # also if it fails, because a failed COMMIT is a rollback
        if self.note_question is not None:
            self.note_question(self)
        is_idle = (
            self.pgconn.transaction_status == TransactionStatus.IDLE
        )  # the server logs a warning of a ROLLBACK then
        with self.lock:  # without a cursor, which takes as long again
            answer = self.pgconn.exec_(
                (_reset_statements() if is_idle else f"{command}; {_reset_statements()}").encode()
            )
        if answer.status != ExecStatus.COMMAND_OK:
            if self.closed:
                raise psycopg.OperationalError(f"the connection was lost: {answer.get_error_message()}")
            raise psycopg.errors.error_from_result(answer)
        self._is_new, self._is_lent, self._has_ended = True, False, False


class SqliteCursor(sqlite3.Cursor):
    """A cursor that executes for one thread at a time; after `keep_to_this_thread` it refuses the other threads."""

    connection: "SqliteConnection"

    def execute(self, *arguments: Any) -> Any:
        """Execute a statement."""
        with self.connection.lock:
            self.connection.begin_statement()
            return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """Execute a statement for each of several parameters."""
        with self.connection.lock:
            self.connection.begin_statement()
            return super().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        """Execute several statements."""
        with self.connection.lock:
            self.connection.begin_statement()
            return super().executescript(*arguments)


class _SqliteWatch:
    """Sees every statement that is prepared on a connection, and notes statements that may change more than rows.

    https://www.sqlite.org/c3ref/c_alter_table.html (read 2026-11-26)
    """

    def __init__(self) -> None:
        self.authorizer: Callable[..., int] | None = None
        self.has_seen_change = self.has_seen_any = False

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None, *more: Any) -> int:
        """Return the authorizer's decision about an action, and note whether the action may change more than rows.

        SQLite calls it for each action while it prepares the statement. What `first` and `second` are depends on the
        action: for a function, `second` is its name. An action changes rows only if it is in `_OF_ROWS`, is done in the
        main database, and calls none of the functions that change the connection.
        """
        self.has_seen_any = True
        is_of_rows = action in _OF_ROWS and database in (None, "main") and second not in _CHANGING_FUNCTIONS
        self.has_seen_change = self.has_seen_change or not is_of_rows
        decide = self.authorizer
        return sqlite3.SQLITE_OK if decide is None else decide(action, first, second, database, *more)


class SqliteConnection(sqlite3.Connection):
    """A connection to SQLite that a handler may use; threads that the handler leaves behind cannot use it.

    While a handler has the connection, its authorizer is the worker's. One thread at a time uses the connection: while
    another thread is in SQLite, to set an authorizer is a deadlock, and to close the connection crashes the process.

    The connection notes whether a handler may have changed more than rows, by a statement, a method or an attribute.
    Its authorizer sees a statement only when SQLite prepares it. A statement that an earlier message prepared changes
    rows only, because otherwise the connection would have been closed.
    """

    cursor_factories: tuple[type[SqliteCursor], ...] = (SqliteCursor,)
    """The classes of cursors that are known to change only rows; another class counts as a change."""
    _thread: int | None = None
    _is_allowed: Callable[[], bool] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; a factory only for the handler or thread that has the connection."""
        if name.endswith("_factory"):
            self.require_this_thread()
        super().__setattr__(name, value)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lock, self._watch, self._is_watched = threading.RLock(), _SqliteWatch(), False
        self._thread = self._is_allowed = None
        self._is_lent, self._fewest = False, inf
        self._lent_with: tuple[Any, ...] | None = None

    def require_this_thread(self) -> None:
        """Raise unless this thread may use the connection.

        Raises:
            sqlite3.ProgrammingError: the connection is kept to another thread.
        """
        if self._thread not in (None, threading.get_ident()) or not (self._is_allowed is None or self._is_allowed()):
            raise sqlite3.ProgrammingError(LEFT_BEHIND)

    def begin_statement(self) -> None:
        """Check the thread; if the handler's transaction has ended, let the watch see prepared statements again.

        Raises:
            sqlite3.ProgrammingError: the connection is kept to another thread.
        """
        self.require_this_thread()
        if self._watch.authorizer is not None and not self.in_transaction:
            self._see_everything()

    def keep_to_this_thread(self) -> None:
        """Execute nothing of other threads from now on, because the handler has returned."""
        with self.lock:
            self._thread, self._is_allowed = threading.get_ident(), None

    def keep_to(self, is_allowed: Callable[[], bool]) -> None:
        """Execute only what this function allows, which is called on the thread of each call."""
        with self.lock:
            self._thread, self._is_allowed = None, is_allowed

    def lend(self) -> None:
        """Note that a handler is about to get the connection; its authorizer has been set before."""
        self._is_lent = True
        if self._lent_with is None:
            self._lent_with, self._watch.has_seen_change = self.state(), False

    def give_back(self) -> bool:
        """Return whether the handler left nothing on the connection; False if the worker had not lent it."""
        self._is_lent = False
        return self._lent_with is not None and self._is_as_lent()

    def is_let_go(self) -> bool:
        """Return whether only the pool refers to the connection, and it is unchanged.

        A cursor, an open blob and a variable of a thread count as references.
        """
        count = sys.getrefcount(self) + getweakrefcount(self)
        self._thread, self._fewest = None, min(count, self._fewest)
        with suppress(sqlite3.ProgrammingError):  # it was closed meanwhile
            is_as_new = not self.in_transaction if self._lent_with is None else self._is_as_lent()
            return count == self._fewest and is_as_new
        return False

    def _is_as_lent(self) -> bool:
        """Return whether the connection is unchanged since the handler got it, and in no transaction."""
        is_at_rest = not (self.in_transaction or self._watch.has_seen_change)
        return is_at_rest and self.state() == self._lent_with

    def state(self) -> tuple[Any, ...]:
        """Return the values that a handler may change on the connection object."""
        settings = (self.isolation_level, self.autocommit, self.row_factory, self.text_factory)
        return *settings, frozenset(vars(self))

    @property
    def has_seen_change(self) -> bool:
        """Return whether the handler may have changed more than rows."""
        return self._watch.has_seen_change

    def note_change(self) -> None:
        """Note that the connection may no longer be in the state of a new one."""
        self._watch.has_seen_change = True

    def guard(self, authorizer: Callable[..., int] | None) -> None:
        """Set the function that authorizes each statement; a handler can then set no other. None ends that."""
        with self.lock:
            if not (authorizer is None or self._is_watched):
                self._see_everything()
            self._watch.authorizer = authorizer

    def set_authorizer(self, authorizer_callback: Any) -> None:
        """Set the function that authorizes each statement; None removes it.

        Raises:
            sqlite3.ProgrammingError: a handler has the connection, and the worker's authorizer stays.
        """
        if self._watch.authorizer is not None:
            raise sqlite3.ProgrammingError("the authorizer is the worker's while a handler runs; set none")
        self.note_change()
        self._is_watched = False
        super().set_authorizer(authorizer_callback)

    def _see_everything(self) -> None:
        """Let the watch see every statement from now on: a new authorizer makes SQLite prepare statements again."""
        super().set_authorizer(self._watch)
        self._is_watched = True

    def cursor(self, factory: Any = SqliteCursor) -> Any:
        """Return a cursor of the class `factory`."""
        if factory not in self.cursor_factories:
            self.note_change()
            if self._watch.authorizer is not None:
                self._see_everything()
        return super().cursor(factory)

    # Python's own would take a plain cursor: https://docs.python.org/3/library/sqlite3.html#how-to-use-connection-shortcut-methods
    def execute(self, *arguments: Any) -> Any:
        """Return a cursor that has executed a statement."""
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """Return a cursor that has executed a statement for each of several parameters."""
        return self.cursor().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        """Return a cursor that has executed several statements."""
        return self.cursor().executescript(*arguments)

    def commit(self) -> None:
        """Commit, so that the watch sees it."""
        self._end(super().commit)

    def rollback(self) -> None:
        """Roll back, so that the watch sees it."""
        self._end(super().rollback)

    def _end(self, end: Callable[[], None]) -> None:
        """Call `end`, which ends the transaction; if the watch does not see that, a handler has replaced the watch."""
        with self.lock:
            self.require_this_thread()
            self._watch.has_seen_any = not (self._is_watched and self.in_transaction)
            end()
            if not self._watch.has_seen_any:
                self.note_change()
            if self._watch.authorizer is not None:
                self._see_everything()

    def close(self) -> None:
        """Close the connection; refuse other threads while a handler has it."""
        with self.lock:
            if self._is_lent:
                self.require_this_thread()
            super().close()


def _with_note(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of sqlite3's connection that first notes that the connection may have been changed."""

    @functools.wraps(plain)
    def change(connection: SqliteConnection, *arguments: Any, **named: Any) -> Any:
        connection.require_this_thread()
        connection.note_change()
        return plain(connection, *arguments, **named)

    return change


for _name in _CHANGES_OF_SQLITE & vars(sqlite3.Connection).keys():  # a build may have none for extensions
    setattr(SqliteConnection, _name, _with_note(getattr(sqlite3.Connection, _name)))


def open_postgres(
    _: object,
    __: object,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    *,
    kind: type[HookedConnection] = HookedConnection,
) -> HookedConnection:
    """Return a new connection to Postgres, for SQLAlchemy's `do_connect`.

    Raises:
        RefusedConnectionError: the server refuses the connection.
        OperationalError: the server does not answer.
    """
    named = {**named, **_POSTGRES}
    try:
        return kind.connect(*arguments, **named)
    except psycopg.OperationalError as error:
        raise with_sqlstate(error, arguments, named) from error.__cause__


def keep_plans(connection: psycopg.Connection[Any], _: object) -> None:
    """Let psycopg prepare repeated statements on a new connection, unless it goes to a pooler; for `connect` events.

    Behind a pooler the next transaction may be on another connection of the server, which has no such plan. A pooler is
    noticed by its process id: https://www.postgresql.org/docs/18/libpq-status.html#LIBPQ-PQBACKENDPID (read 2026-11-26)
    """
    answered = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.rollback()
    if answered == (connection.info.backend_pid,):
        connection.prepare_threshold = _REPEATS


async def open_postgres_async(arguments: Sequence[Any], named: Mapping[str, Any]) -> "psycopg.AsyncConnection[Any]":
    """Return a new connection for asyncio, on which repeated statements are prepared, as by `keep_plans`.

    Raises:
        RefusedConnectionError: the server refuses the connection.
        OperationalError: the server does not answer.
    """
    named = {**named, **_POSTGRES}
    try:
        connection = await psycopg.AsyncConnection.connect(*arguments, **named)
    except psycopg.OperationalError as error:
        raise await asyncio.to_thread(with_sqlstate, error, arguments, named) from error.__cause__
    answered = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    await connection.rollback()
    if answered == (connection.info.backend_pid,):
        connection.prepare_threshold = _REPEATS
    return connection


def open_sqlite(connection: Any, _: object) -> None:
    """Set up a new connection to SQLite so that it keeps its commits. For SQLAlchemy's `connect`."""
    connection.isolation_level = None  # the driver begins nothing by itself
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={_BUSY_SECONDS * 1_000}"):
        connection.execute(f"PRAGMA {pragma}").close()


def execute(connection: Connection, statement: str) -> None:
    """Execute a statement without parameters or rows on SQLite by its driver, which is several times as fast.

    Raises:
        DatabaseError: SQLite refuses the statement; a locked database is an OperationalError, as with SQLAlchemy.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute(statement)
        cursor.close()
    except sqlite3.OperationalError as error:
        raise OperationalError(statement, None, error) from error
    except sqlite3.Error as error:
        raise DatabaseError(statement, None, error) from error


def authorize(connection: sqlite3.Connection, authorizer: Callable[..., int] | None) -> None:
    """Let a function decide which actions a connection to SQLite allows while a handler has it; None allows all."""
    with suppress(sqlite3.ProgrammingError):  # a handler may have closed it
        if isinstance(connection, SqliteConnection):
            connection.guard(authorizer)
        else:
            connection.set_authorizer(authorizer)


def lend(connection: Connection) -> None:
    """Note that a handler is about to get a connection, in a transaction, so that it is reset when it returns.

    Raises:
        psycopg.Error: the database does not answer.
    """
    _note_infos(connection.connection)
    driver: Any = connection.connection.driver_connection
    if isinstance(driver, HookedConnection | SqliteConnection):
        driver.lend()


class _Thread(threading.local):
    is_workers = False


_thread = _Thread()


def begin_own_work() -> None:
    """Note that this thread works for the worker, so a connection it takes from a pool is not a handler's."""
    _thread.is_workers = True


def end_own_work() -> None:
    """Note that a handler runs on this thread, so a connection it takes from a pool now is the handler's."""
    _thread.is_workers = False


def mark_borrowed(engine: Engine) -> None:
    """Treat a connection that other code than the worker takes from the pool like one that was lent to a handler.

    A handler, or its thread, may open a second session, whose settings would otherwise reach another message.
    """

    @event.listens_for(engine, "checkout")
    def lend(connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
        if _thread.is_workers:
            return
        _note_infos(record)
        if isinstance(connection, HookedConnection):
            connection.borrow()


def reset_on_return(engine: Engine) -> None:
    """Roll back each connection that returns to the engine's pool, and reset it if a handler had it.

    SQLAlchemy alone does not roll back after a listener of its commit has failed: the next user of the connection would
    commit the rows. A connection that is taken from the pool after a pause of a second is pinged first; without a pause
    that would cost a round trip for each transaction.
    https://docs.sqlalchemy.org/en/21/core/pooling.html#pool-reset-on-return (read 2026-11-26)
    """
    clock = SystemClock()

    @event.listens_for(engine, "reset")
    def reset(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        try:
            if not isinstance(connection, HookedConnection):
                connection.rollback()
            elif not connection.give_back():
                record.invalidate()
        except engine.dialect.loaded_dbapi.Error:  # the handler has closed it, or the server has
            record.invalidate()

    @event.listens_for(engine, "checkin")
    def note_return(_: Any, record: ConnectionPoolEntry) -> None:
        record.info[_RETURNED_AT] = clock.monotonic()

    event.listen(engine, "checkin", _put_away)

    @event.listens_for(engine, "checkout")
    def require_as_new(connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
        if isinstance(connection, HookedConnection) and not connection.is_as_new():
            connection.interrupt()
            raise DisconnectionError("a handler left something on its connection, or still has it")
        if clock.monotonic() - record.info.get(_RETURNED_AT, inf) < _IDLE_SECONDS:  # of a new one that is no time
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error


def _put_away(connection: Any, _: ConnectionPoolEntry) -> None:
    if isinstance(connection, HookedConnection):
        connection.put_away()


def leave_standbys(engine: Engine) -> None:
    """Drop all pooled connections to a Postgres that becomes read-only, as a former primary does after a failover.

    The next connections go to the server that the address names by then. Safe to repeat, also on the user's engine.

    https://docs.sqlalchemy.org/en/21/core/events.html#sqlalchemy.events.DialectEvents.handle_error (read 2026-11-26)
    """
    if engine.dialect.name == "postgresql" and not event.contains(engine, "handle_error", _note_standby):
        event.listen(engine, "handle_error", _note_standby)


def _note_standby(context: ExceptionContext) -> None:
    if failures.is_only_read(context.original_exception):
        context.is_disconnect = True


_closed_when_lent: WeakSet[Engine] = WeakSet()


def close_changed_connections(engine: Engine) -> None:
    """Close a connection that returns from a handler and cannot be reset: SQLite's, or another driver's.

    A connection that was in use when its engine was disposed of is closed as well: nobody takes it from its old pool
    again, so it would stay open until it is garbage. https://docs.sqlalchemy.org/en/21/core/connections.html
    (`Engine.dispose`, read 2026-11-26)

    One more connection to an SQLite file stays open, because SQLite writes its log into the file, which costs a sync,
    whenever the last connection closes. https://www.sqlite.org/wal.html#ckpt (read 2026-11-26)
    """
    if engine in _closed_when_lent:
        return
    _closed_when_lent.add(engine)
    stays_open = list[Any]()
    is_in_memory = _is_in_memory(engine)

    @event.listens_for(engine, "connect")
    def note_owner(_: Any, record: ConnectionPoolEntry) -> None:
        record.info[_OPENED_FOR] = os.getpid(), engine.pool

    @event.listens_for(engine, "checkin")
    def invalidate_if_used(connection: Any, record: ConnectionPoolEntry) -> None:
        is_lent = _restore_infos(record)
        if connection is None or is_in_memory:
            return
        if _is_of_old_pool(record, engine):
            record.invalidate()
        elif is_lent and not _is_as_new_when_back(connection):
            _open_one_more(engine, stays_open)
            record.invalidate()

    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "checkout")
    def require_let_go(connection: Any, *_: Any) -> None:
        if isinstance(connection, SqliteConnection) and not (is_in_memory or connection.is_let_go()):
            raise DisconnectionError("somebody still has this connection")

    event.listen(engine, "engine_disposed", lambda _: _close_all(stays_open))


def _note_infos(pooled: ConnectionPoolEntry | PoolProxiedConnection) -> None:
    """Note the contents of a connection's two dictionaries for users, before code other than the worker gets it.

    https://docs.sqlalchemy.org/en/21/core/pooling.html#sqlalchemy.pool.ManagesConnection.info (read 2026-11-27)
    """
    pooled.info[_LENT] = pooled.info.copy(), dict(pooled.record_info or {})


def _restore_infos(record: ConnectionPoolEntry) -> bool:
    """Restore a lent connection's two dictionaries for users; return whether the connection was lent."""
    before = record.info.pop(_LENT, None)
    if before is None:
        return False
    ours = {name: value for name, value in record.info.items() if name in (_RETURNED_AT, _OPENED_FOR)}
    for info, noted in ((record.info, before[0] | ours), (record.record_info, before[1])):
        if info is not None and info != noted:
            info.clear()
            info.update(noted)
    return True


def _close_all(opened: list[Any]) -> None:
    while opened:
        opened.pop().close()


def _is_in_memory(engine: Engine) -> bool:
    database = engine.url.database
    is_shared = str(database).startswith("file:") and "memory" in str(engine.url)
    return engine.dialect.name == "sqlite" and (database in (None, "", ":memory:") or is_shared)


def _is_of_old_pool(record: ConnectionPoolEntry, engine: Engine) -> bool:
    """Return whether a connection was opened by this process for a pool that its engine no longer has."""
    process_id, pool = record.info.get(_OPENED_FOR, (0, None))
    return process_id == os.getpid() and pool is not engine.pool  # a fork's connections are its parent's


def _is_as_new_when_back(connection: Any) -> bool:
    """Return whether a connection that returns from a handler has the state of a new one."""
    if isinstance(connection, HookedConnection):
        return True  # `reset_on_return` has made it new
    with suppress(sqlite3.ProgrammingError):  # it is closed
        return isinstance(connection, SqliteConnection) and connection.give_back()
    return False


def _open_one_more(engine: Engine, stays_open: list[Any]) -> None:
    """Open a connection to an SQLite file that stays open, unless the list has one; add it to the list."""
    if engine.dialect.name != "sqlite" or stays_open:
        return
    arguments, named = engine.dialect.create_connect_args(engine.url)
    opened = engine.dialect.loaded_dbapi.connect(*arguments, **named)
    opened.execute("SELECT count(*) FROM sqlite_schema").close()
    stays_open.append(opened)
    finalize(engine, opened.close)


def end_waits(engine: Engine, seconds: float) -> None:
    """Limit the time that Postgres and this process wait for each other, on connections that are opened from now on.

    Postgres ends a transaction in which no statement arrives for `seconds`: its process may be frozen or gone, and its
    locks would keep others waiting. A connection on which an answer takes `seconds` is closed (`AnswerWatch`).
    https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21),
    https://docs.sqlalchemy.org/en/21/core/events.html#sqlalchemy.events.DialectEvents.do_execute (read 2026-11-27)
    """
    if engine.dialect.name != "postgresql":
        return
    watch = AnswerWatch(seconds, SystemClock())

    # Before SQLAlchemy's own first statements.
    @event.listens_for(engine, "connect", insert=True)
    def watch_answers(connection: Any, _: object) -> None:
        watch.begin(connection)
        if isinstance(connection, HookedConnection):
            connection.note_question = watch.note_question

    event.listen(engine, "checkout", lambda connection, *_: watch.begin(connection), insert=True)
    event.listen(engine, "checkin", lambda connection, _: watch.end(connection))  # None where it was lost
    event.listen(engine, "detach", lambda connection, _: watch.end(connection))

    def begin(cursor: Any, *_: object) -> None:
        if isinstance(cursor.connection, HookedConnection):
            cursor.connection.begin(seconds)

    # These are cheaper than the events of an engine, which SQLAlchemy joins anew for each connection.
    for executes in ("do_execute", "do_executemany", "do_execute_no_params"):
        event.listen(engine, executes, begin, insert=True)
