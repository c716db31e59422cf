"""The messages of a group are delivered in the order in which they were sent."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract_tests.resources import Message, Resources, bodies


@pytest.mark.promise("RCV-16")
def test_messages_received_one_at_a_time_come_in_the_order_sent(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9")

    received = []
    for _ in range(10):
        message = queue.await_message(visibility=30)
        queue.delete(message)
        received.append(message)

    assert bodies(received) == ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"]


@pytest.mark.promise("RCV-08")
def test_one_receive_fills_up_from_one_group_before_the_next(resources: Resources) -> None:
    """A receive that has begun with a group takes no other group while the first has more messages.

    AWS does not promise how many messages a receive brings, nor which group comes first.
    """
    queue = resources.fifo_queue()
    queue.send_each("a1", group="g1")
    queue.send_each("b1", group="g2")
    queue.send_each("a2", "a3", group="g1")
    queue.send_each("b2", group="g2")

    receives = queue.drain_by_receive(5)

    received = bodies(itertools.chain.from_iterable(receives))
    assert [body for body in received if body.startswith("a")] == ["a1", "a2", "a3"]
    assert [body for body in received if body.startswith("b")] == ["b1", "b2"]
    assert _left_too_early(receives, Counter(g1=3, g2=2)) == []


def _left_too_early(receives: list[list[Message]], left: Counter[str]) -> list[str]:
    """Return the messages after which a receive went on to another group too early.

    `left` is how many messages each group has; too early is while the message's own group has more.
    """
    found = []
    for messages in receives:
        for message, following in itertools.zip_longest(messages, messages[1:]):
            group = message["Attributes"]["MessageGroupId"]
            left[group] -= 1
            if following is not None and following["Attributes"]["MessageGroupId"] != group and left[group] > 0:
                found.append(message["Body"])
    return found


@pytest.mark.promise("SND-10")
def test_sequence_numbers_of_a_group_rise(resources: Resources) -> None:
    """Ten numbers are compared, because three random ones would rise in one run of six."""
    queue = resources.fifo_queue()

    numbers = [int(queue.send(str(message), id=str(message))["SequenceNumber"]) for message in range(10)]

    assert numbers == sorted(set(numbers))


@pytest.mark.promise("ORD-01")
def test_messages_come_again_in_the_order_they_came_first(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3")
    first = queue.hold("m1", "m2", "m3", visibility=1)

    again = queue.drain(3)

    assert bodies(first) == ["m1", "m2", "m3"]
    assert bodies(again) == ["m1", "m2", "m3"]
    assert [entry["MessageId"] for entry in again] == [entry["MessageId"] for entry in first]


@pytest.mark.promise("ORD-02")
def test_a_message_that_comes_again_comes_before_younger_ones(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2")
    queue.await_message(visibility=1)

    after_expiry = queue.drain(2)

    assert bodies(after_expiry) == ["m1", "m2"]


@pytest.mark.promise("ORD-04")
def test_messages_of_two_producers_come_in_the_order_of_their_sequence_numbers(resources: Resources) -> None:
    queue = resources.fifo_queue()
    of_first = ["a1", "a2", "a3", "a4", "a5"]
    of_other = ["b1", "b2", "b3", "b4", "b5"]

    def produce(bodies: list[str]) -> dict[str, int]:
        return {body: int(queue.send(body, group="g1", id=body)["SequenceNumber"]) for body in bodies}

    with ThreadPoolExecutor() as pool:
        sends = list(pool.map(produce, [of_first, of_other]))
    received = bodies(queue.drain(10))

    numbers = sends[0] | sends[1]
    assert received == sorted(numbers, key=numbers.__getitem__)
    assert [body for body in received if body in of_first] == of_first
    assert [body for body in received if body in of_other] == of_other


@pytest.mark.promise("ORD-05")
def test_a_queue_with_a_delay_keeps_the_order(resources: Resources) -> None:
    queue = resources.fifo_queue(DelaySeconds="2")
    queue.send_each("m1", "m2", "m3")

    received = queue.drain(3)

    assert bodies(received) == ["m1", "m2", "m3"]
    too_early = [message["Body"] for message in received if _milliseconds_waited(message) < 1_900]  # 2,000 is the delay
    assert too_early == []


def _milliseconds_waited(message: Message) -> int:
    """Return the time from a message's send to its first receive, both by the service's own clock."""
    attributes = message["Attributes"]
    return int(attributes["ApproximateFirstReceiveTimestamp"]) - int(attributes["SentTimestamp"])
