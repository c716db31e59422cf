"""Compare the services with the orders' events: each effect once, in order, nothing left out."""

from collections import defaultdict

from sqlalchemy import Connection, select
from sqlalchemy.orm import Session

from examples.orders.models import PAID, Order
from examples.services.models import Entry, Invoice, Shipment


def differences(orders: Connection, services: Connection) -> list[str]:
    """Return, in a sentence each, where the services and the orders differ."""
    with Session(orders) as shop, Session(services) as kept:
        placed = shop.scalars(select(Order).order_by(Order.id)).all()
        invoices = {invoice.order: invoice for invoice in kept.scalars(select(Invoice))}
        shipped, written = defaultdict(list), defaultdict(list)
        for shipment in kept.scalars(select(Shipment).order_by(Shipment.id)):
            shipped[shipment.order].append(shipment.cents)
        for entry in kept.scalars(select(Entry).order_by(Entry.id)):
            written[entry.order].append(entry.version)
        found = []
        for order in placed:
            found += _of_order(order, invoices.get(order.group), shipped[order.group], written[order.group])
        strangers = sorted({*invoices, *shipped, *written} - {order.group for order in placed})
    return found + [f"{group} is known to a service, and there is no such order" for group in strangers]


def _of_order(order: Order, invoice: Invoice | None, shipped: list[int], written: list[int]) -> list[str]:
    sentences = []
    expected = (order.version, order.total_cents, order.status)
    billed = None if invoice is None else (invoice.version, invoice.cents, invoice.status)
    if billed != expected:
        sentences.append(f"{order.group} is {expected}, billing has {billed}")
    due = [order.total_cents] if order.status == PAID else []
    if shipped != due:
        sentences.append(f"{order.group} is {order.status}, shipping sent {shipped}")
    if written != list(range(1, order.version + 1)):
        sentences.append(f"{order.group} changed {order.version} times, audit has {written}")
    return sentences
