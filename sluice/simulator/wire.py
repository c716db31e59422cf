"""HTTP of SQS and SNS from the service's side, on the loopback: a request is read, an answer is written.

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
_REGION = r"(?![0-9]+/)(?!-)([a-z0-9-]{1,63})(?<!-)"  # as botocore has them: labels of a host's name
_SCOPE = re.compile(rf"AWS4-HMAC-SHA256 Credential=[^/,]+/[0-9]+/{_REGION}/([a-z0-9-]{{1,64}})/aws4_request\b")
_IDLE_SECONDS = 300
_BODY_BYTES_MAX = 8 << 20  # SQS takes 1 MiB in a call, which a form writes with up to three bytes for each
CONNECTIONS_MAX = 1_000
OF_A_CONNECTION = frozenset(
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
"""Headers that are not of a message: each connection has its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """An answer as it is sent; `missing_bytes` is by how much its body is shorter than it says."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes
    missing_bytes: int = 0


class RefusedError(Exception):
    """A request is not answered as SQS or SNS would; the client is given this error instead."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class LoopbackServer:
    """Holds a port from its creation, and answers from `start` to `stop`.

    Args:
        answer: called in the connection's thread. It may raise Refused.
        port: 0 takes any that is free.

    Attributes:
        port: where it listens.

    Raises:
        ConfigError: the port is taken.
    """

    def __init__(self, answer: Callable[[Request], WireAnswer], *, port: int) -> None:
        self._answer = answer
        self._server: _Server | None = self._bind_request(port)
        self.port = int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Return where clients are to send their requests."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Answer from now on, in threads of its own; after `stop` at the same port."""
        if self._server is None:
            self._server = self._bind_request(self.port)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        """Take no further request, and close every connection; to be called after `start`."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.stop()

    def _bind_request(self, port: int) -> "_Server":
        try:
            return _Server(self._answer, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {LOOPBACK}:{port} ({error.strerror}); choose another port") from error


def require_loopback(headers: Message) -> str:
    """Return the server's own address, as this client wrote it.

    A web page could otherwise call it by a name of its own that leads to the loopback.

    Raises:
        Refused: the client named a host that is none of the loopback.
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
    """Return the region for which a client signed its request. A web page cannot sign.

    Args:
        headers: of the request.
        why: any credentials will do.

    Raises:
        Refused: it is not signed.
    """
    found = _SCOPE.match(headers.get("Authorization", ""))
    if found is None:
        raise RefusedError(
            403,
            "MissingAuthenticationToken",
            f"this request has no AWS4-HMAC-SHA256 signature; give the client credentials, of which any will do: {why}",
        )
    return found[1]


def named_operation(request: Request) -> tuple[str, str]:
    """Return service and operation of a request; the service is empty where it is neither SQS nor SNS."""
    service, _, operation = request.headers.get("X-Amz-Target", "").partition(".")
    if service == "AmazonSQS":
        return "sqs", operation
    fields = dict(parse_qsl(urlsplit(request.path).query)) | form(request)
    return _VERSIONS.get(fields.get("Version", ""), "") if "Action" in fields else "", fields.get("Action", "")


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return the object that JSON holds, None where it holds none."""
    try:
        params = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None
    return params if isinstance(params, dict) else None


def form(request: Request) -> dict[str, str]:
    """Return the fields of a form; none where the body is no form."""
    if request.headers.get_content_type() != "application/x-www-form-urlencoded":
        return {}
    return dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))


def json_answer(answered: Mapping[str, Any] | AwsRefusal, request_id: str) -> WireAnswer:
    """Return a model's answer as SQS writes it."""
    headers = {"x-amzn-RequestId": request_id, "Content-Type": "application/x-amz-json-1.0"}
    if isinstance(answered, AwsRefusal):
        body = {"__type": f"com.amazonaws.sqs#{answered.shape}", "message": answered.text}
        headers["x-amzn-query-error"] = f"{answered.code};Sender"
        return WireAnswer(answered.status, headers, json.dumps(body).encode())
    return WireAnswer(200, headers, json.dumps(answered).encode())


def xml_answer(answered: Mapping[str, Any] | AwsRefusal, operation: OperationModel, request_id: str) -> WireAnswer:
    """Return a model's answer as SNS writes it."""
    headers = {"x-amzn-RequestId": request_id, "Content-Type": "text/xml"}
    if isinstance(answered, AwsRefusal):
        body = query_protocol.encode_error(answered.code, answered.text, request_id)
        return WireAnswer(answered.status, headers, body)
    return WireAnswer(200, headers, query_protocol.encode(answered, operation, request_id))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Request], WireAnswer], port: int) -> None:
        self.answer = answer
        self._open: set[socket.socket] = set()
        super().__init__((LOOPBACK, port), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 (as it is called)
        """Take a connection unless there are too many: its client tries again."""
        if len(self._open) >= CONNECTIONS_MAX:
            return False
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client went away."""

    def stop(self) -> None:
        """Close everything."""
        self.server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    server: _Server

    def do_POST(self) -> None:
        """Answer a call."""
        try:
            answer = self.server.answer(Request(self.command, self.path, self.headers, self._body()))
        except RefusedError as refused:
            self._refuse(refused)
        else:
            self._answer(answer)

    do_GET = do_POST  # noqa: N815 (as it has to be called)

    def _body(self) -> bytes:
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
            raise ConnectionAbortedError("the request was cut")  # half a form would publish half a message
        return body

    def _answer(self, answer: WireAnswer) -> None:
        self.send_response_only(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in OF_A_CONNECTION:
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
        """Send the body; one that was cut short is so here, too, and the connection ends."""
        self.send_header("Content-Length", str(len(body) + missing_bytes))
        if missing_bytes or self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (as it is called)
        """Say nothing."""
