"""The handler of an asyncio worker of a run: it waits for something else, and then does what the plain one does."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession

from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.testing.load import poison
from tests.chaos.system import world_faults
from tests.chaos.system.handlers import effect

_WAIT_SECONDS = 0.02


@handler("*")
async def do(session: AsyncSession, event: Event, context: Context) -> Outcome:
    """Write down the effect after a wait; an event that is poison then does what it is there for."""
    await asyncio.sleep(_WAIT_SECONDS)
    way = poison.way_of(event)
    session.add(effect(event, context, is_doomed=way in poison.DOOMED))
    await session.flush()
    if way is not None and way in world_faults.MISDEEDS:
        await session.run_sync(world_faults.misbehave, way)
        return Ack()
    return Ack() if way is None else await session.run_sync(poison.suffer, way)
