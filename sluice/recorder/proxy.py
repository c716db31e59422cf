"""A recording proxy: SQS and SNS on the loopback, for programs that are not written in Python.

The proxy signs each request anew, sends it on, and writes the same journal as the recorder inside a Python process. It
never repeats a call by itself. In answers it replaces the addresses of queues by its own, because some SDKs send a
queue's calls to the host of its URL.

A request has to be signed and to name a loopback host. Otherwise a web page could make the proxy sign calls with its
credentials.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode, urlsplit, urlunsplit

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
from sluice.simulator import query_protocol, wire
from sluice.simulator.wire import RefusedError, Request, WireAnswer

AWS = "aws"
"""The endpoint that means AWS's own endpoint of each service and region."""
_UNREADABLE: tuple[type[Exception], ...] = (*UNANSWERED, AttributeError, TypeError)  # also JSON of another shape
_ANY_OF_AWS = "https://sqs.amazonaws.com"  # the HTTP proxy for it, if any, is used for all of AWS
_ANSWER_SECONDS = 90  # a long poll takes up to 20
_ANSWER_BYTES_MAX = 32 << 20  # a receive brings ten messages of 1 MiB, which JSON writes with up to three as well
_URL_IN_XML = re.compile(rb"(?<=<QueueUrl>)https?://[^/<]+")
_OF_A_SIGNATURE = frozenset(("authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"))
_OWN_HEADERS = wire.HOP_BY_HOP_HEADERS | _OF_A_SIGNATURE | {"accept-encoding"}
"""Headers that are not sent on: each connection and each signature has its own.

A header that is set beside the client's is signed with both values and sent with one, and AWS refuses the signature.
"""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a request makes: service, operation and parameters; None for parameters that cannot be read."""

    service: str
    operation: str
    params: dict[str, Any] | None


class RecordingProxy:
    """Listens from its creation on; as a context manager it passes on and records requests inside the `with` block.

    Args:
        recording: the recording of the calls; the caller closes it after the block.
        port: the port to listen on; 0 takes any free one.
        endpoint: the URL to which every request goes, or `AWS`.

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
            max_pool_connections=wire.CONNECTIONS_MAX,
        )
        self._aws_urls: dict[tuple[str, str], str] = {}
        self._one_at_a_time = threading.Lock()
        credentials = self._session.get_credentials()
        if credentials is None:
            raise ConfigError(f"no credentials to sign with; {SET_CREDENTIALS}")
        self._credentials: Credentials = credentials
        self._server = wire.LoopbackServer(self.pass_on, port=port)
        hosts = (f"[{host}]" if ":" in host else host for host in wire.HOSTS)
        self._own = tuple(f"http://{host}:{self._server.port}/" for host in hosts)

    @property
    def url(self) -> str:
        """Return the endpoint URL for clients."""
        return self._server.url

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take no further request. A call that is still under way is recorded as one without an answer."""
        self._server.stop()
        self._http.close()

    def _frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the credentials as they are now; another thread may refresh them meanwhile."""
        try:
            frozen: ReadOnlyCredentials = self._credentials.get_frozen_credentials()
        except (*UNANSWERED, ClientError) as error:
            why = f"no credentials to sign with ({type(error).__name__}); {SET_CREDENTIALS}"
            raise RefusedError(502, "BadGateway", why) from error
        return frozen

    def pass_on(self, request: Request) -> WireAnswer:
        """Send a request to the endpoint, record its call, and return the answer.

        Raises:
            RefusedError: the request is no signed call of SQS or SNS, the credentials have expired, or the endpoint did
                not answer.
        """
        origin, region = (
            wire.require_loopback(request.headers),
            wire.signed_region(request.headers, "this proxy of `sluice record` signs with its own"),
        )
        call = self._call(request)
        target = self._target(call.service, region)
        body = _with_queue_url(call, request, lambda url: self._to_target_url(url, target))
        sent = AWSRequest(
            method=request.method,
            url=_join_path(target, request.path),
            headers={name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS},
            data=body,
            stream_output=True,
        )
        SigV4Auth(self._frozen_credentials(), call.service, region).add_auth(sent)
        sent.headers["Accept-Encoding"] = "identity"
        try:
            return self._record(call, lambda: self._send(sent, origin))
        except BotoCoreError as error:
            raise RefusedError(502, "BadGateway", f"the endpoint did not answer ({type(error).__name__})") from error

    def _call(self, request: Request) -> _Call:
        """Return the call that a request makes; refuse other services than SQS and SNS."""
        service, operation = wire.named_operation(request)
        if not service:
            raise RefusedError(
                501,
                "NotImplemented",
                "this proxy of `sluice record` speaks SQS and SNS; lead other services past it, with"
                " AWS_ENDPOINT_URL_SQS and AWS_ENDPOINT_URL_SNS instead of AWS_ENDPOINT_URL",
            )
        if "X-Amz-Target" in request.headers:
            return _Call(service, operation, wire.json_object(request.body))
        params = None
        if service == "sns" and operation in OPERATIONS["sns"]:
            with suppress(KeyError, ValueError):  # SNS refuses it
                params = query_protocol.decode(request.body, self._models["sns"].operation_model(operation))
        return _Call(service, operation, params)

    def _target(self, service: str, region: str) -> str:
        """Return the URL of the endpoint to which a service's requests go."""
        if self._endpoint != AWS:
            return self._endpoint
        with self._one_at_a_time:  # a session makes one client at a time
            if (service, region) not in self._aws_urls:
                client = self._session.create_client(service, region_name=region)
                self._aws_urls[service, region] = client.meta.endpoint_url
        return self._aws_urls[service, region]

    def _to_target_url(self, url: str, target: str) -> str:
        """Return the URL of a queue at the endpoint, for its URL at this proxy; any other URL is returned unchanged."""
        own = next((own for own in self._own if url.startswith(own)), None)
        return url if own is None else f"{_origin_of(target)}/{url.removeprefix(own)}"

    def _record(self, call: _Call, send: Callable[[], WireAnswer]) -> WireAnswer:
        """Call `send`, which sends the call, record the call and its answer, and return the answer."""
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
            parsed = self._parse(call.service, answer, operation)
        except _UNREADABLE as error:
            self.recording.lose(begun, type(error).__name__)
        else:
            self.recording.end(begun, answer.status_code, parsed)
        return answer

    def _parse(self, service: str, answer: WireAnswer, operation: OperationModel) -> Mapping[str, Any]:
        """Return an answer as botocore parses it."""
        headers = HeadersDict(answer.headers)
        parser = create_parser(self._models[service].protocol)
        parsed: Mapping[str, Any] = parser.parse(
            {"status_code": answer.status_code, "headers": headers, "body": answer.body}, operation.output_shape
        )
        return parsed

    def _send(self, request: AWSRequest, origin: str) -> WireAnswer:
        """Send a signed request, and return the answer, in which queues have URLs at `origin`, this proxy.

        Raises:
            BotoCoreError: the endpoint did not answer, or the answer was lost or is too large.
        """
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
        return WireAnswer(
            response.status_code, response.headers, body if missing else _to_proxy_urls(body, origin), missing
        )


def _origin_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _join_path(target: str, path: str) -> str:
    """Return the URL of a request's path at the endpoint; the endpoint's own path, if any, comes first."""
    parts, own = urlsplit(target), urlsplit(path)
    return urlunsplit((parts.scheme, parts.netloc, (parts.path.rstrip("/") + own.path) or "/", own.query, ""))


def _with_queue_url(call: _Call, request: Request, to_target: Callable[[str], str]) -> bytes:
    """Return the request's body with the queue's URL at the endpoint, which `to_target` returns for its present URL."""
    is_json = "X-Amz-Target" in request.headers
    params = (call.params or {}) if is_json else wire.form(request)
    url = params.get("QueueUrl")
    if not isinstance(url, str) or to_target(url) == url:
        return request.body
    params["QueueUrl"] = to_target(url)
    return json.dumps(params).encode() if is_json else urlencode(params).encode()


def _to_proxy_urls(body: bytes, origin: str) -> bytes:
    """Return an answer's body with the proxy's origin in the URLs of queues."""
    if b"<QueueUrl>" in body:
        return _URL_IN_XML.sub(origin.encode(), body)
    answer = wire.json_object(body) if b"ueueUrl" in body else None
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
    """Return the parameters as a boto3 client has them; None if it would refuse them, or a journal cannot hold them.

    Parameters that botocore's model does not know are left out.
    """
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
    """Return whether a journal can hold each integer in a value: less than 2**31, and no true or false."""
    if isinstance(value, Mapping):
        return all(map(_are_numbers_small, value.values()))
    if isinstance(value, list):
        return all(map(_are_numbers_small, value))
    return not isinstance(value, int) or (not isinstance(value, bool) and abs(value) < 1 << 31)
