"""Databases for outbox and inbox: SQLite and Postgres, nothing else.

SQLite is opened so that its promise is a promise: WAL, `synchronous=FULL` (a commit survives the power cut that follows
it, or a message could be out whose cause is not), and `BEGIN IMMEDIATE` (a deferred transaction that reads and then
writes fails at once when another writes, whatever its busy timeout).

SQLite: https://www.sqlite.org/pragma.html#pragma_synchronous, https://www.sqlite.org/lang_transaction.html;
SQLAlchemy: https://docs.sqlalchemy.org/en/21/dialects/sqlite.html (read 2026-11-21).
"""

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import psycopg
from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    ExceptionContext,
    Table,
    create_engine,
    event,
    literal,
    literal_column,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
)
from sqlalchemy.pool import QueuePool

from sluice.clock import Clock
from sluice.errors import ConfigError
from sluice.messaging.database import connections, failures
from sluice.messaging.errors import OutboxError

_INSERTS: dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
_DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
_PORT_MAX = 65_535
# Without its locks, two processes overwrite each other's commits: https://www.sqlite.org/uri.html (read 2026-11-27).
_UNLOCKED = ("nolock", "immutable", "vfs")
_REFUSED = "28"  # SQLSTATE class invalid_authorization_specification
# OpenSSL's and libpq's own, on this side: no language of the server.
_UNTRUSTED = ("certificate verify failed", "does not match host name")
REFUSED = "the database refuses the credentials ({reason}); correct them where they are kept"
"""The message of a process that ends because of this, with the server's reason."""
NO_TABLES = "the {part}'s tables are not in this database; create them with `sluice schema apply {part}`"
"""Said of a database without the tables of outbox or inbox."""
_UNDEFINED_TABLE = "42P01"
_LOCK_MILLISECONDS = 200
_IDLE_SECONDS = 30
_ONLY_READS = "sluice_only_reads"
_NOW_US = {
    "sqlite": "SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
    "postgresql": "SELECT CAST(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000 AS bigint)",
}


def engine(url: str, *, connect: Callable[..., Any] | None = None) -> Engine:
    """Return an engine on a database, e.g. `sqlite:///outbox.db` or `postgresql://user@host/name`.

    Args:
        url: the URL, with the current password if `connect` uses another one later.
        connect: opens each connection, with the arguments of `connections.open_postgres`, which is the default for
            Postgres; a connection to Postgres is a `HookedConnection`.

    Raises:
        ConfigError: the URL is not valid, or is of another kind of database or another driver.
    """
    try:
        parsed = make_url(url.strip())  # a file that a secret is in often ends in a newline
        _check_url(parsed)
        # Any number of connections: who asks for them has a bound of its own, its threads.
        options: dict[str, Any] = {} if is_in_memory(parsed) else {"pool_size": 0}
        if parsed.get_backend_name() == "sqlite":
            options["connect_args"] = {"factory": connections.SqliteConnection}
        made = create_engine(
            parsed, hide_parameters=True, pool_reset_on_return=None, **options
        )  # see `reset_on_return`
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(
            f"database URL cannot be read ({str(error).splitlines()[0]}); give one such as postgresql://user@host/name"
        ) from error
    except (ValueError, TypeError) as error:  # their messages may contain a part of the password
        raise ConfigError(
            "database URL has a port or an option that cannot be read, allowed is a number where one belongs, and"
            " escapes such as %2F in a password; give one such as postgresql://user@host:5432/name"
        ) from error
    connections.reset_on_return(made)
    connections.close_changed_connections(made)
    if connect is None and made.dialect.name == "postgresql":
        connect = connections.open_postgres
    if connect is not None:
        event.listen(made, "do_connect", connect)
    if made.dialect.name == "sqlite":
        make_durable(made)
    connections.leave_standbys(made)
    _engines.add(made)
    return made


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def is_hooked(engine: Engine) -> bool:
    """Return whether each of the engine's connections to Postgres is a `connections.HookedConnection`."""
    return is_made_here(engine) and engine.dialect.name == "postgresql"


def is_made_here(engine: Engine) -> bool:
    """Return whether Sluice made the engine, so that each of its connections refuses what a handler left behind."""
    return engine in _engines


def _close_files() -> None:
    """Close idle connections to SQLite before a fork: the child would believe that it holds its parent's locks.

    https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_file_across_a_fork_ (read 2026-11-26)
    """
    for engine in list(_engines):
        pool = engine.pool  # connections in use are not closed
        if engine.dialect.name == "sqlite" and isinstance(pool, QueuePool) and pool.checkedout() == 0:
            forget_connections(engine)


def _leave_connections() -> None:
    """Let a forked child open new connections; the connections of its parent stay open.

    https://docs.sqlalchemy.org/en/21/core/pooling.html#using-connection-pools-with-multiprocessing-or-os-fork (read
    2026-11-26)
    """
    for engine in list(_engines):
        if not is_in_memory(engine.url):
            engine.dispose(close=False)


os.register_at_fork(before=_close_files, after_in_child=_leave_connections)


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
    if backend == "sqlite" and (unlocked := [name for name in _UNLOCKED if name in url.query]):
        raise ConfigError(
            f"database URL has {unlocked[0]}, allowed is none of {', '.join(_UNLOCKED)}: processes would overwrite each"
            " other's commits; leave it out"
        )
    if backend == "sqlite" and url.query.get("mode") == "memory":
        raise ConfigError("database URL has mode=memory, allowed is a file: it ends with this process; leave it out")
    if url.port is not None and not 1 <= url.port <= _PORT_MAX:
        raise ConfigError(f"database port is {url.port}, allowed is 1 to {_PORT_MAX}; correct --dsn")


def is_in_memory(url: URL) -> bool:
    """Return whether a database is SQLite's in memory, which exists on its single connection only."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def require_there(engine: Engine, *, part: str = "outbox") -> None:
    """Refuse an SQLite file that does not exist, because opening it would create an empty one.

    Args:
        engine: an engine on any database; only a file of SQLite is looked for.
        part: outbox or inbox, which the error's command creates.

    Raises:
        ConfigError: the file does not exist.
    """
    name = str(engine.url.database)
    path = Path(unquote(name.removeprefix("file:")) if "uri" in engine.url.query else name)
    if engine.dialect.name == "sqlite" and not is_in_memory(engine.url) and not path.exists():
        raise ConfigError(
            f"database {path} does not exist; correct --dsn, or create it with `sluice schema apply {part}`"
        )


def make_durable(engine: Engine) -> None:
    """Let every connection of an SQLite engine keep its commits, and take the write lock when it begins."""
    event.listen(engine, "connect", connections.open_sqlite)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        only_reads = connection.get_execution_options().get(_ONLY_READS, False)
        connections.execute(connection, "BEGIN" if only_reads else "BEGIN IMMEDIATE")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a short read-only transaction, which waits for no writer."""
    with engine.connect().execution_options(**{_ONLY_READS: True}) as connection, connection.begin():
        yield connection


@contextmanager
def looking(engine: Engine) -> Iterator[Connection]:
    """Yield a connection for one statement that only reads; on Postgres it is a transaction of its own.

    BEGIN and COMMIT would be two round trips more.
    """
    if engine.dialect.name != "postgresql":
        with reading(engine) as connection:
            yield connection
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


def now_us(connection: Connection, clock: Clock | None) -> int:
    """Return the time of the database's clock, microseconds UTC; of `clock` if a test passes one."""
    if clock is not None:
        return clock.now_us()
    return int(connection.execute(text(_NOW_US[connection.dialect.name])).scalar_one())


def insert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an insert with an ON CONFLICT clause, in the dialect of the database."""
    return _INSERTS[dialect](table)


def may_pass_at_start(error: DBAPIError) -> bool:
    """Return whether a later connect may succeed after this error: neither side has refused the other's credentials."""
    is_untrusted = any(sentence in str(error.orig) for sentence in _UNTRUSTED)
    return failures.may_pass(error) and not is_untrusted


class RefusedForNow(psycopg.OperationalError):
    """Raised when the server refuses credentials that may soon change: a retry may succeed."""


def is_refused(error: BaseException | None) -> bool:
    """Return whether the server refused our credentials: a retry with the same ones cannot succeed."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_REFUSED)


def refusal(error: BaseException | None) -> str | None:
    """Return the server's reason if it refused our credentials; None for any other error."""
    return str(error).strip().splitlines()[0] if is_refused(error) else None


class Refusals:
    """Notes when a database refuses an engine's credentials.

    Attributes:
        message: the database's message of the latest refusal; None before the first.
    """

    def __init__(self, engine: Engine) -> None:
        self.message: str | None = None
        event.listen(engine, "handle_error", self._keep_refusal)

    def _keep_refusal(self, context: ExceptionContext) -> None:
        self.message = refusal(context.original_exception) or self.message


def forget_connections(engine: Engine) -> None:
    """Use new connections from now on; a database in memory keeps its only one."""
    if not is_in_memory(engine.url):
        engine.dispose()


def wait_briefly(connection: Connection) -> None:
    """Let the rest of a transaction on Postgres wait for a lock for 200 ms at most.

    https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21)
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_MILLISECONDS}ms'"))


def limit_idle(connection: Connection) -> None:
    """Let Postgres end a transaction that holds a relay's lease if no statement arrives in it for 30 seconds.

    https://www.postgresql.org/docs/18/runtime-config-client.html (read 2026-11-21)
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'"))


def listening(engine: Engine, channel: str) -> psycopg.Connection[Any]:
    """Return a separate connection to an engine's Postgres that listens to a channel; it is set up like all others."""
    taken = engine.raw_connection()
    connection: Any = taken.driver_connection
    try:
        connection.autocommit = True
        connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
    except BaseException:
        taken.invalidate()  # otherwise the pool would give it to code that needs a transaction
        raise
    taken.detach()
    return cast("psycopg.Connection[Any]", connection)


def now_us_sql(dialect: str, clock: Clock | None = None) -> ColumnElement[int]:
    """Return the time of the database's clock, microseconds UTC, as an SQL expression; of `clock` if one is given."""
    if clock is not None:
        return literal(clock.now_us(), BigInteger)
    return literal_column(now_us_text(dialect), BigInteger)


def now_us_text(dialect: str, clock: Clock | None = None) -> str:
    """Return the time of the database's clock, microseconds UTC, as SQL text; with `clock`, its parameter `now_us`."""
    return _NOW_US[dialect].removeprefix("SELECT ") if clock is None else "CAST(:now_us AS bigint)"


def transaction_id_sql(dialect: str) -> ColumnElement[int]:
    """Return the id of the transaction as an SQL expression; NULL on SQLite, which has none."""
    return literal_column("pg_catalog.txid_current()" if dialect == "postgresql" else "NULL", BigInteger)


def in_seconds(instant_us: ColumnElement[int]) -> ColumnElement[int]:
    """Return the SQL expression of an instant in whole seconds, from one in microseconds."""
    return instant_us // literal_column("1000000", BigInteger)


@contextmanager
def explaining_missing_tables() -> Iterator[None]:
    """Explain how to create the tables when the database reports that they are missing."""
    try:
        yield
    except DBAPIError as error:
        explain_missing_tables(error)
        raise


def explain_missing_tables(error: DBAPIError) -> None:
    """Raise an error that says how to create the tables if they are missing; return for any other cause.

    Raises:
        OutboxError: the tables are missing.
    """
    message = str(error.orig)
    is_undefined = "no such table" in message or getattr(error.orig, "sqlstate", "") == _UNDEFINED_TABLE
    if is_undefined and "sluice_" in message:
        part = "inbox" if "sluice_inbox" in message else "outbox"
        raise OutboxError(NO_TABLES.format(part=part)) from error
