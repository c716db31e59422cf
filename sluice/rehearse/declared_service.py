"""A consumer's service as its declaration would deploy it. A test compares it with the synthesized template."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sluice import limits
from sluice.declaration import Architecture, Consumer, Environment, Lambda, backlog, naming
from sluice.declaration.metric_math import Term, metric_ids
from sluice.rehearse.model.policies import (
    MappingScaling,
    MetricExpression,
    MetricSource,
    QueueSettings,
    ScaledService,
    ScalingPolicy,
    ScalingStep,
    SimulatedAlarm,
    StepScaling,
    TargetTracking,
)
from sluice.rehearse.model.simulation import TaskWork

_PROTECTED_SECONDS = 5.0
"""How long our workers stay protected after a message: `sluice.messaging.worker.scale_in_protection`."""


def tasks_of(consumer: Consumer) -> TaskWork:
    """Return how a consumer's tasks work, or the invocations of its function, as declared."""
    return TaskWork(
        lanes=consumer.lanes if consumer.runtime is None else 1,
        handler_seconds=consumer.processing_seconds,
        acceptable_latency_seconds=consumer.acceptable_latency_seconds,
        protected_seconds=_PROTECTED_SECONDS,
    )


def service_of(environment: Environment, consumer: Consumer) -> ScaledService:
    """Return a consumer's service with its scaling policies, or its function with its mapping."""
    if consumer.runtime is not None:
        return _function_of(environment, consumer, consumer.runtime)
    policies: list[ScalingPolicy] = [
        TargetTracking(
            name="backlog-per-task",
            watched=_consumer_expression(consumer.demand_per_task, environment, consumer),
            target=consumer.target_backlog,
            scale_out_cooldown_seconds=backlog.SCALE_COOLDOWN_SECONDS,
            scale_in_cooldown_seconds=backlog.SCALE_COOLDOWN_SECONDS,
        )
    ]
    if consumer.min_tasks == 0:
        policies.append(_wake(environment, consumer))
    return ScaledService(
        name=naming.service_name(environment, consumer.name),
        min_tasks=consumer.min_tasks,
        max_tasks=consumer.max_tasks,
        policies=tuple(policies),
        queue=QueueSettings(
            name=naming.queue_name(environment, consumer),
            is_fifo=consumer.fifo,
            visibility_timeout_seconds=consumer.visibility_timeout_seconds,
            max_receive_count=consumer.max_attempts,  # also where the queue's receives are no attempts
        ),
        not_simulated=tuple(_not_simulated(environment, consumer)),
        dimensions=_dimensions(environment, consumer),
        stop_timeout_seconds=consumer.stop_timeout_seconds,
        is_protected=True,
        cpu_units=consumer.cpu,
        memory_mib=consumer.memory_mib,
    )


def _not_simulated(environment: Environment, consumer: Consumer) -> Iterator[str]:
    """Yield what is declared and not simulated, as ends of the sentence "not simulated: …"."""
    if consumer.runtime is not None and consumer.runtime.batch_size > 1:
        yield f"batches of up to {consumer.runtime.batch_size} messages"
    if (count := environment.bundle_events_max(consumer)) > 1:
        yield f"bundles of up to {count} events: here each event has a message of its own"


def _function_of(environment: Environment, consumer: Consumer, function: Lambda) -> ScaledService:
    """Return a consumer's function as a service: its tasks are invocations, and its mapping scales them."""
    mapping = MappingScaling(name="mapping")
    if function.pollers_min is not None:
        mapping = replace(
            mapping,
            first=function.pollers_min * limits.POLLER_INVOCATIONS,
            more_per_minute=limits.POLLERS_INVOCATIONS_PER_MINUTE,
        )
    first_invocations = min(mapping.first, function.concurrency_max)
    return ScaledService(
        name=naming.function_name(environment, consumer),
        min_tasks=first_invocations,
        max_tasks=function.concurrency_max,
        policies=(),
        queue=QueueSettings(
            name=naming.queue_name(environment, consumer),
            is_fifo=consumer.fifo,
            visibility_timeout_seconds=consumer.visibility_timeout_seconds,
            max_receive_count=consumer.max_attempts,  # a try that fails is an attempt; nothing else is simulated
        ),
        not_simulated=tuple(_not_simulated(environment, consumer)),
        is_protected=True,
        memory_mib=function.memory_mb,
        mapping=replace(mapping, first=first_invocations),
        is_on_arm=function.package is not None or environment.architecture is Architecture.ARM64,
    )


def _wake(environment: Environment, consumer: Consumer) -> StepScaling:
    """Return the policy that starts one task when messages come while no task runs."""
    return StepScaling(
        name="wake-from-zero",
        alarm=SimulatedAlarm(
            name=naming.alarm_name(environment, consumer.name, "asleep"),
            watched=_consumer_expression(backlog.work_without_workers(), environment, consumer),
            comparison="GreaterThanOrEqualToThreshold",
            threshold=1,
            missing_data="notBreaching",
        ),
        adjustment_type="ChangeInCapacity",
        steps=(ScalingStep(lower=0, upper=None, adjustment=1),),
        cooldown_seconds=backlog.WAKE_COOLDOWN_SECONDS,
    )


def _consumer_expression(term: Term, environment: Environment, consumer: Consumer) -> MetricExpression:
    """Return an expression with the metrics of the consumer's queue and service."""
    queue = {"QueueName": naming.queue_name(environment, consumer)}
    return metric_expression(term, queue=queue, service=_dimensions(environment, consumer))


def _dimensions(environment: Environment, consumer: Consumer) -> Mapping[str, str]:
    """Return the dimensions of the metrics of a consumer's service."""
    return {
        "ClusterName": naming.cluster_name(environment),
        "ServiceName": naming.service_name(environment, consumer.name),
    }


def metric_expression(term: Term, *, queue: Mapping[str, str], service: Mapping[str, str]) -> MetricExpression:
    """Return an expression over the ids of `sluice.declaration.backlog` with the metrics that these are.

    Args:
        term: the expression.
        queue: the dimensions of a queue's metrics.
        service: the dimensions of a service's metrics.
    """
    sources = {
        id_: MetricSource(namespace="AWS/SQS", name=name, dimensions=queue, statistic=statistic)
        for id_, (name, statistic) in backlog.OF_QUEUE.items()
    }
    sources[backlog.RUNNING] = MetricSource(
        namespace="ECS/ContainerInsights", name="RunningTaskCount", dimensions=service
    )
    return MetricExpression(term=term, metrics={id_: sources[id_] for id_ in metric_ids(term)}, text=term.text())
