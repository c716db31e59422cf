"""The messages of a group come in the order they were sent."""

import pytest

from contract_tests.resources import Resources, bodies


@pytest.mark.promise("RCV-16")
def test_messages_received_one_at_a_time_come_in_the_order_sent(resources: Resources) -> None:
    """RCV-16: receive, delete, receive: ten messages in ten rounds."""
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
    """RCV-08: sends to two groups alternate; one receive brings each group's messages together and in order."""
    queue = resources.fifo_queue()
    queue.send_each("a1", group="g1")
    queue.send_each("b1", group="g2")
    queue.send_each("a2", "a3", group="g1")
    queue.send_each("b2", group="g2")

    batch = queue.await_batch(most=10, visibility=30)

    assert bodies(batch) == ["a1", "a2", "a3", "b1", "b2"]


@pytest.mark.promise("SND-10")
def test_sequence_numbers_of_a_group_rise(resources: Resources) -> None:
    """SND-10: compared as numbers, every send's sequence number is above the one before."""
    queue = resources.fifo_queue()

    numbers = [int(queue.send(body, id=body)["SequenceNumber"]) for body in ("m1", "m2", "m3")]

    assert numbers[0] < numbers[1] < numbers[2]
