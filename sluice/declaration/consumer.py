"""The declaration of a consumer of a topic: its queue, its workers, its inbox, and the rules that relate the fields."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import Enum
from typing import TypedDict

from sluice import limits
from sluice.declaration import backlog
from sluice.declaration.fields import filters
from sluice.declaration.fields.automatic_redrive import AutomaticRedrive
from sluice.declaration.fields.existing import ExistingQueue
from sluice.declaration.fields.functions import CONNECTIONS, RECEIVES_OF_AN_ATTEMPT, Lambda
from sluice.declaration.fields.image import check_image
from sluice.declaration.fields.topics import LABEL
from sluice.declaration.metric_math import Term
from sluice.declaration.validation import between, declaration_class, matching, refuse, require, satisfying

DRAINS_MIN = 2
"""The least number of a worker's drainer threads; it has as many as its lanes have connections if that is more."""
RETRY_SECONDS_MAX = 300
"""The longest time that a worker waits before it tries a failing message again."""
HANDLER_TIMEOUTS_MAX = 10
"""A handler of a worker that takes longer than so many visibility timeouts has failed."""
_INBOX_RETENTION_SECONDS_MAX = 315_360_000  # ten years
_RETENTION = (limits.MESSAGE_RETENTION_SECONDS_MIN, limits.MESSAGE_RETENTION_SECONDS_MAX)


class _Pace(TypedDict):
    """The arguments of the scaling expressions that say how fast a task is."""

    lanes: int
    processing_seconds: float


class _Bounds(TypedDict):
    """The arguments of the expressions in a function's alarms: how late is too late, how many invocations may run."""

    acceptable_latency_seconds: float
    concurrency_max: int


class Poison(Enum):
    """The fate of messages behind a dead one: SKIP handles them, PARK stores them until the dead one is handled."""

    SKIP = "skip"
    PARK = "park"


class Gaps(Enum):
    """A worker's answer to a missing number of a group: record it, wait for a while, or wait for an operator."""

    RECORD = "record"
    WAIT = "wait"
    HALT = "halt"


class Commit(Enum):
    """The effects that a worker commits at once: those of one event, or of all events of a bundle."""

    EVENT = "event"
    BUNDLE = "bundle"


@declaration_class
class Consumer:
    """One service that gets a topic's messages, through a queue of its own with a DLQ of its own.

    Args:
        name: lower-case letters, digits and inner hyphens; part of the queue's name.
        topic: which of the environment's topics it gets, by name; None where there is one.
        fifo: False makes a standard queue, which costs less and promises less: messages of a group come in any order,
            side by side and sometimes twice, and nothing may be parked. The inbox still handles each once.
        queue: an existing queue in place of one of the environment's own; `fifo` says of which type.
        types: types of the events that it is for. It passes over all others: they are counted as handled, so that a
            missing number is still seen, and no handler is called. None: it is for whatever comes, passes over what
            other consumers of its topic name here, and what it has no handler for goes to its DLQ.
        filter_policy: SNS filter policy on message attributes, attribute name to conditions, or `$or` to policies one
            of which has to match; None delivers everything. All attributes of an outbox's events are text, so no
            number, true or null matches, unless others publish to its topic. With one, a group's sequence has lawful
            gaps.
        visibility_timeout_seconds: how long a received message stays with its consumer before it is delivered again.
        max_attempts: receives before a message is dead-lettered; with one message per receive this is the queue's
            maxReceiveCount. With `runtime`, or bundles of its topic: failures of its handler, which the inbox counts.
        message_retention_seconds: how long the queue keeps a message that nobody deletes.
        dead_letter_retention_seconds: the same for its DLQs; never shorter than the queue's.
        processing_seconds: how long the handler takes with one message, on average.
        acceptable_latency_seconds: how long a message may wait; scaling aims at it, and an alarm rings above it.
        lanes: message groups that one task works on at once, each with one message.
        database_connections: how many connections to the inbox's database the lanes of one task have at once; None is
            one each. A lane takes one before its handler; before one that takes an `AsyncSession`, at the first use of
            that session.
        expected_groups: message groups active at the same time; more lanes than groups never have work.
        min_tasks: tasks that always run; 0 saves them and costs the first message minutes.
        max_tasks: tasks that run at most.
        stop_timeout_seconds: how long a stopping task may finish or release its messages before it is killed.
        cpu: CPU units of a task; 1024 are one vCPU.
        memory_mib: memory of a task.
        image: the worker's container image where it differs from the environment's; None means that one.
        handlers: Python module with the consumer's handlers, in that image; None means that its worker does not start.
        commit: what its worker commits at once, where a message is a bundle of events: `Commit.BUNDLE` is faster. If an
            event fails, handlers of those before it are called a second time. None may take an `AsyncSession`.
        poison: what becomes of a group whose message is dead-lettered.
        gaps: what a worker does when a number of a group is missing.
        gap_wait_seconds: how long `Gaps.WAIT` waits for the number.
        joined_at: when it joined a topic that was in use already, aware; older groups begin with the first of their
            messages that comes. None: it is there from the topic's first message, and expects every group's first.
        inbox_retention_seconds: how long the inbox remembers a group without a new message.
        automatic_redrive: bring dead letters back without an operator, within these bounds; None never does.
        runtime: a Lambda function runs its handlers; None: an ECS service does.
        stack: its queues, its service and its alarms are in stacks of this name beside the environment's, for consumers
            that CloudFormation has no room for in those; None: in those. Of a consumer that is deployed it stays as it
            is: in other stacks its queues would be others.
    """

    name: str = matching(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", "lower-case letters, digits and single inner hyphens")
    topic: str | None = None
    fifo: bool = True
    queue: ExistingQueue | None = None
    types: tuple[str, ...] | None = satisfying(
        lambda seen: seen and all(re.fullmatch(r"(?!sluice\.)[A-Za-z0-9_.-]{1,256}", type_) for type_ in seen),
        "one or more types such as 'order.placed': letters, digits and . _ -, not beginning with 'sluice.'; or None",
        default=None,
    )
    filter_policy: Mapping[str, Sequence[object]] | None = field(default=None, hash=False)
    visibility_timeout_seconds: int = between(1, limits.VISIBILITY_TIMEOUT_SECONDS_MAX, "seconds", default=60)
    max_attempts: int = between(limits.MAX_RECEIVE_COUNT_MIN, limits.MAX_RECEIVE_COUNT_MAX, "receives", default=5)
    message_retention_seconds: int = between(*_RETENTION, "seconds", default=345_600)
    dead_letter_retention_seconds: int = between(*_RETENTION, "seconds", default=limits.MESSAGE_RETENTION_SECONDS_MAX)
    processing_seconds: float = satisfying(
        lambda seen: 0 < seen <= limits.VISIBILITY_TIMEOUT_SECONDS_MAX,
        f"more than 0, at most {limits.VISIBILITY_TIMEOUT_SECONDS_MAX} seconds",
        default=1.0,
    )
    acceptable_latency_seconds: int = 60
    lanes: int = between(1, limits.FIFO_WINDOW_MESSAGES, "message groups", default=4)
    database_connections: int | None = satisfying(lambda seen: seen >= 1, "1 or more, or None", default=None)
    expected_groups: int = satisfying(lambda seen: seen >= 1, "1 or more", default=100)
    min_tasks: int = 1
    max_tasks: int = between(1, limits.TASKS_PER_SERVICE_MAX, "tasks", default=10)
    stop_timeout_seconds: int = between(1, limits.STOP_TIMEOUT_SECONDS_MAX, "seconds", default=30)
    cpu: int = satisfying(
        limits.FARGATE_MEMORY_MIB.__contains__, f"one of {', '.join(map(str, limits.FARGATE_MEMORY_MIB))}", default=256
    )
    memory_mib: int = 512
    image: str | None = None
    handlers: str | None = matching(
        r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "the name of a Python module such as 'orders.billing', or None", default=None
    )
    commit: Commit = Commit.EVENT
    poison: Poison = Poison.SKIP
    gaps: Gaps = Gaps.RECORD
    gap_wait_seconds: int = between(1, 86_400, "seconds", default=300)
    joined_at: datetime | None = satisfying(
        lambda seen: seen.utcoffset() is not None,
        "an instant with its time zone, such as datetime(2026, 11, 22, tzinfo=UTC), or None",
        default=None,
    )
    inbox_retention_seconds: int = 5_184_000
    automatic_redrive: AutomaticRedrive | None = None
    runtime: Lambda | None = None
    stack: str | None = matching(LABEL[0], f"{LABEL[1]}, or None", default=None)

    @property
    def parks(self) -> bool:
        """Return whether workers may store messages of a group in the inbox until a missing one has come."""
        return self.poison is Poison.PARK or self.gaps is not Gaps.RECORD

    def max_receive_count(self, bundle_events_max: int) -> int:
        """Return the queue's maxReceiveCount: `max_attempts`, or with a Lambda function its `receives_max`.

        Where messages may be bundles of events, receives are no attempts at an event: then it is SQS's maximum.
        `Environment.max_receive_count` knows how many events the consumer's topic allows.
        """
        if self.runtime is not None:
            return self.runtime.receives_max
        return self.max_attempts if bundle_events_max == 1 else limits.MAX_RECEIVE_COUNT_MAX

    @property
    def maintenance_minutes(self) -> int:
        """Return after how many minutes a schedule invokes the consumer's Lambda function, again and again.

        That invocation handles parked messages whose turn has come and deletes old groups. Only parked messages are
        urgent. It may take as long as the function's timeout, and ends before the next one begins.
        """
        if not self.parks:
            return 60
        return 1 if self.runtime is None else math.ceil(self.runtime.timeout_seconds / 60)

    @property
    def connections_per_task(self) -> int:
        """Return how many connections to the inbox's database a task has at most.

        Each lane has one, unless `database_connections` says fewer. Each drainer thread has one, if the consumer parks.
        Two more are for the thread that finds parked groups and the one that measures.
        """
        of_lanes = self.lanes if self.database_connections is None else self.database_connections
        return of_lanes + (max(of_lanes, DRAINS_MIN) if self.parks else 0) + 2

    @property
    def connections_max(self) -> int:
        """Return how many connections to the inbox's database all tasks, or all invocations, have together at most."""
        if self.runtime is None:
            return self.max_tasks * self.connections_per_task
        return (self.runtime.concurrency_max + 1) * CONNECTIONS  # the schedule's invocation comes on top

    @property
    def target_backlog(self) -> float:
        """Return how many messages may wait for each task so that all are handled within the acceptable latency."""
        return backlog.target_backlog(acceptable_latency_seconds=self.acceptable_latency_seconds, **self._pace)

    @property
    def demand_per_task(self) -> Term:
        """Return the expression that the consumer's ECS service is scaled on."""
        return backlog.demand_per_task(self.target_backlog, **self._pace)

    @property
    def group_stuck(self) -> Term:
        """Return the expression that is 1 while a group of the consumer's queue is stuck."""
        if self.runtime is not None:
            return backlog.late_with_concurrency_left(**self._bounds(self.runtime))
        return backlog.group_stuck(acceptable_latency_seconds=self.acceptable_latency_seconds, **self._pace)

    @property
    def capacity_pinned(self) -> Term:
        """Return the expression that is 1 while all allowed tasks or invocations run and are not enough."""
        if self.runtime is not None:
            return backlog.late_with_all_concurrency(**self._bounds(self.runtime))
        return backlog.capacity_pinned(self.target_backlog, max_tasks=self.max_tasks, **self._pace)

    def _bounds(self, function: Lambda) -> _Bounds:
        return {
            "acceptable_latency_seconds": self.acceptable_latency_seconds,
            "concurrency_max": function.concurrency_max,
        }

    @property
    def _pace(self) -> _Pace:
        return {"lanes": self.lanes, "processing_seconds": self.processing_seconds}

    def __post_init__(self) -> None:
        _check_name(self)
        _check_queue(self)
        _check_scaling(self)
        _check_task(self)
        _check_inbox(self)
        if self.runtime is not None:
            _check_function(self, self.runtime)


def _check_name(consumer: Consumer) -> None:
    """Refuse a name that another queue, service or alarm of the environment has."""
    require(
        consumer,
        not consumer.name.endswith(("dlq", "dead-letter", "undelivered")),
        field="name",
        allowed="a name not ending in 'dlq', 'dead-letter' or 'undelivered', which its DLQs' names end in",
    )
    for taken, owner in {"relay": "the relay's service has", "topic": "the topic's alarms have"}.items():
        require(consumer, consumer.name != taken, field="name", allowed=f"another name: {owner} this one")


def _check_queue(consumer: Consumer) -> None:
    """Refuse a queue of the wrong type, retentions that lose messages, and a filter policy that SNS refuses."""
    require(
        consumer,
        consumer.queue is None or consumer.queue.is_fifo == consumer.fifo,
        field="fifo",
        allowed=f"{not consumer.fifo}, as the name of its existing queue says",
    )
    require(
        consumer,
        consumer.dead_letter_retention_seconds >= consumer.message_retention_seconds,
        field="dead_letter_retention_seconds",
        allowed=f"at least message_retention_seconds ({consumer.message_retention_seconds})",
    )
    visibility_seconds = consumer.visibility_timeout_seconds
    attempts_seconds = (consumer.max_attempts - 1) * max(visibility_seconds, RETRY_SECONDS_MAX) + visibility_seconds
    require(
        consumer,
        attempts_seconds < consumer.message_retention_seconds,
        field="message_retention_seconds",
        allowed=(
            f"more than {attempts_seconds}, which max_attempts ({consumer.max_attempts}) may take with"
            f" visibility_timeout_seconds ({visibility_seconds}) each, or a wait of up to {RETRY_SECONDS_MAX} s between"
            " two, or a failing message expires before it is dead-lettered; raise it, or lower max_attempts"
        ),
    )
    fault = None if consumer.filter_policy is None else filters.fault(consumer.filter_policy)
    if fault is not None:
        refuse(Consumer, consumer.name, field=f"filter_policy{fault.where}", seen=fault.seen, allowed=fault.allowed)


def _check_scaling(consumer: Consumer) -> None:
    """Refuse a latency that cannot be met, and numbers of tasks that could not all work."""
    latency_seconds = consumer.acceptable_latency_seconds
    require(
        consumer,
        consumer.processing_seconds <= latency_seconds < consumer.message_retention_seconds / 2,
        field="acceptable_latency_seconds",
        allowed=(
            f"at least processing_seconds ({consumer.processing_seconds:g}) and less than half of"
            f" message_retention_seconds ({consumer.message_retention_seconds / 2:g})"
        ),
    )
    if consumer.runtime is not None:
        return  # the rest is about tasks
    require(
        consumer,
        0 <= consumer.min_tasks <= consumer.max_tasks,
        field="min_tasks",
        allowed=f"0 to {consumer.max_tasks} tasks (max_tasks)",
    )
    useful_tasks = -(-consumer.expected_groups // consumer.lanes)
    require(
        consumer,
        consumer.max_tasks <= useful_tasks or not consumer.fifo,
        field="max_tasks",
        allowed=(
            f"at most expected_groups / lanes ({useful_tasks}): a group is worked on by one lane at a time, so further"
            " tasks never have work"
        ),
    )
    require(
        consumer,
        consumer.min_tasks > 0 or latency_seconds >= limits.WAKE_FROM_ZERO_SECONDS,
        field="min_tasks",
        allowed=(
            f"1 or more while acceptable_latency_seconds ({latency_seconds}) is under"
            f" {limits.WAKE_FROM_ZERO_SECONDS}: an idle queue's metrics, which wake it, come up to 15 minutes late"
        ),
    )
    backlog_max = consumer.target_backlog * consumer.max_tasks
    require(
        consumer,
        backlog_max <= limits.FIFO_WINDOW_MESSAGES or not consumer.fifo,
        field="acceptable_latency_seconds",
        allowed=(
            f"a target backlog (latency x lanes / processing_seconds) x max_tasks of at most"
            f" {limits.FIFO_WINDOW_MESSAGES} messages ({backlog_max:g} here): behind more, SQS finds no further groups"
        ),
    )


def _check_task(consumer: Consumer) -> None:
    """Refuse timeouts, connections, memory and images with which a task could not work."""
    stopping_seconds = consumer.processing_seconds + consumer.stop_timeout_seconds
    require(
        consumer,
        consumer.visibility_timeout_seconds > stopping_seconds or consumer.runtime is not None,
        field="visibility_timeout_seconds",
        allowed=(
            f"more than processing_seconds + stop_timeout_seconds ({stopping_seconds:g}), or a stopping task's message"
            " is delivered to another while it still works on it"
        ),
    )
    require(
        consumer,
        consumer.database_connections is None or consumer.database_connections <= consumer.lanes,
        field="database_connections",
        allowed=f"1 to lanes ({consumer.lanes}), or None: a lane has one at a time",
    )
    memory = limits.FARGATE_MEMORY_MIB[consumer.cpu]
    require(
        consumer,
        consumer.memory_mib in memory,
        field="memory_mib",
        allowed=f"with cpu {consumer.cpu} one of {', '.join(map(str, memory))}",
    )
    check_image(consumer)


def _check_inbox(consumer: Consumer) -> None:
    """Refuse parking where missing numbers are lawful, an inbox that forgets too soon, and a redrive without one."""
    require(
        consumer,
        consumer.poison is not Poison.PARK or consumer.gaps is not Gaps.RECORD,
        field="gaps",
        allowed="Gaps.WAIT or Gaps.HALT with Poison.PARK: what kills its worker at every try is dead-lettered by the"
        " queue alone, and shows only as a missing number",
    )
    for name, is_parking in (("poison", consumer.poison is Poison.PARK), ("gaps", consumer.gaps is not Gaps.RECORD)):
        require(
            consumer,
            consumer.filter_policy is None or not is_parking,
            field=name,
            allowed="Poison.SKIP and Gaps.RECORD with a filter policy: it leaves lawful gaps that look like losses",
        )
        require(
            consumer,
            consumer.fifo or not is_parking,
            field=name,
            allowed="Poison.SKIP and Gaps.RECORD with a standard queue: there a missing number is only late",
        )
    require(
        consumer,
        consumer.commit is Commit.EVENT or (consumer.fifo and consumer.max_attempts > 1),
        field="commit",
        allowed="Commit.EVENT with a standard queue, which has no bundles, and with max_attempts 1: then each attempt"
        " is recorded before its handler, in a transaction of its own",
    )
    way_seconds = 2 * consumer.message_retention_seconds + consumer.dead_letter_retention_seconds
    require(
        consumer,
        way_seconds < consumer.inbox_retention_seconds <= _INBOX_RETENTION_SECONDS_MAX,
        field="inbox_retention_seconds",
        allowed=f"more than 2 x message_retention_seconds + dead_letter_retention_seconds ({way_seconds}), the way of a"
        f" message through the queue, its DLQ and back, and at most {_INBOX_RETENTION_SECONDS_MAX}",
    )
    require(
        consumer,
        consumer.automatic_redrive is None or consumer.handlers is not None,
        field="automatic_redrive",
        allowed="None without handlers: what keeps it within its bounds is in the inbox of its workers",
    )
    require(
        consumer,
        consumer.automatic_redrive is None or consumer.fifo,
        field="automatic_redrive",
        allowed="None with a standard queue: messages come back in the order of their groups, which it does not have",
    )


def _check_function(consumer: Consumer, function: Lambda) -> None:
    """Refuse timeouts and receives that do not fit the consumer's Lambda function, and a function without handlers."""
    hidden_seconds = limits.FUNCTION_TIMEOUTS_HIDDEN * function.timeout_seconds
    require(
        consumer,
        consumer.visibility_timeout_seconds >= hidden_seconds,
        field="visibility_timeout_seconds",
        allowed=(
            f"at least {limits.FUNCTION_TIMEOUTS_HIDDEN} x its function's timeout_seconds ({hidden_seconds}): AWS tries"
            " a throttled batch again for so long"
        ),
    )
    batch_seconds = function.batch_size * consumer.processing_seconds
    require(
        consumer,
        batch_seconds <= function.timeout_seconds,
        field="processing_seconds",
        allowed=(
            f"at most timeout_seconds / batch_size of its function"
            f" ({function.timeout_seconds / function.batch_size:g}), or a whole batch never comes to its end in time"
        ),
    )
    attempts_max = function.receives_max // (RECEIVES_OF_AN_ATTEMPT * function.batch_size)
    require(
        consumer,
        consumer.max_attempts <= attempts_max,
        field="max_attempts",
        allowed=(
            f"at most receives_max / ({RECEIVES_OF_AN_ATTEMPT} x batch_size) of its function ({attempts_max}): each"
            " attempt at a message is a receive of all behind it in its batch, and SQS would dead-letter them before"
            " they are tried"
        ),
    )
    require(
        consumer,
        consumer.handlers is not None,
        field="runtime",
        allowed="None without handlers: its function would have nothing to run",
    )
    require(
        consumer,
        consumer.fifo,
        field="runtime",
        allowed="None with a standard queue: its handlers run in an ECS service",
    )
