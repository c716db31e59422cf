"""Purging empties a queue."""

import pytest

from contract_tests.resources import Resources


@pytest.mark.promise("PUR-02")
def test_a_purge_removes_what_waits_and_what_is_in_flight(resources: Resources) -> None:
    """PUR-02: one message in flight and two waiting are gone, also after the visibility timeout."""
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", group="g1")
    queue.send_each("m3", group="g2")
    queue.await_message(visibility=1)

    queue.purge()

    assert queue.receive(most=10, wait=3) == []
