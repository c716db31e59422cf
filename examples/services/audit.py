"""Audit: a book with a line for whatever happened."""

from sqlalchemy.orm import Session

from examples.services.models import Entry
from sluice.messaging import Ack, Context, Event, Outcome, handler


@handler("*")
def write_down(session: Session, event: Event, _: Context) -> Outcome:
    """Write a line."""
    session.add(Entry(order=event.group, version=event.data["version"], what=event.type))
    return Ack()
