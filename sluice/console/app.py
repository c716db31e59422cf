"""The routes of the console, and the answers to them."""

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from sluice import pages
from sluice.cli.acts import actor
from sluice.cli.overview.sources import explain_failure
from sluice.console import acting, letters, listings, rendering
from sluice.console.overview import show_live, show_overview, show_verdict
from sluice.console.security import ConsoleGate, Form, GateMiddleware, RefusedRequestError
from sluice.console.state import Console
from sluice.console.views import Answer, Draw, PageNotFoundError
from sluice.errors import ConfigError, MessagingError
from sluice.terminal import output

_HERE = Path(__file__).resolve().parent
_STATIC = "/static/"
_FILES: Mapping[str, tuple[Path, str]] = {
    "pages.css": (Path(pages.__file__).resolve().parent / "style.css", "text/css"),
    "console.css": (_HERE / "static" / "console.css", "text/css"),
    "console.js": (_HERE / "static" / "console.js", "text/javascript"),
    "icon.svg": (_HERE / "static" / "icon.svg", "image/svg+xml"),
}
_FAILURES = (MessagingError, SQLAlchemyError, ClientError, BotoCoreError, OSError)
_TRACEBACK_CHARACTERS_MAX = 100_000
_MISTAKE = HTTPStatus.INTERNAL_SERVER_ERROR

type View = Callable[[Console, Request], Answer]
type FormView = Callable[[Console, Request, Form], Answer]

VIEWS: Mapping[str, View] = {
    "/": show_overview,
    "/live": show_live,
    "/dead-letters": letters.list_dead_letters,
    "/dead-letters/{consumer}/{number:int}": letters.show_number,
    "/parked": listings.list_parked,
    "/parked/{consumer}": listings.show_group,
    "/outbox": listings.list_outbox,
    "/verdict": show_verdict,
    "/find": listings.find,
    "/audit": listings.list_acts,
    "/audit/{owner}/{act:int}": listings.show_act,
    "/results/{key}": acting.show_result,
}
FORM_VIEWS: Mapping[str, FormView] = {
    "/bodies": letters.receive_bodies,
    "/audit-detail": listings.show_act_detail,
    "/act": acting.act,
    "/resend": acting.resend,
}


class _Pages:
    """Answers requests with pages; each view runs in a thread."""

    def __init__(self, console: Console, gate: ConsoleGate) -> None:
        self._console, self._gate = console, gate
        self._templates = rendering.template_environment(
            form_token=gate.form_token,
            may_act=console.may_act,
            environment_name=console.environment.name,
            consumer_names=[consumer.name for consumer in console.consumers],
            actor=actor(),
        )

    def _draw(self, template: str, values: Mapping[str, Any], *, status: HTTPStatus = HTTPStatus.OK) -> Response:
        """Return a page: a template with its values."""
        return HTMLResponse(self._templates.get_template(template).render(values), status_code=status)

    def _fail(self, sentence: str, status: HTTPStatus) -> Response:
        """Return a page with a sentence that says what failed."""
        return self._draw("failed.html", {"sentence": sentence}, status=status)

    def refuse(self, _: Request, refusal: RefusedRequestError) -> Response:
        """Return the page of a refused request, which has no links and names nothing of the environment."""
        return self._draw("refused.html", {"sentence": refusal.sentence}, status=refusal.status)

    def _answer(self, view: Callable[..., Answer], *arguments: Any) -> Response:
        """Return the page or the redirect of a view called with these arguments; if it fails, a page that says why."""
        try:
            answer = view(self._console, *arguments)
            if isinstance(answer, Draw):
                return self._draw(answer.template, answer.values)
            return RedirectResponse(answer, status_code=HTTPStatus.SEE_OTHER)
        except RefusedRequestError as refusal:
            return self._fail(refusal.sentence, refusal.status)
        except PageNotFoundError as error:
            return self._fail(str(error), HTTPStatus.NOT_FOUND)
        except _FAILURES as error:
            status = HTTPStatus.BAD_REQUEST if isinstance(error, ConfigError) else HTTPStatus.SERVICE_UNAVAILABLE
            return self._fail(explain_failure(error), status)
        except Exception as error:
            text = "".join(traceback.format_exception(error)).rstrip()
            output.lines(text[-_TRACEBACK_CHARACTERS_MAX:], is_error=True)
            return self._fail("this page has a mistake of its own; the terminal has more", _MISTAKE)

    async def show(self, view: View, request: Request) -> Response:
        """Answer a GET request by its view, which runs in a thread."""
        return await run_in_threadpool(self._answer, view, request)

    async def open_or_show(self, request: Request) -> Response:
        """Exchange the token of the printed address for the cookie, or show the overview.

        The answer to the token is a page that loads the overview by itself, because after a redirect a browser would
        still take the visit for one from another site, and not send the cookie.
        """
        if "token" not in request.query_params:
            return await self.show(show_overview, request)
        try:
            session = self._gate.exchange(request.query_params["token"])
        except RefusedRequestError as refusal:
            return self.refuse(request, refusal)
        response = self._draw("opened.html", {})
        self._gate.set_cookie(response, session)
        return response

    async def read_form(self, view: FormView, request: Request) -> Response:
        """Answer a form of the console's pages by its view, which runs in a thread."""
        try:
            form = await self._gate.read_form(request)
        except RefusedRequestError as refusal:
            return self.refuse(request, refusal)
        return await run_in_threadpool(self._answer, view, request, form)

    async def send_file(self, request: Request) -> Response:
        """Answer with one of the files that pages load: a style sheet, a script or the icon."""
        found = _FILES.get(request.path_params["name"])
        if found is None:
            return self._fail("there is no such file", HTTPStatus.NOT_FOUND)
        return Response(found[0].read_bytes(), media_type=found[1])

    async def find_nothing(self, _: Request, __: Exception) -> Response:
        """Answer a request for an address that the console does not have."""
        return self._fail("there is no such page", HTTPStatus.NOT_FOUND)


def build_app(console: Console, gate: ConsoleGate) -> Starlette:
    """Return the console as an ASGI application, with the gate in front of every page."""
    answers = _Pages(console, gate)
    views = {path: partial(answers.show, view) for path, view in VIEWS.items()} | {"/": answers.open_or_show}
    routes = [
        *(Route(path, view, methods=["GET"]) for path, view in views.items()),
        *(Route(path, partial(answers.read_form, view), methods=["POST"]) for path, view in FORM_VIEWS.items()),
        Route(_STATIC + "{name}", answers.send_file, methods=["GET"]),
    ]
    guard = Middleware(GateMiddleware, gate, is_public=lambda path: path.startswith(_STATIC), refuse=answers.refuse)
    nothing = {HTTPStatus.NOT_FOUND: answers.find_nothing, HTTPStatus.METHOD_NOT_ALLOWED: answers.find_nothing}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=nothing)
