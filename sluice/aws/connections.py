"""Kept connections for threads that wait for their answer: a request at a time on each."""

import os
import select
import socket
import weakref
from collections import deque
from contextlib import suppress
from math import inf

from sluice.aws.http import Address, Response, ResponseReader
from sluice.clock import SystemClock

_CHUNK_BYTES = 65_536
_clock = SystemClock()


class Connections:
    """Idle connections to one place, the last used first; used by any number of threads.

    Args:
        idle_max: as many are kept; others are closed after their answer, as urllib3 does.
    """

    def __init__(self, address: Address, *, idle_max: int) -> None:
        self._address, self._idle_max, self._pid = address, idle_max, os.getpid()
        self._idle: deque[socket.socket] = deque()
        weakref.finalize(self, _close, self._idle)  # as urllib3's end with a client that nobody closes

    def post(self, request: bytes) -> Response:
        """Send a request and return its response.

        Both timeouts together limit the time from here to the whole response, however many pieces it comes in.

        Raises:
            NotConnected: the request never left.
            OSError: it may have had its effect; TimeoutError and ssl.SSLError among them.
        """
        ends_at = self._end()
        connected = self._connection()
        try:
            _limit(connected, ends_at)  # a request that nobody waits for any more is not sent
            with suppress(BrokenPipeError, ConnectionResetError):  # a response may be there nevertheless: a refusal
                connected.sendall(request)
            reader, response = ResponseReader(), None
            while response is None:
                _limit(connected, ends_at)
                response = reader.feed(connected.recv(_CHUNK_BYTES))
        except BaseException:
            connected.close()
            raise
        self._put_back(connected, response)
        return response

    def _end(self) -> float:
        """Return when a request that begins now must have its response, by the machine's clock.

        Without timeouts this is infinity.
        """
        connect_seconds, answer_seconds = self._address.connect_seconds, self._address.answer_seconds
        if connect_seconds is None or answer_seconds is None:
            return inf
        return _clock.monotonic() + connect_seconds + answer_seconds

    def _connection(self) -> socket.socket:
        """Return an idle connection that is still open, or a new one.

        After a fork the parent's connections are closed: the child would read the parent's responses.
        """
        if self._pid != os.getpid():  # of a child that was forked: its parent would get its answers
            self._pid = os.getpid()
            _close(self._idle)
        while self._idle:
            try:
                connected = self._idle.pop()
            except IndexError:  # another thread took the last
                break
            if not _has_ended(connected):
                return connected
            connected.close()
        return self._address.connect()

    def _put_back(self, connected: socket.socket, response: Response) -> None:
        """Keep a connection for the next request, or close it if enough are idle or its response was the last."""
        if len(self._idle) >= self._idle_max or response.is_last:
            connected.close()
        else:
            if connected.gettimeout() != self._address.answer_seconds:
                connected.settimeout(self._address.answer_seconds)
            self._idle.append(connected)

    def close(self) -> None:
        """Close the idle connections; a busy one closes after its answer, or is kept."""
        _close(self._idle)


def _has_ended(connected: socket.socket) -> bool:
    """Return whether an idle connection has something to read.

    Nobody asked for anything on it, so it has ended or is of no use.
    """
    look = select.poll()
    look.register(connected, select.POLLIN)
    return bool(look.poll(0))


def _limit(connected: socket.socket, ends_at: float) -> None:
    """Shorten the connection's timeout to the time left for the request.

    Raises:
        TimeoutError: that is over.
    """
    left, timeout = ends_at - _clock.monotonic(), connected.gettimeout()
    if left <= 0:
        raise TimeoutError("timed out")
    if timeout is not None and left < timeout:
        connected.settimeout(left)


def _close(idle: deque[socket.socket]) -> None:
    """Close all idle connections."""
    while idle:
        idle.pop().close()
