"""The contents of an inbox, counted, and its retention: what of it is forgotten."""

from typing import Any

from sqlalchemy import Connection, Engine, and_, delete, exists, func, or_, select

from sluice.messaging.database import engines
from sluice.messaging.inbox.tables import consumers, exceptions, groups, parked, redrives

FORGOTTEN_MAX = 1_000
"""Groups, and closed exceptions, forgotten in one transaction."""


def counts(engine: Engine, consumer: str) -> dict[str, int]:
    """Return how many groups are parked, messages set aside, messages held, and exceptions open.

    `redrive_off` is 1 while automatic redrive is off, or since a run of it died, else 0.
    """
    now_us = engines.now_us_sql(engine.dialect.name)
    counted: dict[str, tuple[Any, Any]] = {
        "parked_groups": (groups, groups.c.parked_at_us.is_not(None)),
        "parked_messages": (parked, parked.c.consumer == consumer),
        "held_messages": (parked, parked.c.held_at_us.is_not(None)),
        "open_exceptions": (exceptions, exceptions.c.closed_at_us.is_(None)),
        "redrive_off": (redrives, or_(redrives.c.off_at_us.is_not(None), redrives.c.held_until_us <= now_us)),
    }
    with engines.reading(engine) as connection, engines.explaining_missing_tables():
        return {
            name: connection.execute(
                select(func.count()).select_from(table).where(table.c.consumer == consumer, condition)
            ).scalar_one()
            for name, (table, condition) in counted.items()
        }


def forget(connection: Connection, consumer: str, *, before_us: int) -> int:
    """Delete up to a thousand groups nothing came for since, and as many exceptions closed before.

    Parked groups stay, and with them all that is known of them. Exceptions that stay keep their group, and a group
    that is in use keeps what came from before its baseline: or that would be handled again.

    Returns:
        How many of that of which there were more; under FORGOTTEN_MAX, nothing is left to forget.
    """
    # Whoever works on a group has its row locked: what is only looked up here, and not where it is deleted, may
    # have changed by then.
    is_old = and_(groups.c.consumer == consumer, groups.c.updated_at_us < before_us, groups.c.parked_at_us.is_(None))
    closed_count = _forget_closed(connection, consumer, before_us)
    has_exceptions = exists().where(
        exceptions.c.consumer == groups.c.consumer, exceptions.c.group_id == groups.c.group_id
    )
    old = select(groups.c.group_id).where(is_old, ~has_exceptions).order_by(groups.c.updated_at_us)
    group_count = connection.execute(
        delete(groups).where(is_old, groups.c.group_id.in_(old.limit(FORGOTTEN_MAX)))
    ).rowcount
    if group_count:
        _remember_forgetting(connection, consumer, before_us)
    return max(closed_count, group_count)


def _forget_closed(connection: Connection, consumer: str, before_us: int) -> int:
    is_of_group = and_(groups.c.consumer == exceptions.c.consumer, groups.c.group_id == exceptions.c.group_id)
    is_before_baseline = and_(groups.c.epoch == exceptions.c.epoch, exceptions.c.seq < groups.c.first_seq)
    is_kept = exists().where(
        is_of_group,
        or_(groups.c.parked_at_us.is_not(None), and_(groups.c.updated_at_us >= before_us, is_before_baseline)),
    )
    mine = (exceptions.c.consumer == consumer, exceptions.c.closed_at_us < before_us)
    closed = select(exceptions.c.id).where(*mine, ~is_kept).order_by(exceptions.c.closed_at_us)
    found = exceptions.c.id.in_(closed.limit(FORGOTTEN_MAX))
    return connection.execute(delete(exceptions).where(found)).rowcount


def _remember_forgetting(connection: Connection, consumer: str, before_us: int) -> None:
    made = engines.insert(connection.dialect.name, consumers).values(consumer=consumer, forgotten_before_us=before_us)
    latest = {"forgotten_before_us": made.excluded.forgotten_before_us}
    is_later = made.excluded.forgotten_before_us > consumers.c.forgotten_before_us
    connection.execute(made.on_conflict_do_update(index_elements=["consumer"], set_=latest, where=is_later))
