"""No graph, alarm or scaling policy names a metric that nobody reports."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.documented_metrics import NamedMetric, faults, of_alarm, of_graphs
from tests.support.templates.environments import EXTRA
from tests.support.templates.resources import Resource, of_kind

ENVIRONMENT_NAMES = (*ENVIRONMENTS, *EXTRA)
LEDGER_DLQ = NamedMetric(
    namespace="AWS/SQS",
    name="ApproximateNumberOfMessagesVisible",
    dimensions=(("QueueName", "sluice-full-ledger-dlq.fifo"),),
    statistic="Maximum",
)


@pytest.mark.parametrize("name", ENVIRONMENT_NAMES)
def test_every_metric_of_the_dashboard_is_reported_by_somebody(
    by_environment: Mapping[str, list[Resource]], name: str
) -> None:
    """Namespace, name, dimensions and their values, and the ids in expressions; no graph is empty."""
    found = by_environment[name]
    (dashboard,) = of_kind(found, "AWS::CloudWatch::Dashboard").values()
    widgets = [widget for widget in json.loads(dashboard["DashboardBody"])["widgets"] if widget["type"] == "metric"]

    graphs = list(of_graphs(widgets))

    assert [title for title, named, _ in graphs if not named] == []
    assert {
        title: wrong
        for title, named, unknown_ids in graphs
        if (wrong := unknown_ids + [fault for metric in named for fault in faults(metric, found)])
    } == {}


@pytest.mark.parametrize("name", ENVIRONMENT_NAMES)
def test_every_metric_of_an_alarm_or_scaling_policy_has_a_reporter(
    by_environment: Mapping[str, list[Resource]], name: str
) -> None:
    """All alarms are checked, also those that start a task, and all scaling policies."""
    found = by_environment[name]
    watched = of_kind(found, "AWS::CloudWatch::Alarm") | {
        policy: properties["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"]
        for policy, properties in of_kind(found, "AWS::ApplicationAutoScaling::ScalingPolicy").items()
        if "TargetTrackingScalingPolicyConfiguration" in properties
    }

    parts = {watcher: of_alarm(properties) for watcher, properties in watched.items()}

    assert [watcher for watcher, (named, _) in parts.items() if not named] == []
    assert {
        watcher: wrong
        for watcher, (named, unknown_ids) in parts.items()
        if (wrong := unknown_ids + [fault for metric in named for fault in faults(metric, found)])
    } == {}


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        (LEDGER_DLQ, None),
        (replace(LEDGER_DLQ, name="ApproximateNumberOfMessageVisible"), "AWS/SQS reports no"),
        (replace(LEDGER_DLQ, namespace="AWS/Sqs"), "AWS/Sqs reports no"),
        (replace(LEDGER_DLQ, dimensions=(("Queue", "sluice-full-ledger-dlq.fifo"),)), "AWS/SQS reports no"),
        (replace(LEDGER_DLQ, dimensions=(("QueueName", "sluice-full-ledger-dlq"),)), "no AWS::SQS::Queue is called"),
    ],
)
def test_a_misspelt_metric_is_found(full: list[Resource], named: NamedMetric, fault: str | None) -> None:
    """The mistake is in its name, its namespace, a dimension's name or a dimension's value."""
    assert [sentence[: len(fault or "")] for sentence in faults(named, full)] == ([] if fault is None else [fault])


def test_an_id_no_metric_has_is_found() -> None:
    """The id is in an expression of a graph."""
    rows = [[{"expression": "IF(deletd > 0, FILL(sent, REPEAT))"}], ["AWS/SQS", "NumberOfMessagesSent", {"id": "sent"}]]

    ((_, _, wrong),) = of_graphs([{"properties": {"metrics": rows}}])

    assert wrong == ["deletd in IF(deletd > 0, FILL(sent, REPEAT)) names no metric"]
