"""References in a template are resolved to what they name, as far as that can be known before it is deployed."""

from typing import Any

import pytest

from sluice.rehearse.reading.cloudformation import name_in, stacks_of

QUEUE = {"Type": "AWS::SQS::Queue"}
STORED = {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/shop/queue"}
ZONES = {"Type": "CommaDelimitedList", "Default": "a, b"}
TEMPLATE: dict[str, Any] = {
    "Parameters": {"Stage": {"Default": "prod"}, "Count": {"Default": 2}, "Vpc": {}, "Stored": STORED, "Zones": ZONES},
    "Mappings": {"Sizes": {"prod": {"cpu": 512}}},
    "Conditions": {
        "IsProd": {"Fn::Equals": [{"Ref": "Stage"}, "prod"]},
        "IsTwo": {"Fn::Equals": [{"Ref": "Count"}, "2"]},
        "IsTest": {"Fn::Not": [{"Condition": "IsProd"}]},
        "Both": {"Fn::And": [{"Condition": "IsProd"}, {"Condition": "IsTest"}]},
        "Either": {"Fn::Or": [{"Condition": "IsProd"}, {"Condition": "IsTest"}]},
        "HasVpc": {"Fn::Equals": [{"Ref": "Vpc"}, "vpc-1"]},
    },
    "Resources": {
        "Jobs": QUEUE | {"Properties": {"QueueName": {"Fn::Sub": "${Stage}-jobs"}}},
        "Plain": QUEUE,
        "Service": {"Type": "AWS::ECS::Service", "Properties": {"ServiceName": "workers"}},
        "Policy": {"Type": "AWS::ApplicationAutoScaling::ScalingPolicy", "Properties": {"PolicyName": "backlog"}},
        "Table": {"Type": "Custom::Table"},
        "TestOnly": QUEUE | {"Condition": "IsTest"},
    },
}
JOBS_ARN = "arn:aws:sqs:<AWS::Region>:<AWS::AccountId>:prod-jobs"


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("text", "text"),
        (["a", {"b": {"Ref": "Stage"}}], ["a", {"b": "prod"}]),
        ({"Ref": "Count"}, 2),
        ({"Ref": "Vpc"}, "<Vpc>"),
        ({"Ref": "AWS::Region"}, "<AWS::Region>"),
        ({"Ref": "AWS::NoValue"}, None),
        ([1, {"Ref": "AWS::NoValue"}, 2], [1, 2]),
        ({"Ref": "Jobs"}, "https://sqs.<AWS::Region>.amazonaws.com/<AWS::AccountId>/prod-jobs"),
        (
            {"Ref": "Policy"},
            "arn:aws:autoscaling:<AWS::Region>:<AWS::AccountId>:scalingPolicy:template 1:Policy",
        ),  # several may have one name
        ({"Fn::GetAtt": ["Jobs", "Arn"]}, JOBS_ARN),
        ({"Fn::GetAtt": "Jobs.Arn"}, JOBS_ARN),
        ({"Fn::GetAtt": ["Jobs", "QueueName"]}, "prod-jobs"),
        ({"Fn::GetAtt": ["Plain", "QueueName"]}, "Plain"),
        ({"Fn::GetAtt": ["Service", "Name"]}, "workers"),
        ({"Fn::GetAtt": ["Table", "Arn"]}, "arn:aws:custom:<AWS::Region>:<AWS::AccountId>:Table"),
        ({"Fn::GetAtt": ["Table", "Stream"]}, "<Table.Stream>"),
        ({"Fn::GetAtt": ["Nowhere", "Arn"]}, "<Nowhere.Arn>"),
        (
            {"Fn::Sub": "${AWS::StackName}-${Stage}-${Jobs.QueueName}-${!Stage}"},
            "<AWS::StackName>-prod-prod-jobs-${Stage}",
        ),
        ({"Fn::Sub": ["${Stage}/${name}", {"name": {"Ref": "Count"}, "Stage": "mine"}]}, "mine/2"),
        ({"Fn::Join": ["/", ["a", {"Ref": "Stage"}]]}, "a/prod"),
        ({"Fn::Select": ["1", {"Fn::Split": ["/", "a/b/c"]}]}, "b"),
        ({"Fn::Select": [3, ["a"]]}, '<Fn::Select [3, ["a"]]>'),
        ({"Fn::FindInMap": ["Sizes", {"Ref": "Stage"}, "cpu"]}, 512),
        ({"Fn::FindInMap": ["Sizes", "test", "cpu"]}, '<Fn::FindInMap ["Sizes", "test", "cpu"]>'),
        ({"Fn::FindInMap": ["Sizes", "test", "cpu", {"DefaultValue": 5}]}, 5),
        (
            {"Fn::FindInMap": ["Sizes", {"Ref": "Stored"}, "cpu", {"DefaultValue": 5}]},
            '<Fn::FindInMap ["Sizes", "Stored", "cpu", {"DefaultValue": 5}]>',
        ),
        ({"Fn::ImportValue": "other"}, "<other>"),
        *(({"Fn::If": [name, 1, 0]}, 1) for name in ("IsProd", "IsTwo", "Either")),
        *(({"Fn::If": [name, 1, 0]}, 0) for name in ("IsTest", "Both")),
        ({"Fn::If": ["HasVpc", 1, 0]}, "<Fn::If HasVpc needs Vpc>"),
        ({"Fn::If": ["Nowhere", 1, 0]}, "<Fn::If Nowhere needs more>"),
        ("a-{{resolve:ssm:/shop/queue:1}}", "a-<resolve:ssm:/shop/queue:1>"),
        ({"Fn::Sub": "{{resolve:ssm:/${Stage}/queue}}"}, "<resolve:ssm:/prod/queue>"),
        ({"Ref": "Stored"}, "<Stored>"),
        ({"Ref": "Zones"}, ["a", "b"]),
    ],
)
def test_a_reference_is_resolved(written: object, resolved: object) -> None:
    """A value that only a deployment knows stays a name in angle brackets."""
    stack = next(stacks_of([TEMPLATE]).of_kind("AWS::ECS::Service")).stack

    assert stack.resolve(written) == resolved


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("jobs.fifo", "jobs.fifo"),
        ("arn:aws:sqs:eu-central-1:1:jobs.fifo", "jobs.fifo"),
        ("https://sqs.eu-central-1.amazonaws.com/1/jobs.fifo", "jobs.fifo"),
        ("service/shop/<AWS::StackName>-jobs", "<AWS::StackName>-jobs"),
        ("", ""),
    ],
)
def test_a_resources_name_is_found_in_its_arn_url_or_path(reference: str, name: str) -> None:
    assert name_in(reference) == name


def test_a_condition_leaves_out_its_resources() -> None:
    """The template has a third queue with a condition that is false."""
    assert [queue.id for queue in stacks_of([TEMPLATE]).of_kind("AWS::SQS::Queue")] == ["Jobs", "Plain"]


def test_a_name_in_two_templates_means_the_one_in_its_own() -> None:
    """Two stages of an app, synthesized into one folder, have the same logical ids."""
    first, second = ({"Resources": {"Plain": QUEUE, "Near": {"Type": "Custom::Near"}}} for _ in range(2))
    stacks = stacks_of([first, second])

    for near in stacks.of_kind("Custom::Near"):
        found = stacks.find("AWS::SQS::Queue", "Plain", near)
        assert found is not None
        assert found.stack is near.stack
    assert stacks.find("AWS::SQS::Queue", "Nowhere", near) is None


def test_an_import_is_resolved_where_it_is_exported() -> None:
    """The references of an exported value are those of the exporting template."""
    exporting: dict[str, Any] = TEMPLATE | {
        "Outputs": {"Queue": {"Value": {"Fn::GetAtt": ["Jobs", "Arn"]}, "Export": {"Name": {"Fn::Sub": "${Stage}-q"}}}}
    }
    importing = {"Resources": {"Jobs": {"Type": "Custom::Other"}}}

    (other,) = stacks_of([importing, exporting]).of_kind("Custom::Other")

    assert other.stack.resolve({"Fn::ImportValue": "prod-q"}) == JOBS_ARN
