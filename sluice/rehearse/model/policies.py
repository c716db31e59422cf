"""A scaled service as values: its bounds, its policies and their alarms, its queue, and its tasks.

`rehearse.reading.template` reads it out of a CloudFormation template; tests also make it by hand. `control_loop`
carries out its policies as AWS does. Names are those of CloudFormation, in Python's spelling.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sluice.declaration.metric_math import Metric, Term
from sluice.limits import MAPPING_INVOCATIONS_FIRST, MAPPING_INVOCATIONS_PER_MINUTE

STATISTICS = r"Average|Sum|Minimum|Maximum|SampleCount|p\d+(\.\d+)?"
"""Those of which a longer period's value is computed."""
_SINGLE = "metric"
"""The id of a metric without an expression."""

type TreatMissingData = Literal["missing", "breaching", "notBreaching", "ignore"]
type ComparisonOperator = Literal[
    "GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold", "LessThanOrEqualToThreshold"
]
type AdjustmentType = Literal["ChangeInCapacity", "PercentChangeInCapacity", "ExactCapacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSource:
    """A metric in a template.

    Args:
        namespace: such as `AWS/SQS`.
        name: such as `ApproximateNumberOfMessagesVisible`.
        dimensions: name to value; for a queue of the same template the queue's name, or its logical id if it has no
            name. A value that only the deployment has is in angle brackets: `<AWS::StackName>-jobs.fifo`.
        statistic: `Average`, `Sum`, `Minimum`, `Maximum`, `SampleCount`, or an extended one such as `p90`.
        period_seconds: length of one data point.
    """

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    statistic: str = "Average"
    period_seconds: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricExpression:
    """The expression that a policy or an alarm watches: metric math or a single metric, and the metrics in it.

    Args:
        term: the expression, with other expressions in place of their ids; a single metric is a `Metric`.
        metrics: id in the expression to the metric; a single metric without an id is `metric`.
        text: the text of the expression in the template; for a single metric its id.
    """

    term: Term
    metrics: Mapping[str, MetricSource]
    text: str

    @classmethod
    def alone(cls, metric: MetricSource) -> "MetricExpression":
        """Return the expression of a single metric."""
        return cls(term=Metric(_SINGLE), metrics={_SINGLE: metric}, text=_SINGLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTracking:
    """A target tracking policy.

    Args:
        name: the policy's name, or its logical id.
        watched: the expression that is held at the target.
        target: TargetValue.
        scale_out_cooldown_seconds: 300 if the template has none, as for ECS services on AWS.
        scale_in_cooldown_seconds: 300 if the template has none.
        disables_scale_in: DisableScaleIn.
    """

    name: str
    watched: MetricExpression
    target: float
    scale_out_cooldown_seconds: int = 300
    scale_in_cooldown_seconds: int = 300
    disables_scale_in: bool = False

    def with_watched(self, watched: MetricExpression) -> "TargetTracking":
        """Return the policy with another watched expression."""
        return replace(self, watched=watched)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAlarm:
    """An alarm that runs a step policy.

    Args:
        name: its name, or its logical id.
        watched: the expression that it watches.
        comparison: ComparisonOperator.
        threshold: Threshold.
        period_seconds: length of one data point.
        evaluation_periods: how many data points are evaluated.
        datapoints_to_alarm: how many of them have to breach; all if the template has none.
        missing_data: TreatMissingData.
    """

    name: str
    watched: MetricExpression
    comparison: ComparisonOperator
    threshold: float
    period_seconds: int = 60
    evaluation_periods: int = 1
    datapoints_to_alarm: int = 1
    missing_data: TreatMissingData = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStep:
    """One step adjustment, from lower to upper, both measured from the alarm's threshold; None is without bound."""

    lower: float | None
    upper: float | None
    adjustment: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScaling:
    """A step scaling policy with the alarm that runs it.

    Args:
        name: the policy's name, or its logical id.
        alarm: the alarm whose action it is.
        adjustment_type: whether steps add tasks, add per cent, or set a number.
        steps: by the distance from the alarm's threshold.
        cooldown_seconds: 300 where the template gives none (CDK's documentation says none; CloudFormation's and the
            API's say 300:
            https://docs.aws.amazon.com/autoscaling/application/APIReference/API_StepScalingPolicyConfiguration.html,
            read 2026-11-23).
        min_adjustment_magnitude: the least change of a per cent step.
    """

    name: str
    alarm: SimulatedAlarm
    adjustment_type: AdjustmentType
    steps: tuple[ScalingStep, ...]
    cooldown_seconds: int = 300
    min_adjustment_magnitude: int = 0

    @property
    def watched(self) -> MetricExpression:
        """Return the expression that its alarm watches."""
        return self.alarm.watched

    def with_watched(self, watched: MetricExpression) -> "StepScaling":
        """Return the policy with another watched expression."""
        return replace(self, alarm=replace(self.alarm, watched=watched))


WAITING = MetricSource(namespace="Pollers", name="MessagesWaiting", dimensions={})
"""Whether messages wait, as those who poll know it: no metric of CloudWatch, and never late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingScaling:
    """An event source mapping of Lambda: how many invocations it makes at once of what its pollers receive.

    It begins with a few, makes more a minute while messages are left that they could receive, and fewer when none are.
    AWS: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (read 2026-11-27).

    Args:
        name: its logical id, or what it is called.
        first: invocations at once when messages come, and at least.
        more_per_minute: how many more it makes a minute, at most.
    """

    name: str
    first: int = MAPPING_INVOCATIONS_FIRST
    more_per_minute: int = MAPPING_INVOCATIONS_PER_MINUTE


type ScalingPolicy = TargetTracking | StepScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The queue that a service's tasks receive from.

    Args:
        name: its QueueName, or its logical id if it has none; the same as in the dimensions of `MetricSource`.
        is_fifo: whether a group is worked on by one task at a time.
        visibility_timeout_seconds: how long a message of a killed task stays hidden.
        max_receive_count: receives before a message is dead-lettered; None means never.
        is_in_template: whether a template has the queue; otherwise these are the defaults of SQS.
    """

    name: str
    is_fifo: bool = True
    visibility_timeout_seconds: int = 30
    max_receive_count: int | None = None
    is_in_template: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledService:
    """An ECS service that scales, or a Lambda function behind an event source mapping: its tasks are invocations.

    Args:
        name: its ServiceName, or its logical id.
        min_tasks: MinCapacity.
        max_tasks: MaxCapacity.
        policies: every policy on its desired count.
        queue: the queue its tasks may receive from; None where the template does not tell.
        queue_candidates: the names of those that it may be.
        dimensions: those of its own metrics: ClusterName and ServiceName.
        has_insights: whether its cluster has Container Insights; without, nobody reports its running tasks.
        desired_count: DesiredCount of the service; None where the template does not set it.
        assumed: what is taken for granted, as the template does not tell it, as sentences.
        not_simulated: what the template sets and is not simulated, as sentences.
        stop_timeout_seconds: how long a task may finish after SIGTERM; ECS's default is 30.
        is_protected: whether its tasks may protect themselves from scale-in.
        may_be_protected: whether they may, for all that the templates tell.
        can_extend: whether its tasks may put off the end of a visibility timeout, for all that is known.
        cpu_units: CPU units of a task; 1024 are one vCPU. None where the template does not tell.
        memory_mib: memory of a task; None likewise.
        mapping: what scales a Lambda function, which has no policies, and is paid for while it works; None of tasks.
        is_on_arm: whether that function runs on ARM.
    """

    name: str
    min_tasks: int
    max_tasks: int
    policies: tuple[ScalingPolicy, ...]
    queue: QueueSettings | None = None
    queue_candidates: tuple[str, ...] = field(default=(), compare=False)
    dimensions: Mapping[str, str] = field(default_factory=dict)
    has_insights: bool = True
    desired_count: int | None = None
    assumed: tuple[str, ...] = field(default=(), compare=False)
    not_simulated: tuple[str, ...] = field(default=(), compare=False)
    stop_timeout_seconds: int = 30
    is_protected: bool = False
    may_be_protected: bool = False
    can_extend: bool = True
    cpu_units: int | None = 256
    memory_mib: int | None = 512
    mapping: MappingScaling | None = None
    is_on_arm: bool = False

    @property
    def scaling_text(self) -> str:
        """Return in a few words between which bounds it scales, and by what."""
        bounds = f"{self.min_tasks:,} to {self.max_tasks:,}"
        if self.mapping is not None:
            return f"{bounds} invocations at once, mapping: {self.mapping.name}"
        return f"{bounds} tasks, policies: {', '.join(policy.name for policy in self.policies) or 'none'}"

    @property
    def queue_dimensions(self) -> Mapping[str, str]:
        """Return the dimensions of its queue's metrics; empty if the queue is unknown."""
        return {} if self.queue is None else {"QueueName": self.queue.name}

    def dimensions_in(self, namespace: str) -> Mapping[str, str]:
        """Return the dimensions of its queue's metrics or of its own, by namespace; empty in other namespaces."""
        if namespace == "AWS/SQS":
            return self.queue_dimensions
        return self.dimensions if namespace in {"AWS/ECS", "ECS/ContainerInsights"} else {}

    @property
    def without_names(self) -> "ScaledService":
        """Return the service without its names; two services for which this is equal scale alike."""
        own = {**self.dimensions, **self.queue_dimensions}

        def without_name(metric: MetricSource) -> MetricSource:
            dimensions = {name: "" if own.get(name) == value else value for name, value in metric.dimensions.items()}
            return replace(metric, dimensions=dimensions)

        policies = []
        for policy in self.policies:
            metrics = {id_: without_name(metric) for id_, metric in policy.watched.metrics.items()}
            found = policy.with_watched(replace(policy.watched, metrics=metrics))
            if isinstance(found, StepScaling):
                found = replace(found, alarm=replace(found.alarm, name=""))
            policies.append(found)
        queue = None if self.queue is None else replace(self.queue, name="")
        return replace(self, name="", queue=queue, dimensions={}, policies=tuple(policies))

    def exchange(self, policy: ScalingPolicy, other: ScalingPolicy) -> "ScaledService":
        """Return the service with one policy replaced."""
        return replace(self, policies=tuple(other if each is policy else each for each in self.policies))
