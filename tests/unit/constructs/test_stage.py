"""Resources go or stay as declared, stacks are deployed in an order that works, and tags say whose a resource is."""

from collections.abc import Mapping

import aws_cdk as cdk
import pytest

from sluice.declaration import Consumer, Environment, Removal
from sluice.errors import ConfigError
from stacks.stage import EnvironmentStage
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import BUNDLED, EDITED, EXTRA
from tests.support.templates.invariants import problems
from tests.support.templates.resources import Resource, StackTemplates, resources

STATEFUL = ("AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::KMS::Key", "AWS::Logs::LogGroup")
RETAINED = ("staging", "prod", "full")
"""Environments that are retained; the same have keys of their own."""
WITHOUT_OWN_DATABASE = ("hosted", "plain", "shared")


@pytest.mark.parametrize("name", [*ENVIRONMENTS, *EXTRA])
def test_messages_logs_and_keys_go_or_stay_as_declared(by_environment: Mapping[str, list[Resource]], name: str) -> None:
    """This holds when they are deleted or replaced.

    A resource that is to stay is still deleted when its own creation is rolled back.
    """
    policies = {
        resource.name: (resource.deletion_policy, resource.update_replace_policy)
        for resource in by_environment[name]
        if resource.kind in STATEFUL and not resource.name.endswith("-operators")
    }

    expected = ("RetainExceptOnCreate", "Retain") if name in RETAINED else ("Delete", "Delete")
    assert policies == dict.fromkeys(policies, expected)
    assert len(policies) >= 5


def test_a_retained_environment_cannot_be_deleted_by_one_command(stacks: Mapping[str, StackTemplates]) -> None:
    """Each stack of a retained environment is protected from deletion, and no stack of another environment."""
    for name, parts in stacks.items():
        assert {stack.is_protected for stack in parts.values()} == {name in RETAINED}, name


def test_only_an_environment_with_its_own_database_has_a_fifth_stack(stacks: Mapping[str, StackTemplates]) -> None:
    for name, parts in stacks.items():
        assert len(parts) == (4 if name in WITHOUT_OWN_DATABASE else 5), name


def test_a_retained_environment_whose_alarms_nobody_hears_is_refused() -> None:
    """Synthesized is one that goes, one that says so on purpose, and one that tells somebody."""
    retained = Environment(name="prod", consumers=(Consumer(name="billing"),))

    with pytest.raises(ConfigError) as refused:
        EnvironmentStage(cdk.App(), environment=retained)

    assert str(refused.value).startswith(
        "Environment('prod').silent is False, allowed is True, or alarm_emails, alarm_urls, alarm_slack or"
        " alarm_topic_arn: "
    )


def test_handlers_without_a_database_are_refused() -> None:
    """A worker keeps its inbox there, and would end at its start; one without handlers does not start at all."""
    consumer = Consumer(name="billing", handlers="examples.services.billing")

    with pytest.raises(ConfigError) as refused:
        EnvironmentStage(cdk.App(), environment=Environment(name="dev", consumers=(consumer,), removal=Removal.DESTROY))

    assert str(refused.value) == (
        "Consumer('billing').handlers is 'examples.services.billing', allowed is None while environment 'dev' has no"
        " database: a worker keeps its inbox there; declare database=NewDatabase()"
    )


def test_the_stacks_are_deployed_in_an_order_that_works(stacks: Mapping[str, StackTemplates]) -> None:
    """Workers after the queues they look for by name; alarms after the key their topic is encrypted with."""
    orders = {name: {part: set(stack.dependencies) for part, stack in parts.items()} for name, parts in stacks.items()}

    assert orders == {
        name: {
            "network": set(),
            **({} if name in WITHOUT_OWN_DATABASE else {"database": {"network"}}),
            "messaging": set() if name in WITHOUT_OWN_DATABASE else {"database"},
            "consumers": {"messaging", "network", *(() if name in WITHOUT_OWN_DATABASE else ("database",))},
            "observability": {"messaging"} if name in RETAINED else set(),
        }
        for name in stacks
    }


@pytest.mark.parametrize("environment", [*ENVIRONMENTS.values(), *EXTRA.values()], ids=lambda value: value.name)
def test_queues_keys_permissions_and_alarms_are_as_the_options_say(
    by_environment: Mapping[str, list[Resource]], environment: Environment
) -> None:
    """Any other environment: tests/integration/stacks/test_any_environment.py."""
    assert problems(by_environment[environment.name], environment) == []


def test_workers_of_bundles_may_send_dead_events_to_their_own_dlq(edited_stacks: Mapping[str, StackTemplates]) -> None:
    """They may also encrypt with the queues' key; without these rights each dead event would block its group."""
    assert problems(resources(edited_stacks[BUNDLED]), EDITED[BUNDLED]) == []


def test_a_declaration_may_have_as_many_tags_as_aws_takes(edited_stacks: Mapping[str, StackTemplates]) -> None:
    """Fifty on a subnet, which carries three of CDK's own; no resource has more."""
    found = resources(edited_stacks["local, with 45 tags"])

    assert max((len(resource.tags), resource.kind) for resource in found) == (50, "AWS::EC2::Subnet")


def test_every_resource_that_takes_tags_says_whose_it_is(full: list[Resource]) -> None:
    """Application, environment and the declared tags, no more; the rest are CDK's own names of network parts.

    Also CDK's own function, which empties the default security group, and its role.
    """
    untagged = {resource.kind for resource in full if not resource.tags}

    for resource in full:
        own = {key: value for key, value in resource.tags.items() if key != "Name" and not key.startswith("aws-cdk:")}
        if resource.tags:
            assert own == {"application": "sluice", "environment": "full", "team": "orders", "cost-centre": "42"}
    assert untagged == {
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        *("AWS::Backup::BackupPlan", "AWS::Backup::BackupSelection", "AWS::Backup::BackupVault"),  # theirs is a map
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Policy",
        "AWS::KMS::Alias",
        "AWS::SNS::Subscription",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
        "Custom::VpcRestrictDefaultSG",
    }
