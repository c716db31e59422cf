"""Compare the rows with the outbox. Messages that the relay has forgotten (`--keep`) cannot be checked."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.orm import Session, selectinload

from examples.orders.models import Order
from sluice.messaging.envelope import decode
from sluice.messaging.outbox.tables import messages


def differences(connection: Connection, topic: str) -> list[str]:
    """Return, in a sentence each, where orders and events differ: each change has one event, in the order of commits.

    What was rolled back left no event: it would be one more than the order has changes.
    """
    published = _published_events(connection, topic)
    with Session(connection) as session:
        orders = session.scalars(select(Order).options(selectinload(Order.lines)).order_by(Order.id)).all()
        sentences = [
            sentence for order in orders for sentence in _order_differences(order, published.pop(order.group, []))
        ]
    return sentences + [
        f"{group} has {len(events)} event(s), and there is no such order" for group, events in published.items()
    ]


def _published_events(connection: Connection, topic: str) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """Return group -> (number, data) of its events, in order of the numbers."""
    rows = connection.execute(
        select(messages.c.group_id, messages.c.group_seq, messages.c.body)
        .where(messages.c.topic == topic, messages.c.type.startswith("order."))
        .order_by(messages.c.group_id, messages.c.group_seq)
    )
    published = defaultdict(list)
    for group, seq, body in rows:
        published[group].append((seq, decode(body).event.data))
    return dict(published)


def _order_differences(order: Order, published: list[tuple[int, dict[str, Any]]]) -> list[str]:
    expected = list(range(1, order.version + 1))
    seen = [seq for seq, _ in published]
    versions = [data["version"] for _, data in published]
    if seen != expected or versions != expected:
        return [f"{order.group} changed {order.version} times, its events are {seen} and tell of changes {versions}"]
    last = (published[-1][1]["status"], published[-1][1]["total_cents"])
    if last != (order.status, order.total_cents):
        return [f"{order.group} is {order.status} at {order.total_cents} cents, its last event says {last}"]
    return []
