"""The actions of the admin: each first shows what it would do, and with a reason does it.

An action calls what `sluice outbox` and `sluice dlq` call, and writes the same row of the audit, in the name of the
user. An action on a DLQ needs what the commands need: the declaration of the environment `$SLUICE_ENV`, and the rights
to receive from the DLQ, to delete there, and to send to the consumer's queue.

https://docs.djangoproject.com/en/5.2/ref/contrib/admin/actions/#actions-that-provide-intermediate-pages
(read 2026-11-27)
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from sqlalchemy import Connection, Engine

from sluice.cli.dlq import moving, replacing
from sluice.cli.dlq.target import DlqTarget
from sluice.cli.targets import ConsumerTarget, consumer_of
from sluice.clock import SystemClock
from sluice.declaration import load_task_declaration
from sluice.django import models
from sluice.django.databases import joined_engine
from sluice.endpoint import checked_url
from sluice.errors import MessagingError
from sluice.messaging.envelope import decode
from sluice.messaging.errors import DeadLetterError, EnvelopeError
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS
from sluice.messaging.sqs.dead_letter_queue import Destination, Reading
from sluice.messaging.sqs.redrive import Choice, new_run

_NO_REASON = "the reason is empty, allowed is a sentence: the audit keeps it"
_DRY_RUN = "a dry run, which is rolled back"
_ROWS_MAX = 500
_RUN_SECONDS_MAX = 20.0  # servers end a request that takes longer


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """The form of a user who acts on rows.

    Args:
        engine: of Django's own connection.
        actor: name of the user.
        data: JSON that takes the place of an event's data; empty where the action takes none.
    """

    engine: Engine
    actor: str
    reason: str
    is_confirmed: bool
    data: str

    def operator(self, row: Any) -> InboxOperator:
        """Return the operator of the inbox that a row is of."""
        return InboxOperator(consumer=row.consumer, actor=self.actor, reason=self.reason)

    def dead_letters(self, consumer: str) -> DlqTarget:
        """Return the DLQ of a consumer of the declared environment.

        Raises:
            ConfigError: there is no declaration, or it has no such environment or consumer.
        """
        environment = load_task_declaration().environment(os.environ.get("SLUICE_ENV", "local"))
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        target = ConsumerTarget(
            environment=environment,
            consumer=consumer_of(environment, consumer),
            database=self.engine,
            endpoint_url=None if endpoint is None else checked_url(endpoint),
        )
        return DlqTarget(target=target, is_undelivered=False, hold_seconds=HOLD_SECONDS, is_forced=False)


type RowsAct = Callable[[ActionForm, Sequence[Any]], Iterator[tuple[bool, str]]]
"""Acts on rows, or tries to; yields for each of them whether that can be done, and a sentence."""
type RowAct = Callable[[ActionForm, Any], str]
"""Acts on a row, or tries to, and returns the act in words."""


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
        rows, rows_max = list(queryset[: _ROWS_MAX + 1]), _ROWS_MAX if current_data is None else 1
        if not 1 <= len(rows) <= rows_max:
            refusal = f"{len(rows)} rows are selected, allowed are 1 to {rows_max}; select others"
            model_admin.message_user(request, refusal, messages.ERROR)
            return None
        reason, is_sent = request.POST.get("reason", "").strip(), "confirmed" in request.POST
        form = ActionForm(
            engine=joined_engine(queryset.db),
            actor=request.user.get_username(),
            reason=reason or _DRY_RUN,
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
            "missing": _NO_REASON if is_sent else "",
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


def for_each(act: RowAct) -> RowsAct:
    """Return the act on several rows, each by itself: one that is refused stops no other."""

    def act_on_rows(form: ActionForm, rows: Sequence[Any]) -> Iterator[tuple[bool, str]]:
        for row in rows:
            try:
                yield True, act(form, row)
            except MessagingError as error:
                yield False, str(error)

    return act_on_rows


def _in_transaction(form: ActionForm, do: Callable[[Connection], object]) -> None:
    """Do something in a transaction, and roll it back unless the user has confirmed it."""
    with form.engine.connect() as connection, connection.begin() as begun:
        do(connection)
        if not form.is_confirmed:
            begun.rollback()


def on_outbox(method: str, words: str) -> RowsAct:
    """Return the act of `OutboxOperator` of that name."""

    def act(form: ActionForm, row: Any) -> str:
        operator = OutboxOperator(topic=row.topic, actor=form.actor, reason=form.reason)
        _in_transaction(form, lambda connection: getattr(operator, method)(connection, row.group_id, row.group_seq))
        return f"{words} {row.group_seq} of group {row.group_id}"

    return for_each(act)


# --- acts on an inbox -------------------------------------------------------------------------------------------------


@for_each
def skip(form: ActionForm, row: Any) -> str:
    """Give up the number of a row; of a group's row, the number that the group waits for."""
    seq = row.last_seq + 1 if isinstance(row, models.InboxGroup) else row.seq
    operator = form.operator(row)
    _in_transaction(form, lambda connection: operator.skip(connection, row.group_id, seq, epoch=row.epoch))
    return f"give up number {seq} of group {row.group_id} of {row.consumer}"


@for_each
def retry(form: ActionForm, row: Any) -> str:
    """Try a held message again as it is."""
    _in_transaction(form, lambda connection: form.operator(row).retry(connection, row.group_id, row.seq))
    return f"have message {row.seq} of group {row.group_id} of {row.consumer} tried again"


def data_of_parked(_: ActionForm, row: Any) -> object:
    """Return the data of a parked message."""
    return decode(row.body).event.data


@for_each
def replace_parked(form: ActionForm, row: Any) -> str:
    """Try a held message again with other data."""
    data, operator = _data(form), form.operator(row)
    _in_transaction(form, lambda connection: operator.replace(connection, row.group_id, row.seq, data))
    return f"replace the data of message {row.seq} of group {row.group_id} of {row.consumer} and have it tried again"


# --- acts on a DLQ ----------------------------------------------------------------------------------------------------


def redrive(form: ActionForm, rows: Sequence[Any]) -> Iterator[tuple[bool, str]]:
    """Bring dead letters back to the queue of their consumer, in a run for each; of a group's row, all of the group."""
    ordered = sorted(rows, key=lambda row: row.consumer)
    for consumer, of_consumer in groupby(ordered, key=lambda row: row.consumer):
        try:
            yield from _redrive_of_consumer(form, consumer, list(of_consumer))
        except MessagingError as error:
            yield False, str(error)


def _redrive_of_consumer(form: ActionForm, consumer: str, rows: list[Any]) -> Iterator[tuple[bool, str]]:
    groups = frozenset(row.group_id for row in rows)
    if isinstance(rows[0], models.InboxGroup):
        choice, most = Choice(groups=groups), None
    else:
        event_ids = frozenset(_require_dead(row).event_id for row in rows)
        choice, most = Choice(groups=groups, event_ids=event_ids), len(event_ids)
    dlq, clock = form.dead_letters(consumer), SystemClock()
    queue, destination = dlq.open(), Destination(dlq.sqs(), moving.destination_name(dlq))
    ends_at = clock.monotonic() + _RUN_SECONDS_MAX

    def is_stopped() -> bool:
        return clock.monotonic() >= ends_at

    if not form.is_confirmed:
        seen, matching = moving.look(queue, choice, clock, is_stopped=is_stopped)
        described = moving.describe_preview(queue, destination.name, choice, most, seen=seen, matching=matching)
        yield bool(seen), described.removeprefix("would ")
        return
    warnings: list[str] = []
    result = moving.bring_back(
        dlq,
        queue,
        destination,
        choice,
        who=form.actor,
        warn=warnings.append,
        why=form.reason,
        run=new_run(clock),
        clock=clock,
        most=most,
        is_stopped=is_stopped,
    )
    yield bool(result.moved), f"{queue.name}: {'; '.join(moving.describe_result(result))}"
    warnings += [] if result.error is None else [f"the last error: {result.error}"]
    warnings += [] if result.is_whole else [f"stopped after {_RUN_SECONDS_MAX:g} s or an error; do the same again"]
    yield from ((False, warning) for warning in warnings)


@for_each
def purge(form: ActionForm, row: Any) -> str:
    """Delete the message of a dead number from the DLQ for good."""
    dlq, wanted = form.dead_letters(row.consumer), _wanted_dead_letter(row)
    return replacing.purge(dlq, form.operator(row), wanted, confirmed=form.is_confirmed)


def data_of_dead(form: ActionForm, row: Any) -> object:
    """Return the data of the message of a dead number, which is read in the DLQ and released."""
    wanted = _wanted_dead_letter(row)
    with Reading(form.dead_letters(row.consumer).open(), clock=SystemClock()) as reading:
        envelope = dead_letter_queue.find(reading, wanted.described, wanted.matches).envelope
    assert envelope is not None, "it was recognized by its number"
    return envelope.event.data


@for_each
def replace_dead(form: ActionForm, row: Any) -> str:
    """Send the message of a dead number to its consumer with other data, and delete it from the DLQ."""
    body_of = replacing.body_with_data(_data(form))
    dlq = form.dead_letters(row.consumer)
    return replacing.replace_dead(
        dlq, form.operator(row), _wanted_dead_letter(row), body_of, confirmed=form.is_confirmed
    )


def _wanted_dead_letter(row: Any) -> replacing.WantedDeadLetter:
    return replacing.by_number(_require_dead(row).group_id, row.seq, epoch=row.epoch)


def _require_dead(row: Any) -> Any:
    if row.state != tables.DEAD or row.closed_at_us is not None:
        raise DeadLetterError(
            f"number {row.seq} of group {row.group_id} of {row.consumer} is {row.state}, allowed is dead: no message of"
            " it is in the DLQ; wait for it, or give it up"
        )
    return row


def _data(form: ActionForm) -> object:
    try:
        return json.loads(form.data)
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"the data is not JSON ({error}); correct it") from error
