"""A fan-out hands a stack of somebody's own its topic and queues, grants with their keys, and a metric."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Template

from sluice.constructs.fan_out import Fanout
from sluice.declaration import ExistingKeys, policies
from sluice.errors import ConfigError
from tests.support.templates.environments import BUNDLED, EDITED, FULL, SHARED


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> cdk.Stack:
    folder = tmp_path_factory.mktemp("grants")
    app = cdk.App(outdir=str(folder), builtin_cloud_formation_validation=False)
    return cdk.Stack(app, "Shop")


@pytest.fixture(scope="module")
def fan_out(stack: cdk.Stack) -> Fanout:
    return Fanout(stack, "Fanout", environment=FULL)


def _allowed_actions(stack: cdk.Stack, role: str) -> dict[str, str]:
    """Return by action the logical id that a role may use it with."""
    policies = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    (statements,) = (
        policy["Properties"]["PolicyDocument"]["Statement"]
        for policy in policies
        if policy["Properties"]["Roles"][0]["Ref"].startswith(role)
    )
    return {action: _resource(each) for each in statements for action in _list(each["Action"])}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _resource(statement: dict[str, Any]) -> str:
    """Return the logical id of a statement's resource, without the hash at its end."""
    found = statement["Resource"]
    return str(found.get("Ref") or found["Fn::GetAtt"][0])[:-8]


def test_grants_name_one_resource_and_its_key(stack: cdk.Stack, fan_out: Fanout) -> None:
    service = iam.ServicePrincipal("lambda.amazonaws.com")
    fan_out.grant_publish(iam.Role(stack, "Publisher", assumed_by=service))
    fan_out.grant_publish(iam.Role(stack, "Named", assumed_by=service), "orders")
    fan_out.grant_consume(iam.Role(stack, "Reader", assumed_by=service), "ledger")

    publishes = {
        "sns:Publish": "FanoutTopicorders",
        "kms:Decrypt": "FanoutKeysTopic",
        "kms:GenerateDataKey": "FanoutKeysTopic",
    }
    assert _allowed_actions(stack, "Publisher") == _allowed_actions(stack, "Named") == publishes
    reads = _allowed_actions(stack, "Reader")
    assert reads.pop("kms:Decrypt") == "FanoutKeysQueues"
    assert set(reads.values()) == {"FanoutConsumerledgerQueue"}
    assert len(reads) == 5


def test_a_consumer_that_gets_bundles_may_send_to_its_dlq(tmp_path: Path) -> None:
    stack = cdk.Stack(cdk.App(outdir=str(tmp_path), builtin_cloud_formation_validation=False), "Shop")
    fan_out = Fanout(stack, "Fanout", environment=EDITED[BUNDLED])

    fan_out.grant_consume(iam.Role(stack, "Reader", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")), "audit")

    allowed = _allowed_actions(stack, "Reader")
    assert allowed["sqs:SendMessage"] == "FanoutConsumerauditDeadLetterQueue"
    assert allowed["kms:GenerateDataKey"] == "FanoutKeysQueues"


def test_a_metric_of_dead_letters_is_the_most_that_were_there(stack: cdk.Stack, fan_out: Fanout) -> None:
    metric = fan_out.metric_dead_letters("ledger", period=cdk.Duration.minutes(1))

    assert metric.metric_name == "ApproximateNumberOfMessagesVisible"
    assert metric.statistic == "Maximum"
    assert metric.period.to_seconds() == 60
    assert metric.dimensions == {"QueueName": fan_out.dead_letter_queue("ledger").queue_name}


@pytest.mark.parametrize("ask", [Fanout.queue, Fanout.dead_letter_queue, Fanout.metric_dead_letters])
def test_a_consumer_nobody_declared_is_refused_with_the_nearest(fan_out: Fanout, ask: Any) -> None:
    with pytest.raises(ConfigError, match=r"^consumer is 'ledgers' \(did you mean 'ledger'\?\), allowed is one"):
        ask(fan_out, "ledgers")


def test_one_of_several_topics_has_to_be_named(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path), builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Shop")
    fan_out = Fanout(stack, "Fanout", environment=replace(SHARED, database=None))
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))

    for ask in (lambda: fan_out.topic, lambda: fan_out.grant_publish(role)):
        with pytest.raises(ConfigError, match=r"^topic is one of orders, payments, legacy, stock, allowed is the only"):
            ask()
    fan_out.grant_publish(role, "payments")
    with pytest.raises(ConfigError, match=r"^topic is 'payment' \(did you mean 'payments'\?\)"):
        fan_out.grant_publish(role, "payment")


def test_keys_of_another_stack_of_the_same_app_are_used(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path), builtin_cloud_formation_validation=False)
    place = cdk.Environment(account="111122223333", region=FULL.region)
    owner, stack = cdk.Stack(app, "Security", env=place), cdk.Stack(app, "Shop", env=place)
    role = iam.Role(stack, "Publisher", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    key = kms.Key(owner, "Messages")
    keys = ExistingKeys(topic_arn=key.key_arn, queues_arn=key.key_arn)
    environment = replace(FULL, account=place.account, keys=keys)

    fan_out = Fanout(stack, "Fanout", environment=environment)
    fan_out.grant_publish(role, "orders")
    for grant in policies.for_others(environment, place.account or ""):
        for statement in grant.statements:
            key.add_to_resource_policy(iam.PolicyStatement.from_json(statement))

    template = Template.from_stack(stack)
    imported = next(iter(template.find_resources("AWS::SNS::Topic").values()))["Properties"]["KmsMasterKeyId"]
    assert list(imported) == ["Fn::ImportValue"]
    queues = template.find_resources("AWS::SQS::Queue").values()
    assert all(queue["Properties"]["KmsMasterKeyId"] == imported for queue in queues)
    (policy,) = template.find_resources("AWS::IAM::Policy").values()
    assert [each["Resource"] for each in policy["Properties"]["PolicyDocument"]["Statement"]][1] == imported
    (made,) = Template.from_stack(owner).find_resources("AWS::KMS::Key").values()
    services = [each["Principal"].get("Service") for each in made["Properties"]["KeyPolicy"]["Statement"]]
    assert {"cloudwatch.amazonaws.com", "sns.amazonaws.com"} <= set(services)
