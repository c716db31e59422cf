"""The transaction that a handler runs in: only the worker ends it, and all of it is committed, or nothing."""

import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet, getweakrefcount

import psycopg
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine.events import ConnectionEvents
from sqlalchemy.exc import DatabaseError, InvalidRequestError, OperationalError
from sqlalchemy.orm import Session, SessionEvents, SessionTransaction

from sluice.clock import NotReachedError, eventually
from sluice.messaging.database import connections, engines, event_loops
from sluice.messaging.errors import OutboxError
from sluice.terminal.logger import Logger

_log = Logger()
_BEGIN_SAVEPOINT, _END_SAVEPOINT = "SAVEPOINT sluice_handler", "RELEASE SAVEPOINT sluice_handler"
# They outlive their connection: https://www.sqlite.org/pragma.html (read 2026-11-26).
_OF_PROCESS = ("soft_heap_limit", "hard_heap_limit", "temp_store_directory", "data_store_directory")
BEFORE_STATEMENT = r"(\s|--[^\n]*\n|/\*.*?\*/|;)*"
"""Pattern of the text that may stand before the first word of a statement."""
ENDS_TRANSACTION = re.compile(
    rf"{BEFORE_STATEMENT}(COMMIT|END|ABORT|ROLLBACK(?!\s+((WORK|TRANSACTION)\s+)?TO\b)|PREPARE\s+TRANSACTION)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Pattern of the beginning of a statement that ends a transaction."""
_TRANSACTION_ID, _TRANSACTION_ID_IF_ANY = (
    text("SELECT pg_catalog.txid_current()"),
    text("SELECT pg_catalog.txid_current_if_assigned()"),
)
# https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-SNAPSHOT (read 2026-11-26)
_STATUS, _COMMITTED, _IN_PROGRESS = text("SELECT pg_catalog.txid_status(:id)"), "committed", "in progress"
# https://www.postgresql.org/docs/18/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW: without the epoch;
# https://www.postgresql.org/docs/18/functions-admin.html#FUNCTIONS-ADMIN-SIGNAL (read 2026-11-27)
_END_SERVER = text(
    "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity"
    " WHERE backend_xid = CAST(CAST(:id % 4294967296 AS text) AS xid)"
)
_END_SECONDS = 10.0
_IDLE, _IN_TRANSACTION, _IN_ERROR = 0, 2, 3  # libpq's PQTRANS_IDLE, PQTRANS_INTRANS, PQTRANS_INERROR
_SESSION_HOOKS, _CONNECTION_HOOKS = (
    [name for name in vars(events) if not name.startswith("_") and name not in {"dispatch", "after_commit"}]
    for events in (SessionEvents, ConnectionEvents)
)
"""Names of SQLAlchemy's events that a listener of one handler would hear of the next; what waits for the commit hears
of the commit of all."""
_handling: ContextVar[object] = ContextVar("_handling", default=None)
"""Names the handler of whose context this is a copy: its own one, that of a task of it, or of `asyncio.to_thread`."""

type Mark = Callable[[Connection], bool | None]
"""Writes into a transaction, and returns whether it is still the one that was begun; None if that is unknown."""
type MarkStatement = tuple[str, Mapping[str, Any]]
"""A statement of psycopg, with its parameters, that writes a mark, or divides by zero if the transaction is another."""


class TransactionEndedError(Exception):
    """Raised when anybody but the worker ends, or has ended, a handler's transaction."""

    ENDED = connections.ENDED
    COMMITTED = (
        "the handler ended its transaction and may have committed, so it is not called again by itself, or its effect"
        " could be there twice; look at the effect, then redrive, retry or skip the message"
    )
    NOT_WHOLE = (
        "the handler ended its transaction, or hid the inbox's tables behind others (a temporary table, search_path),"
        " allowed is neither"
    )
    AUTOCOMMIT = "the handler set its connection's autocommit, allowed is to leave it; the worker commits"
    FAILED = "the handler went on after an error of the database, allowed is to let it pass, or a savepoint around it"


class BegunTransaction:
    """The transaction of a session, guarded while a handler runs: only `commit` commits it, and as a whole.

    - A commit by the handler, and a statement that begins with COMMIT, are refused.
    - After a statement that has ended the transaction, nothing more is executed.
    - A handler may end the transaction and begin another one unseen. So before the commit, after all hooks of the
      session, the database is asked whether the transaction is still the same: Postgres by its id, SQLite by a
      savepoint, which ends with its transaction.
    - SQLite commits every statement by itself once a transaction has ended, so its driver is refused such statements.

    https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-SNAPSHOT,
    https://www.sqlite.org/c3ref/set_authorizer.html, https://www.sqlite.org/lang_transaction.html (read 2026-11-22)

    Args:
        transaction_id: the id of the transaction on Postgres if it is known; None queries it.
        was_committed: returns whether its rows may have been committed; None means that only the id tells. After a
            crash, or on a standby that took over, Postgres gives the ids of transactions whose log it has not to new
            ones.
    """

    def __init__(
        self,
        session: Session,
        transaction_id: int | None = None,
        was_committed: Callable[[Connection], bool] | None = None,
    ) -> None:
        self._session, self._transaction = session, session.get_transaction()
        self._connection = session.connection()
        self._engine = session.workers_engine if isinstance(session, MessageSession) else self._connection.engine
        self._driver: Any = self._connection.connection.driver_connection
        self._is_sqlite = self._connection.dialect.name == "sqlite"
        self._id, self._was_committed = transaction_id, was_committed
        self._mark: Mark | None = None
        self._has_committed = self.has_refused_driver = self._is_rolled_back = self._is_ended = False
        self._is_authorizer = True
        self._is_guarded = self.has_refused_others = False
        self._thread: int | None = None
        self._handler: object = None
        self._lent_with: tuple[object, ...] = ()

    def guard(self, *, is_shared: bool = False) -> None:
        """Guard the transaction until `release`: a handler is about to get the session.

        If handlers share it, none can roll back further than to its own beginning, and `lend` has to name each.

        Raises:
            OutboxError: the engine commits each statement by itself.
        """
        if getattr(self._driver, "autocommit", None) is True:
            raise OutboxError(
                "the worker's engine is in AUTOCOMMIT, allowed is one with transactions: a handler that fails would"
                " leave its effect; take an engine without isolation_level='AUTOCOMMIT' and a driver's autocommit"
            )
        if self._is_sqlite:
            connections.execute(self._connection, _BEGIN_SAVEPOINT)
            connections.authorize(self._driver, self._authorize)
        elif self._id is None:
            self._id = self._connection.execute(_TRANSACTION_ID).scalar_one()
        if is_shared and not self._is_sqlite:
            self._connection.exec_driver_sql(_BEGIN_SAVEPOINT)
        connections.lend(self._connection)
        _guarded[self._connection], self._is_guarded = self, True
        if isinstance(self._session, MessageSession):
            self._session.begun, self._session.lent = self, self._connection
        if is_shared:
            event.listen(self._session, "before_attach", self.refuse_others)
            self._lent_with = self._state()
        connections.end_own_work()

    def lend(self) -> None:
        """Let the handler of the current context use the shared transaction, and nobody else before it has returned.

        A thread or callback that the handler before left behind would write rows that are committed as this one's. So
        would a thread that this handler starts in no copy of its context, which cannot be told from the others.
        """
        self._handler, self._thread = object(), None
        _handling.set(self._handler)
        if isinstance(self._driver, connections.HookedConnection | connections.SqliteConnection):
            self._driver.keep_to(self._is_of_handler)

    def _is_of_handler(self) -> bool:
        """Return whether this is code of the handler that was lent to; True while there is none."""
        is_its = self._handler is None or _handling.get() is self._handler
        self.has_refused_others = self.has_refused_others or not is_its
        return is_its

    def refuse_others(self, *_: object) -> None:
        """Refuse what code of another handler does to the session, as an object that the next flush would write.

        Raises:
            InvalidRequestError: this is not the handler that the transaction is lent to.
        """
        if self._thread not in (None, threading.get_ident()) or not self._is_of_handler():
            raise InvalidRequestError(connections.LEFT_BEHIND)

    @property
    def has_committed(self) -> bool:
        """Return whether `commit` has committed it, so that no further handler may get it."""
        return self._has_committed

    @property
    def has_last_handler(self) -> bool:
        """Return whether the next handler would meet more than rows of this one: a hook, an option, a setting."""
        return self._state() != self._lent_with or getattr(self._driver, "has_seen_change", False)

    def _state(self) -> tuple[object, ...]:
        """Return what a handler may change of session, connection and driver, besides what a reset takes back.

        Of the two dictionaries for anybody's use, these are the names.
        """
        session, connection = self._session, self._connection
        pooled, of_session, of_connection = connection.connection, session.dispatch, connection.dispatch
        return (
            *(len(getattr(of_session, name)) for name in _SESSION_HOOKS),
            *(len(getattr(of_connection, name)) for name in _CONNECTION_HOOKS),
            # after a commit that was refused its transaction is not active
            *(session.in_nested_transaction(), self._transaction is not None and self._transaction.is_active),
            *(session.bind, session.autoflush, session.expire_on_commit),
            *(
                frozenset(name for name in info if not str(name).startswith("sluice_"))
                for info in (session.info, pooled.info, pooled.record_info or {})
            ),
            *(connection.get_execution_options(), connection.engine.get_execution_options(), self._driver.state()),
        )

    def release(self) -> None:
        """Stop guarding: the handler has returned, and the transaction has ended or is rolled back."""
        connections.begin_own_work()
        if not self._is_guarded:  # since then another thread may have the connection
            return
        self._is_guarded = False
        if isinstance(self._session, MessageSession):
            self._session.begun = None
        _guarded.pop(self._connection, None)
        self._keep_to_this_thread()
        if self._is_sqlite and not (self._has_committed or self._is_rolled_back):
            self._is_ended = self._is_ended_behind_authorizer()
        self._end_guard()

    def return_to_worker(self) -> None:
        """Let only this thread use the connection, because the handler has returned.

        Raises:
            TransactionEndedError: the handler has ended its transaction, or left a call under way.
        """
        self._keep_to_this_thread()
        if isinstance(self._driver, connections.HookedConnection):
            try:
                self._driver.require_lent()
            except psycopg.ProgrammingError as error:
                raise TransactionEndedError(str(error)) from None
        self.require_open()

    def may_have_committed(self) -> bool:
        """Return whether anybody but the worker may have committed the transaction: then no attempt may follow.

        If the connection is lost, a COMMIT of the handler may still be under way on the server. Then the session is
        closed, the server's process of the transaction is ended, and the server says what became of the transaction.

        Raises:
            DBAPIError: the database cannot be asked.
        """
        if self._is_sqlite:
            return self._is_ended
        if getattr(self._driver, "may_have_committed", False):
            return True
        if getattr(self._driver, "is_joined", False):  # in a test, to a transaction whose owner lets nobody commit
            return False
        if _transaction_status(self._driver) == _IN_TRANSACTION and self._can_answer():
            with suppress(psycopg.OperationalError):  # a handler may have closed its socket
                return bool(self._driver.transaction_id() != self._id)
        close_session(self._session)
        with engines.looking(self._engine) as connection:
            return self._has_committed_on(connection)

    def _has_committed_on(self, connection: Connection) -> bool:
        """End the transaction on the server, and return whether it was committed; True if it does not end."""
        of_this = {"id": self._id}

        def status() -> object:
            found = connection.execute(_STATUS, of_this).scalar_one()
            if found == _IN_PROGRESS:
                connection.execute(_END_SERVER, of_this)
            return found

        with suppress(NotReachedError):
            ended = eventually(
                status,
                timeout_seconds=_END_SECONDS,
                describe="a transaction's end",
                until=lambda found: found != _IN_PROGRESS,
            )
            return ended == _COMMITTED and (self._was_committed is None or self._was_committed(connection))
        return True

    def _can_answer(self) -> bool:
        """Return whether the connection can execute a query: nothing is under way on it."""
        return isinstance(self._driver, connections.HookedConnection) and self._driver.is_at_rest()

    def require_open(self) -> None:
        """Raise unless the session is still in this transaction, as far as is known without a query.

        Raises:
            TransactionEndedError: the session has left it, or a statement of the transaction has failed.
        """
        self.require_same()
        if self._is_sqlite and not self._driver.in_transaction:
            raise TransactionEndedError(TransactionEndedError.ENDED)
        if self._has_failed():
            raise TransactionEndedError(TransactionEndedError.FAILED)

    def _has_failed(self) -> bool:
        """Return whether a statement of the transaction has failed, so that its commit would silently be a rollback."""
        return not self._is_sqlite and _transaction_status(self._driver) == _IN_ERROR

    def require_same(self) -> None:
        """Raise unless the session is still in this transaction, as far as the session knows.

        Raises:
            TransactionEndedError: the session is not in it.
        """
        if self._session.get_transaction() is not self._transaction:
            raise TransactionEndedError(TransactionEndedError.ENDED)

    def commit(self, mark: Mark) -> None:
        """Commit the transaction as a whole.

        Args:
            mark: writes the inbox's mark as the last statement, after all hooks of the session.

        Raises:
            TransactionEndedError: the transaction has ended meanwhile; nothing was committed here.
            DBAPIError: the database refused; after a lost connection it is unknown whether the commit took effect.
        """
        self._mark = mark
        if isinstance(self._driver, connections.HookedConnection):
            self._driver.before_commit = self._end_if_prepared
        self._session.commit()
        # After our listener, another may have told the driver to roll back: then the commit was one of nothing.
        if not self._has_committed:
            raise TransactionEndedError(TransactionEndedError.ENDED)

    def keep(self, mark: Mark, statement: Callable[[], MarkStatement | None] = lambda: None) -> None:
        """Let a mark be written, and leave the transaction open and guarded for the next handler.

        Args:
            mark: as in `commit`.
            statement: returns what writes the same on Postgres, in one round trip with what else has to be done there;
                None calls `mark`.

        Raises:
            TransactionEndedError: the transaction has ended meanwhile, or is in error.
            DBAPIError: the database refused.
        """
        at_once = None if self._is_sqlite else statement()
        if at_once is None:
            self._mark = mark
            self._require_whole()
            self._mark = None
        elif self._has_failed():
            raise TransactionEndedError(TransactionEndedError.FAILED)
        if not self._is_sqlite:
            self._renew_savepoint(at_once)
        else:
            connections.execute(self._connection, _BEGIN_SAVEPOINT)
        self._session.expunge_all()  # the next handler reads for itself, as in a session of its own

    def _renew_savepoint(self, mark: MarkStatement | None) -> None:
        """Release Postgres's savepoint, which is gone if a handler rolled back behind it, and set another.

        The session is as new then: a temporary table would hide the next handler's.
        """
        try:
            marks = [] if mark is None else [psycopg.ClientCursor(self._driver).mogrify(*mark)]
            self._driver.renew(*marks, _END_SAVEPOINT, _BEGIN_SAVEPOINT)
        except psycopg.errors.DivisionByZero:
            raise TransactionEndedError(TransactionEndedError.NOT_WHOLE) from None
        except psycopg.OperationalError as error:
            raise OperationalError(_END_SAVEPOINT, None, error) from error
        except psycopg.Error as error:
            raise DatabaseError(_END_SAVEPOINT, None, error) from error

    def on_commit(self) -> None:
        """Write the mark, or refuse the commit; SQLAlchemy calls this before a commit of a connection without hooks."""
        is_hooked = isinstance(self._driver, connections.HookedConnection)
        # an engine with options also calls the listeners of the one it is made of
        if not (is_hooked or self._has_committed):
            self._end()

    def _end_if_prepared(self) -> None:
        """Write the mark for the session's own commit; refuse the commit of a hook that runs before it.

        A session's transaction is active until all of its hooks before the commit have run.

        Raises:
            psycopg.ProgrammingError: a hook commits.
        """
        if self._transaction is not None and self._transaction.is_active:
            self._driver.before_commit = self._end_if_prepared
            raise psycopg.ProgrammingError(connections.ENDED)
        self._end()

    def _end(self) -> None:
        """Write the mark, and let the driver commit; roll back if the transaction is not whole."""
        try:
            self._require_whole()
        except BaseException:
            # SQLAlchemy takes it for committed, and would give the connection back with the transaction open.
            self._is_rolled_back = True
            self._end_guard()
            with suppress(psycopg.Error):  # the connection may be gone, and then says so first
                self._driver.rollback()
            raise
        self._end_guard()
        self._has_committed = True

    def _require_whole(self) -> None:
        """Write the mark, and raise unless the transaction is still the one that was begun."""
        if self._mark is None:
            raise TransactionEndedError(TransactionEndedError.ENDED)
        if self._has_failed():
            raise TransactionEndedError(TransactionEndedError.FAILED)
        if self._is_sqlite and getattr(self._driver, "autocommit", None) is True:
            # A commit does nothing then, also if the attempt to set it was refused, as of Python 3.13.
            # https://docs.python.org/3/library/sqlite3.html#sqlite3.Connection.autocommit (read 2026-11-28)
            raise TransactionEndedError(TransactionEndedError.AUTOCOMMIT)
        if self._is_sqlite and getattr(self._driver, "has_seen_change", True):
            # a temporary table would come first
            self._connection.execution_options(schema_translate_map={None: "main"})
        is_whole = self._mark(self._connection)
        if not (self._is_whole() if is_whole is None else is_whole):
            raise TransactionEndedError(TransactionEndedError.NOT_WHOLE)

    def _is_whole(self) -> bool:
        """Query whether the transaction is still the one that was begun."""
        if not self._is_sqlite:
            return bool(self._connection.execute(_TRANSACTION_ID_IF_ANY).scalar_one() == self._id)
        try:
            connections.execute(self._connection, _END_SAVEPOINT)
        except OperationalError as error:
            if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:  # as of one that is not there
                raise
            return False
        return True

    def on_rollback(self) -> None:
        """Note that SQLAlchemy rolls back."""
        self._is_rolled_back = True

    def on_statement(self, statement: str) -> None:
        """Refuse a statement that would end the transaction."""
        if self._mark is None and ENDS_TRANSACTION.match(statement):
            raise TransactionEndedError(TransactionEndedError.ENDED)

    def on_executed(self) -> None:
        """Raise if a statement of the handler's has ended the transaction."""
        if self._mark is None and not self._is_sqlite and _transaction_status(self._driver) == _IDLE:
            raise TransactionEndedError(TransactionEndedError.ENDED)

    def _authorize(self, action: int, operation: str | None, value: str | None, *_: object) -> int:
        """Return SQLITE_OK or SQLITE_DENY for an action that SQLite is about to do, as its authorizer."""
        self._is_authorizer = True
        if self._thread not in (None, threading.get_ident()) or not self._is_of_handler():
            return sqlite3.SQLITE_DENY  # a thread or callback that a handler left behind
        is_write = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
        is_allowed = not is_write or self._driver.in_transaction
        if action == sqlite3.SQLITE_TRANSACTION:
            is_allowed = self._is_rolled_back and operation == "ROLLBACK"
        elif action == sqlite3.SQLITE_PRAGMA:
            is_allowed = value is None or str(operation).lower() not in _OF_PROCESS  # it comes as it was written
        self.has_refused_driver = self.has_refused_driver or not is_allowed
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

    def _keep_to_this_thread(self) -> None:
        self._thread, self._handler = threading.get_ident(), None
        if isinstance(self._driver, connections.HookedConnection | connections.SqliteConnection):
            self._driver.keep_to_this_thread()

    def _is_ended_behind_authorizer(self) -> bool:
        """Return whether the transaction has ended while the handler had replaced the worker's authorizer."""
        self._is_authorizer = False
        try:
            self._driver.execute(f"SELECT {id(self)}").close()  # a statement that was never prepared
        except sqlite3.Error:  # it is closed, or refused
            return False
        return not (self._is_authorizer or self._driver.in_transaction)

    def _end_guard(self) -> None:
        """Let SQLite's driver do everything again."""
        if self._is_sqlite:
            connections.authorize(self._driver, None)


class MessageSession(Session):
    """A session of one message. It begins no second transaction, because nothing would guard that one.

    https://docs.sqlalchemy.org/en/21/orm/session_api.html#sqlalchemy.orm.Session.get_bind (read 2026-11-26)
    """

    begun: BegunTransaction | None = None
    lent: Connection | None = None
    begin_late: Callable[[], object] | None = None
    """Begins the transaction of its message unless it has begun; called before the first use of the session."""

    def __init__(self, bind: Engine, workers_engine: Engine) -> None:
        super().__init__(bind)
        self.workers_engine = workers_engine

    def get_bind(self, *arguments: Any, **named: Any) -> Any:
        """Return the engine to execute on; SQLAlchemy calls it before each statement.

        Raises:
            TransactionEndedError: the handler of the message has ended the session's transaction.
        """
        self._begin_late()
        if self.begun is not None:
            self.begun.require_same()
        return super().get_bind(*arguments, **named)

    def begin(self, nested: bool = False) -> SessionTransaction:  # noqa: FBT001, FBT002 (as it is called)
        """Begin a transaction, or a savepoint, before which the worker begins the transaction of the message."""
        if nested:
            self._begin_late()
        return super().begin(nested)

    def commit(self) -> None:
        """Commit, on the thread of the lane."""
        self._end(super().commit)

    def rollback(self) -> None:
        """Roll back, on the thread of the lane."""
        self._end(super().rollback)

    def close(self) -> None:
        """Release the connection."""
        self._end(super().close)

    def invalidate(self) -> None:
        """Close the connection."""
        self._end(super().invalidate)

    def reset(self) -> None:
        """Release the connection; the session can be used again."""
        self._end(super().reset)

    def _end(self, end: Callable[[], None]) -> None:
        """End the transaction on the thread of the lane, unless code that another handler left behind calls."""
        if self.begun is not None:
            self.begun.refuse_others()
        event_loops.on_lane(end)

    def _begin_late(self) -> None:
        if self.begin_late is not None:
            event_loops.on_lane(self.begin_late)


_guarded: dict[Connection, BegunTransaction] = {}
_listened: WeakSet[Engine] = WeakSet()
_listening = threading.Lock()


def listen(engine: Engine) -> None:
    """Register the guard's listeners on an engine, once; on each connection they would cost a tenth of the work."""
    if engine in _listened:
        return
    with _listening:
        if engine not in _listened:
            # SQLAlchemy joins an engine's events anew for each connection, so one with a hook of its own has none.
            if not engines.is_hooked(engine):
                event.listen(engine, "commit", _on_commit)
                event.listen(engine, "rollback", _on_rollback)
            event.listen(engine, "do_execute", _execute)
            event.listen(engine, "do_executemany", _execute_many)
            event.listen(engine, "do_execute_no_params", _execute_no_params)
            connections.close_changed_connections(engine)
            connections.mark_borrowed(engine)
            _listened.add(engine)


def close_session(session: Session) -> None:
    """Close a session that a handler had.

    If a listener of the handler fails at that, its connection is closed as well.
    """
    lent = session.lent if isinstance(session, MessageSession) else None
    try:
        session.close()
    except BaseException:
        _log.warning("a listener that a handler left on its session failed", exc_info=True)
        if lent is not None and not lent.closed:
            lent.invalidate()
    if isinstance(session, MessageSession):
        session.lent = None


class MessageSessions:
    """Sessions of messages on an engine; any number of threads open them.

    Each message has an engine of its own, which shares the pool. So a handler that adds a listener or an option to its
    engine changes no other message's. An engine is used again if nobody has kept a reference to it and its attributes,
    listeners and options among them, are unchanged.
    https://docs.sqlalchemy.org/en/21/core/connections.html#sqlalchemy.engine.Engine.execution_options (read 2026-11-27)
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._idle = engine, list[_MessageEngine]()

    @contextmanager
    def open(self) -> Iterator[MessageSession]:
        """Yield a session for one message; it is closed with the block."""
        connections.begin_own_work()
        made = self._take_engine()
        session = MessageSession(made.engine, self._engine)
        made.holders = made.holders or _count_holders(made.engine)  # of a new one: nobody has it yet
        try:
            yield session
        finally:
            close_session(session)
        if _count_holders(made.engine) == made.holders and vars(made.engine) == made.attributes:
            self._idle.append(made)

    def _take_engine(self) -> "_MessageEngine":
        """Return an idle engine, unless the worker's engine has changed since it was made; otherwise a new one."""
        attributes = vars(self._engine).copy()
        while self._idle:
            try:
                made = self._idle.pop()
            except IndexError:  # another thread has taken the last
                break
            if made.parents_attributes == attributes:
                return made
        engine = self._engine.execution_options()
        return _MessageEngine(engine, vars(engine).copy(), attributes)


@dataclass(slots=True)
class _MessageEngine:
    """An engine for one message at a time.

    Args:
        attributes: its attributes when it was new.
        parents_attributes: the attributes of the worker's engine at that time.
        holders: the numbers of references and weak references to it when nobody else had it; None before its first use.
    """

    engine: Engine
    attributes: dict[str, Any]
    parents_attributes: dict[str, Any]
    holders: tuple[int, int] | None = None


def _count_holders(engine: Engine) -> tuple[int, int]:
    """Return the numbers of references and of weak references to an engine."""
    return sys.getrefcount(engine), getweakrefcount(engine)


def _on_commit(connection: Connection) -> None:
    if (begun := _guarded.get(connection)) is not None:
        begun.on_commit()


def _on_rollback(connection: Connection) -> None:
    if (begun := _guarded.get(connection)) is not None:
        begun.on_rollback()


def _execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    execute = partial(context.dialect.do_execute, cursor, statement, parameters, context)
    return _execute_if_guarded(execute, cursor, statement, context)


def _execute_many(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    execute = partial(context.dialect.do_executemany, cursor, statement, parameters, context)
    return _execute_if_guarded(execute, cursor, statement, context)


def _execute_no_params(cursor: Any, statement: str, context: Any) -> bool:
    execute = partial(context.dialect.do_execute_no_params, cursor, statement, context)
    return _execute_if_guarded(execute, cursor, statement, context)


def _execute_if_guarded(execute: Callable[[], object], cursor: object, statement: str, context: Any) -> bool:
    """Execute a statement of a handler's transaction, and return True; return False to let SQLAlchemy execute it."""
    begun = _guarded.get(context.root_connection)
    if begun is None:
        return event_loops.execute_on_lane(execute, cursor)
    begun.on_statement(statement)
    if not event_loops.execute_on_lane(execute, cursor):
        execute()
    begun.on_executed()
    return True


def _transaction_status(driver: Any) -> int:
    return int(driver.pgconn.transaction_status)
