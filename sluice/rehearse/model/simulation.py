"""A service through a time of traffic: the queue and its tasks between two minutes, the control loop at each."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

import numpy as np

from sluice.declaration.metric_math import Series, Term
from sluice.rehearse.model import queue_simulation as queue
from sluice.rehearse.model.control_loop import USUAL, ControlLoop, LateSeries, ScalingDecision, Variant
from sluice.rehearse.model.policies import WAITING, MetricSource, ScaledService
from sluice.rehearse.model.queue_simulation import Integers, Work
from sluice.rehearse.model.traffic import NOTHING, Traffic

_MINUTE = 60.0
_SLOTS = 3
"""Places for tasks, as a multiple of the most that run, because stopping tasks may still have work."""
_FLAP_MINUTES = 30
CPU_SHARE = 0.3
"""How much of a lane's part of the processor a handler keeps busy, for policies on CPU."""
COLD_START_SECONDS = 2.0
"""From the decision to make an invocation more until its handler begins: an image of Python with its packages."""
_NO_GROUPS = 100_000
"""In so many groups, each in its turn, are the messages of a standard queue, which has none."""

TO_EXPRESSIONS: Mapping[tuple[str, str], str] = {
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"): "visible",
    ("AWS/SQS", "ApproximateNumberOfMessagesNotVisible"): "inflight",
    ("AWS/SQS", "ApproximateNumberOfGroupsWithInflightMessages"): "inflight",
    ("AWS/SQS", "ApproximateAgeOfOldestMessage"): "age",
    ("AWS/SQS", "NumberOfEmptyReceives"): "empty",
    ("AWS/SQS", "NumberOfMessagesReceived"): "received",
    ("AWS/SQS", "NumberOfMessagesSent"): "sent",
    ("AWS/SQS", "NumberOfMessagesDeleted"): "done",
    ("ECS/ContainerInsights", "RunningTaskCount"): "running",
    ("ECS/ContainerInsights", "DesiredTaskCount"): "desired",
    ("AWS/ECS", "CPUUtilization"): "cpu",
    (WAITING.namespace, WAITING.name): "visible",
}
"""The simulated metrics, to their names here and in the expressions of custom metrics."""
_TASKS_BY_SAMPLES = {("AWS/ECS", "CPUUtilization"), ("AWS/ECS", "MemoryUtilization")}


def simulated_series(metric: MetricSource) -> str | None:
    """Return which series a metric is; None if it is not simulated.

    ECS sends a sample of processor and memory for each running task in each minute. Other sample counts are not
    simulated.
    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/cloudwatch-metrics.html#cw_running_task_count_provided
    (read 2026-11-27).
    """
    key = (metric.namespace, metric.name)
    if metric.statistic == "SampleCount":
        return "running" if key in _TASKS_BY_SAMPLES else None
    return TO_EXPRESSIONS.get(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """The work of a service's tasks, which no template contains.

    Args:
        lanes: messages that a task works on at once.
        handler_seconds: how long a message is in its handler.
        acceptable_latency_seconds: how long a message may take from sent to handled.
        overhead_seconds: what a lane spends on a message outside the handler.
        start_seconds: from the decision to run a task until it polls.
        retry_seconds: how long a failed message stays hidden.
        visibility_seconds: how long a killed task's message stays hidden; None means the queue's timeout.
        protected_seconds: how long a task stays protected after its last message.
    """

    lanes: int
    handler_seconds: float
    acceptable_latency_seconds: float
    overhead_seconds: float = 0.02
    start_seconds: float = 60.0
    retry_seconds: float = 30.0
    visibility_seconds: float | None = None
    protected_seconds: float = 0.0

    @property
    def target_backlog(self) -> float:
        """Return how many messages a task may have in front of it so that the last of them is handled in time."""
        return self.acceptable_latency_seconds * self.lanes / self.handler_seconds


@dataclass(slots=True)
class SimulationResult:
    """The result of a simulation; series have one value a minute.

    Args:
        series: visible, inflight, running, desired, age, sent, done and more, by name.
        p95_seconds: 95th percentile of the latencies of a minute's handled messages; None if there were none.
        latencies: how many messages had which latency, by bin; remaining messages count with the time that they waited.
        decisions: minute, tasks before, tasks after, and the policy.
        left: messages that were not handled at the end and had waited longer than is acceptable.
        killed: messages whose task was killed during their handling.
        dead: messages that were dead-lettered.
        first_task_seconds: longest time from a message's arrival at zero tasks to the first task; None if there was
            none.
    """

    series: dict[str, list[float | None]] = field(default_factory=lambda: defaultdict(list))
    p95_seconds: list[float | None] = field(default_factory=list)
    latencies: Integers = field(default_factory=lambda: np.zeros(queue.BIN_COUNT, dtype=np.int64))
    decisions: list[tuple[int, int, int, str]] = field(default_factory=list)
    left: int = 0
    killed: int = 0
    dead: int = 0
    first_task_seconds: float | None = None

    def quantile_seconds(self, share: float) -> float | None:
        """Return the latency that this share of the messages does not exceed; None without messages."""
        return queue.quantile(self.latencies, share)

    @property
    def task_hours(self) -> float:
        """Return the paid hours of tasks: each from the decision to run it to its end."""
        return (
            sum(max(a or 0, b or 0) for a, b in zip(self.series["desired"], self.series["running"], strict=True)) / 60
        )

    @property
    def most_tasks(self) -> int:
        """Return the most tasks there were at once."""
        return int(max((value or 0 for value in self.series["desired"]), default=0))

    @property
    def oldest_seconds(self) -> float:
        """Return how long a message waited at the end of any minute, at most."""
        return max((value or 0.0 for value in self.series["age"]), default=0.0)

    @property
    def flaps(self) -> int:
        """Return how often scaling turned round within half an hour."""
        turns = 0
        for (minute, before, after, _), (later, later_before, later_after, _) in zip(
            self.decisions, self.decisions[1:], strict=False
        ):
            turns += (after > before) != (later_after > later_before) and later - minute <= _FLAP_MINUTES
        return turns


@dataclass(frozen=True, slots=True)
class KnownMetrics:
    """The metrics of a service that a policy sees.

    Args:
        service: the service. Metrics of another queue are those of an empty queue. Metrics of another service have no
            data points; nor has a metric with dimensions that nobody reports, or its own metrics without Container
            Insights.
        series: the simulated values, by name.
        lag_minutes: how late SQS's metrics and custom metrics arrive.
        ecs_lag_minutes: how late metrics of ECS arrive.
        own: custom metrics, by namespace and name, as expressions of the names in `TO_EXPRESSIONS`.
    """

    service: ScaledService
    series: Mapping[str, Sequence[float | None]]
    lag_minutes: int
    ecs_lag_minutes: int = USUAL.ecs_lag_minutes
    own: Mapping[tuple[str, str], Term] = field(default_factory=dict)
    _published: dict[tuple[str, str], list[float | None]] = field(default_factory=dict, init=False)

    def __call__(self, metric: MetricSource) -> Series:
        """Return the values of a metric that are known now."""
        minutes = len(self.series["visible"])
        if not self.is_reported(metric):
            return [None] * minutes
        if self._is_of_another_queue(metric):
            return [0.0] * minutes
        if (metric.namespace, metric.name) in self.own:
            term = self.own[metric.namespace, metric.name]
            values = self._published.setdefault((metric.namespace, metric.name), [])
            new = range(len(values), minutes)
            values.extend(term.value_at(self.series, minute) for minute in new)
            return LateSeries(values, self.lag_minutes)
        if metric.namespace == WAITING.namespace:
            return self.series[TO_EXPRESSIONS[metric.namespace, metric.name]]
        lag_minutes = self.lag_minutes if metric.namespace == "AWS/SQS" else self.ecs_lag_minutes
        return LateSeries(self.series[simulated_series(metric) or ""], lag_minutes)

    def is_reported(self, metric: MetricSource) -> bool:
        """Return whether anybody reports a metric by its dimensions, of a queue or of the service itself."""
        if (metric.namespace, metric.name) in self.own:
            return True
        if simulated_series(metric) is None:
            return False
        if metric.namespace == "AWS/SQS":
            return self.service.queue is None or [*metric.dimensions] == ["QueueName"]
        if metric.namespace == WAITING.namespace:
            return True
        is_on = self.service.has_insights or metric.namespace != "ECS/ContainerInsights"
        return is_on and metric.dimensions == self.service.dimensions

    def _is_of_another_queue(self, metric: MetricSource) -> bool:
        queue = self.service.queue
        return queue is not None and metric.dimensions.get("QueueName", queue.name) != queue.name


def work_of(service: ScaledService, tasks: TaskWork, outage_ends_at: float = 0.0) -> Work:
    """Return how a service's tasks work, including the facts in its template."""
    settings = service.queue
    default_seconds = 30 if settings is None else settings.visibility_timeout_seconds
    return Work(
        lanes=tasks.lanes,
        handler_seconds=tasks.handler_seconds,
        overhead_seconds=tasks.overhead_seconds,
        visibility_seconds=float(default_seconds if tasks.visibility_seconds is None else tasks.visibility_seconds),
        retry_seconds=tasks.retry_seconds,
        max_receive_count=0 if settings is None else settings.max_receive_count or 0,
        stop_timeout_seconds=float(service.stop_timeout_seconds),
        start_seconds=tasks.start_seconds,
        is_protected=service.is_protected,
        outage_ends_at=outage_ends_at,
        protected_seconds=tasks.protected_seconds,
    )


def simulate(
    service: ScaledService,
    traffic: Traffic,
    tasks: TaskWork,
    *,
    variant: Variant = USUAL,
    own: Mapping[tuple[str, str], Term] | None = None,
    progress: Callable[[int], object] = lambda _minute: None,
) -> SimulationResult:
    """Return the result of a service on traffic. It begins with an empty queue and the fewest tasks.

    It continues after the last message until the queue is empty, or every remaining message is later than is
    acceptable. So the latency of the last messages is known, or too long.

    Args:
        service: the service that scales.
        traffic: the messages that are sent.
        tasks: how its tasks work.
        variant: the assumed behaviour of AWS where sources differ.
        own: custom metrics that its policies name, as expressions.
        progress: called after each simulated minute.
    """
    tasks = _of_invocations(tasks) if service.mapping is not None else tasks
    work = work_of(service, tasks, traffic.outage_ends_at)
    is_fifo = service.queue is None or service.queue.is_fifo
    groups, sent = traffic.group_count if is_fifo else _NO_GROUPS, 0
    state = queue.new_state(groups=groups, task_slots=_SLOTS * service.max_tasks + 2, lanes=tasks.lanes)
    outcome, loop, desired = SimulationResult(), ControlLoop(service, variant), service.min_tasks
    asleep_since: float | None = None
    known = KnownMetrics(service, outcome.series, variant.lag_minutes, variant.ecs_lag_minutes, own or {})
    state = queue.with_room(state, 0)
    state.now[0] = -work.start_seconds
    queue.scale(state, work, desired)
    queue.advance(state, work, 0.0, NOTHING, outcome.latencies)
    overtime = math.ceil(tasks.acceptable_latency_seconds / _MINUTE) + 1
    for minute, drawn in enumerate(chain(traffic.each_minute(), repeat(NOTHING, overtime))):
        if minute >= traffic.minutes and not queue.waiting_count(state):
            break
        arrivals = drawn if is_fifo else drawn._replace(group=(sent + np.arange(len(drawn.sent_at))) % groups)
        sent += len(arrivals.sent_at)
        if len(arrivals.sent_at) and asleep_since is None and desired == 0:
            asleep_since = float(arrivals.sent_at[0])
        state = queue.with_room(state, len(arrivals.sent_at))
        latencies = np.zeros(queue.BIN_COUNT, dtype=np.int64)
        measures = queue.advance(state, work, (minute + 1) * _MINUTE, arrivals, latencies)
        _note(outcome, queue.minute_of(measures), tasks, desired, latencies)
        outcome.series["age"].append(queue.oldest_seconds(state))
        if asleep_since is not None and outcome.series["running"][-1]:
            waited_seconds = max(0.0, _start_seconds(minute, outcome) - asleep_since)
            outcome.first_task_seconds = max(waited_seconds, outcome.first_task_seconds or 0.0)
            asleep_since = None
        decision = loop.decide(minute, desired, known)
        desired = _carry_out(state, work, outcome, minute, desired, decision)
        progress(min(minute, traffic.minutes - 1))
    outcome.left = queue.count_left(state, outcome.latencies)
    return outcome


def _of_invocations(tasks: TaskWork) -> TaskWork:
    """Return how invocations work: on one message each, and they start sooner than tasks."""
    return replace(tasks, lanes=1, start_seconds=min(tasks.start_seconds, COLD_START_SECONDS))


def _start_seconds(minute: int, outcome: SimulationResult) -> float:
    """Return when a task began to run within its first minute, from the share of the minute in which it ran."""
    return (minute + 1 - min(1.0, outcome.series["running"][-1] or 0.0)) * _MINUTE


def _carry_out(
    state: queue.QueueState, work: Work, outcome: SimulationResult, minute: int, desired: int, decision: ScalingDecision
) -> int:
    if decision.desired != desired:
        outcome.decisions.append((minute, desired, decision.desired, decision.because or ""))
        queue.scale(state, work, decision.desired)
    return decision.desired


def _note(
    outcome: SimulationResult, measured: queue.Minute, tasks: TaskWork, desired: int, latencies: Integers
) -> None:
    """Add a minute to the series."""
    series = outcome.series
    handling = tasks.handler_seconds / (tasks.handler_seconds + tasks.overhead_seconds)
    lanes = measured.running * tasks.lanes
    series["visible"].append(float(measured.visible))
    series["inflight"].append(float(measured.in_flight - measured.busy_lanes * (1 - handling)))
    series["running"].append(float(measured.running) if measured.running > 0 else None)
    series["desired"].append(float(desired))
    series["empty"].append(float(measured.empty_receives))
    for name in ("received", "sent", "done", "dead", "killed"):
        series[name].append(float(getattr(measured, name)))
    series["cpu"].append(float(100 * CPU_SHARE * measured.busy_lanes / lanes) if lanes else None)
    outcome.killed += int(measured.killed)
    outcome.dead += int(measured.dead)
    outcome.latencies += latencies
    outcome.p95_seconds.append(queue.quantile(latencies, 0.95))
