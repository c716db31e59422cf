"""Every property that CloudFormation has of what scales a service is used, named, or harmless with a reason."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.errors import ConfigError
from sluice.rehearse.reading.cloudformation import load_template
from sluice.rehearse.reading.properties import ALARM, HARMLESS, NOT_SIMULATED, POLICY, QUEUE, SERVICE, TARGET, USED
from sluice.rehearse.reading.template import read_services
from tests.support.project import PROJECT

BY_HAND = PROJECT / "tests/support/templates/scaling"


def _schema(kind: str) -> dict[str, Any]:
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # noqa: PLC0415 (seconds, for every xdist worker)

    schema: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
    return schema


def _leaves(schema: dict[str, Any], part: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every property that has none below it."""
    found = part
    while "$ref" in found or "items" in found:
        found = schema["definitions"][found["$ref"].rsplit("/")[-1]] if "$ref" in found else found["items"]
    for name, below in found.get("properties", {}).items():
        yield from _leaves(schema, below, f"{path}.{name}" if path else name)
    if not found.get("properties"):
        yield path


def _covers(entry: str, path: str) -> bool:
    """Return whether an entry of the table is about this property."""
    return path == entry or path.startswith(f"{entry}.")


@pytest.mark.parametrize("kind", [TARGET, POLICY, ALARM, SERVICE, QUEUE])
def test_each_property_of_the_schema_is_decided_upon_once(kind: str) -> None:
    """The table has no property that the schema lacks. Properties that only AWS sets are left out."""
    schema = _schema(kind)
    read_only = {path.rsplit("/")[-1] for path in schema["readOnlyProperties"]}
    leaves = [path for path in _leaves(schema, schema) if path not in read_only]
    entries = [*USED[kind], *NOT_SIMULATED[kind], *HARMLESS[kind]]

    assert {path: [each for each in entries if _covers(each, path)] for path in leaves} == {
        path: [next((each for each in entries if _covers(each, path)), "undecided")] for path in leaves
    }
    assert [each for each in entries if not any(_covers(each, path) for path in leaves)] == []


def _template_with(kind: str, **properties: object) -> Any:
    (template,) = load_template(BY_HAND / "visible_steps.yaml").values()
    template = copy.deepcopy(template)
    resources: Any = template["Resources"]
    for resource in resources.values():
        if resource["Type"] == kind:
            resource["Properties"] |= properties
    return template


@pytest.mark.parametrize(
    ("kind", "properties", "sentence"),
    [
        (TARGET, {"ScheduledActions": [{"Schedule": "cron(0 8 * * ? *)"}]}, "ScheduledActions of AWS::ApplicationAuto"),
        (ALARM, {"Unit": "Bytes"}, "Unit of AWS::CloudWatch::Alarm ManyVisible, NoneVisible (data points of"),
        (SERVICE, {"LaunchType": "EC2"}, "LaunchType of AWS::ECS::Service Workers (whether there is room for a task"),
        (QUEUE, {"DelaySeconds": 60}, "DelaySeconds of AWS::SQS::Queue Jobs (messages that are hidden at first)"),
        (QUEUE, {"MessageRetentionPeriod": 600}, "MessageRetentionPeriod of AWS::SQS::Queue Jobs (messages that are l"),
        (
            QUEUE,
            {"RedrivePolicy": {"maxReceiveCount": 1_000}},
            "attempts that are counted elsewhere than by the receives",
        ),
    ],
)
def test_a_property_that_is_not_simulated_is_named_where_it_is_set(
    kind: str, properties: dict[str, object], sentence: str
) -> None:
    """The rehearsal would be wrong without a word otherwise."""
    (service,) = read_services(_template_with(kind, **properties))

    assert any(named.startswith(sentence) for named in service.not_simulated)


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        (TARGET, {"ScheduledActions": []}),
        (SERVICE, {"LaunchType": "FARGATE", "SchedulingStrategy": "REPLICA"}),
        (QUEUE, {"DelaySeconds": 0, "MessageRetentionPeriod": 1_209_600}),
        (QUEUE, {"RedrivePolicy": {"maxReceiveCount": 999}}),
    ],
)
def test_a_value_that_changes_nothing_is_not_named(kind: str, properties: dict[str, object]) -> None:
    """The value is AWS's default, or does not bear on scaling."""
    (service,) = read_services(_template_with(kind, **properties))

    assert service.not_simulated == ()


@pytest.mark.parametrize("name", ["DynamicScalingInSuspended", "DynamicScalingOutSuspended"])
def test_scaling_that_is_suspended_is_refused(name: str) -> None:
    suspended = _template_with(TARGET, SuspendedState={name: True, "ScheduledScalingSuspended": True})

    with pytest.raises(ConfigError, match=f"SuspendedState.{name} is True; allowed: false, as nothing scales"):
        read_services(suspended)

    assert (
        len(read_services(_template_with(TARGET, SuspendedState={name: False, "ScheduledScalingSuspended": True}))) == 1
    )
