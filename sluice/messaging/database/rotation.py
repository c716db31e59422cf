"""Credentials that change while a process runs: each new connection has those that the secret has now.

Open connections go on: Postgres asks for a password only when a connection begins. A secret is read again when it was
read a minute ago, and when the database refuses what it held, once for all threads.

A rotation first changes the password in the database and then makes it the secret's current one. In between neither the
old nor the secret's is right, so a refusal counts as a database that is away, for five minutes. AWS:
https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotating-secrets_strategies.html (read 2026-11-23).

A user of RDS who logs in with tokens of IAM has a new one for each connection: a token is good for 15 minutes, and what
it opened stays open. AWS advises tokens for fewer than 200 new connections a second, of all processes together, so each
opens a few. AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.IAMDBAuth.html
(read 2026-11-26).
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import psycopg
from botocore.exceptions import ClientError
from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import Dialect, make_url

from sluice import sdk
from sluice.clock import Clock, SystemClock
from sluice.errors import ConfigError
from sluice.messaging.database import connections, credentials, engines
from sluice.terminal.logger import Logger

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_log = Logger()
SECRET_VARIABLE = "SLUICE_DATABASE_SECRET_ARN"  # noqa: S105 (its name)
OWNER_VARIABLE = "SLUICE_DATABASE_SECRET"
"""The environment variable that holds the secret itself, for the deployment step that makes the tables."""
NO_DATABASE = f"no database is named: give --dsn, or set SLUICE_DSN, {SECRET_VARIABLE} or {credentials.USER_VARIABLE}"
FRESH_SECONDS = 60.0
REPEAT_SECONDS = 5.0
"""The pause between two reads of a secret whose credentials the database refuses."""
GRACE_SECONDS = 300.0
CONNECTIONS_PER_SECOND = 10.0
"""New connections a second of a process that logs in with tokens."""


def database_engine(region: str, dsn: str | None = None) -> Engine:
    """Return a producer's engine on the database of a URL, or of the variables that the stacks give their tasks.

    `SLUICE_DATABASE_USER` names a user who logs in with tokens of IAM, `SLUICE_DATABASE_SECRET_ARN` a secret. Each
    new connection uses a new token, or the credentials that the secret has at that time. `SLUICE_DATABASE_HOST`,
    `SLUICE_DATABASE_PORT` and `SLUICE_DATABASE_NAME` hold what a token and a secret of RDS do not have.
    Postgres keeps the plans of statements that are repeated (`connections.keep_plans`).

    Raises:
        ConfigError: no database is named, or its URL or secret is not valid.
        BotoCoreError, ClientError: the secret cannot be read.
    """
    engine = runtime_engine(region, dsn)
    if engine.dialect.name == "postgresql":
        event.listen(engine, "connect", connections.keep_plans)
    return engine


def runtime_engine(region: str, dsn: str | None = None) -> Engine:
    """Return the engine of a relay, a worker or a command, for which Postgres keeps no plan of any statement.

    Args:
        region: the region of the secret or the database.
        dsn: the URL; None takes it from the environment variables: the secret itself, else the user, else the ARN.

    Raises:
        ConfigError: no database is named, or its URL or secret is not valid.
        BotoCoreError, ClientError: the secret cannot be read.
    """
    source = _source(region, dsn)
    return engines.engine(source) if isinstance(source, str) else _source_engine(source)


def async_database_engine(region: str, dsn: str | None = None) -> "AsyncEngine":
    """Return a producer's engine for asyncio: on Postgres with psycopg, on SQLite with aiosqlite.

    The database is named as for `database_engine`. The pool is SQLAlchemy's own, of 15 connections at most. A secret
    is read in a thread, so that the event loop goes on. It needs `greenlet` (`pip install 'sqlalchemy[asyncio]'`).
    https://docs.sqlalchemy.org/en/21/orm/extensions/asyncio.html#sqlalchemy.ext.asyncio.create_async_engine
    (`async_creator`; read 2026-11-27)

    Raises:
        ConfigError: no database is named, or its URL or secret is not valid.
        BotoCoreError, ClientError: the secret cannot be read.
    """
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 (needs greenlet)

    source = _source(region, dsn)
    url = engines.engine(source).url if isinstance(source, str) else source.url  # which refuses what cannot be right
    if url.get_backend_name() == "sqlite":
        engine = create_async_engine(url.set(drivername="sqlite+aiosqlite"), hide_parameters=True)
        engines.make_durable(engine.sync_engine)
        return engine
    connect = partial(_open_async, url) if isinstance(source, str) else source.connect_async
    return create_async_engine(url.set(drivername="postgresql+psycopg"), async_creator=connect, hide_parameters=True)


def _source(region: str, dsn: str | None) -> "str | _Source":
    """Return a database's URL that never changes, or the source from which a changing URL is read again."""
    if dsn:
        return dsn
    variables = os.environ
    if secret := variables.get(OWNER_VARIABLE):
        return credentials.secret_url(secret, OWNER_VARIABLE, variables)
    if user := variables.get(credentials.USER_VARIABLE):
        sign = boto3.client("rds", region_name=region).generate_db_auth_token
        return _token_source(partial(credentials.token_url, sign, user, variables), SystemClock())
    secret_arn = variables.get(SECRET_VARIABLE)
    if secret_arn is None:
        raise ConfigError(NO_DATABASE)
    return _Source(partial(credentials.database_url, credentials.client(region), secret_arn, variables), SystemClock())


def is_named() -> bool:
    """Return whether a variable names a database, for which a region is needed."""
    return any(name in os.environ for name in (OWNER_VARIABLE, credentials.USER_VARIABLE, SECRET_VARIABLE))


def token_engine(read: Callable[[], str], clock: Clock) -> Engine:
    """Return an engine on a Postgres whose users log in with tokens.

    It opens `CONNECTIONS_PER_SECOND` at most; further callers wait.

    Args:
        read: returns the URL with a new token in it; called for each connection.
        clock: measures the pauses between connections.

    Raises:
        ConfigError, BotoCoreError: `read` raises it at first. If it fails later, the last URL is used again.
    """
    return _source_engine(_token_source(read, clock))


def rotating_engine(read: Callable[[], str], clock: Clock) -> Engine:
    """Return an engine on a Postgres whose password changes.

    Args:
        read: returns the URL from a secret; called again after a minute, and when the database refuses the password.
        clock: measures the age of the URL.

    Raises:
        ConfigError: the secret holds no URL.
        BotoCoreError, ClientError: the secret cannot be read at first. If it fails later, the last URL is used again.
    """
    return _source_engine(_Source(read, clock))


def _token_source(read: Callable[[], str], clock: Clock) -> "_Source":
    return _Source(read, clock, fresh_seconds=0, pause_seconds=1 / CONNECTIONS_PER_SECOND)


def _source_engine(source: "_Source") -> Engine:
    return engines.engine(source.url.render_as_string(hide_password=False), connect=source.connect)


class _Source:
    """A database's URL, read again when it is old or its credentials are refused. Any number of threads use it.

    Args:
        read: returns the URL.
        fresh_seconds: how long a URL is used before it is read again; 0 reads it for each connection.
        pause_seconds: the shortest time between two connections.
    """

    def __init__(
        self,
        read: Callable[[], str],
        clock: Clock,
        *,
        fresh_seconds: float = FRESH_SECONDS,
        pause_seconds: float = 0.0,
    ) -> None:
        self._read, self._clock, self._fresh_seconds = read, clock, fresh_seconds
        self._pause_seconds, self._next_at = pause_seconds, clock.monotonic()
        self._reading, self._counting = threading.Lock(), threading.Lock()
        self.url, self._read_at = make_url(read()), clock.monotonic()
        self._refused_since: float | None = None
        self._refused_at = 0.0

    def current(self) -> URL:
        """Return the URL; if it is old, read it again first, unless another thread is reading it."""
        if self._age_seconds() >= self._fresh_seconds and self._reading.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._reading.release()
        return self.url

    def connect(self, dialect: Dialect, _: object, __: object, named: Mapping[str, Any]) -> Any:
        """Return a new connection, for SQLAlchemy's `do_connect`.

        If the database refuses the credentials and the secret has others by now, these are tried once.

        Raises:
            RefusedForNow: the secret's current credentials are refused, and a rotation may be under way.
        """
        self._clock.sleep(self._take_turn())
        url = self.current()
        try:
            connection = _open(dialect, url, named)
        except psycopg.OperationalError as error:
            if not engines.is_refused(error):
                raise
            url, refused = self._url_after_refusal(url), url
            try:
                if url == refused:
                    raise
                connection = _open(dialect, url, named)
            except psycopg.OperationalError as last:
                self._require_no_rotation(last)
                raise
        self._refused_since = None
        return connection

    async def connect_async(self) -> "psycopg.AsyncConnection[Any]":
        """Return a new connection like `connect`, without blocking the event loop.

        Raises:
            RefusedForNow: the secret's current credentials are refused, and a rotation may be under way.
        """
        await asyncio.sleep(self._take_turn())
        url = await asyncio.to_thread(self.current)
        try:
            connection = await _open_async(url)
        except psycopg.OperationalError as error:
            if not engines.is_refused(error):
                raise
            url, refused = await asyncio.to_thread(self._url_after_refusal, url), url
            try:
                if url == refused:
                    raise
                connection = await _open_async(url)
            except psycopg.OperationalError as last:
                self._require_no_rotation(last)
                raise
        self._refused_since = None
        return connection

    def _require_no_rotation(self, error: psycopg.OperationalError) -> None:
        """Raise if the error is a refusal of the credentials and a rotation may be under way.

        Raises:
            RefusedForNow: a rotation may be under way.
        """
        if engines.is_refused(error) and self._may_be_rotating():
            reason = engines.refusal(error)
            raise engines.RefusedForNow(f"the database refuses the credentials for now ({reason})") from error

    def _take_turn(self) -> float:
        """Take the next turn to connect, and return the seconds until then."""
        with self._counting:
            now = self._clock.monotonic()
            begins_at = max(self._next_at, now)
            self._next_at = begins_at + self._pause_seconds
        return begins_at - now

    def _url_after_refusal(self, refused: URL) -> URL:
        """Return the URL after its credentials were refused: read again, unless another thread just did."""
        with self._reading:
            if self.url == refused and self._age_seconds() >= REPEAT_SECONDS:
                self._renew()
            return self.url

    def _renew(self) -> None:
        """Read the URL from its secret, or with a new token; if that fails, keep the one that was read last."""
        try:
            url = make_url(self._read())
        except (*sdk.UNANSWERED, ClientError, ConfigError) as error:
            _log.warning("the database's credentials were not read, the last ones are kept", error=str(error))
        else:
            if url != self.url and self._fresh_seconds:  # 0 means tokens, which differ for each connection
                _log.info("the database's credentials have changed")
            self.url = url
        # Set after a failure as well: otherwise every connection would repeat a read that fails, and wait for it.
        self._read_at = self._clock.monotonic()

    def _age_seconds(self) -> float:
        return self._clock.monotonic() - self._read_at

    def _may_be_rotating(self) -> bool:
        """Note a refusal; return whether the series of refusals began less than five minutes ago."""
        now = self._clock.monotonic()
        with self._counting:
            if self._refused_since is None or now - self._refused_at > GRACE_SECONDS:
                self._refused_since = now
            self._refused_at = now
            return now - self._refused_since < GRACE_SECONDS


def _open(dialect: Dialect, url: URL, named: Mapping[str, Any]) -> Any:
    arguments, fresh = dialect.create_connect_args(url)
    return connections.open_postgres(dialect, None, arguments, {**named, **fresh})


async def _open_async(url: URL) -> "psycopg.AsyncConnection[Any]":
    arguments, named = url.set(drivername="postgresql+psycopg").get_dialect()().create_connect_args(url)
    return await connections.open_postgres_async(arguments, named)
