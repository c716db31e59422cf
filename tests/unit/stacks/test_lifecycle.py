"""What is deleted and what stays, in which order the stacks are deployed, and whose a resource is."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.declaration import ENVIRONMENTS
from tests.unit.stacks import synthesis
from tests.unit.stacks.synthesis import Resource, Stacks

TOPIC, QUEUE, KEY, LOG_GROUP = "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::KMS::Key", "AWS::Logs::LogGroup"
DELETION_POLICIES = {
    "local": ("Delete", "Delete"),
    "dev": ("Delete", "Delete"),
    "staging": ("RetainExceptOnCreate", "Retain"),
    "prod": ("RetainExceptOnCreate", "Retain"),
    "full": ("RetainExceptOnCreate", "Retain"),
    "hosted": ("Delete", "Delete"),
    "plain": ("Delete", "Delete"),
}


@pytest.mark.parametrize("name", DELETION_POLICIES)
def test_what_holds_messages_logs_or_keys_goes_or_stays_as_declared(
    resources: Mapping[str, list[Resource]], name: str
) -> None:
    """Deleted or replaced; what is retained is still deleted when its very creation is rolled back."""
    stateful = (TOPIC, QUEUE, KEY, LOG_GROUP)

    policies = {
        resource.name: (resource.deletion_policy, resource.update_replace_policy)
        for resource in resources[name]
        if resource.kind in stateful and not resource.name.endswith("-operators")
    }

    assert policies == dict.fromkeys(policies, DELETION_POLICIES[name])
    assert len(policies) >= 5


def test_a_retained_environment_cannot_be_deleted_by_one_command(stacks: Mapping[str, Stacks]) -> None:
    """All three stacks are protected from deletion, or none."""
    protected = {name: [stack.is_protected for stack in parts.values()] for name, parts in stacks.items()}

    assert protected == {
        "local": [False, False, False],
        "dev": [False, False, False],
        "staging": [True, True, True],
        "prod": [True, True, True],
        "full": [True, True, True],
        "hosted": [False, False, False],
        "plain": [False, False, False],
    }


def test_the_stacks_are_deployed_in_an_order_that_works(stacks: Mapping[str, Stacks]) -> None:
    """Workers after the queues they look for by name; alarms after the key their topic is encrypted with."""
    orders = {name: {part: stack.dependencies for part, stack in parts.items()} for name, parts in stacks.items()}

    without_key = {"messaging": (), "consumers": ("messaging",), "observability": ()}
    with_key = {"messaging": (), "consumers": ("messaging",), "observability": ("messaging",)}
    assert orders == {
        "local": without_key,
        "dev": without_key,
        "staging": with_key,
        "prod": with_key,
        "full": with_key,
        "hosted": without_key,
        "plain": without_key,
    }


def test_as_many_tags_as_may_be_declared_are_as_many_as_aws_takes(tmp_path: Path) -> None:
    """Fifty on a subnet, which carries three of CDK's own; no resource has more."""
    most = replace(ENVIRONMENTS["local"], tags={f"key{number}": "" for number in range(45)})

    stacks = synthesis.synthesize(most, tmp_path)

    found = synthesis.resources({part: stack.template for part, stack in stacks.items()})
    assert max((len(resource.tags), resource.kind) for resource in found) == (50, "AWS::EC2::Subnet")


def test_every_resource_that_takes_tags_says_whose_it_is(full: list[Resource]) -> None:
    """Application, environment and the declared tags, no more; the rest are CDK's own names of network parts."""
    tags = {resource.name: resource.tags for resource in full if resource.tags}
    untagged = {resource.kind for resource in full if not resource.tags}

    for tag in tags.values():
        own = {key: value for key, value in tag.items() if key != "Name" and not key.startswith("aws-cdk:")}
        assert own == {"application": "sluice", "environment": "full", "team": "orders", "cost-centre": "42"}
    assert untagged == {
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::KMS::Alias",
        "AWS::Lambda::Function",
        "AWS::SNS::Subscription",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
        "Custom::VpcRestrictDefaultSG",
    }
