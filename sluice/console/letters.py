"""Dead letters: by reason, by group, each with its history; and their bodies, received on demand."""

from functools import partial
from typing import Any

from starlette.requests import Request

from sluice.cli.dlq.listing import dead_letter_fields, inbox_facts
from sluice.cli.overview import finding
from sluice.clock import SystemClock
from sluice.console import rows
from sluice.console.rendering import BODY_CHARACTERS_MAX, pretty_json
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
from sluice.messaging.inbox.tables import DEAD
from sluice.messaging.sqs import dead_letter_queue
from sluice.messaging.sqs.dead_letter_queue import Reading, StoredDeadLetter

_READ_SECONDS_MAX = 20.0
_HISTORY_MAX = 50
_VIEWS = ("reason", "group", "each")


def list_dead_letters(console: Console, request: Request) -> Answer:
    """List a consumer's dead numbers: by reason, by group, or each."""
    consumer, choice = shown_consumer(console, request), chosen_rows(request)
    engine, after = console.inbox(consumer), parameter(request, "after")
    wanted = parameter(request, "by")
    by = wanted if wanted in _VIEWS else "each" if choice.died_of is not None or choice.groups else "reason"
    values: dict[str, Any] = {
        "page": "dead",
        "consumer": consumer,
        "by": by,
        "filters": filters_of(request),
        "count": read(engine, lambda connection: rows.count_open(connection, consumer, DEAD, choice)),
        "after": after,
    }
    if by == "reason":
        reasons, is_cut = read(engine, lambda connection: rows.death_reasons(connection, consumer, choice))
        return Draw("reasons.html", {**values, "reasons": reasons, "is_cut": is_cut})
    if by == "group":
        found = read(engine, lambda connection: rows.dead_groups(connection, consumer, choice, after=after))
        return Draw("dead_groups.html", {**values, "found": found, "key_of": partial(rows.key_of_letters, consumer)})
    page = read(
        engine, lambda connection: rows.open_numbers(connection, consumer, DEAD, choice, after=whole_number(after))
    )
    return Draw("numbers.html", {**values, "found": page, "key_of": rows.key_of_number})


def show_number(console: Console, request: Request) -> Answer:
    """Show a dead or missing number: why, since when, and its way from the outbox until now."""
    consumer = console.consumer(request.path_params["consumer"]).name
    number_id = min(request.path_params["number"], 2**62)
    number = read(console.inbox(consumer), lambda connection: rows.open_number(connection, consumer, number_id))
    if number is None:
        raise PageNotFoundError(f"{consumer} has no such record; it may have been forgotten since")
    sought = number.row.event_id or number.row.group_id
    history, unfound = finding.search(console.sources, console.consumers, sought, most=_HISTORY_MAX)
    return Draw(
        "number.html",
        {
            "page": "dead",
            "consumer": consumer,
            "number": number,
            "is_dead": number.row.state == DEAD and number.row.closed_at_us is None,
            "key": rows.key_of_number(number.row),
            "history": history,
            "unfound": unfound,
        },
    )


def receive_bodies(console: Console, _: Request, form: Form) -> Answer:
    """Receive the first letters of a group from the DLQ, show them, and give everything back that was received."""
    consumer, group, is_whole = console.consumer(form.get("consumer")).name, form.get("group"), bool(form.get("whole"))
    dlq, clock = console.dead_letters(consumer), SystemClock()
    queue = dlq.open()
    begun, begun_us = clock.monotonic(), clock.now_us()
    with Reading(queue, clock=clock) as reading:
        found, seen = dead_letter_queue.first_of_group(
            reading, group, is_stopped=lambda: clock.monotonic() - begun > _READ_SECONDS_MAX
        )
        events = [event for each in found for event in each.events]
        shown = [_letter_values(each, inbox_facts(dlq.target, each), is_whole=is_whole) for each in events]
    return Draw(
        "bodies.html",
        {
            "page": "dead",
            "consumer": consumer,
            "group": group,
            "queue": queue.name,
            "letters": shown,
            "seen": seen,
            "at_us": begun_us,
            "hidden_seconds": clock.monotonic() - begun,
            "hold_seconds": queue.hold_seconds,
        },
    )


def _letter_values(dead_letter: StoredDeadLetter, facts: dict[str, Any], *, is_whole: bool) -> dict[str, Any]:
    fields = dead_letter_fields(dead_letter, **facts)
    body = pretty_json(fields["data"]) if "data" in fields else fields["body"]
    shown = body if is_whole else body[:BODY_CHARACTERS_MAX]
    return {"fields": fields, "body": shown, "body_characters": len(body), "is_cut": len(shown) < len(body)}
