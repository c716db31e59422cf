"""The messaging stack's policies and keys, compared whole, say who may send, publish and decrypt."""

from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import DatabaseRole, Environment
from tests.support.templates.resources import MESSAGING, Resource, of_kind
from tests.unit.constructs.expectations import CONSUMERS, allow, log_in

TOPIC_POLICY, QUEUE_POLICY = "AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy"
MANAGED_POLICY, KEY, ALIAS = "AWS::IAM::ManagedPolicy", "AWS::KMS::Key", "AWS::KMS::Alias"
INSECURE = {"Bool": {"aws:SecureTransport": "false"}}


def _deny_insecure(queue: str) -> dict[str, Any]:
    return {
        "Effect": "Deny",
        "Action": "sqs:*",
        "Principal": {"AWS": "*"},
        "Condition": INSECURE,
        "Resource": f"Arn({queue})",
    }


def _use_key(principal: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
        "Principal": {"Service": principal},
        "Condition": condition,
        "Resource": "*",
    }


def test_queues_take_encrypted_messages_of_the_topic_only(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Every policy whole: anybody is denied without TLS, SNS on behalf of the topic may send, never to the DLQ."""
    policies = of_kind(declared_resources, QUEUE_POLICY).values()

    prefix = f"sluice-{environment.name}"
    expected: dict[str, Any] = {}
    for consumer in CONSUMERS:
        for name in (f"{prefix}-{consumer}.fifo", f"{prefix}-{consumer}-undelivered-dlq.fifo"):
            from_topic = {
                "Effect": "Allow",
                "Action": "sqs:SendMessage",
                "Principal": {"Service": "sns.amazonaws.com"},
                "Condition": {"ArnEquals": {"aws:SourceArn": f"Ref({prefix}-events.fifo)"}},
                "Resource": f"Arn({name})",
            }
            expected[f"Ref({name})"] = [_deny_insecure(name), from_topic]
        dead_letters = f"{prefix}-{consumer}-dlq.fifo"
        expected[f"Ref({dead_letters})"] = [_deny_insecure(dead_letters)]
    assert {
        queue: policy["PolicyDocument"]["Statement"] for policy in policies for queue in policy["Queues"]
    } == expected


def test_the_topic_denies_what_is_not_encrypted_in_transit(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Publishing is denied to anybody without TLS, and allowed by the publisher's own role alone."""
    policies = of_kind([resource for resource in declared_resources if resource.stack == MESSAGING], TOPIC_POLICY)

    topic = f"Ref(sluice-{environment.name}-events.fifo)"
    assert policies == {
        "FanoutTopiceventsPolicy": {
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
def test_each_key_rotates_and_admits_services_on_our_behalf_only(
    by_environment: Mapping[str, list[Resource]], name: str, account: str, topic: str, replayed: str | None
) -> None:
    """SNS into the queues' key for the topic alone, CloudWatch into the topics' for this account's alarms alone.

    CloudWatch Logs into the logs' key for groups of this environment alone, by the context it encrypts in. Where the
    topic archives, SNS also into the topics' key, to read what it replays.
    """
    keys, aliases = of_kind(by_environment[name], KEY), of_kind(by_environment[name], ALIAS)

    administration = {
        "Effect": "Allow",
        "Action": "kms:*",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Resource": "*",
    }
    alarms = _use_key("cloudwatch.amazonaws.com", {"StringEquals": {"aws:SourceAccount": account}})
    replay = _use_key("sns.amazonaws.com", {"ArnEquals": {"aws:SourceArn": replayed}})
    delivery = _use_key("sns.amazonaws.com", {"ArnEquals": {"aws:SourceArn": f"Ref({topic})"}})
    region = "eu-central-1" if name == "full" else "us-east-1"
    logged = f"/ecs/sluice-{name}-*", f"sluice-{name}-*", f"/aws/rds/cluster/sluice-{name}/*"
    groups = [f"arn:aws:logs:{region}:{account}:log-group:{group}" for group in logged]
    logging = {
        "Effect": "Allow",
        "Action": ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
        "Principal": {"Service": f"logs.{region}.amazonaws.com"},
        "Resource": "*",
        "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
    }
    of_topic = [administration, alarms] if replayed is None else [administration, alarms, replay]
    assert keys == {
        construct: {
            "Description": f"Sluice {name}: {encrypted}",
            "EnableKeyRotation": True,
            "KeyPolicy": {"Version": "2012-10-17", "Statement": statements},
        }
        for construct, encrypted, statements in (
            ("FanoutKeysTopic", "topic", of_topic),
            ("FanoutKeysQueues", "queues", [administration, delivery]),
            ("DatabaseKey", "database", [administration]),
            ("NetworkLogKey", "logs", [administration, logging]),
        )
    }
    assert aliases == {
        alias: {"AliasName": alias, "TargetKeyId": key}
        for alias, key in (
            (f"alias/sluice-{name}-topic", "Arn(FanoutKeysTopic)"),
            (f"alias/sluice-{name}-queues", "Arn(FanoutKeysQueues)"),
            (f"alias/sluice-{name}-database", "Arn(DatabaseKey)"),
            (f"alias/sluice-{name}-logs", "Arn(NetworkLogKey)"),
        )
    }


def test_producers_publish_by_one_policy_and_write_to_the_outbox_by_another(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """The first policy also allows to use a key of ours, without which SNS refuses.

    The second does not allow to publish.
    """
    policies = of_kind(declared_resources, MANAGED_POLICY)

    publish = allow("sns:Publish", f"Ref(sluice-{environment.name}-events.fifo)")
    use_key = allow(["kms:Decrypt", "kms:GenerateDataKey"], "Arn(FanoutKeysTopic)")
    statements = [publish, use_key] if environment.name in ("staging", "prod") else [publish]
    assert policies == {
        "ProducersPublish": {
            "Description": "Publish to the Sluice topic",
            "Path": "/",
            "PolicyDocument": {"Version": "2012-10-17", "Statement": statements},
        },
        "ProducersOutbox": {
            "Description": "Read the Sluice database's secret",
            "Path": "/",
            "PolicyDocument": {"Version": "2012-10-17", "Statement": log_in(environment, DatabaseRole.PRODUCER)},
        },
    }
