"""The CloudWatch metrics the expressions of `sluice.declaration.backlog` are made of, by the ids they have there.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html (read 2026-11-21).
"""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from sluice.declaration import Consumer, Environment, ExistingTopic, Topic, backlog, naming
from sluice.declaration import metrics as written
from sluice.declaration.metric_math import Term, metric_ids

MINUTE = cdk.Duration.minutes(1)


def _metric(namespace: str, name: str, dimensions: Mapping[str, str], statistic: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace, metric_name=name, dimensions_map=dimensions, statistic=statistic, period=MINUTE
    )


def queue_metric(queue_name: str, metric_name: str, statistic: str) -> cloudwatch.Metric:
    """Return a metric of a queue, by the minute."""
    return _metric("AWS/SQS", metric_name, {"QueueName": queue_name}, statistic)


def topic_metric(topic_name: str, metric_name: str) -> cloudwatch.Metric:
    """Return a metric of a topic, summed by the minute."""
    return _metric("AWS/SNS", metric_name, {"TopicName": topic_name}, "Sum")


def outbox_metric(
    environment: Environment, topic: Topic | ExistingTopic, metric_name: str, statistic: str
) -> cloudwatch.Metric:
    """Return a metric a topic's leading relay writes, by the minute; not reported while no relay leads."""
    return _metric(written.NAMESPACE, metric_name, written.dimensions(environment, topic.name), statistic)


def inbox_metric(environment: Environment, consumer: Consumer, metric_name: str) -> cloudwatch.Metric:
    """Return what a consumer's workers write of its inbox, by the minute; not reported while no worker runs.

    What they count is summed over them; of a gauge all write the same.
    """
    statistic = "Sum" if metric_name in written.COUNTED else "Maximum"
    return _metric(written.NAMESPACE, metric_name, written.inbox_dimensions(environment, consumer), statistic)


def running_tasks(environment: Environment, service: str) -> cloudwatch.Metric:
    """Return how many tasks of a consumer's service, or of `relay`, run; not reported at all while there are none."""
    dimensions = {
        "ClusterName": naming.cluster_name(environment),
        "ServiceName": naming.service_name(environment, service),
    }
    return _metric("ECS/ContainerInsights", "RunningTaskCount", dimensions, "Average")


def inputs(environment: Environment, consumer: Consumer) -> dict[str, cloudwatch.Metric]:
    """Return every metric an expression about a consumer may name, by its id there."""
    name = naming.queue_name(environment, consumer)
    of_queue = {id_: queue_metric(name, metric, statistic) for id_, (metric, statistic) in backlog.OF_QUEUE.items()}
    return of_queue | {backlog.RUNNING: running_tasks(environment, consumer.name)}


def evaluated(term: Term, environment: Environment, consumer: Consumer, *, label: str) -> cloudwatch.MathExpression:
    """Return an expression about a consumer as metric math, with the metrics it names and no others."""
    named = metric_ids(term)
    return cloudwatch.MathExpression(
        expression=term.text(),
        using_metrics={id_: metric for id_, metric in inputs(environment, consumer).items() if id_ in named},
        label=label,
        period=MINUTE,
    )
