"""A publish is a publish, in whatever way: the rules of a topic hold together with every other rule."""

import hashlib
import json
from typing import Any

import pytest

from contract_tests.resources import QueueUnderTest, Resources, TopicUnderTest, bodies, require_accepted

_WANTED: dict[str, Any] = {"kind": {"DataType": "String", "StringValue": "order"}}
_UNWANTED: dict[str, Any] = {"kind": {"DataType": "String", "StringValue": "refund"}}
_POLICY = '{"kind": ["order"]}'
_BY_CONTENT = {"ContentBasedDeduplication": "true", "FifoThroughputScope": "MessageGroup"}


def _publish(topic: TopicUnderTest, body: str, **more: Any) -> dict[str, Any]:
    """Publish by content in a batch, with subject and attributes, and with a body for queues of its own."""
    by_protocol = json.dumps({"default": "for all", "sqs": body})
    message: dict[str, Any] = {"Message": by_protocol, "MessageStructure": "json", "Subject": "a subject"}
    entry = {**message, "MessageDeduplicationId": None, "MessageAttributes": _WANTED, **more}
    (answered,) = topic.publish_batch(entry)["Successful"]
    return dict(answered)


def _subscribe_each_way(resources: Resources, topic: TopicUnderTest) -> dict[str, QueueUnderTest]:
    """Return a queue for each way to be subscribed; the one for what is not delivered is a DLQ."""
    undelivered, gone = resources.fifo_queue(hint="undelivered"), resources.fifo_queue()
    topic.allow(undelivered)
    redrive = json.dumps({"deadLetterTargetArn": undelivered.arn})
    topic.subscribe(gone, FilterPolicy=_POLICY, RedrivePolicy=redrive)
    gone.delete_queue()
    queues = {
        "filtered": resources.fifo_queue(DeduplicationScope="messageGroup"),
        "delayed": resources.fifo_queue(DelaySeconds="2"),
        "standard": resources.standard_queue(),
    }
    for queue in queues.values():
        topic.subscribe(queue, FilterPolicy=_POLICY, RedrivePolicy=redrive)
    return queues | {"undelivered": undelivered}


@pytest.mark.promise("SNS-158")
def test_a_publish_in_every_way_at_once_arrives_everywhere_whole(resources: Resources) -> None:
    topic = resources.fifo_topic(**_BY_CONTENT)
    queues = _subscribe_each_way(resources, topic)
    _publish(topic, "m1")
    _publish(topic, "unwanted", MessageAttributes=_UNWANTED)
    _publish(topic, "m2")

    for name, queue in queues.items():
        copies = queue.drain(2)
        assert sorted(bodies(copies)) == ["m1", "m2"], name
        assert [copy.get("MessageAttributes") for copy in copies] == [_WANTED] * 2, name
        if name != "standard":
            assert {copy["Attributes"]["MessageGroupId"] for copy in copies} == {"g1"}, name


@pytest.mark.promise("SNS-159")
def test_a_publish_in_every_way_at_once_answers_what_its_envelope_says(resources: Resources) -> None:
    topic = resources.fifo_topic(**_BY_CONTENT)
    fifo, standard = resources.fifo_queue(DelaySeconds="2"), resources.standard_queue()
    for queue in (fifo, standard):
        topic.subscribe(queue, raw=False, FilterPolicy=_POLICY)

    answered = _publish(topic, "m1")
    _publish(topic, "unwanted", MessageAttributes=_UNWANTED)

    for queue in (fifo, standard):
        copies = queue.drain(1)
        assert len(copies) == 1
        copy = copies[0]
        assert copy["Body"].startswith("{"), copy["Body"]
        envelope = json.loads(copy["Body"])
        assert envelope["Message"] == "m1"
        assert envelope["Subject"] == "a subject"
        assert envelope["MessageAttributes"] == {"kind": {"Type": "String", "Value": "order"}}
        assert envelope["MessageId"] == answered["MessageId"]
        assert envelope["SequenceNumber"] == answered["SequenceNumber"]
        assert copy["Attributes"].get("MessageGroupId") == ("g1" if queue is fifo else None)


@pytest.mark.promise("SNS-160")
def test_a_copy_has_the_id_of_the_content_however_it_is_delivered(resources: Resources) -> None:
    topic = resources.fifo_topic(**_BY_CONTENT)
    enveloped, queues = resources.fifo_queue(), _subscribe_each_way(resources, topic)
    topic.subscribe(enveloped, raw=False, FilterPolicy=_POLICY)
    fifo = [queue for name, queue in queues.items() if name != "standard"] + [enveloped]

    topic.publish("m1", Subject="a subject", MessageAttributes=_WANTED)
    ids = [queue.drain(1)[0]["Attributes"]["MessageDeduplicationId"] for queue in fifo]

    assert ids == [hashlib.sha256(b"m1").hexdigest()] * len(fifo)


@pytest.mark.promise("SNS-161")
def test_a_repeat_in_every_way_at_once_is_dropped_by_the_topic(resources: Resources) -> None:
    queue = resources.standard_queue()
    topic = resources.fifo_topic(queue, **_BY_CONTENT)

    first = _publish(topic, "m1")
    again = _publish(topic, "m1", Subject="another subject", MessageAttributes=_UNWANTED)
    _publish(topic, "m2")

    assert sorted(bodies(queue.drain(2))) == ["m1", "m2"]
    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]


@pytest.mark.promise("SNS-162")
def test_a_replay_brings_whole_what_was_published_in_every_way_at_once(resources: Resources) -> None:
    topic = resources.fifo_topic(ArchivePolicy='{"MessageRetentionPeriod": "1"}', **_BY_CONTENT)
    _publish(topic, "m1")
    topic.publish("m2", id="m2", MessageAttributes=_WANTED)
    queue = resources.fifo_queue()

    policy = json.dumps({"PointType": "Timestamp", "StartingPoint": "2020-01-01T00:00:00.000Z"})
    require_accepted(topic.subscribe, queue, FilterPolicy=_POLICY, ReplayPolicy=policy)
    copies = queue.drain(2)
    undelivered, gone = resources.fifo_queue(hint="undelivered"), resources.fifo_queue()
    topic.allow(undelivered)
    gone.delete_queue()
    redrive = json.dumps({"deadLetterTargetArn": undelivered.arn})
    endpoint = {"Protocol": "sqs", "Endpoint": gone.arn}
    topic.sns.subscribe(
        TopicArn=topic.arn,
        Attributes={"RawMessageDelivery": "true", "RedrivePolicy": redrive, "ReplayPolicy": policy},
        **endpoint,
    )

    assert bodies(copies) == ["m1", "m2"]
    assert [copy.get("MessageAttributes") for copy in copies] == [_WANTED] * 2
    assert [copy["Attributes"]["MessageGroupId"] for copy in copies] == ["g1"] * 2
    assert copies[1]["Attributes"]["MessageDeduplicationId"] == "m2"
    assert bodies(undelivered.drain(2)) == ["m1", "m2"]
