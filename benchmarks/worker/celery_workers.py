"""Celery on SQS, in one process: `celery_workers.py ENDPOINT THREADS SECONDS`. A task that does nothing.

Runs in .venv-benchmarks, which has no Sluice: this file imports none of it. Prints messages, seconds and processor
seconds as JSON.
"""

import json
import os
import resource
import sys
import threading
import time
from itertools import count
from typing import Any


def main() -> None:
    """Handle messages of an endless queue for some seconds, print their number, and end."""
    import celery  # noqa: PLC0415 (only its environment has it)

    endpoint, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    queue = "celery.fifo"
    options = {"region": "eu-central-1", "is_secure": False, "wait_time_seconds": 1}
    predefined = {queue: {"url": f"{endpoint}/000000000000/{queue}"}}
    app: Any = celery.Celery(broker=f"sqs://benchmark:benchmark@{endpoint.removeprefix('http://')}")
    app.conf.update(
        broker_transport_options={**options, "predefined_queues": predefined},
        task_default_queue=queue,
        task_ignore_result=True,
        task_acks_late=True,
        worker_enable_remote_control=False,
        worker_redirect_stdouts=False,
    )
    numbers = count(1)
    handled = [0]

    def place(**_: Any) -> None:
        handled[0] = next(numbers)

    app.task(name="place")(place)

    def measure() -> None:
        while handled[0] <= 10 * threads:
            time.sleep(0.01)  # noqa: TID251 (has no Sluice)
        before, began, used = handled[0], time.monotonic(), _cpu_seconds()  # noqa: TID251
        time.sleep(seconds)  # noqa: TID251
        result = [handled[0] - before, time.monotonic() - began, _cpu_seconds() - used]  # noqa: TID251
        print(json.dumps(result), flush=True)
        os._exit(0)

    threading.Thread(target=measure, daemon=True).start()
    quiet = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
    app.Worker(pool="threads", concurrency=threads, loglevel="ERROR", **quiet).start()


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
