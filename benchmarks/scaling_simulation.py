"""Rehearse the autoscaling: a queue, its groups, its tasks, and the alarms AWS derives from the scaling expression.

    python -m benchmarks.scaling_simulation

A plain loop: the queue in seconds, metrics and alarms in minutes. It models what decides here and leaves out the rest:
groups are served by one lane at a time; lanes without work long-poll and come back empty every 20 s; metrics arrive
late; target tracking scales out after 3 minutes above its target and in after 15 below 90 % of it, in proportion
(https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html, read
2026-11-20; the periods are those of the alarms AWS creates). Cooldowns are those of sluice/constructs/scaling.py: while
scaling out rests, what is asked for is reckoned from the tasks there were before; the wake policy adds one task and
then rests, whatever its alarm says. Not validated against AWS.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from sluice.scaling import backlog
from sluice.scaling.backlog import AGE, EMPTY_RECEIVES, IN_FLIGHT, RECEIVED, RUNNING, RUNNING_TASKS, VISIBLE, repeated
from sluice.scaling.metric_math import Fill, If, Metric, Number, Operation, Term

_MINUTE = 60
_LONG_POLL_SECONDS = 20
_HIGH_MINUTES, _LOW_MINUTES, _LOW_SHARE = 3, 15, 0.9
_SCALE_IN_COOLDOWN_MINUTES, _WAKE_COOLDOWN_MINUTES = 5, 15
GROUPS = "groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A load and the service that meets it.

    Args:
        name: for the table.
        arrivals: second -> messages that arrive in it, by group; the generator draws which group.
        group_shares: each group's share of the arrivals.
        processing_seconds: one message takes this long; so long it is in flight.
        overhead_seconds: a lane also spends this on each message between its delete and the next receive.
        acceptable_latency_seconds: what the service is scaled for.
        lanes: groups a task works on at once.
        min_tasks: never fewer.
        max_tasks: never more.
        minutes: how long it is simulated.
        lag_minutes: how late the SQS metrics come; the number of running tasks comes at once.
        lags: how late single metrics come, by id, where that is not so.
        start_minutes: from the decision to run a task until it polls.
        scale_out_rest_minutes: the scale-out cooldown.
    """

    name: str
    arrivals: Callable[[int], float]
    group_shares: Sequence[float]
    processing_seconds: float = 1
    overhead_seconds: float = 0.02
    acceptable_latency_seconds: float = 60
    lanes: int = 4
    min_tasks: int = 1
    max_tasks: int = 20
    minutes: int = 120
    lag_minutes: int = 2
    lags: Mapping[str, int] = field(default_factory=dict)
    start_minutes: int = 0
    scale_out_rest_minutes: int = 5

    def lag(self, metric: str) -> int:
        """Return how many minutes late a metric comes."""
        return self.lags.get(metric, 0 if metric == RUNNING else self.lag_minutes)

    @property
    def target(self) -> float:
        """Return the target backlog per task."""
        return backlog.target_backlog(
            acceptable_latency_seconds=self.acceptable_latency_seconds,
            processing_seconds=self.processing_seconds,
            lanes=self.lanes,
        )


@dataclass(slots=True)
class SimulationResult:
    """What came of it: task minutes paid for, messages done, their latencies; tasks asked for and metrics by minute."""

    task_minutes: float = 0
    done: int = 0
    latencies: list[float] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    metrics: dict[str, list[float | None]] = field(
        default_factory=lambda: {
            name: [] for name in (VISIBLE, IN_FLIGHT, EMPTY_RECEIVES, RECEIVED, AGE, RUNNING, GROUPS)
        }
    )

    @property
    def p95_seconds(self) -> float:
        """Return the 95th percentile of the time from arrival to done, in seconds."""
        return sorted(self.latencies)[int(len(self.latencies) * 0.95)] if self.latencies else math.nan


class _Queue:
    """A FIFO queue: arrival times by group, and how far each group's first message is worked on."""

    def __init__(self, groups: int, processing_seconds: float) -> None:
        self.waiting: list[deque[float]] = [deque() for _ in range(groups)]
        self._progress = [0.0] * groups
        self._processing = processing_seconds
        self._next = 0

    @property
    def count(self) -> int:
        """Return all messages not yet done."""
        return sum(map(len, self.waiting))

    def age(self, second: int) -> float:
        """Return the age of the oldest message not yet done."""
        return max((second - arrivals[0] for arrivals in self.waiting if arrivals), default=0.0)

    def work(self, lanes: int, second: int, outcome: SimulationResult) -> float:
        """Work one second with that many lanes, one group each; return the lanes that had work, on average."""
        groups = len(self.waiting)
        in_turn = (*range(self._next, groups), *range(self._next))
        active = [group for group in in_turn if self.waiting[group]]
        started = [group for group in active if self._progress[group]]
        queue = started + [group for group in active if not self._progress[group]]
        budget, used = float(lanes), 0.0
        for group in queue:
            if budget <= 0:
                break
            spent = self._work_on(group, min(1.0, budget), second, outcome)
            budget -= spent
            used += spent
        self._next = (self._next + 1) % groups
        return used

    def _work_on(self, group: int, seconds: float, second: int, outcome: SimulationResult) -> float:
        spent = 0.0
        while self.waiting[group] and spent < seconds:
            step = min(seconds - spent, self._processing - self._progress[group])
            spent += step
            self._progress[group] += step
            if self._progress[group] >= self._processing - 1e-9:
                self._progress[group] = 0.0
                outcome.latencies.append(second + 1 - self.waiting[group].popleft())
                outcome.done += 1
        return spent


def simulate(scenario: Scenario, expression: Term, *, seed: int = 1, wake: bool = False) -> SimulationResult:
    """Run a scenario with tasks scaled by the expression; return what came of it."""
    rng = random.Random(seed)
    queue, outcome = (
        _Queue(len(scenario.group_shares), scenario.processing_seconds + scenario.overhead_seconds),
        SimulationResult(),
    )
    groups, cumulative_shares = range(len(scenario.group_shares)), list(accumulate(scenario.group_shares))
    results: list[float | None] = []
    flight_share = scenario.processing_seconds / (scenario.processing_seconds + scenario.overhead_seconds)
    tasks = before = scenario.min_tasks
    cooling, resting, waking, owed = 0, 0, 0, 0.0
    for minute in range(scenario.minutes):
        # A task polls once it has been asked for all the time a start takes.
        running = min([*outcome.tasks[max(0, minute - scenario.start_minutes) : minute], tasks])
        visible = in_flight = empty = received = 0.0
        for second in range(minute * _MINUTE, (minute + 1) * _MINUTE):
            owed += scenario.arrivals(second)
            for group in rng.choices(groups, cum_weights=cumulative_shares, k=int(owed)):
                queue.waiting[group].append(second)
            owed -= int(owed)
            lanes = running * scenario.lanes
            used = queue.work(lanes, second, outcome)
            in_flight += used * flight_share / _MINUTE
            received += used / (scenario.processing_seconds + scenario.overhead_seconds)
            visible += max(0.0, queue.count - used * flight_share) / _MINUTE
            empty += int(lanes - used) / _LONG_POLL_SECONDS
        seen = {
            VISIBLE: visible,
            IN_FLIGHT: in_flight,
            EMPTY_RECEIVES: empty,
            RECEIVED: received,
            AGE: queue.age((minute + 1) * _MINUTE),
            RUNNING: running or None,
            GROUPS: in_flight,
        }
        for name, value in seen.items():
            outcome.metrics[name].append(value)
        outcome.task_minutes += tasks
        outcome.tasks.append(tasks)
        late = {name: late_by(values, scenario.lag(name)) for name, values in outcome.metrics.items()}
        results.append(expression.value_at(late, minute))
        cooling, resting, waking = max(0, cooling - 1), max(0, resting - 1), max(0, waking - 1)
        wanted = _track(results, tasks, scenario, before=before if resting else tasks, cooling=cooling)
        if wanted > tasks and not resting:
            before, resting = tasks, scenario.scale_out_rest_minutes
        if wake and not waking and backlog.work_without_workers().value_at(late, minute):
            wanted, waking = min(scenario.max_tasks, max(wanted, tasks + 1)), _WAKE_COOLDOWN_MINUTES
        if wanted < tasks:
            cooling = _SCALE_IN_COOLDOWN_MINUTES
        tasks = wanted
    return outcome


def late_by(values: Sequence[float | None], lag: int) -> list[float | None]:
    """Return the series as it is known while its last points have not arrived."""
    return [*values[: max(0, len(values) - lag)], *([None] * min(lag, len(values)))]


def _track(results: Sequence[float | None], tasks: int, scenario: Scenario, *, before: int, cooling: int) -> int:
    """Return how many tasks target tracking asks for, reckoned from those there were before it last scaled out."""
    recent, low = results[-_HIGH_MINUTES:], results[-_LOW_MINUTES:]
    now, target = results[-1], scenario.target
    if now is None:
        return tasks
    bounded = max(scenario.min_tasks, min(scenario.max_tasks, math.ceil(max(before, 1) * now / target)))
    if len(recent) == _HIGH_MINUTES and all(value is not None and value > target for value in recent):
        return max(tasks, bounded)
    is_low = len(low) == _LOW_MINUTES and all(value is not None and value < _LOW_SHARE * target for value in low)
    if is_low and not cooling:
        return min(tasks, bounded)
    return tasks


def clamped(scenario: Scenario) -> Term:
    """Return what is deployed."""
    return backlog.clamped_backlog_per_task(
        scenario.target, lanes=scenario.lanes, processing_seconds=scenario.processing_seconds
    )


def clamped_by_hunger(scenario: Scenario) -> Term:
    """Return a rejected clamp: hold to the busy lanes while there are as many empty receives a minute as tasks."""
    running, raw = RUNNING_TASKS, backlog.backlog_per_task()
    target, in_flight = Number(scenario.target), repeated(IN_FLIGHT)
    busy = Operation(in_flight, "/", Operation(running, "*", Number(scenario.lanes)))
    useful = Operation(busy, "*", Number(1.25 * scenario.target))
    held = If(Operation(useful, "<", target), useful, target)
    hungry = Operation(repeated(EMPTY_RECEIVES), ">=", running)
    above = Operation(raw, ">", target)
    acts = Operation(Operation(running, ">", Number(0)), "AND", hungry)
    return If(Operation(acts, "AND", above), held, raw)


def clamped_by_groups(scenario: Scenario) -> Term:
    """Return another rejected clamp: hold when fewer groups are in flight than 90 % of the lanes."""
    running, raw = RUNNING_TASKS, backlog.backlog_per_task()
    per_lane = Operation(repeated(GROUPS), "/", running)
    idle = Operation(per_lane, "<", Number(0.9 * scenario.lanes))
    above = Operation(raw, ">", Number(scenario.target))
    held = If(Operation(idle, "AND", above), Number(scenario.target), raw)
    return If(Operation(running, ">", Number(0)), held, raw)


def zipf(count: int, skew: float) -> list[float]:
    """Return Zipf shares of that many groups."""
    weights = [(rank + 1) ** -skew for rank in range(count)]
    return [weight / sum(weights) for weight in weights]


def _burst(low: float, high: float) -> Callable[[int], float]:
    return lambda second: high if 30 * _MINUTE <= second < 50 * _MINUTE else low


SCENARIOS = (
    Scenario(name="steady, many groups", arrivals=lambda _: 6, group_shares=zipf(300, 0)),
    Scenario(name="burst x5, many groups", arrivals=_burst(6, 30), group_shares=zipf(300, 0)),
    Scenario(name="hot group, 60 %", arrivals=lambda _: 6, group_shares=[0.6, *(0.4 / 99 for _ in range(99))]),
    Scenario(name="eight groups, overloaded", arrivals=lambda _: 12, group_shares=zipf(8, 0)),
    Scenario(
        name="short handlers, burst",
        arrivals=_burst(40, 400),
        group_shares=zipf(300, 0),
        processing_seconds=0.03,
        acceptable_latency_seconds=10,
    ),
    Scenario(
        name="long jobs",
        arrivals=lambda _: 0.1,
        group_shares=zipf(200, 0),
        processing_seconds=300,
        acceptable_latency_seconds=1_200,
        minutes=240,
    ),
)


def filled_with_zero(term: Term) -> Term:
    """Return the expression with every gap of running tasks filled with 0, the late ones too: the rejected filling."""
    if term == RUNNING_TASKS:
        return Fill(Metric(RUNNING), Number(0))
    if isinstance(term, Operation):
        return Operation(filled_with_zero(term.left), term.operator, filled_with_zero(term.right))
    if isinstance(term, If):
        return If(*map(filled_with_zero, term.terms()))
    return term


def main() -> None:
    """Print, for each scenario, what came of it with each clamp, and with each way to bear late metrics."""
    _print_clamps()
    print()
    _print_lateness()


def _print_clamps() -> None:
    print("| scenario | expression | task minutes | done | p95 latency | most tasks |")
    print("|---|---|---:|---:|---:|---:|")
    for scenario in SCENARIOS:
        for name, expression in (
            ("unclamped", backlog.backlog_per_task()),
            ("groups in flight", clamped_by_groups(scenario)),
            ("hungry pollers", clamped_by_hunger(scenario)),
            ("idle lanes", clamped(scenario)),
        ):
            outcome = simulate(scenario, expression)
            print(
                f"| {scenario.name} | {name} | {outcome.task_minutes:.0f} | {outcome.done} |"
                f" {outcome.p95_seconds:.0f} s | {max(outcome.tasks)} |"
            )


def _print_lateness() -> None:
    """Running tasks are counted a minute late, and a task takes a minute to start; task minutes, done, p95, most."""
    print("| scenario | with 0, rest 60 s | repeated, rest 60 s | with 0, rest 300 s | repeated, rest 300 s |")
    print("|---|---:|---:|---:|---:|")
    for scenario in SCENARIOS:
        repeated = clamped(scenario)
        cells = []
        for rest_minutes in (1, 5):
            late = replace(scenario, lags={RUNNING: 1}, start_minutes=1, scale_out_rest_minutes=rest_minutes)
            for expression in (filled_with_zero(repeated), repeated):
                outcome = simulate(late, expression)
                cells.append(f"{outcome.task_minutes:,.0f}; {outcome.p95_seconds:,.0f} s; {max(outcome.tasks)}")
        print(f"| {scenario.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
