"""A boto3 client of SQS or SNS whose hot calls cost a tenth; they answer, and fail, exactly as botocore's.

A call goes its own way only where that makes no difference: it is tried once, nobody listens to it, and everything
about it is known here. Otherwise, and for every answer that is not a plain success, botocore does the call: what came
from the network is handed to it, and it parses, raises and counts as ever.

Of the requests, two headers are left out, which say to AWS how often it was tried: `amz-sdk-request` and
`amz-sdk-invocation-id`.
"""

import copy
import http.client
import io
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import botocore.client
import botocore.endpoint
import botocore.httpsession
from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.utils import normalize_url_path
from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.exceptions import ProtocolError
from urllib3.exceptions import ReadTimeoutError as URLLib3ReadTimeoutError

from sluice.aws import codec
from sluice.aws.connections import Answered, Connections, NotConnected, Route, Stream
from sluice.aws.signing import Keys, Signer
from sluice.clock import wall_us

OPERATIONS = (
    *("PublishBatch", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"),
    *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
)
_EVENTS = (
    *("provide-client-params", "before-parameter-build", "before-endpoint-resolution", "before-call"),
    *("request-created", "choose-signer", "before-sign", "before-send", "response-received", "before-parse"),
    *("needs-retry", "after-call", "after-call-error"),
)
_KNOWN_LISTENERS = frozenset(
    {
        "botocore.handlers._handle_request_validation_mode_member",
        "botocore.handlers._handle_sqs_compatible_error",
        "botocore.handlers._set_auth_scheme_preference_signer",
        "botocore.handlers.add_recursion_detection_header",
        "botocore.handlers.add_retry_headers",
        "botocore.handlers.generate_idempotent_uuid",
        "botocore.handlers.inject_api_version_header_if_needed",
        "botocore.handlers.set_operation_specific_signer",
        "botocore.retries.standard.MaxAttemptsSeeder.seed_max_attempts",
        "botocore.retries.standard.RetryHandler.needs_retry",
        "botocore.retries.standard.RetryQuotaChecker.release_retry_quota",
        "botocore.retryhandler.RetryHandler.__call__",
        "botocore.signers.RequestSigner.handler",
        "botocore.useragent.UserAgentString.rebuild_and_replace_user_agent_handler",
    }
)
"""What botocore itself registers, and what these calls do likewise, or need not at one try."""
_PATCHABLE = (
    (botocore.client.BaseClient, "_make_api_call"),
    (botocore.client.BaseClient, "_make_request"),
    (botocore.endpoint.Endpoint, "make_request"),
    (botocore.endpoint.Endpoint, "create_request"),
    (botocore.endpoint.Endpoint, "prepare_request"),
    (botocore.endpoint.Endpoint, "_send"),
    (botocore.httpsession.URLLib3Session, "send"),
)
"""What instrumentation wraps, at any time."""
_BOTOCORE = Path(botocore.client.__file__).parent
_FOLD = re.compile(r"\r?\n[ \t]*")
"""What stands in a header that goes on in the next line."""
_logger = logging.getLogger("botocore")
_classes: dict[type, type] = {}


def fast_client(client: Any) -> Any:
    """Return this boto3 client, with hot calls that cost less; everything about it stays as it is.

    Hot are the batch calls of sending and publishing, and what is done with a message that is received. A client of
    another service, or configured in a way that is not known here, stays what it was.
    """
    kind = type(client)
    if not isinstance(client, botocore.client.BaseClient) or issubclass(kind, _FastClient):
        return client
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (_FastClient, kind), {"__module__": kind.__module__})
    try:
        client._sluice_calls = _Calls(client)  # noqa: SLF001 (ours, on botocore's object)
    except (codec.Unusual, AttributeError, KeyError, TypeError):
        return client
    client.__class__ = _classes[kind]
    return client


def is_fast(client: Any, operation: str) -> bool:
    """Return whether a call of that name, such as `PublishBatch`, would go its own way now."""
    return isinstance(client, _FastClient) and client._sluice_calls.find(operation) is not None  # noqa: SLF001 (ours)


class _FastClient:
    """The class put in front of a client's own."""

    _sluice_calls: "_Calls"

    def _make_api_call(self, operation_name: str, api_params: dict[str, Any]) -> Any:
        call = self._sluice_calls.find(operation_name)
        if call is None:
            return super()._make_api_call(operation_name, api_params)  # type: ignore[misc] # botocore's
        try:
            request = call.signer.request(call.encode(api_params))
        except codec.Unusual:
            return super()._make_api_call(operation_name, api_params)  # type: ignore[misc]
        try:
            answered = call.connections.post(request)
        except (OSError, NotConnected) as error:
            return _replayed(self, operation_name, api_params, error)
        if isinstance(answered, Answered) and answered.status == http.client.OK:
            try:
                return call.decode(answered.body, answered.headers)
            except codec.Unusual:
                pass
        return _replayed(self, operation_name, api_params, answered)

    def close(self) -> None:
        """Close every connection."""
        self._sluice_calls.close()
        super().close()  # type: ignore[misc]


class _Call(NamedTuple):
    """One operation, compiled."""

    encode: Callable[[Mapping[str, Any]], bytes]
    decode: Callable[[bytes, Mapping[str, str]], dict[str, Any]]
    signer: Signer
    connections: Connections


class _Calls:
    """The hot calls of one client, and whether they may be used now."""

    def __init__(self, client: Any) -> None:
        self._service_id = client.meta.service_model.service_id.hyphenize()
        self._events = client.meta.events._emitter  # noqa: SLF001 (nothing public says who listens)
        self._credentials = client._request_signer._credentials  # noqa: SLF001
        self._looked_at: object = None
        self._allowed: dict[str, _Call] = {}
        _check_config(client)
        url = _endpoint_url(client)
        self._connections = Connections(
            _route(url, client._endpoint.http_session),  # noqa: SLF001
            idle_max=client.meta.config.max_pool_connections,
        )
        names = [name for name in client.meta.service_model.operation_names if name in OPERATIONS]
        self._calls = {name: self._compiled(client, name, url) for name in names}

    def _compiled(self, client: Any, name: str, url: str) -> _Call:
        operation = client.meta.service_model.operation_model(name)
        signer = Signer(
            service=client._request_signer.signing_name,  # noqa: SLF001
            region=client._request_signer.region_name,  # noqa: SLF001
            host=_host(url),
            path=urlsplit(url).path or "/",
            headers=codec.request_headers(operation),
            unsigned_headers=(
                ("user-agent", client._user_agent_creator.to_string()),  # noqa: SLF001
                ("accept-encoding", "identity"),
            ),
            keys=self._keys,
            now_us=wall_us,
        )
        # Of a single try botocore's newer way of retrying says so.
        is_last: dict[str, Any] = {} if client.meta.config.retries["mode"] == "legacy" else {"MaxAttemptsReached": True}
        decode = codec.answer(operation, is_last | {"RetryAttempts": 0})
        return _Call(codec.request_body(operation), decode, signer, self._connections)

    def _keys(self) -> Keys:
        frozen = self._credentials.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    def find(self, operation: str) -> _Call | None:
        """Return the call; None where botocore has to do it."""
        # botocore replaces this cache whenever a listener comes or goes.
        if self._events._lookup_cache is not self._looked_at:  # noqa: SLF001
            self._look()
        call = self._allowed.get(operation)
        return None if call is None or _is_patched() or _logger.isEnabledFor(logging.DEBUG) else call

    def _look(self) -> None:
        looked_at = self._events._lookup_cache  # noqa: SLF001
        self._allowed = {name: call for name, call in self._calls.items() if not self._is_heard(name)}
        self._looked_at = looked_at

    def _is_heard(self, operation: str) -> bool:
        listeners = (
            listener
            for event in _EVENTS
            for listener in self._events._handlers.prefix_search(f"{event}.{self._service_id}.{operation}")  # noqa: SLF001
        )
        return any(_listener_name(listener) not in _KNOWN_LISTENERS for listener in listeners)

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()


def _listener_name(listener: Any) -> str:
    named = listener if hasattr(listener, "__qualname__") else type(listener).__call__
    return f"{named.__module__}.{named.__qualname__}"


def _is_patched() -> bool:
    return any(getattr(owner, name) is not original for owner, name, original in _ORIGINALS)


def _originals() -> list[tuple[type, str, Any]]:
    """Return botocore's own functions; of one that is wrapped already, nothing that it could be."""
    originals = []
    for owner, name in _PATCHABLE:
        found = vars(owner)[name]
        is_own = type(found) is FunctionType and Path(found.__code__.co_filename).parent == _BOTOCORE
        originals.append((owner, name, found if is_own else None))
    return originals


_ORIGINALS = _originals()


def _check_config(client: Any) -> None:
    """Refuse a configuration that these calls would not follow."""
    config, session, signer = client.meta.config, client._endpoint.http_session, client._request_signer  # noqa: SLF001
    retries = config.retries or {}
    is_known = (
        retries.get("total_max_attempts") == 1
        and retries.get("mode") in ("legacy", "standard")
        and type(session) is botocore.httpsession.URLLib3Session
        and session._cert_file is None  # noqa: SLF001
        and signer._signature_version == "v4"  # noqa: SLF001
        and signer._auth_token is None  # noqa: SLF001
        and config.auth_scheme_preference is None
        and signer._credentials is not None  # noqa: SLF001
        and "AWS_LAMBDA_FUNCTION_NAME" not in os.environ  # whose calls carry a header against recursion
    )
    if not is_known:
        raise codec.Unusual


def _endpoint_url(client: Any) -> str:
    """Return where the hot calls go; raise Unusual where that hangs on their parameters, or on a proxy.

    Of a path with what is signed otherwise than it is written, `//` or `..` or what has to be escaped, too.
    """
    urls = set()
    for name in client.meta.service_model.operation_names:
        if name in OPERATIONS:
            operation = client.meta.service_model.operation_model(name)
            context = {"client_region": client.meta.region_name, "client_config": client.meta.config}
            url, headers, properties = client._resolve_endpoint_ruleset(operation, {}, context)  # noqa: SLF001
            if headers or properties or operation.static_context_parameters or operation.context_parameters:
                raise codec.Unusual
            urls.add(url)
    proxy_of = client._endpoint.http_session._proxy_config.proxy_url_for  # noqa: SLF001
    url = urls.pop() if len(urls) == 1 else ""
    if urls or not url.startswith(("http://", "https://")) or urlsplit(url).query or proxy_of(url) is not None:
        raise codec.Unusual
    path = urlsplit(url).path or "/"
    if normalize_url_path(path) != path or quote(path, safe="/~%") != path:
        raise codec.Unusual
    return url


_PORTS = {"https": 443, "http": 80}


def _host(url: str) -> str:
    parts = urlsplit(url)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return name if parts.port in (None, _PORTS[parts.scheme]) else f"{name}:{parts.port}"


def _route(url: str, session: Any) -> Route:
    """Return where a client's HTTP session goes, and with its timeouts and its trust."""
    parts = urlsplit(url)
    timeout = session._timeout  # noqa: SLF001
    return Route(
        host=parts.hostname or "",
        port=parts.port or _PORTS[parts.scheme],
        connect_seconds=timeout.connect_timeout,
        answer_seconds=timeout.read_timeout,
        tls=_tls(verify=session._verify) if parts.scheme == "https" else None,  # noqa: SLF001
        socket_options=session._socket_options,  # noqa: SLF001
    )


def _tls(*, verify: bool | str) -> ssl.SSLContext:
    """Return botocore's own trust: Python's default also refuses roots that lack what RFC 5280 asks for.

    Raises:
        Unusual: the certificates cannot be read, which botocore reports at a call.
    """
    context: ssl.SSLContext = botocore.httpsession.create_urllib3_context()
    if not verify:
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context.load_verify_locations(botocore.httpsession.get_cert_path(verify))
    except OSError as error:
        raise codec.Unusual from error
    context.check_hostname = True
    return context


type _Came = Answered | Stream | OSError | NotConnected
"""Of a request: its answer, or why there is none."""


def _replayed(client: Any, operation: str, params: dict[str, Any], came: _Came) -> Any:
    """Return, or raise, what botocore makes of what came."""
    twin: Any = object.__new__(type(client).__mro__[2])  # copy.copy looks for what a client then looks for at AWS
    vars(twin).update(vars(client))
    twin._endpoint = copy.copy(client._endpoint)  # noqa: SLF001
    twin._endpoint.http_session = _Replay(came)  # noqa: SLF001
    return twin._make_api_call(operation, params)  # noqa: SLF001


class _Replay:
    """An HTTP session to which an answer came already; it raises what botocore's own would raise."""

    def __init__(self, came: _Came) -> None:
        self._came = came

    def send(self, request: Any) -> AWSResponse:
        """Return what came, as if it were the answer to this request."""
        try:
            return _response(request.url, self._came)
        except NotConnected as error:
            raise _not_connected(request.url, error.__cause__) from error
        except ssl.SSLError as error:
            raise SSLError(endpoint_url=request.url, error=error) from error
        except (TimeoutError, URLLib3ReadTimeoutError) as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (OSError, http.client.HTTPException, ProtocolError) as error:
            raise ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from error
        except Exception as error:
            raise HTTPClientError(error=error) from error


def _not_connected(url: str, error: BaseException | None) -> HTTPClientError:
    if isinstance(error, TimeoutError):
        return ConnectTimeoutError(endpoint_url=url, error=error)
    return EndpointConnectionError(endpoint_url=url, error=error)


def _response(url: str, came: _Came) -> AWSResponse:
    if isinstance(came, Exception):
        raise came
    if isinstance(came, Answered):
        return _read(url, came.status, came.headers.items(), io.BytesIO(came.body))
    with closing(came), closing(http.client.HTTPResponse(came, method="POST")) as raw:  # type: ignore[arg-type] # a socket
        raw.begin()
        return _read(url, raw.status, [(name, _FOLD.sub(" ", value)) for name, value in raw.msg.items()], raw)


def _read(url: str, status: int, headers: Iterable[tuple[str, str]], body: Any) -> AWSResponse:
    """Return an answer as urllib3 gives it to botocore, read to its end."""
    named = HTTPHeaderDict(headers)
    with closing(
        HTTPResponse(
            body=body,
            headers=named,
            status=status,
            preload_content=False,
            decode_content=False,
            enforce_content_length=False,
        )
    ) as answer:
        response = AWSResponse(url, status, named, answer)
        _ = response.content
        return response
