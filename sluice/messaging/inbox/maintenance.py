"""The counts of an inbox's rows, and the deletion of old rows."""

from typing import Any

from sqlalchemy import Connection, Engine, and_, delete, exists, func, or_, select

from sluice.messaging.database import engines
from sluice.messaging.inbox.tables import consumers, exceptions, groups, parked, pauses, redrives

FORGOTTEN_MAX = 1_000
"""The most groups, and the most closed exceptions, that one transaction deletes."""


def counts(engine: Engine, consumer: str) -> dict[str, int]:
    """Return how many groups are parked, messages set aside, messages held, and exceptions open.

    `redrive_off` is 1 if automatic redrive is off or its last run died, and 0 otherwise; `paused` is 1 if the consumer
    is paused.
    """
    now_us = engines.now_us_sql(engine.dialect.name)
    counted: dict[str, tuple[Any, Any]] = {
        "parked_groups": (groups, groups.c.parked_at_us.is_not(None)),
        "parked_messages": (parked, parked.c.consumer == consumer),
        "held_messages": (parked, parked.c.held_at_us.is_not(None)),
        "open_exceptions": (exceptions, exceptions.c.closed_at_us.is_(None)),
        "redrive_off": (redrives, or_(redrives.c.off_at_us.is_not(None), redrives.c.held_until_us <= now_us)),
        "paused": (pauses, pauses.c.consumer == consumer),
    }
    with engines.reading(engine) as connection, engines.explaining_missing_tables():
        return {
            name: connection.execute(
                select(func.count()).select_from(table).where(table.c.consumer == consumer, condition)
            ).scalar_one()
            for name, (table, condition) in counted.items()
        }


def forget(connection: Connection, consumer: str, *, before_us: int) -> int:
    """Delete up to a thousand groups without messages since `before_us`, and up to a thousand exceptions as old.

    Parked groups stay with all their records. A group with remaining exceptions stays. A group in use keeps the records
    of numbers before its baseline, because without them a message with such a number would be handled again.

    Returns:
        The larger of the two counts; if it is less than FORGOTTEN_MAX, nothing is left to delete.
    """
    # A worker locks the row of its group. A condition that is only in the SELECT, and not in the DELETE, may no
    # longer hold by then.
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
