"""A whole worker in this process, assembled as `sluice worker` does."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import WorkerTally
from sluice.messaging.worker.build import assemble_worker
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings

CONSUMER = "benchmark"


class WorkCounts:
    """Counts of a worker, or of the program it is compared with, since its start.

    Args:
        tally: the hooks in which the program counts.
    """

    def __init__(self, tally: WorkerTally) -> None:
        self._tally = tally
        self._counts: Counter[str] = Counter()

    def so_far(self) -> Counter[str]:
        """Return the counts since the start, by metric name."""
        self._counts.update({name: int(count) for name, count in self._tally.take().items()})
        return self._counts.copy()


@contextmanager
def running_worker(
    engine: Engine,
    queue: Queue,
    handlers: Handlers,
    *,
    lanes: int,
    database_connections: int | None = None,
    commits_bundles: bool = False,
) -> Iterator[WorkCounts]:
    """Run a worker until the end of the block, and yield its counts."""
    settings = WorkerSettings(
        lanes=lanes,
        wait_seconds=1,
        drain_seconds=20,
        keep_inbox_seconds=5_184_000,
    )
    processor_settings = ProcessorSettings(
        consumer=CONSUMER,
        max_attempts=5,
        timeout_seconds=30,
        hold_seconds_max=300,
        is_ordered=True,
        database_connections=database_connections,
        commits_bundles=commits_bundles,
    )
    tally = WorkerTally()
    worker = assemble_worker(
        queue=queue,
        engine=engine,
        handlers=handlers,
        inbox=make_inbox(),
        settings=settings,
        processor_settings=processor_settings,
        hooks=[tally],
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield WorkCounts(tally)
    finally:
        worker.stop()
        thread.join()


def make_inbox() -> Inbox:
    """Return an inbox of the benchmarks' consumer."""
    return Inbox(InboxPolicy(consumer=CONSUMER))
