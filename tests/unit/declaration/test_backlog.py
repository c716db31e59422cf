"""The scaling expressions: their text, and their values for time series."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import botocore.session
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, backlog
from sluice.declaration.backlog import (
    AGE,
    DELETED,
    EMPTY_RECEIVES,
    IN_FLIGHT,
    RECEIVED,
    RUNNING,
    VISIBLE,
    fill_with_repeat,
)
from sluice.declaration.metric_math import Fill, If, Metric, Number, Operation, Series, Term, metric_ids
from tests.support.declaration import ENVIRONMENTS

TARGET, LANES = 240.0, 4
RAW = backlog.backlog_per_task()
# A message of 2.25 s is in flight for nine tenths of its lane's time: a task at work has 3.6 in flight.
DEMAND = backlog.demand_per_task(TARGET, lanes=LANES, processing_seconds=2.25)
CLAMPED = backlog.clamped_backlog_per_task(TARGET, lanes=LANES, processing_seconds=2.25)
DEMAND_OF_ONE_SECOND = backlog.demand_per_task(TARGET, lanes=LANES, processing_seconds=1)
WAKE = backlog.work_without_workers()
STUCK = backlog.group_stuck(acceptable_latency_seconds=60, lanes=LANES, processing_seconds=2.25)
PINNED = backlog.capacity_pinned(TARGET, max_tasks=5, lanes=LANES, processing_seconds=2.25)
TERMS = {"raw": RAW, "demand": DEMAND, "clamped": CLAMPED, "wake": WAKE, "stuck": STUCK, "pinned": PINNED}
SQS_METRICS = (VISIBLE, IN_FLIGHT, EMPTY_RECEIVES, RECEIVED, DELETED, AGE)
METRICS = (*SQS_METRICS, RUNNING)


def _one_minute(
    *,
    visible: float | None = 0,
    inflight: float | None = 0,
    empty: float | None = 0,
    received: float | None = 0,
    deleted: float | None = 0,
    age: float | None = 0,
    running: float | None = None,
) -> dict[str, Series]:
    """Return the time series of a single minute."""
    return {
        VISIBLE: [visible],
        IN_FLIGHT: [inflight],
        EMPTY_RECEIVES: [empty],
        RECEIVED: [received],
        DELETED: [deleted],
        AGE: [age],
        RUNNING: [running],
    }


_BACKLOG = "(FILL(visible, REPEAT) + FILL(inflight, REPEAT))"
_TASKS = "FILL(FILL(running, REPEAT), 0)"
_PER_TASK = f"IF(({_TASKS} > 0), ({_BACKLOG} / {_TASKS}), {_BACKLOG})"
_IDLE = f"(FILL(inflight, REPEAT) < ({_TASKS} * 3.24))"
_USEFUL = f"((FILL(inflight, REPEAT) / ({_TASKS} * 3.6)) * 300)"


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (RAW, _PER_TASK),
        (
            CLAMPED,
            f"IF(({_IDLE} AND ({_PER_TASK} > 240)), IF(({_USEFUL} < 240), {_USEFUL}, 240), {_PER_TASK})",
        ),
        (
            WAKE,
            "IF(((FILL(visible, REPEAT) > 0) AND (((FILL(inflight, REPEAT) < 1) AND (FILL(empty, REPEAT) < 1))"
            " AND (FILL(received, REPEAT) < 1))), 1, 0)",
        ),
        (STUCK, f"IF(((FILL(age, REPEAT) > 60) AND {_IDLE}), 1, 0)"),
        (
            PINNED,
            f"IF((({_TASKS} >= 5) AND ({_PER_TASK} > 240)), IF({_IDLE}, 0, 1), 0)",
        ),
    ],
    ids=[name for name in TERMS if name != "demand"],
)
def test_an_expression_renders_to_metric_math(term: Term, text: str) -> None:
    """The text is the one that CloudWatch evaluates. 300 is the target of 240 and a quarter more."""
    assert term.text() == text


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_no_late_metric_is_filled_with_zero(term: Term) -> None:
    """FILL(x, 0) on a late metric makes its newest value 0, and all are late: the last value is repeated first."""
    assert set(re.findall(r"FILL\(\w+, (\w+)\)", term.text())) == {"REPEAT"}


@pytest.mark.parametrize(
    ("term", "ids"),
    [
        (RAW, ("running", "visible", "inflight")),
        (CLAMPED, ("inflight", "running", "visible")),
        (WAKE, ("visible", "inflight", "empty", "received")),
        (STUCK, ("age", "inflight", "running")),
        (PINNED, ("running", "visible", "inflight")),
        (DEMAND, ("inflight", "running", "visible", "received", "deleted")),
        (Number(1), ()),
        (fill_with_repeat("visible"), ("visible",)),
    ],
)
def test_an_expression_names_each_metric_once_in_the_order_of_its_text(term: Term, ids: tuple[str, ...]) -> None:
    """An alarm of CloudWatch needs the list of the metrics in its expression."""
    named = tuple(dict.fromkeys(re.findall(r"FILL\((\w+),", term.text())))

    assert metric_ids(term) == ids
    assert named == ids


def test_metric_ids_have_the_form_that_cloudwatch_requires() -> None:
    assert [id_ for id_ in METRICS if not re.fullmatch("[a-z][A-Za-z0-9_]*", id_)] == []
    assert len({*METRICS, "result"}) == 8


def _parts(term: Term) -> Iterator[Term]:
    yield term
    for part in term.terms():
        yield from _parts(part)


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_every_part_of_an_expression_is_reached_through_its_terms(term: Term) -> None:
    """Counted against the operators in the text, so that no part is forgotten in `terms`."""
    parts, text = list(_parts(term)), term.text()

    assert sum(isinstance(part, Metric) for part in parts) == text.count(", REPEAT)")
    assert sum(isinstance(part, If) for part in parts) == text.count("IF(")
    assert sum(isinstance(part, Operation) for part in parts) == len(re.findall(r" (?:[-+*/<>]|>=|AND|OR) ", text))


def _terms(consumer: Consumer) -> dict[str, Term]:
    return {
        "raw": backlog.backlog_per_task(),
        "demand": consumer.demand_per_task,
        "wake": backlog.work_without_workers(),
        "stuck": consumer.group_stuck,
        "pinned": consumer.capacity_pinned,
    }


@pytest.mark.parametrize(
    "consumer",
    [
        *(consumer for environment in ENVIRONMENTS.values() for consumer in environment.consumers),
        Consumer(name="most-lanes", lanes=120_000, acceptable_latency_seconds=1, max_tasks=1),
        Consumer(name="most-tasks", max_tasks=5_000, expected_groups=5_000, lanes=1, acceptable_latency_seconds=24),
        Consumer(name="odd", processing_seconds=0.123456789, lanes=7, max_tasks=3),
        Consumer(
            name="late",
            message_retention_seconds=1_209_600,
            acceptable_latency_seconds=604_799,
            processing_seconds=50.4,
            visibility_timeout_seconds=100,
            lanes=1,
            max_tasks=1,
        ),
    ],
    ids=lambda consumer: consumer.name,
)
def test_an_expression_is_short_enough_for_cloudwatch_and_written_without_exponents(consumer: Consumer) -> None:
    """Botocore's models of both services accept it for any declaration.

    It has decimal digits and words that CloudWatch knows.
    """
    texts = {name: term.text() for name, term in _terms(consumer).items()}

    models = botocore.session.get_session()
    shapes = {"application-autoscaling": "Expression", "cloudwatch": "MetricExpression"}
    most = {models.get_service_model(name).shape_for(shape).metadata["max"] for name, shape in shapes.items()}
    metrics = "|".join(METRICS)
    words = rf"(?:FILL|IF|MAX|MIN|REPEAT|AND|OR|{metrics}|\d+(?:\.\d+)?|>=|[-+*/<>(), \[\]])+"
    assert most == {2_048}
    assert {name: len(text) for name, text in texts.items() if len(text) > 2_048} == {}
    assert [name for name, text in texts.items() if not re.fullmatch(words, text)] == []


_COUNTS = st.none() | st.integers(0, 12).map(float) | st.floats(0, 1e6)
_SERIES = st.fixed_dictionaries(
    {id_: st.lists(_COUNTS, min_size=6, max_size=6) for id_ in METRICS} | {"minute": st.integers(0, 5)}
)


@pytest.mark.parametrize(
    ("acceptable_latency_seconds", "processing_seconds", "lanes", "messages"),
    [(60, 1, 4, 240), (60, 1, 1, 60), (60, 0.5, 4, 480), (1_200, 300, 4, 16), (5, 5, 3, 3)],
)
def test_the_target_backlog_is_what_all_lanes_handle_in_time(
    acceptable_latency_seconds: float, processing_seconds: float, lanes: int, messages: float
) -> None:
    """Four lanes of 1 s handle 240 messages in the acceptable 60 s."""
    target = backlog.target_backlog(
        acceptable_latency_seconds=acceptable_latency_seconds, processing_seconds=processing_seconds, lanes=lanes
    )

    assert target == messages


_OF_A_MINUTE: dict[str, tuple[Term, float | None, dict[str, Series]]] = {
    # In-flight messages count; without tasks it is the whole backlog, and without data 0.
    "raw, four tasks": (RAW, 100, _one_minute(visible=380, inflight=20, running=4)),
    "raw, zero tasks, one message": (RAW, 1, _one_minute(visible=1, running=0)),
    "raw, zero tasks, unreported": (RAW, 1, _one_minute(visible=1, running=None)),
    "raw, long jobs only": (RAW, 50, _one_minute(visible=0, inflight=100, running=2)),
    "raw, no data yet": (RAW, 0, _one_minute(visible=None, inflight=None, running=2)),
    # Target 240, 18 in flight when all lanes work: a busy lane is worth 240 / lanes in all, and a quarter more.
    "clamped, all lanes at work are believed": (CLAMPED, 2_000, _one_minute(visible=9_982, inflight=18, running=5)),
    "clamped, so are nine tenths of them": (CLAMPED, 2_000, _one_minute(visible=9_983.75, inflight=16.25, running=5)),
    "clamped, fewer are idle lanes": (CLAMPED, 240, _one_minute(visible=9_984, inflight=16, running=5)),
    "clamped, four of five lanes are just right": (CLAMPED, 240, _one_minute(visible=9_984, inflight=14.4, running=5)),
    "clamped, one lane fewer is too many tasks": (CLAMPED, 225, _one_minute(visible=9_985, inflight=13.5, running=5)),
    "clamped, a hot group: one lane of twenty": (CLAMPED, 15, _one_minute(visible=9_999, inflight=0.9, running=5)),
    "clamped, a blocked queue": (CLAMPED, 0, _one_minute(visible=10_000, inflight=0, running=5)),
    "clamped, at the target there is nothing to hold": (
        CLAMPED,
        240,
        _one_minute(visible=1_190, inflight=10, running=5),
    ),
    "clamped, below it neither": (CLAMPED, 20, _one_minute(visible=90, inflight=10, running=5)),
    "clamped, nobody there to be idle": (CLAMPED, 10_000, _one_minute(visible=10_000, inflight=0, running=None)),
    "clamped, nobody, and reported so": (CLAMPED, 10_000, _one_minute(visible=10_000, inflight=0, running=0)),
    "demand, lanes that keep up are worth the target": (DEMAND, 240, _one_minute(visible=0, inflight=17, running=5)),
    "demand, half of them half": (DEMAND, 120, _one_minute(visible=0, inflight=8.5, running=5)),
    "demand, behind it is the backlog": (DEMAND, 2_000, _one_minute(visible=9_982, inflight=18, running=5)),
    "demand, a hot group stays held": (DEMAND, 15, _one_minute(visible=9_999, inflight=0.9, running=5)),
    "demand, nobody there": (DEMAND, 10_000, _one_minute(visible=10_000, inflight=0, running=None)),
    "demand, a paused consumer shrinks": (DEMAND, 0, _one_minute(visible=10_000, inflight=0, running=5)),
    # No progress: failed messages are in flight until their next try, with no lane.
    "demand, an outage": (DEMAND_OF_ONE_SECOND, 240, _one_minute(inflight=100, running=2, received=40)),
    "demand, its backlog": (
        DEMAND_OF_ONE_SECOND,
        240,
        _one_minute(visible=9_000, inflight=100, running=2, received=40),
    ),
    "demand, no try in this minute": (DEMAND_OF_ONE_SECOND, 240, _one_minute(inflight=100, running=2)),
    "demand, half of the messages": (
        DEMAND_OF_ONE_SECOND,
        240,
        _one_minute(inflight=100, running=2, received=90, deleted=15),
    ),
    "demand, their first minute": (
        DEMAND_OF_ONE_SECOND,
        240,
        _one_minute(inflight=100, running=2, received=60, deleted=30),
    ),
    "demand, recovered": (
        DEMAND_OF_ONE_SECOND,
        4_505,
        _one_minute(visible=9_000, inflight=10, running=2, received=99, deleted=98),
    ),
    "demand, a poisoned message": (
        DEMAND_OF_ONE_SECOND,
        353,
        _one_minute(inflight=10, running=2, received=99, deleted=98),
    ),
    "demand, a handler of minutes": (DEMAND_OF_ONE_SECOND, 4_504, _one_minute(visible=9_000, inflight=8, running=2)),
    "demand, receives unknown": (
        DEMAND_OF_ONE_SECOND,
        3_529,
        _one_minute(inflight=100, running=2, received=None, deleted=None),
    ),
    "clamped, empty receives": (CLAMPED, 2_000, _one_minute(visible=9_980, inflight=20, empty=60, running=5)),
    # Visible, nobody working, polling or receiving: 1; and 0 while one of the four is unknown.
    "wake, a message": (WAKE, 1, _one_minute(visible=1)),
    "wake, a fifth of one": (WAKE, 1, _one_minute(visible=0.2)),
    "wake, hardly anybody": (WAKE, 1, _one_minute(visible=5, inflight=0.5, empty=0.5, received=0.5)),
    "wake, a paused consumer": (WAKE, 1, _one_minute(visible=5, running=1)),
    "wake, nothing there": (WAKE, 0, _one_minute(visible=0)),
    "wake, somebody works": (WAKE, 0, _one_minute(visible=5, inflight=1)),
    "wake, somebody polls": (WAKE, 0, _one_minute(visible=5, empty=1)),
    "wake, somebody receives": (WAKE, 0, _one_minute(visible=5, received=1)),
    "wake, visible unknown": (WAKE, 0, _one_minute(visible=None)),
    "wake, in flight unknown": (WAKE, 0, _one_minute(visible=5, inflight=None)),
    "wake, polls unknown": (WAKE, 0, _one_minute(visible=5, empty=None)),
    "wake, receives unknown": (WAKE, 0, _one_minute(visible=5, received=None)),
    # Later than 60 s and fewer than 16.2 of 18 in flight; nobody is idle where nobody runs, all without a number.
    "stuck, late and idle": (STUCK, 1, _one_minute(age=61, inflight=16, running=5)),
    "stuck, very late": (STUCK, 1, _one_minute(age=9_999, inflight=0, running=5)),
    "stuck, in time": (STUCK, 0, _one_minute(age=60, inflight=16, running=5)),
    "stuck, all at work": (STUCK, 0, _one_minute(age=61, inflight=16.25, running=5)),
    "stuck, tasks unreported": (STUCK, 0, _one_minute(age=61, inflight=0, running=None)),
    "stuck, no tasks": (STUCK, 0, _one_minute(age=61, inflight=0, running=0)),
    "stuck, age unknown": (STUCK, 0, _one_minute(age=None, inflight=1, running=5)),
    "stuck, in flight unknown": (STUCK, 1, _one_minute(age=61, inflight=None, running=5)),
    # Five tasks or more, above 240 each, and no lanes idle: a hot group at the maximum wants no larger maximum.
    "pinned, just above": (PINNED, 1, _one_minute(visible=1_181, inflight=20, running=5)),
    "pinned, more tasks than allowed": (PINNED, 1, _one_minute(visible=9_980, inflight=20, running=6)),
    "pinned, nine tenths at work": (PINNED, 1, _one_minute(visible=9_980, inflight=16.25, running=5)),
    "pinned, at the target": (PINNED, 0, _one_minute(visible=1_180, inflight=20, running=5)),
    "pinned, a task to spare": (PINNED, 0, _one_minute(visible=9_984, inflight=16, running=4)),
    "pinned, idle lanes": (PINNED, 0, _one_minute(visible=9_984, inflight=16, running=5)),
    "pinned, a hot group": (PINNED, 0, _one_minute(visible=9_999, inflight=1, running=5)),
    "pinned, tasks unreported": (PINNED, 0, _one_minute(visible=9_999, running=None)),
    "pinned, visible unknown": (PINNED, 0, _one_minute(visible=None, inflight=16, running=5)),
    "pinned, in flight unknown": (PINNED, 0, _one_minute(visible=9_984, inflight=None, running=5)),
}


@pytest.mark.parametrize(("term", "value", "series"), _OF_A_MINUTE.values(), ids=_OF_A_MINUTE)
def test_the_value_of_an_expression_in_a_minute(term: Term, value: float | None, series: dict[str, Series]) -> None:
    """The cases were worked out by hand; each is named."""
    close = pytest.approx(value, rel=1e-3 if term is DEMAND_OF_ONE_SECOND else None)
    assert term.value_at(series, 0) == (close if term in {CLAMPED, DEMAND, DEMAND_OF_ONE_SECOND} else value)


@given(
    visible=st.floats(0, 1e6),
    inflight=st.floats(0, 1e4),
    running=st.floats(1, 100),
    lanes=st.integers(1, 50),
    processing_seconds=st.floats(0.001, 1e4),
)
def test_the_clamp_never_asks_for_more_than_the_raw_backlog(
    visible: float, inflight: float, running: float, lanes: int, processing_seconds: float
) -> None:
    """The clamp only lowers values above the target, and then to the target or less."""
    series = _one_minute(visible=visible, inflight=inflight, running=running)
    raw = RAW.value_at(series, 0)
    clamped = backlog.clamped_backlog_per_task(TARGET, lanes=lanes, processing_seconds=processing_seconds).value_at(
        series, 0
    )

    assert raw is not None
    assert clamped is not None
    assert clamped == raw or (raw > TARGET >= clamped)


def _known_series(series: Mapping[str, Series], minute: int, lags: Mapping[str, int]) -> dict[str, Series]:
    """Return the known values of each series in that minute, if some of the series are late."""
    return {
        id_: [*values[: max(0, minute + 1 - lags.get(id_, 0))], *[None] * min(lags.get(id_, 0), minute + 1)]
        for id_, values in series.items()
    }


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
@pytest.mark.parametrize("metric", [VISIBLE, IN_FLIGHT, EMPTY_RECEIVES, RECEIVED])
def test_a_late_metric_delays_the_wake_signal_and_never_falsifies_it(metric: str, lag: int) -> None:
    """The last task stops in minute 3, and a message arrives: 1 from then on, or from when that is known."""
    series: dict[str, Series] = {
        VISIBLE: [0, 0, 0, 1, 1, 1, 1, 1],
        IN_FLIGHT: [1, 1, 1, 0, 0, 0, 0, 0],
        EMPTY_RECEIVES: [3, 3, 3, 0, 0, 0, 0, 0],
        RECEIVED: [60, 60, 60, 0, 0, 0, 0, 0],
    }

    found = [WAKE.value_at(_known_series(series, minute, {metric: lag}), minute) for minute in range(8)]

    assert found == [*[0] * (lag + 3), *[1] * (5 - lag)]


# Four tasks of four lanes come and go: none, a burst for all, one hot group for three of them, none.
_STORY: dict[str, Series] = {
    VISIBLE: [2_000, 1_900.4, 6_001.6, 4_985.6, 3_985.6, 5_000, 6_000, 6_000, 0, 0],
    IN_FLIGHT: [0, 3.6, 14.4, 14.4, 14.4, 0.9, 0.9, 0.9, 0, 0],
    EMPTY_RECEIVES: [0, 0, 0, 0, 0, 45, 45, 45, 12, 0],
    RECEIVED: [0, 106, 426, 426, 426, 26, 26, 26, 0, 0],
    AGE: [60, 90, 120, 120, 120, 180, 240, 300, 0, 0],
    RUNNING: [None, 1, 4, 4, 4, 4, 4, 4, 1, None],
}


@pytest.mark.parametrize(
    ("metric", "lag", "result"),
    [
        (VISIBLE, 0, [2_000, 1_904, 1_504, 1_250, 1_000, 18.75, 18.75, 18.75, 0, 0]),  # all on time
        (VISIBLE, 1, [0, 2_003.6, 478.7, 1_504, 1_250, 18.75, 18.75, 18.75, 0, 0]),
        (VISIBLE, 2, [0, 3.6, 503.6, 478.7, 1_504, 18.75, 18.75, 18.75, 0, 0]),
        (VISIBLE, 3, [0, 3.6, 3.6, 503.6, 478.7, 18.75, 18.75, 18.75, 0, 0]),
        (IN_FLIGHT, 1, [2_000, 0, 75, 1_250, 1_000, 1_253.6, 18.75, 18.75, 0.9, 0]),
        (IN_FLIGHT, 2, [2_000, 0, 0, 75, 1_000, 1_253.6, 1_503.6, 18.75, 0.9, 0.9]),
        (IN_FLIGHT, 3, [2_000, 0, 0, 0, 75, 1_253.6, 1_503.6, 1_503.6, 0.9, 0.9]),
        (RUNNING, 1, [2_000, 1_904, 6_016, 1_250, 1_000, 18.75, 18.75, 18.75, 0, 0]),
        (RUNNING, 2, [2_000, 1_904, 6_016, 5_000, 1_000, 18.75, 18.75, 18.75, 0, 0]),
        (RUNNING, 3, [2_000, 1_904, 6_016, 5_000, 4_000, 18.75, 18.75, 18.75, 0, 0]),
    ],
)
def test_one_late_metric_delays_the_clamp(metric: str, lag: int, result: list[float | None]) -> None:
    """The expected values were worked out by hand for each minute.

    A late metric delays the result; before its first value only running tasks count as 0.
    """
    assert [CLAMPED.value_at(_known_series(_STORY, minute, {metric: lag}), minute) for minute in range(10)] == [
        None if value is None else pytest.approx(value) for value in result
    ]


@settings(max_examples=150, deadline=None, database=None, print_blob=True)
@given(
    series=st.fixed_dictionaries(
        {id_: st.lists(_COUNTS, min_size=6, max_size=6) for id_ in SQS_METRICS}
        | {RUNNING: st.lists(st.none() | st.integers(0, 12), min_size=6, max_size=6)}
    ),
    lags=st.fixed_dictionaries({id_: st.integers(0, 3) for id_ in METRICS}),
)
def test_late_metrics_and_gaps_bring_no_expression_out_of_its_bounds(
    series: dict[str, Series], lags: dict[str, int]
) -> None:
    """Each signal is 0, 1 or None; the clamp is None, or from 0 to the backlog that the metrics so far show."""
    for minute in range(6):
        known = _known_series(series, minute, lags)
        whole = Operation(fill_with_repeat(VISIBLE), "+", fill_with_repeat(IN_FLIGHT)).value_at(known, minute)
        clamped = CLAMPED.value_at(known, minute)

        assert {WAKE.value_at(known, minute), STUCK.value_at(known, minute), PINNED.value_at(known, minute)} <= {
            0,
            1,
            None,
        }
        assert clamped is None or 0 <= clamped <= (whole or 0)


@pytest.mark.parametrize("metric", [VISIBLE, IN_FLIGHT, RUNNING])
def test_a_zero_filled_metric_says_what_is_not_so(metric: str) -> None:
    """The mutation is FILL(x, 0), with metrics two minutes late.

    The newest value is always 0, so the result is wrong.
    """
    known = _known_series(_STORY, 7, {metric: 2})

    right, mutated = CLAMPED.value_at(known, 7), _zero_filled(CLAMPED, metric).value_at(known, 7)

    assert right == pytest.approx(18.75)
    assert mutated == pytest.approx({VISIBLE: 0.225, IN_FLIGHT: 0, RUNNING: 6_000.9}[metric])


def _zero_filled(term: Term, metric: str) -> Term:
    """Return a term whose fills of this metric are zeros."""
    if isinstance(term, Fill):
        return Fill(Metric(metric), Number(0)) if metric_ids(term) == (metric,) else term
    if isinstance(term, Operation):
        return replace(term, left=_zero_filled(term.left, metric), right=_zero_filled(term.right, metric))
    if isinstance(term, If):
        return If(*(_zero_filled(part, metric) for part in term.terms()))
    return term
