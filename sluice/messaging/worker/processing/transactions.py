"""A message's transactions: tried again when they fail, and waited for while the database is away.

Whether the database is away for everyone, or only this transaction failed, another transaction tells.
"""

import random
from collections.abc import Callable

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines
from sluice.messaging.database.transactions import listen
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Holding
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.waiting import Wait
from sluice.terminal.logger import Logger
from sluice.terminal.printable import printable

_log = Logger()
_TRIES = 3
"""How often a transaction that fails by itself is tried in one receive."""


class TransactionFailed(Exception):
    """Raised when a message's transaction fails, and the database does not do so for others."""


class DatabaseAway(Exception):
    """Raised when the worker stops while the database is away."""


class Transactions:
    """Runs transactions for any number of lanes."""

    def __init__(self, engine: Engine, inbox: Inbox, *, backoff: Backoff, wait: Wait, rng: random.Random) -> None:
        self._engine, self._inbox, self._backoff, self._wait, self._rng = engine, inbox, backoff, wait, rng
        listen(engine)  # while no other thread executes: what SQLAlchemy calls may not grow meanwhile
        self.is_database_away = False

    def run[T](self, lease: Holding, transact: Callable[[Session], T]) -> T:
        """Return what a transaction returns; while the database is away, wait for it, so that no attempt is used up.

        Raises:
            HoldLost: it was away for longer than the message can be held.
            TransactionFailed: this transaction failed, again and again, while another one did not.
            DatabaseAway: the worker stops meanwhile.
        """
        failures = own_failures = 0
        while not (failures and self._wait.is_stopped()):
            lease.check()
            try:
                with Session(self._engine) as session:
                    done = transact(session)
            except (DBAPIError, OutboxError) as error:
                failures += 1
                own_failures += self._failed_alone(error, own_failures + 1, failures)
                self._wait.wait(self._backoff.seconds(failures, self._rng.random()))
            else:
                self.is_database_away = False
                return done
        raise DatabaseAway

    def is_ready(self) -> bool:
        """Return whether the database lets the inbox be written; asked only after it did not."""
        if self.is_database_away:
            self.is_database_away = not _is_writable(self._engine, self._inbox)
        return not self.is_database_away

    def _failed_alone(self, error: DBAPIError | OutboxError, tries: int, failures: int) -> bool:
        """Return whether only this transaction failed, and may be tried again.

        Raises:
            TransactionFailed: it would fail again, or has too often.
        """
        if not isinstance(error, DBAPIError) or is_away(self._engine, self._inbox, error):
            self.is_database_away = True
            _log.error("the database refused", error=_reason(error), failures=failures)
            return False
        if tries == _TRIES or not engines.may_pass(error):
            raise TransactionFailed(_reason(error)) from error
        _log.warning("the transaction failed, and is tried again", error=_reason(error))
        return True


def is_away(engine: Engine, inbox: Inbox, error: DBAPIError) -> bool:
    """Return whether the database, which refused one transaction, does not let another one write the inbox either."""
    if engines.is_only_read(error):
        engines.forget_connections(engine)
    return not _is_writable(engine, inbox)


def _is_writable(engine: Engine, inbox: Inbox) -> bool:
    try:
        with engine.begin() as connection:
            inbox.require_writable(connection)
    except DBAPIError as error:
        _log.error("the database refused", error=_reason(error))
        if not engines.may_pass(error):
            # A handler may have set a role, a search path or `query_only`, which stay with the connection it had.
            engines.forget_connections(engine)
        return False
    return True


def _reason(error: DBAPIError | OutboxError) -> str:
    """Return what the database says, as a line."""
    return printable(f"{type(error).__name__}: {str(error.orig if isinstance(error, DBAPIError) else error).strip()}")
