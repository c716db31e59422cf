"""Purging empties a queue."""

import pytest

from contract_tests.resources import Resources, bodies, refusal


@pytest.mark.promise("PUR-02")
def test_a_purge_removes_what_waits_and_what_is_in_flight(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", group="g1")
    queue.send_each("m3", group="g2")
    queue.await_message(visibility=1)

    queue.purge()

    assert queue.receive(most=10, wait=3) == []


@pytest.mark.promise("PUR-16")
def test_a_purge_removes_what_is_delayed(resources: Resources) -> None:
    queue = resources.fifo_queue(DelaySeconds="1")
    queue.send_each("m1", "m2")

    queue.purge()

    assert queue.receive(most=10, wait=3) == []


@pytest.mark.promise("PUR-01")
def test_a_second_purge_within_a_minute_is_refused(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.purge()

    assert refusal(queue.purge) == (
        "AWS.SimpleQueueService.PurgeQueueInProgress",
        403,
        f"Only one PurgeQueue operation on {queue.name} is allowed every 60 seconds.",
    )


@pytest.mark.promise("PUR-05")
def test_a_purge_releases_the_group_of_what_was_in_flight(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("before", group="g1")
    queue.await_message(visibility=600)

    queue.purge()
    queue.send_each("after", group="g1")

    assert bodies(queue.await_batch(most=10, visibility=30)) == ["after"]


@pytest.mark.promise("PUR-18")
def test_sequence_numbers_rise_beyond_a_purge(resources: Resources) -> None:
    queue = resources.fifo_queue()
    before = [int(queue.send(body, id=body)["SequenceNumber"]) for body in ("m1", "m2", "m3", "m4")]

    queue.purge()
    after = [int(queue.send(body, id=body)["SequenceNumber"]) for body in ("m5", "m6", "m7", "m8")]

    assert [*before, *after] == sorted({*before, *after})
