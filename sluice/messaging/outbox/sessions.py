"""Events that a session adds to outboxes: numbered as the last step of the session's transaction, or refused.

A session may write its rows through several connections, its transaction may belong to other code, and code may commit
a connection without its session. Therefore SQLAlchemy's events record the connections that a session begins. While an
event waits for its number, these connections are watched: a commit without the session is refused, because the rows
would be committed without the event. A rollback to a savepoint of a connection also removes the events that were added
since.

https://docs.sqlalchemy.org/en/21/orm/events.html,
https://docs.sqlalchemy.org/en/21/core/events.html#sql-execution-and-connection-events,
https://docs.sqlalchemy.org/en/21/orm/session_transaction.html#joining-a-session-into-an-external-transaction-such-as-for-test-suites
(read 2026-11-26)
"""

import re
import sqlite3
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from sqlalchemy import Connection, TwoPhaseTransaction, insert, text
from sqlalchemy import event as hooks
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import InstanceState, Session, SessionTransaction

from sluice.messaging.database.transactions import BEFORE_STATEMENT, ENDS_TRANSACTION, MessageSession
from sluice.messaging.envelope import Event
from sluice.messaging.errors import OutboxError
from sluice.messaging.outbox import tables

_INSERT = insert(tables.messages)
_IDLE = psycopg.pq.TransactionStatus.IDLE
_TRANSACTION_ID_IF_ANY = text("SELECT pg_catalog.txid_current_if_assigned()")
_QUOTED = re.compile(r"'(?:[^']|'')*'|(\$\w*\$).*?\1", re.DOTALL)
# A session's own savepoints too: SQLAlchemy's events know no name of one that begins.
_SAVEPOINT = re.compile(
    rf"{BEFORE_STATEMENT}(?P<act>SAVEPOINT|RELEASE|ROLLBACK)(\s+(WORK|TRANSACTION))?(\s+TO)?(\s+SAVEPOINT)?\s+(?P<name>\S+)",
    re.IGNORECASE | re.DOTALL,
)

type Write = Callable[[Connection, Sequence[Event]], None]
"""Numbers and stores events of one topic."""


@dataclass(frozen=True, slots=True)
class _PendingEvent:
    """An event that has no number yet.

    Args:
        write: numbers and stores the events of its topic.
        transaction: the session's transaction or savepoint in which the event was added.
        place: how many events the session had added before.
    """

    topic: str
    write: Write
    event: Event
    transaction: SessionTransaction | None
    place: int

    def is_within(self, ended: SessionTransaction) -> bool:
        """Return whether the event was added in the ended transaction or in one nested in it."""
        session_transaction = self.transaction
        while session_transaction is not None and session_transaction is not ended:
            session_transaction = session_transaction.parent
        return session_transaction is ended


class Unit:
    """The events that a session's transaction has added and not yet numbered, and the connections it has begun."""

    def __init__(self) -> None:
        self._added: list[_PendingEvent] = []
        self._count = 0
        # Weak, so that a connection returns to its pool when its session no longer refers to it.
        # connection to SQLite's count of changes at its begin
        self._begun: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._kept: SessionTransaction | None = None
        self._expunged = -1  # the place of the first event added after it
        self._has_tried = self._is_committing = self._is_numbered = self._is_lost = self.is_rolled_back = False

    @cached_property  # most sessions need none, and a worker has a session for each message
    def _open(self) -> WeakSet[Connection]:
        return WeakSet()

    @cached_property
    def _savepoints(self) -> WeakKeyDictionary[Connection, list[tuple[str, int]]]:
        return WeakKeyDictionary()

    @property
    def is_waiting(self) -> bool:
        """Return whether an event waits for its number."""
        return bool(self._added)

    def add(self, session: Session, topic: str, write: Write, event: Event) -> None:
        """Keep an event until the commit."""
        if self._is_committing:
            raise OutboxError(
                f"event {event.id} was added while its session commits, after the numbers were given; add it earlier,"
                " in before_flush for example"
            )
        if not session.is_active:
            raise OutboxError(
                f"event {event.id} was added to a session whose transaction has failed; roll it back first"
            )
        for connection in self._begun:
            require_transaction(connection)
        within = session.get_nested_transaction() or session.get_transaction()
        self._added.append(_PendingEvent(topic, write, event, within, self._count))
        self._count += 1
        for connection in self._begun:
            self._watch(connection)

    def begin(self, connection: Connection) -> None:
        """Note a connection on which the session has begun a transaction.

        Raises:
            OutboxError: the connection commits each statement by itself, or the events are already numbered on another.
        """
        if connection in self._begun:
            return
        if self._is_numbered:
            raise OutboxError(
                "a session uses another database after its events were numbered, allowed is one; write to it in a"
                " session of its own"
            )
        self._begun[connection] = _driver(connection).total_changes if _is_sqlite(connection) else 0
        if self._added:
            require_transaction(connection)
            self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        """Listen to a connection, so that a commit without the session is refused."""
        if connection not in _watching:
            _watching[connection] = WeakSet()
            _listen(connection)
        _watching[connection].add(self)
        self.note_state(connection)

    def note_state(self, connection: Connection) -> None:
        """Note whether the driver is in a transaction.

        Raises:
            OutboxError: other code has ended the transaction.
        """
        match _is_open(connection):
            case True:
                self._open.add(connection)
            case False if connection in self._open and self._added:
                self._is_lost = True
                raise OutboxError(
                    f"the transaction of event {self._added[0].event.id} was ended without its session, so its rows may"
                    " be there without it; let the session commit"
                )

    def number(self, session: Session) -> None:
        """Number the added events and write them to the outbox, as the last step before the commit."""
        has_events = self.is_waiting
        self.number_so_far(session)
        self._is_committing, self._is_numbered = True, has_events

    def number_so_far(self, session: Session) -> None:
        """Number the events that were added so far, and write them to the outbox."""
        self._has_tried = True
        if not self._added:
            return
        self._require_whole()
        connection = self._connection(session)
        by_topic: dict[str, list[_PendingEvent]] = {}
        for addition in self._added:
            by_topic.setdefault(addition.topic, []).append(addition)
        for _, added in sorted(by_topic.items()):
            added[0].write(connection, [addition.event for addition in added])
        self._added.clear()

    def _require_whole(self) -> None:
        """Refuse to number the events if rows that belong to them may be missing, or committed without them."""
        first = self._added[0]
        if self._is_lost:
            raise OutboxError(
                f"a connection of the session with event {first.event.id} was rolled back or ended without it; roll the"
                " session back"
            )
        for connection in self._begun:
            self.note_state(connection)
        if first.place < self._expunged:
            raise OutboxError(
                f"a change was expunged after event {first.event.id} was added, which may be about it; flush before, or"
                " roll back"
            )

    def _connection(self, session: Session) -> Connection:
        """Return the connection to which the session wrote its rows, or without rows would write them.

        Raises:
            OutboxError: rows were written through several connections, or there is no database.
        """
        try:
            default = session.get_bind(clause=_INSERT)
        except UnboundExecutionError:
            default = None
        except Exception:
            if not self._begun:
                raise
            default = None  # a custom `get_bind` may raise anything if it gets no class
        for connection in self._begun if len(self._begun) == 1 else ():
            if default in (None, connection, connection.engine):
                return connection
        used = [connection for connection in self._begun if self._has_written(connection)]
        if len(used) > 1:
            names = " and ".join(sorted(repr(connection.engine.url.render_as_string()) for connection in used))
            raise OutboxError(
                f"a session with event {self._added[0].event.id} has written to {names}, allowed is one database: a"
                " crash between two commits would lose the event; use a session for each"
            )
        if used:
            return used[0]
        if default is None:
            raise OutboxError(
                f"a session with event {self._added[0].event.id} has no bind for it and has written no row; name the"
                " database of the outbox: session.connection(bind_arguments={'bind': engine})"
            )
        return session.connection(bind_arguments={"clause": _INSERT})

    def _has_written(self, connection: Connection) -> bool:
        """Return whether the transaction has changed anything; True if the database cannot tell."""
        if _is_sqlite(connection):
            return bool(_driver(connection).total_changes != self._begun[connection])
        if connection.dialect.name != "postgresql":
            return True
        return connection.execute(_TRANSACTION_ID_IF_ANY).scalar_one() is not None

    def keep(self, savepoint: SessionTransaction) -> None:
        """Note the savepoint that is open while the session commits; refuse the second commit with the same savepoint.

        Raises:
            OutboxError: the savepoint was open at the commit before, too: the events in it would be lost.
        """
        if self._added and savepoint is self._kept:
            raise OutboxError(
                f"a transaction with event {self._added[0].event.id} commits around an open savepoint; end the"
                " savepoint first"
            )
        self._kept = savepoint

    def forget(self, rolled_back: SessionTransaction) -> None:
        """Forget the events that were added in a transaction that is rolled back."""
        self._added = [added for added in self._added if not added.is_within(rolled_back)]

    def expunge(self) -> None:
        """Note that an object with an unwritten change was expunged, about which an earlier event may be."""
        self._expunged = self._count

    def note_savepoint(self, connection: Connection, act: str, name: str) -> None:
        """Note a savepoint; at a rollback to a savepoint, forget the events that were added after it.

        A savepoint that was not noted is older than every added event.
        """
        names = self._savepoints.setdefault(connection, [])
        if act == "SAVEPOINT":
            names.append((name, self._count))
            return
        found = max((place for place, (known, _) in enumerate(names) if known == name), default=None)
        since = 0 if found is None else names[found][1]
        del names[0 if found is None else found :]
        if act == "ROLLBACK":
            self._added = [added for added in self._added if added.place < since]
            names.append((name, since))

    def lose(self, connection: Connection) -> None:
        """Note that a connection rolls back the session's rows; warn if they may have been committed before."""
        has_ended = connection in self._open and _is_open(connection) is False
        if has_ended and self._added and not self._is_lost and sys.exc_info()[0] is None:
            warnings.warn(
                f"the transaction of event {self._added[0].event.id} was ended before its session rolled back, so its"
                " rows may be there without it; commit by the session only",
                RuntimeWarning,
                stacklevel=2,
            )
        self._is_lost = True

    def require_numbered(self) -> None:
        """Refuse a commit that would leave an event out.

        Raises:
            OutboxError: an event has no number yet.
        """
        if self._added:
            raise OutboxError(
                f"a transaction is committed without the session of event {self._added[0].event.id}, which would be"
                " lost; let the session commit first"
            )

    def end(self, *, is_workers: bool) -> None:
        """Stop watching the session's connections, and warn of events that were not committed.

        A connection that is still in the transaction of the rows stays watched.

        Args:
            is_workers: whether the worker ends the session, and rolls back what a failed handler did in it.
        """
        for connection in list(self._begun):
            if self._added and not self.is_rolled_back and connection.in_transaction():
                self._added = [replace(added, transaction=None) for added in self._added]
                _left.setdefault(connection, []).append(self)
            else:
                _watching.get(connection, WeakSet()).discard(self)
        is_expected = is_workers or self._has_tried or self.is_rolled_back
        if self._added and not is_expected and sys.exc_info()[0] is None:
            warnings.warn(
                f"a session ended with {len(self._added)} events, the first of them {self._added[0].event.id}, neither"
                " committed nor rolled back: they are not published",
                RuntimeWarning,
                stacklevel=2,
            )


_watching: WeakKeyDictionary[Connection, WeakSet[Unit]] = WeakKeyDictionary()
_left: WeakKeyDictionary[Connection, list[Unit]] = (
    WeakKeyDictionary()
)  # whose session has ended, and not their transaction


# An attribute of the session, and not in `Session.info`, which is the program's own: it may clear that.
_UNIT = "sluice_outbox"


def unit_of(session: Session) -> Unit:
    """Return the session's unit, made at the first call."""
    unit: Unit | None = vars(session).get(_UNIT)
    if unit is None:
        unit = vars(session)[_UNIT] = Unit()
    return unit


def number_now(session: Session) -> None:
    """Number the events that a session has added so far, in the middle of its transaction; it may add others."""
    unit: Unit | None = vars(session).get(_UNIT)
    if unit is not None:
        unit.number_so_far(session)


# Listens to all sessions: a before_flush hook may add the first event of a session in the middle of the commit.
@hooks.listens_for(Session, "after_begin")
def _after_begin(session: Session, _: SessionTransaction, connection: Connection) -> None:
    unit_of(session).begin(connection)


@hooks.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    """Write the added events after all other rows of the transaction, so that the counters are its last locks."""
    unit, savepoint = unit_of(session), session.get_nested_transaction()
    if savepoint is not None:
        unit.keep(savepoint)
        return
    session.flush()  # the commit would flush next anyway
    unit.number(session)


@hooks.listens_for(Session, "pending_to_transient", raw=True)
@hooks.listens_for(Session, "persistent_to_detached", raw=True)
def _after_expunge(session: Session, state: InstanceState[Any]) -> None:
    unit = vars(session).get(_UNIT)
    # A session that is not active is being rolled back. An object without identity was never written.
    if unit is not None and unit.is_waiting and session.is_active and (state.identity is None or state.modified):
        unit.expunge()


@hooks.listens_for(Session, "after_rollback")
def _after_rollback(session: Session) -> None:
    root = session.get_transaction()
    unit_of(session).is_rolled_back |= root is None or not root.is_active


@hooks.listens_for(Session, "after_soft_rollback")
def _after_soft_rollback(session: Session, previous: SessionTransaction) -> None:
    if (unit := vars(session).get(_UNIT)) is not None:  # that of a whole transaction has ended by now
        unit.forget(previous)


@hooks.listens_for(Session, "after_transaction_end")
def _after_end(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None and (unit := vars(session).pop(_UNIT, None)) is not None:
        unit.end(is_workers=isinstance(session, MessageSession))


def _require_numbered(connection: Connection, *_: object) -> None:
    for unit in list(_watching.get(connection, ())):
        unit.require_numbered()


def _on_commit(connection: Connection) -> None:
    try:
        _require_numbered(connection)
    except OutboxError:
        # SQLAlchemy believes that it is committed, and would return the connection with an open transaction to the
        # pool.
        connection.dialect.do_rollback(connection.connection)
        _on_rollback(connection)
        raise


def _on_rollback(connection: Connection, *_: object) -> None:
    _left.pop(connection, None)
    for unit in _watching.pop(connection, ()):
        unit.lose(connection)


def _on_statement(connection: Connection, _: object, statement: str, *__: object) -> None:
    units = [unit for unit in list(_watching.get(connection, ())) if unit.is_waiting]
    if units and _ends_transaction(connection, statement):
        for unit in units:
            unit.require_numbered()
    elif units and (found := _SAVEPOINT.match(statement)):
        for unit in units:
            unit.note_savepoint(connection, found["act"].upper(), found["name"].strip('";').lower())


def _ends_transaction(connection: Connection, statement: str) -> bool:
    """Return whether a statement, or one of several in a string, ends a transaction. SQLite accepts one at a time."""
    if ";" not in statement or connection.dialect.name == "sqlite":
        return ENDS_TRANSACTION.match(statement) is not None
    return any(map(ENDS_TRANSACTION.match, _QUOTED.sub("''", statement).split(";")))


def _after_statement(connection: Connection, *_: object) -> None:
    for unit in list(_watching.get(connection, ())):
        unit.note_state(connection)


_LISTENERS: dict[str, Callable[..., None]] = {
    "commit": _on_commit,
    "rollback": _on_rollback,
    "before_cursor_execute": _on_statement,
    "after_cursor_execute": _after_statement,
}
_LISTENERS_OF_TWO_PHASES: dict[str, Callable[..., None]] = {
    "prepare_twophase": _require_numbered,
    "commit_twophase": _require_numbered,
    "rollback_twophase": _on_rollback,
}


def _listen(connection: Connection) -> None:
    """Register the listeners on one connection, because an event was added to its session.

    A listener of the engine would slow all of its connections down, and its addition while other threads execute would
    break their iteration over the listeners. Four of a connection take a tenth of a millisecond (measured 2026-11-27).
    """
    is_twophase = isinstance(connection.get_transaction(), TwoPhaseTransaction)
    for name, listener in (_LISTENERS | (_LISTENERS_OF_TWO_PHASES if is_twophase else {})).items():
        hooks.listen(connection, name, listener)


def require_transaction(connection: Connection) -> None:
    """Refuse a connection that commits each statement by itself.

    https://docs.python.org/3/library/sqlite3.html#sqlite3-transaction-control,
    https://www.psycopg.org/psycopg3/docs/basic/transactions.html#autocommit-transactions (read 2026-11-26)

    Raises:
        OutboxError: the connection is in AUTOCOMMIT.
    """
    if connection.invalidated:
        return
    driver = _driver(connection)
    if _is_sqlite(connection):
        # a connection of aiosqlite has no such attribute
        autocommit = getattr(driver, "autocommit", sqlite3.LEGACY_TRANSACTION_CONTROL)
        by_itself = autocommit is True or (autocommit != False and driver.isolation_level is None)  # noqa: E712
        is_autocommit = by_itself and not driver.in_transaction
    else:
        is_autocommit = bool(getattr(connection.connection.dbapi_connection, "autocommit", False))
    if is_autocommit:
        raise OutboxError(
            "the connection of an event is in AUTOCOMMIT, allowed is a transaction: rows would be committed without"
            " their event; take an engine without isolation_level='AUTOCOMMIT' and without a driver's autocommit"
        )


def _is_open(connection: Connection) -> bool | None:
    """Return whether the driver is in a transaction; None if only a round trip could tell.

    https://aiosqlite.omnilib.dev/en/stable/api.html,
    https://magicstack.github.io/asyncpg/current/api/index.html#asyncpg.connection.Connection.is_in_transaction
    (read 2026-11-27)
    """
    if connection.closed or connection.invalidated:
        return None
    driver = _driver(connection)
    if _is_sqlite(connection):
        return bool(driver.in_transaction)
    if isinstance(driver, psycopg.BaseConnection):
        return driver.info.transaction_status != _IDLE
    is_in_transaction = getattr(driver, "is_in_transaction", None)
    return None if is_in_transaction is None else bool(is_in_transaction())


def _is_sqlite(connection: Connection) -> bool:
    """Return whether the driver is `sqlite3` or aiosqlite; both have the attributes that are used here."""
    return connection.dialect.name == "sqlite"


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
