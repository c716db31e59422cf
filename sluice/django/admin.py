"""The admin: outbox messages, dead letters and gaps, parked messages, and what operators did.

An action first tries itself in a transaction that it rolls back, and shows what would be done. With a reason it does
so, each row in a transaction of its own with its row of the audit, as `sluice outbox` and `sluice dlq` do.

https://docs.djangoproject.com/en/5.2/ref/contrib/admin/actions/#actions-that-provide-intermediate-pages
(read 2026-11-27)
"""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from sqlalchemy import Connection, Engine

from sluice.clock import utc
from sluice.django import models
from sluice.django.databases import joined_engine
from sluice.errors import MessagingError
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.outbox.operations import OutboxOperator

_NO_REASON = "the reason is empty, allowed is a sentence: the audit keeps it"
_DRY_RUN = "a dry run, which is rolled back"

type AdminAct = Callable[[Connection, Any, str, str], None]
"""Does something to a row: by a connection in a transaction, in whose name, and why."""


def _instant(name: str, label: str) -> Any:
    @admin.display(description=label, ordering=name)
    def show(row: Any) -> str:
        instant_us = getattr(row, name)
        return "" if instant_us is None else utc(instant_us).isoformat(timespec="seconds")

    show.__name__ = name.removesuffix("_us")
    return show


def _try(engine: Engine, do: Callable[[Connection], None], *, confirmed: bool) -> str | None:
    """Do it and commit, or roll back; return why it cannot be done, None where it can."""
    try:
        with engine.connect() as connection, connection.begin() as begun:
            do(connection)
            if not confirmed:
                begun.rollback()
    except MessagingError as error:
        return str(error)
    return None


def _action(name: str, label: str, intent: str, do: AdminAct) -> Any:
    """Return an action that shows what it would do, asks for a reason, and does it."""

    @admin.action(description=label, permissions=["change"])
    def act(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        rows, engine = list(queryset), joined_engine(queryset.db)
        actor, reason = request.user.get_username(), request.POST.get("reason", "").strip()
        is_confirmed = "confirmed" in request.POST and bool(reason)
        given = reason or _DRY_RUN
        lines = []
        for row in rows:
            place = f"{_number(row)} of group {row.group_id}"

            def to_row(connection: Connection, row: Any = row) -> None:
                do(connection, row, actor, given)

            refused = _try(engine, to_row, confirmed=is_confirmed)
            lines.append(f"{'done' if is_confirmed else 'would'}: {intent} {place}" if refused is None else refused)
            if is_confirmed:
                model_admin.message_user(request, lines[-1], messages.SUCCESS if refused is None else messages.ERROR)
        if is_confirmed:
            return None
        shown = {
            **model_admin.admin_site.each_context(request),
            "title": label,
            "intent": f"{label}, in the name of {actor}:",
            "lines": lines,
            "missing": _NO_REASON if "confirmed" in request.POST else "",
            "keys": request.POST.getlist(ACTION_CHECKBOX_NAME),
            "action": name,
            "opts": model_admin.opts,
        }
        return TemplateResponse(request, "sluice/act.html", shown)

    act.__name__ = name
    return act


def _number(row: Any) -> int:
    return int(row.group_seq if isinstance(row, models.OutboxMessage) else row.seq)


def _on_outbox(method: str) -> AdminAct:
    def do(connection: Connection, row: Any, actor: str, reason: str) -> None:
        operator = OutboxOperator(topic=row.topic, actor=actor, reason=reason)
        getattr(operator, method)(connection, row.group_id, row.group_seq)

    return do


def _skip(connection: Connection, row: Any, actor: str, reason: str) -> None:
    operator = InboxOperator(consumer=row.consumer, actor=actor, reason=reason)
    operator.skip(connection, row.group_id, row.seq, epoch=row.epoch)


def _retry(connection: Connection, row: Any, actor: str, reason: str) -> None:
    InboxOperator(consumer=row.consumer, actor=actor, reason=reason).retry(connection, row.group_id, row.seq)


class _ReadOnlyAdmin(admin.ModelAdmin):
    """Rows to look at and to act on: nobody edits them."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, _: HttpRequest) -> bool:
        """Return False: outbox and worker write rows."""
        return False

    def has_delete_permission(self, _: HttpRequest, __: Any = None) -> bool:
        """Return False: relay and worker delete rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may act on rows; none is edited."""
        return obj is None and bool(super().has_change_permission(request))


@admin.register(models.OutboxMessage)
class OutboxMessageAdmin(_ReadOnlyAdmin):
    """The outbox."""

    list_display = (
        *("topic", "group_id", "group_seq", "status", "type", "attempts"),
        _instant("created_at_us", "committed"),
        "last_error",
    )
    list_filter = ("status", "topic")
    search_fields = ("group_id", "event_id")
    ordering = ("-id",)
    actions = (
        _action("unquarantine", "Try quarantined messages again", "try message", _on_outbox("unquarantine")),
        _action("skip", "Give quarantined messages up", "give up message", _on_outbox("skip")),
        _action("resend", "Publish sent messages again", "resend message", _on_outbox("resend")),
    )


@admin.register(models.InboxException)
class InboxExceptionAdmin(_ReadOnlyAdmin):
    """Dead letters and gaps, and whether their group is parked."""

    list_display = (
        *("consumer", "group_id", "epoch", "seq", "through", "state", "is_group_parked", "reason"),
        _instant("seen_at_us", "seen"),
        _instant("closed_at_us", "closed"),
    )
    list_filter = ("state", ("closed_at_us", admin.EmptyFieldListFilter), "consumer")
    search_fields = ("group_id", "event_id")
    ordering = ("-id",)
    actions = (_action("skip", "Give numbers up", "give up number", _skip),)

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the rows, each with whether its group waits for an operator or a message."""
        here = {"consumer": OuterRef("consumer"), "group_id": OuterRef("group_id"), "parked_at_us__isnull": False}
        found = super().get_queryset(request)
        return found.annotate(is_group_parked=Exists(models.InboxGroup.objects.using(found.db).filter(**here)))

    @admin.display(description="group is parked", boolean=True)
    def is_group_parked(self, row: Any) -> bool:
        """Return whether the group of a number is parked."""
        return bool(row.is_group_parked)


@admin.register(models.InboxParked)
class InboxParkedAdmin(_ReadOnlyAdmin):
    """Messages of parked groups, and which of them are held."""

    list_display = (
        *("consumer", "group_id", "epoch", "seq", "attempts", "last_error"),
        _instant("held_at_us", "held"),
        _instant("parked_at_us", "parked"),
    )
    list_filter = (("held_at_us", admin.EmptyFieldListFilter), "consumer")
    search_fields = ("group_id", "event_id")
    ordering = ("consumer", "group_id", "epoch", "seq")
    actions = (
        _action("retry", "Try held messages again", "have tried again message", _retry),
        _action("skip", "Give numbers up", "give up number", _skip),
    )


class _Audit(_ReadOnlyAdmin):
    list_display = (_instant("at_us", "done"), "actor", "action", "group_id", "reason")
    list_filter = ("action", "actor")
    ordering = ("-id",)
    actions = None


admin.site.register([models.OutboxAct, models.InboxAct], _Audit)
