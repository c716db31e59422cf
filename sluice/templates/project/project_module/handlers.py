"""The consumer `invoices`: what it does with each event, and the table it writes."""

from sluice.messaging import Ack, Context, Event, Outcome, Reject, handler
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables of this project."""


class Invoice(Base):
    """The invoice of an order."""

    __tablename__ = "invoices"

    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str] = mapped_column(index=True)
    cents: Mapped[int]


@handler("order.placed")
def invoice(session: Session, event: Event, context: Context) -> Outcome:
    """Write an invoice. The worker commits it together with the mark that the message was handled."""
    cents = event.data["total_cents"]
    if cents < 0:
        return Reject(f"order {event.group} costs {cents} cents, allowed is 0 or more")  # to the DLQ, without a retry
    session.add(Invoice(order=event.group, cents=cents))
    return Ack()
