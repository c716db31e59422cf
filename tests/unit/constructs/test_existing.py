"""Existing topics, queues, keys and a cluster of other owners, other accounts, a standard queue, and several topics."""

from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import naming, policies
from tests.support.templates.environments import SHARED
from tests.support.templates.resources import MESSAGING, Resource, StackTemplates, of_kind, outputs, statements
from tests.unit.constructs.expectations import allow

ACCOUNT, PRODUCER, SUBSCRIBER = str(SHARED.account), "444455556666", "777788889999"
ORDERS = f"arn:aws:sns:us-east-1:{ACCOUNT}:sluice-shared-orders.fifo"
LEGACY, STOCK = f"arn:aws:sns:us-east-1:{ACCOUNT}:legacy.fifo", f"arn:aws:sns:us-east-1:{PRODUCER}:stock.fifo"
KEYS = f"arn:aws:kms:us-east-1:{PRODUCER}:key"
OF_TOPIC, OF_QUEUES, OF_OTHERS = (f"{KEYS}/{part}2c3d-1111-2222-3333-444455556666" for part in ("aaaa", "bbbb", "0a1b"))
INVOICES = f"arn:aws:sqs:us-east-1:{ACCOUNT}:invoices.fifo"
USE_KEY = ["kms:Decrypt", "kms:GenerateDataKey"]
TASK = "TaskDefinitionTaskRole"


@pytest.fixture
def shared_resources(by_environment: Mapping[str, list[Resource]]) -> list[Resource]:
    return by_environment["shared"]


def _statement(principal: dict[str, str], action: Any, resource: str, condition: Any = None) -> dict[str, Any]:
    stated = {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": resource}
    return stated if condition is None else stated | {"Condition": condition}


def _root(account: str) -> dict[str, str]:
    return {"AWS": f"arn:aws:iam::{account}:root"}


def _sns(action: Any, resource: str, topic: str) -> dict[str, Any]:
    return _statement({"Service": "sns.amazonaws.com"}, action, resource, {"ArnEquals": {"aws:SourceArn": topic}})


SUBSCRIBES = {
    "StringEquals": {"sns:Protocol": "sqs"},
    "StringLike": {"sns:Endpoint": f"arn:aws:sqs:us-east-1:{SUBSCRIBER}:*"},
}
THROUGH_SNS, THROUGH_SQS = (
    {"StringEquals": {"kms:ViaService": f"{service}.us-east-1.amazonaws.com"}} for service in ("sns", "sqs")
)


def test_nothing_is_made_or_attached_that_is_somebody_elses(shared_resources: list[Resource]) -> None:
    """No existing key, cluster, topic or queue pair is made, and no policy is attached to one.

    The subscription's DLQ is ours.
    """
    assert list(of_kind(shared_resources, "AWS::KMS::Key")) == ["NetworkLogKey"]
    assert not of_kind(shared_resources, "AWS::ECS::Cluster")
    assert sorted(of_kind(shared_resources, "AWS::SNS::Topic")) == [
        "sluice-shared-operators",
        "sluice-shared-orders.fifo",
        "sluice-shared-payments.fifo",
    ]
    queues = of_kind(shared_resources, "AWS::SQS::Queue")
    assert sorted(name for name in queues if "billing" in name) == ["sluice-shared-billing-undelivered-dlq.fifo"]
    attached = [
        queue for policy in of_kind(shared_resources, "AWS::SQS::QueuePolicy").values() for queue in policy["Queues"]
    ]
    assert sorted(attached) == sorted(f"Ref({name})" for name in queues)


def test_each_consumer_is_subscribed_to_its_topic(shared_resources: list[Resource]) -> None:
    found = of_kind(shared_resources, "AWS::SNS::Subscription").values()

    assert {each["Endpoint"]: (each["TopicArn"], each["RedrivePolicy"]["deadLetterTargetArn"]) for each in found} == {
        INVOICES: ("Ref(sluice-shared-orders.fifo)", "Arn(sluice-shared-billing-undelivered-dlq.fifo)"),
        "Arn(sluice-shared-search)": (
            "Ref(sluice-shared-payments.fifo)",
            "Arn(sluice-shared-search-undelivered-dlq.fifo)",
        ),
        "Arn(sluice-shared-audit.fifo)": (LEGACY, "Arn(sluice-shared-audit-undelivered-dlq.fifo)"),
    }


def test_a_standard_queue_has_a_standard_dlq_and_no_fifo_properties(shared_resources: list[Resource]) -> None:
    queues = of_kind(shared_resources, "AWS::SQS::Queue")

    key = {"KmsMasterKeyId": OF_QUEUES}
    assert {name: queues[name] for name in ("sluice-shared-search", "sluice-shared-search-dlq")} == {
        "sluice-shared-search": {
            "QueueName": "sluice-shared-search",
            "MessageRetentionPeriod": 345_600,
            "MaximumMessageSize": 262_144,
            "VisibilityTimeout": 60,
            "ReceiveMessageWaitTimeSeconds": 20,
            "RedrivePolicy": {"deadLetterTargetArn": "Arn(sluice-shared-search-dlq)", "maxReceiveCount": 5},
            **key,
        },
        "sluice-shared-search-dlq": {
            "QueueName": "sluice-shared-search-dlq",
            "MessageRetentionPeriod": 1_209_600,
            "MaximumMessageSize": 1_048_576,
            "RedriveAllowPolicy": {
                "redrivePermission": "byQueue",
                "sourceQueueArns": [f"arn:aws:sqs:us-east-1:{ACCOUNT}:sluice-shared-search"],
            },
            **key,
        },
    }
    assert queues["sluice-shared-search-undelivered-dlq.fifo"]["FifoQueue"] is True


def test_a_topic_lets_each_other_account_do_its_part_and_no_more(shared_resources: list[Resource]) -> None:
    """The producer publishes, the subscriber subscribes queues of its own; the second topic lets in nobody."""
    found = {
        policy["Topics"][0]: [
            {key: value for key, value in statement.items() if key != "Sid"}
            for statement in policy["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Allow" and "AWS" in statement["Principal"]
        ]
        for policy in of_kind(shared_resources, "AWS::SNS::TopicPolicy").values()
    }

    orders, payments = "Ref(sluice-shared-orders.fifo)", "Ref(sluice-shared-payments.fifo)"
    assert {topic: found[topic] for topic in (orders, payments)} == {
        orders: [
            _statement(_root(PRODUCER), "sns:Publish", orders),
            _statement(_root(SUBSCRIBER), "sns:Subscribe", orders, SUBSCRIBES),
        ],
        payments: [],
    }


def test_a_worker_may_use_the_existing_queue_its_key_and_nothing_else(shared_resources: list[Resource]) -> None:
    found = statements(shared_resources, f"ConsumersConsumerbillingWorker{TASK}")

    receive = ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl", "ReceiveMessage"]
    protect = ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
    assert found[1:] == [
        allow([f"sqs:{action}" for action in receive], INVOICES),
        allow("kms:Decrypt", OF_OTHERS),
        allow(protect, f"arn:aws:ecs:us-east-1:{ACCOUNT}:task/everybodys/*"),
    ]


@pytest.mark.parametrize(
    ("relay", "construct", "topic", "key"),
    [
        ("relay", "Relay", ORDERS, OF_TOPIC),
        ("relay-payments", "Relaypayments", ORDERS.replace("orders", "payments"), OF_TOPIC),
        ("relay-stock", "Relaystock", STOCK, OF_OTHERS),
    ],
)
def test_each_published_topic_has_a_relay_of_its_own(
    shared_resources: list[Resource], relay: str, construct: str, topic: str, key: str
) -> None:
    """Each relay publishes to its topic alone. A topic that is only consumed has no relay."""
    containers = of_kind(shared_resources, "AWS::ECS::TaskDefinition")[f"sluice-shared-{relay}"]["ContainerDefinitions"]
    (container,) = (container for container in containers if container["Name"] == relay)
    variables = {variable["Name"]: variable["Value"] for variable in container["Environment"]}

    assert variables["SLUICE_TOPIC_ARN"] == topic
    assert statements(shared_resources, f"Consumers{construct}{TASK}")[1:] == [
        allow("sns:Publish", topic),
        allow(USE_KEY, key),
    ]
    assert "sluice-shared-relay-legacy" not in of_kind(shared_resources, "AWS::ECS::Service")


def test_existing_topics_have_no_alarms_and_standard_queues_no_stuck_groups(shared_resources: list[Resource]) -> None:
    """The metrics of an existing topic count the deliveries of all its subscribers.

    Failed deliveries to us show in our DLQs.
    """
    names = {name.removeprefix("sluice-shared-") for name in of_kind(shared_resources, "AWS::CloudWatch::Alarm")}

    assert {name for name in names if name.startswith("topic")} == {
        *("topic-failed", "topic-lost"),
        *("topic-payments-failed", "topic-payments-lost"),
    }
    assert {name for name in names if name.endswith("lagging")} == {
        *("relay-lagging", "relay-payments-lagging", "relay-stock-lagging"),
    }
    assert {name for name in names if name.endswith("stuck")} == {"billing-stuck", "audit-stuck"}


def test_outputs_name_every_topic_and_queue(stacks: Mapping[str, StackTemplates]) -> None:
    found = outputs(stacks["shared"][MESSAGING].template)

    assert {name: found[name] for name in ("TopicArn", "LegacyTopicArn", "BillingQueueArn")} == {
        "TopicArn": "Ref(sluice-shared-orders.fifo)",
        "LegacyTopicArn": LEGACY,
        "BillingQueueArn": INVOICES,
    }


def test_statements_for_existing_resources_are_complete(shared_resources: list[Resource]) -> None:
    """Every statement is there without which a message does not arrive. No statement is about a resource of ours."""
    payments = naming.topic_arn(SHARED, ACCOUNT, "payments")
    theirs = f"arn:aws:sqs:us-east-1:{SUBSCRIBER}:QUEUE"

    found = policies.for_others(SHARED, ACCOUNT)

    assert [(grant.owner, grant.attached_to, list(grant.statements)) for grant in found] == [
        (ACCOUNT, INVOICES, [_sns("sqs:SendMessage", INVOICES, ORDERS)]),
        (PRODUCER, OF_OTHERS, [_sns(USE_KEY, "*", ORDERS), _statement(_root(ACCOUNT), USE_KEY, "*", THROUGH_SQS)]),
        (
            PRODUCER,
            OF_TOPIC,
            [
                _statement(
                    {"Service": "cloudwatch.amazonaws.com"},
                    USE_KEY,
                    "*",
                    {"StringEquals": {"aws:SourceAccount": ACCOUNT}},
                ),
                _statement(_root(ACCOUNT), USE_KEY, "*", THROUGH_SNS),
            ],
        ),
        (
            PRODUCER,
            OF_QUEUES,
            [
                *(_sns(USE_KEY, "*", topic) for topic in (ORDERS, payments, LEGACY)),
                _statement(_root(ACCOUNT), USE_KEY, "*", THROUGH_SQS),
            ],
        ),
        (SUBSCRIBER, theirs, [_sns("sqs:SendMessage", theirs, ORDERS)]),
        (SUBSCRIBER, "the key of that queue, where it has one", [_sns(USE_KEY, "*", ORDERS)]),
        (
            PRODUCER,
            "the producer's role",
            [
                {"Effect": "Allow", "Action": "sns:Publish", "Resource": ORDERS},
                {"Effect": "Allow", "Action": USE_KEY, "Resource": OF_TOPIC, "Condition": THROUGH_SNS},
            ],
        ),
        (PRODUCER, STOCK, [_statement(_root(ACCOUNT), "sns:Publish", STOCK)]),
        (PRODUCER, OF_OTHERS, [_statement(_root(ACCOUNT), USE_KEY, "*", THROUGH_SNS)]),
    ]
