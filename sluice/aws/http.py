"""HTTP/1.1 as two services speak it: where requests go, how a connection is made, and what a response is.

No connection waits here: `ResponseReader` takes bytes as they come, from a thread that waits or from a selector. It is
stricter than Python's `http.client`, on which botocore builds: a response that is shorter than its length, or whose
length is ambiguous, is no response, where botocore reads half an answer as an empty one.
"""

import re
import socket
import ssl
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.httpsession import create_urllib3_context, get_cert_path

OK = 200
_PORTS = {"https": 443, "http": 80}
_HEAD_BYTES_MAX = 65_536
_FOLD = re.compile(r"\r\n[ \t]+")
"""What stands in a header that goes on in the next line."""
_FIRST_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_NO_BODY = (204, 304)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A target of requests, with timeouts in seconds (None waits without end). `tls` is None for plain HTTP.

    What resolves the host's name has bounds of its own, and each of its addresses is tried for `connect_seconds`.
    """

    url: str
    name: str
    port: int
    path: str
    connect_seconds: float | None
    answer_seconds: float | None
    tls: ssl.SSLContext | None = None
    is_kept_alive: bool = False

    @classmethod
    def of(
        cls,
        url: str,
        *,
        connect_seconds: float | None,
        answer_seconds: float | None,
        bundle: str | None = None,
        is_kept_alive: bool = False,
    ) -> "Address":
        """Return the address of an endpoint's URL, which was checked to be one.

        Args:
            url: of the endpoint.
            connect_seconds: to connect.
            answer_seconds: to send a request and to read its response.
            bundle: a file of certificates to trust; None for those of botocore.
            is_kept_alive: TCP asks an idle peer whether it is still there.

        Raises:
            OSError: the certificates cannot be read.
        """
        parts = urlsplit(url)
        assert parts.hostname is not None, f"{url!r} was checked to be a URL"
        return cls(
            url=url if parts.path else f"{url}/",
            name=parts.hostname,
            port=parts.port or _PORTS[parts.scheme],
            path=parts.path or "/",
            connect_seconds=connect_seconds,
            answer_seconds=answer_seconds,
            tls=trust(bundle) if parts.scheme == "https" else None,
            is_kept_alive=is_kept_alive,
        )

    @property
    def host(self) -> str:
        """Return the header: without the port where it is the scheme's own."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port == _PORTS["http" if self.tls is None else "https"] else f"{name}:{self.port}"

    def connect(self) -> socket.socket:
        """Return a new connection, whose timeout is `answer_seconds`.

        Raises:
            NotConnected: nobody took the connection.
            OSError: no TLS could be agreed on.
        """
        try:
            plain = socket.create_connection((self.name, self.port), timeout=self.connect_seconds)
        except (OSError, UnicodeError) as error:
            raise NoConnectionError from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, self.is_kept_alive)
        try:
            connected = plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=self.name)
        except BaseException as error:
            plain.close()
            if isinstance(error, TimeoutError):
                raise NoConnectionError from error
            raise
        connected.settimeout(self.answer_seconds)
        return connected


def trust(bundle: str | None) -> ssl.SSLContext:
    """Return a TLS context that trusts what botocore trusts.

    Python's default context would also refuse root certificates that lack what RFC 5280 asks for.

    Raises:
        OSError: the certificates cannot be read.
    """
    context: ssl.SSLContext = create_urllib3_context()
    context.load_verify_locations(get_cert_path(verify=True) if bundle is None else bundle)
    context.check_hostname = True
    return context


class NoConnectionError(Exception):
    """Raised when no connection could be made: no byte of the request left. Its cause is the system's error."""


class MalformedResponse(ConnectionError):
    """Raised for what is no response of HTTP/1.1, or whose length is ambiguous."""


def to_botocore(error: OSError | NoConnectionError, url: str) -> HTTPClientError:
    """Return the exception that botocore raises when a request to this URL ends with this error."""
    if isinstance(error, NoConnectionError):
        kind = ConnectTimeoutError if isinstance(error.__cause__, TimeoutError) else EndpointConnectionError
        return kind(endpoint_url=url, error=error.__cause__)
    if isinstance(error, ssl.SSLError):
        return SSLError(endpoint_url=url, error=error)
    if isinstance(error, TimeoutError):
        return ReadTimeoutError(endpoint_url=url, error=error)
    return ConnectionClosedError(endpoint_url=url, error=error)


class Response(NamedTuple):
    """A whole response; names of headers in lower case, several values of one joined by commas.

    `is_last` says that its connection cannot be used again.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    is_last: bool


class _Head(NamedTuple):
    """The part of a response before its body. `length` is None where the end of the connection ends the body."""

    status: int
    headers: dict[str, str]
    is_last: bool
    is_chunked: bool
    length: int | None


class ResponseReader:
    """Reads one response from the bytes of a connection."""

    __slots__ = ("_body", "_head", "_position", "_received")

    def __init__(self) -> None:
        self._received = bytearray()
        self._head: _Head | None = None
        self._position = 0  # of what is not read yet
        self._body = bytearray()  # of the chunks read

    def feed(self, received: bytes) -> Response | None:
        """Take the next bytes, none at the connection's end; return the response once it is whole.

        Raises:
            ConnectionError: the connection ended before the response did, or this is no response.
        """
        self._received += received
        if self._head is None:
            self._head = self._read_head()
        response = None if self._head is None else self._read_body(self._head, is_ended=not received)
        if response is None and not received:
            raise ConnectionResetError("the connection ended before its response")
        return response

    def _read_head(self) -> _Head | None:
        """Return the head of the final response once it has come; None before.

        Heads such as "100 Continue" are skipped.
        """
        while (end := self._received.find(b"\r\n\r\n", self._position)) >= 0:
            head = _parse_head(self._received[self._position : end].decode("latin-1"))
            self._position = end + 4
            if head.status >= OK:  # else "continue", or the like: the response is still to come
                return head
        if len(self._received) > _HEAD_BYTES_MAX or not b"HTTP/1.".startswith(self._received[:7]):
            raise MalformedResponse("this is no head of HTTP/1.1")
        return None

    def _read_body(self, head: _Head, *, is_ended: bool) -> Response | None:
        """Return the response once its whole body has come; None before."""
        if head.is_chunked:
            if not self._read_chunks():
                return None
            body, end = bytes(self._body), self._position
        elif head.length is not None:
            end = self._position + head.length
            if len(self._received) < end:
                return None
            with memoryview(self._received) as received:
                body = bytes(received[self._position : end])
        elif is_ended:
            body, end = bytes(self._received[self._position :]), len(self._received)
        else:
            return None
        is_last = head.is_last or is_ended or len(self._received) > end
        return Response(head.status, head.headers, body, is_last)

    def _read_chunks(self) -> bool:
        """Read the whole chunks that have come; return whether the last was among them."""
        received = self._received
        while (end := received.find(b"\r\n", self._position)) >= 0:
            found = _CHUNK_SIZE.fullmatch(received, self._position, end)
            if found is None:
                raise MalformedResponse("this is no chunk")
            size = int(found[1], 16)
            if size == 0:
                trailer_end = received.find(b"\r\n\r\n", end)
                self._position = self._position if trailer_end < 0 else trailer_end + 4
                return trailer_end >= 0
            if len(received) < end + 2 + size + 2:
                return False
            self._body += received[end + 2 : end + 2 + size]
            self._position = end + 2 + size + 2
            if received[self._position - 2 : self._position] != b"\r\n":
                raise MalformedResponse("this chunk is longer than it says")
        return False


def _parse_head(head: str) -> _Head:
    """Return the fields of a response's head.

    Raises:
        MalformedResponse: it is none, or it says two things.
    """
    if "\r\n " in head or "\r\n\t" in head:
        head = _FOLD.sub(" ", head)
    first, *lines = head.split("\r\n")
    found = _FIRST_LINE.fullmatch(first)
    if found is None:
        raise MalformedResponse("this is no first line of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator or name[-1:].isspace():  # a length that is written so would be none
            raise MalformedResponse("this is no header")
        lower, value = name.lower(), value.strip()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    status, length, encoding = int(found[2]), headers.get("content-length"), headers.get("transfer-encoding")
    if encoding is not None and (length is not None or encoding.lower() != "chunked"):
        raise MalformedResponse("how long the response is, is ambiguous")
    if length is not None and _LENGTH.fullmatch(length) is None:
        raise MalformedResponse("the response has no length")
    is_last = found[1] == "0" or "close" in headers.get("connection", "").lower()
    if status in _NO_BODY:
        length = "0"
    return _Head(status, headers, is_last, encoding is not None, None if length is None else int(length))
