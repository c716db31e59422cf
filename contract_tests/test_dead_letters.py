"""A message that fails too often is set aside with its identity, and its group moves on."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract_tests.resources import Queue, Resources, bodies


@pytest.mark.promise("DLQ-01")
def test_a_poison_message_reaches_the_dlq_and_its_group_moves_on(resources: Resources) -> None:
    """DLQ-01: two receives are allowed; the third finds the next message, and the DLQ has the first, identity kept."""
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=2)
    queue.send_each("poison", "healthy", group="g1")

    tries = [queue.await_message(visibility=0), queue.await_message(visibility=0)]
    next_of_group = queue.await_message(visibility=30)
    dead = dead_letters.await_message(visibility=30)

    assert bodies(tries) == ["poison", "poison"]
    assert next_of_group["Body"] == "healthy"
    assert dead["Body"] == "poison"
    assert dead["MessageId"] == tries[0]["MessageId"]
    assert dead["Attributes"]["MessageGroupId"] == "g1"
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn


@pytest.mark.promise("DLQ-04")
def test_the_deduplication_id_in_the_dlq_is_the_message_id(resources: Resources) -> None:
    """DLQ-04: two messages with one deduplication id can both live in a FIFO DLQ."""
    dead_letters = resources.fifo_queue(hint="dlq")
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    queue.send("poison", id="the-id-it-was-sent-with")
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []

    dead = dead_letters.await_message(visibility=30)

    assert dead["Attributes"]["MessageDeduplicationId"] == dead["MessageId"]


@pytest.mark.promise("SLU-04")
def test_message_fifteen_fails_twice_and_everything_behind_it_waits(resources: Resources) -> None:
    """SLU-04: 20 messages of one group, 3 consumers, the 15th fails twice: no message is handled out of order."""
    queue = resources.fifo_queue(dead_letters=resources.fifo_queue(hint="dlq"), max_receive_count=5)
    sent = [f"m{number:02}" for number in range(1, 21)]
    queue.send_each(*sent, group="g1")

    handled = _work_off(queue, consumers=3, count=20, failing="m15", failures=2)

    assert handled == [
        *sent[:14],
        "m15 failed",
        "m15 failed",
        *sent[14:],
    ]


def _work_off(queue: Queue, *, consumers: int, count: int, failing: str, failures: int) -> list[str]:
    """Let consumers receive, handle and delete one message at a time; return what happened, in that order."""
    happened: list[str] = []
    lock = threading.Lock()
    done = threading.Event()

    def handle(body: str) -> bool:
        with lock:
            fails = body == failing and happened.count(f"{body} failed") < failures
            happened.append(f"{body} failed" if fails else body)
            if len(happened) == count + failures:
                done.set()
            return not fails

    def consume() -> None:
        empty_polls = 0
        while not done.is_set() and empty_polls < queue.patience_seconds:
            messages = queue.receive(visibility=60, wait=1)
            empty_polls = 0 if messages else empty_polls + 1
            for message in messages:
                if handle(message["Body"]):
                    queue.delete(message)
                else:
                    queue.change_visibility(message, 1)

    with ThreadPoolExecutor(consumers) as pool:
        for working in [pool.submit(consume) for _ in range(consumers)]:
            working.result(timeout=120)
    return happened
