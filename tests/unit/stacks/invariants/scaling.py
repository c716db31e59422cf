"""How services are scaled: on what is simulated, within their bounds, and woken where they may sleep."""

from collections.abc import Iterator

from sluice import naming
from sluice.declaration import Consumer, Environment
from tests.unit.stacks.invariants.found import ALARM, Found, metric_math, of_kind, properties
from tests.unit.stacks.synthesis import Properties

SCALABLE, SCALING = "AWS::ApplicationAutoScaling::ScalableTarget", "AWS::ApplicationAutoScaling::ScalingPolicy"


def _scaling(found: Found, environment: Environment) -> Iterator[str]:
    targets = {one.properties["ResourceId"]: one for one in of_kind(found, SCALABLE)}
    for consumer in environment.consumers:
        service = naming.service_name(environment, consumer.name)
        target = targets.get(f"service/{naming.cluster_name(environment)}/{service}")
        if target is None:
            yield f"{service} is not scaled"
            continue
        if [target.properties[key] for key in ("MinCapacity", "MaxCapacity")] != [
            consumer.min_tasks,
            consumer.max_tasks,
        ]:
            yield f"{service} is not scaled within its bounds"
        policies = [
            one.properties
            for one in of_kind(found, SCALING)
            if one.properties["ScalingTargetId"] == f"Ref({target.name})"
        ]
        expected = ["TargetTrackingScaling", *(["StepScaling"] if consumer.min_tasks == 0 else [])]
        if [one["PolicyType"] for one in policies] != expected:
            yield f"{service} has policies {[one['PolicyType'] for one in policies]}"
        yield from _tracking(consumer, policies[0]["TargetTrackingScalingPolicyConfiguration"])
        yield from _waking(found, environment, consumer)


def _tracking(consumer: Consumer, tracking: Properties) -> Iterator[str]:
    if "CustomizedMetricSpecification" not in tracking:
        yield f"{consumer.name} is not scaled on its backlog"
        return
    queries = tracking["CustomizedMetricSpecification"]["Metrics"]
    expressions = [query["Expression"] for query in queries if "Expression" in query]
    if expressions != [consumer.clamped_backlog_per_task.text()] or tracking["TargetValue"] != consumer.target_backlog:
        yield f"{consumer.name} is not scaled on what is simulated"
    yield from metric_math(f"{consumer.name}'s scaling", queries)


def _waking(found: Found, environment: Environment, consumer: Consumer) -> Iterator[str]:
    alarm = properties(found, ALARM, naming.alarm_name(environment, consumer.name, "asleep"))
    if consumer.min_tasks == 0 and "WakeFromZero" not in str(alarm.get("AlarmActions")):
        yield f"nothing wakes {consumer.name}"


CHECKS = (_scaling,)
