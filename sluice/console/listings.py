"""The console's pages with parked groups and gaps, the outbox, the search, and the audit."""

import json
from functools import partial
from typing import Any

from sqlalchemy import Column, Engine
from starlette.requests import Request

from sluice.cli.overview import finding
from sluice.console import rows
from sluice.console.rendering import pretty_json
from sluice.console.security import Form
from sluice.console.state import Console
from sluice.console.views import (
    Answer,
    Draw,
    PageNotFoundError,
    chosen_rows,
    filters_of,
    parameter,
    read,
    shown_consumer,
    whole_number,
)
from sluice.errors import ConfigError
from sluice.messaging.database import audit
from sluice.messaging.inbox import operations
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.tables import GAP
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.operations import list_messages
from sluice.messaging.outbox.tables import PENDING, QUARANTINED, SENT

_STATUSES = {"": "not sent", PENDING: "pending", QUARANTINED: "quarantined", SENT: "sent"}
_FOUND_MAX = 50


def list_parked(console: Console, request: Request) -> Answer:
    """Return the page of a consumer's parked groups; with `show=gaps` of its missing numbers."""
    consumer, choice = shown_consumer(console, request), chosen_rows(request)
    engine, after = console.inbox(consumer), parameter(request, "after")
    values: dict[str, Any] = {
        "page": "parked",
        "consumer": consumer,
        "filters": filters_of(request),
        "after": after,
        "gaps": read(engine, lambda connection: rows.count_open(connection, consumer, GAP, choice)),
    }
    if parameter(request, "show") == "gaps":
        page = read(
            engine, lambda connection: rows.open_numbers(connection, consumer, GAP, choice, after=whole_number(after))
        )
        return Draw("gaps.html", {**values, "found": page, "key_of": rows.key_of_number})
    parked_at, _, group = after.partition(":")
    begun = (whole_number(parked_at), group) if group else None
    found = read(
        engine,
        lambda connection: operations.parked_groups(
            connection, consumer, choice=choice, most=rows.PAGE + 1, after=begun
        ),
    )
    shown = found[: rows.PAGE]
    next_after = f"{shown[-1]['parked_at_us']}:{shown[-1]['group_id']}" if len(found) > rows.PAGE else None
    key_of = partial(rows.key_of_group, consumer)
    return Draw("parked.html", {**values, "groups": shown, "next_after": next_after, "key_of": key_of})


def show_group(console: Console, request: Request) -> Answer:
    """Return the page of a parked group: the number it waits for, its parked messages, and its history."""
    consumer, group = console.consumer(request.path_params["consumer"]).name, parameter(request, "group")
    engine = console.inbox(consumer)
    after = parameter(request, "after")
    position = read(engine, lambda connection: rows.group_position(connection, consumer, group))
    page = read(engine, lambda connection: rows.find_parked(connection, consumer, group, after=after))
    found, unfound = finding.search(console.sources, (console.consumer(consumer),), group, most=_FOUND_MAX)
    return Draw(
        "group.html",
        {
            "page": "parked",
            "consumer": consumer,
            "group": group,
            "position": position,
            "found": page,
            "key_of": rows.key_of_parked,
            "group_key": None if position is None else rows.key_of_group(consumer, position),
            "history": found,
            "unfound": unfound,
        },
    )


def list_outbox(console: Console, request: Request) -> Answer:
    """Return the page of the messages in a topic's outbox; without a status, of those that are not sent."""
    topics, choice = console.topics, chosen_rows(request)
    topic = parameter(request, "topic") or (topics[0] if topics else "")
    if topic not in topics:
        raise ConfigError(f"topic is {topic!r}, allowed is one that this environment publishes: {', '.join(topics)}")
    wanted, after = parameter(request, "status"), parameter(request, "after")
    status = wanted if wanted and wanted in _STATUSES else None
    seq, _, group = after.partition(":")
    begun = (group, whole_number(seq)) if group else None
    found, count = read(
        console.outbox(),
        lambda connection: list_messages(
            connection, topic, status=status, choice=choice, most=rows.PAGE + 1, after=begun
        ),
    )
    shown = found[: rows.PAGE]
    next_after = f"{shown[-1]['group_seq']}:{shown[-1]['group_id']}" if len(found) > rows.PAGE else None
    return Draw(
        "outbox.html",
        {
            "page": "outbox",
            "topics": topics,
            "topic": topic,
            "status": status or "",
            "statuses": list(_STATUSES.items()),
            "filters": filters_of(request),
            "after": after,
            "count": count,
            "messages": shown,
            "next_after": next_after,
            "key_of": partial(rows.key_of_message, topic),
        },
    )


def find(console: Console, request: Request) -> Answer:
    """Return the page of the search: where an event or a group is, and was."""
    sought = parameter(request, "q")
    values: dict[str, Any] = {"page": "find", "sought": sought, "history": None, "unfound": None}
    if sought:
        found, unfound = finding.search(console.sources, console.consumers, sought, most=_FOUND_MAX)
        values |= {"history": found, "unfound": unfound}
    return Draw("find.html", values)


# --- the audit --------------------------------------------------------------------------------------------------------


def list_acts(console: Console, request: Request) -> Answer:
    """Return the page of operators' actions on a consumer's or a topic's messages, newest first."""
    owner = parameter(request, "owner") or console.consumers[0].name
    engine, column = _audit_of(console, owner)
    before, choice = whole_number(parameter(request, "before")), chosen_rows(request)
    found = read(
        engine,
        lambda connection: audit.acts(
            connection, column, owner, choice=choice, most=rows.PAGE + 1, before_id=before or None
        ),
    )
    shown = found[: rows.PAGE]
    return Draw(
        "audit.html",
        {
            "page": "audit",
            "owner": owner,
            "owners": [*(consumer.name for consumer in console.consumers), *console.topics],
            "filters": filters_of(request),
            "before": before,
            "acts": shown,
            "next_before": shown[-1]["id"] if len(found) > rows.PAGE else None,
        },
    )


def show_act(console: Console, request: Request) -> Answer:
    """Return the page of one action, without the body of its message."""
    return _act_page(console, request.path_params["owner"], request.path_params["act"], is_shown=False)


def show_act_detail(console: Console, _: Request, form: Form) -> Answer:
    """Return the page of one action with the body of its message, as the audit has it."""
    return _act_page(console, form.get("owner"), whole_number(form.get("act")), is_shown=True)


def _act_page(console: Console, owner: str, act_id: int, *, is_shown: bool) -> Answer:
    """Return the page of one action of a consumer's or a topic's audit; `is_shown` includes the message's body."""
    engine, column = _audit_of(console, owner)
    found = read(
        engine, lambda connection: audit.acts(connection, column, owner, most=1, before_id=min(act_id, 2**62) + 1)
    )
    if not found or found[0]["id"] != act_id:
        raise PageNotFoundError(f"the audit of {owner} has no such row")
    detail = json.loads(found[0]["detail"] or "{}")
    kept = {name: value for name, value in detail.items() if is_shown or name != "body"}
    values = {"page": "audit", "owner": owner, "act": found[0], "kept": pretty_json(kept), "has_body": "body" in detail}
    return Draw("audited_act.html", {**values, "is_shown": is_shown})


def _audit_of(console: Console, owner: str) -> tuple[Engine, "Column[str]"]:
    """Return (engine of the audit's database, the audit's column with the owner) for a topic or a consumer."""
    if owner in console.topics:
        return console.outbox(), outbox.audit.c.topic
    return console.inbox(owner), inbox.audit.c.consumer
