"""The handler of all consumers of a run: it writes the event's effect, and misbehaves if the event is poison."""

import os

from sqlalchemy.orm import Session

from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.testing.load import poison
from tests.chaos.system import calls, world_faults
from tests.chaos.system.models import EffectRow


@handler("*")
def do(session: Session, event: Event, context: Context) -> Outcome:
    """Write down the effect; an event that is poison then does what it is there for."""
    way = poison.way_of(event)
    session.add(effect(event, context, is_doomed=way in poison.DOOMED))
    session.flush()
    if way is not None and way in world_faults.MISDEEDS:
        world_faults.misbehave(session, way)
        return Ack()
    return Ack() if way is None else poison.suffer(session, way)


def effect(event: Event, context: Context, *, is_doomed: bool) -> EffectRow:
    """Return the row of an effect; the call is written down."""
    calls.write_down(context.consumer, event.id, is_doomed=is_doomed)
    return EffectRow(
        consumer=context.consumer,
        event_id=event.id,
        group_id=event.group,
        epoch=context.epoch,
        seq=context.seq,
        payload=event.data["payload"],
        is_doomed=is_doomed,
        is_late=context.is_late,
        attempt=context.attempt,
        pid=os.getpid(),
    )
