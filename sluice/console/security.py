"""The gate in front of the pages: host, origin, a token, a cookie, and a token of each form.

A page of another site can make a browser send requests to 127.0.0.1, and by DNS rebinding even read the answers. So a
request has to name this host and port, must not come from another site, and needs a cookie. Only the address that
`sluice ui` prints gives the cookie, once. A form needs a second secret, which only the console's pages have.

Browsers send a cookie to every port of a host: so another program at 127.0.0.1 gets the cookie, too, if the same
browser visits it.
Sources: https://datatracker.ietf.org/doc/html/rfc6265#section-8.5 (cookies and ports),
https://owasp.org/www-project-secure-headers/, https://fetch.spec.whatwg.org/#append-a-request-origin-header: with the
policy `no-referrer` a browser would send `Origin: null` with our own forms (read 2026-11-27).
"""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluice.clock import Clock

SESSION_SECONDS = 12 * 3_600
_FORM_BYTES_MAX = 8 * 1_024 * 1_024  # an event of 1 MiB, in the escapes of a form
_FORM_FIELDS_MAX = 2_000
_CHUNK_SECONDS = 4.0  # less than the server waits at its end for requests that are being answered
_FORM_TYPE = "application/x-www-form-urlencoded"
_OTHER_SITES = ("cross-site", "same-site")  # another port of 127.0.0.1 is the same site
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
    " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_CLOSED = "the console is not open in this browser; open the address that `sluice ui` printed, or start it again"
_USED = "the address of `sluice ui` was used already; if that was not you, end it, and start it again for another one"


class RefusedRequestError(Exception):
    """A request that is answered with a status and a sentence, and does nothing."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(slots=True, kw_only=True)
class ConsoleGate:
    """Decides which requests the console answers, by the secrets of its process.

    Args:
        port: the port of the console.
        token: the secret in the printed address, which is exchanged for the cookie once.
        form_token: the secret in each form of the console's pages.
    """

    port: int
    clock: Clock
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _session: str | None = None
    _ends_at: float = 0

    @property
    def cookie(self) -> str:
        """Return the name of the cookie; the port is in it, so that two consoles do not overwrite each other's."""
        return f"sluice-ui-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """Return the allowed values of `Host`."""
        named = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")}
        return frozenset(named | ({"127.0.0.1", "localhost"} if self.port == 80 else set()))

    def require_address(self, headers: Headers, method: str) -> None:
        """Refuse a request that was made for another host or by another site.

        Raises:
            RefusedRequestError: the request names another host, comes from another origin, or has another method than
                GET, HEAD and POST.
        """
        host = headers.get("host", "")
        if host not in self.hosts:
            raise RefusedRequestError(
                HTTPStatus.MISDIRECTED_REQUEST, f"Host is not 127.0.0.1:{self.port}; open the printed address"
            )
        origin = headers.get("origin")
        is_foreign = origin is not None and origin != f"http://{host}"
        if is_foreign or (method == "POST" and origin is None):
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, "the request comes from another page than the console's")
        if method not in ("GET", "HEAD", "POST"):
            raise RefusedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "allowed are GET, HEAD and POST")

    def require_session(self, connection: HTTPConnection) -> None:
        """Refuse a request without the cookie, or from another site.

        Raises:
            RefusedRequestError: the browser has not used the printed address, or its session has ended.
        """
        session = connection.cookies.get(self.cookie, "")
        is_open = self._session is not None and self.clock.monotonic() < self._ends_at
        if not is_open or not _is_same(session, self._session or ""):
            raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, _CLOSED)
        if connection.headers.get("sec-fetch-site") in _OTHER_SITES:
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, "the request comes from another site than the console")

    def exchange(self, token: str) -> str:
        """Return the value of the cookie in exchange for the token of the printed address.

        Raises:
            RefusedRequestError: the token is wrong, or was exchanged before.
        """
        if not _is_same(token, self.token):
            raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, _CLOSED)
        if self._session is not None:
            raise RefusedRequestError(HTTPStatus.UNAUTHORIZED, _USED)
        self._session = secrets.token_urlsafe(32)
        self._ends_at = self.clock.monotonic() + SESSION_SECONDS
        return self._session

    def set_cookie(self, response: Response, session: str) -> None:
        """Set the cookie in a response: for this host only, hidden from scripts and other sites."""
        response.set_cookie(self.cookie, session, httponly=True, samesite="strict", path="/")

    async def read_form(self, request: Request) -> "Form":
        """Return the fields of a form of the console's pages.

        Raises:
            RefusedRequestError: the form is too large, cannot be read, or lacks the console's secret.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM_TYPE:
            raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"allowed is {_FORM_TYPE}")
        try:
            body = await _read_body(request)
            fields = parse_qs(
                body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FORM_FIELDS_MAX
            )
        except (ValueError, ClientDisconnect) as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the form cannot be read; load its page again") from error
        form = Form(fields)
        if not _is_same(form.get("form_token"), self.form_token):
            raise RefusedRequestError(HTTPStatus.FORBIDDEN, "the form is not one of this console; load its page again")
        return form


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form: name to values."""

    fields: dict[str, list[str]]

    def get(self, name: str) -> str:
        """Return the first value of a field; "" for a field that the form does not have."""
        return self.fields.get(name, [""])[0]

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return self.fields.get(name, [])


async def _read_body(request: Request) -> bytes:
    """Return a request's body; refuse one that is too large, or of which nothing comes for four seconds."""
    body = bytearray()
    try:
        async with asyncio.timeout(_CHUNK_SECONDS) as limit:
            async for chunk in request.stream():
                limit.reschedule(asyncio.get_running_loop().time() + _CHUNK_SECONDS)
                body += chunk
                if len(body) > _FORM_BYTES_MAX:
                    sentence = f"the form has more than {_FORM_BYTES_MAX} bytes; use `sluice dlq`"
                    raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
    except TimeoutError as error:
        raise RefusedRequestError(
            HTTPStatus.REQUEST_TIMEOUT, f"nothing of the form came for {_CHUNK_SECONDS:g} s; send it again"
        ) from error
    return bytes(body)


def _is_same(received: str, secret: str) -> bool:
    """Return whether a received text is the secret, in a time that tells nothing about the secret."""
    return hmac.compare_digest(received.encode("utf-8", "surrogatepass"), secret.encode())


type Refuse = Callable[[Request, RefusedRequestError], Response]


class GateMiddleware:
    """Refuses requests by the gate, and adds the headers to every response.

    Args:
        is_public: returns whether a path is answered without the cookie.
        refuse: returns the page of a refusal.
    """

    def __init__(self, app: ASGIApp, gate: ConsoleGate, *, is_public: Callable[[str], bool], refuse: Refuse) -> None:
        self._app, self._gate, self._is_public, self._refuse = app, gate, is_public, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: by the application, or by the page of a refusal."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket is closed by the server when nobody accepts it
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app
        try:
            self._gate.require_address(request.headers, request.method)
            is_exchange = request.url.path == "/" and "token" in request.query_params
            if not is_exchange and not self._is_public(request.url.path):
                self._gate.require_session(request)
        except RefusedRequestError as refusal:
            answer = self._refuse(request, refusal)
        await answer(scope, receive, send_with_headers)
