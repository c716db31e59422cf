"""A bad deployment in a load test with faults: handlers that write their effect and then fail, which undoes it."""

from sqlalchemy.orm import Session

from examples import load_effects
from sluice.messaging import Context, Event, Outcome, handler
from sluice.messaging.handlers import ANY


@handler(ANY)
def write(session: Session, event: Event, context: Context) -> Outcome:
    """Write the effect, and fail."""
    load_effects.write(session, event, context)
    raise RuntimeError("this version of the handlers fails")
