"""The AsyncSession of a handler: it wraps the session of the message, whose transaction is the inbox's.

https://docs.sqlalchemy.org/en/21/orm/extensions/asyncio.html#sqlalchemy.ext.asyncio.AsyncSession (read 2026-11-27)
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Never, cast

from sqlalchemy import Result
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncResult, AsyncSession
from sqlalchemy.orm import Session

from sluice.messaging.database import event_loops

_PREBUFFERED = {"prebuffer_rows": True}  # as AsyncSession has it: what loads more would do so where nothing awaits it


def async_session(session: Session) -> AsyncSession:
    """Return an AsyncSession around a message's session.

    Raises:
        ImportError: SQLAlchemy has no greenlet.
    """
    return _HandlerSession(sync_session_class=cast("type[Session]", lambda **_: session))


class _HandlerSession(AsyncSession):
    """An AsyncSession on a driver that is not asynchronous: results need no await, and there is no AsyncConnection."""

    async def execute(
        self,
        statement: Any,
        params: Any = None,
        *,
        execution_options: Any = None,
        bind_arguments: Any = None,
        **named: Any,
    ) -> Result[Any]:
        """Execute a statement, and return its rows."""
        options = {**(execution_options or {}), **_PREBUFFERED}
        arguments = {"params": params, "execution_options": options, "bind_arguments": bind_arguments, **named}
        return await super().run_sync(lambda session: session.execute(statement, **arguments))

    async def stream(self, statement: Any, params: Any = None, **named: Any) -> AsyncResult[Any]:
        """Execute a statement, and return its rows; all of them are received before the first is returned."""
        return AsyncResult(await self.execute(statement, params, **named))

    async def run_sync[T](self, fn: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function with the session of the message, on the thread of the lane."""
        call = partial(fn, self.sync_session, *arguments, **named)
        return await super().run_sync(lambda _: event_loops.on_lane(call))

    async def connection(self, *_: Any, **__: Any) -> Never:
        """Refuse: statements on the returned connection would run on the event loop and block it.

        Raises:
            InvalidRequestError: always.
        """
        raise InvalidRequestError(
            "a handler's AsyncSession has no AsyncConnection, allowed is `session.execute`, or"
            " `session.run_sync(lambda session: session.connection()…)`"
        )
