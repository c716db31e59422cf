"""A worker whose threads run by themselves, by the machine's clock."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, override

from sqlalchemy.orm import Session

from sluice.clock import SystemClock, VirtualClock
from sluice.messaging.backoff import Backoff
from sluice.messaging.envelope import Event
from sluice.messaging.handlers import Ack, Context, Outcome
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.lane import Lane
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.worker import Worker
from tests.support.messaging.faulty_calls import GroupPlace
from tests.support.messaging.world import WorkerParts, World

PATIENCE_SECONDS = 30
BACKOFF = Backoff(base_seconds=0.01, cap_seconds=0.01, floor_seconds=0.01)
SETTINGS = WorkerSettings(lanes=1, wait_seconds=0, drain_seconds=0.3, keep_inbox_seconds=86_400, backoff=BACKOFF)
_POLL_SECONDS = 0.01
_NAMES = ("lane-", "deleter-", "drain", "heartbeat", "maintenance")


class MachineClock(VirtualClock):
    """The machine's clock for a simulator: sleeping on it returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self._machine = SystemClock()

    @override
    def now_us(self) -> int:
        return self._machine.now_us()

    @override
    def monotonic(self) -> float:
        return self._machine.monotonic()

    @override
    def sleep(self, seconds: float) -> None:
        """Do nothing: time passes by itself."""


@dataclass(frozen=True)
class RunningWorker:
    stop: Stop
    _run: Future[None]

    def wait_for_end(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for the worker's end, and raise its exception if there is one."""
        self._run.result(seconds)


def _pace(queue: Queue) -> None:
    """Let an empty poll last a moment: a lane that polls again at once would starve every other thread."""
    receive, never = queue.receive, threading.Event()

    def receive_at_pace(**options: Any) -> ReceivedMessage | None:
        message = receive(**options)
        if message is None:
            never.wait(_POLL_SECONDS)
        return message

    queue.receive = receive_at_pace  # type: ignore[method-assign]


@contextmanager
def running(
    worker_parts: WorkerParts, *more: Lane, settings: WorkerSettings = SETTINGS, stop: Stop | None = None
) -> Iterator[RunningWorker]:
    """Run a worker with its lanes and further ones, and stop it at the end."""
    stop, clock = Stop() if stop is None else stop, SystemClock()
    _pace(worker_parts.queue)
    parts = replace(worker_parts.parts, lanes=[*worker_parts.parts.lanes, *more], protection=Protection(None, clock))
    with ThreadPoolExecutor(1) as pool:
        worker = RunningWorker(stop, pool.submit(Worker(parts, settings=settings, stop=stop, clock=clock).run))
        try:
            yield worker
        finally:
            stop.request()


def join_threads() -> None:
    """Wait for the threads that workers left behind: of a handler that was given up, for instance."""
    for thread in threading.enumerate():
        if thread.name.startswith(_NAMES):
            thread.join(PATIENCE_SECONDS)


@dataclass(frozen=True)
class Hang:
    """A handler that hangs until it may end."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def handle(self, _: Session, __: Event, ___: Context) -> Outcome:
        self.has_begun.set()
        assert self.may_end.wait(2 * PATIENCE_SECONDS)
        return Ack()


@contextmanager
def hanging(world: World, place: GroupPlace) -> Iterator[Hang]:
    """Let the handler of a message hang within the block, and wait for the threads that it blocked."""
    hang = Hang()
    world.handler_steps[place] = [hang.handle]
    try:
        yield hang
    finally:
        hang.may_end.set()
        join_threads()
