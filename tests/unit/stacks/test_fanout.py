"""The messaging stack: one topic, a queue and two DLQs for each consumer, and what is joined to what."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sluice.declaration import Environment, naming
from tests.unit.stacks.synthesis import MESSAGING, Resource, Stacks, of_kind, outputs

TOPIC, TOPIC_POLICY = "AWS::SNS::Topic", "AWS::SNS::TopicPolicy"
QUEUE, QUEUE_POLICY = "AWS::SQS::Queue", "AWS::SQS::QueuePolicy"
SUBSCRIPTION, MANAGED_POLICY = "AWS::SNS::Subscription", "AWS::IAM::ManagedPolicy"
KEY, ALIAS = "AWS::KMS::Key", "AWS::KMS::Alias"
CONSUMERS = ("billing", "shipping", "audit")

SQS_MANAGED = {"SqsManagedSseEnabled": True}
CMK = {"KmsMasterKeyId": "Arn(FanoutKeysQueues)"}
ENCRYPTION: dict[str, dict[str, Any]] = {"local": SQS_MANAGED, "dev": SQS_MANAGED, "staging": CMK, "prod": CMK}
ACCOUNT = {
    "local": "000000000000",
    "dev": "<AWS::AccountId>",
    "staging": "<AWS::AccountId>",
    "prod": "<AWS::AccountId>",
}
RETENTION_SECONDS = {"local": 345_600, "dev": 345_600, "staging": 345_600, "prod": 1_209_600}


def _messaging(found: list[Resource]) -> list[Resource]:
    return [resource for resource in found if resource.stack == MESSAGING]


def test_there_is_exactly_one_topic_and_it_is_fifo(declared: list[Resource], environment: Environment) -> None:
    """Throughput is by group; deduplication is by the ids publishers give, not by content; only prod archives."""
    topics = of_kind(_messaging(declared), TOPIC)

    name = f"sluice-{environment.name}-events.fifo"
    common = {"TopicName": name, "FifoTopic": True, "FifoThroughputScope": "MessageGroup"}
    key = {"KmsMasterKeyId": "Arn(FanoutKeysTopic)"}
    expected = {
        "local": common,
        "dev": common,
        "staging": {**common, **key},
        "prod": {**common, **key, "ArchivePolicy": {"MessageRetentionPeriod": 7}},
    }
    assert topics == {name: expected[environment.name]}


def test_nothing_is_in_the_messaging_stack_but_the_fan_out(declared: list[Resource], environment: Environment) -> None:
    """For each of three consumers three queues with a policy each and a subscription; two keys where declared."""
    kinds = Counter(resource.kind for resource in _messaging(declared))

    fanout = {TOPIC: 1, TOPIC_POLICY: 1, QUEUE: 9, QUEUE_POLICY: 9, SUBSCRIPTION: 3, MANAGED_POLICY: 1}
    keys = {KEY: 2, ALIAS: 2}
    expected = {"local": fanout, "dev": fanout, "staging": {**fanout, **keys}, "prod": {**fanout, **keys}}
    assert kinds == expected[environment.name]


def test_each_consumer_has_a_queue_a_dlq_and_an_undelivered_dlq(
    declared: list[Resource], environment: Environment
) -> None:
    """All are FIFO for high throughput and encrypted; only the queue redrives, only its DLQ says from where."""
    queues = of_kind(declared, QUEUE)

    prefix, encryption = f"sluice-{environment.name}", ENCRYPTION[environment.name]
    expected: dict[str, Any] = {}
    for consumer in CONSUMERS:
        queue = f"{prefix}-{consumer}.fifo"
        dead_letter_queue = f"{prefix}-{consumer}-dlq.fifo"
        undelivered_queue = f"{prefix}-{consumer}-undelivered-dlq.fifo"
        expected[dead_letter_queue] = {
            "QueueName": dead_letter_queue,
            "FifoQueue": True,
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
            "MessageRetentionPeriod": 1_209_600,
            "RedriveAllowPolicy": {
                "redrivePermission": "byQueue",
                "sourceQueueArns": [f"arn:aws:sqs:us-east-1:{ACCOUNT[environment.name]}:{queue}"],
            },
            **encryption,
        }
        expected[undelivered_queue] = {
            "QueueName": undelivered_queue,
            "FifoQueue": True,
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
            "MessageRetentionPeriod": 1_209_600,
            **encryption,
        }
        expected[queue] = {
            "QueueName": queue,
            "FifoQueue": True,
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
            "MessageRetentionPeriod": RETENTION_SECONDS[environment.name],
            "VisibilityTimeout": 60,
            "ReceiveMessageWaitTimeSeconds": 20,
            "RedrivePolicy": {"deadLetterTargetArn": f"Arn({dead_letter_queue})", "maxReceiveCount": 5},
            **encryption,
        }
    assert queues == expected


def test_a_consumers_own_numbers_reach_its_queues(full: list[Resource]) -> None:
    """Visibility, attempts and both retentions, where every one differs from its default."""
    queues = of_kind(full, QUEUE)

    common = {
        "FifoQueue": True,
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "KmsMasterKeyId": "Arn(FanoutKeysQueues)",
    }
    assert queues["sluice-full-ledger.fifo"] == {
        **common,
        "QueueName": "sluice-full-ledger.fifo",
        "MessageRetentionPeriod": 7_200,
        "VisibilityTimeout": 90,
        "ReceiveMessageWaitTimeSeconds": 20,
        "RedrivePolicy": {"deadLetterTargetArn": "Arn(sluice-full-ledger-dlq.fifo)", "maxReceiveCount": 7},
    }
    assert queues["sluice-full-ledger-dlq.fifo"] == {
        **common,
        "QueueName": "sluice-full-ledger-dlq.fifo",
        "MessageRetentionPeriod": 86_400,
        "RedriveAllowPolicy": {
            "redrivePermission": "byQueue",
            "sourceQueueArns": ["arn:aws:sqs:eu-central-1:111122223333:sluice-full-ledger.fifo"],
        },
    }
    assert queues["sluice-full-ledger-undelivered-dlq.fifo"] == {
        **common,
        "QueueName": "sluice-full-ledger-undelivered-dlq.fifo",
        "MessageRetentionPeriod": 86_400,
    }


def test_each_queue_is_subscribed_to_the_topic_with_raw_delivery(
    declared: list[Resource], environment: Environment
) -> None:
    """Once each, without a filter, and what cannot be delivered goes to that consumer's own undelivered DLQ."""
    subscriptions = of_kind(declared, SUBSCRIPTION).values()

    prefix = f"sluice-{environment.name}"
    assert {subscription["Endpoint"]: subscription for subscription in subscriptions} == {
        f"Arn({prefix}-{consumer}.fifo)": {
            "Protocol": "sqs",
            "RawMessageDelivery": True,
            "TopicArn": f"Ref({prefix}-events.fifo)",
            "Endpoint": f"Arn({prefix}-{consumer}.fifo)",
            "RedrivePolicy": {"deadLetterTargetArn": f"Arn({prefix}-{consumer}-undelivered-dlq.fifo)"},
        }
        for consumer in CONSUMERS
    }


def test_a_filter_policy_is_on_its_own_consumers_subscription_only(full: list[Resource]) -> None:
    """As declared, on message attributes, which is where SNS looks unless told otherwise."""
    subscriptions = of_kind(_messaging(full), SUBSCRIPTION).values()

    assert {subscription["Endpoint"]: subscription for subscription in subscriptions} == {
        "Arn(sluice-full-ledger.fifo)": {
            "Protocol": "sqs",
            "RawMessageDelivery": True,
            "TopicArn": "Ref(sluice-full-orders.fifo)",
            "Endpoint": "Arn(sluice-full-ledger.fifo)",
            "RedrivePolicy": {"deadLetterTargetArn": "Arn(sluice-full-ledger-undelivered-dlq.fifo)"},
            "FilterPolicy": {
                "region": ["eu", {"prefix": "us-"}],
                "amount": [{"numeric": [">=", 100]}],
                "trial": [{"exists": False}],
            },
        },
        "Arn(sluice-full-night-batch.fifo)": {
            "Protocol": "sqs",
            "RawMessageDelivery": True,
            "TopicArn": "Ref(sluice-full-orders.fifo)",
            "Endpoint": "Arn(sluice-full-night-batch.fifo)",
            "RedrivePolicy": {"deadLetterTargetArn": "Arn(sluice-full-night-batch-undelivered-dlq.fifo)"},
        },
    }


def test_alternatives_over_attributes_are_in_the_filter_policy_as_declared(hosted: list[Resource]) -> None:
    """SNS takes `$or` for a relation, not for an attribute's name, only in this shape."""
    policies = {entry["Endpoint"]: entry.get("FilterPolicy") for entry in of_kind(hosted, SUBSCRIPTION).values()}

    assert policies == {
        "Arn(sluice-hosted-billing.fifo)": None,
        "Arn(sluice-hosted-search.fifo)": {"$or": [{"kind": ["order"]}, {"amount": [{"numeric": [">", 0]}]}]},
    }


def test_a_subscription_waits_until_sns_may_send_to_its_queue(declared: list[Resource]) -> None:
    """Made before the queue's policy, its first messages would be undeliverable."""
    waits = {resource.depends_on for resource in declared if resource.kind == SUBSCRIPTION}

    assert waits == {
        ("FanoutConsumerbillingQueuePolicy",),
        ("FanoutConsumershippingQueuePolicy",),
        ("FanoutConsumerauditQueuePolicy",),
    }


def test_every_physical_name_is_the_one_naming_says(declared: list[Resource], environment: Environment) -> None:
    """What the template creates is what everybody else looks for."""
    topics, queues = set(of_kind(_messaging(declared), TOPIC)), set(of_kind(declared, QUEUE))

    assert topics == {naming.topic_name(environment)}
    assert queues == {
        name(environment, consumer)
        for consumer in environment.consumers
        for name in (naming.queue_name, naming.dead_letter_queue_name, naming.undelivered_queue_name)
    }


def test_the_outputs_say_where_things_are(stacks: Mapping[str, Stacks], environment: Environment) -> None:
    """The topic, the policy producers need, and of each consumer the queue's URL and the ARNs of all three queues."""
    found = outputs(stacks[environment.name][MESSAGING].template)

    prefix = f"sluice-{environment.name}"
    assert found == {
        "TopicArn": f"Ref({prefix}-events.fifo)",
        "PublishPolicyArn": "Ref(ProducersPublish)",
        "BillingQueueUrl": f"Ref({prefix}-billing.fifo)",
        "BillingQueueArn": f"Arn({prefix}-billing.fifo)",
        "BillingDeadLetterQueueArn": f"Arn({prefix}-billing-dlq.fifo)",
        "BillingUndeliveredQueueArn": f"Arn({prefix}-billing-undelivered-dlq.fifo)",
        "ShippingQueueUrl": f"Ref({prefix}-shipping.fifo)",
        "ShippingQueueArn": f"Arn({prefix}-shipping.fifo)",
        "ShippingDeadLetterQueueArn": f"Arn({prefix}-shipping-dlq.fifo)",
        "ShippingUndeliveredQueueArn": f"Arn({prefix}-shipping-undelivered-dlq.fifo)",
        "AuditQueueUrl": f"Ref({prefix}-audit.fifo)",
        "AuditQueueArn": f"Arn({prefix}-audit.fifo)",
        "AuditDeadLetterQueueArn": f"Arn({prefix}-audit-dlq.fifo)",
        "AuditUndeliveredQueueArn": f"Arn({prefix}-audit-undelivered-dlq.fifo)",
    }


def test_a_hyphen_in_a_consumers_name_is_a_capital_in_its_outputs(stacks: Mapping[str, Stacks]) -> None:
    """An output's name takes letters and digits only."""
    found = outputs(stacks["full"][MESSAGING].template)

    assert sorted(name for name in found if name.startswith("Night")) == [
        "NightBatchDeadLetterQueueArn",
        "NightBatchQueueArn",
        "NightBatchQueueUrl",
        "NightBatchUndeliveredQueueArn",
    ]
