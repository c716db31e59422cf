"""The messaging stack: one topic, a queue and two DLQs for each consumer, and what is joined to what."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sluice.declaration import Environment
from tests.support.templates.resources import MESSAGING, Resource, StackTemplates, of_kind, outputs
from tests.unit.constructs.expectations import CONSUMERS, account

TOPIC, TOPIC_POLICY = "AWS::SNS::Topic", "AWS::SNS::TopicPolicy"
QUEUE, QUEUE_POLICY = "AWS::SQS::Queue", "AWS::SQS::QueuePolicy"
SUBSCRIPTION, MANAGED_POLICY = "AWS::SNS::Subscription", "AWS::IAM::ManagedPolicy"
KEY, ALIAS = "AWS::KMS::Key", "AWS::KMS::Alias"

SQS_MANAGED = {"SqsManagedSseEnabled": True}
CMK = {"KmsMasterKeyId": "Arn(FanoutKeysQueues)"}
ENCRYPTION: dict[str, dict[str, Any]] = {"local": SQS_MANAGED, "dev": SQS_MANAGED, "staging": CMK, "prod": CMK}
RETENTION_SECONDS = {"local": 345_600, "dev": 345_600, "staging": 345_600, "prod": 1_209_600}


def _fifo(name: str, *, retention_seconds: int, **more: Any) -> dict[str, Any]:
    """Return a FIFO queue for high throughput; a DLQ accepts every message that its queue accepted."""
    return {
        "QueueName": name,
        "FifoQueue": True,
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "MessageRetentionPeriod": retention_seconds,
        "MaximumMessageSize": 1_048_576,
        **more,
    }


def _queue(
    name: str,
    *,
    visibility_seconds: int,
    attempts: int,
    retention_seconds: int,
    bytes_max: int = 262_144,
    **more: Any,
) -> dict[str, Any]:
    dead_letter_queue = name.replace(".fifo", "-dlq.fifo")
    return _fifo(
        name,
        retention_seconds=retention_seconds,
        MaximumMessageSize=bytes_max,
        VisibilityTimeout=visibility_seconds,
        ReceiveMessageWaitTimeSeconds=20,
        RedrivePolicy={"deadLetterTargetArn": f"Arn({dead_letter_queue})", "maxReceiveCount": attempts},
        **more,
    )


def _source(arn: str) -> dict[str, Any]:
    return {"redrivePermission": "byQueue", "sourceQueueArns": [arn]}


def _subscription(topic: str, queue: str, **more: Any) -> dict[str, Any]:
    undelivered = queue.replace(".fifo", "-undelivered-dlq.fifo")
    return {
        "Protocol": "sqs",
        "RawMessageDelivery": True,
        "TopicArn": f"Ref({topic})",
        "Endpoint": f"Arn({queue})",
        "RedrivePolicy": {"deadLetterTargetArn": f"Arn({undelivered})"},
        **more,
    }


def _messaging(found: list[Resource]) -> list[Resource]:
    return [resource for resource in found if resource.stack == MESSAGING]


def test_there_is_exactly_one_topic_and_it_is_fifo(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Throughput is by group; deduplication is by the ids publishers give, not by content; only prod archives."""
    topics = of_kind(_messaging(declared_resources), TOPIC)

    name = f"sluice-{environment.name}-events.fifo"
    size = {"MaximumMessageSize": "262144"}
    common = {"TopicName": name, "FifoTopic": True, "FifoThroughputScope": "MessageGroup", **size}
    key = {"KmsMasterKeyId": "Arn(FanoutKeysTopic)"}
    expected = {
        "local": common,
        "dev": common,
        "staging": {**common, **key},
        "prod": {**common, **key, "ArchivePolicy": {"MessageRetentionPeriod": 7}},
    }
    assert topics == {name: expected[environment.name]}


def test_nothing_is_in_the_messaging_stack_but_the_fan_out(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Each of three consumers has three queues with policies, and a subscription. Two keys are there where declared."""
    kinds = Counter(resource.kind for resource in _messaging(declared_resources))

    fanout = {TOPIC: 1, TOPIC_POLICY: 1, QUEUE: 9, QUEUE_POLICY: 9, SUBSCRIPTION: 3, MANAGED_POLICY: 2}
    keys = {KEY: 2, ALIAS: 2}
    expected = {"local": fanout, "dev": fanout, "staging": {**fanout, **keys}, "prod": {**fanout, **keys}}
    assert kinds == expected[environment.name]


def test_each_consumer_has_a_queue_a_dlq_and_an_undelivered_dlq(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """All are FIFO for high throughput and encrypted; only the queue redrives, only its DLQ says from where."""
    queues = of_kind(declared_resources, QUEUE)

    prefix, encryption = f"sluice-{environment.name}", ENCRYPTION[environment.name]
    expected: dict[str, Any] = {}
    for consumer in CONSUMERS:
        name = f"{prefix}-{consumer}.fifo"
        dead_letters, undelivered = f"{prefix}-{consumer}-dlq.fifo", f"{prefix}-{consumer}-undelivered-dlq.fifo"
        source = _source(f"arn:aws:sqs:us-east-1:{account(environment)}:{name}")
        retention_seconds = RETENTION_SECONDS[environment.name]
        expected |= {
            dead_letters: _fifo(dead_letters, retention_seconds=1_209_600, RedriveAllowPolicy=source, **encryption),
            undelivered: _fifo(undelivered, retention_seconds=1_209_600, **encryption),
            name: _queue(name, visibility_seconds=60, attempts=5, retention_seconds=retention_seconds, **encryption),
        }
    assert queues == expected


def test_a_consumers_own_numbers_reach_its_queues(full: list[Resource]) -> None:
    """Visibility, attempts, size and both retentions, where every one differs from its default."""
    queues = {name: queue for name, queue in of_kind(full, QUEUE).items() if "ledger" in name}

    name, dead_letters = "sluice-full-ledger.fifo", "sluice-full-ledger-dlq.fifo"
    undelivered = "sluice-full-ledger-undelivered-dlq.fifo"
    source = _source(f"arn:aws:sqs:eu-central-1:111122223333:{name}")
    assert queues == {
        name: _queue(name, visibility_seconds=90, attempts=7, retention_seconds=7_200, bytes_max=1_048_576, **CMK),
        dead_letters: _fifo(dead_letters, retention_seconds=86_400, RedriveAllowPolicy=source, **CMK),
        undelivered: _fifo(undelivered, retention_seconds=86_400, **CMK),
    }
    (topic,) = of_kind(_messaging(full), TOPIC).values()
    assert topic["MaximumMessageSize"] == "1048576"


def test_each_queue_is_subscribed_to_the_topic_with_raw_delivery(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Each queue has one subscription, without a filter.

    Undeliverable messages go to the consumer's own undelivered DLQ.
    """
    subscriptions = of_kind(declared_resources, SUBSCRIPTION).values()

    prefix = f"sluice-{environment.name}"
    assert {subscription["Endpoint"]: subscription for subscription in subscriptions} == {
        f"Arn({prefix}-{consumer}.fifo)": _subscription(f"{prefix}-events.fifo", f"{prefix}-{consumer}.fifo")
        for consumer in CONSUMERS
    }


def test_a_filter_policy_is_on_its_own_consumers_subscription_only(full: list[Resource]) -> None:
    """The policy is as declared, and is compared with message attributes, which is SNS's default."""
    subscriptions = of_kind(_messaging(full), SUBSCRIPTION).values()

    topic, ledger, night_batch = "sluice-full-orders.fifo", "sluice-full-ledger.fifo", "sluice-full-night-batch.fifo"
    policy = {
        "region": ["eu", {"prefix": "us-"}],
        "amount": [{"anything-but": ["0"]}],
        "trial": [{"exists": False}],
    }
    assert {subscription["Endpoint"]: subscription for subscription in subscriptions} == {
        f"Arn({ledger})": _subscription(topic, ledger, FilterPolicy=policy),
        f"Arn({night_batch})": _subscription(topic, night_batch),
    }


def test_alternatives_over_attributes_are_in_the_filter_policy_as_declared(hosted_resources: list[Resource]) -> None:
    """SNS takes `$or` for a relation, not for an attribute's name, only in this shape."""
    policies = {
        subscription["Endpoint"]: subscription.get("FilterPolicy")
        for subscription in of_kind(hosted_resources, SUBSCRIPTION).values()
    }

    assert policies == {
        "Arn(sluice-hosted-billing.fifo)": None,
        "Arn(sluice-hosted-search.fifo)": {"$or": [{"kind": ["order"]}, {"amount": [{"prefix": "1"}]}]},
    }


def test_a_subscription_waits_until_sns_may_send_to_its_queue(declared_resources: list[Resource]) -> None:
    """Made before the queue's policy, its first messages would be undeliverable."""
    waits = {resource.depends_on for resource in declared_resources if resource.kind == SUBSCRIPTION}

    assert waits == {
        ("FanoutConsumerbillingQueuePolicy",),
        ("FanoutConsumershippingQueuePolicy",),
        ("FanoutConsumerauditQueuePolicy",),
    }


def test_the_outputs_say_where_things_are(stacks: Mapping[str, StackTemplates], environment: Environment) -> None:
    """The topic, the policies producers need, and of each consumer the queue's URL and the ARNs of all three queues."""
    found = outputs(stacks[environment.name][MESSAGING].template)

    prefix = f"sluice-{environment.name}"
    assert found == {
        "TopicArn": f"Ref({prefix}-events.fifo)",
        "PublishPolicyArn": "Ref(ProducersPublish)",
        "OutboxPolicyArn": "Ref(ProducersOutbox)",
        **{f"{consumer.title()}QueueUrl": f"Ref({prefix}-{consumer}.fifo)" for consumer in CONSUMERS},
        **{
            f"{consumer.title()}{queue}Arn": f"Arn({prefix}-{consumer}{ending}.fifo)"
            for consumer in CONSUMERS
            for queue, ending in (("Queue", ""), ("DeadLetterQueue", "-dlq"), ("UndeliveredQueue", "-undelivered-dlq"))
        },
    }


def test_a_hyphen_in_a_consumers_name_is_a_capital_in_its_outputs(stacks: Mapping[str, StackTemplates]) -> None:
    """An output's name takes letters and digits only."""
    found = outputs(stacks["full"][MESSAGING].template)

    assert sorted(name for name in found if name.startswith("Night")) == [
        "NightBatchDeadLetterQueueArn",
        "NightBatchQueueArn",
        "NightBatchQueueUrl",
        "NightBatchUndeliveredQueueArn",
    ]
