"""How a connection of outbox and inbox is opened, how long it waits, and how it comes back to its pool.

This is the one place that decides what a handler finds on its connection and what is left of it for the next: a
connection has the settings of `open_postgres` or `open_sqlite`, and is rolled back before another has it (`take_back`).
What a handler set for its session stays.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, ExceptionContext, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

from sluice.clock import SystemClock
from sluice.messaging.database import failures
from sluice.messaging.database.answer_watch import AnswerWatch
from sluice.messaging.database.refused_connections import refused

_IDLE_SECONDS, _RETURNED_AT = 1.0, "sluice_returned_at"
_BUSY_SECONDS = 5
_REPEATS = 5  # psycopg's own threshold, https://www.psycopg.org/psycopg3/docs/advanced/prepare.html (read 2026-11-26)
# A plan prepared while the outbox was small would be kept when it is large: a head query then takes seconds, not
# milliseconds, until Postgres has counted again. https://www.psycopg.org/psycopg3/docs/advanced/prepare.html
# (read 2026-11-21).
# A host that is gone without a word is noticed within half a minute, not after the two hours of the system's keepalive.
# https://www.postgresql.org/docs/18/libpq-connect.html (read 2026-11-21).
_POSTGRES: dict[str, Any] = {
    "prepare_threshold": None,
    "client_encoding": "utf8",  # a role may have another
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class HookedConnection(psycopg.Connection[Any]):
    """A connection that calls back as the last thing of a transaction, after every listener of SQLAlchemy."""

    before_commit: Callable[[], None] | None = None
    """Called once, by the next commit; what it raises is raised instead. A rollback forgets it."""

    def commit(self) -> None:
        """Commit, after what was to be called."""
        call, self.before_commit = self.before_commit, None
        if call is not None:
            call()
        super().commit()

    def rollback(self) -> None:
        """Roll back, and forget what was to be called."""
        self.before_commit = None
        super().rollback()


def open_postgres(_: object, __: object, arguments: Sequence[Any], named: Mapping[str, Any]) -> HookedConnection:
    """Return a new connection to Postgres, for SQLAlchemy's `do_connect`.

    Raises:
        ConnectionRefused: the server answers that it takes none.
        OperationalError: there is no answer.
    """
    named = {**named, **_POSTGRES}
    try:
        return HookedConnection.connect(*arguments, **named)
    except psycopg.OperationalError as error:
        raise refused(error, arguments, named) from error.__cause__


def keep_plans(connection: psycopg.Connection[Any], _: object) -> None:
    """Let psycopg prepare what a new connection repeats, for SQLAlchemy's `connect`; not behind a pooler.

    A pooler names a process of its own when it answers, and the next transaction may be another connection's, which has
    no such plan. https://www.postgresql.org/docs/18/libpq-status.html#LIBPQ-PQBACKENDPID (read 2026-11-26)
    """
    answered = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.rollback()
    if answered == (connection.info.backend_pid,):
        connection.prepare_threshold = _REPEATS


def open_sqlite(connection: Any, _: object) -> None:
    """Set up a new connection to SQLite, for SQLAlchemy's `connect`: it keeps what it commits."""
    connection.isolation_level = None  # the driver begins nothing by itself
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={_BUSY_SECONDS * 1_000}"):
        connection.execute(f"PRAGMA {pragma}").close()


def take_back(engine: Engine) -> None:
    """Let a connection come back rolled back, and be asked after a pause whether it still is one.

    SQLAlchemy rolls back nothing where a listener of its commit fails: what was not committed would be with the next.

    Not asked every time: that is a round trip for each transaction, and whoever works all the time sees by its own
    statement.
    https://docs.sqlalchemy.org/en/21/core/pooling.html#pool-reset-on-return (read 2026-11-26)
    """
    clock = SystemClock()

    @event.listens_for(engine, "reset")
    def reset(connection: Any, *_: object) -> None:
        connection.rollback()  # says nothing to Postgres where nothing is begun

    @event.listens_for(engine, "checkin")
    def returned(_: Any, record: ConnectionPoolEntry) -> None:
        record.info[_RETURNED_AT] = clock.monotonic()

    @event.listens_for(engine, "checkout")
    def taken(connection: Any, record: ConnectionPoolEntry, _: Any) -> None:
        if clock.monotonic() - record.info.get(_RETURNED_AT, inf) < _IDLE_SECONDS:  # of a new one that is no time
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error


def leave_standbys(engine: Engine) -> None:
    """Drop all pooled connections to a Postgres that only reads, as what was the primary does after a failover.

    The next ones are made anew, to whom the address names by then. Safe to repeat, also with somebody else's engine.
    https://docs.sqlalchemy.org/en/21/core/events.html#sqlalchemy.events.DialectEvents.handle_error (read 2026-11-26)
    """
    if engine.dialect.name == "postgresql" and not event.contains(engine, "handle_error", _note_standby):
        event.listen(engine, "handle_error", _note_standby)


def _note_standby(context: ExceptionContext) -> None:
    if failures.is_only_read(context.original_exception):
        context.is_disconnect = True


def end_waits(engine: Engine, seconds: float) -> None:
    """Let Postgres and us wait for each other no longer than that; connections that are open already are not touched.

    Postgres ends a transaction in which nothing comes for so long: whoever has it open is frozen, or gone, and it holds
    locks others wait for. We close a connection on which an answer takes so long (`AnswerWatch`). What a handler asks
    of the driver itself counts from what was asked through SQLAlchemy before it.
    https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21)
    """
    if engine.dialect.name != "postgresql":
        return
    watch = AnswerWatch(seconds, SystemClock())

    def connected(connection: Any, _: object) -> None:
        watch.begin(connection)
        connection.execute(f"SET idle_in_transaction_session_timeout = {round(seconds * 1_000)}")
        connection.commit()

    event.listen(engine, "connect", connected, insert=True)  # before SQLAlchemy's own first questions
    event.listen(engine, "checkout", lambda connection, *_: watch.begin(connection), insert=True)
    event.listen(engine, "checkin", lambda connection, _: watch.end(connection))  # None where it was lost
    event.listen(engine, "detach", lambda connection, _: watch.end(connection))

    def note_question(asking: Connection, *_: object) -> None:
        if not asking.invalidated:
            watch.begin(asking.connection.driver_connection)  # type: ignore[arg-type]

    for asks in ("before_cursor_execute", "commit", "rollback"):
        event.listen(engine, asks, note_question)
