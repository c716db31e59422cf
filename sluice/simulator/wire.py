"""The HTTP server of the simulator and of the recording proxy: reads requests to SQS and SNS, and writes the answers.

It listens on the loopback only.

Each connection has a thread, so that a long poll delays no other connection.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-making-api-requests-json.html and
https://docs.aws.amazon.com/sns/latest/api/CommonParameters.html (read 2026-11-26).
"""

import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from botocore.model import OperationModel

from sluice.errors import ConfigError
from sluice.simulator import query_protocol
from sluice.simulator.model import AwsRefusal

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost", "::1")
_VERSIONS = {"2010-03-31": "sns", "2012-11-05": "sqs"}
_REGION = r"(?![0-9]+/)(?!-)([a-z0-9-]{1,63})(?<!-)"  # the regions that botocore takes: one label of a host's name
_SCOPE = re.compile(rf"AWS4-HMAC-SHA256 Credential=[^/,]+/[0-9]+/{_REGION}/([a-z0-9-]{{1,64}})/aws4_request\b")
_IDLE_SECONDS = 300
_BODY_BYTES_MAX = 8 << 20  # a call has at most 1 MiB, and a form may write each byte of it as three: `%2F`
CONNECTIONS_MAX = 1_000
HOP_BY_HOP_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers that belong to one connection, and so are not passed from one connection to another."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request of a client."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """An HTTP answer.

    Args:
        missing_bytes: by how much the body is shorter than its Content-Length claims. The recording proxy passes on an
            answer that the service cut short, and the client has to see that it is cut.
    """

    status_code: int
    headers: Mapping[str, str]
    body: bytes
    missing_bytes: int = 0


class RefusedError(Exception):
    """The server refuses a request before SQS or SNS sees it; the client gets this error as the answer."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class LoopbackServer:
    """Holds a port from its creation on, and answers requests from `start` to `stop`.

    Args:
        answer: returns the answer to a request. It is called in the connection's thread, and may raise RefusedError.
        port: on the loopback; 0 takes any free port.

    Attributes:
        port: the port it listens on.

    Raises:
        ConfigError: the port is taken.
    """

    def __init__(self, answer: Callable[[Request], WireAnswer], *, port: int) -> None:
        self._answer = answer
        self._server: _Server | None = self._bind(port)
        self.port = int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Return the endpoint URL for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Answer from now on, each connection in its own thread; after `stop` again at the same port."""
        if self._server is None:
            self._server = self._bind(self.port)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        """Take no further request, and close every connection; call it after `start` only."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.stop()

    def _bind(self, port: int) -> "_Server":
        try:
            return _Server(self._answer, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {LOOPBACK}:{port} ({error.strerror}); choose another port") from error


def require_loopback(headers: Message) -> str:
    """Return the server's address as this client wrote it in the Host header.

    A web page could otherwise reach the server: by a host name of the page's own that resolves to the loopback.

    Raises:
        RefusedError: the Host header names something other than the loopback.
    """
    host = headers.get("Host", "")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in HOSTS:
        raise RefusedError(
            403, "AccessDenied", f"the host is {host!r}, allowed are {', '.join(HOSTS)}; use one of them"
        )
    return f"http://{host}"


def signed_region(headers: Message, why: str) -> str:
    """Return the region for which a client signed its request. A web page cannot sign one.

    Args:
        headers: of the request.
        why: the end of the error's text, the reason for which any credentials will do.

    Raises:
        RefusedError: the request is not signed.
    """
    scope = _SCOPE.match(headers.get("Authorization", ""))
    if scope is None:
        raise RefusedError(
            403,
            "MissingAuthenticationToken",
            f"this request has no AWS4-HMAC-SHA256 signature; give the client credentials, of which any will do: {why}",
        )
    return scope[1]


def named_operation(request: Request) -> tuple[str, str]:
    """Return service and operation that a request names; the service is empty if it is neither SQS nor SNS.

    SQS's JSON protocol names the operation in a header. The query protocol names it in a field, `Action`, and the
    service by the version of its API.
    """
    service, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
    if service == "AmazonSQS":
        return "sqs", operation
    fields = dict(parse_qsl(urlsplit(request.path).query)) | form(request)
    return _VERSIONS.get(fields.get("Version", ""), "") if "Action" in fields else "", fields.get("Action", "")


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body, {} for an empty body, None for everything else."""
    try:
        params = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None
    return params if isinstance(params, dict) else None


def form(request: Request) -> dict[str, str]:
    """Return the fields of a form; an empty dict if the body is no form."""
    if request.headers.get_content_type() != "application/x-www-form-urlencoded":
        return {}
    return dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))


def json_answer(result: Mapping[str, Any] | AwsRefusal, request_id: str) -> WireAnswer:
    """Return the model's answer or refusal as SQS writes it."""
    headers = {"x-amzn-RequestId": request_id, "Content-Type": "application/x-amz-json-1.0"}
    if isinstance(result, AwsRefusal):
        body = {"__type": f"com.amazonaws.sqs#{result.shape}", "message": result.text}
        headers["x-amzn-query-error"] = f"{result.code};Sender"
        return WireAnswer(result.status, headers, json.dumps(body).encode())
    return WireAnswer(200, headers, json.dumps(result).encode())


def xml_answer(result: Mapping[str, Any] | AwsRefusal, operation: OperationModel, request_id: str) -> WireAnswer:
    """Return the model's answer or refusal as SNS writes it."""
    headers = {"x-amzn-RequestId": request_id, "Content-Type": "text/xml"}
    if isinstance(result, AwsRefusal):
        body = query_protocol.encode_error(result.code, result.text, request_id)
        return WireAnswer(result.status, headers, body)
    return WireAnswer(200, headers, query_protocol.encode(result, operation, request_id))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Request], WireAnswer], port: int) -> None:
        self.answer = answer
        self._open: set[socket.socket] = set()
        super().__init__((LOOPBACK, port), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 (as it is called)
        """Return whether to accept a connection: not if too many are open; that client then tries again."""
        if len(self._open) >= CONNECTIONS_MAX:
            return False
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: the usual error is a client that went away."""

    def stop(self) -> None:
        """Close the port and every open connection."""
        self.server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    server: _Server

    def do_POST(self) -> None:
        """Read a request, and write its answer or refusal; botocore posts every call."""
        try:
            answer = self.server.answer(Request(self.command, self.path, self.headers, self._body()))
        except RefusedError as refused:
            self._refuse(refused)
        else:
            self._answer(answer)

    do_GET = do_POST  # noqa: N815 (BaseHTTPRequestHandler calls it by this name)

    def _body(self) -> bytes:
        """Read and return the request's body, whose length its headers must say."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self.close_connection = True
            raise RefusedError(411, "MissingContentLength", "the body has no length; send it with Content-Length")
        if int(length) > _BODY_BYTES_MAX:
            self.close_connection = True
            raise RefusedError(
                413, "RequestEntityTooLarge", f"the body has {length} bytes, allowed are {_BODY_BYTES_MAX}; send less"
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            # The client went away: half of a form could be taken for a whole message.
            raise ConnectionAbortedError("the request was cut")
        return body

    def _answer(self, answer: WireAnswer) -> None:
        self.send_response_only(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP_HEADERS:
                self.send_header(name, value)
        self._finish(answer.body, answer.missing_bytes)

    def _refuse(self, refused: RefusedError) -> None:
        self.send_response_only(refused.status)
        self.send_header("x-amzn-query-error", f"{refused.code};{'Receiver' if refused.status >= 500 else 'Sender'}")
        if self.headers.get("X-Amz-Target"):
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            body = json.dumps({"__type": refused.code, "message": str(refused)}).encode()
        else:
            self.send_header("Content-Type", "text/xml")
            body = query_protocol.encode_error(refused.code, str(refused), "refused")
        self._finish(body)

    def _finish(self, body: bytes, missing_bytes: int = 0) -> None:
        """Send the body; with missing bytes, close the connection, so that the client sees that the body is cut."""
        self.send_header("Content-Length", str(len(body) + missing_bytes))
        if missing_bytes or self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (as it is called)
        """Log no request."""
