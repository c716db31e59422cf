"""A topic with an archive can deliver again what was published to it.

No recording of a replay is public: these promises are from the developer guide of SNS.
"""

import json

import pytest

from contract_tests.resources import QueueUnderTest, Resources, TopicUnderTest, bodies, refusal, require_accepted
from sluice.clock import eventually

_FROM_THE_BEGINNING = json.dumps({"PointType": "Timestamp", "StartingPoint": "2020-01-01T00:00:00.000Z"})
_OF_A_PAST_YEAR = json.dumps(
    {"PointType": "Timestamp", "StartingPoint": "2020-01-01T00:00:00.000Z", "EndingPoint": "2021-01-01T00:00:00.000Z"}
)


def _subscribe(topic: TopicUnderTest, queue: QueueUnderTest, *, raw: bool = True) -> None:
    """Subscribe a queue that asks for the whole archive."""
    require_accepted(topic.subscribe, queue, raw=raw, ReplayPolicy=_FROM_THE_BEGINNING)


def _archived_topic(resources: Resources, *queues: QueueUnderTest) -> TopicUnderTest:
    """Make a topic that archives its messages for a day."""
    return resources.fifo_topic(*queues, ArchivePolicy='{"MessageRetentionPeriod": "1"}')


@pytest.mark.promise("SNS-103")
def test_a_later_subscriber_gets_the_archive_in_order_then_new_messages(resources: Resources) -> None:
    late = resources.fifo_queue()
    topic = _archived_topic(resources)
    topic.publish("m1", id="m1")
    topic.publish("m2", id="m2")

    _subscribe(topic, late)
    replayed = bodies(late.drain(2))
    topic.publish("m3", id="m3")

    assert replayed == ["m1", "m2"]
    assert bodies(late.drain(1)) == ["m3"]


@pytest.mark.promise("SNS-104")
def test_a_replayed_message_has_its_first_id_and_a_replay_mark(resources: Resources) -> None:
    early, late = resources.fifo_queue(), resources.fifo_queue()
    topic = _archived_topic(resources)
    topic.subscribe(early, raw=False)
    published = topic.publish("m1", id="m1")
    (first,) = early.drain(1)

    _subscribe(topic, late, raw=False)
    (again,) = late.drain(1)

    before, after = json.loads(first["Body"]), json.loads(again["Body"])
    assert after["MessageId"] == published["MessageId"]
    assert after["Timestamp"] == before["Timestamp"]
    assert "Replayed" in after
    assert "Replayed" not in before


@pytest.mark.promise("SNS-131")
def test_a_filter_policy_holds_for_a_replay(resources: Resources) -> None:
    late = resources.fifo_queue()
    topic = _archived_topic(resources)
    topic.publish("m1", id="m1", MessageAttributes={"kind": {"DataType": "String", "StringValue": "refund"}})
    topic.publish("m2", id="m2", MessageAttributes={"kind": {"DataType": "String", "StringValue": "order"}})

    require_accepted(topic.subscribe, late, FilterPolicy='{"kind": ["order"]}', ReplayPolicy=_FROM_THE_BEGINNING)

    assert bodies(late.drain(1)) == ["m2"]


@pytest.mark.promise("SNS-132")
def test_only_a_fifo_topic_has_an_archive(resources: Resources) -> None:
    standard, fifo = resources.standard_topic(), resources.fifo_topic()

    refused = refusal(standard.set_attribute, "ArchivePolicy", '{"MessageRetentionPeriod": "1"}')
    require_accepted(fifo.set_attribute, "ArchivePolicy", '{"MessageRetentionPeriod": "1"}')
    kept = fifo.attributes().get("ArchivePolicy")
    fifo.set_attribute("ArchivePolicy", "{}")  # a topic with an archive cannot be deleted

    assert refused[1] == 400  # code and text are not recorded
    assert kept is not None
    assert json.loads(kept) == {"MessageRetentionPeriod": "1"}


@pytest.mark.promise("SNS-136")
def test_a_replay_is_completed_in_the_end(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = _archived_topic(resources)
    topic.publish("m1", id="m1")

    arn = require_accepted(topic.subscribe, queue, ReplayPolicy=_FROM_THE_BEGINNING)

    assert bodies(queue.drain(1)) == ["m1"]
    eventually(
        lambda: topic.sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"].get("ReplayStatus"),
        until=lambda status: status == "Completed",
        timeout_seconds=queue.patience_seconds,
        describe="the replay to be Completed",
    )


@pytest.mark.promise("SNS-163")
def test_a_replay_with_an_ending_point_stops_its_subscription(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = _archived_topic(resources)

    require_accepted(topic.subscribe, queue, ReplayPolicy=_OF_A_PAST_YEAR)
    topic.publish("m1", id="m1")

    assert queue.receive(wait=1) == []


@pytest.mark.promise("SNS-164")
def test_a_stopped_subscription_goes_on_by_a_replay_without_an_ending_point(resources: Resources) -> None:
    queue = resources.fifo_queue()
    topic = _archived_topic(resources)
    arn = require_accepted(topic.subscribe, queue, ReplayPolicy=_OF_A_PAST_YEAR)
    topic.publish("m1", id="m1")

    topic.set_subscription(arn, "ReplayPolicy", _FROM_THE_BEGINNING)
    missed = bodies(queue.drain(1))
    topic.publish("m2", id="m2")

    assert missed == ["m1"]
    assert bodies(queue.drain(1)) == ["m2"]
