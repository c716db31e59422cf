"""A test's view of a consumer's inbox: the parked messages, until when they wait, and why a message is dead."""

from sqlalchemy import Engine, func, select

from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope, Event, decode
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.awaiting import NEVER_US


def parked_events(engine: Engine, consumer: str) -> list[Event]:
    """Return the events of a consumer's parked messages, by group, epoch and number."""
    columns = tables.parked.c
    found = select(columns.body).where(columns.consumer == consumer)
    with engines.reading(engine) as connection:
        bodies = connection.execute(found.order_by(columns.group_id, columns.epoch, columns.seq)).scalars()
        return [decode(body).event for body in bodies]


def next_due_at(engine: Engine, consumer: str, now: float) -> float | None:
    """Return the next instant, in seconds, at which a parked message is retried or the wait for a missing number ends.

    None if only an operator can go on.
    """
    now_us = round(now * 1_000_000)
    groups, parked = tables.groups.c, tables.parked.c
    is_retried = (parked.consumer == consumer, parked.held_at_us.is_(None), parked.not_before_us > now_us)
    is_awaited = (groups.consumer == consumer, groups.awaits_until_us > now_us, groups.awaits_until_us < NEVER_US)
    with engines.reading(engine) as connection:
        found = [
            connection.execute(select(func.min(parked.not_before_us)).where(*is_retried)).scalar(),
            connection.execute(select(func.min(groups.awaits_until_us)).where(*is_awaited)).scalar(),
        ]
    return min((instant_us / 1_000_000 for instant_us in found if instant_us is not None), default=None)


def reason(engine: Engine, consumer: str, envelope: Envelope) -> str | None:
    """Return the reason that the inbox recorded for a dead or skipped message; None if it has none."""
    columns = tables.exceptions.c
    message = (columns.group_id == envelope.event.group, columns.epoch == envelope.epoch, columns.seq == envelope.seq)
    with engines.reading(engine) as connection:
        return connection.execute(select(columns.reason).where(columns.consumer == consumer, *message)).scalar()
