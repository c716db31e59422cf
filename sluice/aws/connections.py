"""HTTP/1.1 on connections that are kept, for threads that wait for their answer: a POST at a time on each.

What is not plainly a whole answer of known length is read by Python's own `http.client`, and its connection closed.
"""

import io
import select
import socket
import ssl
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from sluice.clock import SystemClock

_CHUNK_BYTES = 65_536
_CHUNK_BYTES_MAX = 1_048_576
_HEAD_BYTES_MAX = 65_536
_clock = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where requests go and how. `tls` is None for plain HTTP; timeouts in seconds, None waits without end.

    A request has both timeouts together to be sent and answered, however many pieces the answer comes in. What resolves
    the host's name has bounds of its own, and each of its addresses is tried for as long as the first timeout; if both
    are over by then, nothing is sent.
    """

    host: str
    port: int
    connect_seconds: float | None
    answer_seconds: float | None
    tls: ssl.SSLContext | None
    socket_options: Sequence[tuple[int, int, int]] = ()

    def ends_at(self) -> float:
        """Return when a request that begins now has to be answered, by the machine's clock."""
        if self.connect_seconds is None or self.answer_seconds is None:
            return inf
        return _clock.monotonic() + self.connect_seconds + self.answer_seconds


class NotConnected(Exception):
    """Raised when no connection could be made: no byte of the request left. Its cause is the system's error."""


class Answered(NamedTuple):
    """A whole answer of known length; names of headers in lower case, none of them twice."""

    status: int
    headers: dict[str, str]
    body: bytes


class Stream(io.RawIOBase):
    """What came of an answer, then what still comes, as `http.client` reads it; closing it ends the connection."""

    def __init__(self, received: bytes, connected: socket.socket, ends_at: float) -> None:
        super().__init__()
        self._received, self._connected, self._ends_at = memoryview(received), connected, ends_at

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there; 0 at the end."""
        if not self._received:
            _limit(self._connected, self._ends_at)
            return self._connected.recv_into(buffer)
        size = min(len(buffer), len(self._received))
        buffer[:size] = self._received[:size]
        self._received = self._received[size:]
        return size

    def makefile(self, _: str) -> io.BufferedReader:
        """Return it as a file."""
        return io.BufferedReader(self)

    def close(self) -> None:
        """End the connection."""
        self._connected.close()
        super().close()


class Connections:
    """Idle connections to one place, the last used first; used by any number of threads.

    Args:
        idle_max: as many are kept; others are closed after their answer, as urllib3 does.
    """

    def __init__(self, route: Route, *, idle_max: int) -> None:
        self._route, self._idle_max = route, idle_max
        self._idle: deque[socket.socket] = deque()
        weakref.finalize(self, _close, self._idle)  # as urllib3's end with a client that nobody closes

    def post(self, request: bytes) -> Answered | Stream:
        """Send a request and return its answer; one that is not plain comes as it is, unread.

        Raises:
            NotConnected: the request never left.
            OSError: it may have had its effect; TimeoutError and ssl.SSLError among them.
        """
        ends_at = self._route.ends_at()
        connected = self._connection()
        try:
            _limit(connected, ends_at)  # a request that nobody waits for any more is not sent
            with suppress(BrokenPipeError, ConnectionResetError):  # an answer may be there nevertheless: a refusal
                connected.sendall(request)
            answered = _received(connected, ends_at)
        except BaseException:
            connected.close()
            raise
        if isinstance(answered, Answered):
            self._put_back(connected, answered)
        return answered

    def _connection(self) -> socket.socket:
        while self._idle:
            try:
                connected = self._idle.pop()
            except IndexError:  # another thread took the last
                break
            if not _has_ended(connected):
                return connected
            connected.close()
        return self._connect()

    def _connect(self) -> socket.socket:
        route = self._route
        try:
            plain = socket.create_connection((route.host, route.port), timeout=route.connect_seconds)
        except OSError as error:
            raise NotConnected from error
        for option in route.socket_options:
            plain.setsockopt(*option)
        try:
            connected = plain if route.tls is None else route.tls.wrap_socket(plain, server_hostname=route.host)
        except BaseException:
            plain.close()
            raise
        connected.settimeout(route.answer_seconds)
        return connected

    def _put_back(self, connected: socket.socket, answered: Answered) -> None:
        if len(self._idle) >= self._idle_max or "close" in answered.headers.get("connection", "").lower():
            connected.close()
        else:
            if connected.gettimeout() != self._route.answer_seconds:
                connected.settimeout(self._route.answer_seconds)
            self._idle.append(connected)

    def close(self) -> None:
        """Close what is idle; what is on its way closes after its answer, or is kept."""
        while self._idle:
            self._idle.pop().close()


def _has_ended(connected: socket.socket) -> bool:
    """Return whether something came that nobody asked for: the end of the connection, or what is of no use."""
    look = select.poll()
    look.register(connected, select.POLLIN)
    return bool(look.poll(0))


def _limit(connected: socket.socket, ends_at: float) -> None:
    """Let the next wait for an answer end when the request has to.

    Raises:
        TimeoutError: that is over.
    """
    left, timeout = ends_at - _clock.monotonic(), connected.gettimeout()
    if left <= 0:
        raise TimeoutError("timed out")
    if timeout is not None and left < timeout:
        connected.settimeout(left)


def _received(connected: socket.socket, ends_at: float) -> Answered | Stream:
    _limit(connected, ends_at)
    received = connected.recv(_CHUNK_BYTES)
    while (end := received.find(b"\r\n\r\n")) < 0:
        _limit(connected, ends_at)
        more = connected.recv(_CHUNK_BYTES) if received and len(received) < _HEAD_BYTES_MAX else b""
        if not more:
            return Stream(received, connected, ends_at)
        received += more
    head = _head(received[:end])
    if head is None:
        return Stream(received, connected, ends_at)
    status, headers, length = head
    missing = end + 4 + length - len(received)
    pieces = [received]
    while missing > 0:
        _limit(connected, ends_at)
        more = connected.recv(max(_CHUNK_BYTES, min(missing, _CHUNK_BYTES_MAX)))
        pieces.append(more)
        missing -= len(more)
        if not more:
            break
    whole = received if len(pieces) == 1 else b"".join(pieces)
    return Stream(whole, connected, ends_at) if missing else Answered(status, headers, whole[end + 4 :])


def _head(head: bytes) -> tuple[int, dict[str, str], int] | None:
    """Return status, headers and length of an answer; None for one that is not plain."""
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length", "")
    is_plain = (
        first.startswith("HTTP/1.1 ")
        and first[9:12].isdecimal()
        and len(headers) == len(lines)
        and length.isdecimal()
        and length.isascii()
        and "transfer-encoding" not in headers
        and all(separator and not name.startswith((" ", "\t")) for name, separator, _ in pairs)
    )
    return (int(first[9:12]), headers, int(length)) if is_plain else None


def _close(idle: deque[socket.socket]) -> None:
    while idle:
        idle.pop().close()
