"""Databases of a Django project, for SQLAlchemy: connections of a worker's own, and Django's own connection.

Whatever the project says of a database (user, password, options, its backend) holds for both. A connection of a worker
is opened with the parameters of Django's backend, so that Django's ORM finds on it what it expects.

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
    """A cursor that takes Django's parameters, and keeps to the rules of a worker's connection."""


class SqliteConnection(opening.SqliteConnection):
    """A worker's connection to an SQLite of the project. It has Django's functions."""

    alias = ""
    cursor_factories = (opening.SqliteCursor, SqliteCursor)
    _has_regexp = False

    def create_function(self, name: str, *arguments: Any, **named: Any) -> None:
        """Create a function, except for the second `regexp`, SQLAlchemy's: Django's takes numbers, too."""
        if name != "regexp" or not self._has_regexp:
            super().create_function(name, *arguments, **named)
        self._has_regexp |= name == "regexp"


def database(alias: str = DEFAULT_DB_ALIAS) -> BaseDatabaseWrapper:
    """Return Django's connection to a database that keeps the promises.

    Raises:
        ConfigError: it is of another kind, or its driver is another.
    """
    found = connections[alias]
    if found.vendor not in _ALLOWED:
        raise ConfigError(
            f"database {alias!r} of Django is {found.vendor}, allowed is {' or '.join(_ALLOWED)}; name one by using="
        )
    driver = found.Database.__name__
    if found.vendor == "postgresql" and driver != _DRIVER:
        raise ConfigError(
            f"the driver of Django's database {alias!r} is {driver}, allowed is psycopg 3: {driver} tells neither a"
            " transaction's id nor its end to a guard; pip install 'psycopg[binary]>=3.2'"
        )
    return found


def worker_engine(alias: str = DEFAULT_DB_ALIAS) -> Engine:
    """Return an engine whose connections a worker can lend to Django's ORM; a relay may use it as well.

    Raises:
        ConfigError: the database is of another kind, is in memory, or its driver is another.
    """
    found = database(alias)
    parameters = found.get_connection_params()
    if found.vendor == "postgresql":
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
    found = database(alias)
    parameters = found.get_connection_params()
    settings = [parameters.get("options", ""), _option("TimeZone", found.timezone_name)]
    options = found.settings_dict["OPTIONS"]
    if "assume_role" in options:
        settings.append(_option("role", options["assume_role"]))
    if "isolation_level" in options:
        level = IsolationLevel(options["isolation_level"]).name.replace("_", " ").lower()
        settings.append(_option("default_transaction_isolation", level))
    # RESET ALL, which makes a session new for the next message, goes back to these.
    parameters["options"] = " ".join(filter(None, settings))
    opened = opening.open_postgres(None, None, (), parameters, kind=PostgresConnection)
    assert isinstance(opened, PostgresConnection)
    opened.alias = alias
    return opened


def _option(name: str, value: str) -> str:
    """Return one setting as libpq's `options` has it: https://www.postgresql.org/docs/18/libpq-connect.html."""
    escaped = value.replace("\\", "\\\\").replace(" ", "\\ ")
    return f"-c {name}={escaped}"


def _open_sqlite(alias: str, *_: object) -> Any:
    found = database(alias)
    opened = found.get_new_connection({**found.get_connection_params(), "factory": SqliteConnection})
    opened.alias = alias
    return opened


class JoinedConnection:
    """Django's own connection, as a driver's: a transaction is an `atomic()` block of Django's, or is within one.

    Its cursors are the driver's: SQLAlchemy reads the driver's errors.
    """

    is_joined = True

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._block: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(_driver(self.alias), name)

    def begin(self) -> None:
        """Enter a block."""
        from django.db import transaction  # noqa: PLC0415

        self._block = transaction.atomic(using=self.alias)
        self._block.__enter__()

    def commit(self) -> None:
        """Leave the block."""
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(None, None, None)

    def rollback(self) -> None:
        """Leave the block, and roll back what was done in it."""
        block, self._block = self._block, None
        if block is not None:
            connections[self.alias].set_rollback(True)
            block.__exit__(None, None, None)

    def close(self) -> None:
        """Leave Django's connection open."""

    def add_notice_handler(self, _: object) -> None:
        """Leave Django's connection as it is."""

    def create_function(self, *_: object, **__: object) -> None:
        """Leave Django's connection as it is."""


def _driver(alias: str) -> Any:
    found = connections[alias]
    found.ensure_connection()
    return found.connection


def joined_engine(alias: str = DEFAULT_DB_ALIAS) -> Engine:
    """Return an engine on Django's own connection of this thread, which does one thing at a time.

    Raises:
        ConfigError: the database is of another kind, or its driver is another.
    """
    is_postgres = database(alias).vendor == "postgresql"
    own = {"use_native_hstore": False} if is_postgres else {}  # which psycopg would look up on its own connection
    made = create_engine(
        "postgresql+psycopg://" if is_postgres else "sqlite://",
        **own,
        creator=lambda: JoinedConnection(alias),
        poolclass=NullPool,
        pool_reset_on_return=None,
        hide_parameters=True,
    )

    @event.listens_for(made, "begin")
    def begin(connection: Connection) -> None:
        joined: Any = connection.connection.driver_connection
        joined.begin()

    return made
