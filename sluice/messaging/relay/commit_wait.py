"""A relay's wait on Postgres that ends as soon as a producer commits an event."""

import select

import psycopg
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sluice.messaging.database import engines
from sluice.messaging.outbox.outbox import channel
from sluice.messaging.waiting import Stop
from sluice.terminal.logger import Logger
from sluice.terminal.printable import printable

_log = Logger()
_SELF_TEST_SECONDS = 1.0


class CommitWait:
    """Waits until a producer with `Outbox(notify=True)` commits to the outbox on Postgres, or until the time is over.

    When the listening connection is lost, the next wait opens a new one, and until then the relay polls. The relay
    polls also if the connection does not receive its own notification: a pooler in transaction mode listens on one of
    its connections, and does not pass on the notifications.
    https://www.postgresql.org/docs/18/sql-listen.html, https://www.pgbouncer.org/features.html (read 2026-11-26)

    Args:
        engine: the engine of the outbox's Postgres; the wait opens a connection of its own with it.
    """

    _SLICE_SECONDS = 0.25  # a signal to stop is noticed after at most this time

    def __init__(self, engine: Engine, topic: str, stop: Stop) -> None:
        self._engine, self._channel, self._stop = engine, channel(topic), stop
        self._connection: psycopg.Connection | None = None
        self._is_notified = False

    def is_notified(self) -> bool:
        """Return whether a commit ends the wait. Otherwise only the time ends it."""
        return self._is_notified

    def wait(self, seconds: float) -> None:
        """Wait until the seconds are over, or until a producer has committed since the last wait."""
        try:
            connection = self._listening_connection()
            if not self._is_notified:
                self._stop.wait(seconds)
                return
            for _ in range(1 + int(seconds / self._SLICE_SECONDS)):
                if self._stop.is_stopped() or self._is_committed(connection, min(seconds, self._SLICE_SECONDS)):
                    return
        except (psycopg.Error, DBAPIError, OSError) as error:
            _log.warning("not listening for commits", error=printable(getattr(error, "orig", error)))
            self.close()
            self._stop.wait(seconds)

    def is_stopped(self) -> bool:
        """Return whether the process has to stop."""
        return self._stop.is_stopped()

    def close(self) -> None:
        """Close the listening connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._is_notified = None, False

    def _listening_connection(self) -> psycopg.Connection:
        """Return the connection that listens for commits; open and test it if there is none."""
        if self._connection is None:
            self._connection = engines.listening(self._engine, self._channel)
            self._is_notified = self._test_notifications(self._connection)
            if not self._is_notified:
                _log.warning(
                    "not listening for commits: a notification did not come, as through a pooler in transaction mode;"
                    " give --dsn of the database itself, or leave out --listen: until then it is polled"
                )
        return self._connection

    def _test_notifications(self, connection: psycopg.Connection) -> bool:
        """Return whether the connection receives a notification from another connection within a second."""
        with self._engine.begin() as other:
            other.execute(text("SELECT pg_notify(:channel, '')"), {"channel": self._channel})
        return any(True for _ in connection.notifies(timeout=_SELF_TEST_SECONDS, stop_after=1))

    @staticmethod
    def _is_committed(connection: psycopg.Connection, seconds: float) -> bool:
        """Return whether a notification of a commit arrives within this time."""
        select.select([connection], [], [], seconds)
        return any(True for _ in connection.notifies(timeout=0))
