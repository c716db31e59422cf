"""The dashboard of an environment for operators."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from sluice.constructs.monitoring.alarm import MINUTE, to_cloudwatch
from sluice.constructs.place import consumer_scope
from sluice.declaration import (
    Consumer,
    Environment,
    ExistingTopic,
    NewDatabase,
    Topic,
    backlog,
    naming,
    watched_metrics,
)
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.metrics import OUTBOX_LAG, OUTBOX_PENDING, OUTBOX_PUBLISHED, OUTBOX_QUARANTINED
from sluice.declaration.watched_metrics import Expression, WatchedMetric

_WIDTH = 8  # of a graph; CloudWatch's dashboards have 24 columns


class Dashboard(Construct):
    """One dashboard for an environment: rows for its own topics, outboxes and database, and two rows for each consumer.

    A consumer's first row is about its queue, the second about its tasks or its Lambda function. Consumers with `stack`
    have a dashboard of their own for each such stack.
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=naming.dashboard_name(environment))
        for topic in environment.topics:
            if isinstance(topic, Topic):
                self.dashboard.add_widgets(*_topic_row(environment, topic))
        for topic in environment.published_topics if environment.has_relay else ():
            self.dashboard.add_widgets(_heading(naming.of_topic(environment, "relay", topic)))
            self.dashboard.add_widgets(*_outbox_row(environment, topic))
        if isinstance(environment.database, NewDatabase):
            self.dashboard.add_widgets(_heading("database"))
            self.dashboard.add_widgets(*_database_row(environment, environment.database))
        dashboards: dict[str | None, cloudwatch.Dashboard] = {None: self.dashboard}
        for consumer in environment.consumers:
            if consumer.stack not in dashboards:
                dashboards[consumer.stack] = cloudwatch.Dashboard(
                    consumer_scope(self, consumer),
                    "Dashboard",
                    dashboard_name=naming.dashboard_name(environment, consumer.stack),
                )
            page = dashboards[consumer.stack]
            page.add_widgets(_heading(consumer.name))
            page.add_widgets(*_queue_row(environment, consumer))
            row = _service_row if consumer.runtime is None else _function_row
            page.add_widgets(*row(environment, consumer))


def _heading(name: str) -> cloudwatch.TextWidget:
    """Return a heading as wide as a row of three graphs."""
    return cloudwatch.TextWidget(markdown=f"## {name}", width=3 * _WIDTH, height=1)


def _graph(
    title: str,
    left: Sequence[WatchedMetric | Expression],
    *,
    right: Sequence[WatchedMetric | Expression] = (),
    line: tuple[str, float] | None = None,
) -> cloudwatch.GraphWidget:
    """Return a graph with metrics on its left and right axis; `line` is label and value of a horizontal line."""
    lines = [] if line is None else [cloudwatch.HorizontalAnnotation(label=line[0], value=line[1])]
    return cloudwatch.GraphWidget(
        title=title,
        left=[to_cloudwatch(watches) for watches in left],
        right=[to_cloudwatch(watches) for watches in right],
        left_annotations=lines,
        width=_WIDTH,
        period=MINUTE,
    )


def _topic_row(environment: Environment, topic: Topic) -> list[cloudwatch.IWidget]:
    """Return the graphs of a topic: published, delivered and undelivered messages."""
    name = naming.topic_name(environment, topic.name)
    return [
        _graph("Published", [watched_metrics.topic_metric(name, "NumberOfMessagesPublished")]),
        _graph("Delivered", [watched_metrics.topic_metric(name, "NumberOfNotificationsDelivered")]),
        _graph(
            "Not delivered",
            [
                watched_metrics.topic_metric(name, f"NumberOfNotifications{ending}")
                for ending in ("Failed", "RedrivenToDlq", "FailedToRedriveToDlq", "FilteredOut")
            ],
        ),
    ]


def _outbox_row(environment: Environment, topic: Topic | ExistingTopic) -> list[cloudwatch.IWidget]:
    """Return the graphs of a topic's outbox: lag, unpublished and published messages."""
    lag, pending, quarantined, published = (
        watched_metrics.outbox_metric(environment, topic, name)
        for name in (OUTBOX_LAG, OUTBOX_PENDING, OUTBOX_QUARANTINED, OUTBOX_PUBLISHED)
    )
    return [
        _graph("Oldest unpublished, s", [lag], line=("outbox_lag_seconds", environment.outbox_lag_seconds)),
        _graph("Unpublished, and quarantined", [pending], right=[quarantined]),
        _graph("Published from the outbox a minute", [published]),
    ]


def _database_row(environment: Environment, database: NewDatabase) -> list[cloudwatch.IWidget]:
    """Return the graphs of the database: capacity, connections, transaction ids."""
    return [
        _graph("Used of max_acus, %", [watched_metrics.database_metric(environment, "ACUUtilization")]),
        _graph(
            "Connections to the database",
            [watched_metrics.database_metric(environment, "DatabaseConnections")],
            line=("what max_acus allow", database.connections_max),
        ),
        _graph("Transaction ids used", [watched_metrics.database_metric(environment, "MaximumUsedTransactionIDs")]),
    ]


def _queue_row(environment: Environment, consumer: Consumer) -> list[cloudwatch.IWidget]:
    """Return the graphs of a consumer's queue and of its two DLQs."""
    inputs = watched_metrics.inputs(environment, consumer)
    name = naming.queue_name(environment, consumer)
    counts = [
        watched_metrics.queue_metric(name, metric_name, "Sum")
        for metric_name in (
            "NumberOfMessagesSent",
            "NumberOfMessagesDeleted",
            *(("NumberOfDeduplicatedSentMessages",) if consumer.fifo else ()),
        )
    ]
    dead_letter_queues = (
        naming.dead_letter_queue_name(environment, consumer),
        naming.undelivered_queue_name(environment, consumer),
    )
    return [
        _graph(
            "Oldest message, s",
            [inputs[backlog.AGE]],
            line=("acceptable latency", consumer.acceptable_latency_seconds),
        ),
        _graph("Sent and deleted a minute", counts),
        _graph(
            "Messages, and dead letters",
            [inputs[backlog.VISIBLE], inputs[backlog.IN_FLIGHT]],
            right=list(map(watched_metrics.queue_content, dead_letter_queues)),
        ),
    ]


def _service_row(environment: Environment, consumer: Consumer) -> list[cloudwatch.IWidget]:
    """Return the graphs of a consumer that runs on ECS: backlog per task, tasks, and how fast the queue empties.

    The first graph has the backlog per task and the expression that the service is scaled on, because the two differ
    while lanes are busy and while no message is handled (`backlog.demand_per_task`). The minutes to drain are shown
    only while more messages are deleted than sent.
    """
    inputs = watched_metrics.inputs(environment, consumer)
    name = naming.queue_name(environment, consumer)
    groups_in_flight = watched_metrics.queue_metric(name, "ApproximateNumberOfGroupsWithInflightMessages", "Average")
    per_task = watched_metrics.consumer_expression(
        backlog.backlog_per_task(), environment, consumer, label="backlog per task"
    )
    scaled_on = watched_metrics.consumer_expression(
        consumer.demand_per_task, environment, consumer, label="what scaling sees"
    )
    drain = Expression(
        text="IF(deleted > sent, visible / (deleted - sent))",
        metrics={
            "visible": inputs[backlog.VISIBLE],
            "sent": watched_metrics.queue_metric(name, "NumberOfMessagesSent", "Sum"),
            "deleted": watched_metrics.queue_metric(name, "NumberOfMessagesDeleted", "Sum"),
        },
        label="minutes to drain",
    )
    return [
        _graph("Backlog per task", [per_task, scaled_on], line=("target", consumer.target_backlog)),
        _graph(
            f"Tasks ({consumer.min_tasks} to {consumer.max_tasks}), empty receives",
            [inputs[backlog.RUNNING]],
            right=[inputs[backlog.EMPTY_RECEIVES]],
            line=("max_tasks", consumer.max_tasks),
        ),
        _graph("Groups in flight, minutes to drain", [groups_in_flight] if consumer.fifo else [], right=[drain]),
    ]


def _function_row(environment: Environment, consumer: Consumer) -> list[cloudwatch.IWidget]:
    """Return the graphs of a consumer that runs on Lambda."""
    function = consumer.runtime
    assert function is not None, "the consumer runs on Lambda"
    inputs = watched_metrics.inputs(environment, consumer)
    invocations, errors, throttles = (
        watched_metrics.function_metric(environment, consumer, name, "Sum")
        for name in ("Invocations", "Errors", "Throttles")
    )
    groups = watched_metrics.queue_metric(
        naming.queue_name(environment, consumer), "ApproximateNumberOfGroupsWithInflightMessages", "Average"
    )
    duration = watched_metrics.function_metric(environment, consumer, "Duration", "Maximum")
    return [
        _graph("Invocations a minute, errors and throttles", [invocations], right=[errors, throttles]),
        _graph(
            "Concurrent invocations, and groups in flight",
            [inputs[backlog.CONCURRENT]],
            right=[groups] if consumer.fifo else [],
            line=("allowed", function.concurrency_max),
        ),
        _graph("Longest invocation, ms", [duration], line=("timeout", 1_000 * function.timeout_seconds)),
    ]
