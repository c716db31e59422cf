"""An exchange over awscrt, AWS's HTTP client in C: one connection for each request on its way."""

import io
import queue
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from awscrt import http
from awscrt.exceptions import AwsCrtError
from awscrt.io import (
    ClientBootstrap,
    ClientTlsContext,
    DefaultHostResolver,
    EventLoopGroup,
    SocketOptions,
    TlsContextOptions,
)

from sluice.clock import Clock
from spark_load.publish.transport import CONNECT_SECONDS_MAX
from spark_load.publish.transport.http import Address, Request, Response, is_overdue

_TIMED_OUT = ("AWS_IO_SOCKET_TIMEOUT", "AWS_IO_TLS_NEGOTIATION_TIMEOUT")
_GATHER_SECONDS = 0.001
_GATHER_SHARE = 4


class _Stream:
    """One request on its way. Its methods run on awscrt's thread, one after the other."""

    def __init__(self, exchange: "CrtExchange", connection: Any, request: Request) -> None:
        self._exchange, self.connection, self.request = exchange, connection, request
        self.sent_at = 0.0
        self._status, self._body = 0, b""
        self._headers: dict[str, str] = {}

    def respond(self, status_code: int, headers: Sequence[tuple[str, str]], **_: object) -> None:
        self._status = status_code
        self._headers = {name.lower(): value for name, value in headers}

    def receive(self, chunk: bytes, **_: object) -> None:
        self._body += bytes(chunk)

    def end(self, future: Future[int]) -> None:
        failed = future.exception() is not None
        self._exchange.ended(
            self,
            Response(self.request.key, self._exchange.now_us(), error="ConnectionClosedError")
            if failed
            else Response(self.request.key, self._exchange.now_us(), self._status, self._headers, self._body),
        )


class CrtExchange:
    """Posts to one address.

    Args:
        address: where.
        connections_max: how many requests may be on their way.
        clock: for the time of each response and the patience with it.
    """

    def __init__(self, address: Address, *, connections_max: int, clock: Clock) -> None:
        self._address, self._max, self._clock = address, connections_max, clock
        threads = EventLoopGroup(1)
        self._bootstrap = ClientBootstrap(threads, DefaultHostResolver(threads))
        self._tls = _tls(address) if address.is_tls else None
        self._options = SocketOptions()
        self._options.connect_timeout_ms = CONNECT_SECONDS_MAX * 1_000
        self._idle: list[Any] = []
        self._busy: OrderedDict[_Stream, None] = OrderedDict()  # the longest on its way first
        self._ended: queue.SimpleQueue[tuple[_Stream | None, Response]] = queue.SimpleQueue()

    def now_us(self) -> int:
        """Return the instant; called on awscrt's thread."""
        return self._clock.now_us()

    def ended(self, stream: _Stream, response: Response) -> None:
        """Take a stream's end; called on awscrt's thread."""
        self._ended.put((stream, response))

    @property
    def room(self) -> int:
        """Return how many requests may be posted now."""
        return self._max - len(self._busy)

    def post(self, requests: Sequence[Request]) -> None:
        """Send requests. Where no connection can be made, none of the rest is tried: each would wait for as long."""
        error: str | None = None
        for request in requests:
            if error is None:
                error = self._post(request)
            if error is not None:
                self._ended.put((None, Response(request.key, self._clock.now_us(), error=error)))

    def _post(self, request: Request) -> str | None:
        """Send one request; return why it never left, if so."""
        try:
            stream = _Stream(self, self._connection(), request)
        except AwsCrtError as error:
            return _connecting_failed(error)
        headers = http.HttpHeaders([*request.headers, ("content-length", str(len(request.body)))])
        asked = http.HttpRequest("POST", self._address.path, headers, io.BytesIO(request.body))
        stream.sent_at = self._clock.monotonic()
        self._busy[stream] = None
        try:
            made = stream.connection.request(asked, stream.respond, stream.receive)
            made.completion_future.add_done_callback(stream.end)
            made.activate()
        except AwsCrtError:  # it was closed just now
            self._ended.put((stream, Response(request.key, self._clock.now_us(), error="ConnectionClosedError")))
        return None

    def _connection(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                return connection
        return http.HttpClientConnection.new(
            self._address.name, self._address.port, self._bootstrap, self._options, self._tls
        ).result()

    def responses(self, wait_seconds: float) -> Sequence[Response]:
        """Return what came since. Of many on their way it waits a moment for some more: each look has its price."""
        came: list[Response] = []
        wanted = max(1, len(self._busy) // _GATHER_SHARE)
        try:
            self._take(came, wait_seconds)
            while True:
                self._take(came, _GATHER_SECONDS if len(came) < wanted else 0)
        except queue.Empty:
            pass
        self._give_up_overdue()
        return came

    def _take(self, came: list[Response], wait_seconds: float) -> None:
        stream, response = self._ended.get(timeout=wait_seconds) if wait_seconds > 0 else self._ended.get_nowait()
        if stream is None:
            came.append(response)
        elif stream in self._busy:  # else it was given up before
            del self._busy[stream]
            came.append(response)
            if stream.connection.is_open():
                self._idle.append(stream.connection)

    def _give_up_overdue(self) -> None:
        now = self._clock.monotonic()
        while self._busy and is_overdue((oldest := next(iter(self._busy))).sent_at, now):
            del self._busy[oldest]
            oldest.connection.close()
            self._ended.put((None, Response(oldest.request.key, self._clock.now_us(), error="ReadTimeoutError")))

    def close(self) -> None:
        """Close every connection."""
        for connection in (*self._idle, *(stream.connection for stream in self._busy)):
            connection.close()


def _tls(address: Address) -> Any:
    options = TlsContextOptions()
    if address.ca_file is not None:
        options.override_default_trust_store_from_path(None, address.ca_file)
    made = ClientTlsContext(options).new_connection_options()
    made.set_server_name(address.name)
    return made


def _connecting_failed(error: AwsCrtError) -> str:
    """Return botocore's name for it."""
    if error.name in _TIMED_OUT:
        return "ConnectTimeoutError"
    return "SSLError" if "TLS" in error.name else "EndpointConnectionError"
