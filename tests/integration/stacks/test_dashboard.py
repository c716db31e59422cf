"""No graph of a queue on the deployed dashboard is empty after real traffic, by LocalStack's CloudWatch.

LocalStack keeps no dashboard: its body comes from the deployed template. It reports metrics of SQS only, and of these
not the three in `_SILENT`; AWS's lists of all others are in `tests/support/templates/documented_metrics.py`. It
computes no metric math.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from emulator import localstack
from sluice.clock import SystemClock, eventually
from sluice.declaration import naming
from tests.support.declaration import environment
from tests.support.templates.documented_metrics import NamedMetric, of_graphs
from tests.support.templates.resources import OBSERVABILITY, of_kind, template_resources

pytestmark = [pytest.mark.xdist_group("local"), pytest.mark.slow]  # the unit test sees a misspelt metric, too
LOCAL = environment("local")
_SILENT = {
    "ApproximateAgeOfOldestMessage",
    "ApproximateNumberOfGroupsWithInflightMessages",
    "NumberOfDeduplicatedSentMessages",
}


def _visible_metrics() -> list[NamedMetric]:
    """Return every metric of SQS that a graph of the deployed dashboard names."""
    stack = naming.stack_name(LOCAL, OBSERVABILITY)
    template = boto3.client("cloudformation").get_template(StackName=stack)["TemplateBody"]
    (dashboard,) = of_kind(template_resources(OBSERVABILITY, template), "AWS::CloudWatch::Dashboard").values()
    widgets = json.loads(dashboard["DashboardBody"])["widgets"]
    graphs = of_graphs([widget for widget in widgets if widget["type"] == "metric"])
    return [metric for _, named, _ in graphs for metric in named if metric.namespace == "AWS/SQS"]


def _work_and_die(queue_name: str) -> None:
    """Bring a consumer's queue a message that is handled, one that dies, and a poll that finds nothing."""
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=queue_name)["QueueUrl"]

    def receive(hidden_seconds: int = 0) -> dict[str, Any] | None:
        answer = sqs.receive_message(QueueUrl=url, VisibilityTimeout=hidden_seconds, WaitTimeSeconds=1)
        received = answer.get("Messages", [])
        return received[0] if received else None

    handled = eventually(lambda: receive(30), timeout_seconds=30, describe=f"a message in {queue_name}")
    assert handled is not None
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handled["ReceiptHandle"])
    while receive() is not None:
        pass


def _empty(metrics: list[NamedMetric]) -> set[NamedMetric]:
    """Return those that have no value of the last ten minutes."""
    now = datetime.fromtimestamp(SystemClock().now_us() / 1_000_000, UTC)
    queries = [
        {
            "Id": f"m{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": metric.namespace,
                    "MetricName": metric.name,
                    "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
                },
                "Period": 60,
                "Stat": metric.statistic,
            },
        }
        for number, metric in enumerate(metrics)
    ]
    answer = boto3.client("cloudwatch").get_metric_data(
        MetricDataQueries=queries, StartTime=now - timedelta(minutes=10), EndTime=now + timedelta(minutes=1)
    )
    values = {result["Id"]: result["Values"] for result in answer["MetricDataResults"]}
    return {metric for number, metric in enumerate(metrics) if not values[f"m{number}"]}


def test_no_graph_of_a_queue_is_empty_after_traffic(localstack_deployed: localstack.Emulator) -> None:
    """Every consumer's queue has had messages and a dead letter.

    The metrics that LocalStack never reports are listed above.
    """
    metrics = list(dict.fromkeys(_visible_metrics()))
    for body in ("handled", "dies"):
        boto3.client("sns").publish(
            TopicArn=naming.topic_arn(LOCAL, "000000000000"),
            Message=body,
            MessageGroupId=body,
            MessageDeduplicationId=body,
        )
    for consumer in LOCAL.consumers:
        _work_and_die(naming.queue_name(LOCAL, consumer))

    eventually(
        lambda: {metric.name for metric in _empty(metrics)},
        until=lambda names: names <= _SILENT,
        timeout_seconds=60,
        interval_seconds=1,
        describe="values of every metric but those LocalStack never reports",
    )

    assert sorted({value for metric in metrics for _, value in metric.dimensions}) == sorted(
        name_of(LOCAL, consumer)
        for consumer in LOCAL.consumers
        for name_of in (naming.queue_name, naming.dead_letter_queue_name, naming.undelivered_queue_name)
    )
