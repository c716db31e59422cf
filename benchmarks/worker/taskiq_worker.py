"""taskiq on SQS: `taskiq_worker.py ENDPOINT TASKS MESSAGES_AT_ONCE WAIT_SECONDS SECONDS`. Its task waits.

Runs in .venv-benchmarks, which has no Sluice: this file imports none of it. Prints messages, seconds, processor seconds
and mebibytes as JSON.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path


async def run(endpoint: str, tasks: int, at_once: int, wait_seconds: float, seconds: float) -> None:
    """Let taskiq execute up to `tasks` tasks side by side, and print the result after `seconds`."""
    from taskiq.receiver import Receiver  # noqa: PLC0415 (only its environment has it)
    from taskiq_aio_sqs import SQSBroker  # noqa: PLC0415

    handled = 0
    broker = SQSBroker(
        "taskiq.fifo",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        wait_time_seconds=1,
        max_number_of_messages=at_once,
    )
    broker.is_worker_process = True

    async def place(**_: object) -> None:
        nonlocal handled
        await asyncio.sleep(wait_seconds)
        handled += 1

    broker.register_task(place, task_name="place")

    listening = asyncio.create_task(Receiver(broker, max_async_tasks=tasks).listen(asyncio.Event()))
    while handled <= tasks:
        assert not listening.done(), listening.exception()
        await asyncio.sleep(0.01)
    before, began, used = handled, time.monotonic(), time.process_time()  # noqa: TID251 (has no Sluice)
    await asyncio.sleep(seconds)
    spent = time.monotonic() - began, time.process_time() - used  # noqa: TID251
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    mebibytes = int(status.partition("VmHWM:")[2].split()[0]) / 1_024
    print(json.dumps([handled - before, *spent, mebibytes]), flush=True)
    os._exit(0)  # a regular end would wait for each of the tasks


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], *map(int, sys.argv[2:4]), *map(float, sys.argv[4:])))
