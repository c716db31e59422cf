"""Actions: first the dry run with a form for the reason, then the action, then a page of what was done."""

import json
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from sqlalchemy import Engine
from starlette.requests import Request

from sluice.cli import row_acts
from sluice.cli.acts import actor
from sluice.cli.row_acts import DRY_RUN, NO_REASON, ActionForm
from sluice.console import actions
from sluice.console.actions import ACTIONS, KINDS, ConsoleAction
from sluice.console.rendering import diff_lines, pretty_json
from sluice.console.security import Form, RefusedRequestError
from sluice.console.state import ActionResult, Console
from sluice.console.views import Answer, Draw, PageNotFoundError, convert
from sluice.errors import ConfigError, MessagingError
from sluice.terminal.values import NUMBERS

_READ_ONLY = "this console only shows; start `sluice ui` with --allow-actions to act"


def _require_actions(console: Console) -> None:
    if not console.may_act:
        raise RefusedRequestError(HTTPStatus.FORBIDDEN, _READ_ONLY)


def _action_form(console: Console, form: Form, engine: Engine) -> ActionForm:
    reason = form.get("reason").strip()
    return ActionForm(
        engine=engine,
        dead_letters=console.dead_letters,
        actor=actor(),
        reason=reason or DRY_RUN,
        is_confirmed=bool(form.get("confirmed")) and bool(reason),
        data=form.get("data"),
        seen=form.get("seen") or None,
    )


def _back_url(form: Form) -> str:
    """Return the address of the page on which an action began; `/` if the form names no page of the console."""
    url = form.get("back")
    is_ours = url.startswith("/") and not url.startswith("//") and "\\" not in url and url.isprintable()
    return url if is_ours else "/"


def act(console: Console, _: Request, form: Form) -> Answer:
    """Try an action on selected rows and ask for a reason, or do it."""
    _require_actions(console)
    action = ACTIONS.get(form.get("action"))
    if action is None:
        raise ConfigError("there is no such action; load the page again")
    owner = form.get("owner")
    engine = console.outbox() if KINDS[action.kind].is_of_outbox else console.inbox(owner)
    keys = actions.read_keys(form.all("key"), action)
    act_form = _action_form(console, form, engine)
    before = ""
    if action.current_data is not None:
        try:
            act_form, before = _with_data(action, act_form, keys)
        except MessagingError as error:
            return _dry_run(form, action, act_form, [(False, str(error))], before="")
    if action.current_data is not None and not form.get("compared"):
        return _dry_run(form, action, act_form, [], before=before)
    lines = actions.run_action(action, act_form, keys)
    if not act_form.is_confirmed or (action.current_data is not None and not lines[0][0]):
        return _dry_run(form, action, act_form, lines, before=before)
    result = ActionResult(label=action.label, reason=act_form.reason, lines=lines, back_url=_back_url(form))
    return f"/results/{console.keep_result(result)}"


def _with_data(action: ConsoleAction, request: ActionForm, keys: Sequence[Any]) -> tuple[ActionForm, str]:
    """Return the form with the data to edit, and the data that the message had when the operator began."""
    assert action.current_data is not None
    if request.seen is not None:
        try:
            return request, pretty_json(json.loads(request.seen))
        except ValueError as error:
            raise ConfigError("the data that was shown cannot be read; begin again") from error
    found, gone = actions.load_rows(action, request, keys)
    if gone:
        raise ConfigError(f"{gone[0]}: {actions.GONE}")
    data = action.current_data(request, found[0])
    before = pretty_json(data)
    # on one line, because a browser changes the line breaks of a form
    return replace(request, data=before, seen=json.dumps(data)), before


def _dry_run(
    form: Form, action: ConsoleAction, request: ActionForm, lines: list[tuple[bool, str]], *, before: str
) -> Answer:
    is_missing_reason = bool(form.get("confirmed")) and request.reason == DRY_RUN
    data = request.data.replace("\r\n", "\n")
    is_compared = action.current_data is not None and bool(form.get("compared"))
    return Draw(
        "act.html",
        {
            "page": "",
            "action": action,
            "name": form.get("action"),
            "owner": form.get("owner"),
            "keys": form.all("key"),
            "lines": lines,
            "can_be_done": any(can_be_done for can_be_done, _ in lines),
            "missing": NO_REASON if is_missing_reason else "",
            "takes_data": action.current_data is not None and request.seen is not None,
            "data": data,
            "seen": request.seen or "",
            "diff": diff_lines(before, _same_layout(data)) if is_compared else None,
            "reason": "" if request.reason == DRY_RUN else request.reason,
            "back": _back_url(form),
        },
    )


def _same_layout(data: str) -> str:
    """Return JSON in the layout of `pretty_json`, for the comparison; text that is not JSON stays unchanged."""
    try:
        return pretty_json(json.loads(data))
    except (ValueError, RecursionError):
        return data


def resend(console: Console, _: Request, form: Form) -> Answer:
    """Publish ranges of a group's numbers again; without a confirmation, show how many numbers these are."""
    _require_actions(console)
    topic, group, numbers = form.get("owner"), form.get("group").strip(), form.get("numbers").split()
    if topic not in console.topics:
        raise ConfigError("there is no such topic; load the page again")
    if not group or not numbers:
        raise ConfigError("give a group, and numbers such as 3 or 3-9")
    ranges = [convert(NUMBERS, each, "numbers") for each in numbers]
    act_form = _action_form(console, form, console.outbox())
    try:
        lines = [(True, row_acts.resend_range(act_form, topic, group, ranges))]
    except MessagingError as error:
        lines = [(False, str(error))]
    if act_form.is_confirmed:
        result = ActionResult(label="Publish again", reason=act_form.reason, lines=lines, back_url=_back_url(form))
        return f"/results/{console.keep_result(result)}"
    is_missing_reason = bool(form.get("confirmed"))
    values = {"page": "outbox", "owner": topic, "group": group, "numbers": " ".join(numbers), "lines": lines}
    missing = NO_REASON if is_missing_reason else ""
    return Draw("resend.html", {**values, "can_be_done": lines[0][0], "missing": missing, "back": _back_url(form)})


def show_result(console: Console, request: Request) -> Answer:
    """Show what an action did."""
    result = console.result(request.path_params["key"])
    if result is None:
        raise PageNotFoundError("this result is not kept any more; the audit has what was done")
    return Draw("result.html", {"page": "", "result": result})
