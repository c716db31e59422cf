"""Handlers that use Django's ORM: each runs inside `atomic()`, in the inbox's transaction, which the worker commits.

    @orm_handler("order.placed")
    def invoice(event, context):
        Invoice.objects.create(order=event.group, cents=event.data["total_cents"])

While a handler runs, `connections[alias]` of its thread is the worker's connection, guarded as for any other handler
(`sluice.messaging.database.connections`); for each message it is a new object of the project's own backend. Django
neither begins nor ends its transaction: Django refuses `transaction.commit()`, `set_autocommit` and
`atomic(durable=True)`, and the worker refuses every other way to end the transaction.

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
_REPLACED_TEXT = (
    "the handler put another connection in the place of Django's and may have committed by it, so it is not called"
    " again by itself, or its effect could be there twice; look at the effect, then redrive, retry or skip the message"
)

type DjangoHandler = Callable[[Any, Context], Outcome | None]
"""A handler that takes (event, context), and no session."""


def orm_handler(*types: str | type, using: str = DEFAULT_DB_ALIAS) -> Callable[[DjangoHandler], Handler]:
    """Mark a function as the handler of events of these types; `*` means every type without a handler of its own.

    When the worker has committed, it calls the functions that the handler gave to `transaction.on_commit`, and then
    deletes the message.

    Args:
        types: types of events, or classes under `@event_type`: a handler of a class gets the data as an instance of it,
            instead of the event.
        using: alias of the database with the inbox, as `manage.py sluice_worker --database` has it.

    Raises:
        ConfigError: the types are none that `sluice.messaging.handler` takes; or the function is `async def`, for which
            Django has no transactions (https://docs.djangoproject.com/en/5.2/topics/async/#queries-the-orm, read
            2026-11-27).
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

        del handle.__wrapped__  # `handle` takes a session, which the wrapped function's signature has not
        marked: Handler = cast("Any", session_handler)(*types)(handle)
        return marked

    return mark


def _handle(session: Session, alias: str, call: Callable[[], Outcome | None]) -> Outcome | None:
    """Call a handler while Django's ORM uses the connection of the worker's session, and return its outcome.

    Raises:
        ConfigError: the worker's database is not the one with this alias.
    """
    driver: Any = session.connection().connection.driver_connection
    if isinstance(driver, JoinedConnection) and driver.alias == alias:
        with _inside_atomic(alias) as connection:  # a test's harness works on Django's own connection
            return _call(connection, call)
    if not isinstance(driver, PostgresConnection | SqliteConnection) or driver.alias != alias:
        raise ConfigError(
            f"the handler is for Django's database {alias!r}, and the worker's is another; start it by `manage.py"
            f" sluice_worker --database {alias}`"
        )
    try:
        with _loan(alias, driver) as connection:
            outcome = _call(connection, call)
        if connection.run_on_commit:
            hooks.listen(session, "after_commit", lambda _: _call_on_commit(connection), once=True)
        return outcome
    finally:
        connections.close_all()  # other connections that the handler opened in this thread


def _call(connection: BaseDatabaseWrapper, call: Callable[[], Outcome | None]) -> Outcome | None:
    """Call a handler and return its outcome.

    Raises:
        TransactionEndedError: the handler succeeded in a failed transaction, or left an `atomic()` block open.
    """
    blocks_before = len(connection.savepoint_ids)
    outcome = call()
    if isinstance(outcome, Ack | None):
        if connection.get_rollback():
            raise TransactionEndedError(TransactionEndedError.FAILED)
        if len(connection.savepoint_ids) != blocks_before:
            raise TransactionEndedError("the handler left an atomic() block open, allowed is to leave it")
    return outcome


def _call_on_commit(connection: BaseDatabaseWrapper) -> None:
    """Call the functions of `transaction.on_commit`; one that raises is logged, because the commit has happened."""
    try:
        connection.run_and_clear_commit_hooks()
    except Exception:
        _log.exception("a function of transaction.on_commit failed, after the commit")
    finally:
        connections.close_all()


@contextmanager
def _loan(alias: str, driver: Any) -> Iterator[BaseDatabaseWrapper]:
    """Let Django's ORM use a worker's connection in this thread, inside `atomic()`."""
    djangos = connections[alias]
    applied_at_open = ("assume_role", "isolation_level", "pool")  # Django would apply them a second time
    options = {name: value for name, value in djangos.settings_dict["OPTIONS"].items() if name not in applied_at_open}
    settings = {**djangos.settings_dict, "AUTOCOMMIT": False, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False}
    lent = _lent_class(cast("Hashable", type(djangos)))({**settings, "OPTIONS": options}, alias)
    lent.driver = driver
    connections[alias] = lent
    try:
        with lent.execute_wrapper(_refuse_end), _inside_atomic(alias):
            yield lent
    finally:
        connections[alias] = djangos


@contextmanager
def _inside_atomic(alias: str) -> Iterator[BaseDatabaseWrapper]:
    """Yield the connection of an alias inside `atomic()`, and leave the block with the same connection.

    Raises:
        PermanentError: the handler replaced the connection, and may have committed with the other one; the worker's
            connection is closed.
    """
    connection, is_replaced = connections[alias], False
    try:
        with transaction.atomic(using=alias, savepoint=False):
            driver = connection.connection
            try:
                yield connection
            finally:
                is_replaced = _restore_connection(alias, connection, driver)
    finally:
        if is_replaced:
            raise PermanentError(_REPLACED_TEXT)


def _restore_connection(alias: str, connection: BaseDatabaseWrapper, driver: Any) -> bool:
    """Restore an alias's connection and its driver's; return whether a handler had replaced one of them.

    If so, close those that the handler put in their place, and the worker's own: its transaction is not to be trusted.
    """
    to_close: list[Any] = [connections[alias]] if connections[alias] is not connection else []
    to_close += [connection.connection] if connection.connection is not driver else []
    connections[alias], connection.connection = connection, driver
    is_replaced = bool(to_close)
    if is_replaced and isinstance(driver, PostgresConnection | SqliteConnection):  # a test's own stays open
        to_close.append(driver)
    for each in to_close:
        with suppress(Exception):  # a handler may have put any object there
            each.close()
    return is_replaced


def _refuse_end(execute: Callable[..., Any], statement: Any, *arguments: Any) -> Any:
    """Execute a statement, unless it would end the transaction.

    https://docs.djangoproject.com/en/5.2/topics/db/instrumentation/ (read 2026-11-27)
    """
    if isinstance(statement, str) and ENDS_TRANSACTION.match(statement):
        raise TransactionEndedError(TransactionEndedError.ENDED)
    return execute(statement, *arguments)


@cache
def _lent_class(backend: Hashable) -> Any:
    """Return a subclass of a Django backend's connection class, whose connection is a worker's."""

    class LentConnection(cast("Any", backend)):  # type: ignore[misc]
        """A connection of the project's backend that uses a worker's connection, and never ends its transaction."""

        driver: Any = None

        def get_new_connection(self, _: Any) -> Any:
            """Return the worker's connection instead of a new one."""
            return self.driver

        def set_autocommit(self, autocommit: bool, *_: Any, **__: Any) -> None:  # noqa: FBT001
            """Record that autocommit is off.

            Raises:
                TransactionEndedError: Django would turn autocommit on, which ends the transaction.
            """
            if autocommit:
                raise TransactionEndedError(TransactionEndedError.ENDED)
            self.autocommit = False

        def create_cursor(self, name: Any = None) -> Any:
            """Return a cursor that enforces the worker's rules."""
            if self.vendor == "sqlite":
                return self.driver.cursor(SqliteCursor)
            return super().create_cursor(name)

    return LentConnection
