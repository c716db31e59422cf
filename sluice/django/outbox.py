"""The outbox on Django's own connection: an event is committed with the rows of its `atomic()` block, or not at all.

Django tells nobody before a commit, so an event is numbered when it is added, and its group's counter stays locked
until the commit: docs/decisions/0021-django-numbers-at-add.md. A savepoint that is rolled back takes the number along.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

from django.db import Error, router
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import Connection, Executable
from sqlalchemy.engine import Compiled, IteratorResult, Result, make_url
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.sql.expression import ClauseElement

from sluice import limits
from sluice.django.databases import database
from sluice.messaging import Event
from sluice.messaging import Outbox as SessionOutbox
from sluice.messaging.database import failures
from sluice.messaging.errors import OutboxError

_DIALECTS = {
    vendor: cast("Any", make_url(url).get_dialect())(paramstyle="pyformat")
    for vendor, url in (("postgresql", "postgresql+psycopg://"), ("sqlite", "sqlite://"))
}
_STATEMENTS_MAX = 64


class AtomicOutbox:
    """The outbox of one topic in a database of the project. Any number of threads may share one.

    Args:
        topic: name of the topic (`sluice.declaration.naming.topic_name`).
        using: alias of the database; None is where the project's routers write the outbox, else `default`.
        event_bytes_max: size of the largest message, as the environment declares it (`Environment.event_bytes_max`).
        notify: tell a waiting relay of each commit, on Postgres; see `sluice.messaging.Outbox`.

    Raises:
        ConfigError: that is no name of a FIFO topic; an ARN is none. Or no topic takes messages of that size.
    """

    def __init__(
        self,
        topic: str,
        *,
        using: str | None = None,
        event_bytes_max: int = limits.PUBLISH_BYTES_MAX,
        notify: bool = False,
    ) -> None:
        self._outbox = SessionOutbox(topic, event_bytes_max=event_bytes_max, notify=notify)
        self.topic, self._using = topic, using

    def add(self, *events: Event, using: str | None = None) -> None:
        """Publish events if, and only if, the `atomic()` block around this commits.

        They are numbered now. From now until the commit, who adds an event of one of their groups waits; so add late,
        and the events of several groups in one call, which takes the groups in their order. Transactions that take two
        groups in different orders end in a deadlock, which Postgres ends: one of them fails with an `OperationalError`
        of SQLSTATE 40P01, and nothing of it is committed.

        Args:
            events: for one group in the order given.
            using: alias of the database, for this call.

        Raises:
            EnvelopeError: a message might be larger than `event_bytes_max`; nothing is written.
            OutboxError: there is no transaction, the tables are missing, or the database would not keep a commit.
            ConfigError: the database is neither Postgres nor SQLite, or its driver is psycopg2.
            django.db.Error: the database does not do it; the transaction is to be rolled back.
        """
        alias = using or self._using or router.db_for_write(_model())
        found = database(alias)
        if found.get_autocommit():
            raise OutboxError(
                f"an event is added outside of a transaction of database {alias!r}, allowed is inside"
                f" transaction.atomic(using={alias!r}): its row would be committed without it"
            )
        traced = [event.with_current_trace() for event in events]
        with _explaining_missing_tables(alias):
            self._outbox.write_through(cast("Connection", _Executor(found)), traced)


def _model() -> Any:
    from sluice.django.models import OutboxMessage  # noqa: PLC0415 (once the apps are loaded)

    return OutboxMessage


class _Executor:
    """The part of SQLAlchemy's `Connection` that writing events needs, on Django's cursor, with its errors.

    https://docs.djangoproject.com/en/5.2/topics/db/sql/#executing-custom-sql-directly,
    https://docs.sqlalchemy.org/en/21/core/internals.html#sqlalchemy.engine.Compiled (read 2026-11-27)
    """

    invalidated = False

    def __init__(self, found: BaseDatabaseWrapper) -> None:
        self._found, self.dialect = found, _DIALECTS[found.vendor]

    @property
    def connection(self) -> Any:
        """Return what has the driver's connection."""
        driver = self._found.connection
        return SimpleNamespace(driver_connection=driver, dbapi_connection=driver)

    def execute(self, statement: Executable, parameters: Any = None) -> Result[Any]:
        """Execute a statement, once for each of several parameters, and return its rows."""
        many = isinstance(parameters, Sequence)
        names = tuple((parameters[0] if many else parameters) or ())
        compiled = _compile(cast("ClauseElement", statement), self._found.vendor, names)
        with self._found.cursor() as cursor:
            if many:
                cursor.executemany(str(compiled), [_values(compiled, row) for row in parameters])
            else:
                cursor.execute(str(compiled), _values(compiled, parameters))
            return _result(cursor)

    def exec_driver_sql(self, statement: str) -> Result[Any]:
        """Execute a statement as it is."""
        with self._found.cursor() as cursor:
            cursor.execute(statement)
            return _result(cursor)


def _result(cursor: Any) -> Result[Any]:
    """Return the rows that a cursor has."""
    names = [column[0] for column in cursor.description or ()]
    return IteratorResult(SimpleResultMetaData(names), iter(cursor.fetchall() if names else ()))


@lru_cache(maxsize=_STATEMENTS_MAX)
def _compile(statement: ClauseElement, vendor: str, names: Sequence[str]) -> Compiled:
    return statement.compile(dialect=_DIALECTS[vendor], column_keys=names or None)


def _values(compiled: Compiled, parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return compiled.construct_params(parameters or {}) or {}


@contextmanager
def _explaining_missing_tables(alias: str) -> Iterator[None]:
    try:
        yield
    except Error as error:
        if not (failures.does_not_fit(error) and "sluice_" in str(error)):
            raise
        raise OutboxError(
            f"the outbox's tables in database {alias!r} are not as this version needs them; run `manage.py migrate"
            f" sluice --database {alias}`"
        ) from error
