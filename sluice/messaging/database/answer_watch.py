"""Ends the wait for an answer of Postgres that does not arrive.

A host whose disk hangs still acknowledges packets, so no keepalive notices it, and psycopg waits for as long as the
socket is open. Therefore another thread shuts the socket down: the waiting thread gets psycopg's error of a lost
connection.

https://www.psycopg.org/psycopg3/docs/api/connections.html#psycopg.Connection.fileno,
https://www.postgresql.org/docs/18/libpq-status.html#LIBPQ-PQTRANSACTIONSTATUS (read 2026-11-26)
"""

import os
import socket
import threading
from contextlib import suppress

import psycopg
from psycopg.pq import TransactionStatus

from sluice.clock import Clock
from sluice.terminal.logger import Logger

_log = Logger()
_LOOKS = 10  # looks during the wait for an answer, and at least one a second
_PAUSE_SECONDS_MAX = 1.0


class AnswerWatch:
    """Closes a connection on which the server's answer takes too long.

    Any number of threads call it. It has a thread of its own while any connection is in use.

    Args:
        seconds: the longest time for an answer. The watch notices up to a tenth of it later, at most a second later.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds, self._clock = seconds, clock
        self._waiting_since: dict[psycopg.Connection, float] = {}
        # For a connection that was dropped without a close, the garbage collector calls `end`, in any thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._process_id = os.getpid()

    def begin(self, connection: psycopg.Connection) -> None:
        """Note that a connection is in use from now on: a statement is sent on it now or soon."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # the thread does not survive a fork
                self._forget_parents()
                self._thread = threading.Thread(target=self._watch, name="sluice-answer-watch", daemon=True)
                self._thread.start()
            self._waiting_since[connection] = self._clock.monotonic()

    def note_question(self, connection: psycopg.Connection) -> None:
        """Note that a statement is sent on a connection, if it is in use."""
        if connection in self._waiting_since:
            self._waiting_since[connection] = self._clock.monotonic()

    def end(self, connection: psycopg.Connection) -> None:
        """Note that a connection is not in use any more."""
        with self._lock:
            self._waiting_since.pop(connection, None)

    def look(self) -> bool:
        """Close the connections whose answers take too long; return whether any connection is in use."""
        with self._lock:
            latest = self._clock.monotonic() - self._seconds
            late = [connection for connection, since in list(self._waiting_since.items()) if since <= latest]
            for connection in late:
                if connection.closed:
                    self._waiting_since.pop(connection, None)
                elif connection.info.transaction_status is TransactionStatus.ACTIVE:
                    _log.error("the database gave no answer: its connection is closed", seconds=self._seconds)
                    shut_down(connection)
            if not self._waiting_since:
                self._thread = None
            return bool(self._waiting_since)

    def _forget_parents(self) -> None:
        """Forget the connections from before a fork, because only the parent process knows of their answers."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._waiting_since.clear()

    def _watch(self) -> None:
        while self.look():
            self._clock.sleep(min(self._seconds / _LOOKS, _PAUSE_SECONDS_MAX))


def shut_down(connection: psycopg.Connection) -> None:
    """Shut a connection's socket down, and no other: after a close its number may belong to another socket."""
    with suppress(OSError, psycopg.OperationalError):  # the connection was closed meanwhile
        number = connection.fileno()
        with socket.socket(fileno=os.dup(number)) as shared:
            if connection.fileno() == number:
                shared.shutdown(socket.SHUT_RDWR)
