"""Handlers that are `async def`: run on an event loop of the lane that works on the message.

The handler has the lane's thread, transaction and deadline like any other; its session is the ordinary one, and a
statement it executes blocks its own lane only. The loop stays from message to message, so that a client that belongs to
it can be kept; a loop whose settings a handler has changed is closed. What a handler started and left running is
cancelled before its transaction is committed: nothing of an attempt outlives it.

A thread on which a loop runs already, as in an asynchronous test, a notebook or a web server, can run no other: there
the handler's loop is on a thread beside it, for which the first one waits.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor


class _Lane(threading.local):
    runner: asyncio.Runner | None = None
    beside: ThreadPoolExecutor | None = None


_lane = _Lane()


def await_result(returned: object) -> object:
    """Return a handler's result; await it first if it is awaitable."""
    if not inspect.isawaitable(returned):
        return returned
    if _is_looping():
        if _lane.beside is None:
            _lane.beside = ThreadPoolExecutor(max_workers=1)
        return _lane.beside.submit(contextvars.copy_context().run, await_result, returned).result()
    if _lane.runner is None:
        _lane.runner = asyncio.Runner()
    loop = _lane.runner.get_loop()
    before = _settings(loop)
    try:
        return _lane.runner.run(_alone(returned), context=contextvars.copy_context())
    finally:
        if loop.is_closed():  # by the handler
            _lane.runner = None
        elif asyncio.all_tasks(loop) or _settings(loop) != before:  # stopped in its work, as by SystemExit; or changed
            close()


def _settings(loop: asyncio.AbstractEventLoop) -> tuple[object, ...]:
    return loop.get_task_factory(), loop.get_exception_handler(), loop.get_debug()


def _is_looping() -> bool:
    """Return whether an event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _alone(handling: Awaitable[object]) -> object:
    """Await it, and let nothing that it started go on."""
    try:
        return await handling
    finally:
        started = asyncio.all_tasks() - {asyncio.current_task()}
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def close() -> None:
    """Close the event loop of this thread's lane, if it has one."""
    runner, _lane.runner = _lane.runner, None
    if runner is not None:
        runner.close()
    beside, _lane.beside = _lane.beside, None
    if beside is not None:
        beside.submit(close).result()
        beside.shutdown()
