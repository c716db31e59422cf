"""The dashboard shows operators every queue and every service."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sluice.cli.env.dashboard import cloudwatch_body
from sluice.declaration import Environment
from tests.support.templates.environments import EDITED, FULL, REDRIVEN
from tests.support.templates.resources import Resource, StackTemplates, of_kind, resources
from tests.unit.constructs.expectations import CONSUMERS

DASHBOARD = "AWS::CloudWatch::Dashboard"


def _widgets(found: list[Resource], name: str) -> list[Any]:
    (dashboard,) = of_kind(found, DASHBOARD).values()
    assert dashboard["DashboardName"] == f"sluice-{name}-{'eu-central-1' if name == FULL.name else 'us-east-1'}"
    widgets: list[Any] = json.loads(dashboard["DashboardBody"])["widgets"]
    return widgets


def test_without_a_relay_there_is_no_graph_of_an_outbox(plain: list[Resource]) -> None:
    """Without a relay nobody would report the outbox's metrics."""
    (dashboard,) = of_kind(plain, DASHBOARD).values()

    assert "Outbox" not in dashboard["DashboardBody"]


def test_the_dashboard_has_the_topics_row_and_two_per_consumer(
    declared_resources: list[Resource], environment: Environment
) -> None:
    """Title by title, in the order of the declaration."""
    widgets = _widgets(declared_resources, environment.name)

    tasks = {"local": "1 to 10", "dev": "0 to 2", "staging": "1 to 10", "prod": "2 to 20"}
    of_consumer = [
        "Oldest message, s",
        "Sent and deleted a minute",
        "Messages, and dead letters",
        "Backlog per task",
        f"Tasks ({tasks[environment.name]}), empty receives",
        "Groups in flight, minutes to drain",
    ]
    assert [widget["properties"].get("title", widget["properties"].get("markdown")) for widget in widgets] == [
        *("Published", "Delivered", "Not delivered"),
        *("## relay", "Oldest unpublished, s", "Unpublished, and quarantined", "Published from the outbox a minute"),
        *("## database", "Used of max_acus, %", "Connections to the database", "Transaction ids used"),
        *(title for consumer in CONSUMERS for title in (f"## {consumer}", *of_consumer)),
    ]


def test_the_dashboard_shows_every_queue_and_every_service(full: list[Resource]) -> None:
    """Both DLQs are shown too, and each graph has the dimension under which AWS reports its metric."""
    metrics = [
        metric
        for widget in _widgets(full, "full")
        for metric in widget["properties"].get("metrics", ())
        if isinstance(metric[0], str)
    ]

    assert {tuple(item for item in metric[2:] if isinstance(item, str)) for metric in metrics} == {
        ("TopicName", "sluice-full-orders.fifo"),
        ("Topic", "sluice-full-orders.fifo"),
        ("DBClusterIdentifier", "sluice-full", "Role", "WRITER"),
        *(
            ("QueueName", f"sluice-full-{consumer}{queue}.fifo")
            for consumer in ("ledger", "night-batch")
            for queue in ("", "-dlq", "-undelivered-dlq")
        ),
        ("ClusterName", "sluice-full", "ServiceName", "sluice-full-ledger"),
        ("ClusterName", "sluice-full", "ServiceName", "sluice-full-night-batch"),
    }


def test_the_dashboard_marks_what_alarms_and_scaling_aim_at(full: list[Resource]) -> None:
    """The outbox's lag; then acceptable latency, target backlog and most tasks, of each consumer in turn."""
    marks = [
        (mark["label"], mark["value"])
        for widget in _widgets(full, "full")
        for mark in widget["properties"].get("annotations", {}).get("horizontal", ())
    ]

    assert marks == [
        ("outbox_lag_seconds", 90),
        ("what max_acus allow", 2_000),
        ("acceptable latency", 300),
        ("target", 960),
        ("max_tasks", 8),
        ("acceptable latency", 1_800),
        ("target", 7_200),
        ("max_tasks", 3),
    ]


def _visible_metrics(widget: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and statistic of the metrics that a graph draws; metrics used only in expressions are hidden."""
    return [
        (str(metric[1]), str(metric[-1].get("stat", "Average")))
        for metric in widget["properties"]["metrics"]
        if isinstance(metric[0], str) and metric[-1].get("visible", True)
    ]


def test_the_dashboard_draws_each_metric_by_the_statistic_it_is_judged_by(full: list[Resource]) -> None:
    """Graph by graph: the topic, the outbox, then ledger."""
    graphs = {
        widget["properties"]["title"]: _visible_metrics(widget)
        for widget in _widgets(full, "full")[:18]
        if widget["type"] == "metric"
    }

    assert graphs == {
        "Published": [("NumberOfMessagesPublished", "Sum")],
        "Delivered": [("NumberOfNotificationsDelivered", "Sum")],
        "Not delivered": [
            ("NumberOfNotificationsFailed", "Sum"),
            ("NumberOfNotificationsRedrivenToDlq", "Sum"),
            ("NumberOfNotificationsFailedToRedriveToDlq", "Sum"),
            ("NumberOfNotificationsFilteredOut", "Sum"),
        ],
        "Oldest unpublished, s": [("OutboxLag", "Maximum")],
        "Unpublished, and quarantined": [("OutboxPending", "Maximum"), ("OutboxQuarantined", "Maximum")],
        "Published from the outbox a minute": [("OutboxPublished", "Sum")],
        "Used of max_acus, %": [("ACUUtilization", "Maximum")],
        "Connections to the database": [("DatabaseConnections", "Maximum")],
        "Transaction ids used": [("MaximumUsedTransactionIDs", "Maximum")],
        "Oldest message, s": [("ApproximateAgeOfOldestMessage", "Maximum")],
        "Sent and deleted a minute": [
            ("NumberOfMessagesSent", "Sum"),
            ("NumberOfMessagesDeleted", "Sum"),
            ("NumberOfDeduplicatedSentMessages", "Sum"),
        ],
        "Messages, and dead letters": [
            ("ApproximateNumberOfMessagesVisible", "Average"),
            ("ApproximateNumberOfMessagesNotVisible", "Average"),
            ("ApproximateNumberOfMessagesVisible", "Maximum"),
            ("ApproximateNumberOfMessagesVisible", "Maximum"),
        ],
        "Backlog per task": [],
        "Tasks (2 to 8), empty receives": [("RunningTaskCount", "Average"), ("NumberOfEmptyReceives", "Sum")],
        "Groups in flight, minutes to drain": [("ApproximateNumberOfGroupsWithInflightMessages", "Average")],
    }


def test_the_dashboard_shows_what_scaling_sees(full: list[Resource]) -> None:
    """The very expression of the policy beside the backlog per task; every metric they name is given with its id."""
    policy = of_kind(full, "AWS::ApplicationAutoScaling::ScalingPolicy")["ConsumersConsumerledgerScalingBacklogPerTask"]
    metrics = policy["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"]["Metrics"]

    (graph,) = (
        widget["properties"]
        for widget in _widgets(full, "full")[:18]
        if widget["properties"].get("title") == "Backlog per task"
    )

    drawn = {metric[0]["label"]: metric[0]["expression"] for metric in graph["metrics"] if isinstance(metric[0], dict)}
    given = {metric[-1]["id"] for metric in graph["metrics"] if isinstance(metric[0], str)}
    assert drawn == {
        "backlog per task": "IF((FILL(FILL(running, REPEAT), 0) > 0),"
        " ((FILL(visible, REPEAT) + FILL(inflight, REPEAT)) / FILL(FILL(running, REPEAT), 0)),"
        " (FILL(visible, REPEAT) + FILL(inflight, REPEAT)))",
        "what scaling sees": metrics[-1]["Expression"],
    }
    assert given == {"running", "visible", "inflight", "received", "deleted"}


@pytest.mark.parametrize("edited", [FULL, EDITED[REDRIVEN]], ids=["full", "redriven"])
def test_the_command_prints_the_dashboard_of_the_stacks(
    edited: Environment, edited_stacks: Mapping[str, StackTemplates], full: list[Resource]
) -> None:
    """Widget by widget; the stacks leave the region to CloudFormation."""
    found = full if edited is FULL else resources(edited_stacks[REDRIVEN])

    (made,) = of_kind(found, DASHBOARD).values()

    assert json.loads(made["DashboardBody"].replace("<AWS::Region>", edited.region)) == cloudwatch_body(edited)
