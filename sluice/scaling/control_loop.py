"""What CloudWatch alarms and Application Auto Scaling do with a service's policies, minute by minute; time is given.

Each rule has its source:

- Target tracking makes an alarm above the target and one below it; it computes the tasks that would bring the metric to
  the target, rounded up, never scales in for a rise or out for a fall, and does nothing without data.
  https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
- While scaling out cools down, what was added counts as part of what is asked for next: only a greater need adds more.
  While scaling in cools down, nothing is scaled in; scaling out ends it. (same page)
- A step policy adjusts by how far the metric is beyond the alarm's threshold, again each minute the alarm lasts.
  https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
- Of several policies the one that asks for the most tasks counts; target tracking scales in only when every policy that
  may is ready to. (both pages)
- From zero tasks target tracking adds the least it can, one task, at its first data point above the target.
  https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-autoscaling-targettracking.html
- While ECS deploys, scaling in waits and scaling out does not. (same page)
- How an alarm treats missing data points, and that it looks two points further back than it needs.
  https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html

All read 2026-11-23. What AWS does not say, or sources say differently, is a `Variant`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sluice.scaling.metric_math import Series
from sluice.scaling.policies import Alarm, MetricSource, ScaledService, StepScaling, TargetTracking, Watched

MINUTE_SECONDS = 60
_FURTHER_BACK = 2
"""How many points more than it needs an alarm looks at, of those that may be missing."""

type Known = Callable[[MetricSource], Series]
"""A metric -> its values as they are known now, one a minute, oldest first; None where none has come, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of the plausible answers where AWS's are not known or not the same.

    Args:
        name: for tables.
        high_minutes: how long the metric has to be above the target before target tracking scales out.
        low_minutes: how long below, before it scales in.
        low_share: below what share of the target that is.
        lag_minutes: how late SQS's metrics come.
        source: who says so.
    """

    name: str
    high_minutes: int = 3
    low_minutes: int = 15
    low_share: float = 0.9
    lag_minutes: int = 2
    source: str


USUAL = Variant(
    name="3 and 15 minutes",
    source="the alarms Application Auto Scaling makes for ECS: 3 of 3 above, 15 of 15 below 0.9 of the target;"
    " https://github.com/hashicorp/terraform-provider-aws/issues/42553",
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
    Variant(name="metrics 4 minutes late", lag_minutes=4, source="SQS's metrics come late by no stated bound"),
)


class AlarmState(Enum):
    """The state of an alarm, by its name in the API."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True, slots=True)
class Decision:
    """How many tasks are to run, and which policy said so; None where it stays as it is."""

    desired: int
    because: str | None = None


def values_before(watched: Watched, known: Known, minute: int, count: int, period_seconds: int = 60) -> Series:
    """Return what an expression was in so many periods up to this minute, as far as it is known now."""
    minutes = max(1, period_seconds // MINUTE_SECONDS)
    series = {id_: by_period(known(metric), metric.statistic, minutes) for id_, metric in watched.metrics.items()}
    last = (minute + 1) // minutes - 1
    return [watched.term.value_at(series, idx) for idx in range(max(0, last - count + 1), last + 1)]


def by_period(series: Series, statistic: str, minutes: int) -> Series:
    """Return a series of minutes as one of longer periods; the last period is left out while it is not over."""
    if minutes == 1:
        return series
    periods = [series[start : start + minutes] for start in range(0, len(series) - minutes + 1, minutes)]
    return [_of_period([value for value in values if value is not None], statistic) for values in periods]


def _of_period(values: Sequence[float], statistic: str) -> float | None:
    if not values:
        return None
    if statistic in {"Sum", "SampleCount"}:
        return math.fsum(values)
    if statistic == "Maximum":
        return max(values)
    return min(values) if statistic == "Minimum" else math.fsum(values) / len(values)


def alarm_state(alarm: Alarm, known: Known, minute: int, before: AlarmState) -> AlarmState:
    """Return an alarm's state at the end of a minute."""
    points = values_before(alarm.watched, known, minute, alarm.evaluation_periods + _FURTHER_BACK, alarm.period_seconds)
    there = [_breaches(alarm, value) for value in points if value is not None][-alarm.evaluation_periods :]
    breaching, fine = there.count(True), there.count(False)
    if not there:
        return {
            "missing": AlarmState.INSUFFICIENT_DATA,
            "ignore": before,
            "breaching": AlarmState.ALARM,
            "notBreaching": AlarmState.OK,
        }[alarm.missing_data]
    absent = alarm.evaluation_periods - len(there)
    if fine > alarm.evaluation_periods - alarm.datapoints_to_alarm:
        return AlarmState.OK
    if breaching >= alarm.datapoints_to_alarm:
        return AlarmState.ALARM
    if alarm.missing_data == "ignore":
        return before
    if alarm.missing_data == "breaching":
        breaching += absent
    elif alarm.missing_data == "missing" and breaching:
        return AlarmState.ALARM
    return AlarmState.ALARM if breaching >= alarm.datapoints_to_alarm else AlarmState.OK


def _breaches(alarm: Alarm, value: float) -> bool:
    return {
        "GreaterThanThreshold": value > alarm.threshold,
        "GreaterThanOrEqualToThreshold": value >= alarm.threshold,
        "LessThanThreshold": value < alarm.threshold,
        "LessThanOrEqualToThreshold": value <= alarm.threshold,
    }[alarm.comparison]


class _Cooldown:
    """Time during which a policy rests, in minutes of the loop."""

    def __init__(self, seconds: int) -> None:
        self._minutes = math.ceil(seconds / MINUTE_SECONDS)
        self._until = 0

    def begin(self, minute: int) -> None:
        self._until = minute + self._minutes

    def end(self) -> None:
        self._until = 0

    def lasts(self, minute: int) -> bool:
        return minute < self._until


class _Follower(Protocol):
    """A policy with what it remembers."""

    name: str

    def wanted(self, minute: int, desired: int, known: Known) -> int | None:
        """Return how many tasks it asks for; None when it asks for nothing."""

    def note(self, minute: int, before: int, after: int) -> None:
        """Take note of what it brought about."""


class _Tracking:
    """Target tracking."""

    def __init__(self, policy: TargetTracking, variant: Variant) -> None:
        self.name = policy.name
        self._policy, self._variant = policy, variant
        self._out, self._in = _Cooldown(policy.scale_out_cooldown_seconds), _Cooldown(policy.scale_in_cooldown_seconds)
        self._before = 0

    def wanted(self, minute: int, desired: int, known: Known) -> int | None:
        """Return the tasks that bring the metric to the target, when it was beyond it long enough."""
        longest = max(self._variant.high_minutes, self._variant.low_minutes) + _FURTHER_BACK
        points = [value for value in values_before(self._policy.watched, known, minute, longest) if value is not None]
        if not points:
            return None
        if desired == 0:
            return 1 if points[-1] > self._policy.target else None
        if self._is_high(points):
            base = self._before if self._out.lasts(minute) else desired
            return max(desired, math.ceil(max(base, 1) * points[-1] / self._policy.target))
        if self._is_low(points) and not self._policy.disables_scale_in and not self._in.lasts(minute):
            return min(desired, math.ceil(desired * points[-1] / self._policy.target))
        return None

    @property
    def scales_in(self) -> bool:
        """Return whether its consent is needed for scaling in."""
        return not self._policy.disables_scale_in

    def _is_high(self, points: Sequence[float]) -> bool:
        recent = points[-self._variant.high_minutes :]
        return len(recent) == self._variant.high_minutes and min(recent) > self._policy.target

    def _is_low(self, points: Sequence[float]) -> bool:
        recent = points[-self._variant.low_minutes :]
        return len(recent) == self._variant.low_minutes and max(recent) < self._variant.low_share * self._policy.target

    def note(self, minute: int, before: int, after: int) -> None:
        """Begin the cooldown of what was done."""
        if after > before:
            if not self._out.lasts(minute):
                self._before = before
            self._out.begin(minute)
            self._in.end()
        else:
            self._in.begin(minute)


class _Stepping:
    """A step policy with its alarm."""

    def __init__(self, policy: StepScaling) -> None:
        self.name = policy.name
        self._policy = policy
        self._rest = _Cooldown(policy.cooldown_seconds)
        self._before = 0
        self._state = AlarmState.INSUFFICIENT_DATA

    def wanted(self, minute: int, desired: int, known: Known) -> int | None:
        """Return what its step makes of the tasks there are, while its alarm lasts."""
        alarm = self._policy.alarm
        self._state = alarm_state(alarm, known, minute, self._state)
        points = values_before(
            alarm.watched, known, minute, alarm.evaluation_periods + _FURTHER_BACK, alarm.period_seconds
        )
        values = [value for value in points if value is not None]
        if self._state is not AlarmState.ALARM or not values:
            return None
        adjustment = self._adjustment(values[-1] - alarm.threshold)
        if adjustment is None:
            return None
        if not self._rest.lasts(minute):
            return self._adjusted(desired, adjustment)
        again = self._adjusted(self._before, adjustment)
        return again if again > desired else None

    def _adjustment(self, beyond: float) -> float | None:
        for step in self._policy.steps:
            if (step.lower is None or beyond >= step.lower) and (step.upper is None or beyond < step.upper):
                return step.adjustment
        return None

    def _adjusted(self, tasks: int, adjustment: float) -> int:
        if self._policy.adjustment_type == "ExactCapacity":
            return int(adjustment)
        if self._policy.adjustment_type == "ChangeInCapacity":
            return tasks + int(adjustment)
        change = tasks * adjustment / 100
        rounded = math.ceil(abs(change)) if abs(change) < 1 and change else math.floor(abs(change))
        return tasks + int(math.copysign(max(rounded, self._policy.min_adjustment_magnitude), adjustment))

    def note(self, minute: int, before: int, after: int) -> None:  # noqa: ARG002 (as for every policy)
        """Begin the cooldown."""
        if not self._rest.lasts(minute):
            self._before = before
        self._rest.begin(minute)


class ControlLoop:
    """Every policy of a service, as AWS carries them out together.

    Args:
        service: its bounds and policies.
        variant: what is taken for true where sources differ.
    """

    def __init__(self, service: ScaledService, variant: Variant = USUAL) -> None:
        self._service = service
        self._tracking = [_Tracking(each, variant) for each in service.policies if isinstance(each, TargetTracking)]
        self._stepping = [_Stepping(each) for each in service.policies if isinstance(each, StepScaling)]

    def decide(self, minute: int, desired: int, known: Known, *, is_deploying: bool = False) -> Decision:
        """Return how many tasks are to run after a minute.

        Args:
            minute: which has just ended, counted from 0.
            desired: how many are to run until now.
            known: what is known of each metric now.
            is_deploying: whether a deployment is under way, during which nothing is scaled in.
        """
        tracked = [(each, each.wanted(minute, desired, known)) for each in self._tracking]
        proposals: list[tuple[_Follower, int | None]] = [*tracked]
        proposals += [(each, each.wanted(minute, desired, known)) for each in self._stepping]
        proposed = [(self._bounded(wanted), each) for each, wanted in proposals if wanted is not None]
        more = [(wanted, each) for wanted, each in proposed if wanted > desired]
        if more:
            return self._carry_out(minute, desired, *max(more, key=lambda proposal: proposal[0]))
        agrees = all(
            wanted is not None and self._bounded(wanted) < desired for each, wanted in tracked if each.scales_in
        )
        fewer = [
            (wanted, each)
            for wanted, each in proposed
            if wanted < desired and (agrees or isinstance(each, _Stepping)) and not is_deploying
        ]
        if fewer:
            return self._carry_out(minute, desired, *max(fewer, key=lambda proposal: proposal[0]))
        return Decision(desired)

    def _bounded(self, tasks: int) -> int:
        return max(self._service.min_tasks, min(self._service.max_tasks, tasks))

    def _carry_out(self, minute: int, desired: int, wanted: int, policy: _Follower) -> Decision:
        policy.note(minute, desired, wanted)
        return Decision(wanted, policy.name)
