"""Every alarm of an environment, as a value: what it watches, when it rings, what it means, and what to do about it.

The stacks make these alarms, the bill counts what they read, docs/architecture/stacks.md lists them (`make docs`), and
the contracts look for them where they are deployed.

Missing data. SQS stops reporting a queue's metrics when nobody has called the queue for six hours, even if it has
messages; so its alarms *ignore* gaps: for a forgotten dead letter the alarm goes on, for an idle queue there is none.
SNS reports a metric only in minutes with something to count; its alarms take a gap for zero. The leading relay reports
twice a minute in any case, so a gap in the outbox's lag *is* the failure: nobody publishes.
AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
(read 2026-11-21).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from sluice.declaration import backlog, metrics, naming, watched_metrics
from sluice.declaration.consumer import Consumer, Gaps
from sluice.declaration.environment import Environment
from sluice.declaration.fields.database import NewDatabase
from sluice.declaration.fields.topics import RELAY_TASKS, ExistingTopic, Topic
from sluice.declaration.watched_metrics import Expression, WatchedMetric

_PINNED_MINUTES = 15
_PARKED_MINUTES = 10
_ALONE_MINUTES = 15
_DATABASE_MINUTES = 15
_ACUS_PERCENT = 90
_CONNECTIONS_SHARE = 0.8
_TRANSACTION_IDS_MAX = 1_000_000_000
_VERDICT_MINUTES = 90
_UNJUDGED_MINUTES = 180
_DEPLOYMENT_MINUTES = 15
"""So long an alarm about a new version goes on after an increase: a message takes some minutes to use up its attempts.

ECS watches an alarm for longer after the last task was replaced, the longer the alarm's own period is.
"""


class Comparison(Enum):
    """The comparison by which a minute breaches the threshold, in CloudWatch's words."""

    GREATER_THAN_OR_EQUAL_TO_THRESHOLD = "GreaterThanOrEqualToThreshold"
    GREATER_THAN_THRESHOLD = "GreaterThanThreshold"
    LESS_THAN_THRESHOLD = "LessThanThreshold"


class MissingData(Enum):
    """An alarm's treatment of a minute without data, in CloudWatch's words."""

    NOT_BREACHING = "notBreaching"
    IGNORE = "ignore"
    BREACHING = "breaching"


class Hearer(Enum):
    """The receiver of an alarm: operators, or a service that acts on it."""

    OPERATORS = "operators"
    DEPLOYMENT = "ECS"  # rolls a deployment back
    SCALING = "scaling"  # starts a task
    REDRIVE = "EventBridge"  # starts a run of automatic redrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm of CloudWatch; it rings when `minutes` of the last `of_minutes` breach the threshold.

    Args:
        environment: whose alarm it is.
        subject: a consumer's name, `topic` or `relay` (with the topic's name for other topics than the first), or
            `database`.
        condition: what is wrong when it rings, such as `lagging`; the alarm's name ends with subject and condition.
        watches: the metric or expression that it reads.
        threshold: each minute's value is compared with it.
        bound: for the documentation, the field that the threshold follows from; None where it is a constant.
        comparison: by which a value breaches the threshold.
        minutes: how many minutes have to breach.
        of_minutes: among how many last minutes; None is as many as `minutes`.
        duration: for the documentation, the field that `minutes` follows from; None where it is a constant.
        missing: how a minute without data counts.
        description: what it means when the alarm rings, and what to do.
        hearer: who receives it.
    """

    environment: Environment
    subject: str
    condition: str
    watches: WatchedMetric | Expression
    threshold: float = 1
    bound: str | None = None
    comparison: Comparison = Comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
    minutes: int = 1
    of_minutes: int | None = None
    duration: str | None = None
    missing: MissingData
    description: str
    hearer: Hearer = Hearer.OPERATORS

    @property
    def name(self) -> str:
        """Return the alarm's name in CloudWatch."""
        return naming.alarm_name(self.environment, self.subject, self.condition)

    @property
    def evaluated_minutes(self) -> int:
        """Return how many of the last minutes CloudWatch evaluates."""
        return self.minutes if self.of_minutes is None else self.of_minutes

    @property
    def metrics(self) -> tuple[WatchedMetric, ...]:
        """Return the metrics that the alarm reads; AWS bills an alarm by their number."""
        return tuple(self.watches.metrics.values()) if isinstance(self.watches, Expression) else (self.watches,)


def alarms(environment: Environment) -> tuple[Alarm, ...]:
    """Return every alarm of an environment."""
    # An existing topic has no alarms: its metrics also count deliveries to the subscriptions of others.
    own = [topic for topic in environment.topics if isinstance(topic, Topic)]
    published = environment.published_topics if environment.has_relay else ()
    return (
        *(alarm for topic in own for alarm in _of_topic(environment, topic)),
        *(alarm for topic in published for alarm in _of_relay(environment, topic)),
        *(alarm for topic in environment.verified_topics for alarm in _of_verdict(environment, topic)),
        *_of_database(environment),
        *(alarm for consumer in environment.consumers for alarm in of_consumer(environment, consumer)),
    )


def _of_database(environment: Environment) -> Iterator[Alarm]:
    """Yield the alarms about a database that the environment's stacks make; none for an existing one.

    Postgres refuses to write after some two thousand million transaction ids without vacuum:
    https://www.postgresql.org/docs/18/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND (read 2026-11-26).
    """
    database = environment.database
    if not isinstance(database, NewDatabase):
        return
    alarm = partial(
        Alarm,
        environment=environment,
        subject="database",
        comparison=Comparison.GREATER_THAN_THRESHOLD,
        minutes=_DATABASE_MINUTES,
        missing=MissingData.NOT_BREACHING,  # a database that pauses, or is being created, reports nothing
    )
    yield alarm(
        condition="full",
        watches=watched_metrics.database_metric(environment, "ACUUtilization"),
        threshold=_ACUS_PERCENT,
        description=f"The database has used more than {_ACUS_PERCENT} % of max_acus for {_DATABASE_MINUTES} minutes."
        " Raise max_acus, or find what takes so much.",
    )
    yield alarm(
        condition="connections",
        watches=watched_metrics.database_metric(environment, "DatabaseConnections"),
        threshold=int(database.connections_max * _CONNECTIONS_SHARE),
        bound="0.8 of what `max_acus` allow",
        description=f"More than {_CONNECTIONS_SHARE:.0%} of the {database.connections_max} connections are open that"
        " the database takes. See who holds them in pg_stat_activity; raise max_acus, or lower max_tasks.",
    )
    yield alarm(
        condition="wraparound",
        watches=watched_metrics.database_metric(environment, "MaximumUsedTransactionIDs"),
        threshold=_TRANSACTION_IDS_MAX,
        description="Half of the transaction ids are used that Postgres has before it refuses to write. Find what keeps"
        " vacuum: a transaction, a prepared transaction or a replication slot that is old.",
    )


def of_consumer(environment: Environment, consumer: Consumer, hearer: Hearer | None = None) -> list[Alarm]:
    """Return the alarms about a consumer; with a `hearer` only those that this one receives."""
    every = (
        *_of_queues(environment, consumer),
        *_of_latency(environment, consumer),
        *_of_inbox(environment, consumer),
        *(_of_deployment(environment, consumer) if consumer.runtime is None else ()),
        *(_of_tasks(environment, consumer) if consumer.runtime is None else _of_function(environment, consumer)),
        *_of_redrive(environment, consumer),
    )
    return [alarm for alarm in every if hearer in (None, alarm.hearer)]


def _of_topic(environment: Environment, topic: Topic) -> Iterator[Alarm]:
    """Yield the alarms about deliveries of a topic that fail."""
    name = naming.topic_name(environment, topic.name)
    alarm = partial(
        Alarm,
        environment=environment,
        subject=naming.of_topic(environment, "topic", topic),
        missing=MissingData.NOT_BREACHING,
    )
    yield alarm(
        condition="failed",
        watches=watched_metrics.topic_metric(name, "NumberOfNotificationsFailed"),
        description="SNS could not deliver to a queue. See which undelivered DLQ fills, then its queue's policy and"
        " key.",
    )
    yield alarm(
        condition="lost",
        watches=watched_metrics.topic_metric(name, "NumberOfNotificationsFailedToRedriveToDlq"),
        description="Messages are lost: SNS could neither deliver them nor put them into the undelivered DLQ."
        " Publish them again; consumers that had them need an inbox.",
    )


def _of_relay(environment: Environment, topic: Topic | ExistingTopic) -> Iterator[Alarm]:
    """Yield the alarms about a topic's relay: late or quarantined messages, and a relay without a standby."""
    subject = naming.of_topic(environment, "relay", topic)
    alarm = partial(Alarm, environment=environment, subject=subject)
    yield alarm(
        condition="lagging",
        watches=watched_metrics.outbox_metric(environment, topic, metrics.OUTBOX_LAG),
        threshold=environment.outbox_lag_seconds,
        bound="`outbox_lag_seconds`",
        comparison=Comparison.GREATER_THAN_THRESHOLD,
        minutes=3,  # when the leading relay dies, the standby leads sooner
        of_minutes=5,
        missing=MissingData.BREACHING,
        description=f"A committed message has waited longer than {environment.outbox_lag_seconds} s to be"
        " published, or no relay leads. See the relay's log: SNS refuses, the database does not answer, no task"
        " starts, or a message is quarantined.",
    )
    yield alarm(
        condition="quarantined",
        watches=watched_metrics.outbox_metric(environment, topic, metrics.OUTBOX_QUARANTINED),
        missing=MissingData.NOT_BREACHING,  # when no relay runs, the alarm `lagging` rings
        description="SNS refuses a message as it is, and its group waits behind it. See `sluice"
        " outbox ls`, mend what refuses it, then unquarantine or skip it.",
    )
    yield alarm(
        condition="alone",
        watches=watched_metrics.running_tasks(environment, subject),
        threshold=RELAY_TASKS,
        comparison=Comparison.LESS_THAN_THRESHOLD,
        minutes=_ALONE_MINUTES,
        missing=MissingData.BREACHING,  # with no task there is no number
        description=f"Fewer than {RELAY_TASKS} relays have run for {_ALONE_MINUTES} minutes, so nobody takes over"
        " when the last one fails. See the events of its ECS service, and its log.",
    )


def _of_verdict(environment: Environment, topic: Topic | ExistingTopic) -> Iterator[Alarm]:
    """Yield the alarms about the comparison of an outbox with its consumers, which writes its verdict once an hour."""
    alarm = partial(
        Alarm,
        environment=environment,
        subject=naming.of_topic(environment, "verdict", topic),
        watches=watched_metrics.outbox_metric(environment, topic, metrics.OUTBOX_BROKEN),
    )
    yield alarm(
        condition="invalid",
        of_minutes=_VERDICT_MINUTES,
        missing=MissingData.NOT_BREACHING,  # between two verdicts
        description="Messages are lost, or a subscription is missing or filters. The task's log has the verdict with"
        " each number; see `sluice outbox verify`, mend the cause, then `sluice outbox resend`.",
    )
    yield alarm(
        condition="unjudged",
        threshold=0,
        comparison=Comparison.LESS_THAN_THRESHOLD,
        minutes=_UNJUDGED_MINUTES,
        missing=MissingData.BREACHING,
        description=f"There has been no verdict on the outbox for {_UNJUDGED_MINUTES} minutes. See the events of its"
        " ECS tasks and their log: they do not start, or cannot read the database.",
    )


def _of_queues(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarms about messages in a consumer's two DLQs."""
    alarm = partial(Alarm, environment=environment, subject=consumer.name, missing=MissingData.IGNORE)
    yield alarm(
        condition="dead-letters",
        watches=watched_metrics.queue_content(naming.dead_letter_queue_name(environment, consumer)),
        description=f"A message failed {consumer.max_attempts} times. Inspect it, fix the cause, redrive it.",
    )
    yield alarm(
        condition="undelivered",
        watches=watched_metrics.queue_content(naming.undelivered_queue_name(environment, consumer)),
        description="SNS could not deliver a message to the queue: its policy or its key is wrong. Fix it, then send"
        " these messages to that queue.",
    )


def _of_latency(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarms about late messages: all of them, those near their retention, and the two usual causes."""
    alarm = partial(Alarm, environment=environment, subject=consumer.name, missing=MissingData.IGNORE)
    age = watched_metrics.inputs(environment, consumer)[backlog.AGE]
    yield alarm(
        condition="late",
        watches=age,
        threshold=consumer.acceptable_latency_seconds,
        bound="`acceptable_latency_seconds`",
        comparison=Comparison.GREATER_THAN_THRESHOLD,
        minutes=3,
        of_minutes=5,
        description=f"A message has waited longer than {consumer.acceptable_latency_seconds} s. See `sluice"
        " status` and the dashboard: a pause, failing tasks, too few tasks, or a stuck group.",
    )
    yield alarm(
        condition="expiring",
        watches=age,
        threshold=consumer.message_retention_seconds / 2,
        bound="half of `message_retention_seconds`",
        description=f"A message has waited half of the {consumer.message_retention_seconds} s after which SQS"
        " deletes it, also during a pause.",
    )
    of_tasks = consumer.runtime is None
    runs, idle = ("tasks", "tasks are idle") if of_tasks else ("invocations", "more invocations may run")
    if consumer.fifo:
        yield alarm(
            condition="stuck",
            watches=watched_metrics.consumer_expression(
                consumer.group_stuck,
                environment,
                consumer,
                label=f"late while {'lanes are idle' if of_tasks else idle}",
            ),
            minutes=8,  # while tasks start, or one metric is late, lanes look idle for some minutes
            of_minutes=10,
            description=f"The oldest message is late though {idle}: its group is blocked by a failing or slow message,"
            f" or holds most of the load; or the consumer is paused, see `sluice status`. More {runs} do not help.",
        )
    yield alarm(
        condition="pinned",
        watches=watched_metrics.consumer_expression(
            consumer.capacity_pinned,
            environment,
            consumer,
            label=f"{'behind' if of_tasks else 'late'} with all {runs} at work",
        ),
        minutes=_PINNED_MINUTES,
        description=_pinned_description(consumer),
    )


def _pinned_description(consumer: Consumer) -> str:
    """Return the description of the alarm that all allowed tasks or invocations run and are not enough."""
    if consumer.runtime is None:
        return (
            f"All {consumer.max_tasks} tasks have had more than they can do in time for {_PINNED_MINUTES} minutes."
            " Raise max_tasks, or make the handler faster."
        )
    return (
        f"Messages have been late for {_PINNED_MINUTES} minutes while all {consumer.runtime.concurrency_max} allowed"
        " invocations ran. Raise maximum_concurrency or the pollers, and reserved_concurrency where there is one, or"
        " make the handler faster."
    )


def _of_inbox(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarms about a consumer's inbox: groups parked for long, and automatic redrive that is off."""
    alarm = partial(Alarm, environment=environment, subject=consumer.name, missing=MissingData.IGNORE)
    if consumer.parks:
        minutes = _PARKED_MINUTES + consumer.gap_wait_seconds // 60 * (consumer.gaps is Gaps.WAIT)
        yield alarm(
            condition="parked",
            watches=watched_metrics.inbox_metric(environment, consumer, metrics.PARKED_GROUPS),
            minutes=minutes,
            duration=f"{_PARKED_MINUTES} min; with `Gaps.WAIT` `gap_wait_seconds` more",
            description=f"A group has been parked for {minutes} minutes: a message is missing, dead or held, and what"
            " follows it is set aside. See `sluice dlq ls`, then redrive, replace, retry or skip it.",
        )
    if consumer.automatic_redrive is not None:
        yield alarm(
            condition="redrive-off",
            watches=watched_metrics.inbox_metric(environment, consumer, metrics.REDRIVE_OFF),
            description="Automatic redrive is off: a message that it brought back died again, a run died, or an"
            " operator switched it off. See `sluice dlq audit`, mend the cause, then `sluice dlq automatic-on`.",
        )


def _of_deployment(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarms that ECS watches while it deploys a new version of the workers; it rolls back when one rings.

    ECS's circuit breaker only sees tasks that do not start. A version that starts and fails each message is seen by
    other means. `failing` reads a counter that workers write within a minute or two. A worker that its message kills
    counts nothing: `dying` reads how many messages the DLQ has, and rings where there are more than a minute before. A
    DLQ that nobody has called for six hours reports late and without an earlier value, so its first dead letters are
    no increase; `dying` then rings at the next ones.

    ECS ignores all alarms of a deployment if one of them rings when the deployment starts. So `failing` and `dying`
    ring for some minutes after an increase, and not for as long as a dead letter stays in the DLQ, which may be weeks.
    For the same reason a version that is to mend a late queue is not rolled back for lateness.
    AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/deployment-alarm-failure.html and
    https://aws.github.io/copilot-cli/docs/manifest/backend-service/ (rollback_alarms), read 2026-11-23.
    """
    alarm = partial(
        Alarm,
        environment=environment,
        subject=consumer.name,
        missing=MissingData.NOT_BREACHING,  # an idle queue reports nothing
        hearer=Hearer.DEPLOYMENT,
    )
    dead_letters = watched_metrics.queue_content(naming.dead_letter_queue_name(environment, consumer))
    yield alarm(
        condition="failing",
        watches=watched_metrics.inbox_metric(environment, consumer, metrics.DEAD),
        of_minutes=_DEPLOYMENT_MINUTES,
        description="Workers give messages up. While a version is deployed, ECS takes it back.",
    )
    yield alarm(
        condition="dying",
        watches=Expression(
            text="DIFF(FILL(dead, REPEAT))",
            metrics={"dead": dead_letters},
            label="more dead letters than a minute before",
        ),
        of_minutes=_DEPLOYMENT_MINUTES,
        description="Dead letters increase. While a version is deployed, ECS takes it back.",
    )
    yield alarm(
        condition="delayed",
        watches=watched_metrics.inputs(environment, consumer)[backlog.AGE],
        threshold=consumer.acceptable_latency_seconds,
        bound="`acceptable_latency_seconds`",
        comparison=Comparison.GREATER_THAN_THRESHOLD,
        minutes=3,
        of_minutes=5,
        description="Messages are late. While a version is deployed, ECS takes it back.",
    )


def _of_function(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarms about a Lambda function whose invocations are refused, or end without an answer.

    AWS: https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html (read 2026-11-27).
    """
    alarm = partial(
        Alarm,
        environment=environment,
        subject=consumer.name,
        minutes=3,
        of_minutes=5,
        missing=MissingData.NOT_BREACHING,  # a minute without an invocation has no number
    )
    yield alarm(
        condition="throttled",
        watches=watched_metrics.function_metric(environment, consumer, "Throttles", "Sum"),
        description="Lambda refuses invocations, and each refusal uses up a receive of its messages. The account's"
        " concurrency is used up, or reserved_concurrency is too low: raise it, or lower maximum_concurrency.",
    )
    yield alarm(
        condition="erring",
        watches=watched_metrics.function_metric(environment, consumer, "Errors", "Sum"),
        description="Invocations end without an answer: the function does not start, runs out of time or memory, or"
        " crashes. A handler that fails is not counted here. See the function's log.",
    )


def _of_tasks(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarm about missing tasks; for a service that scales to zero, the alarm that starts its first task."""
    alarm = partial(Alarm, environment=environment, subject=consumer.name)
    if consumer.min_tasks > 0:
        yield alarm(
            condition="short",
            watches=watched_metrics.running_tasks(environment, consumer.name),
            threshold=consumer.min_tasks,
            bound="`min_tasks`",
            comparison=Comparison.LESS_THAN_THRESHOLD,
            minutes=_ALONE_MINUTES,
            missing=MissingData.BREACHING,  # with no task there is no number
            description=f"Fewer than {consumer.min_tasks} tasks have run for {_ALONE_MINUTES} minutes. See the events"
            " of its ECS service, and the log of apply_schema: tasks do not start, or end at once.",
        )
    if consumer.min_tasks == 0:
        yield alarm(
            condition="asleep",
            watches=watched_metrics.consumer_expression(
                backlog.work_without_workers(), environment, consumer, label="work without workers"
            ),
            missing=MissingData.NOT_BREACHING,  # an idle queue reports nothing
            description="Messages wait and no task polls: starts one. No operator is needed.",
            hearer=Hearer.SCALING,
        )


def _of_redrive(environment: Environment, consumer: Consumer) -> Iterator[Alarm]:
    """Yield the alarm that starts a run of automatic redrive."""
    redrive = consumer.automatic_redrive
    if redrive is not None:
        yield Alarm(
            environment=environment,
            subject=consumer.name,
            condition="redrive",
            watches=watched_metrics.queue_content(naming.dead_letter_queue_name(environment, consumer)),
            minutes=redrive.quiet_minutes,
            duration="all of `quiet_seconds`",
            missing=MissingData.IGNORE,
            description=f"Messages have been dead for {redrive.quiet_minutes} minutes: a task brings back what it may.",
            hearer=Hearer.REDRIVE,
        )
