"""A whole worker in this process: lanes, heartbeat, drainer and care, as the command line puts them together."""

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from sluice import metrics
from sluice.clock import SystemClock
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.tally import Tally
from sluice.messaging.waiting import PollWait, Stop
from sluice.messaging.worker.drainer import Drainer, ShutdownGuard
from sluice.messaging.worker.handler_runner import Performer
from sluice.messaging.worker.message_lease import Heartbeat
from sluice.messaging.worker.processor import Work, WorkSettings
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.worker import Lane, Parts, Worker, WorkerSettings

_CONSUMER = "benchmark"
_clock = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a worker works under.

    Args:
        lanes: of it.
        timeout_seconds: visibility timeout of the queue.
        hold_seconds_max: a handler that takes longer has failed.
        max_attempts: receives of a message before it is written down as dead.
        is_ordered: whether the queue is FIFO.
    """

    lanes: int
    timeout_seconds: int = 30
    hold_seconds_max: float = 300
    max_attempts: int = 5
    is_ordered: bool = True


class Counts:
    """What a worker, or whatever is compared with one, has counted since it began.

    Args:
        tally: that it counts with; a worker hands on now and then what is in it.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def put(self, values: Mapping[str, float]) -> None:
        """Take what a worker hands on."""
        with self._lock:
            self._counts.update({name: int(values[name]) for name in metrics.EVENTS})

    def so_far(self) -> Counter[str]:
        """Return how often each thing happened."""
        self.put(self._tally.take())
        return self._counts.copy()


@contextmanager
def working(engine: Engine, queue: Queue, handlers: Handlers, conditions: Conditions) -> Iterator[Counts]:
    """Yield what a worker counts, which works until the end of the block."""
    settings = WorkerSettings(
        lanes=conditions.lanes,
        wait_seconds=1,
        drain_seconds=20,
        keep_inbox_seconds=5_184_000,
        is_ordered=conditions.is_ordered,
    )
    stop, tally = Stop(), Tally()
    counts = Counts(tally)
    parts = _parts(engine, queue, handlers, conditions, settings, stop, tally, counts)
    worker = Worker(parts, settings=settings, stop=stop, clock=_clock)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield counts
    finally:
        stop.ask()
        thread.join()


def inbox_of() -> Inbox:
    """Return the worker's inbox."""
    return Inbox(Policy(consumer=_CONSUMER))


def _parts(
    engine: Engine,
    queue: Queue,
    handlers: Handlers,
    conditions: Conditions,
    settings: WorkerSettings,
    stop: Stop,
    tally: Tally,
    counts: Counts,
) -> Parts:
    wait, shutdown, performer = PollWait(stop), ShutdownGuard(), Performer(handlers=handlers)
    inbox = inbox_of()
    heartbeat = Heartbeat(queue, timeout_seconds=conditions.timeout_seconds, clock=_clock)
    work_settings = WorkSettings(
        consumer=_CONSUMER,
        max_attempts=conditions.max_attempts,
        timeout_seconds=conditions.timeout_seconds,
        hold_seconds_max=conditions.hold_seconds_max,
        is_ordered=conditions.is_ordered,
    )
    chance, *chances = [random.Random() for _ in range(conditions.lanes + 1)]
    work = Work(
        engine,
        queue,
        inbox,
        performer,
        heartbeat,
        settings=work_settings,
        wait=wait,
        clock=_clock,
        chance=chance,
        tally=tally,
    )
    return Parts(
        engine=engine,
        queue=queue,
        inbox=inbox,
        heartbeat=heartbeat,
        drainer=Drainer(
            engine,
            inbox,
            performer,
            settings=work_settings,
            clock=_clock,
            chance=chance,
            tally=tally,
            shutdown=shutdown,
        ),
        shutdown=shutdown,
        lanes=[Lane(queue, work, settings=settings, wait=wait, clock=_clock, chance=one) for one in chances],
        protection=Protection(None, _clock),
        measured=counts,
        tally=tally,
    )
