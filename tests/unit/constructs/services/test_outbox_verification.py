"""A task compares each outbox with its consumers every hour, and may only read."""

from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import task_settings
from tests.support.templates.documented_metrics import of_alarm
from tests.support.templates.environments import REDRIVEN
from tests.support.templates.resources import Resource, StackTemplates, of_kind, resources, statements

ALARM, RULE, DEFINITION = "AWS::CloudWatch::Alarm", "AWS::Events::Rule", "AWS::ECS::TaskDefinition"
TASK, TASK_ROLE = "sluice-redriven-outbox_verdict", "ConsumersVerificationTaskDefinitionTaskRole"
TOPIC = "arn:aws:sns:eu-central-1:111122223333:sluice-redriven-orders.fifo"


@pytest.fixture(scope="module")
def hourly(edited_stacks: Mapping[str, StackTemplates]) -> list[Resource]:
    return resources(edited_stacks[REDRIVEN])


def _container(found: list[Resource]) -> dict[str, Any]:
    containers = of_kind(found, DEFINITION)[TASK]["ContainerDefinitions"]
    (container,) = (each for each in containers if each["Name"] == "outbox_verdict")
    return dict(container)


def test_the_task_runs_every_hour(hourly: list[Resource]) -> None:
    (rule,) = (rule for name, rule in of_kind(hourly, RULE).items() if "Verification" in name)
    (target,) = rule["Targets"]

    assert rule["ScheduleExpression"] == "rate(1 hour)"
    assert target["EcsParameters"]["TaskDefinitionArn"] == f"Ref({TASK})"
    assert target["EcsParameters"]["LaunchType"] == "FARGATE"


def test_the_task_judges_what_is_older_than_the_longest_retention(hourly: list[Resource]) -> None:
    container = _container(hourly)

    assert container["Command"] == [
        *("python", "-m", "sluice", "outbox", "verify", "--old-only", "--in-flight", "345600s"),
    ]


def test_the_task_knows_every_consumer_of_its_topic(hourly: list[Resource]) -> None:
    variables = {each["Name"]: each["Value"] for each in _container(hourly)["Environment"]}

    read = task_settings.parse(variables[task_settings.VARIABLE])
    assert [consumer.name for consumer in read.consumers] == ["ledger", "night-batch"]
    assert variables["SLUICE_DATABASE_USER"] == "sluice_reader"
    assert variables["SLUICE_TOPIC_ARN"] == TOPIC


def test_the_task_may_only_read(hourly: list[Resource]) -> None:
    """It may receive no message: a receive would hide it, and count as an attempt."""
    allowed = statements(hourly, TASK_ROLE)

    actions = {action for item in allowed for action in _as_list(item["Action"])}
    assert actions == {
        "rds-db:connect",
        "sns:GetSubscriptionAttributes",
        "sns:ListSubscriptionsByTopic",
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
    }
    queues = {arn for item in allowed if "sqs:GetQueueUrl" in item["Action"] for arn in _as_list(item["Resource"])}
    assert len(queues) == 6


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("invalid", (1, "GreaterThanOrEqualToThreshold", 1, 90, "notBreaching")),
        ("unjudged", (0, "LessThanThreshold", 180, 180, "breaching")),
    ],
)
def test_operators_hear_of_a_loss_and_of_a_missing_verdict(
    hourly: list[Resource], condition: str, expected: tuple[Any, ...]
) -> None:
    """Threshold, comparison, breaching minutes of how many, and what a minute without a verdict counts as."""
    alarm = of_kind(hourly, ALARM)[f"sluice-redriven-verdict-{condition}"]

    names = ("Threshold", "ComparisonOperator", "DatapointsToAlarm", "EvaluationPeriods", "TreatMissingData")
    assert tuple(alarm[name] for name in names) == expected
    ((metric,), _) = of_alarm(alarm)
    assert metric.name == "OutboxBroken"
    assert metric.dimensions == (("Topic", "sluice-redriven-orders.fifo"),)


def test_without_verification_nothing_is_made(full: list[Resource]) -> None:
    assert not [each.name for each in full if "verdict" in each.name.lower() or "verification" in each.name.lower()]
