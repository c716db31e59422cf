"""The scaling expression behaves as decisions 5, 6 and 10 say, on the rehearsal's simulation.

Metrics come as late as in the usual variant: those of SQS two minutes, the count of tasks one; a task starts in one.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, backlog
from sluice.declaration.metric_math import Combination, Fill, Metric, Number, Term, map_term
from sluice.rehearse.declared_service import service_of
from sluice.rehearse.model.control_loop import VARIANTS, Variant
from sluice.rehearse.model.policies import TargetTracking
from sluice.rehearse.model.queue_simulation import Floats
from sluice.rehearse.model.simulation import SimulationResult, TaskWork, simulate
from sluice.rehearse.model.traffic import DrawnTraffic, RecordedTraffic, Traffic, changing, constant
from sluice.rehearse.reading.expressions import parse
from tests.support.cases import one_case_in
from tests.support.declaration import ENVIRONMENTS

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

TASKS = TaskWork(lanes=4, handler_seconds=1, acceptable_latency_seconds=60)
RAW = backlog.backlog_per_task()


def _target(tasks: TaskWork) -> float:
    return backlog.target_backlog(
        acceptable_latency_seconds=tasks.acceptable_latency_seconds,
        processing_seconds=tasks.handler_seconds,
        lanes=tasks.lanes,
    )


def _demand(tasks: TaskWork) -> Term:
    """Return what is deployed."""
    return backlog.demand_per_task(_target(tasks), lanes=tasks.lanes, processing_seconds=tasks.handler_seconds)


def _clamped_backlog(tasks: TaskWork) -> Term:
    return backlog.clamped_backlog_per_task(_target(tasks), lanes=tasks.lanes, processing_seconds=tasks.handler_seconds)


def _backlog_clamped_by_groups(tasks: TaskWork) -> Term:
    """Return the rejected clamp: hold while fewer groups are in flight than nine tenths of the lanes."""
    raw, few = RAW.text(), f"inflight / running < {0.9 * tasks.lanes}"
    return parse(f"IF({few}, IF({raw} > {_target(tasks)}, {_target(tasks)}, {raw}), {raw})")


def _fill_with_zero(term: Term) -> Term:
    """Return the expression with every gap of running tasks filled with 0, the late ones too."""
    return map_term(
        term, lambda part: Fill(Metric(backlog.RUNNING), Number(0)) if part == backlog.RUNNING_TASKS else part
    )


def _run(
    traffic: Traffic,
    tasks: TaskWork = TASKS,
    term: Term | None = None,
    *,
    rest_seconds: int = 300,
    min_tasks: int = 1,
    max_tasks: int = 20,
    variant: Variant = VARIANTS[0],
) -> SimulationResult:
    """Return what comes of a service on that expression; without one, on what is deployed."""
    consumer = Consumer(name="tried", min_tasks=min_tasks, max_tasks=4, acceptable_latency_seconds=1_200)
    service = service_of(ENVIRONMENTS["prod"], consumer)
    tracking, *others = service.policies
    assert isinstance(tracking, TargetTracking)
    watched = replace(tracking.watched, term=_demand(tasks) if term is None else term)
    changed = replace(tracking, watched=watched, target=_target(tasks), scale_out_cooldown_seconds=rest_seconds)
    return simulate(replace(service, max_tasks=max_tasks, policies=(changed, *others)), traffic, tasks, variant=variant)


def _last_desired(result: SimulationResult, minutes: int = 15) -> set[float | None]:
    """Return how many tasks were wanted in the last minutes of the traffic."""
    return set(result.series["desired"][-minutes:])


def _handled_count(result: SimulationResult) -> float:
    return sum(value or 0 for value in result.series["done"])


def _between(second: Floats, first: float, last: float) -> Floats:
    """Return 1 between these seconds, else 0."""
    return ((second >= first) & (second < last)).astype(np.float64)


def _few_groups() -> DrawnTraffic:
    """Return half as much again as eight groups can have done."""
    return DrawnTraffic(name="few", rates=constant(12, 90), group_count=8)


def _hot_group() -> DrawnTraffic:
    return DrawnTraffic(name="hot", rates=constant(6, 90), group_count=40, hot_share=0.6)


def _steady() -> DrawnTraffic:
    return DrawnTraffic(name="steady", rates=constant(6, 120), group_count=300)


def _burst() -> DrawnTraffic:
    """Return six a second, and thirty for a quarter of an hour."""
    return DrawnTraffic(
        name="burst", rates=changing(lambda second: 6 + 24 * _between(second, 600, 1_500), 60), group_count=60
    )


@pytest.mark.parametrize("variant", one_case_in(len(VARIANTS), VARIANTS))
def test_few_groups_get_only_the_tasks_they_can_use(variant: Variant) -> None:
    """Eight groups are two tasks' lanes. What is to spare, and counts as busy, makes it four at most."""
    assert _last_desired(_run(_few_groups(), variant=variant)) <= {3, 4}


def test_without_the_clamp_few_groups_get_all_tasks_allowed() -> None:
    """Scaled on the backlog alone, twenty tasks run, of which eighteen never have work.

    No message is handled sooner.
    """
    deployed, unclamped = _run(_few_groups()), _run(_few_groups(), term=RAW)

    assert _last_desired(unclamped) == {20}
    assert _handled_count(unclamped) == _handled_count(deployed)
    assert deployed.task_hours < unclamped.task_hours / 2


def test_the_clamp_makes_a_hot_group_cheaper_and_no_later() -> None:
    """Six of ten messages are of one group, which more tasks cannot help; `RAW` is the expression without the clamp."""
    deployed, unclamped = _run(_hot_group()), _run(_hot_group(), term=RAW)

    assert deployed.task_hours < unclamped.task_hours / 2
    assert _handled_count(deployed) >= 0.99 * _handled_count(unclamped)


@pytest.mark.parametrize("variant", one_case_in(len(VARIANTS), VARIANTS))
def test_the_clamp_costs_little_where_many_groups_have_work(variant: Variant) -> None:
    """A burst is done at most a quarter later than without it, with more than the seven tasks whose lanes it takes."""
    deployed, unclamped = _run(_burst(), variant=variant), _run(_burst(), term=RAW, variant=variant)

    late, late_unclamped = deployed.quantile_seconds(0.95), unclamped.quantile_seconds(0.95)
    assert late is not None
    assert late_unclamped is not None
    assert late <= 1.25 * late_unclamped
    assert deployed.most_tasks >= 8


def test_short_handlers_scale_out_and_would_not_on_groups_in_flight() -> None:
    """A burst of 30 ms messages: two thirds of a lane's time is in flight, and the rejected clamp takes it for idle."""
    tasks = TaskWork(lanes=1, handler_seconds=0.03, acceptable_latency_seconds=10)
    traffic = DrawnTraffic(
        name="short", rates=changing(lambda second: 10 + 90 * _between(second, 600, math.inf), 25), group_count=100
    )

    assert _run(traffic, tasks).most_tasks >= 5
    assert _run(traffic, tasks, _backlog_clamped_by_groups(tasks)).most_tasks == 1


@pytest.mark.slow  # a minute of simulated days
@settings(
    max_examples=8,
    deadline=None,
    database=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate),  # an example takes a second: shrinking ends in the test's timeout
)
@given(
    groups=st.integers(1, 12),
    lanes=st.integers(1, 6),
    handler_seconds=st.sampled_from([0.2, 0.5, 1, 2, 10]),
    overload=st.sampled_from([1.5, 2, 3]),
    latency_seconds=st.integers(60, 300),
    start_seconds=st.sampled_from([0, 60, 120]),
    variant=st.sampled_from(VARIANTS),
)
def test_never_more_tasks_than_useful_groups_allow(**case: Any) -> None:
    """Every group always has work: once settled, a lane for each, and a quarter more than count as busy, or 1 in 0.85.

    A lane counts as busy that spends a quarter of a second between two messages: with short handlers more lanes do.
    """
    groups, lanes, handler_seconds = case["groups"], case["lanes"], case["handler_seconds"]
    tasks = TaskWork(
        lanes=lanes,
        handler_seconds=handler_seconds,
        acceptable_latency_seconds=case["latency_seconds"],
        start_seconds=case["start_seconds"],
    )
    rate = groups / handler_seconds * case["overload"]

    result = _run(
        DrawnTraffic(name="overload", rates=constant(rate, 100), group_count=groups),
        tasks,
        max_tasks=30,
        variant=case["variant"],
    )

    counted = (handler_seconds + 0.25) / (handler_seconds + tasks.overhead_seconds)
    stays = 0.9  # target tracking does not scale in before the metric is below this part of its target
    last = [value or 0 for value in result.series["desired"][85:100]]
    assert max(last) <= math.ceil(max(1.25 * counted, 1 / 0.85) * groups / lanes / stays)
    assert min(last) >= groups / lanes * min(1.0, handler_seconds / (handler_seconds + tasks.overhead_seconds))


def test_a_task_count_with_gaps_as_zero_starts_too_many_tasks() -> None:
    """Decision 6 on few groups.

    With zero filled in, the clamp alone wants at least 6 tasks instead of 3 or 4; with a cooldown of one minute it
    wants the maximum, 20.
    """
    zero = _fill_with_zero(_clamped_backlog(TASKS))

    assert _last_desired(_run(_few_groups(), term=_clamped_backlog(TASKS))) <= {3, 4}
    assert min(value or 0 for value in _last_desired(_run(_few_groups(), term=zero))) >= 6
    assert _last_desired(_run(_few_groups(), term=_clamped_backlog(TASKS), rest_seconds=60)) <= {3, 4}
    assert _last_desired(_run(_few_groups(), term=zero, rest_seconds=60)) == {20}


@pytest.mark.parametrize("traffic", one_case_in(3, [_few_groups(), _hot_group(), _steady()]))
def test_repeating_the_count_of_tasks_and_resting_five_minutes_cost_the_least(
    traffic: DrawnTraffic,
) -> None:
    """Filled with 0 and with a minute's rest the same work costs half as much again at least, and each costs more."""
    term = _demand(TASKS)
    chosen = _run(traffic).task_hours
    zero = _run(traffic, term=_fill_with_zero(term)).task_hours
    hasty = _run(traffic, rest_seconds=60).task_hours
    both = _run(traffic, term=_fill_with_zero(term), rest_seconds=60).task_hours

    assert chosen < min(zero, hasty)
    assert both > 1.5 * chosen


def test_busy_lanes_keep_the_latency_that_backlog_alone_misses() -> None:
    """Decision 10, on a steady load for four hours: backlog alone turns round again and again."""
    traffic = DrawnTraffic(name="steady", rates=constant(30, 240), group_count=300)

    deployed, clamped = _run(traffic), _run(traffic, term=_clamped_backlog(TASKS))

    assert deployed.quantile_seconds(0.95) == pytest.approx(2, abs=2)
    assert (clamped.quantile_seconds(0.95) or 0) > 60
    assert deployed.flaps < clamped.flaps
    assert deployed.task_hours < 1.1 * clamped.task_hours


@pytest.mark.parametrize(("share", "retry_seconds"), one_case_in(4, [1.0, 0.5], [30, 300]))
def test_an_outage_starts_no_task_and_its_end_starts_all_allowed(share: float, retry_seconds: float) -> None:
    """Failed messages wait in flight for their next try: without the brake two tasks become all allowed."""
    tasks = replace(TASKS, retry_seconds=retry_seconds)
    outage = DrawnTraffic(
        name="outage",
        rates=constant(6, 150),
        group_count=300,
        failing=changing(lambda second: share * _between(second, 3_600, 7_200), 150),
    )
    demand = _demand(tasks)
    assert isinstance(demand, Combination)
    unbraked = demand.parts[0]

    deployed, before = (_run(outage, tasks, term, max_tasks=29) for term in (demand, unbraked))

    wanted, wanted_before = ([value or 0.0 for value in each.series["desired"]] for each in (deployed, before))
    assert max(wanted[60:121]) == wanted[59]
    assert max(wanted_before[60:121]) == 29
    assert max(wanted[121:129]) == 29


def test_poison_that_is_no_outage_stops_no_scale_out() -> None:
    """One message in ten fails at all of its five receives: a third of the receives, and the rest is worth tasks."""
    tasks = TaskWork(lanes=4, handler_seconds=5, acceptable_latency_seconds=120)
    rates = np.concatenate([constant(0.8, 60), constant(5, 120)])
    demand = _demand(tasks)
    assert isinstance(demand, Combination)

    deployed, unbraked = (
        _run(DrawnTraffic(name="poison", rates=rates, group_count=300, poison_share=0.1), tasks, term, max_tasks=20)
        for term in (demand, demand.parts[0])
    )

    assert deployed.most_tasks == unbraked.most_tasks == 20
    assert (deployed.quantile_seconds(0.95) or 0) < 1.1 * (unbraked.quantile_seconds(0.95) or 0)


def test_long_jobs_in_flight_keep_their_workers() -> None:
    """Jobs of five minutes, one every ten seconds, are thirty lanes of work: once there, never under eight tasks."""
    tasks = TaskWork(lanes=4, handler_seconds=300, acceptable_latency_seconds=300)

    result = _run(DrawnTraffic(name="jobs", rates=constant(0.1, 180), group_count=100), tasks)

    last = [value or 0 for value in result.series["desired"][120:180]]
    assert min(last) >= 8
    assert max(last) <= 14


def _values(term: Term, result: SimulationResult, minutes: int) -> list[float | None]:
    """Return what a term says of the metrics of a simulation, on time, minute for minute."""
    return [term.value_at(result.series, minute) for minute in range(minutes)]


def test_capacity_is_pinned_only_at_the_maximum_and_for_want_of_tasks() -> None:
    """Sixty groups with more work than three tasks can do: 1 to the end; with tasks to spare, 0 throughout."""
    traffic = DrawnTraffic(name="much", rates=constant(30, 45), group_count=60)

    def pinned_term(max_tasks: int) -> Term:
        return backlog.capacity_pinned(_target(TASKS), max_tasks=max_tasks, lanes=4, processing_seconds=1)

    short, ample = _run(traffic, max_tasks=3), _run(traffic, max_tasks=20)

    assert set(_values(pinned_term(3), short, 45)[-15:]) == {1}
    assert set(_values(pinned_term(20), ample, 45)[-15:]) == {0}


def test_few_groups_at_the_maximum_are_stuck_and_not_pinned() -> None:
    """Eight groups, four tasks at most: sixteen lanes, half of them idle; a larger maximum would not help."""
    result = _run(_few_groups(), min_tasks=4, max_tasks=4)

    stuck = backlog.group_stuck(acceptable_latency_seconds=60, lanes=4, processing_seconds=1)
    pinned = backlog.capacity_pinned(_target(TASKS), max_tasks=4, lanes=4, processing_seconds=1)
    assert set(_values(stuck, result, 90)[-15:]) == {1}
    assert set(_values(pinned, result, 90)[2:]) == {0}


def _hourly() -> RecordedTraffic:
    """Return one message in the sixth minute of each of two hours."""
    return RecordedTraffic(
        name="hourly", sent_at=np.array([301.0, 3_901.0]), group=np.zeros(2, dtype=np.int64), lasts_minutes=120
    )


PATIENT = replace(TASKS, acceptable_latency_seconds=1_200)


@pytest.mark.parametrize("variant", one_case_in(len(VARIANTS), VARIANTS))
def test_one_message_wakes_one_task_which_goes_again(variant: Variant) -> None:
    """Each hour's message starts exactly one task once the metric shows it. A quarter of an hour later no task runs."""
    result = _run(_hourly(), PATIENT, min_tasks=0, variant=variant)

    desired = result.series["desired"]
    starts = [minute for minute in range(1, 120) if (desired[minute] or 0) > (desired[minute - 1] or 0)]
    assert _handled_count(result) == 2
    assert result.most_tasks == 1
    assert starts == [6 + variant.lag_minutes, 66 + variant.lag_minutes]
    assert desired[59] == desired[119] == 0
    assert (result.quantile_seconds(1) or math.inf) <= 60 * (variant.lag_minutes + 2) + 8


@pytest.mark.slow  # simulated days
def test_an_idle_queue_with_metrics_15_minutes_late_meets_the_latency() -> None:
    """A service with min_tasks 0 must accept 1,200 s; they hold for the latest metrics and a start of two minutes."""
    late = replace(VARIANTS[0], lag_minutes=15)

    result = _run(_hourly(), replace(PATIENT, start_seconds=120), min_tasks=0, variant=late)

    assert _handled_count(result) == 2
    assert (result.quantile_seconds(1) or math.inf) <= 1_200


def test_a_drained_service_goes_to_zero_and_stays_there() -> None:
    """Ten minutes of eight messages a second: woken, scaled out, everything done, then nobody until the end."""
    rates = changing(lambda second: 8 * _between(second, 300, 900), 150)
    tasks = replace(PATIENT, lanes=1)

    result = _run(DrawnTraffic(name="drain", rates=rates, group_count=60), tasks, min_tasks=0)

    desired = result.series["desired"]
    last = max(minute for minute, wanted in enumerate(desired) if wanted)
    assert result.left == 0
    assert result.most_tasks >= 2
    assert last < 130
    assert 0 not in desired[desired.index(1) : last]


def test_a_working_service_is_not_woken() -> None:
    """The step that wakes adds nothing in two hours of steady work."""
    result = _run(_steady(), PATIENT, min_tasks=0)

    assert [because for minute, _, _, because in result.decisions if minute > 10 and because == "wake-from-zero"] == []
