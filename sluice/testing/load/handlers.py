"""Handlers of a load test's workers, which have no effect: only the inbox's mark of each message is committed.

`sluice load run --consumer worker` starts `sluice worker` with these handlers.
"""

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.messaging.handlers import ANY


@handler(ANY)
def acknowledge(_session: Session, _event: Event, _context: Context) -> Outcome:
    """Acknowledge the message without an effect of its own.

    The judge counts the inbox's marks, which are committed with every effect.
    """
    return Ack()
