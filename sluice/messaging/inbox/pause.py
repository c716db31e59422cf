"""The pause of a consumer: an operator begins and ends it, and the consumer's workers look at it every few seconds.

A worker of a paused consumer handles what it has received, and receives nothing more. It looks before its first
receive, so a worker that starts during a pause receives nothing at all.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from sqlalchemy import Connection, Engine, delete, select
from sqlalchemy.exc import DBAPIError

from sluice.clock import Clock, utc
from sluice.limits import WAIT_SECONDS_MAX
from sluice.messaging.database import engines
from sluice.messaging.database.audit import Operator
from sluice.messaging.database.server_settings import DURABLE
from sluice.messaging.errors import DeadLetterError, OutboxError
from sluice.messaging.inbox.tables import audit, pauses
from sluice.terminal.logger import Logger
from sluice.terminal.printable import printable

_log = Logger()
LOOK_SECONDS = 2.0
"""Seconds after which the thread that looks for parked groups looks at the pause again."""
RELEASE_SECONDS = LOOK_SECONDS + WAIT_SECONDS_MAX
"""Seconds after which what is released comes into no poll that began before the pause was seen."""
_LOOK_SECONDS_MAX = 10.0  # after these a lane looks itself: that thread waits, or there is none, as in a test
_REASON_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The pause of a consumer: since when, microseconds UTC, by whom and why."""

    paused_at_us: int
    actor: str
    reason: str

    def describe(self) -> str:
        """Return since when, by whom and why."""
        since = utc(self.paused_at_us).isoformat(timespec="seconds")
        reason = printable(self.reason, characters_max=_REASON_CHARACTERS_MAX)
        return f"since {since} by {printable(self.actor)}: {reason}"


def find_pause(connection: Connection, consumer: str) -> Pause | None:
    """Return the pause of a consumer; None if it is not paused."""
    columns = (pauses.c.paused_at_us, pauses.c.actor, pauses.c.reason)
    row = connection.execute(select(*columns).where(pauses.c.consumer == consumer)).mappings().one_or_none()
    return None if row is None else Pause(**row)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOperator(Operator):
    """An operator who pauses a consumer or ends its pause, with a reason. The caller commits."""

    consumer: str

    def pause(self, connection: Connection) -> None:
        """Let the consumer's workers receive nothing more.

        Raises:
            DeadLetterError: the consumer is paused already.
        """
        row = {"paused_at_us": engines.now_us(connection, self.clock), "actor": self.actor, "reason": self.reason}
        made = engines.insert(connection.dialect.name, pauses).values(consumer=self.consumer, **row)
        is_new = connection.execute(made.on_conflict_do_nothing().returning(pauses.c.consumer)).one_or_none()
        if is_new is None:
            found = find_pause(connection, self.consumer)
            described = f" {found.describe()}" if found else ""
            raise DeadLetterError(f"{self.consumer} is paused already{described}; see `inbox resume`")
        self._record(connection, audit, "pause", {"consumer": self.consumer}, {})

    def resume(self, connection: Connection, *, is_disabled: bool = False) -> None:
        """Let the consumer's workers receive again. The audit keeps the pause that ends.

        Args:
            connection: a connection in a transaction.
            is_disabled: whether its function's mapping is: then it is paused, with or without a row.

        Raises:
            DeadLetterError: the consumer is not paused.
        """
        here = (pauses.c.consumer == self.consumer, DURABLE)
        found = connection.execute(delete(pauses).where(*here).returning(pauses)).mappings().one_or_none()
        if found is None and not is_disabled:
            raise DeadLetterError(f"{self.consumer} is not paused; see `dlq audit`")
        kept = None if found is None else {name: found[name] for name in ("paused_at_us", "actor", "reason")}
        self._record(connection, audit, "resume", {"consumer": self.consumer}, {"pause": kept})


class PauseWatch:
    """Knows whether a consumer is paused. Any number of threads ask; one at a time looks, and none waits for it.

    While the database does not answer, the last answer counts; before the first one, the consumer counts as paused.

    Args:
        clock: measures the time between two looks.
        give_sign: called before a look, as a sign of life.
    """

    def __init__(self, engine: Engine, consumer: str, *, clock: Clock, give_sign: Callable[[], None]) -> None:
        self._engine, self._consumer, self._clock, self._give_sign = engine, consumer, clock, give_sign
        self._looking = threading.Lock()
        self._looked_at = -inf
        self._pause: Pause | None = None
        self._is_known = False

    @property
    def was_paused(self) -> bool:
        """Return whether the consumer was paused at the last look."""
        return self._pause is not None

    def is_paused(self, *, after_seconds: float = _LOOK_SECONDS_MAX) -> bool:
        """Return whether the consumer is paused; look if the last look is longer ago than `after_seconds`."""
        is_due = self._clock.monotonic() - self._looked_at >= after_seconds
        if is_due and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return self._pause is not None or not self._is_known

    def _look(self) -> None:
        now = self._clock.monotonic()
        self._give_sign()
        try:
            with engines.looking(self._engine) as connection, engines.explaining_missing_tables():
                found = find_pause(connection, self._consumer)
        except (DBAPIError, OutboxError) as error:
            _log.warning(
                "whether its consumer is paused is not known now", error=printable(getattr(error, "orig", error))
            )
            self._looked_at = now if self._is_known else -inf
            return
        if found != self._pause:
            state = "the consumer's pause is over" if found is None else f"the consumer is paused {found.describe()}"
            _log.warning(state, consumer=self._consumer)
        self._looked_at, self._pause, self._is_known = now, found, True
