"""The state of an environment: outbox, relay, queues, tasks, inboxes, the last redrive, and what waits for a person."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, and_, func, or_, select

from sluice.cli.overview.sources import QueueCounts, Sources, Unknown, explaining, read
from sluice.clock import SystemClock, utc
from sluice.declaration import Consumer, naming
from sluice.messaging.database import audit, engines
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.awaiting import NEVER_US
from sluice.messaging.inbox.death_reasons import DeathReason, group_reasons
from sluice.messaging.inbox.pause import Pause, find_pause
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.store import COUNTED_MAX, Lag, Store
from sluice.messaging.outbox.tables import SENT
from sluice.messaging.reconciliation.states import NumberState, has_rows, read_groups
from sluice.messaging.sqs.redrive import MoveTasks

FLOW_SECONDS = 60
_REASONS_READ_MAX = 10_000  # dead numbers whose reasons are read
_METRICS_SECONDS = 900
_REDRIVES = ("redrive", "automatic-redrive")  # actions of the inbox's audit
AUTOMATIC = "automatic-redrive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The numbers of messages that came into an outbox, and that were published from it, within the last minute."""

    committed: int
    sent: int

    @property
    def growth(self) -> int:
        """Return by how many messages the backlog has grown; negative where it has shrunk."""
        return self.committed - self.sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The relay that holds the lease of an outbox, or held it last.

    Args:
        owner: name of the relay's process.
        token: number of the lease, which rises with each new leader.
        since_us: since when it leads, microseconds UTC; None if a relay of an earlier version took the lease.
        led_seconds: for how long it leads; None as `since_us`.
        renewed_seconds: how long ago the relay renewed its lease.
        is_leading: whether the lease has not ended yet.
        has_given_back: whether the relay gave the lease back, as it does when it is stopped.
    """

    owner: str
    token: int
    since_us: int | None
    led_seconds: float | None
    renewed_seconds: float
    is_leading: bool
    has_given_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """The state of a topic's outbox. Without a database each field is `Unknown`; `leader` is None if none ever led."""

    topic: str
    pending: int | Unknown
    quarantined: int | Unknown
    lag_seconds: float | Unknown
    flow: Flow | Unknown
    leader: Leader | Unknown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFacts:
    """The numbers that a consumer's inbox waits for.

    Args:
        parked_groups: groups that wait for a number.
        blocked_groups: parked groups that wait until an operator acts: for a dead or held message, or with no time
            limit declared.
        parked_messages: messages that the inbox stores.
        held_messages: stored messages that failed at their last attempt.
        dead: how many numbers are dead.
        missing: how many numbers have not come, although later ones have.
        is_redrive_off: automatic redrive is switched off, or a run of it died.
        reasons: the dead numbers by reason.
        pause: since when, by whom and why the consumer is paused; None if it is not.
    """

    parked_groups: int
    blocked_groups: int
    parked_messages: int
    held_messages: int
    dead: int
    missing: int
    is_redrive_off: bool
    reasons: list[DeathReason]
    pause: Pause | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveFacts:
    """The last redrive of a consumer's DLQ.

    Args:
        engine: client, automatic or native.
        actor: who started it; None where SQS does not say.
        begun_us: when it began, in microseconds UTC.
        moved: how many messages it brought back.
        left: how many messages it left in the DLQ, by reason.
        states: how many of the messages that it brought back are in which state now, such as `handled`.
        note: its error, or the status of the move task.
    """

    engine: str
    actor: str | None
    begun_us: int
    moved: int
    left: Mapping[str, int]
    states: Mapping[str, int]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    """The state of a consumer's queues, tasks and inbox.

    Args:
        consumer: its name.
        queue: counts of its queue.
        dead_letters: counts of its DLQ.
        undelivered: counts of the DLQ for messages that SNS could not deliver.
        oldest_seconds: age of the oldest message in its queue; None where nothing waits.
        visible_before: how many messages were visible in its queue a quarter of an hour ago.
        tasks: how many tasks run, and how many are desired; None where no service is declared.
        inbox: numbers that its inbox waits for.
        last_redrive: None where there was none.
    """

    consumer: str
    queue: QueueCounts | Unknown
    dead_letters: QueueCounts | Unknown
    undelivered: QueueCounts | Unknown
    oldest_seconds: float | Unknown | None
    visible_before: int | Unknown
    tasks: tuple[int, int] | Unknown | None
    inbox: InboxFacts | Unknown
    last_redrive: RedriveFacts | Unknown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentState:
    """An environment at one moment.

    Args:
        now_us: microseconds UTC, by this machine's clock.
    """

    environment: str
    now_us: int
    topics: list[TopicFacts]
    consumers: list[ConsumerFacts]

    @property
    def needs(self) -> list[tuple[str, str]]:
        """Return each thing that waits for a person: a sentence, and the command that shows more."""
        of_topics = [need for topic in self.topics for need in _topic_needs(topic)]
        return of_topics + [need for consumer in self.consumers for need in _consumer_needs(consumer)]

    @property
    def unknown(self) -> dict[str, str]:
        """Return the reasons of those unknown values behind which something may wait for a person, by their names."""
        found: dict[str, object] = {f"outbox of {each.topic}": each.pending for each in self.topics}
        for each in self.consumers:
            found |= {
                f"queue of {each.consumer}": each.queue,
                f"DLQ of {each.consumer}": each.dead_letters,
                f"undelivered DLQ of {each.consumer}": each.undelivered,
                f"inbox of {each.consumer}": each.inbox,
            }
        return {name: value.reason for name, value in found.items() if isinstance(value, Unknown)}


def gather(sources: Sources, consumers: tuple[Consumer, ...]) -> EnvironmentState:
    """Read the state of an environment's topics and of the given consumers."""
    environment = sources.environment
    sources.begin_look()
    read_queues = {
        consumer.name: tuple(
            sources.queue(name_of(environment, consumer))
            for name_of in (naming.queue_name, naming.dead_letter_queue_name, naming.undelivered_queue_name)
        )
        for consumer in consumers
    }
    metrics = _read_metrics(sources, [found[0] for found in read_queues.values()])
    tasks = _read_tasks(sources, consumers)
    is_published = read(sources.outbox, _has_sent)
    return EnvironmentState(
        environment=environment.name,
        now_us=SystemClock().now_us(),
        topics=[_read_topic(sources, topic.name) for topic in environment.published_topics],
        consumers=[
            _read_consumer(sources, consumer, read_queues[consumer.name], metrics, tasks, is_published=is_published)
            for consumer in consumers
        ],
    )


def _has_sent(connection: Connection) -> bool:
    """Return whether an outbox still has a message that was sent."""
    return connection.execute(select(1).where(outbox.messages.c.status == SENT).limit(1)).first() is not None


def _read_topic(sources: Sources, topic: str) -> TopicFacts:
    """Read the state of a topic's outbox; `topic` is the declared name."""
    name = naming.topic_name(sources.environment, topic)
    engine = sources.outbox
    lag = engine if isinstance(engine, Unknown) else explaining(lambda: Store(engine, name).lag())
    return TopicFacts(
        topic=name,
        pending=lag if isinstance(lag, Unknown) else lag.pending_count,
        quarantined=lag if isinstance(lag, Unknown) else lag.quarantined_count,
        lag_seconds=lag if isinstance(lag, Unknown) else lag.seconds,
        flow=read(engine, lambda connection: _read_flow(connection, name)),
        leader=read(engine, lambda connection: _read_leader(connection, name)),
    )


def _read_flow(connection: Connection, topic: str) -> Flow:
    """Count messages that were committed and that were sent within the last minute.

    A message that was resent counts as sent; it counts as committed only if it was committed within that minute.
    """
    m = outbox.messages.c
    since_us = engines.now_us(connection, None) - FLOW_SECONDS * 1_000_000
    unsent = select(m.id).where(m.topic == topic, m.status != SENT, m.created_at_us >= since_us)
    sent = select(m.id, m.created_at_us).where(m.topic == topic, m.status == SENT, m.sent_at_us >= since_us)
    bounded_unsent, bounded_sent = (each.limit(COUNTED_MAX).subquery() for each in (unsent, sent))
    is_new = bounded_sent.c.created_at_us >= since_us
    unsent_count, sent_count, new_and_sent_count = connection.execute(
        select(
            select(func.count()).select_from(bounded_unsent).scalar_subquery(),
            select(func.count()).select_from(bounded_sent).scalar_subquery(),
            select(func.count()).select_from(bounded_sent).where(is_new).scalar_subquery(),
        )
    ).one()
    return Flow(committed=unsent_count + new_and_sent_count, sent=sent_count)


def _read_leader(connection: Connection, topic: str) -> Leader | None:
    """Read the lease of a topic's outbox; None where no relay has ever held it."""
    row = connection.execute(select(outbox.leases).where(outbox.leases.c.topic == topic)).one_or_none()
    if row is None:
        return None
    now_us = engines.now_us(connection, None)
    since_us = row.led_since_us if row.led_token == row.token else None
    return Leader(
        owner=row.owner,
        token=row.token,
        since_us=since_us,
        led_seconds=None if since_us is None else max(0, now_us - since_us) / 1_000_000,
        renewed_seconds=max(0, now_us - (row.expires_at_us - row.lease_us)) / 1_000_000,
        is_leading=row.expires_at_us > now_us,
        has_given_back=row.expires_at_us == 0,
    )


def _read_consumer(
    sources: Sources,
    consumer: Consumer,
    queues: tuple[QueueCounts | Unknown, ...],
    metrics: Mapping[str, tuple[float | Unknown, int | Unknown]],
    tasks: Mapping[str, tuple[int, int] | Unknown | None],
    *,
    is_published: bool | Unknown,
) -> ConsumerFacts:
    """Return the state of a consumer, from what was read of its queues and services, and from its inbox.

    Args:
        sources: databases and services.
        consumer: as declared.
        queues: counts of its queue, its DLQ, and the DLQ for undelivered messages.
        metrics: by queue, the age of its oldest message and its length a quarter of an hour ago.
        tasks: by consumer, running and desired tasks.
        is_published: whether the outbox has sent messages. If it has, a database without a row of this consumer is
            taken for the wrong database.
    """
    queue, dead_letters, undelivered = queues
    engine = sources.inboxes[consumer.name]
    oldest, visible_before = metrics.get(naming.queue_name(sources.environment, consumer), _NO_METRICS)
    is_empty = isinstance(queue, QueueCounts) and queue.total == 0

    def read_inbox(connection: Connection) -> InboxFacts | Unknown:
        if is_published and not has_rows(connection, consumer.name):
            return Unknown(
                f"nothing of {consumer.name} is in this database; if its inbox has another one, give --inbox"
            )
        return _read_inbox(connection, consumer.name)

    return ConsumerFacts(
        consumer=consumer.name,
        queue=queue,
        dead_letters=dead_letters,
        undelivered=undelivered,
        oldest_seconds=None if is_empty else oldest,
        visible_before=visible_before,
        tasks=tasks[consumer.name],
        inbox=read(engine, read_inbox),
        last_redrive=_read_redrive(sources, engine, consumer.name, dead_letters),
    )


def _read_inbox(connection: Connection, consumer: str) -> InboxFacts:
    """Count the parked groups, the stored messages, and the dead and missing numbers of a consumer's inbox."""
    groups, parked, exceptions, redrives = (
        table.c for table in (inbox.groups, inbox.parked, inbox.exceptions, inbox.redrives)
    )
    now_us = engines.now_us(connection, None)
    is_held = select(1).where(
        parked.consumer == groups.consumer, parked.group_id == groups.group_id, parked.held_at_us.is_not(None)
    )
    is_unbounded = or_(groups.awaits_until_us.is_(None), groups.awaits_until_us == NEVER_US)
    is_awaiting = and_(groups.awaits_seq.is_not(None), groups.last_seq < groups.awaits_seq)
    is_parked = (groups.consumer == consumer, groups.parked_at_us.is_not(None))
    is_open = (exceptions.consumer == consumer, exceptions.closed_at_us.is_(None))
    numbers = func.coalesce(func.sum(exceptions.through - exceptions.seq + 1), 0)
    is_off = or_(redrives.off_at_us.is_not(None), redrives.held_until_us <= now_us)
    count = func.count()
    statements = {
        "parked_groups": select(count).select_from(inbox.groups).where(*is_parked),
        "blocked_groups": select(count).where(*is_parked, or_(is_held.exists(), and_(is_awaiting, is_unbounded))),
        "parked_messages": select(count).where(parked.consumer == consumer),
        "held_messages": select(count).where(parked.consumer == consumer, parked.held_at_us.is_not(None)),
        "dead": select(numbers).where(*is_open, exceptions.state == inbox.DEAD),
        "missing": select(numbers).where(*is_open, exceptions.state == inbox.GAP),
        "is_redrive_off": select(count).where(redrives.consumer == consumer, is_off),
    }
    found = {name: int(connection.execute(statement).scalar_one()) for name, statement in statements.items()}
    dead = select(exceptions.group_id, exceptions.reason, exceptions.seen_at_us).where(
        *is_open, exceptions.state == inbox.DEAD
    )
    rows = connection.execute(dead.limit(_REASONS_READ_MAX)).all()
    deaths = [(row.group_id, row.reason, row.seen_at_us) for row in rows]
    is_redrive_off = bool(found.pop("is_redrive_off"))
    pause = find_pause(connection, consumer)
    return InboxFacts(**found, is_redrive_off=is_redrive_off, reasons=group_reasons(deaths), pause=pause)


def _read_redrive(
    sources: Sources, engine: Engine | Unknown, consumer: str, dead_letters: QueueCounts | Unknown
) -> RedriveFacts | Unknown | None:
    """Return the last redrive of a consumer: of the inbox's audit, or of SQS's move tasks, whichever began later."""
    recorded = read(engine, lambda connection: _read_recorded_redrive(connection, consumer))
    native = (
        dead_letters
        if isinstance(dead_letters, Unknown)
        else sources.call("sqs", lambda sqs: MoveTasks(sqs, dead_letters.arn).list_latest())
    )
    task = None if isinstance(native, Unknown) or not native else native[0]
    if task is not None and (
        recorded is None or isinstance(recorded, Unknown) or task.started_at_us > recorded.begun_us
    ):
        note = f"{task.status.lower()}{'' if task.failure is None else f': {task.failure}'}"
        return RedriveFacts(
            engine="native",
            actor=None,
            begun_us=task.started_at_us,
            moved=task.moved,
            left={},
            states={},
            note=note,
        )
    return native if recorded is None and isinstance(native, Unknown) else recorded


def _read_recorded_redrive(connection: Connection, consumer: str) -> RedriveFacts | None:
    """Return the last redrive that the inbox's audit has; None where it has none.

    A run of `dlq redrive` is one row of the audit. Automatic redrive writes a row for each message.
    """
    a = inbox.audit.c
    latest = select(inbox.audit).where(a.consumer == consumer, a.action.in_(_REDRIVES)).order_by(a.id.desc()).limit(1)
    row = connection.execute(latest).one_or_none()
    if row is None:
        return None
    detail = json.loads(row.detail)
    if row.action != AUTOMATIC:
        places = [(group, epoch, seq) for group, epoch, seq in detail["moved"] if seq is not None]
        return RedriveFacts(
            engine=detail["engine"],
            actor=row.actor,
            begun_us=row.at_us,
            moved=detail["moved_count"],
            left=detail["left"],
            states=_states(connection, consumer, places),
            note=detail["error"],
        )
    acts = audit.acts(connection, a.consumer, consumer, most=_REASONS_READ_MAX)
    run = [
        (act["group_id"], json.loads(act["detail"])["epoch"], act["seq"], act["at_us"])
        for act in acts
        if act["action"] == AUTOMATIC and json.loads(act["detail"])["run"] == detail["run"]
    ]
    return RedriveFacts(
        engine="automatic",
        actor=row.actor,
        begun_us=min(at_us for *_, at_us in run),
        moved=len(run),
        left={},
        states=_states(connection, consumer, [(group, epoch, seq) for group, epoch, seq, _ in run]),
    )


def _states(connection: Connection, consumer: str, places: list[tuple[str, int, int]]) -> dict[str, int]:
    """Return the count of redriven messages in each state that they have now, by the state's name.

    A message that the inbox records as dead may be in the queue: after its redrive it may not have been received yet.

    Args:
        connection: to the inbox's database.
        consumer: the consumer's name.
        places: group, epoch and number of each redriven message.
    """
    names = {NumberState.REDRIVEN: "handled", NumberState.HANDLED: "handled", NumberState.FILLED: "handled"}
    snapshots = read_groups(connection, consumer, sorted({group for group, _, _ in places}))
    found: dict[str, int] = {}
    for group, epoch, seq in places:
        state = snapshots[group].state_of(epoch, seq)
        name = names.get(state, "dead or on its way" if state is NumberState.DEAD else state.value)
        found[name] = found.get(name, 0) + 1
    return found


_NO_METRICS: tuple[Unknown, Unknown] = (Unknown("its queue cannot be read"), Unknown("its queue cannot be read"))


def _read_metrics(
    sources: Sources, queues: list[QueueCounts | Unknown]
) -> dict[str, tuple[float | Unknown, int | Unknown]]:
    """Return, by queue, the age of its oldest message, and how many messages were visible a quarter of an hour ago.

    Only CloudWatch has the age.
    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    (read 2026-11-27)
    """
    names = [queue.name for queue in queues if isinstance(queue, QueueCounts)]
    if not names:
        return {}
    metrics_by_id = {
        "age": ("ApproximateAgeOfOldestMessage", "Maximum"),
        "seen": ("ApproximateNumberOfMessagesVisible", "Average"),
    }
    queries = [
        {
            "Id": f"{id_}{index}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/SQS",
                    "MetricName": metric,
                    "Dimensions": [{"Name": "QueueName", "Value": name}],
                },
                "Period": 60,
                "Stat": statistic,
            },
        }
        for index, name in enumerate(names)
        for id_, (metric, statistic) in metrics_by_id.items()
    ]
    now = utc(SystemClock().now_us())
    answer = sources.call(
        "cloudwatch",
        lambda cloudwatch: cloudwatch.get_metric_data(
            MetricDataQueries=queries,
            StartTime=now - timedelta(seconds=_METRICS_SECONDS),
            EndTime=now,
            ScanBy="TimestampDescending",
        ),
    )
    if isinstance(answer, Unknown):
        return dict.fromkeys(names, (answer, answer))
    values = {result["Id"]: result["Values"] for result in answer["MetricDataResults"]}
    no_value = Unknown("CloudWatch has no value of the last quarter of an hour")
    return {
        name: (
            values[f"age{index}"][0] if values.get(f"age{index}") else no_value,
            round(values[f"seen{index}"][-1]) if values.get(f"seen{index}") else no_value,
        )
        for index, name in enumerate(names)
    }


def _read_tasks(sources: Sources, consumers: tuple[Consumer, ...]) -> dict[str, tuple[int, int] | Unknown | None]:
    """Return, by consumer, how many tasks of its service run and how many are desired; None without a service.

    ECS describes at most ten services in a call.

    AWS: https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_DescribeServices.html (read 2026-11-27)
    """
    environment = sources.environment
    found: dict[str, tuple[int, int] | Unknown | None] = {consumer.name: None for consumer in consumers}
    services = {
        naming.service_name(environment, consumer.name): consumer.name
        for consumer in consumers
        if environment.database is not None and consumer.handlers is not None
    }
    names = list(services)
    for start in range(0, len(names), 10):
        ten_names = names[start : start + 10]
        describe = partial(_describe_services, naming.cluster_name(environment), ten_names)
        answer = sources.call("ecs", describe)
        if isinstance(answer, Unknown):
            found |= {services[name]: answer for name in ten_names}
            continue
        found |= {services[name]: Unknown(f"there is no service {name}") for name in ten_names}
        for service in answer["services"]:
            if service["serviceName"] in services:
                found[services[service["serviceName"]]] = (service["runningCount"], service["desiredCount"])
    return found


def _describe_services(cluster: str, names: list[str], ecs: Any) -> Any:
    """Call ECS; `Sources.call` gives the client."""
    return ecs.describe_services(cluster=cluster, services=names)


def _topic_needs(topic: TopicFacts) -> Iterator[tuple[str, str]]:
    """Yield (sentence, command that shows more) for each thing in a topic's outbox that waits for a person."""
    if not isinstance(topic.quarantined, Unknown) and topic.quarantined:
        yield (
            f"{Lag.count_text(topic.quarantined)} quarantined in the outbox of {topic.topic}: SNS refuses them",
            "sluice outbox ls --status quarantined",
        )
    waits = not isinstance(topic.pending, Unknown) and topic.pending > 0
    if waits and not isinstance(topic.leader, Unknown) and (topic.leader is None or not topic.leader.is_leading):
        yield f"no relay leads {topic.topic}, and messages wait", "start a relay, or look at its log"


def _consumer_needs(facts: ConsumerFacts) -> Iterator[tuple[str, str]]:
    """Yield (sentence, command that shows more) for each thing at a consumer that waits for a person."""
    name = facts.consumer
    if isinstance(facts.dead_letters, QueueCounts) and facts.dead_letters.total:
        yield f"about {facts.dead_letters.total} dead letters of {name}", f"sluice dlq ls --consumer {name}"
    if isinstance(facts.undelivered, QueueCounts) and facts.undelivered.total:
        yield (
            f"SNS could not deliver about {facts.undelivered.total} messages to {name}",
            f"sluice dlq inspect --undelivered --consumer {name}",
        )
    if isinstance(facts.inbox, Unknown):
        return
    found = facts.inbox
    if found.pause is not None:
        yield f"{name} is paused {found.pause.describe()}", f"sluice inbox resume --consumer {name} --reason"
    if found.dead and isinstance(facts.dead_letters, QueueCounts) and not facts.dead_letters.total:
        yield f"{found.dead} numbers of {name} are dead, and its DLQ is empty", "sluice outbox verify"
    elif found.dead and isinstance(facts.dead_letters, Unknown):
        yield f"{found.dead} numbers of {name} are dead", f"sluice dlq ls --consumer {name}"
    if found.blocked_groups:
        yield f"{found.blocked_groups} parked groups of {name} wait for somebody", f"sluice dlq ls --consumer {name}"
    if found.missing:
        yield f"{found.missing} numbers of {name} are missing: later ones came", "sluice outbox verify"
    if found.is_redrive_off:
        yield f"automatic redrive of {name} is off, or a run died", f"sluice dlq audit --consumer {name}"
