"""A shop and its orders: each change writes rows and an event in the same transaction, which the caller commits."""

from sqlalchemy.orm import Session

from examples.orders.models import CANCELLED, OPEN, PAID, Order, OrderLine
from sluice.messaging import Event, Outbox


class OrderClosedError(Exception):
    """Raised when an order that was paid or cancelled would change."""


class Shop:
    """Takes orders.

    Args:
        outbox: where events about them go.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def place(self, session: Session, customer: str, article: str, *, quantity: int, price_cents: int) -> Order:
        """Return a new order of one article."""
        order = Order(customer=customer, status=OPEN, version=0)
        order.lines.append(OrderLine(article=article, quantity=quantity, price_cents=price_cents))
        session.add(order)
        session.flush()  # gives it its id, which the group is named after
        self._publish_change(session, order, "order.placed")
        return order

    def add_line(self, session: Session, order_id: int, article: str, *, quantity: int, price_cents: int) -> Order:
        """Order one article more.

        Raises:
            OrderClosedError: it is too late.
        """
        order = _open_order(session, order_id)
        order.lines.append(OrderLine(article=article, quantity=quantity, price_cents=price_cents))
        self._publish_change(session, order, "order.line_added")
        return order

    def pay(self, session: Session, order_id: int) -> Order:
        """Take the money.

        Raises:
            OrderClosedError: it is paid or cancelled.
        """
        order = _open_order(session, order_id)
        order.status = PAID
        self._publish_change(session, order, "order.paid")
        return order

    def cancel(self, session: Session, order_id: int) -> Order:
        """Forget about it.

        Raises:
            OrderClosedError: it is paid or cancelled.
        """
        order = _open_order(session, order_id)
        order.status = CANCELLED
        self._publish_change(session, order, "order.cancelled")
        return order

    def _publish_change(self, session: Session, order: Order, type_: str) -> None:
        order.version += 1
        data = {"version": order.version, "status": order.status, "total_cents": order.total_cents}
        self._outbox.add(session, Event(type=type_, group=order.group, data=data))


def _open_order(session: Session, order_id: int) -> Order:
    """Return an order nobody else changes until the transaction ends."""
    order = session.get_one(Order, order_id, with_for_update=True)
    if order.status != OPEN:
        raise OrderClosedError(f"order {order_id} is {order.status}, and stays as it is")
    return order
