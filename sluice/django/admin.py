"""The admin's pages: outbox messages, groups, dead letters and gaps, parked messages, and the audit of operators."""

import json
from typing import Any

from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import connections, transaction
from django.db.models import Count, Exists, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path

from sluice.cli import row_acts
from sluice.cli.row_acts import on_outbox
from sluice.clock import utc
from sluice.django import admin_actions, models
from sluice.django.admin_actions import admin_action

_PAGE = 50  # rows of a page
_GROUPS = "sluice_inboxgroup_changelist"


def _instant(name: str, label: str) -> Any:
    """Return a column of the admin that shows an instant, stored in microseconds, as a date with its time."""

    @admin.display(description=label, ordering=name)
    def show(row: Any) -> str:
        instant_us = getattr(row, name)
        return "" if instant_us is None else utc(instant_us).isoformat(timespec="seconds")

    show.__name__ = name.removesuffix("_us")
    return show


def _outside_of_transactions(view: Any) -> Any:
    """Return a view that runs outside of a transaction, also with ATOMIC_REQUESTS, so that each act commits by itself.

    The audit must be committed before a message is deleted from SQS.
    """
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


class _ReadOnlyAdmin(admin.ModelAdmin):
    """A page of rows that a user can look at and act on, but not edit."""

    list_per_page = _PAGE
    show_full_result_count = False

    def has_add_permission(self, _: HttpRequest) -> bool:
        """Return False: outbox and worker write rows."""
        return False

    def has_delete_permission(self, _: HttpRequest, __: Any = None) -> bool:
        """Return False: relay and worker delete rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may act on rows; False for the page of one row, so that nobody edits it."""
        return obj is None and bool(super().has_change_permission(request))

    @_outside_of_transactions
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Return the page of rows, or the answer of an action."""
        return super().changelist_view(request, extra_context)


class _InboxAdmin(_ReadOnlyAdmin):
    """A page of rows of the inbox, with a link to the page of groups."""

    change_list_template = "sluice/change_list.html"


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
        admin_action("unquarantine", "Try quarantined messages again", on_outbox("unquarantine", "try again message")),
        admin_action("skip", "Give quarantined messages up", on_outbox("skip", "give up message")),
        admin_action("resend", "Publish sent messages again", on_outbox("resend", "resend message")),
    )


_SKIP = admin_action("skip", "Give numbers up", row_acts.skip)
_GROUP_ACTIONS = {
    "redrive": admin_action("redrive", "Bring the dead letters of groups back", row_acts.redrive_groups),
    "skip": admin_action("skip", "Give up the number that each group waits for", row_acts.skip_awaited),
}


@admin.register(models.InboxException)
class InboxExceptionAdmin(_InboxAdmin):
    """Dead letters and gaps, and whether their group is parked."""

    list_display = (
        *("consumer", "group_id", "epoch", "seq", "through", "state", "is_group_parked", "reason"),
        _instant("seen_at_us", "seen"),
        _instant("closed_at_us", "closed"),
    )
    list_filter = ("state", ("closed_at_us", admin.EmptyFieldListFilter), "consumer")
    search_fields = ("group_id", "event_id")
    ordering = ("-id",)
    actions = (
        admin_action("redrive", "Bring dead letters back", row_acts.redrive),
        admin_action(
            "replace",
            "Bring a dead letter back with other data",
            row_acts.replace_dead,
            current_data=row_acts.data_of_dead,
        ),
        _SKIP,
        admin_action("purge_one", "Delete dead letters for good", row_acts.purge),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the rows, each with whether its group waits for an operator or a message."""
        of_row = {"consumer": OuterRef("consumer"), "group_id": OuterRef("group_id")}
        rows = super().get_queryset(request)
        parked_groups = models.InboxGroup.objects.using(rows.db).filter(**of_row, parked_at_us__isnull=False)
        return rows.annotate(is_group_parked=Exists(parked_groups))

    @admin.display(description="group is parked", boolean=True)
    def is_group_parked(self, row: Any) -> bool:
        """Return whether the group of a row is parked."""
        return bool(row.is_group_parked)

    def get_urls(self) -> list[Any]:
        """Return the URLs of this page and of the page of groups, which the admin cannot register by itself.

        A group has a composite key, and the admin registers no such model.

        https://docs.djangoproject.com/en/5.2/topics/composite-primary-key/#composite-primary-keys-and-the-admin-site
        (read 2026-11-27)
        """
        groups = path("groups/", self.admin_site.admin_view(self.show_groups), name=_GROUPS)
        return [groups, *super().get_urls()]

    @_outside_of_transactions
    def show_groups(self, request: HttpRequest) -> HttpResponse:
        """Return the page of groups, which shows how far a consumer is in each; or act on selected groups."""
        may_act = request.user.has_perm("sluice.change_inboxgroup")
        if not (may_act or request.user.has_perm("sluice.view_inboxgroup")):
            raise PermissionDenied
        if request.method == "POST":
            if not may_act:
                raise PermissionDenied
            answer = _act_on_groups(self, request)
            return redirect(request.get_full_path()) if answer is None else answer
        rows, filters = _filter_groups(request)
        page = filters["page"]
        shown = list(rows[page * _PAGE : (page + 1) * _PAGE + 1])
        context = {
            **self.admin_site.each_context(request),
            "title": "Groups",
            "opts": self.opts,
            "groups": [_group_cells(row) for row in shown[:_PAGE]],
            "filters": filters,
            "consumers": rows.model.objects.order_by("consumer").values_list("consumer", flat=True).distinct(),
            "next_page": page + 1 if len(shown) > _PAGE else None,
            "actions": [(name, action.short_description) for name, action in _GROUP_ACTIONS.items()] if may_act else [],
        }
        return TemplateResponse(request, "sluice/groups.html", context)


def _act_on_groups(model_admin: admin.ModelAdmin, request: HttpRequest) -> HttpResponse | None:
    """Call the action that a form names with the groups that a user has selected, and return its answer."""
    try:
        keys = [tuple(map(str, json.loads(key))) for key in admin_actions.keys_in(request)]
        action = _GROUP_ACTIONS[request.POST.get("action", "")]
    except (ValueError, TypeError, KeyError) as error:
        raise BadRequest("no such group or action") from error
    answer: HttpResponse | None = action(model_admin, request, models.InboxGroup.objects.filter(pk__in=keys))
    return answer


def _filter_groups(request: HttpRequest) -> tuple[Any, dict[str, Any]]:
    """Return (rows of groups, filters) of a request; each row has counts of parked, held, missing and dead messages."""
    query = request.GET
    page = query.get("page", "0")
    filters = {
        "q": query.get("q", ""),
        "consumer": query.get("consumer", ""),
        "parked": query.get("parked", ""),
        "page": int(page) if page.isdecimal() and len(page) < 7 else 0,
    }
    rows = models.InboxGroup.objects.order_by("consumer", "group_id")
    rows = rows.filter(group_id__contains=filters["q"]) if filters["q"] else rows
    rows = rows.filter(consumer=filters["consumer"]) if filters["consumer"] else rows
    rows = rows.filter(parked_at_us__isnull=False) if filters["parked"] else rows
    counts = {
        "parked_count": _count(models.InboxParked),
        "held_count": _count(models.InboxParked, held_at_us__isnull=False),
        "missing_count": _count(models.InboxException, state="gap", closed_at_us__isnull=True),
        "dead_count": _count(models.InboxException, state="dead", closed_at_us__isnull=True),
    }
    return rows.annotate(**counts), filters


def _count(model: Any, **where: Any) -> Any:
    """Return a subquery that counts the rows of a model that belong to a row's group, and meet a condition."""
    in_group = model.objects.filter(consumer=OuterRef("consumer"), group_id=OuterRef("group_id"), **where)
    return Coalesce(Subquery(in_group.order_by().values("consumer").annotate(count=Count("*")).values("count")), 0)


def _group_cells(row: Any) -> dict[str, Any]:
    """Return the values that the page of groups shows of one group."""
    parked_at = _instant("parked_at_us", "parked")(row)
    return {
        "key": admin_actions.key_of(row),
        "row": row,
        "parked_at": parked_at,
        "waits_for": row.last_seq + 1 if parked_at else "",
        "updated_at": _instant("updated_at_us", "last message")(row),
    }


@admin.register(models.InboxParked)
class InboxParkedAdmin(_InboxAdmin):
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
        admin_action("retry", "Try held messages again", row_acts.retry),
        admin_action(
            "replace",
            "Try a held message again with other data",
            row_acts.replace_parked,
            current_data=row_acts.data_of_parked,
        ),
        _SKIP,
    )


class _Audit(_ReadOnlyAdmin):
    list_display = (_instant("at_us", "done"), "actor", "action", "group_id", "reason")
    list_filter = ("action", "actor")
    ordering = ("-id",)
    actions = None


admin.site.register([models.OutboxAct, models.InboxAct], _Audit)
