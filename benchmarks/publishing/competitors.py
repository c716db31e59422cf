"""Publishing clients of others, each in a process of its own: `competitors.py boto3 sqs URL CALLS`.

Runs in .venv-benchmarks, which has no Sluice: this file imports none of it. Each sends calls of ten messages of 1 KiB,
16 at a time, checks every answer, and records nothing. Prints messages, seconds and processor seconds as JSON.
"""

import asyncio
import json
import resource
import sys
import threading
import time
from typing import Any

TOPIC = "arn:aws:sns:us-east-1:000000000000:t.fifo"
BODY = "x" * 1024
IN_FLIGHT = 16
WARM_UP_CALLS = 50


def _request(service: str, number: int) -> tuple[str, dict[str, Any]]:
    name = "Message" if service == "sns" else "MessageBody"
    entries = [
        {
            "Id": str(entry_number),
            name: BODY,
            "MessageGroupId": f"g{entry_number}",
            "MessageDeduplicationId": f"r.{number}.{entry_number}",
        }
        for entry_number in range(10)
    ]
    if service == "sns":
        return "publish_batch", {"TopicArn": TOPIC, "PublishBatchRequestEntries": entries}
    return "send_message_batch", {"QueueUrl": "http://localhost/000000000000/q.fifo", "Entries": entries}


def _require_ten(answer: Any) -> None:
    assert len(answer["Successful"]) == 10, answer


def _config(module: Any) -> Any:
    return module(retries={"total_max_attempts": 1}, max_pool_connections=IN_FLIGHT)


def _client(service: str, url: str) -> Any:
    import boto3  # noqa: PLC0415 (each competitor imports only what it needs)
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client(service, endpoint_url=url, region_name="us-east-1", config=_config(Config))


def boto3(service: str, url: str, calls: int) -> None:
    """Send with boto3 in threads."""
    client = _client(service, url)
    numbers = iter(range(calls))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            operation, params = _request(service, number)
            _require_ten(getattr(client, operation)(**params))

    threads = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def aiobotocore(service: str, url: str, calls: int) -> None:
    """Send with aiobotocore, the asyncio port of botocore."""
    from aiobotocore.config import AioConfig  # noqa: PLC0415
    from aiobotocore.session import get_session  # noqa: PLC0415

    async def main() -> None:
        numbers = iter(range(calls))
        made = get_session().create_client(
            service, endpoint_url=url, region_name="us-east-1", config=_config(AioConfig)
        )
        async with made as client:

            async def work() -> None:
                for number in numbers:
                    operation, params = _request(service, number)
                    _require_ten(await getattr(client, operation)(**params))

            await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))

    asyncio.run(main())


def locust(service: str, url: str, calls: int) -> None:
    """Send from Locust users with boto3 over gevent; each reports its call to Locust's statistics."""
    from gevent.event import Event  # noqa: PLC0415
    from locust import User, constant, task  # noqa: PLC0415
    from locust.env import Environment  # noqa: PLC0415
    from locust.exception import StopUser  # noqa: PLC0415

    answered, all_answered = iter(range(1, calls + 1)), Event()
    numbers = iter(range(calls))
    client = _client(service, url)

    class Sender(User):
        wait_time = constant(0)

        @task
        def send(self) -> None:
            number = next(numbers, None)
            if number is None:
                raise StopUser
            operation, params = _request(service, number)
            began = time.perf_counter()
            _require_ten(getattr(client, operation)(**params))
            self.environment.events.request.fire(
                request_type=service,
                name=operation,
                response_time=1_000 * (time.perf_counter() - began),
                response_length=0,
                exception=None,
                context={},
            )
            if next(answered) == calls:
                all_answered.set()

    runner = Environment(user_classes=[Sender]).create_local_runner()
    runner.start(IN_FLIGHT, spawn_rate=IN_FLIGHT)
    all_answered.wait()
    runner.quit()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Send some calls to warm up, then measure the others and print the result."""
    name, service, url, calls = sys.argv[1:]
    if name == "locust":
        from gevent import monkey  # noqa: PLC0415

        monkey.patch_all()
    send = {"boto3": boto3, "aiobotocore": aiobotocore, "locust": locust}[name]
    send(service, url, WARM_UP_CALLS)
    began, began_processor = time.perf_counter(), _processor_seconds()
    send(service, url, int(calls))
    took = {
        "messages": 10 * int(calls),
        "seconds": time.perf_counter() - began,
        "processor_seconds": _processor_seconds() - began_processor,
    }
    print(json.dumps(took))


if __name__ == "__main__":
    main()
