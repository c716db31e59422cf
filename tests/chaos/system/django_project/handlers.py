"""The handler of a Django project's workers: it writes the event's effect by Django's connection, as the others do."""

import os
from typing import Any

from django.db import connections
from sqlalchemy.orm import Session

from sluice.django import orm_handler
from sluice.messaging import Ack, Context, Event, Outcome
from sluice.testing.load import poison
from tests.chaos.system import calls, world_faults
from tests.chaos.system.django_project import OWN


@orm_handler("*", using=OWN)
def do(event: Event, context: Context) -> Outcome:
    """Write down the effect; an event that is poison then does what it is there for."""
    way = poison.way_of(event)
    write_effect(OWN, event, context, is_doomed=way in poison.DOOMED)
    if way is not None and way in world_faults.MISDEEDS:
        with connections[OWN].cursor() as cursor:
            for statement in world_faults.MISDEEDS[way]:
                cursor.execute(statement)
        return Ack()
    return Ack() if way is None else suffer(way)


def write_effect(alias: str, event: Event, context: Context, *, is_doomed: bool) -> None:
    """Write the row of an effect; the call is written down."""
    calls.write_down(context.consumer, event.id, is_doomed=is_doomed)
    row: dict[str, Any] = {
        "consumer": context.consumer,
        "event_id": event.id,
        "group_id": event.group,
        "epoch": context.epoch,
        "seq": context.seq,
        "payload": event.data["payload"],
        "is_doomed": is_doomed,
        "is_late": context.is_late,
        "attempt": context.attempt,
        "pid": os.getpid(),
    }
    names, places = ", ".join(row), ", ".join(["%s"] * len(row))
    with connections[alias].cursor() as cursor:
        cursor.execute(f"INSERT INTO chaos_effect ({names}) VALUES ({places})", list(row.values()))  # noqa: S608 (ours)


def suffer(way: str) -> Outcome:
    """Fail in a way of poison."""
    if way == "rollback":
        connections[OWN].connection.rollback()  # below Django, which does not notice
        return Ack()
    return poison.suffer(Session(), way)  # it is used for a rollback alone
