"""Databases of a Django project, for SQLAlchemy: as connections of a worker's own, or as Django's own connection.

Both use the project's settings of a database: user, password, options and backend. A worker's connection is opened with
the parameters of Django's backend, so that Django's ORM can use that connection too.

Django: https://docs.djangoproject.com/en/5.2/ref/databases/#subclassing-the-built-in-database-backends,
https://docs.djangoproject.com/en/5.2/ref/databases/#postgresql-notes;
SQLAlchemy: https://docs.sqlalchemy.org/en/21/core/engines.html#custom-dbapi-connect-arguments-on-connect-routines
(read 2026-11-27)
"""

from functools import partial
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import SQLiteCursorWrapper
from psycopg import IsolationLevel
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from sluice.errors import ConfigError
from sluice.messaging.database import connections as opening
from sluice.messaging.database import engines

_ALLOWED = ("postgresql", "sqlite")
_DRIVER = "psycopg"


class PostgresConnection(opening.HookedConnection):
    """A worker's connection to a Postgres of the project."""

    alias = ""


class SqliteCursor(SQLiteCursorWrapper, opening.SqliteCursor):
    """A cursor that takes parameters in Django's form, and enforces the rules of a worker's connection."""


class SqliteConnection(opening.SqliteConnection):
    """A worker's connection to an SQLite of the project, with the SQL functions that Django adds."""

    alias = ""
    cursor_factories = (opening.SqliteCursor, SqliteCursor)
    _has_regexp = False

    def create_function(self, name: str, *arguments: Any, **named: Any) -> None:
        """Create an SQL function; ignore the second `regexp`, which is SQLAlchemy's and takes no numbers.

        The first one is Django's, and takes numbers.
        """
        if name != "regexp" or not self._has_regexp:
            super().create_function(name, *arguments, **named)
        self._has_regexp |= name == "regexp"


def database(alias: str = DEFAULT_DB_ALIAS) -> BaseDatabaseWrapper:
    """Return Django's connection to a database of a supported kind.

    Raises:
        ConfigError: the database is neither Postgres nor SQLite, or the driver is not psycopg 3.
    """
    connection = connections[alias]
    if connection.vendor not in _ALLOWED:
        raise ConfigError(
            f"database {alias!r} of Django is {connection.vendor}, allowed is {' or '.join(_ALLOWED)};"
            " name one by using="
        )
    driver = connection.Database.__name__
    if connection.vendor == "postgresql" and driver != _DRIVER:
        raise ConfigError(
            f"the driver of Django's database {alias!r} is {driver}, allowed is psycopg 3: {driver} tells neither a"
            " transaction's id nor its end to a guard; pip install 'psycopg[binary]>=3.2'"
        )
    return connection


def worker_engine(alias: str = DEFAULT_DB_ALIAS) -> Engine:
    """Return an engine whose connections a worker can lend to Django's ORM; a relay may use it as well.

    Raises:
        ConfigError: the database is neither Postgres nor SQLite, is in memory, or the driver is not psycopg 3.
    """
    connection = database(alias)
    parameters = connection.get_connection_params()
    if connection.vendor == "postgresql":
        return engines.engine("postgresql://", connect=partial(_open_postgres, alias))
    name = str(parameters["database"])
    if name == ":memory:" or "mode=memory" in name:
        raise ConfigError(
            f"database {alias!r} of Django is in memory, allowed is a file: other connections would find another; set"
            " its NAME, or in tests its TEST NAME"
        )
    return engines.engine(_sqlite_url(name), connect=partial(_open_sqlite, alias))


def _sqlite_url(name: str) -> str:
    query = {"uri": "true"} if name.startswith("file:") else {}
    return URL.create("sqlite", database=name, query=query).render_as_string(hide_password=False)


def _open_postgres(alias: str, *_: object) -> Any:
    """Open a worker's connection; Django's settings become settings of its session.

    A worker makes a session new for the next message by RESET ALL, which returns to these settings.
    """
    connection = database(alias)
    parameters = connection.get_connection_params()
    settings = [parameters.get("options", ""), _option("TimeZone", connection.timezone_name)]
    options = connection.settings_dict["OPTIONS"]
    if "assume_role" in options:
        settings.append(_option("role", options["assume_role"]))
    if "isolation_level" in options:
        level = IsolationLevel(options["isolation_level"]).name.replace("_", " ").lower()
        settings.append(_option("default_transaction_isolation", level))
    parameters["options"] = " ".join(filter(None, settings))
    opened = opening.open_postgres(None, None, (), parameters, kind=PostgresConnection)
    assert isinstance(opened, PostgresConnection)
    opened.alias = alias
    return opened


def _option(name: str, value: str) -> str:
    """Return a setting in the form of libpq's `options`: https://www.postgresql.org/docs/18/libpq-connect.html."""
    escaped = value.replace("\\", "\\\\").replace(" ", "\\ ")
    return f"-c {name}={escaped}"


def _open_sqlite(alias: str, *_: object) -> Any:
    connection = database(alias)
    opened = connection.get_new_connection({**connection.get_connection_params(), "factory": SqliteConnection})
    opened.alias = alias
    return opened


class JoinedConnection:
    """Django's own connection in the form of a driver's, for SQLAlchemy; a transaction on it is an `atomic()` block.

    Its cursors are the driver's, because SQLAlchemy understands the driver's errors, and not Django's.
    """

    is_joined = True

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._block: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(_driver(self.alias), name)

    def begin(self) -> None:
        """Enter an `atomic()` block."""
        from django.db import transaction  # noqa: PLC0415

        self._block = transaction.atomic(using=self.alias)
        self._block.__enter__()

    def commit(self) -> None:
        """Leave the `atomic()` block; the outermost block commits."""
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)

    def rollback(self) -> None:
        """Leave the `atomic()` block, and roll back its statements."""
        block, self._block = self._block, None
        if block is not None:
            connections[self.alias].set_rollback(True)
            block.__exit__(None, None, None)

    def close(self) -> None:
        """Leave Django's connection open."""

    def add_notice_handler(self, _: object) -> None:
        """Add none: SQLAlchemy would, and Django's connection is not ours to change."""

    def create_function(self, *_: object, **__: object) -> None:
        """Create none: SQLAlchemy would, and Django's connection is not ours to change."""


def _driver(alias: str) -> Any:
    """Return the driver's connection inside Django's, opened if needed."""
    connection = connections[alias]
    connection.ensure_connection()
    return connection.connection


def joined_engine(alias: str = DEFAULT_DB_ALIAS) -> Engine:
    """Return an engine whose only connection is Django's own of this thread, with Django's transactions.

    Raises:
        ConfigError: the database is neither Postgres nor SQLite, or the driver is not psycopg 3.
    """
    is_postgres = database(alias).vendor == "postgresql"
    # SQLAlchemy would look the type hstore up on a connection that it takes for psycopg's own.
    options = {"use_native_hstore": False} if is_postgres else {}
    engine = create_engine(
        "postgresql+psycopg://" if is_postgres else "sqlite://",
        **options,
        creator=lambda: JoinedConnection(alias),
        poolclass=NullPool,
        pool_reset_on_return=None,
        hide_parameters=True,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        joined: Any = connection.connection.driver_connection
        joined.begin()

    return engine
