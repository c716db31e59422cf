"""An environment made by calls has the topic, queues, DLQs and filters that the stacks declare."""

import json
from dataclasses import replace
from typing import Any

from sluice.declaration import Consumer, Topic
from sluice.testing import SimulatedAws
from tests.support.declaration import environment


def test_a_declared_environment_is_deployed(simulated_aws: SimulatedAws) -> None:
    consumer = Consumer(
        name="billing", filter_policy={"country": ["de"]}, visibility_timeout_seconds=77, max_attempts=4
    )
    declared = replace(environment("local"), consumers=(consumer,))
    sqs: Any = simulated_aws.client("sqs")
    sns: Any = simulated_aws.client("sns")

    deployed = simulated_aws.deploy(declared)

    assert deployed.topic_arn == "arn:aws:sns:us-east-1:000000000000:sluice-local-events.fifo"
    names = {url.rpartition("/")[2] for url in sqs.list_queues()["QueueUrls"]}
    assert names == {
        "sluice-local-billing.fifo",
        "sluice-local-billing-dlq.fifo",
        "sluice-local-billing-undelivered-dlq.fifo",
    }
    queue = sqs.get_queue_attributes(QueueUrl=deployed.queues["billing"], AttributeNames=["All"])["Attributes"]
    assert queue["VisibilityTimeout"] == "77"
    assert queue["MessageRetentionPeriod"] == "345600"
    assert queue["DeduplicationScope"] == "messageGroup"
    assert queue["FifoThroughputLimit"] == "perMessageGroupId"
    assert json.loads(queue["RedrivePolicy"]) == {
        "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:sluice-local-billing-dlq.fifo",
        "maxReceiveCount": 4,
    }
    (subscription,) = sns.list_subscriptions_by_topic(TopicArn=deployed.topic_arn)["Subscriptions"]
    found = sns.get_subscription_attributes(SubscriptionArn=subscription["SubscriptionArn"])["Attributes"]
    assert found["RawMessageDelivery"] == "true"
    assert json.loads(found["FilterPolicy"]) == {"country": ["de"]}
    assert json.loads(found["RedrivePolicy"]) == {
        "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:sluice-local-billing-undelivered-dlq.fifo"
    }


def test_each_consumer_gets_its_own_topic_and_a_standard_queue_is_one(simulated_aws: SimulatedAws) -> None:
    """The subscription's DLQ is FIFO, as the topic is."""
    topics = (Topic(name="orders"), Topic(name="payments"))
    consumers = (Consumer(name="search", fifo=False, topic="orders"), Consumer(name="ledger", topic="payments"))
    sns: Any = simulated_aws.client("sns")

    deployed = simulated_aws.deploy(replace(environment("local"), topics=topics, consumers=consumers))
    for topic in ("orders", "payments"):
        arn = deployed.topic_arn.replace("orders", topic)
        sns.publish(TopicArn=arn, Message=topic, MessageGroupId="g", MessageDeduplicationId="1")

    assert {name: simulated_aws.bodies(url) for name, url in deployed.queues.items()} == {
        "search": ["orders"],
        "ledger": ["payments"],
    }
    urls = (deployed.queues["search"], deployed.dead_letter_queues["search"], deployed.undelivered_queues["search"])
    assert [url.endswith(".fifo") for url in urls] == [False, False, True]


def test_a_message_its_queue_cannot_take_is_undelivered(simulated_aws: SimulatedAws) -> None:
    """The subscription's DLQ lets SNS in, once the queue is gone; deploying twice changes nothing."""
    declared = replace(environment("local"), consumers=(Consumer(name="billing"),))
    sqs: Any = simulated_aws.client("sqs")
    sns: Any = simulated_aws.client("sns")
    deployed = simulated_aws.deploy(declared)
    assert simulated_aws.deploy(declared) == deployed

    sqs.delete_queue(QueueUrl=deployed.queues["billing"])
    sns.publish(TopicArn=deployed.topic_arn, Message="m", MessageGroupId="g", MessageDeduplicationId="1")

    assert simulated_aws.bodies(deployed.undelivered_queues["billing"]) == ["m"]


def test_applying_a_changed_declaration_changes_what_is_there(simulated_aws: SimulatedAws) -> None:
    """A message that waits stays; a filter that is declared no more is taken away."""
    sqs: Any = simulated_aws.client("sqs")
    sns: Any = simulated_aws.client("sns")
    consumer = Consumer(name="billing", filter_policy={"country": ["de"]}, max_attempts=4)
    declared = replace(environment("local"), consumers=(consumer,))
    deployed = simulated_aws.deploy(declared)
    sqs.send_message(
        QueueUrl=deployed.queues["billing"], MessageBody="m", MessageGroupId="g", MessageDeduplicationId="1"
    )
    changed = Consumer(name="billing", visibility_timeout_seconds=99, max_attempts=5)

    bundles = replace(declared, consumers=(changed,), event_bytes_max=100_000, topics=(Topic(bundle_events_max=20),))

    again = simulated_aws.deploy(bundles)

    assert again == deployed
    queue = sqs.get_queue_attributes(QueueUrl=deployed.queues["billing"], AttributeNames=["All"])["Attributes"]
    assert queue["VisibilityTimeout"] == "99"
    assert queue["MaximumMessageSize"] == "100000"
    assert json.loads(queue["RedrivePolicy"])["maxReceiveCount"] == 1_000
    topic = sns.get_topic_attributes(TopicArn=deployed.topic_arn)["Attributes"]
    assert topic["MaximumMessageSize"] == "100000"
    sns.publish(TopicArn=deployed.topic_arn, Message="anything", MessageGroupId="g", MessageDeduplicationId="2")
    assert simulated_aws.bodies(deployed.queues["billing"]) == ["m", "anything"]
