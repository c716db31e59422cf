"""A recording proxy: SQS and SNS on the loopback, for programs that are not written in Python.

It sends each request on as it came, signed anew, and writes what the in-process recorder would have written of it. It
repeats nothing: a client that tries again makes another call. In answers the addresses of queues lead back to it,
because some SDKs send a queue's calls to the host of its URL.

Each connection has a thread, so that a long poll delays no other connection. A request has to be signed and to name a
loopback host: a web page could otherwise have the proxy sign calls with the credentials of whoever started it.

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
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import botocore.session
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest, HeadersDict
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    ParamValidationError,
    ResponseStreamingError,
)
from botocore.httpsession import URLLib3Session
from botocore.model import OperationModel
from botocore.parsers import create_parser
from botocore.utils import get_environ_proxies
from botocore.validate import validate_parameters

from sluice.errors import SET_CREDENTIALS, ConfigError
from sluice.recorder.recorder import CUT, NO_EFFECT
from sluice.recorder.recording import Recording
from sluice.recorder.rows import OPERATIONS
from sluice.sdk import CONNECT_SECONDS, UNANSWERED
from sluice.simulator import query_protocol

LOOPBACK = "127.0.0.1"
AWS = "aws"
"""Stands for AWS's own endpoint, of each service and region."""
_UNREADABLE: tuple[type[Exception], ...] = (*UNANSWERED, AttributeError, TypeError)  # also JSON of another shape
_ANY_OF_AWS = "https://sqs.amazonaws.com"  # which way out leads to all of it
_HOSTS = (LOOPBACK, "localhost", "::1")
_ANSWER_SECONDS = 90  # a long poll takes up to 20
_IDLE_SECONDS = 300
_CONNECTIONS_MAX = 1_000
_BODY_BYTES_MAX = 8 << 20  # SQS takes 1 MiB in a call, which a form writes with up to three bytes for each
_ANSWER_BYTES_MAX = 32 << 20  # a receive brings ten messages of 1 MiB, which JSON writes with up to three as well
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/,]+/[0-9]+/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/aws4_request\b")
_VERSIONS = {"2010-03-31": "sns", "2012-11-05": "sqs"}
_URL_IN_XML = re.compile(rb"(?<=<QueueUrl>)https?://[^/<]+")
_OF_A_CONNECTION = frozenset(
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
_OF_A_SIGNATURE = frozenset(("authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"))
_OWN_HEADERS = _OF_A_CONNECTION | _OF_A_SIGNATURE
"""Headers that are not sent on: each connection and each signature has its own."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What a request says: its service and operation, and its parameters; None where they cannot be read."""

    service: str
    operation: str
    params: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an endpoint answered; `missing_bytes` is by how much its body is shorter than it says."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes
    missing_bytes: int


class _Refused(Exception):
    """The proxy does not send this request on."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class RecordingProxy:
    """Listens from its creation to its end, as a context manager.

    Args:
        recording: where calls are written; the caller closes it, after the proxy has ended.
        port: 0 takes any that is free.
        endpoint: URL to which every request goes, or AWS.

    Raises:
        ConfigError: there are no credentials, or the port is taken.
    """

    def __init__(self, recording: Recording, *, port: int, endpoint: str) -> None:
        self.recording, self._endpoint = recording, endpoint
        self._session = botocore.session.get_session()
        self._models = {service: self._session.get_service_model(service) for service in OPERATIONS}
        self._http = URLLib3Session(
            verify=self._session.get_config_variable("ca_bundle") or True,
            proxies=get_environ_proxies(_ANY_OF_AWS if endpoint == AWS else endpoint),
            timeout=(CONNECT_SECONDS, _ANSWER_SECONDS),
            max_pool_connections=_CONNECTIONS_MAX,
        )
        self._aws_urls: dict[tuple[str, str], str] = {}
        self._one_at_a_time = threading.Lock()
        credentials = self._session.get_credentials()
        if credentials is None:
            raise ConfigError(f"no credentials to sign with; {SET_CREDENTIALS}")
        self._credentials: Credentials = credentials
        try:
            self._server = _Server(self, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {LOOPBACK}:{port} ({error.strerror}); choose another port") from error
        hosts = (f"[{host}]" if ":" in host else host for host in _HOSTS)
        self._own = tuple(f"http://{host}:{self._server.server_address[1]}/" for host in hosts)

    @property
    def url(self) -> str:
        """Return where clients are to send their requests."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take no further request. A call that is still running is on record as one without an answer."""
        self._server.shutdown()
        self._server.stop()
        self._http.close()

    def _frozen_credentials(self) -> ReadOnlyCredentials:
        """Return a key with its own secret: another thread may refresh them meanwhile."""
        try:
            frozen: ReadOnlyCredentials = self._credentials.get_frozen_credentials()
        except (*UNANSWERED, ClientError) as error:
            why = f"no credentials to sign with ({type(error).__name__}); {SET_CREDENTIALS}"
            raise _Refused(502, "BadGateway", why) from error
        return frozen

    def pass_on(self, method: str, path: str, headers: Message, body: bytes) -> _Answer:
        """Send a request on, write it down, and return its answer.

        Raises:
            _Refused: it is no signed call of SQS or SNS, or there are no credentials any more.
            BotoCoreError: it has no answer.
        """
        origin, region = _origin(headers), _region(headers)
        call = self._call(path, headers, body)
        target = self._target(call.service, region)
        body = _with_queue_url(call, body, headers, lambda url: self._led_on(url, target))
        request = AWSRequest(
            method=method,
            url=_joined(target, path),
            headers={name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS},
            data=body,
            stream_output=True,
        )
        request.headers["Accept-Encoding"] = "identity"
        SigV4Auth(self._frozen_credentials(), call.service, region).add_auth(request)
        return self._record(call, lambda: self._send(request, origin))

    def _call(self, path: str, headers: Message, body: bytes) -> _Call:
        service, _, operation = headers.get("X-Amz-Target", "").partition(".")
        if service == "AmazonSQS":
            return _Call("sqs", operation, _json_object(body))
        form = dict(parse_qsl(urlsplit(path).query)) | _form(headers, body)
        named = _VERSIONS.get(form.get("Version", ""))
        if named is None or "Action" not in form:
            raise _Refused(
                501,
                "NotImplemented",
                "this proxy of `sluice record` speaks SQS and SNS; lead other services past it, with"
                " AWS_ENDPOINT_URL_SQS and AWS_ENDPOINT_URL_SNS instead of AWS_ENDPOINT_URL",
            )
        params = None
        if named == "sns" and form["Action"] in OPERATIONS["sns"]:
            with suppress(KeyError, ValueError):  # SNS refuses it
                params = query_protocol.decode(body, self._models["sns"].operation_model(form["Action"]))
        return _Call(named, form["Action"], params)

    def _target(self, service: str, region: str) -> str:
        if self._endpoint != AWS:
            return self._endpoint
        with self._one_at_a_time:  # a session makes one client at a time
            if (service, region) not in self._aws_urls:
                client = self._session.create_client(service, region_name=region)
                self._aws_urls[service, region] = client.meta.endpoint_url
        return self._aws_urls[service, region]

    def _led_on(self, url: str, target: str) -> str:
        """Return the endpoint's address of a queue for the proxy's; any other as it is."""
        own = next((own for own in self._own if url.startswith(own)), None)
        return url if own is None else f"{_origin_of(target)}/{url.removeprefix(own)}"

    def _record(self, call: _Call, send: Callable[[], _Answer]) -> _Answer:
        """Return what `send` does, with the call on record."""
        if call.operation not in OPERATIONS[call.service]:
            return send()
        operation = self._models[call.service].operation_model(call.operation)
        params = _valid(call.params, operation)
        if params is None:
            answer = send()
            if answer.status_code < 300:
                self.recording.note_unseen(f"{call.operation} in a form that the proxy does not read")
            return answer
        begun = self.recording.begin(service=call.service, operation=call.operation, params=params)
        try:
            answer = send()
        except BotoCoreError as error:
            self.recording.lose(begun, type(error).__name__, never_left=isinstance(error, NO_EFFECT))
            raise
        if answer.missing_bytes:
            self.recording.lose(begun, CUT)
            return answer
        try:
            parsed = self._parsed(call.service, answer, operation)
        except _UNREADABLE as error:
            self.recording.lose(begun, type(error).__name__)
        else:
            self.recording.end(begun, answer.status_code, parsed)
        return answer

    def _parsed(self, service: str, answer: _Answer, operation: OperationModel) -> Mapping[str, Any]:
        headers = HeadersDict(answer.headers)
        parser = create_parser(self._models[service].protocol)
        parsed: Mapping[str, Any] = parser.parse(
            {"status_code": answer.status_code, "headers": headers, "body": answer.body}, operation.output_shape
        )
        return parsed

    def _send(self, request: AWSRequest, origin: str) -> _Answer:
        response = self._http.send(request.prepare())
        try:
            body = response.raw.read(_ANSWER_BYTES_MAX + 1)
            if len(body) > _ANSWER_BYTES_MAX:
                raise HTTPClientError(error=f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
            response.raw.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ResponseStreamingError(error=error) from error
        finally:
            response.raw.close()
        length = response.headers.get("content-length", "")
        missing = int(length) - len(body) if length.isdecimal() else 0
        return _Answer(response.status_code, response.headers, body if missing else _led_back(body, origin), missing)


def _region(headers: Message) -> str:
    """Return the region for which a client signed its request."""
    found = _SCOPE.match(headers.get("Authorization", ""))
    if found is None:
        raise _Refused(
            403,
            "MissingAuthenticationToken",
            "this request has no AWS4-HMAC-SHA256 signature; give the client credentials, of which any will do: this"
            " proxy of `sluice record` signs with its own",
        )
    return found[1]


def _origin(headers: Message) -> str:
    """Return the proxy's own address, as this client wrote it."""
    host = headers.get("Host", "")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name not in _HOSTS:
        raise _Refused(403, "AccessDenied", f"the host is {host!r}, allowed are {', '.join(_HOSTS)}; use one of them")
    return f"http://{host}"


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _joined(target: str, path: str) -> str:
    """Return the address of a path at the endpoint, which may have a path of its own."""
    parts, own = urlsplit(target), urlsplit(path)
    return urlunsplit((parts.scheme, parts.netloc, (parts.path.rstrip("/") + own.path) or "/", own.query, ""))


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        params = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None
    return params if isinstance(params, dict) else None


def _form(headers: Message, body: bytes) -> dict[str, str]:
    if headers.get_content_type() != "application/x-www-form-urlencoded":
        return {}
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _with_queue_url(call: _Call, body: bytes, headers: Message, led_on: Callable[[str], str]) -> bytes:
    """Return the request's body with the endpoint's address of the queue."""
    is_json = "X-Amz-Target" in headers
    params = (call.params or {}) if is_json else _form(headers, body)
    url = params.get("QueueUrl")
    if not isinstance(url, str) or led_on(url) == url:
        return body
    params["QueueUrl"] = led_on(url)
    return json.dumps(params).encode() if is_json else urlencode(params).encode()


def _led_back(body: bytes, origin: str) -> bytes:
    """Return an answer with the proxy's address in the URLs of queues."""
    if b"<QueueUrl>" in body:
        return _URL_IN_XML.sub(origin.encode(), body)
    answer = _json_object(body) if b"ueueUrl" in body else None
    if answer is None:
        return body
    for name in ("QueueUrl", "QueueUrls", "queueUrls"):
        if isinstance(answer.get(name), str):
            answer[name] = _with_origin(answer[name], origin)
        elif isinstance(answer.get(name), list):
            answer[name] = [_with_origin(str(url), origin) for url in answer[name]]
    return json.dumps(answer).encode()


def _with_origin(url: str, origin: str) -> str:
    return origin + url.removeprefix(_origin_of(url))


def _valid(params: Mapping[str, Any] | None, operation: OperationModel) -> dict[str, Any] | None:
    """Return the parameters that botocore's model has, as those of a boto3 client; None where it would refuse them."""
    if params is None or operation.input_shape is None:
        return None
    known = {name: value for name, value in params.items() if name in operation.input_shape.members}
    try:
        validate_parameters(known, operation.input_shape)
        json.dumps(known, ensure_ascii=False).encode()  # JSON can have half a pair of UTF-16, which is no text
    except (ParamValidationError, UnicodeEncodeError):
        return None
    return known if _are_numbers_small(known) else None


def _are_numbers_small(value: object) -> bool:
    """Return whether a journal can hold every number: SQS takes no larger ones, and no truth for one."""
    if isinstance(value, Mapping):
        return all(map(_are_numbers_small, value.values()))
    if isinstance(value, list):
        return all(map(_are_numbers_small, value))
    return not isinstance(value, int) or (not isinstance(value, bool) and abs(value) < 1 << 31)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: RecordingProxy, port: int) -> None:
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        super().__init__((LOOPBACK, port), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 (as it is called)
        """Take a connection unless there are too many: its client tries again."""
        if len(self._open) >= _CONNECTIONS_MAX:
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
            answer = self.server.proxy.pass_on(self.command, self.path, self.headers, self._body())
        except _Refused as refused:
            self._refuse(refused.status, refused.code, str(refused))
        except BotoCoreError as error:
            self._refuse(502, "BadGateway", f"the endpoint did not answer ({type(error).__name__})")
        else:
            self._answer(answer)

    do_GET = do_POST  # noqa: N815 (as it has to be called)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self.close_connection = True
            raise _Refused(411, "MissingContentLength", "the body has no length; send it with Content-Length")
        if int(length) > _BODY_BYTES_MAX:
            self.close_connection = True
            raise _Refused(
                413, "RequestEntityTooLarge", f"the body has {length} bytes, allowed are {_BODY_BYTES_MAX}; send less"
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionAbortedError("the request was cut")  # half a form would publish half a message
        return body

    def _answer(self, answer: _Answer) -> None:
        self.send_response_only(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        self._finish(answer.body, answer.missing_bytes)

    def _refuse(self, status: int, code: str, text: str) -> None:
        self.send_response_only(status)
        self.send_header("x-amzn-query-error", f"{code};{'Receiver' if status >= 500 else 'Sender'}")
        if self.headers.get("X-Amz-Target"):
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            body = json.dumps({"__type": code, "message": text}).encode()
        else:
            self.send_header("Content-Type", "text/xml")
            body = query_protocol.encode_error(code, text, "proxy")
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
