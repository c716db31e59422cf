"""Requests over plain sockets: one thread with a selector, and one request in flight on each connection.

It is cheap because no work is handed to another thread, and no byte is copied that is not sent.
"""

import selectors
import socket
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from sluice.aws.http import Address, NoConnectionError, Response, ResponseReader, to_botocore
from sluice.clock import Clock

_CHUNK_BYTES = 8_192  # more than an answer, which has about two thousand
_GATHER_SECONDS = 0.001
_GATHER_SHARE = 4
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SocketRequest(NamedTuple):
    """A whole request, from its first line on; `key` identifies its response."""

    key: int
    content: bytes


class SocketArrival(NamedTuple):
    """The outcome of a request: its response, or the error that botocore would raise."""

    key: int
    at_us: int
    came: Response | Exception


class _Connection:
    """One keep-alive connection."""

    __slots__ = ("is_full", "reader", "request", "sent_at", "socket", "unsent")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.request: SocketRequest | None = None
        self.sent_at = 0.0
        self.unsent = memoryview(b"")
        self.reader = ResponseReader()
        self.is_full = False  # the socket's buffer is full; the rest is sent when the selector says so


class SocketExchange:
    """Posts requests to one address, with at most `connections_max` in flight."""

    def __init__(self, address: Address, *, connections_max: int, clock: Clock) -> None:
        self._address, self._max, self._clock = address, connections_max, clock
        self._answer_seconds = inf if address.answer_seconds is None else address.answer_seconds
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Connection] = []
        self._busy: OrderedDict[_Connection, None] = OrderedDict()  # the oldest request first
        self._came: list[SocketArrival] = []

    @property
    def room(self) -> int:
        """Return how many requests may be posted now."""
        return self._max - len(self._busy)

    def post(self, requests: Sequence[SocketRequest]) -> None:
        """Send requests. If a connection cannot be made, the remaining requests fail at once, without waiting again."""
        self._look(0)  # remove idle connections that the server has closed
        error: OSError | NoConnectionError | None = None
        for request in requests:
            if error is None:
                error = self._post(request)
            if error is not None:
                self._arrive(request, error)

    def _arrive(self, request: SocketRequest, came: Response | OSError | NoConnectionError) -> None:
        translated = came if isinstance(came, Response) else to_botocore(came, self._address.url)
        self._came.append(SocketArrival(request.key, self._clock.now_us(), translated))

    def _post(self, request: SocketRequest) -> OSError | NoConnectionError | None:
        """Send one request; return the error if it could not be sent."""
        try:
            connection = self._idle.pop() if self._idle else self._connect()
        except (NoConnectionError, OSError) as error:
            return error
        connection.request, connection.reader = request, ResponseReader()
        connection.sent_at = self._clock.monotonic()
        connection.unsent = memoryview(request.content)
        self._busy[connection] = None
        self._send(connection)
        return None

    def _connect(self) -> _Connection:
        made = self._address.connect()
        made.settimeout(0)
        connection = _Connection(made)
        self._selector.register(made, selectors.EVENT_READ, connection)
        return connection

    def _send(self, connection: _Connection) -> None:
        try:
            while connection.unsent:
                connection.unsent = connection.unsent[connection.socket.send(connection.unsent) :]
        except _BLOCKED:
            connection.is_full = True
            self._selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        except OSError as error:
            self._fail(connection, error)
        else:
            if connection.is_full:
                connection.is_full = False
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def arrivals(self, wait_seconds: float) -> Sequence[SocketArrival]:
        """Return the outcomes since the last call.

        With many in flight, wait a moment for more, because each look costs time.
        """
        busy = len(self._busy)
        self._look(0 if self._came else wait_seconds)
        if len(self._came) < busy // _GATHER_SHARE:
            self._look(_GATHER_SECONDS)
        self._give_up_overdue()
        came, self._came = self._came, []
        return came

    def _look(self, wait_seconds: float) -> None:
        for key, events in self._selector.select(wait_seconds):
            connection: _Connection = key.data
            if events & selectors.EVENT_WRITE and connection.unsent:
                self._send(connection)
            if events & selectors.EVENT_READ and connection.socket.fileno() >= 0:
                self._receive(connection)

    def _receive(self, connection: _Connection) -> None:
        if connection.request is None:  # bytes without a request: the server has closed it, or speaks out of turn
            self._idle.remove(connection)
            self._drop(connection)
            return
        try:
            response = None
            while response is None:
                chunk = connection.socket.recv(_CHUNK_BYTES)
                response = connection.reader.feed(chunk)
                if not _has_more(connection.socket, chunk):
                    break
        except _BLOCKED:
            return
        except OSError as error:
            self._fail(connection, error)
            return
        if response is not None:
            self._end(connection, response)
            if response.is_last or connection.unsent:
                self._drop(connection)
            else:
                self._idle.append(connection)

    def _end(self, connection: _Connection, came: Response | OSError) -> None:
        assert connection.request is not None, "a request is in flight on the connection"
        self._arrive(connection.request, came)
        del self._busy[connection]
        connection.request = None

    def _give_up_overdue(self) -> None:
        now = self._clock.monotonic()
        while self._busy and now - (oldest := next(iter(self._busy))).sent_at > self._answer_seconds:
            self._fail(oldest, TimeoutError("timed out"))

    def _fail(self, connection: _Connection, error: OSError) -> None:
        self._end(connection, error)
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in (*self._idle, *self._busy):
            self._drop(connection)
        self._selector.close()


def _has_more(connected: socket.socket, chunk: bytes) -> bool:
    """Return whether more bytes can be read that no selector announces: TLS has decrypted them already."""
    return connected.pending() > 0 if isinstance(connected, ssl.SSLSocket) else len(chunk) == _CHUNK_BYTES
