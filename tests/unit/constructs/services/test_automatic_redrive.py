"""An alarm, a rule on it and a schedule bring dead letters back, by a task that may do no more."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import AutomaticRedrive
from tests.support.templates.documented_metrics import faults, of_alarm
from tests.support.templates.environments import REDRIVEN
from tests.support.templates.resources import Resource, StackTemplates, of_kind, resources, statements

ALARM, RULE, DEFINITION = "AWS::CloudWatch::Alarm", "AWS::Events::Rule", "AWS::ECS::TaskDefinition"
QUEUE, DLQ = (f"arn:aws:sqs:eu-central-1:111122223333:sluice-redriven-ledger{kind}.fifo" for kind in ("", "-dlq"))
COMMAND = ["python", "-m", "sluice", "dlq", "automatic-redrive"]
TASK = "sluice-redriven-ledger_redrive"
TASK_ROLE, EXECUTION_ROLE = (
    f"ConsumersConsumerledgerRedriveTaskDefinition{kind}Role" for kind in ("Task", "Execution")
)


@pytest.fixture(scope="module")
def redriven(edited_stacks: Mapping[str, StackTemplates]) -> list[Resource]:
    return resources(edited_stacks[REDRIVEN])


def _rules(found: list[Resource]) -> list[dict[str, Any]]:
    """Return the rule on the alarm, and the scheduled rule."""
    rules = [properties for name, properties in of_kind(found, RULE).items() if "ledger" in name]
    return sorted(rules, key=lambda rule: "ScheduleExpression" in rule)


def test_the_task_begins_when_dead_letters_stay_for_the_quiet_time(redriven: list[Resource]) -> None:
    """The alarm rings after ten minutes with at least one message each.

    The operators' alarm has rung at the first minute.
    """
    alarm = of_kind(redriven, ALARM)["sluice-redriven-ledger-redrive"]

    names = ("Threshold", "ComparisonOperator", "DatapointsToAlarm", "EvaluationPeriods", "Period", "TreatMissingData")
    assert [alarm[name] for name in names] == [1, "GreaterThanOrEqualToThreshold", 10, 10, 60, "ignore"]
    ((metric,), unknown_ids) = of_alarm(alarm)
    assert metric.name == "ApproximateNumberOfMessagesVisible"
    assert metric.dimensions == (("QueueName", "sluice-redriven-ledger-dlq.fifo"),)
    assert faults(metric, redriven) + unknown_ids == []
    assert "AlarmActions" not in alarm


def test_the_rule_waits_for_that_alarm_alone(redriven: list[Resource]) -> None:
    """The rule starts the task when the alarm changes to ALARM, and not when it changes back."""
    rule, _ = _rules(redriven)

    assert "ScheduleExpression" not in rule
    assert rule["EventPattern"] == {
        "source": ["aws.cloudwatch"],
        "detail-type": ["CloudWatch Alarm State Change"],
        "resources": ["Arn(sluice-redriven-ledger-redrive)"],
        "detail": {"state": {"value": ["ALARM"]}},
    }


def test_a_dlq_that_stays_filled_begins_runs_by_a_schedule(redriven: list[Resource]) -> None:
    """Every hour. Such a run brings nothing back that died less than the ten minutes of quiet time ago."""
    _, schedule = _rules(redriven)
    (target,) = schedule["Targets"]
    (container,) = json.loads(target["Input"])["containerOverrides"]

    assert "EventPattern" not in schedule
    assert schedule["ScheduleExpression"] == "rate(1 hour)"
    assert schedule["State"] == "ENABLED"
    assert container == {"name": "ledger_redrive", "command": [*COMMAND, "--older-than", "600s"]}


def test_a_quiet_time_over_an_hour_is_the_time_between_runs() -> None:
    assert [AutomaticRedrive(quiet_seconds=seconds).repeat_minutes for seconds in (60, 3_600, 5_400)] == [60, 60, 90]


@pytest.mark.parametrize("number", [0, 1], ids=["alarm", "schedule"])
def test_both_rules_run_one_task_where_the_workers_run(redriven: list[Resource], number: int) -> None:
    """The task runs on Fargate, in the private subnets and the tasks' security group, without a public address."""
    (target,) = _rules(redriven)[number]["Targets"]
    workers = of_kind(redriven, "AWS::ECS::Service")["sluice-redriven-ledger"]

    parameters = target["EcsParameters"]
    assert parameters["TaskDefinitionArn"] == f"Ref({TASK})"
    assert parameters["TaskCount"] == 1
    assert parameters["LaunchType"] == "FARGATE"
    assert (
        parameters["NetworkConfiguration"]["AwsVpcConfiguration"]
        == (workers["NetworkConfiguration"]["AwsvpcConfiguration"])
    )


def test_the_task_runs_the_command_in_the_workers_image(redriven: list[Resource]) -> None:
    """Consumer and settings are the workers'. In the database the task is a user of its own."""
    definitions = of_kind(redriven, DEFINITION)
    (task,) = (item for item in definitions[TASK]["ContainerDefinitions"] if item["Name"] == "ledger_redrive")
    (worker,) = (
        item for item in definitions["sluice-redriven-ledger"]["ContainerDefinitions"] if item["Name"] == "ledger"
    )

    assert task["Command"] == COMMAND
    assert task["Image"] == worker["Image"]
    differing = [pair for pair in zip(task["Environment"], worker["Environment"], strict=True) if pair[0] != pair[1]]
    user = "SLUICE_DATABASE_USER"
    assert differing == [({"Name": user, "Value": "sluice_redrive"}, {"Name": user, "Value": "sluice_worker"})]


def test_the_task_may_take_from_the_dlq_and_send_to_the_queue(redriven: list[Resource]) -> None:
    """Neither receive from the queue nor send to the DLQ."""
    assert [item for item in statements(redriven, TASK_ROLE) if "sqs:" in str(item["Action"])] == [
        {
            "Effect": "Allow",
            "Action": [
                *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
                "sqs:ReceiveMessage",
            ],
            "Resource": DLQ,
        },
        {"Effect": "Allow", "Action": ["sqs:GetQueueUrl", "sqs:SendMessage"], "Resource": QUEUE},
    ]


def test_the_rules_may_run_only_that_task_and_pass_its_roles(redriven: list[Resource]) -> None:
    """Their role may run no other task, and pass no other role."""
    target, same = (rule["Targets"][0] for rule in _rules(redriven))
    assert target["RoleArn"] == same["RoleArn"]
    found = statements(redriven, target["RoleArn"].removeprefix("Arn(").removesuffix(")"))

    allowed = {str(item["Action"]): item for item in found}
    assert sorted(allowed) == ["ecs:RunTask", "iam:PassRole"]
    assert allowed["ecs:RunTask"]["Resource"] == f"Ref({TASK})"
    assert allowed["ecs:RunTask"]["Condition"] == {"ArnEquals": {"ecs:cluster": "Arn(sluice-redriven)"}}
    assert allowed["iam:PassRole"]["Resource"] == [f"Arn({EXECUTION_ROLE})", f"Arn({TASK_ROLE})"]


def test_operators_hear_that_it_is_off(redriven: list[Resource]) -> None:
    """The alarm rings from the first minute in which a worker reports it, until a worker reports that redrive is on."""
    alarm = of_kind(redriven, ALARM)["sluice-redriven-ledger-redrive-off"]

    ((metric,), _) = of_alarm(alarm)
    assert metric.name == "InboxRedriveOff"
    assert metric.dimensions == (("Queue", "sluice-redriven-ledger.fifo"),)
    assert metric.statistic == "Maximum"
    assert alarm["Threshold"] == 1
    assert alarm["EvaluationPeriods"] == 1
    assert alarm["TreatMissingData"] == "ignore"
    assert alarm["AlarmActions"] == alarm["OKActions"] == ["Ref(sluice-redriven-operators)"]


def test_without_automatic_redrive_no_task_rule_or_alarm_is_made(full: list[Resource]) -> None:
    """Neither rule nor task nor alarm."""
    assert of_kind(full, RULE) == {}
    assert not [resource.name for resource in full if "redrive" in resource.name.lower()]
