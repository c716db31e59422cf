"""Handlers of a load test's workers: a message has been in the inbox, and that is all.

`sluice load run --consumer worker` starts `sluice worker` with these handlers.
"""

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.messaging.handlers import ANY


@handler(ANY)
def acknowledge(_session: Session, _event: Event, _context: Context) -> Outcome:
    """Have no effect of its own: what is judged is the inbox's mark, which is committed with every effect."""
    return Ack()
