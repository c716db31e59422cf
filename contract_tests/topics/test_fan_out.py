"""A message published to the topic arrives in every subscribed queue, once and in order."""

import json
from datetime import datetime

import pytest

from contract_tests.resources import CLOCKS_APART_MILLISECONDS_MAX, Resources, bodies, drain_each
from contract_tests.targets.binding import Target


@pytest.mark.promise("SLU-05")
def test_every_queue_gets_every_message_once(resources: Resources) -> None:
    queues = [resources.fifo_queue(), resources.fifo_queue(), resources.fifo_queue()]
    topic = resources.fifo_topic(*queues)
    topic.publish("a1", group="g1", id="a1")
    topic.publish("b1", group="g2", id="b1")
    topic.publish("a2", group="g1", id="a2")
    topic.publish("b2", group="g2", id="b2")

    drained = [sorted(bodies(messages)) for messages in drain_each(queues, 4)]

    assert drained == [["a1", "a2", "b1", "b2"], ["a1", "a2", "b1", "b2"], ["a1", "a2", "b1", "b2"]]


@pytest.mark.promise("SNS-24")
def test_every_queue_delivers_a_group_in_the_order_published(resources: Resources) -> None:
    queues = [resources.fifo_queue() for _ in range(5)]
    topic = resources.fifo_topic(*queues)
    published = ["m1", "m2", "m3", "m4", "m5"]
    for body in published:
        topic.publish(body, group="g1", id=body)

    drained = [bodies(messages) for messages in drain_each(queues, 5)]

    assert drained == [published, published, published, published, published]


@pytest.mark.promise("SNS-14")
def test_raw_delivery_keeps_body_and_attributes(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)
    topic.publish("a body", id="m1", MessageAttributes={"kind": {"DataType": "String", "StringValue": "order"}})

    (received,) = queue.drain(1)

    assert received["Body"] == "a body"
    assert received.get("MessageAttributes") == {"kind": {"StringValue": "order", "DataType": "String"}}


@pytest.mark.promise("SLU-06")
def test_a_message_published_twice_arrives_in_every_queue_once(resources: Resources) -> None:
    queues = [resources.fifo_queue(), resources.fifo_queue(), resources.fifo_queue()]
    topic = resources.fifo_topic(*queues)
    topic.publish("first", id="same")
    topic.publish("first", id="same")
    topic.publish("last", id="other")

    drained = [bodies(messages) for messages in drain_each(queues, 2)]

    assert drained == [["first", "last"], ["first", "last"], ["first", "last"]]


@pytest.mark.promise("SNS-18")
def test_a_repeated_publish_returns_the_first_ids(resources: Resources) -> None:
    topic = resources.fifo_topic(resources.fifo_queue())
    first = topic.publish("m1", id="same")

    repeated = topic.publish("m1", id="same")

    assert repeated["MessageId"] == first["MessageId"]
    assert repeated["SequenceNumber"] == first["SequenceNumber"]


@pytest.mark.promise("SNS-16")
def test_content_based_deduplication_on_the_topic_is_enough(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")
    topic.publish("same body")
    topic.publish("same body")
    topic.publish("other body")

    assert bodies(queue.drain(2)) == ["same body", "other body"]


@pytest.mark.promise("SNS-19")
def test_topic_scope_makes_one_delivery_of_one_id_in_two_groups(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)
    topic.publish("in g1", group="g1", id="same")
    topic.publish("in g2", group="g2", id="same")
    topic.publish("last", group="g1", id="other")

    assert bodies(queue.drain(2)) == ["in g1", "last"]


@pytest.mark.promise("SNS-113")
def test_topic_scope_answers_one_id_in_two_groups_with_the_first_ids(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup")  # which of them is a repeat is the topic's to say
    topic = resources.fifo_topic(queue)

    first = topic.publish("in g1", group="g1", id="same")
    second = topic.publish("in g2", group="g2", id="same")
    topic.publish("last", group="g2", id="other")

    assert second["MessageId"] == first["MessageId"]
    assert second["SequenceNumber"] == first["SequenceNumber"]
    assert sorted(bodies(queue.drain(2))) == ["in g1", "last"]


@pytest.mark.promise("SNS-39")
def test_group_scope_makes_two_deliveries_of_one_id_in_two_groups(resources: Resources) -> None:
    queue = resources.fifo_queue(DeduplicationScope="messageGroup")
    topic = resources.fifo_topic(queue, FifoThroughputScope="MessageGroup")
    topic.publish("in g1", group="g1", id="same")
    topic.publish("in g2", group="g2", id="same")

    assert sorted(bodies(queue.drain(2))) == ["in g1", "in g2"]


@pytest.mark.promise("SNS-12")
def test_a_publish_answers_a_sequence_number_of_the_topics_own(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    sent = [f"m{number}" for number in range(8)]
    answers = [topic.publish(body, id=body) for body in sent]
    copies = queue.drain(8)

    assert sorted(answers[0].keys() - {"ResponseMetadata"}) == ["MessageId", "SequenceNumber"]
    numbers = [int(answer["SequenceNumber"]) for answer in answers]
    assert numbers == sorted(set(numbers))
    assert bodies(copies) == sent
    assert answers[-1]["SequenceNumber"] not in [copy["Attributes"]["SequenceNumber"] for copy in copies]


@pytest.mark.promise("SNS-17")
def test_a_copy_has_a_message_id_of_its_own(resources: Resources) -> None:
    queues = [resources.fifo_queue(), resources.fifo_queue()]
    topic = resources.fifo_topic(*queues)

    published = topic.publish("m1", id="m1")
    copies = [messages[0] for messages in drain_each(queues, 1)]

    assert bodies(copies) == ["m1", "m1"]
    assert len({published["MessageId"], *(copy["MessageId"] for copy in copies)}) == 3


@pytest.mark.promise("SNS-45")
def test_without_raw_delivery_the_message_comes_in_an_envelope(resources: Resources, target: Target) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    subscription = topic.subscribe(queue, raw=False)

    published = topic.publish("m1", id="m1", Subject="a subject")
    (copy,) = queue.drain(1)

    assert copy["Body"].startswith("{"), copy["Body"]
    envelope = json.loads(copy["Body"])
    timestamp, unsubscribe_url = envelope.pop("Timestamp"), envelope.pop("UnsubscribeURL")
    assert envelope == {
        "Type": "Notification",
        "MessageId": published["MessageId"],
        "SequenceNumber": published.get("SequenceNumber"),
        "TopicArn": topic.arn,
        "Subject": "a subject",
        "Message": "m1",
    }
    seen_ms = datetime.fromisoformat(timestamp).timestamp() * 1_000
    assert abs(seen_ms - target.clock.now_us() // 1_000) < CLOCKS_APART_MILLISECONDS_MAX
    assert unsubscribe_url.endswith(f"/?Action=Unsubscribe&SubscriptionArn={subscription}")


@pytest.mark.promise("SNS-85")
def test_the_envelope_of_an_entry_names_what_the_batch_answered(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, raw=False)

    answer = topic.publish_batch({"Message": "m1"}, {"Message": "m2"})
    copies = queue.drain(2)

    answered = [(entry["MessageId"], entry["SequenceNumber"]) for entry in answer["Successful"]]
    envelopes = [json.loads(copy["Body"]) for copy in copies]
    assert [envelope["Message"] for envelope in envelopes] == ["m1", "m2"]
    assert [(envelope["MessageId"], envelope["SequenceNumber"]) for envelope in envelopes] == answered


@pytest.mark.promise("SNS-66")
def test_message_attributes_come_in_the_envelope(resources: Resources) -> None:
    queue, topic = resources.fifo_queue(), resources.fifo_topic()
    topic.subscribe(queue, raw=False)

    topic.publish("m1", id="m1", MessageAttributes={"price": {"DataType": "Number", "StringValue": "99.12"}})
    (copy,) = queue.drain(1)

    assert copy["Body"].startswith("{"), copy["Body"]
    assert json.loads(copy["Body"])["MessageAttributes"] == {"price": {"Type": "Number", "Value": "99.12"}}
    assert "MessageAttributes" not in copy


@pytest.mark.promise("SNS-67")
def test_a_copy_carries_group_and_deduplication_id_of_the_publish(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue, ContentBasedDeduplication="true")

    topic.publish("Test", group="message-group-id-1")
    topic.publish("Test", group="message-group-id-1", id="message-deduplication-id-1")
    copies = queue.drain(2)

    assert [copy["Attributes"]["MessageGroupId"] for copy in copies] == ["message-group-id-1", "message-group-id-1"]
    assert [copy["Attributes"]["MessageDeduplicationId"] for copy in copies] == [
        "532eaabd9574880dbf76b9b8cc00832c20a6ec113d682299550d7a6e0f345e25",
        "message-deduplication-id-1",
    ]


@pytest.mark.promise("SNS-20")
def test_a_standard_queue_gets_a_repeated_publish_once(resources: Resources) -> None:
    queue = resources.standard_queue()
    topic = resources.fifo_topic(queue)

    topic.publish("m1", id="same")
    topic.publish("m1", id="same")
    topic.publish("last", id="other")

    assert sorted(bodies(queue.drain(2))) == ["last", "m1"]


@pytest.mark.promise("SNS-96")
def test_a_standard_queue_gets_no_group_from_a_fifo_topic(resources: Resources) -> None:
    queue = resources.standard_queue()
    topic = resources.fifo_topic(queue)

    topic.publish("m1", group="g1", id="m1")
    (copy,) = queue.drain(1)

    assert sorted(copy["Attributes"]) == [
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "SenderId",
        "SentTimestamp",
    ]


@pytest.mark.promise("SNS-97")
def test_a_standard_queue_gets_the_group_from_a_standard_topic(resources: Resources) -> None:
    queue, topic = resources.standard_queue(), resources.standard_topic()
    topic.subscribe(queue)

    topic.publish("m1", group="g1")
    (copy,) = queue.drain(1)

    assert copy["Attributes"].get("MessageGroupId") == "g1"


@pytest.mark.promise("SNS-21")
def test_a_later_subscriber_does_not_get_the_repeat_of_an_earlier_publish(resources: Resources) -> None:
    topic = resources.fifo_topic(resources.fifo_queue())
    topic.publish("before", id="same")
    late = resources.fifo_queue()
    topic.subscribe(late)

    topic.publish("before", id="same")
    topic.publish("after", id="other")

    assert bodies(late.drain(1)) == ["after"]


@pytest.mark.promise("SNS-37")
def test_a_topic_can_be_published_to_by_target_arn(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    topic.sns.publish(TargetArn=topic.arn, Message="m1", MessageGroupId="g1", MessageDeduplicationId="m1")

    assert bodies(queue.drain(1)) == ["m1"]


@pytest.mark.promise("SNS-126")
def test_a_queue_gets_its_own_part_of_a_message_by_protocol(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    own = '{"default": "for all", "sqs": "for queues"}'
    topic.publish(own, id="m1", MessageStructure="json")
    topic.publish('{"default": "for all", "lambda": "for functions"}', id="m2", MessageStructure="json")

    assert bodies(queue.drain(2)) == ["for queues", "for all"]


@pytest.mark.promise("SNS-69")
def test_a_queue_gets_nothing_published_before_it_was_subscribed(resources: Resources) -> None:
    early, late = resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic(early)
    topic.publish("before", id="m1")
    first = early.await_message()

    topic.subscribe(late)
    topic.publish("after", id="m2")

    assert first["Body"] == "before"
    assert bodies(late.drain(1)) == ["after"]


@pytest.mark.promise("SNS-70")
def test_a_batch_is_delivered_in_the_order_of_its_entries(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    topic.publish_batch(
        {"Message": "m1", "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "order"}}},
        {"Message": "m2"},
        {"Message": "m3"},
    )
    copies = queue.drain(3)

    assert bodies(copies) == ["m1", "m2", "m3"]
    assert [copy.get("MessageAttributes") for copy in copies] == [
        {"kind": {"DataType": "String", "StringValue": "order"}},
        None,
        None,
    ]
    assert [copy["Attributes"]["MessageDeduplicationId"] for copy in copies] == ["1", "2", "3"]


@pytest.mark.promise("SNS-71")
def test_a_message_may_have_letters_beyond_ascii(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = resources.fifo_topic(queue)

    topic.publish('ö§a1"_!?,. £$-', id="m1")

    assert bodies(queue.drain(1)) == ['ö§a1"_!?,. £$-']


@pytest.mark.promise("SNS-83")
def test_raw_delivery_loses_a_message_with_more_than_ten_attributes(resources: Resources) -> None:
    raw, wrapped = resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic(raw)
    topic.subscribe(wrapped, raw=False)
    eleven = {f"attr{number}": {"DataType": "Number", "StringValue": "1"} for number in range(11)}

    topic.publish("eleven", id="m1", MessageAttributes=eleven)
    topic.publish("none", id="m2")

    assert [json.loads(copy["Body"])["Message"] for copy in wrapped.drain(2)] == ["eleven", "none"]
    assert bodies(raw.drain(1)) == ["none"]


@pytest.mark.promise("SNS-152")
def test_the_delay_of_a_queue_is_also_for_deliveries(resources: Resources) -> None:
    queue = resources.fifo_queue(DelaySeconds="3")
    topic = resources.fifo_topic(queue)

    topic.publish("m1", id="m1")
    topic.publish("m2", id="m2")
    at_once = queue.receive(most=10, wait=1)

    assert at_once == []
    assert bodies(queue.drain(2)) == ["m1", "m2"]
