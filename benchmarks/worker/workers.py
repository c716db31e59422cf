"""A whole worker in this process: lanes, heartbeat, drainer and care, as the command line puts them together."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import Tally
from sluice.messaging.worker.build import assemble_worker
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings

CONSUMER = "benchmark"


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
        tally: that it counts with.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._counts: Counter[str] = Counter()

    def so_far(self) -> Counter[str]:
        """Return how often each thing happened."""
        self._counts.update({name: int(count) for name, count in self._tally.take().items()})
        return self._counts.copy()


@contextmanager
def working(engine: Engine, queue: Queue, handlers: Handlers, conditions: Conditions) -> Iterator[Counts]:
    """Yield what a worker counts, which works until the end of the block."""
    settings = WorkerSettings(
        lanes=conditions.lanes,
        wait_seconds=1,
        drain_seconds=20,
        keep_inbox_seconds=5_184_000,
    )
    processor_settings = ProcessorSettings(
        consumer=CONSUMER,
        max_attempts=conditions.max_attempts,
        timeout_seconds=conditions.timeout_seconds,
        hold_seconds_max=conditions.hold_seconds_max,
        is_ordered=conditions.is_ordered,
    )
    tally = Tally()
    worker = assemble_worker(
        queue=queue,
        engine=engine,
        handlers=handlers,
        inbox=inbox_of(),
        settings=settings,
        processor_settings=processor_settings,
        hooks=[tally],
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield Counts(tally)
    finally:
        worker.stop()
        thread.join()


def inbox_of() -> Inbox:
    """Return the worker's inbox."""
    return Inbox(Policy(consumer=CONSUMER))
