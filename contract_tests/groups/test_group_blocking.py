"""A message in flight blocks its group, and only its group, until it is deleted, is released, or its timeout ends."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contract_tests.resources import Resources, bodies


@pytest.mark.promise("GRP-01")
def test_second_message_of_a_group_waits_while_the_first_is_in_flight(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", group="g1")
    first = queue.await_message(visibility=30)

    withheld = [queue.receive(), queue.receive(most=10), queue.receive(wait=2)]
    queue.delete(first)
    second = queue.await_message(visibility=30)

    assert withheld == [[], [], []]
    assert bodies([first, second]) == ["m1", "m2"]


@pytest.mark.promise("SLU-01")
def test_other_groups_flow_while_one_group_is_blocked(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("a1", "a2", group="g1")
    blocked = queue.await_message(visibility=30)
    queue.send_each("b1", group="g2")
    queue.send_each("c1", group="g3")

    flowing = [queue.await_message(visibility=30), queue.await_message(visibility=30)]

    assert blocked["Body"] == "a1"
    assert sorted(bodies(flowing)) == ["b1", "c1"]


@pytest.mark.promise("GRP-04")
def test_a_new_message_does_not_release_a_blocked_group(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", group="g1")
    queue.await_message(visibility=30)

    queue.send_each("m2", group="g1")

    assert queue.receive(most=10, wait=2) == []


@pytest.mark.promise("GRP-05")
def test_deleting_the_message_in_flight_releases_its_group_to_a_waiting_consumer(resources: Resources) -> None:
    """The waiting poll gets the next message before a message of another group that is hidden for five seconds."""
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", group="g1")
    first = queue.await_message(visibility=600)
    queue.send_each("five-seconds-later", group="g2")
    queue.await_message(visibility=5)
    polling = threading.Event()
    queue.sqs.meta.events.register("before-send.sqs.ReceiveMessage", lambda **_: polling.set())

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.receive, wait=20)
        assert polling.wait(timeout=5), "the poll was not sent"
        assert queue.receive(wait=1) == []  # after this second the service has received the poll that was sent
        assert not waiting.done()
        queue.delete(first)
        released = waiting.result(timeout=30)

    assert bodies(released) == ["m2"]


@pytest.mark.promise("GRP-02")
def test_expiry_releases_the_whole_group_in_order(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3", "m4", group="g1")
    in_flight = queue.hold("m1", "m2", visibility=2)

    after_expiry = queue.drain(4)

    assert bodies(in_flight) == ["m1", "m2"]
    assert bodies(after_expiry) == ["m1", "m2", "m3", "m4"]


@pytest.mark.promise("VIS-11")
def test_visibility_zero_releases_the_message_at_once(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", group="g1")
    first = queue.await_message(visibility=600)

    queue.change_visibility(first, 0)

    assert bodies(queue.drain(2)) == ["m1", "m2"]


@pytest.mark.promise("GRP-10")
def test_nothing_behind_an_invisible_message_is_delivered(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3", group="g1")
    in_flight = queue.hold("m1", "m2", "m3", visibility=2)

    queue.change_visibility(in_flight[1], 600)

    assert bodies(in_flight) == ["m1", "m2", "m3"]
    assert bodies(queue.await_batch(most=10, visibility=600)) == ["m1"]
    assert queue.receive(most=10, wait=2) == []


@pytest.mark.promise("GRP-13")
def test_a_long_invisible_message_does_not_delay_another_group(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("a1", group="g1")
    queue.await_message(visibility=60)
    queue.send_each("b1", group="g2")
    queue.await_message(visibility=1)

    again = queue.receive(wait=8)

    assert bodies(again) == ["b1"]


@pytest.mark.promise("SND-20")
def test_a_standard_queue_does_not_block_a_group(resources: Resources) -> None:
    queue = resources.standard_queue()
    queue.send("m1", group="g1")
    queue.send("m2", group="g1")

    in_flight = [queue.await_message(visibility=30), queue.await_message(visibility=30)]

    assert sorted(bodies(in_flight)) == ["m1", "m2"]


@pytest.mark.promise("GRP-03")
def test_a_receive_without_visibility_timeout_does_not_block_the_groups(resources: Resources) -> None:
    queue = resources.fifo_queue(VisibilityTimeout="600")
    queue.send_each("a1", "a2", group="g1")
    queue.send_each("b1", "b2", group="g2")

    queue.await_batch(most=10, visibility=0)
    drained = bodies(queue.drain(4))

    assert [body for body in drained if body in ("a1", "a2")] == ["a1", "a2"]
    assert [body for body in drained if body in ("b1", "b2")] == ["b1", "b2"]
    assert len(drained) == 4


@pytest.mark.promise("GRP-06")
def test_a_group_is_blocked_until_the_last_message_in_flight_is_deleted(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("a1", "a2", "a3", group="g1")
    in_flight = queue.hold("a1", "a2", visibility=600)
    queue.send_each("b1", group="g2")

    queue.delete(in_flight[0])
    after_one = queue.await_batch(most=10, visibility=30)
    queue.delete(in_flight[1])
    after_both = queue.await_batch(most=10, visibility=30)

    assert bodies(in_flight) == ["a1", "a2"]
    assert bodies(after_one) == ["b1"]
    assert bodies(after_both) == ["a3"]


@pytest.mark.promise("GRP-07")
def test_a_released_group_and_the_groups_that_waited_are_all_delivered(resources: Resources) -> None:
    """On AWS the group that had waited came first; no source promises an order of groups."""
    queue = resources.fifo_queue()
    queue.send_each("a1", "a2", "a3", "a4", group="g1")
    in_flight = queue.hold("a1", "a2", visibility=600)
    queue.send_each("b1", "b2", group="g2")
    queue.send_each("c1", group="g3")

    queue.delete(in_flight[0])
    queue.delete(in_flight[1])
    released = bodies(queue.drain(5))

    assert bodies(in_flight) == ["a1", "a2"]
    assert [body for body in released if body in ("a3", "a4")] == ["a3", "a4"]
    assert [body for body in released if body in ("b1", "b2")] == ["b1", "b2"]
    assert sorted(released) == ["a3", "a4", "b1", "b2", "c1"]


@pytest.mark.promise("GRP-08")
def test_giving_back_the_first_of_two_in_flight_releases_that_one_only(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("a1", "a2", group="g1")
    in_flight = queue.hold("a1", "a2", visibility=600)
    queue.send_each("b1", group="g2")

    queue.change_visibility(in_flight[0], 0)
    released = [queue.await_message(visibility=600), queue.await_message(visibility=600)]

    assert bodies(in_flight) == ["a1", "a2"]
    assert sorted(bodies(released)) == ["a1", "b1"]
    assert queue.receive(most=10, wait=1) == []


@pytest.mark.promise("GRP-09")
def test_the_first_of_two_in_flight_returns_after_its_shortened_timeout(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("a1", "a2", group="g1")
    in_flight = queue.hold("a1", "a2", visibility=600)

    queue.change_visibility(in_flight[0], 2)
    at_once = queue.receive(most=10)
    later = queue.await_batch(most=10, visibility=600)

    assert bodies(in_flight) == ["a1", "a2"]
    assert at_once == []
    assert bodies(later) == ["a1"]
    assert queue.receive(most=10, wait=1) == []


@pytest.mark.promise("GRP-11")
def test_nothing_comes_while_every_message_in_flight_is_extended(resources: Resources) -> None:
    extended, let_go = resources.fifo_queue(), resources.fifo_queue()
    extended.send_each("m1", "m2", "m3")
    let_go.send_each("m1", "m2", "m3")
    for message in extended.await_batch(most=3, visibility=2):
        extended.change_visibility(message, 600)

    let_go.await_batch(most=3, visibility=2)
    again = let_go.drain(3)  # this takes two seconds, in which the timeout in the other queue would have ended

    assert bodies(again) == ["m1", "m2", "m3"]
    assert extended.receive(most=10, wait=1) == []


@pytest.mark.promise("GRP-12")
def test_giving_back_the_second_of_two_in_flight_releases_nothing(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3")
    in_flight = queue.hold("m1", "m2", visibility=600)

    queue.change_visibility(in_flight[1], 0)
    behind_the_first = queue.receive(most=10, wait=1)
    queue.change_visibility(in_flight[0], 0)

    assert bodies(in_flight) == ["m1", "m2"]
    assert behind_the_first == []
    assert bodies(queue.drain(3)) == ["m1", "m2", "m3"]


@pytest.mark.promise("GRP-15")
def test_messages_of_a_blocked_group_count_as_visible(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3", "m4", "m5", "m6")
    in_flight = queue.hold("m1", "m2", "m3", "m4", visibility=600)

    queue.await_attributes({"ApproximateNumberOfMessages": "2", "ApproximateNumberOfMessagesNotVisible": "4"})

    assert len(in_flight) == 4
    assert queue.receive(most=10) == []


@pytest.mark.promise("SLU-37")
def test_a_later_message_may_be_deleted_before_an_earlier_one(resources: Resources) -> None:
    queue = resources.fifo_queue()
    queue.send_each("m1", "m2", "m3")
    in_flight = queue.hold("m1", "m2", visibility=2)

    queue.delete(in_flight[1])

    assert bodies(in_flight) == ["m1", "m2"]
    assert bodies(queue.drain(2)) == ["m1", "m3"]
