"""A worker in a process of its own, for `pace`: `python -m benchmarks.worker.one_process DSN ENDPOINT LANES`.

Prints a line when it is warm, then counts from a line on its standard input to the next. Prints messages, seconds and
processor seconds as JSON.
"""

import json
import logging
import sys

import structlog

from benchmarks.worker.lanes import REGION, cpu_seconds
from benchmarks.worker.workers import running_worker
from sluice.cli.services import running
from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging.database import engines
from sluice.messaging.handlers import ANY, Ack, Handlers
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.worker.processing.deleter import threads_of


def main() -> None:
    """Run the worker, and count between the two lines on standard input."""
    running.collect_rarely()  # as `sluice worker` does
    dsn, endpoint, lanes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    clock = SystemClock()
    sqs = queue.client(endpoint, REGION, connections=lanes + threads_of(lanes) + 2)
    source = Queue(sqs, f"{endpoint}/000000000000/benchmark.fifo")
    handlers = Handlers({ANY: lambda _, __, ___: Ack()})
    with running_worker(engines.engine(dsn), source, handlers, lanes=lanes) as counts:
        eventually(
            lambda: counts.so_far()[metrics.HANDLED] > lanes, timeout_seconds=60, describe="every lane to be connected"
        )
        print("warm", flush=True)
        sys.stdin.readline()
        before, began, cpu = counts.so_far()[metrics.HANDLED], clock.monotonic(), cpu_seconds()
        sys.stdin.readline()
        messages = counts.so_far()[metrics.HANDLED] - before
        print(json.dumps([messages, clock.monotonic() - began, cpu_seconds() - cpu]), flush=True)


if __name__ == "__main__":
    main()
