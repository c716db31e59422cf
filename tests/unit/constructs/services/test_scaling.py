"""A service scales by the metrics, target and bounds of its policy, and wakes from zero by one task."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.declaration import Environment
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import EXTRA
from tests.support.templates.resources import Resource, ResourceProperties, of_kind
from tests.unit.constructs.expectations import CONSUMERS, account, of_queue, of_service

TARGET, POLICY = "AWS::ApplicationAutoScaling::ScalableTarget", "AWS::ApplicationAutoScaling::ScalingPolicy"
ALARM = "AWS::CloudWatch::Alarm"
TASKS = {"local": (1, 10), "dev": (0, 2), "staging": (1, 10), "prod": (2, 20)}
BACKLOG = (
    "IF((FILL(FILL(running, REPEAT), 0) > 0),"
    " ((FILL(visible, REPEAT) + FILL(inflight, REPEAT)) / FILL(FILL(running, REPEAT), 0)),"
    " (FILL(visible, REPEAT) + FILL(inflight, REPEAT)))"
)


def _scaling_expression(
    target: str, *, useful: str, floor: str, lanes: int = 4, busy: str = "3.2", idle_below: str = "2.88"
) -> str:
    """Return the expression; by default for 4 lanes and 1 s a message: 4 x 1 / (1 + 0.25), and nine tenths of it."""
    worth = f"((FILL(inflight, REPEAT) / (FILL(FILL(running, REPEAT), 0) * {busy})) * {useful})"
    idle = f"(FILL(inflight, REPEAT) < (FILL(FILL(running, REPEAT), 0) * {idle_below}))"
    clamped = f"IF(({idle} AND ({BACKLOG} > {target})), IF(({worth} < {target}), {worth}, {target}), {BACKLOG})"
    running = "FILL(FILL(running, REPEAT), 0)"
    demand = f"MAX([{clamped}, IF(({running} > 0), (({floor} * FILL(inflight, REPEAT)) / {running}), 0)])"
    receives, deletes = "FILL(received, REPEAT)", "FILL(deleted, REPEAT)"
    waits = f"(FILL(inflight, REPEAT) > ({running} * {lanes}))"
    fails = f"(({receives} > ({deletes} * 2)) OR ({waits} AND ({receives} >= ({deletes} * 1.5))))"
    return f"MIN([{demand}, IF({fails}, {target}, 1000000000)])"


def _tracking(found: list[Resource]) -> list[ResourceProperties]:
    policies = of_kind(found, POLICY).values()
    return [policy for policy in policies if policy["PolicyType"] == "TargetTrackingScaling"]


def _queries(policy: ResourceProperties) -> list[Any]:
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    queries: list[Any] = tracking["CustomizedMetricSpecification"]["Metrics"]
    return queries


def test_each_consumers_service_has_between_its_least_and_its_most_tasks(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Scaled by Application Auto Scaling's own role, on the very name the service has."""
    targets = of_kind(declared_resources, TARGET)

    prefix, (fewest, most) = f"sluice-{environment.name}", TASKS[environment.name]
    assert targets == {
        f"ConsumersConsumer{consumer}ScalingTarget": {
            "ServiceNamespace": "ecs",
            "ScalableDimension": "ecs:service:DesiredCount",
            "ResourceId": f"service/{prefix}/{prefix}-{consumer}",
            "MinCapacity": fewest,
            "MaxCapacity": most,
            "RoleARN": f"arn:aws:iam::{account(environment)}:role/aws-service-role/"
            "ecs.application-autoscaling.amazonaws.com/AWSServiceRoleForApplicationAutoScaling_ECSService",
        }
        for consumer in CONSUMERS
    }


def test_a_service_is_scaled_only_after_it_is_there(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """A scalable target for a service that does not exist is refused."""
    waits = {resource.name: resource.depends_on for resource in declared_resources if resource.kind == TARGET}

    assert waits == {
        f"ConsumersConsumer{consumer}ScalingTarget": (f"sluice-{environment.name}-{consumer}",)
        for consumer in CONSUMERS
    }


def test_target_tracking_follows_the_demand_per_task(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """The whole policy: in flight, running tasks, visible, progress; the expression alone gives data."""
    policies = _tracking(declared_resources)

    prefix = f"sluice-{environment.name}"
    is_dev = environment.name == "dev"
    expression = (
        _scaling_expression("4800", useful="6000", floor="1411.76")
        if is_dev
        else _scaling_expression("240", useful="300", floor="70.5882")
    )
    assert policies == [
        {
            "PolicyName": "backlog-per-task",
            "PolicyType": "TargetTrackingScaling",
            "ScalingTargetId": f"Ref(ConsumersConsumer{consumer}ScalingTarget)",
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": 4_800 if is_dev else 240,
                "ScaleOutCooldown": 300,
                "ScaleInCooldown": 300,
                "CustomizedMetricSpecification": {
                    "Metrics": [
                        of_queue("inflight", f"{prefix}-{consumer}.fifo"),
                        of_service(prefix, f"{prefix}-{consumer}"),
                        of_queue("visible", f"{prefix}-{consumer}.fifo"),
                        of_queue("received", f"{prefix}-{consumer}.fifo"),
                        of_queue("deleted", f"{prefix}-{consumer}.fifo"),
                        {"Id": "result", "Expression": expression, "ReturnData": True},
                    ]
                },
            },
        }
        for consumer in CONSUMERS
    ]


def test_the_target_follows_from_latency_lanes_and_processing_time(full: list[Resource]) -> None:
    """300 s x 8 lanes / 2.5 s are 960 messages a task; 1,800 s x 4 / 1 s are 7,200."""
    targets = {
        policy["ScalingTargetId"]: policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"]
        for policy in _tracking(full)
    }
    expressions = [_queries(policy)[-1]["Expression"] for policy in _tracking(full)]

    assert targets == {
        "Ref(ConsumersConsumerledgerScalingTarget)": 960,
        "Ref(ConsumersConsumernightbatchScalingTarget)": 7_200,
    }
    assert expressions == [
        _scaling_expression("960", useful="1200", floor="141.176", lanes=8, busy="7.27273", idle_below="6.54546"),
        _scaling_expression("7200", useful="9000", floor="2117.65"),
    ]


@pytest.mark.parametrize("environment", [*ENVIRONMENTS.values(), *EXTRA.values()], ids=[*ENVIRONMENTS, *EXTRA])
def test_the_deployed_expression_is_the_simulated_one(
    by_environment: Mapping[str, list[Resource]], environment: Environment
) -> None:
    """Word for word the expression `sluice.declaration.backlog` evaluates on time series."""
    expressions = [_queries(policy)[-1]["Expression"] for policy in _tracking(by_environment[environment.name])]

    assert expressions == [consumer.demand_per_task.text() for consumer in environment.consumers]


def test_every_expression_uses_exactly_the_metrics_it_is_given(
    by_environment: Mapping[str, list[Resource]],
) -> None:
    """CloudWatch refuses the first and pays for the second; ids are the lower-case words, functions are upper-case."""
    tracking = [_queries(policy) for found in by_environment.values() for policy in _tracking(found)]
    alarms = [
        alarm["Metrics"]
        for found in by_environment.values()
        for alarm in of_kind(found, ALARM).values()
        if "Metrics" in alarm
    ]

    for queries in (*tracking, *alarms):
        (expression,) = (query["Expression"] for query in queries if "Expression" in query)
        metrics = [query["Id"] for query in queries if "MetricStat" in query]
        assert sorted(metrics) == sorted(set(re.findall(r"\b[a-z]+\b", expression)))
    assert len(tracking) == 20
    assert len(alarms) == 20 * 3 - 1 + 4


def test_no_scaling_policy_uses_cpu(by_environment: Mapping[str, list[Resource]]) -> None:
    """A second policy would scale in tasks at work: one that tracks, and where it may sleep one that wakes."""
    policies = {
        name: sorted(policy["PolicyName"] for policy in of_kind(found, POLICY).values())
        for name, found in by_environment.items()
    }

    track, wake = "backlog-per-task", "wake-from-zero"
    assert policies == {
        "local": [track, track, track],
        "dev": [track, track, track, wake, wake, wake],
        "staging": [track, track, track],
        "prod": [track, track, track],
        "full": [track, track, wake],
        "hosted": [track, track],
        "plain": [track],
        "shared": [track, track, track],
    }


def test_a_service_without_tasks_is_woken_by_one_step_of_one_task(by_environment: Mapping[str, list[Resource]]) -> None:
    """Ten minutes until the next: the first task's own polls are reported by then."""
    policies = of_kind(by_environment["dev"], POLICY)

    assert policies["ConsumersConsumerbillingScalingWakeFromZero"] == {
        "PolicyName": "wake-from-zero",
        "PolicyType": "StepScaling",
        "ScalingTargetId": "Ref(ConsumersConsumerbillingScalingTarget)",
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "Cooldown": 900,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    }


def test_only_its_queue_wakes_a_service(by_environment: Mapping[str, list[Resource]]) -> None:
    """Messages wait and nobody holds or polls for any; a sleeping service reports nothing, nor does an idle queue."""
    alarms = of_kind(by_environment["dev"], ALARM)

    assert alarms["sluice-dev-billing-asleep"] == {
        "AlarmName": "sluice-dev-billing-asleep",
        "AlarmDescription": "Messages wait and no task polls: starts one. No operator is needed.",
        "Metrics": [
            {
                "Id": "expr_1",
                "Label": "work without workers",
                "Expression": "IF(((FILL(visible, REPEAT) > 0) AND (((FILL(inflight, REPEAT) < 1)"
                " AND (FILL(empty, REPEAT) < 1)) AND (FILL(received, REPEAT) < 1))), 1, 0)",
                "ReturnData": True,
            },
            *(
                of_queue(metric, "sluice-dev-billing.fifo", Period=60)
                for metric in ("visible", "inflight", "empty", "received")
            ),
        ],
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "DatapointsToAlarm": 1,
        "EvaluationPeriods": 1,
        "TreatMissingData": "notBreaching",
        "AlarmActions": ["Ref(ConsumersConsumerbillingScalingWakeFromZero)"],
    }
