"""The usual ways to scale the service of a queue, to compare with the deployed way, on the same queue and bounds."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sluice.declaration import backlog
from sluice.declaration.metric_math import Term
from sluice.limits import MAPPING_INVOCATIONS_FIRST, MAPPING_INVOCATIONS_MAX
from sluice.rehearse.declared_service import metric_expression
from sluice.rehearse.model.policies import (
    MappingScaling,
    MetricExpression,
    MetricSource,
    ScaledService,
    ScalingPolicy,
    ScalingStep,
    SimulatedAlarm,
    StepScaling,
    TargetTracking,
)
from sluice.rehearse.model.scenarios import per_second
from sluice.rehearse.model.simulation import TaskWork
from sluice.rehearse.model.traffic import Traffic
from sluice.rehearse.reading.expressions import parse

OWN_METRICS: Mapping[tuple[str, str], Term] = {
    ("Lambda", "BacklogPerTask"): parse("visible / IF(running > 0, running, 1)")
}
"""The metric that the alternative's Lambda publishes, in the form of `simulate`'s custom metrics."""

_CPU_PERCENT = 50.0  # this and the steps below as in QueueProcessingFargateService of aws_cdk.aws_ecs_patterns
_UP_STEPS = (ScalingStep(lower=0, upper=400, adjustment=1), ScalingStep(lower=400, upper=None, adjustment=5))
_UP_THRESHOLD = 100


def alternatives(service: ScaledService, tasks: TaskWork, traffic: Traffic) -> Mapping[str, ScaledService]:
    """Return the service scaled in each usual way, by the name of the way.

    Args:
        service: the deployed service; its bounds, queue and protection stay.
        tasks: how its tasks work.
        traffic: the traffic; the fixed number of tasks is the one that its busiest minute needs.
    """
    needed_tasks = min(service.max_tasks, max(1, math.ceil(traffic.peak_per_second / per_second(tasks, 1))))
    backlog_per_task = metric_expression(
        backlog.backlog_per_task(), queue=service.queue_dimensions, service=service.dimensions
    )
    published, cpu = (
        MetricExpression.alone(MetricSource(namespace=namespace, name=name, dimensions=dimensions))
        for namespace, name, dimensions in (
            ("Lambda", "BacklogPerTask", {}),
            ("AWS/ECS", "CPUUtilization", service.dimensions),
        )
    )
    target = tasks.target_backlog
    policies: Mapping[str, tuple[ScalingPolicy, ...]] = {
        "backlog per task, without the clamp": (
            TargetTracking(name="backlog", watched=backlog_per_task, target=target),
        ),
        "backlog published by a Lambda": (TargetTracking(name="lambda", watched=published, target=target),),
        "steps on visible messages": _step_policies(service),
        "processor target": (TargetTracking(name="cpu", watched=cpu, target=_CPU_PERCENT),),
    }
    tasks_alone = replace(service, mapping=None)
    return {name: replace(tasks_alone, policies=of) for name, of in policies.items()} | {
        f"{needed_tasks} tasks, always": replace(
            tasks_alone, min_tasks=needed_tasks, max_tasks=needed_tasks, policies=()
        ),
        "a Lambda function's mapping": _with_mapping(service, tasks),
    }


def _with_mapping(service: ScaledService, tasks: TaskWork) -> ScaledService:
    """Return a function with as much concurrency as all tasks have lanes, behind an event source mapping."""
    lanes = service.max_tasks * (tasks.lanes if service.mapping is None else 1)
    most = min(MAPPING_INVOCATIONS_MAX, max(MAPPING_INVOCATIONS_FIRST, lanes))
    mapping = MappingScaling(name="mapping")
    return replace(service, min_tasks=mapping.first, max_tasks=most, policies=(), mapping=mapping, is_protected=True)


def _step_policies(service: ScaledService) -> tuple[StepScaling, StepScaling]:
    """Return steps up from a hundred visible messages, and one down when none is left."""
    name, _ = backlog.OF_QUEUE[backlog.VISIBLE]
    visible = MetricExpression.alone(MetricSource(namespace="AWS/SQS", name=name, dimensions=service.queue_dimensions))
    up = SimulatedAlarm(name="up", watched=visible, comparison="GreaterThanOrEqualToThreshold", threshold=_UP_THRESHOLD)
    down = replace(up, name="down", comparison="LessThanOrEqualToThreshold", threshold=0)
    return (
        StepScaling(name="up", alarm=up, adjustment_type="ChangeInCapacity", steps=_UP_STEPS, cooldown_seconds=300),
        StepScaling(
            name="down",
            alarm=down,
            adjustment_type="ChangeInCapacity",
            steps=(ScalingStep(lower=None, upper=None, adjustment=-1),),
            cooldown_seconds=300,
        ),
    )
