"""Subscriptions that a FIFO topic takes, and the place of a message that cannot be delivered."""

import json
from collections.abc import Mapping

import pytest

from contract_tests.resources import (
    QueueUnderTest,
    Resources,
    TopicUnderTest,
    bodies,
    invalid_parameter,
    refusal,
    require_accepted,
)
from sluice.clock import eventually

_GONE_SECONDS = 5


def _subscribe(topic: TopicUnderTest, protocol: str, endpoint: str, **attributes: str) -> str:
    answer = topic.sns.subscribe(TopicArn=topic.arn, Protocol=protocol, Endpoint=endpoint, Attributes=attributes)
    return str(answer.get("SubscriptionArn"))


def _undelivered_queue(resources: Resources, topic: TopicUnderTest) -> tuple[QueueUnderTest, str]:
    """Make a FIFO queue for what a subscription cannot deliver; return it and the redrive policy that names it."""
    undelivered = resources.fifo_queue(hint="undelivered")
    topic.allow(undelivered)
    return undelivered, json.dumps({"deadLetterTargetArn": undelivered.arn})


@pytest.mark.promise("SNS-05")
def test_a_fifo_queue_cannot_be_subscribed_to_a_standard_topic(resources: Resources) -> None:
    topic, queue = resources.standard_topic(), resources.fifo_queue()

    assert refusal(_subscribe, topic, "sqs", queue.arn) == invalid_parameter(
        "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics"
    )


@pytest.mark.promise("SNS-06")
def test_a_standard_queue_can_be_subscribed_to_a_fifo_topic(resources: Resources) -> None:
    queue = resources.standard_queue()
    topic = resources.fifo_topic(queue)

    topic.publish("m1", id="m1")
    topic.publish("m2", id="m2")

    assert sorted(bodies(queue.drain(2))) == ["m1", "m2"]


@pytest.mark.promise("SNS-07")
def test_nothing_but_a_queue_can_be_subscribed_to_a_fifo_topic(resources: Resources) -> None:
    """The test tries only one of the other protocols, sms."""
    topic = resources.fifo_topic()

    assert refusal(_subscribe, topic, "sms", "+12025550100") == invalid_parameter("Invalid protocol type: sms")


@pytest.mark.promise("SNS-08")
def test_a_standard_queue_is_refused_as_dlq_of_a_fifo_subscription(resources: Resources) -> None:
    topic, standard = resources.fifo_topic(), resources.standard_queue()
    subscription = topic.subscribe(resources.fifo_queue())
    policy = json.dumps({"deadLetterTargetArn": standard.arn})

    refused = refusal(topic.set_subscription, subscription, "RedrivePolicy", policy)

    assert refused == invalid_parameter(
        "RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic."
    )


@pytest.mark.promise("SNS-34")
def test_the_dlq_of_a_subscription_must_be_in_the_same_region(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    subscription = topic.subscribe(queue)
    *service, _, account, name = queue.arn.split(":")
    elsewhere = ":".join([*service, "ap-southeast-4", account, name])
    policy = json.dumps({"deadLetterTargetArn": elsewhere})

    refused = refusal(topic.set_subscription, subscription, "RedrivePolicy", policy)

    assert refused[1] == 400  # code and text are not recorded


@pytest.mark.promise("SNS-35")
def test_a_queue_is_subscribed_by_its_arn(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()

    refused = refusal(_subscribe, topic, "sqs", queue.url)
    accepted = _subscribe(topic, "sqs", queue.arn.removesuffix(".fifo") + "-absent.fifo")

    assert refused == invalid_parameter("SQS endpoint ARN")
    assert accepted.startswith(topic.arn + ":")


@pytest.mark.promise("SNS-36")
def test_subscribing_again_returns_the_existing_subscription(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    subscription = topic.subscribe(queue, raw=True)

    same = _subscribe(topic, "sqs", queue.arn, RawMessageDelivery="true")
    none = _subscribe(topic, "sqs", queue.arn)
    refused = refusal(_subscribe, topic, "sqs", queue.arn, RawMessageDelivery="false")

    assert [same, none] == [subscription, subscription]
    assert refused == invalid_parameter("Attributes Reason: Subscription already exists with different attributes")


@pytest.mark.promise("SNS-60")
def test_a_subscription_of_a_queue_in_the_account_is_confirmed_immediately(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    *_, account, _ = topic.arn.split(":")

    subscription = topic.subscribe(queue, raw=True)

    attributes = topic.sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
    confirmed = {
        "SubscriptionArn": subscription,
        "Owner": account,
        "PendingConfirmation": "false",
        "ConfirmationWasAuthenticated": "true",
    }
    assert {name: attributes.get(name) for name in confirmed} == confirmed


@pytest.mark.promise("SNS-61")
def test_the_attributes_of_a_subscription_are_checked(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    subscription = topic.subscribe(queue)

    name = refusal(topic.set_subscription, subscription, "Fake", "x")
    value = refusal(topic.set_subscription, subscription, "RawMessageDelivery", "test-ValUe")
    value_at_once = refusal(_subscribe, topic, "sqs", queue.arn, RawMessageDelivery="wrongvalue")
    arn = refusal(topic.set_subscription, subscription, "RedrivePolicy", '{"deadLetterTargetArn": "fake-arn"}')

    assert name == invalid_parameter("AttributeName")
    assert value == invalid_parameter("RawMessageDelivery: Invalid value [test-ValUe]. Must be true or false.")
    assert value_at_once == invalid_parameter(
        "Attributes Reason: RawMessageDelivery: Invalid value [wrongvalue]. Must be true or false."
    )
    assert arn == invalid_parameter("RedrivePolicy: deadLetterTargetArn is an invalid arn")


@pytest.mark.promise("SNS-62")
def test_an_unknown_protocol_is_refused(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()

    assert refusal(_subscribe, topic, "test-protocol", queue.arn) == invalid_parameter(
        "Amazon SNS does not support this protocol string: test-protocol"
    )


@pytest.mark.promise("SNS-63")
def test_an_unsubscribed_queue_gets_nothing_more(resources: Resources) -> None:
    leaves, stays = resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic(stays)
    subscription = topic.subscribe(leaves)
    topic.publish("m1", id="m1")
    before = bodies(leaves.drain(1))

    topic.sns.unsubscribe(SubscriptionArn=subscription)
    topic.publish("m2", id="m2")

    assert bodies(stays.drain(2)) == ["m1", "m2"]
    assert before == ["m1"]
    assert leaves.receive() == []
    listed = topic.sns.list_subscriptions_by_topic(TopicArn=topic.arn)["Subscriptions"]
    assert [entry["Endpoint"] for entry in listed] == [stays.arn]
    refused = refusal(topic.sns.get_subscription_attributes, SubscriptionArn=subscription)

    assert refused == ("NotFound", 404, "Subscription does not exist")


@pytest.mark.promise("SNS-64")
def test_unsubscribing_twice_is_no_mistake(resources: Resources) -> None:
    topic = resources.fifo_topic()
    subscription = topic.subscribe(resources.fifo_queue())

    topic.sns.unsubscribe(SubscriptionArn=subscription)
    topic.sns.unsubscribe(SubscriptionArn=subscription)

    assert topic.sns.list_subscriptions_by_topic(TopicArn=topic.arn)["Subscriptions"] == []


@pytest.mark.promise("SNS-127")
def test_the_subscriptions_of_a_topic_are_listed(resources: Resources) -> None:
    topic, other = resources.fifo_topic(), resources.fifo_topic(resources.fifo_queue())
    queues = [resources.fifo_queue(), resources.fifo_queue()]
    subscriptions = [topic.subscribe(queue) for queue in queues]

    listed = topic.sns.list_subscriptions_by_topic(TopicArn=topic.arn)["Subscriptions"]

    found = {subscription["SubscriptionArn"]: subscription["Endpoint"] for subscription in listed}
    assert found == dict(zip(subscriptions, [queue.arn for queue in queues], strict=True))
    assert len(other.sns.list_subscriptions_by_topic(TopicArn=other.arn)["Subscriptions"]) == 1


@pytest.mark.promise("SNS-125")
def test_a_deleted_topic_takes_its_subscriptions_along(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    subscription = topic.subscribe(queue)

    topic.sns.delete_topic(TopicArn=topic.arn)
    require_accepted(topic.sns.delete_topic, TopicArn=topic.arn)

    def is_gone() -> bool:
        try:
            topic.sns.get_subscription_attributes(SubscriptionArn=subscription)
        except topic.sns.exceptions.NotFoundException:
            return True
        return False

    assert refusal(topic.publish, "m1", id="m1")[:2] == ("NotFound", 404)
    eventually(is_gone, timeout_seconds=_GONE_SECONDS, describe="the subscription to be gone")


@pytest.mark.promise("SNS-31")
def test_undeliverable_messages_go_to_the_dlq_of_the_subscription(resources: Resources) -> None:
    topic, gone = resources.fifo_topic(), resources.fifo_queue()
    undelivered, redrive = _undelivered_queue(resources, topic)
    topic.subscribe(gone, raw=True, RedrivePolicy=redrive)
    gone.delete_queue()

    topic.publish_batch({"Message": "m1"}, {"Message": "m2"}, {"Message": "m3"})
    topic.publish("m4", group="g1", id="4")

    dead = undelivered.drain(4)
    assert bodies(dead) == ["m1", "m2", "m3", "m4"]
    assert [message["Attributes"]["MessageGroupId"] for message in dead] == ["g1", "g1", "g1", "g1"]
    assert [message["Attributes"]["MessageDeduplicationId"] for message in dead] == ["1", "2", "3", "4"]
    assert [message["Attributes"]["ApproximateReceiveCount"] for message in dead] == ["1", "1", "1", "1"]
    assert [message.get("MessageAttributes") for message in dead] == [None, None, None, None]


@pytest.mark.promise("SNS-65")
def test_the_envelope_in_the_dlq_names_the_publish(resources: Resources) -> None:
    topic, gone = resources.fifo_topic(), resources.fifo_queue()
    undelivered, redrive = _undelivered_queue(resources, topic)
    topic.subscribe(gone, raw=False, RedrivePolicy=redrive)
    gone.delete_queue()

    published = topic.publish("m1", id="m1")
    (dead,) = undelivered.drain(1)

    envelope = json.loads(dead["Body"])
    assert envelope["Message"] == "m1"
    assert envelope["MessageId"] == published["MessageId"]
    assert envelope["SequenceNumber"] == published["SequenceNumber"]


@pytest.mark.promise("SNS-32")
def test_only_the_undeliverable_messages_of_a_batch_go_to_the_dlq(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue(MaximumMessageSize="1024")
    undelivered, redrive = _undelivered_queue(resources, topic)
    topic.subscribe(queue, raw=True, RedrivePolicy=redrive)

    topic.publish_batch({"Message": "m1"}, {"Message": "m2" * 1024}, {"Message": "m3"})

    assert bodies(queue.drain(2)) == ["m1", "m3"]
    assert bodies(undelivered.drain(1)) == ["m2" * 1024]


@pytest.mark.promise("SNS-86")
def test_raw_delivery_that_is_switched_later_has_its_effect(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    subscription = topic.subscribe(queue, raw=False)

    topic.set_subscription(subscription, "RawMessageDelivery", "true")
    attributes = topic.sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
    topic.publish("m1", id="m1")
    raw = queue.drain(1)
    topic.set_subscription(subscription, "RawMessageDelivery", "false")
    topic.publish("m2", id="m2")
    (wrapped,) = queue.drain(1)

    assert attributes["RawMessageDelivery"] == "true"
    assert bodies(raw) == ["m1"]
    assert wrapped["Body"].startswith("{"), wrapped["Body"]
    assert json.loads(wrapped["Body"])["Message"] == "m2"


@pytest.mark.promise("SNS-89")
def test_a_subscription_may_get_its_dlq_later(resources: Resources) -> None:
    topic, gone = resources.fifo_topic(), resources.fifo_queue()
    undelivered, redrive = _undelivered_queue(resources, topic)
    subscription = topic.subscribe(gone)

    topic.set_subscription(subscription, "RedrivePolicy", redrive)
    gone.delete_queue()
    topic.publish("m1", id="m1")

    assert bodies(undelivered.drain(1)) == ["m1"]


def _policy(*statements: Mapping[str, object]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@pytest.mark.promise("SNS-108")
def test_the_policy_of_a_queue_decides_which_topic_may_send(resources: Resources) -> None:
    allows, denies, allows_another = resources.fifo_queue(), resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic(allows, denies, allows_another)
    allowing = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
    denying = {"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": denies.arn}
    another = {"Condition": {"ArnEquals": {"aws:SourceArn": f"{topic.arn}x"}}, "Resource": allows_another.arn}

    denies.set_attributes(Policy=_policy({**allowing, "Resource": denies.arn}, denying))
    allows_another.set_attributes(Policy=_policy({**allowing, **another}))
    topic.publish("m1", id="m1")

    assert bodies(allows.drain(1)) == ["m1"]
    assert [queue.receive(wait=1) for queue in (denies, allows_another)] == [[], []]


@pytest.mark.promise("SNS-44")
def test_a_queue_that_does_not_allow_the_topic_gets_nothing(resources: Resources) -> None:
    allows, silent = resources.fifo_queue(), resources.fifo_queue()
    topic = resources.fifo_topic(allows)
    _subscribe(topic, "sqs", silent.arn, RawMessageDelivery="true")

    topic.publish("m1", id="m1")
    assert bodies(allows.drain(1)) == ["m1"]
    assert silent.receive(wait=1) == []

    topic.allow(silent)
    topic.publish("m2", id="m2")

    assert bodies(silent.drain(1)) == ["m2"]


@pytest.mark.promise("SNS-142")
def test_unsubscribing_an_arn_of_no_subscription_is_refused(resources: Resources) -> None:
    topic = resources.fifo_topic()

    refused = [
        refusal(topic.sns.unsubscribe, SubscriptionArn=arn)
        for arn in ("randomstring", "arn:aws:sns:us-east-1:random", "arn:aws:sns:us-east-1:111111111111:random")
    ]

    assert refused == [
        invalid_parameter("SubscriptionArn Reason: An ARN must have at least 6 elements, not 1"),
        invalid_parameter("SubscriptionArn Reason: An ARN must have at least 6 elements, not 5"),
        invalid_parameter("SubscriptionId"),
    ]


@pytest.mark.promise("SNS-144")
def test_a_subscription_to_a_topic_of_another_region_is_refused(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()

    assert refusal(_subscribe, topic.elsewhere(), "sqs", queue.arn) == invalid_parameter("TopicArn")


@pytest.mark.promise("SNS-145")
def test_a_subscription_to_a_missing_topic_is_refused(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    no_topics = ("randomstring", "arn:aws:sns:us-east-1:random", topic.arn.removesuffix(".fifo") + "-absent.fifo")

    refused = [refusal(_subscribe, TopicUnderTest(topic.sns, arn), "sqs", queue.arn) for arn in no_topics]

    assert refused == [
        invalid_parameter("TopicArn Reason: An ARN must have at least 6 elements, not 1"),
        invalid_parameter("TopicArn Reason: An ARN must have at least 6 elements, not 5"),
        ("NotFound", 404, "Topic does not exist"),
    ]


@pytest.mark.promise("SNS-150")
def test_a_subscription_outlives_its_topic_for_a_moment(resources: Resources) -> None:
    topic, queue = resources.fifo_topic(), resources.fifo_queue()
    subscription = topic.subscribe(queue)

    topic.sns.delete_topic(TopicArn=topic.arn)
    answer = require_accepted(topic.sns.get_subscription_attributes, SubscriptionArn=subscription)

    assert answer["Attributes"]["Endpoint"] == queue.arn
    assert answer["Attributes"]["TopicArn"] == topic.arn
