"""Broken handlers, the negative control: they commit their effect by themselves, apart from the inbox's mark.

A run with them has to be found INVALID; a run that cannot be proves nothing.
"""

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, Outcome, handler
from tests.chaos.system.handlers import effect, illness, suffer


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    """Commit the effect in a transaction of its own, then fail as the others do."""
    ill = illness(event, context)
    with Session(session.get_bind().engine) as apart:
        apart.add(effect(event, context, is_doomed=ill is not None))
        apart.commit()
    return Ack() if ill is None else suffer(session, ill)
