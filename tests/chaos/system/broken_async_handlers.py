"""Broken handlers of asyncio, the negative control: they commit their effect apart from the inbox's mark."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession

from sluice.messaging import Ack, Context, Event, Outcome, handler
from sluice.testing.load import poison
from tests.chaos.system.broken_handlers import commit_apart


@handler("*")
async def do(session: AsyncSession, event: Event, context: Context) -> Outcome:
    """Commit the effect in a transaction of its own, then fail as the others do."""
    way = poison.way_of(event)
    await asyncio.sleep(0)
    await session.run_sync(commit_apart, event, context, is_doomed=way is not None)
    return Ack() if way is None else await session.run_sync(poison.suffer, way)
