"""Whatever reads a history, Spark or this process: the verdict, its counts and its charts are the same."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from sluice.history.events import Event, Kind
from sluice.judge import engine as local_engine
from sluice.judge import recording
from sluice.judge.checker import Expectation, Thresholds
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import LocalEngine
from sluice.judge.judge import Engine, Planned, judge
from sluice.judge.recording import RecordingEngine
from spark_load.judge import engine as spark_engine
from spark_load.judge.engine import SparkEngine
from tests.support.anomalies import CASES as ANOMALIES
from tests.support.histories.by_hand import EXPECTATION, RUN
from tests.support.histories.recording_cases import (
    CASES,
    RecordingCase,
    anomalies,
    broken_at_random,
    table_of,
    write_parquet,
)

pytestmark = pytest.mark.spark
_STRICT = replace(
    EXPECTATION,
    effects_recorded=("billing",),
    subscription_dead_letter_queues={"shipping": "events"},
    fan_out_skew_seconds_max=5,
    passed_over_seconds_max=10,
    stuck_seconds_max=20,
)
_THRESHOLDS = Thresholds(
    latency_seconds_max=0.001, drain_seconds_max=0.001, recovery_seconds_max=0.0, throttled_share_max=0.0
)


def _recorded(engine: RecordingEngine, place: Path, case: RecordingCase) -> dict[str, Any]:
    """Return all that is told of a recording; which groups of one size are the hotter each engine says by a hash."""
    verdict, expectation = recording.check(
        engine, place, case.queues, "endpoint", has_other_producers=case.has_other_producers
    )
    found: dict[str, Any] = {"verdict": verdict.as_json()}
    if case.is_drawn:
        series = engine.series(expectation, verdict.violations)
        ranked = {name: sum(rank[name] for rank in series["ranks"]) for name in ("groups", "messages")}
        found["series"] = {**series, "ranks": ranked}
    return found


@contextmanager
def _opened_here(place: Path) -> Iterator[RecordingEngine]:
    engine = local_engine.opened(place)
    assert engine is not None, "no limit was given"
    yield engine


def _judged_or_refused(
    opened: Callable[[Path], AbstractContextManager[RecordingEngine]], place: Path, case: RecordingCase
) -> dict[str, Any] | str:
    try:
        with opened(place) as engine:
            return _recorded(engine, place, case)
    except HistoryError as error:
        return str(error)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if case.is_slow else []) for name, case in CASES.items()]
)
def test_both_engines_tell_the_same_of_every_recording(spark: SparkSession, tmp_path: Path, name: str) -> None:
    place, case = tmp_path / "recording", CASES[name]
    case.make(place)
    here, there = (
        _judged_or_refused(_opened_here, place, case),
        _judged_or_refused(partial(spark_engine.opened, spark), place, case),
    )

    assert json.loads(json.dumps(here)) == json.loads(json.dumps(there))


def _judged(engine: Engine, expectation: Expectation, *, recorders: Sequence[str] = ()) -> Verdict:
    return judge(
        engine,
        plan=Planned(message_count=10, lateness_budget_seconds=0.001),
        expectation=expectation,
        run={
            "run": RUN,
            "target": "endpoint",
            "recorders": dict.fromkeys(recorders, "billing"),
            "max_receive_count": {"billing": 3},
        },
        thresholds=_THRESHOLDS,
        allowed={"C7": "two producers publish each group"},
    )


def _forward(events: Sequence[Event]) -> list[Event]:
    """Return the events without the answers that came before their calls: a history with one is refused whole."""
    return [
        replace(event, responded_at_us=None) if (event.responded_at_us or 0) < (event.invoked_at_us or 0) else event
        for event in events
    ]


@pytest.mark.parametrize(
    ("events", "recorders", "shown_min"),
    [
        pytest.param(anomalies(), [], 45, id="every anomaly"),
        pytest.param(_forward(broken_at_random(3)), ["never-seen"], 15, id="random", marks=pytest.mark.slow),
    ],
)
def test_both_engines_judge_a_planned_run_alike(
    spark: SparkSession, tmp_path: Path, events: Sequence[Event], recorders: list[str], shown_min: int
) -> None:
    fault = next(event for event in events if event.kind == Kind.FAULT)
    missed = replace(fault, invoked_at_us=(fault.invoked_at_us or 0) + 1, outcome="fail")  # it met nobody
    write_parquet(tmp_path, [*events, missed])

    here = _judged(LocalEngine(table_of([*events, missed])), _STRICT, recorders=recorders)
    there = _judged(SparkEngine(spark, tmp_path), _STRICT, recorders=recorders)

    assert here.as_json() == there.as_json()
    assert sum(prop.violation_count > 0 for prop in here.properties) >= shown_min
    assert here.measures["faults"] == _judged(LocalEngine(table_of(events)), _STRICT).measures["faults"] != []


@pytest.mark.slow
@pytest.mark.parametrize("name", ANOMALIES)
def test_both_engines_judge_every_anomaly_by_itself_alike(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case = ANOMALIES[name]
    for kind, events, expectation in (
        ("shown", case.events, case.expectation),
        ("nearly", case.near_miss, case.near_expectation or case.expectation),
    ):
        write_parquet(tmp_path / kind, events)

        here = _judged(LocalEngine(table_of(events)), expectation)
        there = _judged(SparkEngine(spark, tmp_path / kind), expectation)

        assert here.as_json() == there.as_json()
