"""Database calls of a handler that runs on an event loop: they are made on the handler's lane, a thread of the worker.

A handler's connection (`connections`) blocks its thread until the database answers. A statement that a handler awaits
is therefore executed on the thread of its lane, which has nothing else to do meanwhile, and the event loop goes on.
SQLAlchemy lets code without `await` wait for a coroutine, within `AsyncSession.run_sync` and the other methods that an
`AsyncSession` awaits. So SQLAlchemy works as in a handler without asyncio.

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

type LaneCall = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Makes a call on the thread of the lane, and returns an awaitable of the result."""

_lane: ContextVar[tuple[asyncio.AbstractEventLoop, LaneCall] | None] = ContextVar("_lane", default=None)


def enter(loop: asyncio.AbstractEventLoop, on_thread: LaneCall) -> None:
    """Let the database calls of the current context, which runs on `loop`, be made through `on_thread`."""
    _lane.set((loop, on_thread))


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


def execute_on_lane(execute: Callable[[], object], cursor: object) -> bool:
    """Execute a statement on the lane's thread if a handler awaits it on its event loop; return whether it does.

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
