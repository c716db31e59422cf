"""A loop of aiobotocore, by hand: `aiobotocore_loop.py ENDPOINT TASKS WAIT_SECONDS SECONDS`. It waits, and deletes.

Runs in .venv-benchmarks, which has no Sluice: this file imports none of it. Prints messages, seconds, processor seconds
and mebibytes as JSON.
"""

import asyncio
import json
import sys
import time
from pathlib import Path


async def run(endpoint: str, tasks: int, wait_seconds: float, seconds: float) -> None:
    """Receive, wait and delete, a message at a time in each task."""
    from aiobotocore.config import AioConfig  # noqa: PLC0415 (only its environment has it)
    from aiobotocore.session import get_session  # noqa: PLC0415

    handled, url = 0, f"{endpoint}/000000000000/benchmark.fifo"
    config = AioConfig(max_pool_connections=tasks)
    async with get_session().create_client(
        "sqs", region_name="eu-central-1", endpoint_url=endpoint, config=config
    ) as sqs:

        async def loop() -> None:
            nonlocal handled
            while True:
                answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=1)
                for message in answer.get("Messages", []):
                    await asyncio.sleep(wait_seconds)
                    await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                    handled += 1

        loops = [asyncio.create_task(loop()) for _ in range(tasks)]
        while handled <= tasks:
            await asyncio.sleep(0.01)
        before, began, used = handled, time.monotonic(), time.process_time()  # noqa: TID251 (has no Sluice)
        await asyncio.sleep(seconds)
        spent = time.monotonic() - began, time.process_time() - used  # noqa: TID251
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        mebibytes = int(status.partition("VmHWM:")[2].split()[0]) / 1_024
        print(json.dumps([handled - before, *spent, mebibytes]), flush=True)
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
