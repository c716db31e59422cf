"""CloudWatch alarms and Application Auto Scaling acting on a service's policies, minute by minute; time is given.

Each rule has its source:

- How an alarm treats missing data points; that it looks further back than it needs, in the page's tables two points;
  and that old breaching points alone are an alarm when none has come since.
  https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
- An alarm with a scaling action repeats it each minute it lasts.
  https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html
- Target tracking makes an alarm above the target and one below it; it computes the tasks that would bring the metric to
  the target, rounded up, never scales in for a rise or out for a fall, and does nothing without data.
  https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
- While scaling out cools down, what was added counts as part of what is asked for next: only a greater need adds more.
  While scaling in cools down, nothing is scaled in; a scale-out, of whatever policy, ends that cooldown. (same page)
- A step policy adjusts by how far the metric is beyond the alarm's threshold. Above the threshold a step has its lower
  bound and not its upper; below, its upper and not its lower.
  https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
- Of several policies the one that asks for the most tasks counts; target tracking scales in only when every policy that
  may is ready to. A step policy does not wait for target tracking. (both pages)
- An event source mapping of Lambda looks at no metric: its pollers know at once whether messages are left. How soon it
  makes fewer invocations is not said; here it does within the minute, which costs nothing, as none is paid for idle.
  https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html (read 2026-11-27)
- From zero tasks target tracking waits for one data point, and adds the least it can, one task. That the data point has
  to be above the target is assumed. That scaling in waits while ECS deploys is left out: no simulation deploys.
  https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-auto-scaling.html

All read 2026-11-23. What AWS does not say, or sources say differently, is a `Variant`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from sluice.declaration.metric_math import Series, reads_later_points
from sluice.rehearse.model.policies import (
    WAITING,
    MappingScaling,
    MetricExpression,
    MetricSource,
    ScaledService,
    SimulatedAlarm,
    StepScaling,
    TargetTracking,
)

MINUTE_SECONDS = 60
_EXTRA_DATAPOINTS = 2
"""How many data points beyond its evaluation periods an alarm looks at, to make up for missing ones."""

type ReadMetric = Callable[[MetricSource], Series]
"""Returns the known values of a metric, one a minute, oldest first; None where there is no value, or none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One plausible behaviour of AWS where its documentation is missing or contradicts itself.

    Args:
        name: the name in tables.
        high_minutes: how long the metric has to be above the target before target tracking scales out.
        low_minutes: how long it has to be below before target tracking scales in.
        low_share: the share of the target below which the metric counts as low.
        lag_minutes: how late metrics of SQS arrive.
        ecs_lag_minutes: how late metrics of ECS arrive.
        source: the source for this behaviour.
    """

    name: str
    high_minutes: int = 3
    low_minutes: int = 15
    low_share: float = 0.9
    lag_minutes: int = 2
    ecs_lag_minutes: int = 1
    source: str

    @property
    def further_back(self) -> int:
        """Return how many more data points an alarm evaluates than it needs; at least as many as arrive late."""
        return max(_EXTRA_DATAPOINTS, self.lag_minutes)


USUAL = Variant(
    name="3 and 15 minutes",
    source="the alarms Application Auto Scaling makes for ECS: 3 of 3 above, 15 of 15 below 0.9 of the target;"
    " https://github.com/hashicorp/terraform-provider-aws/issues/42553",
)
EQUALLY_LATE = Variant(
    name="all metrics equally late",
    ecs_lag_minutes=2,
    source="whether those of SQS come later than those of ECS is not documented",
)
VARIANTS = (
    USUAL,
    Variant(
        name="3 and 3 minutes",
        low_minutes=3,
        source="3 of 3 both ways, seen for custom metrics;"
        " https://github.com/aws-cloudformation/cloudformation-coverage-roadmap/issues/2353",
    ),
    Variant(
        name="3 and 15 minutes, scale-in at the target",
        low_share=1.0,
        source="https://github.com/aws/copilot-cli/issues/4233 shows the low alarm at the target itself",
    ),
    Variant(
        name="1 and 15 minutes",
        high_minutes=1,
        source="tracking by 20-second data points, announced for custom metrics: three of them are a minute",
    ),
    EQUALLY_LATE,
    Variant(name="metrics 4 minutes late", lag_minutes=4, source="SQS's metrics come late by no stated bound"),
)


class AlarmState(Enum):
    """The state of an alarm, by its name in the API."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """The number of tasks to run, and the policy that decided it; None if the number stays."""

    desired: int
    because: str | None = None


class WatchedValues:
    """The values of an expression, period by period; values that cannot change any more are computed once.

    Args:
        watched: the expression.
        period_seconds: the length of a period.
    """

    def __init__(self, watched: MetricExpression, period_seconds: int = MINUTE_SECONDS) -> None:
        self._watched = watched
        self._minutes = max(1, period_seconds // MINUTE_SECONDS)
        self._has_final = self._minutes == 1 and not reads_later_points(watched.term)
        self._final: dict[int, float | None] = {}

    def before(self, minute: int, count: int, known: ReadMetric) -> Series:
        """Return the values of the last `count` completed periods, as far as they are known now."""
        series = {
            id_: series if self._minutes == 1 else PeriodSeries(series, metric.statistic, self._minutes)
            for id_, metric in self._watched.metrics.items()
            for series in [known(metric)]
        }
        last = (minute + 1) // self._minutes - 1
        final = min(map(_newest_settled_idx, series.values()), default=-1) if self._has_final else -1
        values = []
        for idx in range(max(0, last - count + 1), last + 1):
            value = self._final[idx] if idx in self._final else self._watched.term.value_at(series, idx)
            if idx <= final:
                self._final[idx] = value
            values.append(value)
        return values


def _newest_settled_idx(series: Series) -> int:
    """Return the index of the newest value that no later report changes, -1 when there is none."""
    return len(series) - 1 - (series.lag_minutes if isinstance(series, LateSeries) else 0)


@dataclass(frozen=True, slots=True)
class LateSeries(Sequence[float | None]):
    """A series as it is known while its last values have not come. It is not copied: a minute's alarm reads few."""

    values: Series
    lag_minutes: int

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, idx: Any) -> Any:
        value = self.values[idx]
        return value if idx < len(self.values) - self.lag_minutes else None


@dataclass(frozen=True, slots=True)
class PeriodSeries(Sequence[float | None]):
    """A series by minute as a series by longer period, of which the last may be incomplete.

    A value is computed when it is read: an alarm reads its last few, each minute anew.
    """

    series: Series
    statistic: str
    minutes: int

    def __len__(self) -> int:
        return math.ceil(len(self.series) / self.minutes)

    def __getitem__(self, idx: Any) -> Any:
        begins = range(0, len(self.series), self.minutes)[idx]
        minutes = range(begins, min(begins + self.minutes, len(self.series)))
        values = [value for minute in minutes if (value := self.series[minute]) is not None]
        return _aggregate(values, self.statistic)


def _aggregate(values: Sequence[float], statistic: str) -> float | None:
    if not values:
        return None
    if statistic in {"Sum", "SampleCount"}:
        return math.fsum(values)
    if statistic == "Maximum":
        return max(values)
    if statistic.startswith("p"):
        rank = math.ceil(float(statistic[1:]) / 100 * len(values))
        return sorted(values)[max(0, rank - 1)]
    return min(values) if statistic == "Minimum" else math.fsum(values) / len(values)


def alarm_state(alarm: SimulatedAlarm, points: Series, before: AlarmState) -> AlarmState:
    """Return an alarm's state by the data points that it looks at.

    Args:
        alarm: the alarm.
        points: its data points, oldest first, as many as it needs and some further back; None where none has come.
        before: its state until now.
    """
    breaches = [_breaches(alarm, value) for value in points if value is not None][-alarm.evaluation_periods :]
    absent = alarm.evaluation_periods - len(breaches)
    is_late = alarm.missing_data in {"missing", "ignore"} and absent > 0
    if is_late and (not breaches or (all(breaches) and len(breaches) < alarm.datapoints_to_alarm)):
        if alarm.missing_data == "ignore":
            return before
        is_old = len(points) - _oldest_point_idx(points) >= alarm.datapoints_to_alarm
        return AlarmState.ALARM if breaches and is_old else AlarmState.INSUFFICIENT_DATA
    breaching = sum(breaches) + (absent if alarm.missing_data == "breaching" else 0)
    return AlarmState.ALARM if breaching >= alarm.datapoints_to_alarm else AlarmState.OK


def _oldest_point_idx(points: Series) -> int:
    """Return the index of the oldest data point; the length of the series if there is none."""
    return next((idx for idx, value in enumerate(points) if value is not None), len(points))


def _newest_value(points: Series) -> float | None:
    return next((value for value in reversed(points) if value is not None), None)


def _breaches(alarm: SimulatedAlarm, value: float) -> bool:
    return {
        "GreaterThanThreshold": value > alarm.threshold,
        "GreaterThanOrEqualToThreshold": value >= alarm.threshold,
        "LessThanThreshold": value < alarm.threshold,
        "LessThanOrEqualToThreshold": value <= alarm.threshold,
    }[alarm.comparison]


class _Cooldowns:
    """Both cooldowns of a policy: until which minute of the simulation each lasts."""

    def __init__(self, out_seconds: int, in_seconds: int) -> None:
        self._out_minutes, self._in_minutes = (math.ceil(each / MINUTE_SECONDS) for each in (out_seconds, in_seconds))
        self._out_until = self._in_until = self._before = 0

    def scale_out_base(self, minute: int, desired: int) -> int:
        """Return the tasks to which a scale-out adds: during a cooldown, the tasks before its first scale-out."""
        return min(self._before, desired) if minute < self._out_until else desired

    def may_scale_in(self, minute: int) -> bool:
        """Return whether no scale-in cools down."""
        return minute >= self._in_until

    def begin(self, minute: int, before: int, after: int) -> None:
        """Begin the cooldown after a change of the number of tasks."""
        if after < before:
            self._in_until = minute + self._in_minutes
            return
        self._before = self.scale_out_base(minute, before)
        self._out_until = minute + self._out_minutes

    def end_scale_in(self) -> None:
        """End the cooldown of a scale-in: some policy scaled out."""
        self._in_until = 0


class _TargetTrackingState:
    """A target tracking policy, with its cooldowns and the two alarms that AWS makes for it."""

    def __init__(self, policy: TargetTracking, variant: Variant) -> None:
        self.name = policy.name
        self.cooldowns = _Cooldowns(policy.scale_out_cooldown_seconds, policy.scale_in_cooldown_seconds)
        self._policy, self._further_back = policy, variant.further_back
        self._values = WatchedValues(policy.watched)
        self._high = SimulatedAlarm(
            name="AlarmHigh",
            watched=policy.watched,
            comparison="GreaterThanThreshold",
            threshold=policy.target,
            evaluation_periods=variant.high_minutes,
            datapoints_to_alarm=variant.high_minutes,
        )
        self._low = replace(
            self._high,
            name="AlarmLow",
            comparison="LessThanThreshold",
            threshold=variant.low_share * policy.target,
            evaluation_periods=variant.low_minutes,
            datapoints_to_alarm=variant.low_minutes,
        )

    def propose_tasks(self, minute: int, desired: int, known: ReadMetric) -> int | None:
        """Return the number of tasks that brings the metric to the target, if it was beyond it for long enough."""
        longest = max(self._high.evaluation_periods, self._low.evaluation_periods) + self._further_back
        points = self._values.before(minute, longest, known)
        value = _newest_value(points)
        if value is None:
            return None
        if desired == 0:
            return 1 if value > self._policy.target else None
        if self._is_in_alarm(self._high, points):
            return max(desired, self._tasks_for_target(self.cooldowns.scale_out_base(minute, desired), value))
        if self.scales_in and self.cooldowns.may_scale_in(minute) and self._is_in_alarm(self._low, points):
            return min(desired, self._tasks_for_target(desired, value))
        return None

    @property
    def scales_in(self) -> bool:
        """Return whether the policy scales in; then no other target tracking scales in before this one agrees."""
        return not self._policy.disables_scale_in

    def _is_in_alarm(self, alarm: SimulatedAlarm, points: Series) -> bool:
        looked_at = points[-(alarm.evaluation_periods + self._further_back) :]
        return alarm_state(alarm, looked_at, AlarmState.INSUFFICIENT_DATA) is AlarmState.ALARM

    def _tasks_for_target(self, tasks: int, value: float) -> int:
        return math.ceil(round(max(tasks, 1) * value / self._policy.target, 9))


class _StepScalingState:
    """A step scaling policy, with its cooldowns and the state of its alarm."""

    def __init__(self, policy: StepScaling, variant: Variant) -> None:
        self.name = policy.name
        self.cooldowns = _Cooldowns(policy.cooldown_seconds, policy.cooldown_seconds)
        self._policy, self._further_back = policy, variant.further_back
        self._values = WatchedValues(policy.alarm.watched, policy.alarm.period_seconds)
        self._state = AlarmState.INSUFFICIENT_DATA

    def propose_tasks(self, minute: int, desired: int, known: ReadMetric) -> int | None:
        """Return the number of tasks after the policy's step, while its alarm lasts."""
        alarm = self._policy.alarm
        points = self._values.before(minute, alarm.evaluation_periods + self._further_back, known)
        self._state, value = alarm_state(alarm, points, self._state), _newest_value(points)
        if self._state is not AlarmState.ALARM or value is None:
            return None
        adjustment = self._matching_adjustment(value - alarm.threshold)
        if adjustment is None:
            return None
        more = self._adjusted_tasks(self.cooldowns.scale_out_base(minute, desired), adjustment)
        if more > desired:
            return more
        fewer = self._adjusted_tasks(desired, adjustment)
        return fewer if fewer < desired and self.cooldowns.may_scale_in(minute) else None

    def _matching_adjustment(self, beyond: float) -> float | None:
        is_above = beyond > 0 or (beyond == 0 and self._policy.alarm.comparison.startswith("Greater"))
        for step in self._policy.steps:
            lower, upper = (
                -math.inf if step.lower is None else step.lower,
                math.inf if step.upper is None else step.upper,
            )
            if lower <= beyond < upper if is_above else lower < beyond <= upper:
                return step.adjustment
        return None

    def _adjusted_tasks(self, tasks: int, adjustment: float) -> int:
        if self._policy.adjustment_type == "ExactCapacity":
            return int(adjustment)
        if self._policy.adjustment_type == "ChangeInCapacity" or not adjustment:
            return tasks + int(adjustment)
        change = abs(tasks * adjustment / 100)
        rounded = math.ceil(change) if change < 1 else math.floor(change)
        return tasks + int(math.copysign(max(rounded, self._policy.min_adjustment_magnitude), adjustment))


class _MappingState:
    """The scaling of an event source mapping by its pollers."""

    def __init__(self, policy: MappingScaling) -> None:
        self.name = policy.name
        self.cooldowns = _Cooldowns(0, 0)
        self._policy = policy

    def propose_tasks(self, minute: int, desired: int, known: ReadMetric) -> int | None:
        """Return more invocations while messages are left for them, and the fewest when none is."""
        waiting = known(WAITING)[minute] or 0.0
        if waiting >= 1:
            return desired + self._policy.more_per_minute
        return self._policy.first if desired > self._policy.first else None


type _PolicyState = _TargetTrackingState | _StepScalingState | _MappingState
"""What proposes a number of tasks each minute."""


class ControlLoop:
    """All policies of a service, carried out together as AWS does.

    Args:
        service: the service with its bounds and policies.
        variant: the assumed behaviour of AWS where sources differ.
    """

    def __init__(self, service: ScaledService, variant: Variant = USUAL) -> None:
        self._service = service
        self._tracking = [
            _TargetTrackingState(each, variant) for each in service.policies if isinstance(each, TargetTracking)
        ]
        self._stepping = [
            _StepScalingState(each, variant) for each in service.policies if isinstance(each, StepScaling)
        ]
        self._polling = [] if service.mapping is None else [_MappingState(service.mapping)]

    def decide(self, minute: int, desired: int, known: ReadMetric) -> ScalingDecision:
        """Return how many tasks have to run after a minute. Call it for each minute in order.

        Args:
            minute: the minute that has just ended, counted from 0.
            desired: how many tasks had to run until now.
            known: the known values of each metric: those known before, and further ones at the end.
        """
        tracked = [(each, each.propose_tasks(minute, desired, known)) for each in self._tracking]
        stepped = [(each, each.propose_tasks(minute, desired, known)) for each in self._stepping]
        polled = [(each, each.propose_tasks(minute, desired, known)) for each in self._polling]
        every: list[tuple[_PolicyState, int | None]] = [*tracked, *stepped, *polled]
        requests = [(self._within_bounds(wanted), each) for each, wanted in every if wanted is not None]
        more = [(wanted, each) for wanted, each in requests if wanted > desired]
        if more:
            return self._decide_for(minute, desired, *max(more, key=lambda proposal: proposal[0]))
        agrees = all(
            wanted is not None and self._within_bounds(wanted) < desired for each, wanted in tracked if each.scales_in
        )
        fewer = [
            (wanted, each)
            for wanted, each in requests
            if wanted < desired and (agrees or not isinstance(each, _TargetTrackingState))
        ]
        if fewer:
            return self._decide_for(minute, desired, *max(fewer, key=lambda proposal: proposal[0]))
        return ScalingDecision(desired)

    def _within_bounds(self, tasks: int) -> int:
        return max(self._service.min_tasks, min(self._service.max_tasks, tasks))

    def _decide_for(self, minute: int, desired: int, wanted: int, policy: _PolicyState) -> ScalingDecision:
        policy.cooldowns.begin(minute, desired, wanted)
        if wanted > desired:
            followers: list[_PolicyState] = [*self._tracking, *self._stepping, *self._polling]
            for each in followers:
                each.cooldowns.end_scale_in()
        return ScalingDecision(wanted, policy.name)
