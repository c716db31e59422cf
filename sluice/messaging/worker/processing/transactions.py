"""A message's transactions: tried again when they fail, and delayed while the database is away.

Before the handler was called, a message is the cause of a failure only if its data is refused. After that, another
transaction shows whether the database is away for everyone or only this transaction failed.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.messaging.backoff import Backoff
from sluice.messaging.database import connections, engines, failures
from sluice.messaging.database.transactions import (
    BegunTransaction,
    MessageSession,
    MessageSessions,
    TransactionEndedError,
    listen,
)
from sluice.messaging.errors import HoldLostError, OutboxError
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.processing.handler_runner import BEGUN, CALLED, DatabaseFailedError
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.terminal.logger import Logger
from sluice.terminal.printable import printable

_log = Logger()
_TICK_SECONDS = 0.5
_TRIES = 3
"""How often one receive tries a transaction that failed after its handler was called, while other transactions work."""


class TransactionFailedError(Exception):
    """Raised when a message's transaction fails while other transactions of the database work."""


class DatabaseAway(Exception):
    """Raised when the worker stops while the database is away."""


type TakeConnection = Callable[[], None]
"""Waits until one of the lanes' connections is free and takes it, unless one was taken before."""


_NOTHING_TO_SHARE = nullcontext[TakeConnection](lambda: None)


class _Connections:
    """The connections that lanes share. Any number of threads take one each.

    Args:
        count: how many there are; None means one for each lane.
    """

    def __init__(self, count: int | None) -> None:
        self._free = None if count is None else threading.BoundedSemaphore(count)

    def sharing(self, check: Callable[[], None]) -> AbstractContextManager[TakeConnection]:
        """Return a block with a function that takes a connection; the end of the block gives the connection back.

        Args:
            check: called now and then while all are taken; if it raises, the wait ends.
        """
        return _NOTHING_TO_SHARE if self._free is None else self._share(self._free, check)

    @staticmethod
    @contextmanager
    def _share(free: threading.BoundedSemaphore, check: Callable[[], None]) -> Iterator[TakeConnection]:
        is_taken = False

        def take() -> None:
            nonlocal is_taken
            while not is_taken:
                check()
                is_taken = free.acquire(timeout=_TICK_SECONDS)

        try:
            yield take
        finally:
            if is_taken:
                free.release()


class Transactions:
    """Runs transactions for any number of lanes.

    Args:
        connections_max: how many connections the lanes have at once; None means one for each lane.
        give_sign: called before each wait, as a sign of life.
    """

    def __init__(
        self,
        engine: Engine,
        inbox: Inbox,
        *,
        backoff: Backoff,
        wait: Wait,
        rng: random.Random,
        connections_max: int | None,
        give_sign: Callable[[], None],
    ) -> None:
        self._engine, self._inbox, self._backoff, self._wait, self._rng = engine, inbox, backoff, wait, rng
        self._give_sign = give_sign
        connections.leave_standbys(engine)
        self._sessions, self._connections = MessageSessions(engine), _Connections(connections_max)
        listen(engine)  # before other threads execute: SQLAlchemy's lists of listeners must not change during a call
        self.is_database_away = False

    def run[T](self, lease: MessageLease, transact: Callable[[Session], T]) -> T:
        """Run a transaction that has a connection from its beginning, and return its result; see `run_late`."""

        def take_and_transact(session: MessageSession, take_connection: TakeConnection) -> T:
            take_connection()
            return transact(session)

        return self.run_late(lease, take_and_transact)

    def run_late[T](self, lease: MessageLease, transact: Callable[[MessageSession, TakeConnection], T]) -> T:
        """Run a transaction that takes its connection itself, and return its result.

        While the database is away, wait for it, so that no attempt is used up.

        Raises:
            HoldLostError: the database was away for longer than a handler may take, or refused only this transaction
                for longer than SQS lets a message be held; the receive counts as an attempt.
            TransactionFailedError: this transaction failed several times, while another one did not.
            TransactionEndedError: the handler of the last try has committed by itself, and the database tells so only
                now.
            DatabaseAway: the worker stops meanwhile.
        """
        failed_count = own_count = 0
        reason = ""
        unknown: BegunTransaction | None = None
        while not (failed_count and self._wait.is_stopped()):
            try:
                lease.check()
            except HoldLostError as lost:
                if not reason:
                    raise
                raise HoldLostError(f"{lost}, and its attempt counts though the database failed: {reason}") from lost
            info: dict[Any, Any] = {}
            try:
                if unknown is not None and unknown.may_have_committed():
                    raise TransactionEndedError(TransactionEndedError.COMMITTED)
                unknown = None
                with self._connections.sharing(lease.check) as take, self._sessions.open() as session:
                    info = session.info
                    done = transact(session, take)
            except (DBAPIError, OutboxError, DatabaseFailedError) as error:
                failed_count += 1
                unknown = info.get(BEGUN, unknown)
                reason = reason_of(error)
                is_away = isinstance(error, OutboxError) or not self._is_writable()
                is_suspect = self._is_suspect(error, is_away=is_away, is_called=CALLED in info) and unknown is None
                if is_suspect:
                    own_count += 1
                    self._require_another_try(error, own_count, is_away=is_away)
                else:
                    _log.error("the database refused", error=reason, failures=failed_count)
                    if not is_away:  # or nothing is received, and the lease ends once
                        lease.begin_again()
                self._give_sign()
                self._wait.wait(self._backoff.seconds(failed_count, self._rng.random()))
            else:
                self.is_database_away = False
                return done
        raise DatabaseAway

    def is_ready(self) -> bool:
        """Return whether the inbox can be written. The database is queried only if it was away before."""
        if self.is_database_away:
            self.is_database_away = not self._is_writable()
        return not self.is_database_away

    def _is_writable(self) -> bool:
        with self._connections.sharing(self._give_sign) as take_connection:
            take_connection()
            return _is_writable(self._engine, self._inbox)

    def _is_suspect(self, error: Exception, *, is_away: bool, is_called: bool) -> bool:
        """Return whether the message may be the cause of its failed transaction."""
        self.is_database_away = self.is_database_away or is_away
        if is_away:  # a handler's query may crash the server each time, and then the database is away each time
            return is_called and failures.is_lost(error)
        return may_be_a_messages(error, is_called=is_called)

    def _require_another_try(self, error: Exception, tries: int, *, is_away: bool) -> None:
        """Return if another try may help.

        Raises:
            TransactionFailedError: the error would repeat, or has repeated too often.
        """
        is_hopeless = not is_away and (not failures.may_pass(error) or failures.is_of_its_query(error))
        if tries == _TRIES or is_hopeless:
            raise TransactionFailedError(reason_of(error)) from error
        _log.warning("the transaction failed, and is tried again", error=reason_of(error))


def may_be_a_messages(error: Exception, *, is_called: bool) -> bool:
    """Return whether the message may be the cause of its failed transaction, given that other transactions can write.

    Args:
        error: the error of the transaction.
        is_called: whether its handler was called before that.
    """
    return not failures.is_never_a_messages(error) if is_called else failures.is_of_its_data(error)


def is_away(engine: Engine, inbox: Inbox, error: DatabaseFailedError) -> bool:
    """Return whether the database is at fault and not the message: it is full, or other transactions cannot write."""
    return not _is_writable(engine, inbox) or not may_be_a_messages(error, is_called=True)


def _is_writable(engine: Engine, inbox: Inbox) -> bool:
    try:
        with engine.begin() as connection:
            inbox.require_writable(connection)
    except DBAPIError as error:
        _log.error("the database refused", error=reason_of(error))
        if not failures.may_pass(error) or failures.is_only_read(error):
            # A handler may have set a role, a search path or `query_only`; they apply to its own connection only.
            engines.forget_connections(engine)
        return False
    return True


def reason_of(error: Exception) -> str:
    """Return the database's error as one line."""
    found = error.__cause__ if isinstance(error, DatabaseFailedError) and error.__cause__ is not None else error
    return printable(f"{type(found).__name__}: {str(found.orig if isinstance(found, DBAPIError) else found).strip()}")
