"""Handlers on Django's ORM: each runs inside `atomic()`, in the transaction of the inbox, which the worker commits.

    @orm_handler("order.placed")
    def invoice(event, context):
        Invoice.objects.create(order=event.group, cents=event.data["total_cents"])

While a handler runs, `connections[alias]` of its thread is the worker's connection, guarded as for any other handler
(`sluice.messaging.database.connections`); for each message it is a new object of the project's own backend. It is in
a transaction that Django neither began nor ends: `transaction.commit()`, `set_autocommit` and `atomic(durable=True)`
are refused by Django, everything else by the worker.

Django: https://docs.djangoproject.com/en/5.2/topics/db/transactions/#managing-autocommit (with autocommit off,
`atomic()` commits nothing), https://docs.djangoproject.com/en/5.2/ref/databases/#subclassing-the-built-in-database-backends
(read 2026-11-27)
"""

import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from typing import Any, cast

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import event as hooks
from sqlalchemy.orm import Session

from sluice.django.databases import JoinedConnection, PostgresConnection, SqliteConnection, SqliteCursor
from sluice.errors import ConfigError
from sluice.messaging import Context, Outcome
from sluice.messaging import handler as session_handler
from sluice.messaging.database.transactions import ENDS_TRANSACTION, TransactionEndedError
from sluice.messaging.errors import PermanentError
from sluice.messaging.handlers import Ack, Handler
from sluice.terminal.logger import Logger

_log = Logger()
_REPLACED = (
    "the handler put another connection in the place of Django's and may have committed by it, so it is not called"
    " again by itself, or its effect could be there twice; look at the effect, then redrive, retry or skip the message"
)

type DjangoHandler = Callable[[Any, Context], Outcome | None]
"""As a handler of `sluice.messaging`, without a session."""


def orm_handler(*types: str | type, using: str = DEFAULT_DB_ALIAS) -> Callable[[DjangoHandler], Handler]:
    """Mark a function as the handler of events of these types; `*` is every type without one of its own.

    Functions that it gives to `transaction.on_commit` are called when the worker has committed, and the message is
    deleted after them.

    Args:
        types: types of events, or classes under `@event_type`: a handler of a class gets the data as an instance of it,
            in place of the event.
        using: alias of the database that has the inbox: that of `manage.py sluice_worker --database`.

    Raises:
        ConfigError: as `sluice.messaging.handler`; or the function is `async def`, for which Django has no
            transactions (https://docs.djangoproject.com/en/5.2/topics/async/#queries-the-orm, read 2026-11-27).
    """

    def mark(function: DjangoHandler) -> Handler:
        if inspect.iscoroutinefunction(function):
            raise ConfigError(
                f"the handler {function.__qualname__} is `async def`, allowed is a function: Django has no transactions"
                " in asynchronous code; call asgiref.sync.async_to_sync inside it"
            )
        try:
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise ConfigError(
                f"the handler {function.__qualname__} takes {inspect.signature(function)}, allowed is what (event,"
                " context) can be given to"
            ) from error

        @wraps(function)
        def handle(session: Session, event: Any, context: Context) -> Outcome | None:
            return _handle(session, using, partial(function, event, context))

        del handle.__wrapped__  # it takes a session, and the function does not
        marked: Handler = cast("Any", session_handler)(*types)(handle)
        return marked

    return mark


def _handle(session: Session, alias: str, call: Callable[[], Outcome | None]) -> Outcome | None:
    driver: Any = session.connection().connection.driver_connection
    if isinstance(driver, JoinedConnection) and driver.alias == alias:
        with _inside_atomic(alias) as found:  # of a test: Django's own connection
            return _call(found, call)
    if not isinstance(driver, PostgresConnection | SqliteConnection) or driver.alias != alias:
        raise ConfigError(
            f"the handler is for Django's database {alias!r}, and the worker's is another; start it by `manage.py"
            f" sluice_worker --database {alias}`"
        )
    try:
        with _loan(alias, driver) as found:
            outcome = _call(found, call)
        if found.run_on_commit:
            hooks.listen(session, "after_commit", lambda _: _call_on_commit(found), once=True)
        return outcome
    finally:
        connections.close_all()  # what else it opened in this thread


def _call(found: BaseDatabaseWrapper, call: Callable[[], Outcome | None]) -> Outcome | None:
    blocks = len(found.savepoint_ids)
    outcome = call()
    if isinstance(outcome, Ack | None):
        if found.get_rollback():
            raise TransactionEndedError(TransactionEndedError.FAILED)
        if len(found.savepoint_ids) != blocks:
            raise TransactionEndedError("the handler left an atomic() block open, allowed is to leave it")
    return outcome


def _call_on_commit(found: BaseDatabaseWrapper) -> None:
    try:
        found.run_and_clear_commit_hooks()
    except Exception:
        _log.exception("a function of transaction.on_commit failed, after the commit")
    finally:
        connections.close_all()


@contextmanager
def _loan(alias: str, driver: Any) -> Iterator[BaseDatabaseWrapper]:
    """Let Django's ORM use a worker's connection in this thread, inside `atomic()`."""
    own = connections[alias]
    applied = ("assume_role", "isolation_level", "pool")  # when it was opened
    options = {name: value for name, value in own.settings_dict["OPTIONS"].items() if name not in applied}
    settings = {**own.settings_dict, "AUTOCOMMIT": False, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False}
    lent = _lent_class(cast("Hashable", type(own)))({**settings, "OPTIONS": options}, alias)
    lent.driver = driver
    connections[alias] = lent
    try:
        with lent.execute_wrapper(_refuse_end), _inside_atomic(alias):
            yield lent
    finally:
        connections[alias] = own


@contextmanager
def _inside_atomic(alias: str) -> Iterator[BaseDatabaseWrapper]:
    """Let a handler run inside `atomic()`, which ends with the connection that it began with: no other is put in place.

    Raises:
        PermanentError: the handler has put another there, by which it may have committed; the worker's is closed.
    """
    found, is_replaced = connections[alias], False
    try:
        with transaction.atomic(using=alias, savepoint=False):
            driver = found.connection
            try:
                yield found
            finally:
                is_replaced = _put_back(alias, found, driver)
    finally:
        if is_replaced:
            raise PermanentError(_REPLACED)


def _put_back(alias: str, found: BaseDatabaseWrapper, driver: Any) -> bool:
    """Close what a handler has put in the place of a connection, or of its driver's; return whether it has."""
    others: list[Any] = [connections[alias]] if connections[alias] is not found else []
    others += [found.connection] if found.connection is not driver else []
    connections[alias], found.connection = found, driver
    if others and isinstance(driver, PostgresConnection | SqliteConnection):  # and not a test's
        others.append(driver)
    for other in others:
        with suppress(Exception):  # it may be anything
            other.close()
    return bool(others)


def _refuse_end(execute: Callable[..., Any], statement: Any, *given: Any) -> Any:
    """Execute a statement, unless it would end the transaction.

    https://docs.djangoproject.com/en/5.2/topics/db/instrumentation/ (read 2026-11-27)
    """
    if isinstance(statement, str) and ENDS_TRANSACTION.match(statement):
        raise TransactionEndedError(TransactionEndedError.ENDED)
    return execute(statement, *given)


@cache
def _lent_class(backend: Hashable) -> Any:
    class LentConnection(cast("Any", backend)):  # type: ignore[misc]
        """A connection of the project's backend on a worker's connection, in whose transaction it stays."""

        driver: Any = None

        def get_new_connection(self, _: Any) -> Any:
            """Return the worker's."""
            return self.driver

        def set_autocommit(self, autocommit: bool, *_: Any, **__: Any) -> None:  # noqa: FBT001
            """Stay in the transaction.

            Raises:
                TransactionEndedError: it is to be ended.
            """
            if autocommit:
                raise TransactionEndedError(TransactionEndedError.ENDED)
            self.autocommit = False

        def create_cursor(self, name: Any = None) -> Any:
            """Return a cursor that keeps to the worker's rules."""
            if self.vendor == "sqlite":
                return self.driver.cursor(SqliteCursor)
            return super().create_cursor(name)

    return LentConnection
