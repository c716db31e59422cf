"""A whole worker in this process: lanes, heartbeat, drainer and care, as the command line puts them together."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from messaging.handlers import Handlers
from messaging.hold import Heartbeat
from messaging.inbox import Inbox, Policy
from messaging.metrics import NoMetrics
from messaging.parking import Drainer, Kept
from messaging.performing import Performer
from messaging.protection import Protection
from messaging.queue import Queue
from messaging.tally import Tally
from messaging.waiting import PollWait, Stop
from messaging.work import Work, WorkSettings
from messaging.worker import Lane, Parts, Worker, WorkerSettings
from sluice.clock import SystemClock

CONSUMER = "benchmark"
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


@contextmanager
def working(engine: Engine, queue: Queue, handlers: Handlers, conditions: Conditions) -> Iterator[Tally]:
    """Yield what a worker counts, which works until the end of the block."""
    settings = WorkerSettings(
        lanes=conditions.lanes,
        wait_seconds=1,
        drain_seconds=20,
        keep_inbox_seconds=5_184_000,
        is_ordered=conditions.is_ordered,
    )
    stop, tally = Stop(), Tally()
    worker = Worker(
        _parts(engine, queue, handlers, conditions, settings, stop, tally), settings=settings, stop=stop, clock=_clock
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield tally
    finally:
        stop.ask()
        thread.join()


def _parts(
    engine: Engine,
    queue: Queue,
    handlers: Handlers,
    conditions: Conditions,
    settings: WorkerSettings,
    stop: Stop,
    tally: Tally,
) -> Parts:
    wait, kept, performer = PollWait(stop), Kept(), Performer(handlers=handlers)
    inbox = Inbox(Policy(consumer=CONSUMER, is_ordered=conditions.is_ordered))
    heartbeat = Heartbeat(queue, timeout_seconds=conditions.timeout_seconds, clock=_clock)
    work_settings = WorkSettings(
        consumer=CONSUMER,
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
        drainer=Drainer(engine, inbox, performer, settings=work_settings, chance=chance, tally=tally, kept=kept),
        kept=kept,
        lanes=[Lane(queue, work, settings=settings, wait=wait, clock=_clock, chance=one) for one in chances],
        protection=Protection(None, _clock),
        measured=NoMetrics(),
        tally=tally,
    )
