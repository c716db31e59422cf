"""A change of the declaration changes the resources it concerns, and no others."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import naming
from sluice.deployment.guard import bundled_schemas
from tests.support.templates.environments import BESIDE, BUNDLED, EDITED
from tests.support.templates.resources import StackTemplates

DASHBOARD = "AWS::CloudWatch::Dashboard"
type EditedStacks = Mapping[str, StackTemplates]


def _resources(stacks: StackTemplates) -> dict[str, Any]:
    """Return every resource by stack and logical id, but the dashboard, which shows all consumers."""
    return {
        f"{part}/{id_}": resource
        for part, stack in stacks.items()
        for id_, resource in stack.template["Resources"].items()
        if resource["Type"] != DASHBOARD
    }


def _exports(stacks: StackTemplates) -> set[str]:
    return {
        output["Export"]["Name"]
        for stack in stacks.values()
        for output in stack.template.get("Outputs", {}).values()
        if "Export" in output
    }


def test_one_more_consumer_changes_nothing_but_adds_its_own(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """The change adds three queues with policies, a subscription, a service and nine alarms."""
    before, after = _resources(stacks["local"]), _resources(edited_stacks["local, with search"])

    added = Counter(resource["Type"] for id_, resource in after.items() if id_ not in before)
    assert {id_: after.get(id_) for id_ in before} == before
    assert added == {
        "AWS::SQS::Queue": 3,
        "AWS::SQS::QueuePolicy": 3,
        "AWS::SNS::Subscription": 1,
        "AWS::ECS::Service": 1,
        "AWS::ECS::TaskDefinition": 1,
        "AWS::IAM::Role": 2,
        "AWS::IAM::Policy": 2,
        "AWS::Logs::LogGroup": 1,
        "AWS::ApplicationAutoScaling::ScalableTarget": 1,
        "AWS::ApplicationAutoScaling::ScalingPolicy": 1,
        "AWS::CloudWatch::Alarm": 10,
    }


def test_consumers_in_stacks_beside_change_nothing_in_those_that_are_there(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """The added resources are in stacks of their own, each deployed after its parts and after its own queues."""
    before, after = _resources(stacks["full"]), _resources(edited_stacks[BESIDE])
    parts = ["network", "database", "messaging", "consumers", "observability"]
    beside = [f"{part}-more" for part in parts[2:]]

    assert [id_ for id_ in before if after.get(id_) != before[id_]] == [
        "network/NetworkVpcSqs5F6BD5C0"
    ]  # redrive sends
    assert {id_.partition("/")[0] for id_ in after.keys() - before.keys()} == {*beside}
    assert sorted(edited_stacks[BESIDE]) == sorted([*parts, *beside]) == sorted(naming.stack_parts(EDITED[BESIDE]))
    assert {
        part: {*stack.dependencies} & {*beside} for part, stack in edited_stacks[BESIDE].items() if part in beside
    } == {
        "messaging-more": set(),
        "consumers-more": {"messaging-more"},
        "observability-more": set(),
    }
    assert all(stack.is_protected for stack in edited_stacks[BESIDE].values())


def test_a_consumer_removed_leaves_the_others_as_they_are(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """Resources are not numbered: the first consumer is removed, and only resources with its name go."""
    before, after = _resources(stacks["staging"]), _resources(edited_stacks["staging, without billing"])

    assert {id_: before.get(id_) for id_ in after} == after
    assert [id_ for id_ in before if id_ not in after and "billing" not in id_] == []


@pytest.mark.parametrize("name", ["local", "staging", "full"])
def test_no_stack_exports_what_belongs_to_one_consumer(stacks: Mapping[str, StackTemplates], name: str) -> None:
    """Stacks export only keys, network and database, which stay, so a consumer goes in one deployment."""
    exports = {
        export.partition(":")[2]
        for export in _exports(stacks[name])
        if not export.startswith((f"sluice-{name}-network:", f"sluice-{name}-database:"))
    }

    assert exports <= {
        "ExportsOutputFnGetAttFanoutKeysQueuesF4D6D558ArnD80FB796",
        "ExportsOutputFnGetAttFanoutKeysTopicB04F5DA2Arn441A9CE2",
    }


def test_the_relay_is_switched_off_in_one_deployment(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """The messaging stack is deployed first, so it has to keep each export that the relay's stack still imports."""
    assert _exports(edited_stacks["full, without a relay"]) == _exports(stacks["full"])


def test_a_consumers_number_changes_that_consumers_resources_only(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """Attempts and tasks of shipping: its queue, its workers, its bounds and the alarms that name them."""
    before, after = _resources(stacks["local"]), _resources(edited_stacks["local, shipping edited"])

    assert before.keys() == after.keys()
    assert sorted(id_.split("/")[1][:-8] for id_ in before if before[id_] != after[id_]) == [
        "Alarmsshippingdeadletters",
        "Alarmsshippingpinned",
        "ConsumersConsumershippingScalingTarget",
        "ConsumersConsumershippingWorkerTaskDefinition",
        "FanoutConsumershippingQueue",
    ]


def test_bundles_change_queues_and_tasks_and_let_workers_send_to_their_dlq(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """Receives are no attempts then, each task knows how many events a message may hold, and a worker sends dead ones.

    The rights are in test_stage.py, and that they pass the endpoint in test_endpoints.py.
    """
    before, after = _resources(stacks["prod"]), _resources(edited_stacks[BUNDLED])
    changed = [resource for id_, resource in after.items() if before.get(id_) != resource]

    assert before.keys() == after.keys()
    assert [
        resource["Properties"]["RedrivePolicy"]["maxReceiveCount"]
        for resource in changed
        if resource["Type"] == "AWS::SQS::Queue"
    ] == [1_000, 1_000, 1_000]
    assert Counter(resource["Type"] for resource in changed) == {
        "AWS::SQS::Queue": 3,
        "AWS::ECS::TaskDefinition": 4,  # with the relay's
        "AWS::IAM::Policy": 3,
        "AWS::EC2::VPCEndpoint": 1,
    }


def test_the_guard_of_deployments_knows_every_type(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """The guard takes each change of an unknown type for a replacement.

    Without an account it cannot read the type's schema.
    """
    every = [*stacks.values(), *edited_stacks.values()]
    kinds = {resource["Type"] for parts in every for resource in _resources(parts).values()} | {DASHBOARD}
    schemas = bundled_schemas()

    assert {kind for kind in kinds if schemas(kind) is None} <= {"AWS::CDK::Metadata", "Custom::VpcRestrictDefaultSG"}


def _may_replace(before: StackTemplates, after: StackTemplates) -> dict[str, set[str]]:
    """Return by type the changed properties for which CloudFormation replaces a resource, always or at times."""
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # noqa: PLC0415 (half a second, for every xdist worker)

    was = _resources(before)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for id_, resource in _resources(after).items():
        properties, old = resource.get("Properties", {}), was.get(id_, resource).get("Properties", {})
        changed = {name for name in {*properties, *old} if properties.get(name) != old.get(name)}
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource["Type"]).schema if changed else {}
        fixed = {*schema.get("createOnlyProperties", ()), *schema.get("conditionalCreateOnlyProperties", ())}
        if replacing := {name for name in changed if f"/properties/{name}" in fixed}:
            found[resource["Type"]] |= replacing
    return dict(found)


def test_choices_that_a_later_deployment_cannot_change_are_known(
    stacks: Mapping[str, StackTemplates], edited_stacks: EditedStacks
) -> None:
    """The schemas of CloudFormation, as cfn-lint has them, say which: docs/guides/first-deployment.md#what-to-know."""
    replaced = _may_replace(stacks["dev"], edited_stacks["dev, on spot and with keys"])

    assert replaced == {"AWS::ECS::Service": {"LaunchType"}, "AWS::RDS::DBCluster": {"KmsKeyId"}}
