"""Handlers that are `async def`: they run on the event loop of their lane, or on the one event loop of the process.

Handlers with an `AsyncSession` share the event loop of the process (`await_together`). So they can keep a client that
belongs to the loop, and hundreds of them can wait side by side. The lane of a handler waits for it, executes the
statements of its session on the lane's thread, and cancels it if its message is lost, at its deadline, or when the
worker ends. A handler that blocks the loop is logged.

Any other `async def` handler (`await_result`) has the lane's thread, transaction and deadline, like a handler that is
not `async def`; it gets the ordinary session, whose statements block its own lane only. The loop is kept from message
to message; a loop whose settings a handler has changed is closed.

Tasks that a handler started and left running are cancelled before its transaction is committed: no task outlives its
attempt.

A thread with a running loop, as in an asynchronous test, a notebook or a web server, cannot run a second loop. Then the
handler's loop runs on a helper thread, and the first thread waits for it.
"""

import asyncio
import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy.exc import InvalidRequestError

from sluice.clock import SystemClock
from sluice.messaging.database import connections, event_loops
from sluice.messaging.errors import HoldLostError
from sluice.messaging.worker.processing.process_state import FORKED, ProcessGuard, StateOfThread
from sluice.terminal.logger import Logger

_log = Logger()
_TICK_SECONDS = 0.5
_BLOCKED_SECONDS = 1.0
"""A handler that blocks the event loop for this time is logged."""


class _Lane(threading.local):
    runner: asyncio.Runner | None = None
    beside: ThreadPoolExecutor | None = None


_lane = _Lane()


def await_result(returned: object) -> object:
    """Return a handler's result; await it first if it is awaitable."""
    if not inspect.isawaitable(returned):
        return returned
    if event_loops.running_loop() is not None:
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
        if loop.is_closed():  # the handler closed it
            _lane.runner = None
        elif asyncio.all_tasks(loop) or _settings(loop) != before:  # stopped in its work, as by SystemExit; or changed
            close()


def _settings(loop: asyncio.AbstractEventLoop) -> tuple[object, ...]:
    return loop.get_task_factory(), loop.get_exception_handler(), loop.get_debug()


async def _alone(handling: Awaitable[object]) -> object:
    """Await the handler, and cancel every other task that is left on the loop."""
    try:
        return await handling
    finally:
        await _cancel(asyncio.all_tasks() - {asyncio.current_task()})


async def _cancel(tasks: "set[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def await_together(call: Callable[[], Awaitable[object]], *, name: str, check: Callable[[], None]) -> object:
    """Call a handler on the event loop of the process, await it there, and return its result.

    Args:
        call: calls the handler.
        name: name of handler and message, for the log.
        check: called now and then; if it raises, the handler is cancelled.

    Raises:
        HoldLostError: `check` raised it, and the handler has ended since.
    """
    return _Handling(_shared, name).run(call, check)


def blocker() -> str | None:
    """Return the name of the handler that blocks the event loop of the process, or None."""
    return _shared.blocker


class _SharedLoop:
    """The event loop of this process, on a thread of its own, from its first handler to `close`.

    `blocker` is the name of the handler that blocks it.
    """

    def __init__(self) -> None:
        self._lock, self.clock = threading.Lock(), SystemClock()
        self._runner: asyncio.Runner | None = None
        self._thread: threading.Thread | None = None
        self._running: set[_Handling] = set()
        self._keepers = 0
        self._left = list[asyncio.Runner]()
        self._pinged_at: float | None = None
        self.blocker: str | None = None
        self._state: StateOfThread | None = None

    def begin(self, handling: "_Handling") -> asyncio.AbstractEventLoop:
        """Return the loop for a handler, which has to `end` then."""
        with self._lock:
            if self._runner is None:
                self._runner = asyncio.Runner()
                self._runner.get_loop().call_soon(self._note_state)
                self._thread = threading.Thread(target=self._go, args=(self._runner,), name="event-loop", daemon=True)
                self._thread.start()
            self._running.add(handling)
            return self._runner.get_loop()

    def end(self, handling: "_Handling") -> None:
        """Note that a handler has ended."""
        with self._lock:
            self._running.discard(handling)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the loop open for the block, and close it then."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1
            self.close()

    def close(self) -> None:
        """Close the loop, unless a block of `keeping_loop` or a running handler needs it."""
        with self._lock:
            if self._keepers or self._running or self._runner is None or self._thread is None:
                return
            runner, thread = self._runner, self._thread
            self._runner = self._thread = None
        runner.get_loop().call_soon_threadsafe(runner.get_loop().stop)
        thread.join()

    def forget(self) -> None:
        """Note that this process was forked: the loop is the parent's, and a child that returns to it is ended."""
        if self._thread is not None and threading.current_thread() is self._thread and self._runner is not None:
            self._runner.get_loop().call_soon(os._exit, FORKED)
        if self._runner is not None:
            self._left.append(self._runner)  # kept unclosed: closing it here would change the parent's loop
        self._lock, self._runner, self._thread = threading.Lock(), None, None
        self._running, self._pinged_at, self.blocker = set(), None, None

    def _go(self, runner: asyncio.Runner) -> None:
        with runner:
            loop = runner.get_loop()
            while self._runner is runner:
                try:
                    loop.run_forever()
                except BaseException:  # a handler's task may raise anything; SystemExit would pass through the loop
                    _log.exception("a handler ended the event loop, which goes on")

    def _note_state(self) -> None:
        assert self._runner is not None, "it begins with its loop"
        self._state = StateOfThread(self._runner.get_loop())

    def put_back_state(self) -> None:
        """Restore the initial state of the loop and its thread. Runs on the loop's thread."""
        if self._state is not None:
            self._state.put_back()

    def look(self) -> None:
        """Log the handler that blocks the loop, once for each blocking."""
        runner, now = self._runner, self.clock.monotonic()
        if runner is None:
            return
        if self._pinged_at is None:
            self._pinged_at = now
            with suppress(RuntimeError):  # the loop was closed meanwhile
                runner.get_loop().call_soon_threadsafe(self._answer)
        elif self.blocker is None and now - self._pinged_at >= _BLOCKED_SECONDS:
            self.blocker = _name_of(asyncio.current_task(runner.get_loop()))
            _log.error(
                "a handler blocks the event loop, and all others wait: let it await, or use asyncio.to_thread",
                blocked_by=self.blocker,
            )

    def _answer(self) -> None:
        pinged_at, self._pinged_at = self._pinged_at, None
        name, self.blocker = self.blocker, None
        if name is not None and pinged_at is not None:
            seconds = round(self.clock.monotonic() - pinged_at, 1)
            _log.warning("the event loop goes on", blocked_by=name, blocked_seconds=seconds)


def _name_of(task: "asyncio.Task[Any] | None") -> str:
    handling = None if task is None else task.get_context().get(_handling)
    return "something that no handler awaits" if handling is None else handling.name


class _Handling:
    """One handler on the event loop: it connects the thread of the handler's lane, which waits, with the loop."""

    def __init__(self, shared: _SharedLoop, name: str) -> None:
        self.name = name
        self._shared, self._calls = shared, SimpleQueue[Callable[[], object]]()
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._result: object = None
        self._error: BaseException | None = None
        self._is_over = False

    def run(self, call: Callable[[], Awaitable[object]], check: Callable[[], None]) -> object:
        """Return the handler's result; see `await_together`. Runs on the thread of the lane."""
        self._loop = self._shared.begin(self)
        lost: HoldLostError | None = None
        try:
            context = contextvars.copy_context()
            context.run(_handling.set, self)
            context.run(event_loops.enter, self._loop, self._beside)
            self._loop.call_soon_threadsafe(self._start, call, context)
            looked_at = self._shared.clock.monotonic()
            while not self._is_over:
                with suppress(Empty):
                    self._calls.get(timeout=_TICK_SECONDS)()
                if not self._is_over and self._shared.clock.monotonic() - looked_at >= _TICK_SECONDS:
                    looked_at = self._shared.clock.monotonic()
                    self._shared.look()
                    lost = _loss(check)
                    if lost is not None:
                        self._loop.call_soon_threadsafe(self._cancel)
        finally:
            self._shared.end(self)
        if lost is not None:
            raise lost
        if self._error is not None:
            raise self._error
        return self._result

    def _start(self, call: Callable[[], Awaitable[object]], context: contextvars.Context) -> None:
        self._task = self._loop.create_task(self._await(call), context=context)
        self._task.add_done_callback(lambda _: self._calls.put(self._end))

    def _end(self) -> None:
        self._is_over = True

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _await(self, call: Callable[[], Awaitable[object]]) -> None:
        """Await the handler, and cancel the tasks that it left.

        It raises nothing, because an exception would end the loop.
        """
        try:
            with ProcessGuard():
                self._result = await call()
        except BaseException as error:  # the handler may raise anything
            self._error = error
        started = {task for task in asyncio.all_tasks() if task.get_context().get(_handling) is self}
        await _cancel(started - {asyncio.current_task()})
        self._shared.put_back_state()

    async def _beside(self, call: Callable[[], Any]) -> Any:
        """Make a call on the thread of the lane, and return its result.

        A cancelled caller still waits for the end of the call, because no other code may use the connection meanwhile.
        """
        if self._is_over:
            raise InvalidRequestError(connections.LEFT_BEHIND)
        done: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self._calls.put(lambda: self._call(call, done))
        try:
            result, error = await asyncio.shield(done)
        except asyncio.CancelledError:
            while not done.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([done])
            raise
        if error is not None:
            raise error
        return result

    def _call(self, call: Callable[[], Any], done: "asyncio.Future[tuple[Any, BaseException | None]]") -> None:
        result, error = None, None
        try:
            with ProcessGuard():
                result = call()
        except BaseException as raised:  # the handler's task gets the exception
            error = raised
        self._loop.call_soon_threadsafe(done.set_result, (result, error))


def _loss(check: Callable[[], None]) -> HoldLostError | None:
    try:
        check()
    except HoldLostError as lost:
        return lost
    return None


_handling: contextvars.ContextVar[_Handling | None] = contextvars.ContextVar("_handling", default=None)
_shared = _SharedLoop()
os.register_at_fork(after_in_child=_shared.forget)


def keeping_loop() -> AbstractContextManager[None]:
    """Return a block that keeps the event loop of the process open. The end of the last such block closes the loop."""
    return _shared.keeping()


def close() -> None:
    """Close the event loop of this thread's lane, if it has one, and that of the process, unless it is kept."""
    _shared.close()
    close_lane()


def close_lane() -> None:
    """Close the event loop of this thread's lane, if there is one."""
    runner, _lane.runner = _lane.runner, None
    if runner is not None:
        runner.close()
    beside, _lane.beside = _lane.beside, None
    if beside is not None:
        beside.submit(close_lane).result()
        beside.shutdown()
