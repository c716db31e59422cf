"""HTTP over plain sockets: one selector, one thread, one request on its way on each connection.

It is cheap because no thread is handed anything, and nothing is copied that is not sent.
"""

import selectors
import socket
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from sluice.clock import Clock
from spark_load.runtime.deployment import ANSWER_SECONDS_MAX, CONNECT_SECONDS_MAX

_PORTS = {"https": 443, "http": 80}
_CHUNK_BYTES = 8_192  # an answer has some two thousand
_GATHER_SECONDS = 0.001
_GATHER_SHARE = 4
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class Address:
    """Where an exchange connects to; None as `ca_file` trusts the system's own certificates."""

    name: str
    port: int
    is_tls: bool
    path: str
    ca_file: str | None

    @classmethod
    def of(cls, url: str, *, ca_file: str | None = None) -> "Address":
        """Return the address behind an endpoint's URL."""
        parts = urlsplit(url)
        assert parts.hostname is not None, f"{url!r} was checked to be a URL"
        port = parts.port or _PORTS[parts.scheme]
        return cls(parts.hostname, port, parts.scheme == "https", f"{parts.path.rstrip('/')}/", ca_file)

    @property
    def host(self) -> str:
        """Return the header: without the port where it is the scheme's own."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port == _PORTS["https" if self.is_tls else "http"] else f"{name}:{self.port}"


class Request(NamedTuple):
    """A whole request, from its first line on; `key` tells its response apart."""

    key: int
    content: bytes


class Response(NamedTuple):
    """What came of a request: an answer, or the name botocore has for why there is none."""

    key: int
    at_us: int
    status: int = 0
    head: bytes = b""
    body: bytes = b""
    error: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers, by their names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


class _Connection:
    """One keep-alive connection."""

    __slots__ = ("is_full", "received", "request", "sent_at", "socket", "unsent")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.request: Request | None = None
        self.sent_at = 0.0
        self.unsent = memoryview(b"")
        self.received = b""
        self.is_full = False  # it is waited for until more can be written


class SocketExchange:
    """Posts to one address, with at most `connections_max` requests on their way."""

    def __init__(self, address: Address, *, connections_max: int, clock: Clock) -> None:
        self._address, self._max, self._clock = address, connections_max, clock
        self._tls = ssl.create_default_context(cafile=address.ca_file) if address.is_tls else None
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Connection] = []
        self._busy: OrderedDict[_Connection, None] = OrderedDict()  # the longest on its way first
        self._came: list[Response] = []

    @property
    def room(self) -> int:
        """Return how many requests may be posted now."""
        return self._max - len(self._busy)

    def post(self, requests: Sequence[Request]) -> None:
        """Send requests. Where no connection can be made, none of the rest is tried: each would wait for as long."""
        self._look(0)  # a connection closed meanwhile is of no use
        error: str | None = None
        for request in requests:
            if error is None:
                error = self._post(request)
            if error is not None:
                self._came.append(Response(request.key, self._clock.now_us(), error=error))

    def _post(self, request: Request) -> str | None:
        """Send one request; return why it never left, if so."""
        try:
            connection = self._idle.pop() if self._idle else self._connect()
        except TimeoutError:
            return "ConnectTimeoutError"
        except OSError as error:
            return "SSLError" if isinstance(error, ssl.SSLError) else "EndpointConnectionError"
        connection.request, connection.received = request, b""
        connection.sent_at = self._clock.monotonic()
        connection.unsent = memoryview(request.content)
        self._busy[connection] = None
        self._send(connection)
        return None

    def _connect(self) -> _Connection:
        plain = socket.create_connection((self._address.name, self._address.port), timeout=CONNECT_SECONDS_MAX)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made = plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self._address.name)
        except OSError:
            plain.close()
            raise
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
        except OSError:
            self._fail(connection, "ConnectionClosedError")
        else:
            if connection.is_full:
                connection.is_full = False
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def responses(self, wait_seconds: float) -> Sequence[Response]:
        """Return what came since. Of many on their way it waits a moment for some more: each look has its price."""
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
        is_ended = False
        try:
            while not is_ended:
                chunk = connection.socket.recv(_CHUNK_BYTES)
                connection.received += chunk
                is_ended = not chunk
                if not _has_more(connection.socket, chunk):
                    break
        except _BLOCKED:
            is_ended = False
        except OSError:
            is_ended = True
        if connection.request is None:  # nobody asked: it was closed, or is of no use
            self._idle.remove(connection)
            self._drop(connection)
            return
        try:
            response = _parsed(connection.request.key, connection.received, self._clock, is_ended=is_ended)
        except (ValueError, IndexError):
            self._fail(connection, "HTTPClientError")
            return
        if response is not None:
            self._done(connection, response, is_ended=is_ended)
        elif is_ended:
            self._fail(connection, "ConnectionClosedError")

    def _done(self, connection: _Connection, response: Response, *, is_ended: bool) -> None:
        self._came.append(response)
        del self._busy[connection]
        connection.request = None
        if is_ended or connection.unsent or _header(response.head.lower(), b"connection") == b"close":
            self._drop(connection)
        else:
            self._idle.append(connection)

    def _give_up_overdue(self) -> None:
        now = self._clock.monotonic()
        while self._busy and now - (oldest := next(iter(self._busy))).sent_at > ANSWER_SECONDS_MAX:
            self._fail(oldest, "ReadTimeoutError")

    def _fail(self, connection: _Connection, error: str) -> None:
        assert connection.request is not None, "only what is on its way fails"
        self._came.append(Response(connection.request.key, self._clock.now_us(), error=error))
        del self._busy[connection]
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
    """Return whether more may be read that no selector tells of: what TLS has decrypted already."""
    return connected.pending() > 0 if isinstance(connected, ssl.SSLSocket) else len(chunk) == _CHUNK_BYTES


def _parsed(key: int, received: bytes, clock: Clock, *, is_ended: bool) -> Response | None:
    """Return the response once it is whole: by its length, its chunks, or the end of the connection."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head, rest = received[:end], received[end + 4 :]
    lower = head.lower()
    body: bytes | None
    if (length := _header(lower, b"content-length")) is not None:
        body = rest if len(rest) >= int(length) else None
    elif _header(lower, b"transfer-encoding") == b"chunked":
        body = _joined(rest)
    else:
        body = rest if is_ended else None
    return None if body is None else Response(key, clock.now_us(), int(head.split(b" ", 2)[1]), head, body)


def _header(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header, of a head in lower case; None where there is none."""
    _, found, behind = head.partition(b"\r\n%b:" % name)
    return behind.split(b"\r\n", 1)[0].strip() if found else None


def _joined(chunks: bytes) -> bytes | None:
    """Return the body that came in chunks; None while the last is missing."""
    body = b""
    while True:
        size, found, rest = chunks.partition(b"\r\n")
        if not found:
            return None
        length = int(size.split(b";")[0], 16)
        if length == 0:
            return body if rest.endswith(b"\r\n") else None
        if len(rest) < length + 2:
            return None
        body, chunks = body + rest[:length], rest[length + 2 :]
