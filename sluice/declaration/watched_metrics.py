"""The CloudWatch metrics, and expressions of them, that alarms, graphs and scaling read, one value for each minute.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html (read 2026-11-21).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.declaration import backlog, metrics, naming
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.metric_math import Term, metric_ids


@dataclass(frozen=True, slots=True)
class WatchedMetric:
    """A metric of CloudWatch, with the statistic that makes one value of a minute's values."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    statistic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression of metric math, with the metrics that it reads by their ids in the text."""

    text: str
    metrics: Mapping[str, WatchedMetric]
    label: str


def queue_metric(queue_name: str, metric_name: str, statistic: str) -> WatchedMetric:
    """Return a metric of a queue."""
    return WatchedMetric("AWS/SQS", metric_name, {"QueueName": queue_name}, statistic)


def queue_content(queue_name: str) -> WatchedMetric:
    """Return the metric of how many messages of a queue are visible.

    For a DLQ only this metric works: NumberOfMessagesSent does not count messages that SQS itself moves there.
    """
    return queue_metric(queue_name, "ApproximateNumberOfMessagesVisible", "Maximum")


def topic_metric(topic_name: str, metric_name: str) -> WatchedMetric:
    """Return a metric of a topic, summed."""
    return WatchedMetric("AWS/SNS", metric_name, {"TopicName": topic_name}, "Sum")


def outbox_metric(environment: Environment, topic: Topic | ExistingTopic, metric_name: str) -> WatchedMetric:
    """Return a metric that a topic's leading relay writes; not reported while no relay leads."""
    return _runtime_metric(metric_name, metrics.dimensions(environment, topic.name))


def inbox_metric(environment: Environment, consumer: Consumer, metric_name: str) -> WatchedMetric:
    """Return a metric of a consumer's inbox that its workers write; not reported while no worker runs."""
    return _runtime_metric(metric_name, metrics.inbox_dimensions(environment, consumer))


def _runtime_metric(metric_name: str, dimensions: Mapping[str, str]) -> WatchedMetric:
    """Return a metric that tasks write.

    A counter's statistic is the sum over all tasks; a gauge's is the maximum, because every task writes the same value.
    """
    return WatchedMetric(
        metrics.NAMESPACE, metric_name, dimensions, "Sum" if metric_name in metrics.COUNTED else "Maximum"
    )


def running_tasks(environment: Environment, service: str) -> WatchedMetric:
    """Return the metric of how many tasks of a service run; CloudWatch has no value while there are none."""
    dimensions = {
        "ClusterName": naming.cluster_name(environment),
        "ServiceName": naming.service_name(environment, service),
    }
    return WatchedMetric("ECS/ContainerInsights", "RunningTaskCount", dimensions, "Average")


def function_metric(environment: Environment, consumer: Consumer, metric_name: str, statistic: str) -> WatchedMetric:
    """Return a metric of a consumer's Lambda function; not reported in a minute without an invocation.

    AWS: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html (read 2026-11-27).
    """
    return WatchedMetric(
        "AWS/Lambda", metric_name, {"FunctionName": naming.function_name(environment, consumer)}, statistic
    )


def database_metric(environment: Environment, metric_name: str) -> WatchedMetric:
    """Return a metric of the environment's own database, of the instance that writes at that time.

    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/creating_alarms.html (read 2026-11-26).
    """
    dimensions = {"DBClusterIdentifier": naming.database_name(environment), "Role": "WRITER"}
    return WatchedMetric("AWS/RDS", metric_name, dimensions, "Maximum")


def inputs(environment: Environment, consumer: Consumer) -> dict[str, WatchedMetric]:
    """Return every metric that an expression of `sluice.declaration.backlog` may name, by its id there."""
    name = naming.queue_name(environment, consumer)
    of_queue = {id_: queue_metric(name, metric, statistic) for id_, (metric, statistic) in backlog.OF_QUEUE.items()}
    if consumer.runtime is not None:
        concurrent = function_metric(environment, consumer, "ConcurrentExecutions", "Maximum")
        return of_queue | {backlog.CONCURRENT: concurrent}
    return of_queue | {backlog.RUNNING: running_tasks(environment, consumer.name)}


def consumer_expression(term: Term, environment: Environment, consumer: Consumer, *, label: str) -> Expression:
    """Return an expression about a consumer, with the metrics it names and no others."""
    named = metric_ids(term)
    known = inputs(environment, consumer)
    return Expression(
        text=term.text(), metrics={id_: metric for id_, metric in known.items() if id_ in named}, label=label
    )
