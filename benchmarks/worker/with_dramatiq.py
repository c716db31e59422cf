"""dramatiq on Redis, in one process: `with_dramatiq.py SOCKET THREADS MESSAGES`. An actor that does nothing.

Runs in .venv-benchmarks, which has no Sluice: this file imports none of it. Prints messages, seconds and processor
seconds as JSON.
"""

import json
import resource
import sys
import time
from typing import Any


def main() -> None:
    """Fill a queue, then work it off."""
    import dramatiq  # noqa: PLC0415 (only its environment has it)
    from dramatiq.brokers.redis import RedisBroker  # noqa: PLC0415

    path, threads, messages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    broker: Any = RedisBroker(url=f"unix://{path}")
    dramatiq.set_broker(broker)

    def place(_: dict[str, Any]) -> None:
        """Do nothing."""

    placed = dramatiq.actor(place, max_retries=0)
    for number in range(messages):
        placed.send({"type": "order.placed", "group": f"order-{number % 1_000}", "data": {"number": number}})
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)  # noqa: TID251 (has no Sluice)
    worker = dramatiq.Worker(broker, worker_threads=threads)
    worker.start()
    broker.join(placed.queue_name)
    seconds = time.monotonic() - began  # noqa: TID251 (has no Sluice)
    now = resource.getrusage(resource.RUSAGE_SELF)
    worker.stop()
    cpu_seconds = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    print(json.dumps([messages, seconds, cpu_seconds]))


if __name__ == "__main__":
    main()
