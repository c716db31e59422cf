"""The CloudWatch metrics that dashboards, alarms and scaling may name: AWS documents them, or the runtime writes them.

Copied by hand: a name misspelt in the constructs is not among them.
AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html,
https://docs.aws.amazon.com/sns/latest/dg/sns-monitoring-using-cloudwatch.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/appinsights-metrics-ecs.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html (read 2026-11-23).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluice.declaration import metrics
from tests.support.templates.resources import Resource

_SQS = {
    *("ApproximateAgeOfOldestMessage", "ApproximateNumberOfGroupsWithInflightMessages"),
    *("ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible"),
    *("ApproximateNumberOfMessagesVisible", "NumberOfDeduplicatedSentMessages", "NumberOfEmptyReceives"),
    *("NumberOfMessagesDeleted", "NumberOfMessagesReceived", "NumberOfMessagesSent", "SentMessageSize"),
}
_SNS = {
    *("NumberOfMessagesPublished", "NumberOfNotificationsDelivered", "NumberOfNotificationsFailed"),
    *("NumberOfNotificationsFailedToRedriveToDlq", "NumberOfNotificationsFilteredOut"),
    *("NumberOfNotificationsRedrivenToDlq", "PublishSize"),
}
_SERVICE = {"DeploymentCount", "DesiredTaskCount", "PendingTaskCount", "RunningTaskCount", "TaskSetCount"}
DOCUMENTED: dict[tuple[str, tuple[str, ...]], set[str]] = {
    ("AWS/SQS", ("QueueName",)): _SQS,
    ("AWS/SNS", ("TopicName",)): _SNS,
    ("ECS/ContainerInsights", ("ClusterName", "ServiceName")): _SERVICE,
    ("AWS/RDS", ("DBClusterIdentifier", "Role")): {
        "ACUUtilization",
        "DatabaseConnections",
        "MaximumUsedTransactionIDs",
    },
    (metrics.NAMESPACE, ("Queue",)): set(metrics.INBOX),
    (metrics.NAMESPACE, ("Topic",)): set(metrics.OUTBOX),
}
"""Namespace and names of the dimensions, to names of metrics; last those the runtime writes."""
DIMENSIONS = {
    "QueueName": "AWS::SQS::Queue",
    "Queue": "AWS::SQS::Queue",
    "TopicName": "AWS::SNS::Topic",
    "Topic": "AWS::SNS::Topic",
    "ClusterName": "AWS::ECS::Cluster",
    "ServiceName": "AWS::ECS::Service",
    "DBClusterIdentifier": "AWS::RDS::DBCluster",
}
"""Name of a dimension, to the kind of resource that its value names."""
ELSEWHERE = ("everybodys", "invoices.fifo", "invoices-dead.fifo", "stock.fifo")
"""Existing resources of tests/support/templates/environments.py, which no template makes."""
_IDS = re.compile(r"\b[a-z]\w*")  # functions are upper-case


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMetric:
    """A metric as something names it."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str


def of_graphs(widgets: list[Any]) -> Iterator[tuple[str, list[NamedMetric], list[str]]]:
    """Yield of each graph of a dashboard its title, the metrics it names, and the faults of its expressions."""
    for widget in widgets:
        properties = widget["properties"]
        rows = properties.get("metrics", [])
        queries = [row[0] for row in rows if isinstance(row[0], dict)]
        named = [row for row in rows if isinstance(row[0], str)]
        yield (
            properties.get("title", ""),
            [_metrics_of_graphs(row) for row in named],
            _faults([query["expression"] for query in queries], {row[-1].get("id") for row in named}),
        )


def _metrics_of_graphs(row: list[Any]) -> NamedMetric:
    namespace, name, *pairs, options = row
    dimensions = tuple(zip(pairs[::2], pairs[1::2], strict=True))
    return NamedMetric(namespace=namespace, name=name, dimensions=dimensions, statistic=options.get("stat", "Average"))


def of_alarm(properties: dict[str, Any]) -> tuple[list[NamedMetric], list[str]]:
    """Return the metrics an alarm or a scaling policy names, and the faults of its expressions."""
    if "Metrics" not in properties:
        return [_named_metrics(properties, properties["Statistic"])], []
    queries = properties["Metrics"]
    stats = [query["MetricStat"] for query in queries if "MetricStat" in query]
    expressions = [query["Expression"] for query in queries if "Expression" in query]
    return [_named_metrics(stat["Metric"], stat["Stat"]) for stat in stats], _faults(
        expressions, {e["Id"] for e in queries}
    )


def _named_metrics(metric: dict[str, Any], statistic: str) -> NamedMetric:
    dimensions = tuple((entry["Name"], entry["Value"]) for entry in metric["Dimensions"])
    return NamedMetric(
        namespace=metric["Namespace"], name=metric["MetricName"], dimensions=dimensions, statistic=statistic
    )


def _faults(expressions: list[str], ids: set[str]) -> list[str]:
    return [
        f"{id_} in {expression} names no metric"
        for expression in expressions
        for id_ in _IDS.findall(expression)
        if id_ not in ids
    ]


def faults(named: NamedMetric, found: list[Resource]) -> list[str]:
    """Return a sentence for each fault of a metric: nobody reports it, or its resource does not exist."""
    names = tuple(name for name, _ in named.dimensions)
    known = DOCUMENTED.get((named.namespace, names), set())
    unknown = [] if named.name in known else [f"{named.namespace} reports no {named.name} by {', '.join(names)}"]
    resources = {(resource.kind, resource.name) for resource in found}
    resources |= {(resource.kind, str(resource.properties.get("DBClusterIdentifier"))) for resource in found}
    return unknown + [
        f"no {DIMENSIONS.get(name, name)} is called {value}"
        for name, value in named.dimensions
        if (name, value) != ("Role", "WRITER")
        and (DIMENSIONS.get(name), value) not in resources
        and value not in ELSEWHERE
    ]
