"""The actions of the admin: each first shows what it would do; when the user has given a reason, it does it.

An action calls a function of `sluice.cli.row_acts` in the name of the user. An action on a DLQ needs the declaration
of the environment `$SLUICE_ENV`.

https://docs.djangoproject.com/en/5.2/ref/contrib/admin/actions/#actions-that-provide-intermediate-pages
(read 2026-11-27)
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from sqlalchemy import Engine

from sluice.cli.dlq.target import DlqTarget
from sluice.cli.row_acts import DRY_RUN, NO_REASON, ROWS_MAX, ActionForm, RowsAct
from sluice.cli.targets import ConsumerTarget, consumer_of
from sluice.declaration import load_task_declaration
from sluice.django.databases import joined_engine
from sluice.endpoint import checked_url
from sluice.errors import MessagingError
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS


def _open_dead_letters(engine: Engine, consumer: str) -> DlqTarget:
    """Return the DLQ of a consumer of the declared environment.

    Raises:
        ConfigError: there is no declaration, or it has no such environment or consumer.
    """
    environment = load_task_declaration().environment(os.environ.get("SLUICE_ENV", "local"))
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    target = ConsumerTarget(
        environment=environment,
        consumer=consumer_of(environment, consumer),
        database=engine,
        endpoint_url=None if endpoint is None else checked_url(endpoint),
    )
    return DlqTarget(target=target, is_undelivered=False, hold_seconds=HOLD_SECONDS, is_forced=False)


def admin_action(
    name: str, label: str, act: RowsAct, *, current_data: Callable[[ActionForm, Any], object] | None = None
) -> Any:
    """Return an action of the admin that shows what it would do, asks for a reason, and does it.

    Args:
        name: of the action in forms.
        label: what a user reads.
        act: what it does.
        current_data: returns the data that the event of a row has now; the user may change it. None where the action
            takes no data.
    """

    @admin.action(description=label, permissions=["change"])
    def run(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        rows, rows_max = list(queryset[: ROWS_MAX + 1]), ROWS_MAX if current_data is None else 1
        if not 1 <= len(rows) <= rows_max:
            refusal = f"{len(rows)} rows are selected, allowed are 1 to {rows_max}; select others"
            model_admin.message_user(request, refusal, messages.ERROR)
            return None
        reason, is_sent = request.POST.get("reason", "").strip(), "confirmed" in request.POST
        engine = joined_engine(queryset.db)
        form = ActionForm(
            engine=engine,
            dead_letters=partial(_open_dead_letters, engine),
            actor=request.user.get_username(),
            reason=reason or DRY_RUN,
            is_confirmed=is_sent and bool(reason),
            data=request.POST.get("data", ""),
        )
        try:
            if current_data is not None and not is_sent:
                shown = json.dumps(current_data(form, rows[0]), ensure_ascii=False, indent=2)
                form = replace(form, data=shown)
            acts = list(act(form, rows))
        except MessagingError as error:
            acts = [(False, str(error))]
        is_data_refused = current_data is not None and not acts[0][0]
        if form.is_confirmed and not is_data_refused:  # what the user has typed is not lost
            for is_done, sentence in acts:
                kind = messages.SUCCESS if is_done else messages.ERROR
                model_admin.message_user(request, f"done: {sentence}" if is_done else sentence, kind)
            return None
        context = {
            **model_admin.admin_site.each_context(request),
            "title": label,
            "intent": f"{label}, in the name of {form.actor}:",
            "lines": [f"would {sentence}" if can_be_done else sentence for can_be_done, sentence in acts],
            "missing": NO_REASON if is_sent else "",
            "takes_data": current_data is not None,
            "data": form.data,
            "keys": [key_of(row) for row in rows],
            "action": name,
            "opts": model_admin.opts,
        }
        return TemplateResponse(request, "sluice/act.html", context)

    run.__name__ = name
    return run


def key_of(row: Any) -> str:
    """Return the key of a row in a form: its own, or JSON of the columns of a composite key."""
    return json.dumps(row.pk) if isinstance(row.pk, tuple) else str(row.pk)


def keys_in(request: HttpRequest) -> list[str]:
    """Return the keys of the rows that a user has selected."""
    return list(request.POST.getlist(ACTION_CHECKBOX_NAME))
