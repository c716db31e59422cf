"""The graphs that operators look at, as values: the stacks and `sluice env dashboard` make dashboards of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.declaration import backlog, metrics, naming, watched_metrics
from sluice.declaration.consumer import Consumer
from sluice.declaration.environment import Environment
from sluice.declaration.fields.database import NewDatabase
from sluice.declaration.fields.topics import ExistingTopic, Topic
from sluice.declaration.metrics import OUTBOX_LAG, OUTBOX_PENDING, OUTBOX_PUBLISHED, OUTBOX_QUARANTINED, VERDICT
from sluice.declaration.watched_metrics import Expression, WatchedMetric


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph, by the minute.

    Args:
        left: what is drawn on the left axis.
        right: what is drawn on the right axis.
        line: a line to compare with: its label and its value on the left axis.
    """

    title: str
    left: Sequence[WatchedMetric | Expression]
    right: Sequence[WatchedMetric | Expression] = ()
    line: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A row of graphs.

    Args:
        heading: what stands above them; None is nothing.
    """

    heading: str | None
    graphs: Sequence[Graph]


@dataclass(frozen=True, slots=True)
class RuntimeGraph:
    """A graph of what relays or workers write themselves.

    Args:
        names: of the metrics, as in `sluice.declaration.metrics`.
        line: a value to compare with.
    """

    title: str
    names: Sequence[str]
    line: float | None = None


@dataclass(frozen=True, slots=True)
class RuntimeRow:
    """A row of graphs of one topic's relay, or of one consumer's workers.

    Args:
        dimensions: what its metrics are of.
    """

    heading: str
    dimensions: Mapping[str, str]
    graphs: Sequence[RuntimeGraph]


def runtime_rows(environment: Environment) -> Iterator[RuntimeRow]:
    """Yield the rows about what relays and workers serve for Prometheus; functions serve nothing."""
    for topic in environment.published_topics if environment.has_relay else ():
        heading = naming.of_topic(environment, "relay", topic)
        dimensions = metrics.dimensions(environment, topic.name)
        yield RuntimeRow(heading, dimensions, _relay_graphs(environment))
    for consumer in environment.consumers:
        if consumer.runtime is None:
            yield RuntimeRow(consumer.name, metrics.inbox_dimensions(environment, consumer), _WORKER_GRAPHS)


def _relay_graphs(environment: Environment) -> list[RuntimeGraph]:
    return [
        RuntimeGraph("Oldest unpublished", (metrics.OUTBOX_LAG,), environment.outbox_lag_seconds),
        RuntimeGraph("Unpublished, and quarantined", (metrics.OUTBOX_PENDING, metrics.OUTBOX_QUARANTINED)),
        RuntimeGraph("Published a second", (metrics.OUTBOX_PUBLISHED,)),
    ]


_WORKER_GRAPHS = (
    RuntimeGraph("Handled a second", (metrics.HANDLED, metrics.PASSED_OVER, metrics.DUPLICATES, metrics.PARKED)),
    RuntimeGraph(
        "Failed a second", (metrics.RETRIED, metrics.DEAD, metrics.LOST, metrics.NOT_DELETED, metrics.OVERDUE)
    ),
    RuntimeGraph("Waiting in the inbox", (metrics.PARKED_GROUPS, metrics.PARKED_MESSAGES, metrics.HELD_MESSAGES)),
    RuntimeGraph("Needs a person", (metrics.OPEN_EXCEPTIONS, metrics.REDRIVE_OFF, metrics.PAUSED, metrics.STUCK_PARTS)),
)


def environment_rows(environment: Environment) -> Iterator[GraphRow]:
    """Yield the rows about what consumers share: topics, outboxes and database, where they are the environment's."""
    for topic in environment.topics:
        if isinstance(topic, Topic):
            yield GraphRow(None, _topic_row(environment, topic))
    for topic in environment.published_topics if environment.has_relay else ():
        yield GraphRow(naming.of_topic(environment, "relay", topic), _outbox_row(environment, topic))
        if topic in environment.verified_topics:
            yield GraphRow(None, _verdict_row(environment, topic))
    if isinstance(environment.database, NewDatabase):
        yield GraphRow("database", _database_row(environment, environment.database))


def consumer_rows(environment: Environment, consumer: Consumer) -> Iterator[GraphRow]:
    """Yield the two rows about a consumer: its queue, and its tasks or its Lambda function."""
    yield GraphRow(consumer.name, _queue_row(environment, consumer))
    row = _service_row if consumer.runtime is None else _function_row
    yield GraphRow(None, row(environment, consumer))


def _topic_row(environment: Environment, topic: Topic) -> list[Graph]:
    """Return the graphs of a topic: published, delivered and undelivered messages."""
    name = naming.topic_name(environment, topic.name)
    return [
        Graph("Published", [watched_metrics.topic_metric(name, "NumberOfMessagesPublished")]),
        Graph("Delivered", [watched_metrics.topic_metric(name, "NumberOfNotificationsDelivered")]),
        Graph(
            "Not delivered",
            [
                watched_metrics.topic_metric(name, f"NumberOfNotifications{ending}")
                for ending in ("Failed", "RedrivenToDlq", "FailedToRedriveToDlq", "FilteredOut")
            ],
        ),
    ]


def _outbox_row(environment: Environment, topic: Topic | ExistingTopic) -> list[Graph]:
    """Return the graphs of a topic's outbox: lag, unpublished and published messages."""
    lag, pending, quarantined, published = (
        watched_metrics.outbox_metric(environment, topic, name)
        for name in (OUTBOX_LAG, OUTBOX_PENDING, OUTBOX_QUARANTINED, OUTBOX_PUBLISHED)
    )
    return [
        Graph("Oldest unpublished, s", [lag], line=("outbox_lag_seconds", environment.outbox_lag_seconds)),
        Graph("Unpublished, and quarantined", [pending], right=[quarantined]),
        Graph("Published from the outbox a minute", [published]),
    ]


def _verdict_row(environment: Environment, topic: Topic | ExistingTopic) -> list[Graph]:
    """Return the graphs of the comparison of an outbox with its consumers."""
    verified, broken, unknown = (watched_metrics.outbox_metric(environment, topic, name) for name in VERDICT)
    return [
        Graph("Sent messages that were judged, every hour", [verified]),
        Graph("Messages lost, and subscriptions wrong", [broken]),
        Graph("Properties that are unknown", [unknown]),
    ]


def _database_row(environment: Environment, database: NewDatabase) -> list[Graph]:
    """Return the graphs of the database: capacity, connections, transaction ids."""
    return [
        Graph("Used of max_acus, %", [watched_metrics.database_metric(environment, "ACUUtilization")]),
        Graph(
            "Connections to the database",
            [watched_metrics.database_metric(environment, "DatabaseConnections")],
            line=("what max_acus allow", database.connections_max),
        ),
        Graph("Transaction ids used", [watched_metrics.database_metric(environment, "MaximumUsedTransactionIDs")]),
    ]


def _queue_row(environment: Environment, consumer: Consumer) -> list[Graph]:
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
        Graph(
            "Oldest message, s",
            [inputs[backlog.AGE]],
            line=("acceptable latency", consumer.acceptable_latency_seconds),
        ),
        Graph("Sent and deleted a minute", counts),
        Graph(
            "Messages, and dead letters",
            [inputs[backlog.VISIBLE], inputs[backlog.IN_FLIGHT]],
            right=list(map(watched_metrics.queue_content, dead_letter_queues)),
        ),
    ]


def _service_row(environment: Environment, consumer: Consumer) -> list[Graph]:
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
        Graph("Backlog per task", [per_task, scaled_on], line=("target", consumer.target_backlog)),
        Graph(
            f"Tasks ({consumer.min_tasks} to {consumer.max_tasks}), empty receives",
            [inputs[backlog.RUNNING]],
            right=[inputs[backlog.EMPTY_RECEIVES]],
            line=("max_tasks", consumer.max_tasks),
        ),
        Graph("Groups in flight, minutes to drain", [groups_in_flight] if consumer.fifo else [], right=[drain]),
    ]


def _function_row(environment: Environment, consumer: Consumer) -> list[Graph]:
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
        Graph("Invocations a minute, errors and throttles", [invocations], right=[errors, throttles]),
        Graph(
            "Concurrent invocations, and groups in flight",
            [inputs[backlog.CONCURRENT]],
            right=[groups] if consumer.fifo else [],
            line=("allowed", function.concurrency_max),
        ),
        Graph("Longest invocation, ms", [duration], line=("timeout", 1_000 * function.timeout_seconds)),
    ]
