"""Alarms and Application Auto Scaling act by AWS's own tables and sentences; the module names their pages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.declaration.metric_math import Metric
from sluice.rehearse.model.control_loop import (
    USUAL,
    VARIANTS,
    AlarmState,
    ControlLoop,
    LateSeries,
    PeriodSeries,
    ReadMetric,
    Variant,
    WatchedValues,
    alarm_state,
)
from sluice.rehearse.model.policies import (
    MetricExpression,
    MetricSource,
    ScaledService,
    ScalingPolicy,
    ScalingStep,
    SimulatedAlarm,
    StepScaling,
    TargetTracking,
)
from sluice.rehearse.reading.expressions import parse

ALARM, OK, NO_DATA = AlarmState.ALARM, AlarmState.OK, AlarmState.INSUFFICIENT_DATA
AT_ONCE = Variant(name="one point", high_minutes=1, low_minutes=1, source="makes a case short")


def _metric_expression(name: str = "backlog", statistic: str = "Average") -> MetricExpression:
    source = MetricSource(namespace="Tests", name=name, dimensions={}, statistic=statistic)
    return MetricExpression(term=Metric("metric"), metrics={"metric": source}, text="metric")


def _tracking(target: float = 10, name: str = "backlog", **settings: Any) -> TargetTracking:
    no_rest: dict[str, Any] = {"scale_out_cooldown_seconds": 0, "scale_in_cooldown_seconds": 0}
    return TargetTracking(name=name, watched=_metric_expression(name), target=target, **(no_rest | settings))


def _alarm(threshold: float = 100, comparison: Any = "GreaterThanThreshold", **settings: Any) -> SimulatedAlarm:
    return SimulatedAlarm(
        name="alarm", watched=_metric_expression(), comparison=comparison, threshold=threshold, **settings
    )


def _stepping(*steps: tuple[float | None, float | None, float], **settings: Any) -> StepScaling:
    usual: dict[str, Any] = {
        "name": "steps",
        "alarm": _alarm(),
        "adjustment_type": "ChangeInCapacity",
        "cooldown_seconds": 0,
    }
    return StepScaling(
        steps=tuple(ScalingStep(lower=a, upper=b, adjustment=c) for a, b, c in steps), **(usual | settings)
    )


def _read_until(series: Mapping[str, Sequence[float | None]], minute: int) -> ReadMetric:
    return lambda metric: list(series[metric.name][: minute + 1])


def _state_at(alarm: SimulatedAlarm, known: ReadMetric, minute: int, before: AlarmState) -> AlarmState:
    """Return an alarm's state at the end of a minute, of which it sees two data points more than it needs."""
    points = WatchedValues(alarm.watched, alarm.period_seconds).before(minute, alarm.evaluation_periods + 2, known)
    return alarm_state(alarm, points, before)


def _tasks(
    *policies: ScalingPolicy,
    begin: int = 4,
    most: int = 1_000,
    variant: Variant = AT_ONCE,
    **series: Sequence[float | None],
) -> list[int]:
    """Return how many tasks are to run after each minute of the series."""
    loop = ControlLoop(ScaledService(name="service", min_tasks=0, max_tasks=most, policies=policies), variant)
    desired, after = begin, []
    for minute in range(max(map(len, series.values()))):
        desired = loop.decide(minute, desired, _read_until(series, minute)).desired
        after.append(desired)
    return after


def _points(text: str) -> list[float | None]:
    """Return a row of the documentation's tables: 0 is within the threshold, X breaches it, - is missing."""
    return [{"0": 0.0, "X": 200.0, "-": None}[mark] for mark in text.split()]


@pytest.mark.parametrize("before", [OK, ALARM])
@pytest.mark.parametrize(
    ("points", "to_alarm", "missing", "ignore", "breaching", "not_breaching"),
    [
        ("0 - X - X", 3, OK, OK, OK, OK),
        ("0 - - - -", 3, OK, OK, OK, OK),
        ("- - - - -", 3, NO_DATA, None, ALARM, OK),
        ("0 X X - X", 3, ALARM, ALARM, ALARM, ALARM),
        ("- - X - -", 3, ALARM, None, ALARM, OK),
        ("0 - X - X", 2, ALARM, ALARM, ALARM, ALARM),
        ("0 0 X 0 X", 2, ALARM, ALARM, ALARM, ALARM),
        ("0 - X - -", 2, OK, OK, ALARM, OK),
        ("- - - - 0", 2, OK, OK, ALARM, OK),
        ("- - - X -", 2, ALARM, None, ALARM, OK),
        # The text below the tables: too new to be an alarm. That the data is insufficient then, an older edition says.
        ("- - - - X", 3, NO_DATA, None, ALARM, OK),
        ("- - - X -", 3, NO_DATA, None, ALARM, OK),
        # Not in the page: as many as it takes breach, whatever is missing.
        ("- X - - X", 2, ALARM, ALARM, ALARM, ALARM),
    ],
)
def test_an_alarm_treats_missing_data_as_in_the_tables_of_the_documentation(
    points: str,
    to_alarm: int,
    missing: AlarmState,
    ignore: AlarmState | None,
    breaching: AlarmState,
    not_breaching: AlarmState,
    before: AlarmState,
) -> None:
    """An alarm of three periods reads five data points. None means that the alarm keeps its state."""
    known = _read_until({"backlog": _points(points)}, 4)

    states = [
        _state_at(_alarm(evaluation_periods=3, datapoints_to_alarm=to_alarm, missing_data=treated), known, 4, before)
        for treated in ("missing", "ignore", "breaching", "notBreaching")
    ]

    assert states == [missing, ignore or before, breaching, not_breaching]


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        ("Average", 3),
        ("Sum", 15),
        ("SampleCount", 15),
        ("Minimum", 1),
        ("Maximum", 5),
        ("p50", 3),
        ("p90", 5),
        ("p1", 1),
    ],
)
def test_a_longer_period_has_its_statistic_of_the_minutes(statistic: str, value: float) -> None:
    """A percentile is the least of the minutes' values that so many of them do not exceed."""
    assert PeriodSeries([5.0, 1.0, None, 4.0, 2.0, 3.0], statistic, 6)[0] == value


def test_a_late_series_and_one_of_periods_end() -> None:
    """Their iterators stop after the last minute."""
    late = LateSeries([1.0, 2.0, 3.0], lag_minutes=1)

    assert list(late) == [1.0, 2.0, None]
    assert list(PeriodSeries(late, "Sum", minutes=2)) == [3.0, None]


def test_an_alarm_looks_at_no_more_points_than_its_range() -> None:
    """An alarm of three out of three periods reads five data points. A breaching point before these has no effect."""
    alarm = _alarm(evaluation_periods=3, datapoints_to_alarm=3)

    assert _state_at(alarm, _read_until({"backlog": _points("X X X - - - - -")}, 7), 7, OK) is NO_DATA
    assert _state_at(alarm, _read_until({"backlog": _points("X X X - - - -")}, 6), 6, OK) is ALARM


@pytest.mark.parametrize(
    ("comparison", "rings"),
    [
        ("GreaterThanThreshold", [False, False, True]),
        ("GreaterThanOrEqualToThreshold", [False, True, True]),
        ("LessThanThreshold", [True, False, False]),
        ("LessThanOrEqualToThreshold", [True, True, False]),
    ],
)
def test_an_alarm_compares_by_its_operator(comparison: str, rings: list[bool]) -> None:
    """The values 99, 100 and 101 against the threshold 100."""
    states = [
        _state_at(_alarm(comparison=comparison), _read_until({"backlog": [value]}, 0), 0, OK)
        for value in (99, 100, 101)
    ]

    assert [state is ALARM for state in states] == rings


@pytest.mark.parametrize(
    ("statistic", "values"),
    [
        ("Average", [2, 20]),
        ("Sum", [6, 40]),
        ("Maximum", [3, 30]),
        ("Minimum", [1, 10]),
    ],
)
def test_a_period_of_several_minutes_is_one_point_of_its_statistic(statistic: str, values: list[float]) -> None:
    """The first period has 1, 2 and 3, the second 10, nothing and 30. The third period is not over."""
    series = {"backlog": [1.0, 2.0, 3.0, 10.0, None, 30.0, 900.0, 900.0]}
    found = []
    for threshold in values:
        alarm = _alarm(threshold, "GreaterThanOrEqualToThreshold", period_seconds=180)
        alarm = replace(alarm, watched=_metric_expression(statistic=statistic))
        above = replace(alarm, threshold=threshold + 1)
        minute = 2 if threshold == values[0] else 7
        found.append([_state_at(each, _read_until(series, minute), minute, OK) for each in (alarm, above)])

    assert found == [[ALARM, OK], [ALARM, OK]]


def test_metric_math_of_longer_periods_uses_periods_and_not_minutes() -> None:
    """The most of 1 and 9, plus the most of 9 and 1, is 18: no minute has more than 10."""
    sources = {id_: MetricSource(namespace="Tests", name=id_, dimensions={}, statistic="Maximum") for id_ in "ab"}
    watched = MetricExpression(term=parse("a + b"), metrics=sources, text="a + b")
    alarm = replace(_alarm(18, "GreaterThanOrEqualToThreshold", period_seconds=120), watched=watched)

    assert _state_at(alarm, _read_until({"a": [1.0, 9.0], "b": [9.0, 1.0]}, 1), 1, OK) is ALARM


def test_target_tracking_scales_in_proportion_and_rounds_up_both_ways() -> None:
    """Four tasks at 26 with the target 10 are 10.4, so 11; eleven at 3 are 3.3, so four."""
    assert _tasks(_tracking(), backlog=[26, 3]) == [11, 4]


def test_float_noise_does_not_round_a_whole_number_up() -> None:
    """3 tasks x 0.1 / 0.3 is one task, and a little more in floating point."""
    assert 3 * 0.1 / 0.3 > 1
    assert _tasks(_tracking(0.3), begin=3, backlog=[0.1]) == [1]


@pytest.mark.parametrize(
    ("variant", "first_out", "first_in"),
    [(USUAL, 3, 15), (VARIANTS[1], 3, 3), (VARIANTS[3], 1, 15)],
    ids=lambda value: value.name if isinstance(value, Variant) else "",
)
def test_target_tracking_waits_as_long_as_its_variant(variant: Variant, first_out: int, first_in: int) -> None:
    """AWS documents no exact times: each variant has its minutes before it scales out and in."""
    above = _tasks(_tracking(), variant=variant, backlog=[20] * first_out)
    below = _tasks(_tracking(), variant=variant, backlog=[1] * first_in)

    assert above == [4] * (first_out - 1) + [8]
    assert below == [4] * (first_in - 1) + [1]


def test_between_the_target_and_a_tenth_below_it_nothing_changes() -> None:
    """The values are the target and 0.9 of it.

    In the variant whose low alarm is at the target, the service scales in.
    """
    at_target = replace(AT_ONCE, low_share=1.0)

    assert _tasks(_tracking(), begin=20, backlog=[10, 9]) == [20, 20]
    assert _tasks(_tracking(), begin=20, variant=at_target, backlog=[10, 9.4]) == [20, 19]


def test_without_data_target_tracking_does_nothing_and_soon_forgets() -> None:
    """Two above, then nothing: from the third minute an alarm, which looks back five, then insufficient data."""
    series = [20.0] * 2 + [None] * 20

    assert _tasks(_tracking(), variant=USUAL, backlog=[None] * 20) == [4] * 20
    assert _tasks(_tracking(), begin=1, most=10_000, variant=USUAL, backlog=series) == [1, 1, 2, 4, 8, *[16] * 17]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_metric_that_is_late_scales_all_the_same(variant: Variant) -> None:
    """Every variant scales out and in on a metric that is not filled: the alarms look at least as far back."""
    late = [None] * variant.lag_minutes
    policies = (_tracking(), _stepping((0, None, 1)))
    services = [ScaledService(name="s", min_tasks=1, max_tasks=9, policies=(policy,)) for policy in policies]

    def decide(service: ScaledService, value: float) -> int:
        return ControlLoop(service, variant).decide(39, 4, lambda _: [*[value] * (40 - len(late)), *late]).desired

    assert [decide(services[0], value) for value in (20.0, 1.0)] == [8, 1]
    assert decide(services[1], 200.0) == 5


def test_target_tracking_at_zero_tasks_adds_one_at_its_first_point() -> None:
    """The value is ten times the target.

    One task starts at once; the proportional number follows after the usual minutes.
    """
    assert _tasks(_tracking(), begin=0, variant=USUAL, backlog=[100]) == [1]
    assert _tasks(_tracking(), begin=0, variant=USUAL, backlog=[5, 10, None, 100, 100, 100]) == [0, 0, 0, 1, 1, 10]
    assert _tasks(_tracking(), begin=0, variant=USUAL, backlog=[None] * 5) == [0] * 5


def test_while_scaling_out_cools_down_what_was_added_counts() -> None:
    """From 4 tasks the service goes to 8.

    In the cooldown an equal or smaller need adds nothing, and a greater need is computed from 4 and gives 12. After the
    cooldown the need is computed from 12. Without a cooldown each minute doubles the tasks.
    """
    resting = _tracking(scale_out_cooldown_seconds=180)

    assert _tasks(resting, backlog=[20, 15, 30, 20, 20, 20]) == [8, 8, 12, 12, 12, 24]
    assert _tasks(_tracking(), backlog=[20, 20, 20]) == [8, 16, 32]


def test_target_tracking_does_not_scale_in_during_its_cooldown() -> None:
    """Of 180 s: half of the tasks at minute 0, and the next half at minute 3."""
    assert _tasks(_tracking(scale_in_cooldown_seconds=180), begin=32, backlog=[5] * 5) == [16, 16, 16, 8, 8]


def test_a_cooldown_lasts_to_the_end_of_its_minute() -> None:
    """90 seconds are two minutes of a loop that acts once a minute."""
    assert _tasks(_tracking(scale_in_cooldown_seconds=90), begin=32, backlog=[5] * 3) == [16, 16, 8]


def test_any_scale_out_ends_the_cooldown_of_a_scale_in() -> None:
    """The service scales in at minute 0 and out at minute 1.

    At minute 2 it may scale in again, ten minutes before the first cooldown would have ended.
    """
    resting = _tracking(scale_in_cooldown_seconds=600)
    other = _tracking(name="other")

    assert _tasks(resting, begin=8, backlog=[5, 20, 5]) == [4, 8, 4]
    assert _tasks(resting, replace(other, disables_scale_in=True), begin=8, backlog=[5, 9, 5], other=[9, 20, 9]) == [
        4,
        8,
        4,
    ]
    assert _tasks(
        _stepping((None, 0, -2), alarm=_alarm(10, "LessThanThreshold"), cooldown_seconds=600),
        replace(other, disables_scale_in=True),
        begin=8,
        backlog=[5, 10, 5],
        other=[9, 20, 9],
    ) == [6, 12, 10]


def test_the_policy_that_asks_for_the_most_tasks_counts() -> None:
    """Out: 8 and 12 are 12. In: 2 and 1 are 2. One out, one in: out."""
    policies = (_tracking(), _tracking(name="other"))

    assert _tasks(*policies, backlog=[20], other=[30]) == [12]
    assert _tasks(*policies, backlog=[5], other=[2]) == [2]
    assert _tasks(*policies, backlog=[20], other=[2]) == [8]


def test_target_tracking_scales_in_only_when_every_policy_that_may_is_ready() -> None:
    """One at its target holds, and one without data; one that may not scale in has no say, and scales in nothing."""
    first, second = _tracking(), _tracking(name="other")
    out_only = replace(second, disables_scale_in=True)

    assert _tasks(first, second, backlog=[5], other=[10]) == [4]
    assert _tasks(first, second, backlog=[5], other=[None]) == [4]
    assert _tasks(first, out_only, backlog=[5], other=[10]) == [2]
    assert _tasks(out_only, other=[1]) == [4]
    assert _tasks(out_only, other=[20]) == [8]


def test_a_step_down_does_not_wait_for_target_tracking() -> None:
    """At its target, target tracking does not prevent it. Above the target it scales out instead."""
    down = _stepping((None, 0, -1), alarm=_alarm(10, "LessThanThreshold"))

    assert _tasks(_tracking(name="other"), down, backlog=[5], other=[10]) == [3]
    assert _tasks(_tracking(name="other"), down, backlog=[5], other=[20]) == [8]


def test_scaling_stays_between_the_fewest_and_the_most_tasks() -> None:
    """The value asks for 360 tasks and then for none, of 3 to 6."""
    service = ScaledService(name="service", min_tasks=3, max_tasks=6, policies=(_tracking(),))
    loop = ControlLoop(service, AT_ONCE)

    assert loop.decide(0, 4, lambda _: [900.0]).desired == 6
    assert loop.decide(1, 6, lambda _: [900.0, 0.0]).desired == 3


def test_a_decision_names_its_policy() -> None:
    """Of two policies the one that asks for more tasks; none if nothing changes."""
    policies = (_tracking(name="first"), _tracking(name="second"))
    loop = ControlLoop(ScaledService(name="service", min_tasks=0, max_tasks=99, policies=policies), AT_ONCE)
    known = {"first": [20, 10], "second": [30, 10]}

    assert loop.decide(0, 4, _read_until(known, 0)).because == "second"
    assert loop.decide(1, 4, _read_until(known, 1)).because is None


_PERCENT = [(0, 10, 0), (10, 20, 10), (20, None, 30)]
_PERCENT_DOWN = [(-10, 0, 0), (-20, -10, -10), (None, -20, -30)]


def test_steps_are_those_of_the_documentations_example() -> None:
    """Threshold 50, 10 tasks: at 59 none, at 60 one more, at 70 three more; at 41 none, at 40 one less, at 30 three."""
    up = _stepping(*_PERCENT, alarm=_alarm(50), adjustment_type="PercentChangeInCapacity")
    down = _stepping(*_PERCENT_DOWN, alarm=_alarm(50, "LessThanThreshold"), adjustment_type="PercentChangeInCapacity")

    assert _tasks(up, down, begin=10, backlog=[59, 60, 70, 41, 40, 30]) == [10, 11, 14, 14, 13, 10]


@pytest.mark.parametrize(
    ("comparison", "value", "after"),
    [
        ("GreaterThanOrEqualToThreshold", 100, 5),
        ("GreaterThanOrEqualToThreshold", 109, 5),
        ("GreaterThanOrEqualToThreshold", 110, 6),
        ("LessThanOrEqualToThreshold", 100, 3),
        ("LessThanOrEqualToThreshold", 91, 3),
        ("LessThanOrEqualToThreshold", 90, 2),
    ],
)
def test_a_bound_belongs_to_the_step_nearer_to_the_threshold(comparison: str, value: float, after: int) -> None:
    """Above the threshold the lower bound is inclusive, below it the upper: at 90 it is ten below, the second step."""
    steps = [(0, 10, 1), (10, None, 2)] if comparison.startswith("Greater") else [(-10, 0, -1), (None, -10, -2)]

    assert _tasks(_stepping(*steps, alarm=_alarm(100, comparison)), backlog=[value]) == [after]


def test_a_value_without_a_step_changes_nothing() -> None:
    """20 above the threshold, and the only step begins at 50."""
    assert _tasks(_stepping((50, None, 1)), backlog=[120]) == [4]


@pytest.mark.parametrize(
    ("percent", "tasks", "after"),
    [(25, 50, 62), (10, 6, 7), (-10, 6, 5), (-33, 20, 14), (10, 10, 11), (0, 10, 10)],
)
def test_a_percentage_is_rounded_as_documented(percent: float, tasks: int, after: int) -> None:
    """12.5 down to 12, 0.6 to 1, -0.6 to -1, -6.6 to -6; floating point makes no whole number a smaller one."""
    policy = _stepping((0, None, percent), adjustment_type="PercentChangeInCapacity")

    assert _tasks(policy, begin=tasks, backlog=[200]) == [after]


@pytest.mark.parametrize(("percent", "after"), [(25, 6), (100, 8), (-25, 2), (0, 4)])
def test_the_minimum_magnitude_enlarges_a_change_and_never_causes_any(percent: float, after: int) -> None:
    """25 % of 4 is 1, and becomes 2, up and down; a step of 0 changes nothing."""
    policy = _stepping((0, None, percent), adjustment_type="PercentChangeInCapacity", min_adjustment_magnitude=2)

    assert _tasks(policy, backlog=[200]) == [after]


def test_exact_capacity_sets_the_number_up_and_down() -> None:
    """From four tasks to two and to nine."""
    exact = _stepping((0, 100, 2), (100, None, 9), adjustment_type="ExactCapacity")

    assert _tasks(exact, backlog=[150, 250]) == [2, 9]


def test_a_step_is_taken_each_minute_the_alarm_lasts() -> None:
    """Two more tasks in each of the three minutes above the threshold."""
    assert _tasks(_stepping((0, None, 2)), backlog=[200, 200, 50, 200]) == [6, 8, 8, 10]


def test_while_a_step_cools_down_only_what_is_more_is_added() -> None:
    """The documentation's case: two added, then three wanted, of which one is missing; rested, all three."""
    policy = _stepping((0, 100, 2), (100, None, 3), cooldown_seconds=180)

    assert _tasks(policy, backlog=[150, 150, 250, 250, 250, 250]) == [6, 6, 7, 7, 7, 10]


def test_a_step_down_in_cooldown_adds_nothing_after_others_scale_in() -> None:
    """Ten minutes' rest at 9 tasks; another policy goes to 4; the resting step wants nothing."""
    down = _stepping((None, 0, -1), alarm=_alarm(10, "LessThanThreshold"), cooldown_seconds=600)
    other = _tracking(name="other")

    assert _tasks(down, other, begin=10, backlog=[5, 5, 5], other=[10, 4, 10]) == [9, 4, 4]


def test_a_scale_out_in_cooldown_does_not_replace_tasks_others_removed() -> None:
    """This policy went from 4 to 6, then another policy went to 2. Two more tasks make 4, and not 6."""
    up = _stepping((0, None, 2), cooldown_seconds=600)
    down = replace(_stepping((None, 0, 2), adjustment_type="ExactCapacity"), alarm=_alarm(10, "LessThanThreshold"))

    assert _tasks(up, down, backlog=[200, 5, 200]) == [6, 2, 4]
