"""The way from a handler's event loop to its message's connection, which stays with the thread of the lane.

There is one kind of connection that a handler may have (`connections`), and it waits for the database. So a statement
that a handler awaits is executed on the thread of its lane, which has nothing else to do meanwhile, and the loop goes
on. SQLAlchemy lets code without `await` wait for something of asyncio, within `AsyncSession.run_sync` and what else an
`AsyncSession` awaits, so all of SQLAlchemy is as in a handler without asyncio.

https://docs.sqlalchemy.org/en/21/orm/extensions/asyncio.html#running-synchronous-methods-and-functions-under-asyncio,
https://docs.sqlalchemy.org/en/21/core/events.html#sqlalchemy.events.DialectEvents.do_execute (read 2026-11-27)
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

import psycopg
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.util import await_only

type Beside = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Makes a call on the thread of the lane."""

_lane: ContextVar[tuple[asyncio.AbstractEventLoop, Beside] | None] = ContextVar("_lane", default=None)


def enter(loop: asyncio.AbstractEventLoop, beside: Beside) -> None:
    """Run the database calls of this context, which runs on the event loop, through `beside`, outside of that loop."""
    _lane.set((loop, beside))


def on_lane[T](call: Callable[[], T]) -> T:
    """Return the result of a call, made on the lane's thread if a handler awaits it on its event loop.

    Raises:
        MissingGreenlet: the call is made on the event loop without an await: the loop would wait for the database.
    """
    lane = _lane.get()
    if lane is None or running_loop() is not lane[0]:
        return call()
    return cast("T", await_only(lane[1](call)))


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def is_executed(execute: Callable[[], object], cursor: object) -> bool:
    """Execute a statement that a handler awaits on its event loop; return whether it was one.

    Raises:
        InvalidRequestError: the statement reads its rows in parts, and the loop would wait for each part.
    """
    if _lane.get() is None:
        return False
    if isinstance(cursor, psycopg.ServerCursor) and running_loop() is not None:
        raise InvalidRequestError(
            "a handler's AsyncSession is given yield_per or stream_results, allowed is neither: its event loop would"
            " wait for each part; read parts by `limit`, or in `session.run_sync`"
        )
    on_lane(execute)
    return True
