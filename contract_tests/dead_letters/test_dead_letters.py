"""SQS moves a message that failed too often to the DLQ, with its identity, and its group goes on."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract_tests.resources import QueueUnderTest, Resources, bodies
from contract_tests.targets.binding import Target
from sluice.clock import eventually


@pytest.mark.promise("DLQ-01")
def test_a_poison_message_reaches_the_dlq_and_its_group_moves_on(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=2)
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
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    queue.send("poison", id="the-id-it-was-sent-with")
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []

    dead = dead_letters.await_message(visibility=30)

    assert dead["Attributes"]["MessageDeduplicationId"] == dead["MessageId"]


@pytest.mark.promise("DLQ-05")
def test_a_shared_dlq_keeps_both_messages_of_one_deduplication_id(resources: Resources) -> None:
    dead_letters = resources.fifo_queue(hint="dlq")
    first = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    second = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    first.send("of the first", id="same")
    second.send("of the second", id="same")

    first.await_message(visibility=0)
    second.await_message(visibility=0)
    assert first.receive(wait=1) == []
    assert second.receive(wait=1) == []

    assert sorted(bodies(dead_letters.drain(1))) == ["of the first", "of the second"]


@pytest.mark.promise("DLQ-06")
def test_dead_letters_keep_their_group_and_their_order(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    queue.dead_letter("m1", "m2", "m3", group="g1")

    dead = dead_letters.drain(3)

    assert bodies(dead) == ["m1", "m2", "m3"]
    assert [message["Attributes"]["MessageGroupId"] for message in dead] == ["g1", "g1", "g1"]


@pytest.mark.promise("DLQ-07")
def test_a_dead_letter_keeps_its_attributes_its_count_and_names_its_source(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    queue.send(
        "poison",
        id="m1",
        MessageAttributes={"kind": {"DataType": "String", "StringValue": "order"}},
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
    )
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []

    dead = dead_letters.await_message(visibility=30)

    assert dead.get("MessageAttributes") == {"kind": {"DataType": "String", "StringValue": "order"}}
    assert dead["Attributes"]["AWSTraceHeader"] == trace
    assert dead["Attributes"]["ApproximateReceiveCount"] == "2"
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn


@pytest.mark.promise("DLQ-08")
def test_a_fifo_dlq_counts_the_age_of_a_message_from_the_move(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    (before,) = queue.dead_letter("m1")

    dead = dead_letters.await_message(visibility=30)

    assert int(dead["Attributes"]["SentTimestamp"]) > int(before["Attributes"]["SentTimestamp"])


@pytest.mark.slow
@pytest.mark.promise("DLQ-39")
def test_a_fifo_dlq_keeps_a_message_from_the_move_on(resources: Resources, target: Target) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    dead_letters.set_attributes(MessageRetentionPeriod="60")
    started = target.clock.monotonic()

    queue.send_each("m1")
    target.await_age(30 + target.retention_settles_seconds, since=started)
    queue.await_message(visibility=0)
    assert queue.receive(wait=1) == []
    target.await_age(62 + target.retention_settles_seconds, since=started)

    assert bodies(dead_letters.receive(wait=2)) == ["m1"]


@pytest.mark.promise("DLQ-20")
def test_a_dlq_may_have_a_dlq(resources: Resources) -> None:
    last = resources.fifo_queue(hint="dlq-of-dlq")
    dead_letters = resources.fifo_queue(hint="dlq", dead_letters=last, max_receive_count=2)
    queue = resources.fifo_queue(dead_letters=dead_letters, max_receive_count=1)
    queue.dead_letter("m1")

    first = dead_letters.await_message(visibility=0)
    # Whether the DLQ counts its own receives only, or the source's too, is recorded by nobody.
    eventually(
        lambda: bodies(dead_letters.receive(visibility=0)),
        until=lambda seen: seen == [],
        timeout_seconds=queue.patience_seconds,
        describe="the DLQ to set the message aside",
    )

    assert [first["Body"], *bodies(last.drain(1))] == ["m1", "m1"]


@pytest.mark.promise("DLQ-36")
def test_a_message_without_receives_left_stays_until_the_next_receive(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1)
    queue.send_each("m1")
    queue.await_message(visibility=1)

    before_the_next_receive = dead_letters.receive(wait=2)
    at_the_next_receive = queue.receive(wait=1)

    assert [before_the_next_receive, at_the_next_receive] == [[], []]
    assert bodies(dead_letters.drain(1)) == ["m1"]


@pytest.mark.promise("DLQ-37")
def test_a_standard_dlq_keeps_the_time_of_the_first_send(resources: Resources) -> None:
    dead_letters = resources.standard_queue(hint="dlq")
    queue = resources.standard_queue(dead_letters=dead_letters, max_receive_count=1)
    (before,) = queue.dead_letter("m1", group=None)

    (dead,) = dead_letters.drain(1)

    assert dead["Attributes"]["SentTimestamp"] == before["Attributes"]["SentTimestamp"]


@pytest.mark.promise("DLQ-21")
def test_looking_at_a_message_counts_as_a_receive(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=2)
    queue.send("m1", id="m1")

    queue.change_visibility(queue.await_message(visibility=30), 0)
    queue.change_visibility(queue.await_message(visibility=30), 0)

    assert queue.receive(wait=1) == []
    assert bodies(dead_letters.drain(1)) == ["m1"]


@pytest.mark.promise("DLQ-23")
def test_a_lowered_max_receive_count_holds_for_messages_already_there(resources: Resources) -> None:
    queue, dead_letters = resources.queue_with_dlq(max_receive_count=1_000)  # more than the wait below receives
    queue.send("m1", id="m1")
    queue.await_message(visibility=0)
    queue.await_message(visibility=0)

    queue.set_attributes(RedrivePolicy=f'{{"deadLetterTargetArn": "{dead_letters.arn}", "maxReceiveCount": 2}}')

    eventually(
        lambda: bodies(queue.receive(visibility=0)),
        until=lambda seen: seen == [],
        timeout_seconds=queue.patience_seconds,
        describe="the queue to set the message aside",
    )
    assert bodies(dead_letters.drain(1)) == ["m1"]


@pytest.mark.promise("SLU-04")
def test_message_fifteen_fails_twice_and_everything_behind_it_waits(resources: Resources) -> None:
    queue = resources.fifo_queue(dead_letters=resources.fifo_queue(hint="dlq"), max_receive_count=5)
    sent = [f"m{number:02}" for number in range(1, 21)]
    queue.send_each(*sent, group="g1")

    handled = _work_until_idle(queue, consumers=3, count=20, failing="m15", failures=2)

    assert handled == [
        *sent[:14],
        "m15 failed",
        "m15 failed",
        *sent[14:],
    ]


def _work_until_idle(queue: QueueUnderTest, *, consumers: int, count: int, failing: str, failures: int) -> list[str]:
    """Run consumers that receive, handle and delete one message at a time, until all is handled or nothing comes.

    Args:
        queue: with the messages.
        consumers: how many threads work at once.
        count: how many messages there are.
        failing: the body of the message whose first handlings fail.
        failures: how often it fails.

    Returns:
        The body of each message that was handled, and `BODY failed` for each failure, in the order of their ends.
    """
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
