"""How a relay waits on Postgres: until a producer's commit says that there is something to publish."""

import select

import psycopg
from sqlalchemy import Engine

from sluice.messaging.database import engines
from sluice.messaging.outbox.outbox import channel
from sluice.messaging.waiting import Stop
from sluice.terminal.logger import Logger

_log = Logger()


class CommitWait:
    """Waits for a commit to the outbox on Postgres, as `Outbox(notify=True)` tells of it, or for the next look.

    A connection that is lost is made anew at the next wait; meanwhile it polls.
    https://www.postgresql.org/docs/18/sql-listen.html (read 2026-11-21)

    Args:
        engine: of the outbox's Postgres; a connection of its own is opened.
    """

    _SLICE_SECONDS = 0.25  # a signal is noticed that late at most

    def __init__(self, engine: Engine, topic: str, stop: Stop) -> None:
        self._engine, self._channel, self._stop = engine, channel(topic), stop
        self._connection: psycopg.Connection | None = None

    def wait(self, seconds: float) -> None:
        """Wait that long, or until there was a commit since the last wait."""
        try:
            connection = self._listening()
            for _ in range(1 + int(seconds / self._SLICE_SECONDS)):
                if self._stop.is_stopped() or self._is_notified(connection, min(seconds, self._SLICE_SECONDS)):
                    return
        except (psycopg.Error, OSError) as error:
            _log.warning("not listening for commits", error=str(error))
            self.close()
            self._stop.wait(seconds)

    def is_stopped(self) -> bool:
        """Return whether to stop."""
        return self._stop.is_stopped()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _listening(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = engines.listening(self._engine, self._channel)
        return self._connection

    @staticmethod
    def _is_notified(connection: psycopg.Connection, seconds: float) -> bool:
        select.select([connection], [], [], seconds)
        return any(True for _ in connection.notifies(timeout=0))
