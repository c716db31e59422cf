"""Every property that concerns the scaling of a service: used, not simulated (and reported if it is set), or harmless.

A name includes all properties below it. A test compares these names with CloudFormation's schema in cfn-lint: a new
property is in none of the lists, and has to be decided upon.

The names are those of the schema in cfn-lint 1.58. AWS's page of each property was not read for this.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sluice.rehearse.reading.cloudformation import TemplateResource

TARGET, POLICY = "AWS::ApplicationAutoScaling::ScalableTarget", "AWS::ApplicationAutoScaling::ScalingPolicy"
ALARM, SERVICE, QUEUE = "AWS::CloudWatch::Alarm", "AWS::ECS::Service", "AWS::SQS::Queue"

_TRACKING, _STEPS = "TargetTrackingScalingPolicyConfiguration", "StepScalingPolicyConfiguration"
_OWN = f"{_TRACKING}.CustomizedMetricSpecification"
USED: Mapping[str, Sequence[str]] = {
    TARGET: (
        *("MaxCapacity", "MinCapacity", "ResourceId", "ScalableDimension"),
        *("SuspendedState.DynamicScalingInSuspended", "SuspendedState.DynamicScalingOutSuspended"),
    ),
    POLICY: (
        *("PolicyName", "PolicyType", "ResourceId", "ScalableDimension", "ScalingTargetId"),
        *(f"{_STEPS}.{name}" for name in ("AdjustmentType", "Cooldown", "MinAdjustmentMagnitude", "StepAdjustments")),
        *(f"{_TRACKING}.{name}" for name in ("DisableScaleIn", "ScaleInCooldown", "ScaleOutCooldown", "TargetValue")),
        f"{_TRACKING}.PredefinedMetricSpecification.PredefinedMetricType",
        *(f"{_OWN}.{name}" for name in ("Dimensions", "MetricName", "Namespace", "Statistic")),
        *(f"{_OWN}.Metrics.{name}" for name in ("Expression", "Id", "ReturnData")),
        *(f"{_OWN}.Metrics.MetricStat.{name}" for name in ("Metric", "Stat")),
    ),
    ALARM: (
        *("ActionsEnabled", "AlarmActions", "InsufficientDataActions", "OKActions", "AlarmName"),
        *("ComparisonOperator", "Threshold", "DatapointsToAlarm", "EvaluationPeriods", "TreatMissingData"),
        *("Dimensions", "MetricName", "Namespace", "Period", "Statistic", "ExtendedStatistic"),
        *(f"Metrics.{name}" for name in ("Expression", "Id", "ReturnData")),
        *(f"Metrics.MetricStat.{name}" for name in ("Metric", "Period", "Stat")),
    ),
    SERVICE: ("Cluster", "DesiredCount", "ServiceName", "TaskDefinition"),
    QUEUE: ("FifoQueue", "QueueName", "RedrivePolicy", "VisibilityTimeout"),
}
_UNIT = "data points of other units are left out, and the metrics here have those that AWS reports"
ROOM = "whether there is room for a task, and what it costs there; here each starts after --start-seconds, on Fargate"
NOT_SIMULATED: Mapping[str, Mapping[str, str]] = {
    TARGET: {"ScheduledActions": "capacity that is set by the clock"},
    POLICY: {
        f"{_OWN}.Unit": _UNIT,
        f"{_OWN}.Metrics.MetricStat.Unit": _UNIT,
        "PredictiveScalingPolicyConfiguration": "capacity that is set by a forecast",
    },
    ALARM: {
        "Unit": _UNIT,
        "Metrics.MetricStat.Unit": _UNIT,
        "Metrics.AccountId": "a metric of another account",
        "Metrics.Period": "a period of the expression's own",
        "EvaluateLowSampleCountPercentile": "percentiles of few samples",
        "EvaluationCriteria": "an alarm on a query",
        "EvaluationInterval": "an alarm that is evaluated at times of its own",
        "EvaluationWindow": "an alarm that is evaluated on a window of the clock",
        "ThresholdMetricId": "a threshold that is learned",
        "WarmUpConfiguration": "an alarm that waits for its first data points",
    },
    SERVICE: {
        "CapacityProviderStrategy.CapacityProvider": ROOM,
        "LaunchType": ROOM,
        "LoadBalancers": "the time in which a load balancer lets go of a task that is stopped",
        "PlacementConstraints": ROOM,
        "PlacementStrategies": ROOM,
        "SchedulingStrategy": "a task on each instance, which nothing scales",
    },
    QUEUE: {
        "DelaySeconds": "messages that are hidden at first",
        "MessageRetentionPeriod": "messages that are lost as they are too old",
    },
}
"""By type of resource: each property that is not simulated, with a description for people."""
_AS_SIMULATED: Mapping[str, frozenset[str]] = {
    "CapacityProviderStrategy.CapacityProvider": frozenset({"FARGATE"}),
    "LaunchType": frozenset({"FARGATE"}),
    "SchedulingStrategy": frozenset({"REPLICA"}),
    "DelaySeconds": frozenset({"0"}),
}
"""Values that are simulated, or do nothing."""
_DAY_SECONDS = 86_400
_NAMES = "it names, describes or bills"
_IDENTIFIES = "the dimension says the same"
_DEPLOYS = "nobody deploys while it is rehearsed"
_NETWORK = "how a task is reached, seen or stored"
_SECURES = "who may do something, or what is encrypted"
HARMLESS: Mapping[str, Mapping[str, str]] = {
    TARGET: {
        "RoleARN": _SECURES,
        "ServiceNamespace": _IDENTIFIES,
        "SuspendedState.ScheduledScalingSuspended": "what is scheduled is named in any case",
        "Tags": _NAMES,
    },
    POLICY: {
        "ServiceNamespace": _IDENTIFIES,
        f"{_STEPS}.MetricAggregationType": "a period has one value, which is all of these",
        f"{_OWN}.Metrics.Label": _NAMES,
        f"{_TRACKING}.PredefinedMetricSpecification.ResourceLabel": "of a load balancer's metric, which is refused",
    },
    ALARM: {"ActionConfiguration": _NAMES, "AlarmDescription": _NAMES, "Metrics.Label": _NAMES, "Tags": _NAMES},
    SERVICE: {
        **dict.fromkeys(("AvailabilityZoneRebalancing", "DeploymentConfiguration", "DeploymentController"), _DEPLOYS),
        **dict.fromkeys(("ForceNewDeployment", "HealthCheckGracePeriodSeconds", "PlatformVersion"), _DEPLOYS),
        **dict.fromkeys(("EnableExecuteCommand", "Monitoring", "NetworkConfiguration", "ServiceRegistries"), _NETWORK),
        **dict.fromkeys(("ServiceConnectConfiguration", "VolumeConfigurations", "VpcLatticeConfigurations"), _NETWORK),
        **dict.fromkeys(("EnableECSManagedTags", "PropagateTags", "Tags"), _NAMES),
        **dict.fromkeys(
            ("CapacityProviderStrategy.Base", "CapacityProviderStrategy.Weight"), "it shares out the tasks"
        ),
        "GatewayConnectors": _NETWORK,
        "Role": _SECURES,
    },
    QUEUE: {
        **dict.fromkeys(("ContentBasedDeduplication", "DeduplicationScope"), "no message is sent twice"),
        **dict.fromkeys(("KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "SqsManagedSseEnabled"), _SECURES),
        "FifoThroughputLimit": "throttled calls are simulated nowhere",
        "MaximumMessageSize": "messages have no size",
        "ReceiveMessageWaitTimeSeconds": "an idle lane polls for 20 s, as a worker says itself",
        "RedriveAllowPolicy": _SECURES,
        "Tags": _NAMES,
    },
}
"""By type of resource: property -> why it changes nothing."""


def sentences(resources: Sequence[TemplateResource]) -> Iterator[str]:
    """Yield the end of the sentence "not simulated: …" for each property that is set and not simulated."""
    for kind, properties in NOT_SIMULATED.items():
        alike = [resource for resource in resources if resource.kind == kind]
        for path, what in properties.items():
            setting = dict.fromkeys(resource.id for resource in alike if _is_ignored(resource, path))
            if setting:
                yield f"{path} of {kind} {', '.join(setting)} ({what})"


def _is_ignored(resource: TemplateResource, path: str) -> bool:
    """Return whether a property has a value that the rehearsal does not simulate; False without a value."""
    return not all(_is_simulated(path, value) for value in _values_of(resource.properties.values, path.split(".")))


def _is_simulated(path: str, value: Any) -> bool:
    """Return whether the rehearsal does with a property's value what AWS does, or the value does nothing."""
    if path == "MessageRetentionPeriod":  # no traffic lasts longer than a day
        return str(value).isdigit() and int(value) >= _DAY_SECONDS
    return value in ([], {}) or str(value) in _AS_SIMULATED.get(path, ())


def _values_of(values: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield every value at a path; for a list, the values of each of its items."""
    if isinstance(values, list) and path:
        for value in values:
            yield from _values_of(value, path)
    elif not path:
        yield values
    elif isinstance(values, Mapping) and values.get(path[0]) is not None:
        yield from _values_of(values[path[0]], path[1:])
