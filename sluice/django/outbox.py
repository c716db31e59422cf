"""The outbox on Django's own connection: an event is committed with the rows of its `atomic()` block, or not at all.

Django has no hook before a commit, so an event gets its number when it is added, and its group's counter stays locked
until the commit: docs/decisions/0021-django-numbers-at-add.md. A savepoint that is rolled back gives the number back.
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
_STATEMENTS_MAX = 64  # compiled ones that are cached


class AtomicOutbox:
    """The outbox of one topic in a database of the project. Any number of threads may share one.

    Args:
        topic: name of the topic (`sluice.declaration.naming.topic_name`), not its ARN.
        using: alias of the database; None is the one to which the project's routers write the outbox.
        event_bytes_max: size of the largest message, as the environment declares it (`Environment.event_bytes_max`).
        notify: whether a waiting relay is told of each commit, on Postgres; see `sluice.messaging.Outbox`.

    Raises:
        ConfigError: `topic` is no name of a FIFO topic, or no topic takes messages of `event_bytes_max` bytes.
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
        """Add events to the outbox; they are published if, and only if, the surrounding `atomic()` block commits.

        The events get their numbers now, and until the commit every other transaction that adds an event of the same
        group waits. So add late in the block, and add the events of several groups in one call, which locks the groups
        in a fixed order. Two transactions that lock two groups in different orders wait for each other; Postgres then
        ends one of them with an `OperationalError` of SQLSTATE 40P01, and nothing of that transaction is committed.

        Args:
            events: those of one group in their order.
            using: alias of the database, for this call only.

        Raises:
            EnvelopeError: a message might be larger than `event_bytes_max`; nothing is written.
            OutboxError: there is no transaction, the tables are missing, or the database would not keep a commit.
            ConfigError: the database is neither Postgres nor SQLite, or its driver is psycopg2.
            django.db.Error: the database failed; roll the transaction back.
        """
        alias = using or self._using or router.db_for_write(_model())
        connection = database(alias)
        if connection.get_autocommit():
            raise OutboxError(
                f"an event is added outside of a transaction of database {alias!r}, allowed is inside"
                f" transaction.atomic(using={alias!r}): its row would be committed without it"
            )
        traced = [event.with_current_trace() for event in events]
        with _explaining_missing_tables(alias):
            self._outbox.write_through(cast("Connection", _Executor(connection)), traced)


def _model() -> Any:
    from sluice.django.models import OutboxMessage  # noqa: PLC0415 (once the apps are loaded)

    return OutboxMessage


class _Executor:
    """Has the part of SQLAlchemy's `Connection` that the outbox needs, on Django's cursor; raises Django's errors.

    https://docs.djangoproject.com/en/5.2/topics/db/sql/#executing-custom-sql-directly,
    https://docs.sqlalchemy.org/en/21/core/internals.html#sqlalchemy.engine.Compiled (read 2026-11-27)
    """

    invalidated = False

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._django_connection, self.dialect = connection, _DIALECTS[connection.vendor]

    @property
    def connection(self) -> Any:
        """Return an object with the driver's connection under the names that SQLAlchemy gives it."""
        driver = self._django_connection.connection
        return SimpleNamespace(driver_connection=driver, dbapi_connection=driver)

    def execute(self, statement: Executable, parameters: Any = None) -> Result[Any]:
        """Execute a statement, once for each element if `parameters` is a sequence, and return its rows."""
        many = isinstance(parameters, Sequence)
        names = tuple((parameters[0] if many else parameters) or ())
        compiled = _compile(cast("ClauseElement", statement), self._django_connection.vendor, names)
        with self._django_connection.cursor() as cursor:
            if many:
                cursor.executemany(str(compiled), [_values(compiled, row) for row in parameters])
            else:
                cursor.execute(str(compiled), _values(compiled, parameters))
            return _result(cursor)

    def exec_driver_sql(self, statement: str) -> Result[Any]:
        """Execute a statement as it is."""
        with self._django_connection.cursor() as cursor:
            cursor.execute(statement)
            return _result(cursor)


def _result(cursor: Any) -> Result[Any]:
    """Return a cursor's rows as a result of SQLAlchemy; empty for a statement without rows."""
    names = [column[0] for column in cursor.description or ()]
    return IteratorResult(SimpleResultMetaData(names), iter(cursor.fetchall() if names else ()))


@lru_cache(maxsize=_STATEMENTS_MAX)
def _compile(statement: ClauseElement, vendor: str, names: Sequence[str]) -> Compiled:
    return statement.compile(dialect=_DIALECTS[vendor], column_keys=names or None)


def _values(compiled: Compiled, parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return compiled.construct_params(parameters or {}) or {}


@contextmanager
def _explaining_missing_tables(alias: str) -> Iterator[None]:
    """Raise an OutboxError that names the command to run, if a statement fails because of missing or old tables."""
    try:
        yield
    except Error as error:
        if not (failures.does_not_fit(error) and "sluice_" in str(error)):
            raise
        raise OutboxError(
            f"the outbox's tables in database {alias!r} are not as this version needs them; run `manage.py migrate"
            f" sluice --database {alias}`"
        ) from error
