"""Broken handlers, the negative control: they commit their effect by themselves, apart from the inbox's mark.

A run with them has to be found INVALID; a run that cannot be proves nothing.
"""

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.testing.load import poison
from tests.chaos.system.handlers import effect


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    """Commit the effect in a transaction of its own, then fail as the others do."""
    way = poison.way_of(event)
    commit_apart(session, event, context, is_doomed=way is not None)
    return Ack() if way is None else poison.suffer(session, way)


def commit_apart(session: Session, event: Event, context: Context, *, is_doomed: bool) -> None:
    """Commit the effect over another connection of the worker's engine."""
    with Session(session.get_bind().engine) as apart:
        apart.add(effect(event, context, is_doomed=is_doomed))
        apart.commit()
