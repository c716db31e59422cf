"""A FIFO topic deduplicates by itself: until when, by which id, and inside a batch.

The window is seen through a standard queue, which deduplicates nothing.
"""

import pytest

from contract_tests.resources import Resources, bodies, refusal
from contract_tests.targets.binding import Target
from sluice.clock import eventually

_WINDOW_SECONDS = 300


@pytest.mark.timeout(900)
@pytest.mark.promise("SNS-95")
def test_the_window_of_a_topic_begins_with_the_first_publish(resources: Resources, target: Target) -> None:
    queue = resources.standard_queue()
    topic = resources.fifo_topic(queue)
    started = target.clock.monotonic()
    first = topic.publish("first", id="same")
    repeats = 0

    def publish_again() -> bool:
        nonlocal repeats
        repeats += 1
        return str(topic.publish("again", id="same")["MessageId"]) != str(first["MessageId"])

    eventually(
        publish_again,
        timeout_seconds=_WINDOW_SECONDS * 2,
        describe="the id to be a new message",
        interval_seconds=_WINDOW_SECONDS / 10,
    )
    elapsed = target.clock.monotonic() - started

    assert repeats >= 5, "repeats inside the window were not seen to be dropped"
    assert _WINDOW_SECONDS * 0.9 <= elapsed <= _WINDOW_SECONDS * 1.6
    assert sorted(bodies(queue.drain(2))) == ["again", "first"]


@pytest.mark.promise("SNS-129")
def test_an_explicit_id_overrides_the_content_of_a_publish(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")

    topic.publish("same body", id="one")
    topic.publish("same body", id="two")

    assert bodies(queue.drain(2)) == ["same body", "same body"]


@pytest.mark.promise("SNS-130")
def test_a_batch_with_one_deduplication_id_twice_is_one_message(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    answer = topic.publish_batch(
        {"Message": "m1", "MessageDeduplicationId": "same"},
        {"Message": "m2", "MessageDeduplicationId": "same"},
        {"Message": "m3", "MessageDeduplicationId": "other"},
    )

    ids = [entry["MessageId"] for entry in answer["Successful"]]
    assert bodies(queue.drain(2)) == ["m1", "m3"]
    assert ids[0] == ids[1]
    assert ids[1] != ids[2]


@pytest.mark.promise("SNS-98")
def test_the_scope_of_deduplication_cannot_be_widened_again(resources: Resources) -> None:
    topic = resources.fifo_topic(FifoThroughputScope="MessageGroup")

    refused = refusal(topic.set_attribute, "FifoThroughputScope", "Topic")

    assert refused[1] == 400  # code and text are not recorded
    assert topic.attributes().get("FifoThroughputScope") == "MessageGroup"


@pytest.mark.promise("SNS-151")
def test_the_content_of_a_publish_is_its_body_alone(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    attributes = {"try": {"DataType": "String", "StringValue": "2"}}

    topic.publish("same body", Subject="first")
    topic.publish("same body", Subject="second")
    topic.publish("same body", MessageAttributes=attributes)
    topic.publish("other body")

    assert bodies(queue.drain(2)) == ["same body", "other body"]


@pytest.mark.promise("SNS-153")
def test_a_queue_deduplicates_across_groups_what_its_topic_delivers(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="queue")
    topic = resources.fifo_topic(queue, FifoThroughputScope="MessageGroup")
    topic.publish("in g1", group="g1", id="same")
    topic.publish("in g2", group="g2", id="same")
    topic.publish("last", group="g2", id="other")

    assert sorted(bodies(queue.drain(2))) == ["in g1", "last"]


@pytest.mark.promise("SNS-154")
def test_a_delivery_is_a_repeat_of_what_was_sent_to_the_queue(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)
    queue.send("sent", id="same")

    topic.publish("published", id="same")
    topic.publish("last", id="other")

    assert bodies(queue.drain(2)) == ["sent", "last"]
