"""Who may send, publish and decrypt: every policy of the messaging stack, whole, and its keys."""

from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import Environment
from tests.unit.stacks.synthesis import MESSAGING, Resource, of_kind

TOPIC_POLICY, QUEUE_POLICY = "AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy"
MANAGED_POLICY, KEY, ALIAS = "AWS::IAM::ManagedPolicy", "AWS::KMS::Key", "AWS::KMS::Alias"
CONSUMERS = ("billing", "shipping", "audit")
INSECURE = {"Bool": {"aws:SecureTransport": "false"}}


def test_queues_deny_what_is_not_encrypted_in_transit_and_take_messages_from_the_topic_only(
    declared: list[Resource], environment: Environment
) -> None:
    """Every policy whole: anybody is denied without TLS, SNS on behalf of the topic may send, never to the DLQ."""
    policies = of_kind(declared, QUEUE_POLICY).values()

    prefix = f"sluice-{environment.name}"
    expected: dict[str, Any] = {}
    for name in (f"{prefix}-{consumer}{kind}.fifo" for consumer in CONSUMERS for kind in ("", "-undelivered-dlq")):
        expected[name] = [
            {
                "Effect": "Deny",
                "Action": "sqs:*",
                "Principal": {"AWS": "*"},
                "Condition": INSECURE,
                "Resource": f"Arn({name})",
            },
            {
                "Effect": "Allow",
                "Action": "sqs:SendMessage",
                "Principal": {"Service": "sns.amazonaws.com"},
                "Condition": {"ArnEquals": {"aws:SourceArn": f"Ref({prefix}-events.fifo)"}},
                "Resource": f"Arn({name})",
            },
        ]
    for name in (f"{prefix}-{consumer}-dlq.fifo" for consumer in CONSUMERS):
        expected[name] = [
            {
                "Effect": "Deny",
                "Action": "sqs:*",
                "Principal": {"AWS": "*"},
                "Condition": INSECURE,
                "Resource": f"Arn({name})",
            }
        ]
    assert {queue: policy["PolicyDocument"]["Statement"] for policy in policies for queue in policy["Queues"]} == {
        f"Ref({name})": statements for name, statements in expected.items()
    }


def test_the_topic_denies_what_is_not_encrypted_in_transit(declared: list[Resource], environment: Environment) -> None:
    """Publishing is denied to anybody without TLS, and allowed by the publisher's own role alone."""
    policies = of_kind([resource for resource in declared if resource.stack == MESSAGING], TOPIC_POLICY)

    topic = f"Ref(sluice-{environment.name}-events.fifo)"
    assert policies == {
        "FanoutTopicPolicy": {
            "Topics": [topic],
            "PolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Sid": "AllowPublishThroughSSLOnly",
                        "Effect": "Deny",
                        "Action": "sns:Publish",
                        "Principal": "*",
                        "Condition": INSECURE,
                        "Resource": topic,
                    }
                ],
            },
        }
    }


@pytest.mark.parametrize(
    ("name", "account", "topic", "replayed"),
    [
        ("staging", "<AWS::AccountId>", "sluice-staging-events.fifo", None),
        (
            "prod",
            "<AWS::AccountId>",
            "sluice-prod-events.fifo",
            "arn:aws:sns:us-east-1:<AWS::AccountId>:sluice-prod-events.fifo",
        ),
        (
            "full",
            "111122223333",
            "sluice-full-orders.fifo",
            "arn:aws:sns:eu-central-1:111122223333:sluice-full-orders.fifo",
        ),
    ],
    ids=["staging", "prod", "full"],
)
def test_each_key_rotates_and_lets_in_what_needs_it_on_our_behalf_only(
    resources: Mapping[str, list[Resource]], name: str, account: str, topic: str, replayed: str | None
) -> None:
    """SNS into the queues' key for the topic alone, CloudWatch into the topics' for this account's alarms alone.

    Where the topic archives, SNS also into the topics' key, to read what it replays.
    """
    keys, aliases = of_kind(resources[name], KEY), of_kind(resources[name], ALIAS)

    def let_in(service: str, condition: dict[str, Any]) -> dict[str, Any]:
        return {
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Principal": {"Service": service},
            "Condition": condition,
            "Resource": "*",
        }

    administration = {
        "Effect": "Allow",
        "Action": "kms:*",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Resource": "*",
    }
    alarms = let_in("cloudwatch.amazonaws.com", {"StringEquals": {"aws:SourceAccount": account}})
    replay = let_in("sns.amazonaws.com", {"ArnEquals": {"aws:SourceArn": replayed}})
    delivery = let_in("sns.amazonaws.com", {"ArnEquals": {"aws:SourceArn": f"Ref({topic})"}})
    of_topic = [administration, alarms] if replayed is None else [administration, alarms, replay]
    assert keys == {
        "FanoutKeysTopic": {
            "Description": f"Sluice {name}: topic",
            "EnableKeyRotation": True,
            "KeyPolicy": {"Version": "2012-10-17", "Statement": of_topic},
        },
        "FanoutKeysQueues": {
            "Description": f"Sluice {name}: queues",
            "EnableKeyRotation": True,
            "KeyPolicy": {"Version": "2012-10-17", "Statement": [administration, delivery]},
        },
    }
    assert aliases == {
        f"alias/sluice-{name}-topic": {
            "AliasName": f"alias/sluice-{name}-topic",
            "TargetKeyId": "Arn(FanoutKeysTopic)",
        },
        f"alias/sluice-{name}-queues": {
            "AliasName": f"alias/sluice-{name}-queues",
            "TargetKeyId": "Arn(FanoutKeysQueues)",
        },
    }


def test_the_publish_policy_allows_to_publish_to_the_topic_and_nothing_else(
    declared: list[Resource], environment: Environment
) -> None:
    """With a key of ours also to use it, or SNS refuses the publish."""
    policies = of_kind(declared, MANAGED_POLICY)

    publish = {"Effect": "Allow", "Action": "sns:Publish", "Resource": f"Ref(sluice-{environment.name}-events.fifo)"}
    use_key = {
        "Effect": "Allow",
        "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
        "Resource": "Arn(FanoutKeysTopic)",
    }
    expected = {
        "local": [publish],
        "dev": [publish],
        "staging": [publish, use_key],
        "prod": [publish, use_key],
    }
    assert policies == {
        "ProducersPublish": {
            "Description": "Publish to the Sluice topic",
            "Path": "/",
            "PolicyDocument": {"Version": "2012-10-17", "Statement": expected[environment.name]},
        }
    }
