"""Billing: what each order costs by now. It relies on the order of events: each change follows the one before."""

from sqlalchemy.orm import Session

from examples.services.models import Invoice
from sluice.messaging import Ack, Context, Event, Outcome, Reject, handler


@handler("order.placed", "order.line_added", "order.paid", "order.cancelled")
def bill(session: Session, event: Event, context: Context) -> Outcome:
    """Bring an order's invoice up to date."""
    version, cents, status = event.data["version"], event.data["total_cents"], event.data["status"]
    if cents < 0:
        return Reject(f"order {event.group} costs {cents} cents, allowed is 0 or more")
    invoice = session.get(Invoice, event.group)
    if invoice is None:
        invoice = Invoice(order=event.group, version=0, cents=0, status="")
        session.add(invoice)
    if invoice.version + 1 != version and not context.is_late:
        return Reject(f"order {event.group} is at version {invoice.version}, and {version} came")
    invoice.version, invoice.cents, invoice.status = max(version, invoice.version), cents, status
    return Ack()
