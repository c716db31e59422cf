"""Databases, as outbox and inbox need them: SQLite embedded, Postgres beside it, nothing else.

SQLite is opened so that its promise is a promise: WAL, `synchronous=FULL` (a commit survives the power cut that follows
it, or a message could be out whose cause is not), and `BEGIN IMMEDIATE` (a deferred transaction that reads and then
writes fails at once when another writes, whatever its busy timeout).

SQLite: https://www.sqlite.org/pragma.html#pragma_synchronous, https://www.sqlite.org/lang_transaction.html;
SQLAlchemy: https://docs.sqlalchemy.org/en/21/dialects/sqlite.html (read 2026-11-21).
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import psycopg
from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    ExceptionContext,
    create_engine,
    event,
    literal,
    literal_column,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import Session

from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.messaging.errors import OutboxError

_DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
_PORT_MAX = 65_535
_BUSY_SECONDS = 5
_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "is not permitted to log in")
_LOOK_SECONDS = 0.1  # after which a wait for Postgres looks whether Ctrl-C was pressed, as psycopg has it
_FULL = 2
REFUSED = "the database refuses the credentials, which were read at the start ({said}); correct them where they changed"
"""Said by what ends for that, with what the server said."""
NO_TABLES = "the {part}'s tables are not in this database; create them with `sluice {part} schema --apply`"
"""Said of a database without the tables of outbox or inbox."""
_UNDEFINED_TABLE = "42P01"
_SAVEPOINT = "sluice_handler"
_ENDS_TRANSACTION = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/|;)*(COMMIT|END|ABORT|ROLLBACK(?!\s+((WORK|TRANSACTION)\s+)?TO\b)|PREPARE\s+TRANSACTION)\b",
    re.IGNORECASE | re.DOTALL,
)
_TRANSACTION_ID, _TRANSACTION_ID_IF_ANY = text("SELECT txid_current()"), text("SELECT txid_current_if_assigned()")
# SQLSTATE classes and states after which the same transaction may succeed: connection, resources, shutdown, lost races.
_AWAY = ("08", "53", "57P", "40001", "40P01", "55P03", "25P03", "25006")
_LOCKED = ("55P03", "40P01")  # lock_timeout, deadlock
_LOCK_MILLISECONDS = 200
_ONLY_READ = "25006"  # by a connection to what was the primary before a failover
_IN_ERROR = 3  # libpq's PQTRANS_INERROR
_ONLY_READS = "sluice_only_reads"
# A plan prepared while the outbox was small would be kept when it is large: a head query then takes seconds, not
# milliseconds, until Postgres has counted again. https://www.psycopg.org/psycopg3/docs/advanced/prepare.html
# (read 2026-11-21).
# A host that is gone without a word is noticed within half a minute, not after the two hours of the system's keepalive.
# https://www.postgresql.org/docs/18/libpq-connect.html (read 2026-11-21).
_CONNECT: dict[str, Any] = {
    "prepare_threshold": None,
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_NOW_US = {
    "sqlite": "SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
    "postgresql": "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
}


def engine(url: str) -> Engine:
    """Return an engine on a database, e.g. `sqlite:///outbox.db` or `postgresql://user@host/name`.

    Raises:
        ConfigError: the URL is none, or of another kind of database, or for another driver.
    """
    try:
        parsed = make_url(url)
        _check_url(parsed)
        # Any number of connections: who asks for them has a bound of its own, its threads.
        pooled = {} if parsed.database in (None, "", ":memory:") else {"pool_size": 0}
        connect = _CONNECT if parsed.get_driver_name() == "psycopg" else {}
        made = create_engine(parsed, pool_pre_ping=True, hide_parameters=True, connect_args=connect, **pooled)
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(
            f"database URL cannot be read ({str(error).splitlines()[0]}); give one such as postgresql://user@host/name"
        ) from error
    except (ValueError, TypeError) as error:  # their text may be a part of the password
        raise ConfigError(
            "database URL has a port or an option that cannot be read, allowed is a number where one belongs, and"
            " escapes such as %2F in a password; give one such as postgresql://user@host:5432/name"
        ) from error
    if made.dialect.name == "sqlite":
        make_durable(made)
    return made


def _check_url(url: URL) -> None:
    backend, _, driver = url.drivername.partition("+")
    if backend not in _DRIVERS:
        raise ConfigError(
            f"database is {backend!r}, allowed is one of {', '.join(_DRIVERS)}; give --dsn such as"
            " postgresql://user@host/name"
        )
    if driver not in ("", _DRIVERS[backend]):
        raise ConfigError(
            f"database driver is {driver!r}, allowed is {_DRIVERS[backend]}; give --dsn such as"
            f" {backend}+{_DRIVERS[backend]}://…, or without a driver"
        )
    if url.port is not None and not 1 <= url.port <= _PORT_MAX:
        raise ConfigError(f"database port is {url.port}, allowed is 1 to {_PORT_MAX}; correct --dsn")


def require_there(engine: Engine, *, part: str = "outbox") -> None:
    """Refuse an SQLite file that is not there: opening it would make an empty one.

    Args:
        engine: on the database.
        part: what it should hold, outbox or inbox.

    Raises:
        ConfigError: there is none.
    """
    path = engine.url.database
    if engine.dialect.name == "sqlite" and path not in (None, "", ":memory:") and not Path(str(path)).exists():
        raise ConfigError(
            f"database {path} does not exist; correct --dsn, or create it with `sluice {part} schema --apply`"
        )


def make_durable(engine: Engine) -> None:
    """Let every connection of an SQLite engine keep what it commits, and take the write lock when it begins."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={_BUSY_SECONDS * 1_000}"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        only_reads = connection.get_execution_options().get(_ONLY_READS, False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a short transaction that writes nothing, and so waits for no writer."""
    with engine.connect().execution_options(**{_ONLY_READS: True}) as connection, connection.begin():
        yield connection


def now_us(connection: Connection, clock: Clock | None) -> int:
    """Return the instant by the database's clock, microseconds UTC; by `clock` where a test gives one."""
    if clock is not None:
        return clock.now_us()
    return int(connection.execute(text(_NOW_US[connection.dialect.name])).scalar_one())


def may_pass(error: DBAPIError) -> bool:
    """Return whether the same transaction may succeed later: the database is away, or this transaction lost a race.

    Which of the two it is, only another transaction tells.
    """
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        return state.startswith(_AWAY)
    is_busy = "database is locked" in str(error.orig)
    no_answer = isinstance(error, OperationalError | InterfaceError) and not _is_sqlite(error)
    return error.connection_invalidated or is_busy or no_answer


def is_refused(error: BaseException | None) -> bool:
    """Return whether the server does not let us in: no later try with the same credentials will be any better.

    Of a connection that failed libpq tells no SQLSTATE, only what the server said, here in its English.
    """
    return isinstance(error, psycopg.OperationalError) and any(said in str(error) for said in _REFUSALS)


class Refusals:
    """Notices when a database refuses an engine's credentials, whoever asked; `said` is what it said, None so far."""

    def __init__(self, engine: Engine) -> None:
        self.said: str | None = None
        event.listen(engine, "handle_error", self._failed)

    def _failed(self, context: ExceptionContext) -> None:
        if is_refused(context.original_exception):
            self.said = str(context.original_exception).strip().splitlines()[0]


def forget_connections(engine: Engine) -> None:
    """Let everything from now on be asked over new connections; a database in memory has only the one."""
    if not (engine.dialect.name == "sqlite" and engine.url.database in (None, "", ":memory:")):
        engine.dispose()


def is_only_read(error: DBAPIError) -> bool:
    """Return whether the server only reads: all connections of the pool are to it, and have to be made anew."""
    return getattr(error.orig, "sqlstate", None) == _ONLY_READ


class TransactionEnded(Exception):
    """Raised where a handler's transaction would be ended by anybody but the worker, or has been."""

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
        session: in a transaction.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._transaction = session, session.get_transaction()
        self._connection = session.connection()
        self._driver: Any = self._connection.connection.driver_connection
        self._is_sqlite = self._connection.dialect.name == "sqlite"
        self._id: int | None = None
        self._is_committing = self.has_refused_driver = False
        self._hooks: dict[str, Callable[..., None]] = {
            "commit": self._on_commit,
            "rollback": self._on_rollback,
            "before_cursor_execute": self._on_statement,
        }

    def __enter__(self) -> Self:
        if self._is_sqlite:
            self._connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
            self._driver.set_authorizer(self._authorize)
        else:
            self._id = self._connection.execute(_TRANSACTION_ID).scalar_one()
        for name, hook in self._hooks.items():
            event.listen(self._connection, name, hook)
        return self

    def __exit__(self, *_: object) -> None:
        for name, hook in self._hooks.items():
            event.remove(self._connection, name, hook)
        self._let_go()

    def require_open(self) -> None:
        """Do nothing while the session is in it, as far as that is known here without asking.

        Raises:
            TransactionEnded: it is not, or a statement of it has failed.
        """
        is_same = self._session.get_transaction() is self._transaction
        if not is_same or (self._is_sqlite and not self._driver.in_transaction):
            raise TransactionEnded(TransactionEnded.ENDED)
        if has_failed(self._connection):
            raise TransactionEnded(TransactionEnded.FAILED)

    def commit(self) -> None:
        """Commit it, and with it all that was done since it was begun.

        Raises:
            TransactionEnded: it has ended meanwhile; nothing was committed here.
            DBAPIError: the database did not do it; whether it was committed is unknown when the connection is lost.
        """
        self._is_committing = True
        self._session.commit()

    def _on_commit(self, connection: Connection) -> None:
        reason = self._why_not(connection)
        self._let_go()
        if reason is not None:
            # SQLAlchemy takes it for committed, and would give the connection back with the transaction open.
            self._driver.rollback()
            raise TransactionEnded(reason)

    def _why_not(self, connection: Connection) -> str | None:
        if self._is_committing and has_failed(connection):
            return TransactionEnded.FAILED
        return None if self._is_committing and self._is_whole(connection) else TransactionEnded.ENDED

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

    def _on_rollback(self, _: Connection) -> None:
        self._let_go()

    def _on_statement(self, _: Connection, __: object, statement: str, *___: object) -> None:
        if not self._is_committing and _ENDS_TRANSACTION.match(statement):
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


def wait_briefly(connection: Connection) -> None:
    """Let the rest of a transaction on Postgres give up where another holds a lock for longer than a moment.

    https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21)
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_MILLISECONDS}ms'"))


def is_locked(error: DBAPIError) -> bool:
    """Return whether the transaction gave up because another held a lock, or the other would have waited for it."""
    return getattr(error.orig, "sqlstate", None) in _LOCKED


def has_failed(connection: Connection) -> bool:
    """Return whether a statement of the transaction has failed, so that its commit would silently be a rollback."""
    driver: Any = connection.connection.driver_connection
    return connection.dialect.name == "postgresql" and int(driver.info.transaction_status) == _IN_ERROR


def _is_sqlite(error: DBAPIError) -> bool:
    return type(error.orig).__module__ == "sqlite3"


def end_waits(engine: Engine, seconds: float) -> None:
    """Let Postgres and us wait for each other no longer than that; connections that are open already are not touched.

    Postgres ends a transaction in which nothing comes for so long: whoever has it open is frozen, or gone, and it holds
    locks others wait for. We close a connection on which an answer takes so long: a host whose disk hangs goes on
    acknowledging what it is sent, so no keepalive notices.
    https://www.postgresql.org/docs/18/runtime-config-client.html,
    https://www.psycopg.org/psycopg3/docs/api/connections.html (read 2026-11-21)
    """
    if engine.dialect.name == "postgresql":
        event.listen(engine, "do_connect", partial(_connected, seconds))


def _connected(seconds: float, _: Any, __: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    connection = _Impatient.connect(*arguments, **named)
    connection.seconds_max = seconds
    connection.execute(f"SET idle_in_transaction_session_timeout = {round(seconds * 1_000)}")
    connection.commit()
    return connection


def listening(engine: Engine, channel: str) -> psycopg.Connection[Any]:
    """Return a connection of its own to an engine's Postgres, with the same timeouts, that listens to a channel."""
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True, **_CONNECT)
    connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
    return connection


class _Impatient(psycopg.Connection[Any]):
    """A connection that is closed when an answer takes too long."""

    seconds_max: float | None = None

    def wait(self, gen: Any, interval: float = _LOOK_SECONDS, timeout: float | None = None) -> Any:
        """Wait for an answer, for so long at most."""
        try:
            return super().wait(gen, interval, self.seconds_max if timeout is None else timeout)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001 (its documentation names it)
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the database gave no answer for {self.seconds_max:g} s") from error


def now_us_sql(dialect: str, clock: Clock | None = None) -> ColumnElement[int]:
    """Return that instant as an expression, for a statement that is asked anyway."""
    if clock is not None:
        return literal(clock.now_us(), BigInteger)
    return literal_column(_NOW_US[dialect].removeprefix("SELECT "), BigInteger)


def in_seconds(instant_us: ColumnElement[int]) -> ColumnElement[int]:
    """Return an instant in microseconds as whole seconds."""
    return instant_us // literal_column("1000000", BigInteger)


def require_durable(connection: Connection) -> None:
    """Refuse an SQLite connection that may lose a commit to a power cut.

    Raises:
        OutboxError: it may.
    """
    if connection.dialect.name == "sqlite":
        seen = int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
        if seen < _FULL:
            raise OutboxError(
                f"PRAGMA synchronous is {seen}, allowed is {_FULL} (FULL) or more: a message could be out whose commit"
                " a power cut takes back; open the database with database.engines.engine or make_durable"
            )


@contextmanager
def explaining_missing_tables() -> Iterator[None]:
    """Say how to create the tables where the database says it has none."""
    try:
        yield
    except DBAPIError as error:
        said = str(error.orig)
        is_undefined = "no such table" in said or getattr(error.orig, "sqlstate", "") == _UNDEFINED_TABLE
        if not is_undefined or "sluice_" not in said:
            raise
        part = "inbox" if "sluice_inbox" in said else "outbox"
        raise OutboxError(NO_TABLES.format(part=part)) from error
