"""A bad deployment in a load test with faults: handlers that write their effect and then fail, which undoes it."""

from sqlalchemy.orm import Session

from sluice.messaging import Context, Event, Outcome, handler
from sluice.messaging.handlers import ANY
from sluice.testing.load import effects


@handler(ANY)
def write(session: Session, event: Event, context: Context) -> Outcome:
    """Write a row for the message and fail, so that the row is rolled back."""
    effects.write(session, event, context)
    raise RuntimeError("this version of the handlers fails")
