"""A message published to the topic arrives in every subscribed queue, once and in order."""

import pytest

from contract_tests.resources import Resources, bodies


@pytest.mark.promise("SLU-05")
def test_every_queue_gets_every_message_once(resources: Resources) -> None:
    """SLU-05: four messages in two groups, three queues, each of the four exactly once in each."""
    queues = [resources.fifo_queue(), resources.fifo_queue(), resources.fifo_queue()]
    topic = resources.fifo_topic(*queues)
    topic.publish("a1", group="g1", id="a1")
    topic.publish("b1", group="g2", id="b1")
    topic.publish("a2", group="g1", id="a2")
    topic.publish("b2", group="g2", id="b2")

    drained = [sorted(bodies(queue.drain(4))) for queue in queues]

    assert drained == [["a1", "a2", "b1", "b2"], ["a1", "a2", "b1", "b2"], ["a1", "a2", "b1", "b2"]]


@pytest.mark.promise("SNS-24")
def test_every_queue_delivers_a_group_in_the_order_published(resources: Resources) -> None:
    """SNS-24: five queues agree on the order of five messages."""
    queues = [resources.fifo_queue() for _ in range(5)]
    topic = resources.fifo_topic(*queues)
    published = ["m1", "m2", "m3", "m4", "m5"]
    for body in published:
        topic.publish(body, group="g1", id=body)

    drained = [bodies(queue.drain(5)) for queue in queues]

    assert drained == [published, published, published, published, published]


@pytest.mark.promise("SNS-14")
def test_raw_delivery_keeps_body_and_attributes(resources: Resources) -> None:
    """SNS-14: the queue holds what was published, no envelope around it."""
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)
    topic.publish("a body", id="m1", MessageAttributes={"kind": {"DataType": "String", "StringValue": "order"}})

    (received,) = queue.drain(1)

    assert received["Body"] == "a body"
    assert received["MessageAttributes"] == {"kind": {"StringValue": "order", "DataType": "String"}}


@pytest.mark.promise("SLU-06")
def test_a_message_published_twice_arrives_in_every_queue_once(resources: Resources) -> None:
    """SLU-06: the repeat inside the window is not delivered anywhere."""
    queues = [resources.fifo_queue(), resources.fifo_queue(), resources.fifo_queue()]
    topic = resources.fifo_topic(*queues)
    topic.publish("first", id="same")
    topic.publish("first", id="same")
    topic.publish("last", id="other")

    drained = [bodies(queue.drain(2)) for queue in queues]

    assert drained == [["first", "last"], ["first", "last"], ["first", "last"]]


@pytest.mark.promise("SNS-18")
def test_a_repeated_publish_returns_the_first_ids(resources: Resources) -> None:
    """SNS-18: message id and sequence number of the repeat are those of the first."""
    topic = resources.fifo_topic(resources.fifo_queue())
    first = topic.publish("m1", id="same")

    repeated = topic.publish("m1", id="same")

    assert repeated["MessageId"] == first["MessageId"]
    assert repeated["SequenceNumber"] == first["SequenceNumber"]


@pytest.mark.promise("SNS-16")
def test_content_based_deduplication_on_the_topic_is_enough(resources: Resources) -> None:
    """SNS-16: the queue has none, no id is given, and the same body arrives once."""
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    topic.publish("same body")
    topic.publish("same body")
    topic.publish("other body")

    assert bodies(queue.drain(2)) == ["same body", "other body"]


@pytest.mark.promise("SNS-19")
def test_topic_scope_makes_one_delivery_of_one_id_in_two_groups(resources: Resources) -> None:
    """SNS-19: without FifoThroughputScope the topic deduplicates across groups."""
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)
    topic.publish("in g1", group="g1", id="same")
    topic.publish("in g2", group="g2", id="same")
    topic.publish("last", group="g1", id="other")

    assert bodies(queue.drain(2)) == ["in g1", "last"]


@pytest.mark.promise("SNS-39")
def test_group_scope_makes_two_deliveries_of_one_id_in_two_groups(resources: Resources) -> None:
    """SNS-39: with FifoThroughputScope MessageGroup the groups do not see each other's ids."""
    queue = resources.fifo_queue(DeduplicationScope="messageGroup")
    topic = resources.fifo_topic(queue, FifoThroughputScope="MessageGroup")
    topic.publish("in g1", group="g1", id="same")
    topic.publish("in g2", group="g2", id="same")

    assert sorted(bodies(queue.drain(2))) == ["in g1", "in g2"]
