"""Copies of databases for a drill. What is given is only read, and is never the environment's own."""

import os
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Engine, text
from sqlalchemy.exc import DBAPIError

from sluice.declaration import Environment
from sluice.errors import ConfigError, EndpointError
from sluice.messaging.database import engines
from sluice.messaging.database.rotation import is_named, runtime_engine

_LOCAL_HOSTS = (None, "", "localhost", "::1")
_MAINTENANCE = (
    "postgres",
    "template1",
)  # https://www.postgresql.org/docs/18/manage-ag-templatedbs.html (read 2026-11-27)


def require_another(environment: Environment, option: str, url: str) -> Engine:
    """Return an engine on a database that is not the environment's own.

    Raises:
        ConfigError: it is the database that the environment's variables name, or is not there.
    """
    engine = engines.engine(url)
    own_url = os.environ.get("SLUICE_DSN", "").strip() or None
    if own_url is not None or is_named():
        own = runtime_engine(environment.region, own_url)
        own.dispose()
        if place_of(engine.url) == place_of(own.url):
            raise ConfigError(
                f"{option} is the environment's own database ({engine.url.render_as_string()}), allowed is a copy;"
                " restore a backup to another database, and name that"
            )
    engines.require_there(engine)
    return engine


def place_of(url: URL) -> tuple[str, ...]:
    """Return the place of a database, which all of its URLs have in common: its file, or host, port and name."""
    if url.get_backend_name() == "sqlite":
        return ("sqlite", str(Path(url.database or "").resolve()))
    host = "127.0.0.1" if url.host in _LOCAL_HOSTS else str(url.host).lower()
    return ("postgresql", str(url.query.get("host", host)), str(url.port or 5432), str(url.database))


@contextmanager
def working_copy(source: Engine) -> Iterator[Engine]:
    """Yield an engine on a copy of a database, which is dropped at the end.

    SQLite: https://docs.python.org/3/library/sqlite3.html#sqlite3.Connection.backup; Postgres:
    https://www.postgresql.org/docs/18/manage-ag-templatedbs.html (no other session may be connected to the source; both
    read 2026-11-27).

    Raises:
        EndpointError: Postgres refuses to copy the database.
    """
    source.dispose()
    copying = _sqlite_copy if source.dialect.name == "sqlite" else _postgres_copy
    with copying(source.url) as url:
        engine = engines.engine(url.render_as_string(hide_password=False))
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def _sqlite_copy(url: URL) -> Iterator[URL]:
    """Yield the URL of a copy of a file of SQLite, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="sluice-drill-") as folder:
        copy = url.set(database=str(Path(folder) / "copy.db"))
        with closing(sqlite3.connect(str(url.database))) as read, closing(sqlite3.connect(str(copy.database))) as write:
            read.backup(write)
        yield copy


@contextmanager
def _postgres_copy(url: URL) -> Iterator[URL]:
    """Yield the URL of a copy of a Postgres database on the same server, which is dropped at the end."""
    name = f"sluice_drill_{secrets.token_hex(4)}"
    beside = next(database for database in _MAINTENANCE if database != url.database)
    server = engines.engine(url.set(database=beside).render_as_string(hide_password=False))
    quote = server.dialect.identifier_preparer.quote
    try:
        with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            try:
                connection.execute(text(f"CREATE DATABASE {quote(name)} TEMPLATE {quote(str(url.database))}"))
            except DBAPIError as error:
                why = str(error.orig).strip().splitlines()[0]
                raise EndpointError(
                    f"database {url.database} cannot be copied ({why}); end all sessions on it, and use a user with"
                    " CREATEDB who owns it"
                ) from error
            try:
                yield url.set(database=name)
            finally:
                connection.execute(text(f"DROP DATABASE {quote(name)} WITH (FORCE)"))
    finally:
        server.dispose()
