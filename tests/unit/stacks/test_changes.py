"""What a change of the declaration changes, and what it leaves alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.declaration import Consumer, Environment
from tests.support.declaration import ENVIRONMENTS
from tests.unit.stacks import synthesis
from tests.unit.stacks.extra import FULL
from tests.unit.stacks.synthesis import Stacks

DASHBOARD = "AWS::CloudWatch::Dashboard"


def _resources(stacks: Stacks) -> dict[str, Any]:
    """Return every resource by stack and logical id, but the dashboard, which shows all consumers."""
    return {
        f"{part}/{id_}": resource
        for part, stack in stacks.items()
        for id_, resource in stack.template["Resources"].items()
        if resource["Type"] != DASHBOARD
    }


def _exports(stacks: Stacks) -> list[str]:
    return [
        output["Export"]["Name"]
        for stack in stacks.values()
        for output in stack.template.get("Outputs", {}).values()
        if "Export" in output
    ]


def test_synthesizing_again_gives_the_same_bytes(stacks: Mapping[str, Stacks], tmp_path: Path) -> None:
    """Order included: a diff shows what changed and nothing else."""
    again = synthesis.synthesize(FULL, tmp_path)

    assert {part: stack.file.read_bytes() for part, stack in again.items()} == {
        part: stack.file.read_bytes() for part, stack in stacks["full"].items()
    }


def test_one_more_consumer_changes_nothing_but_adds_its_own(stacks: Mapping[str, Stacks], tmp_path: Path) -> None:
    """Three queues and what belongs to them, a service, six alarms; every other resource stays as it is."""
    local = ENVIRONMENTS["local"]

    extended = synthesis.synthesize(replace(local, consumers=(*local.consumers, Consumer(name="search"))), tmp_path)

    before, after = _resources(stacks["local"]), _resources(extended)
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
        "AWS::CloudWatch::Alarm": 6,
    }


@pytest.mark.parametrize("name", ["billing", "audit"])
def test_a_consumer_removed_leaves_the_others_as_they_are(
    stacks: Mapping[str, Stacks], name: str, tmp_path: Path
) -> None:
    """Nothing is numbered: the first goes as well as the last, and only what has its name."""
    staging = ENVIRONMENTS["staging"]

    reduced = synthesis.synthesize(
        replace(staging, consumers=tuple(consumer for consumer in staging.consumers if consumer.name != name)), tmp_path
    )

    before, after = _resources(stacks["staging"]), _resources(reduced)
    assert {id_: before.get(id_) for id_ in after} == after
    assert [id_ for id_ in before if id_ not in after and name not in id_] == []


@pytest.mark.parametrize(
    "environment", [ENVIRONMENTS["local"], ENVIRONMENTS["staging"], FULL], ids=lambda value: value.name
)
def test_no_stack_exports_what_belongs_to_one_consumer(stacks: Mapping[str, Stacks], environment: Environment) -> None:
    """What another stack imports cannot be deleted: keys only, so a consumer goes in one go."""
    exports = {name.partition(":")[2] for name in _exports(stacks[environment.name])}

    assert exports <= {
        "ExportsOutputFnGetAttFanoutKeysQueuesF4D6D558ArnD80FB796",
        "ExportsOutputFnGetAttFanoutKeysTopicB04F5DA2Arn441A9CE2",
    }


def test_the_relay_is_switched_off_in_one_deployment(stacks: Mapping[str, Stacks], tmp_path: Path) -> None:
    """The messaging stack is deployed first: what the relay imports from it has to stay a while longer."""
    without_relay = synthesis.synthesize(replace(FULL, relay=False), tmp_path)

    assert set(_exports(without_relay)) == set(_exports(stacks["full"]))


def test_a_consumers_number_changes_that_consumers_resources_only(stacks: Mapping[str, Stacks], tmp_path: Path) -> None:
    """Attempts and tasks of shipping: its queue, its workers, its bounds and the alarms that name them."""
    local = ENVIRONMENTS["local"]
    changed = tuple(
        replace(consumer, max_attempts=6, max_tasks=11) if consumer.name == "shipping" else consumer
        for consumer in local.consumers
    )

    edited = synthesis.synthesize(replace(local, consumers=changed), tmp_path)

    before, after = _resources(stacks["local"]), _resources(edited)
    assert before.keys() == after.keys()
    assert sorted(id_.split("/")[1][:-8] for id_ in before if before[id_] != after[id_]) == [
        "Alarmsshippingdeadletters",
        "Alarmsshippingpinned",
        "ConsumersConsumershippingScalingTarget",
        "ConsumersConsumershippingWorkerTaskDefinition",
        "FanoutConsumershippingQueue",
    ]
