"""Shipping: a parcel for each order that was paid. A second one would be the customer's gain, so effects are once."""

from sqlalchemy.orm import Session

from examples.services.models import Shipment
from sluice.messaging import Ack, Context, Event, Outcome, handler


@handler("order.paid")
def ship(session: Session, event: Event, _: Context) -> Outcome:
    """Send a parcel."""
    session.add(Shipment(order=event.group, cents=event.data["total_cents"]))
    return Ack()


@handler("*")
def ignore(_: Session, __: Event, ___: Context) -> Outcome:
    """Take note of nothing: a filter policy would keep these out, and cost the numbers their meaning."""
    return Ack()
