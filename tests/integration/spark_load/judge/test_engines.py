"""Spark reads a history as this process does: verdict, counts and charts of the same engine are the same.

`tests/unit/spark_load/judge/test_parts.py` compares what is said of a history in one part and in several, of every
recording. Here Spark carries the parts: in buckets, in none, without an event, and damaged.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from sluice.judge import engine, recording
from sluice.judge.engine import JudgeEngine
from sluice.judge.reading.parquet_files import write
from spark_load.judge import parts
from spark_load.judge.parts import HistoryOnSpark
from tests.support.histories.planned_runs import STRICT, judge_run
from tests.support.histories.recording_cases import CASES, RecordingCase, anomalies, break_at_random, forward
from tests.support.histories.recordings import engine_of, table_of, write_parquet

pytestmark = pytest.mark.spark
_SLOW = (
    *(name for name in CASES if name.startswith("bundles")),
    "of several clocks",
    "random, one",
    "sane",
    "torn",
    "every anomaly, recorded",
    "of several clocks, one of them alone",
    "an honest service",
)


def _judgement(engine: JudgeEngine, place: Path, case: RecordingCase) -> dict[str, Any]:
    verdict, expectation = recording.check(
        engine, place, case.queues, "endpoint", has_other_producers=case.has_other_producers
    )
    return {"verdict": verdict.as_json(), "series": engine.series(expectation, verdict.violations)}


@contextmanager
def _opened_here(place: Path) -> Iterator[JudgeEngine]:
    opened = engine.open_in_memory(place)
    assert opened is not None, "no limit was given"
    yield opened


def _judgement_or_refusal(
    opened: Callable[[Path], AbstractContextManager[JudgeEngine]], place: Path, case: RecordingCase
) -> dict[str, Any] | str:
    try:
        with opened(place) as engine:
            return _judgement(engine, place, case)
    except HistoryError as error:
        return str(error)


@pytest.mark.parametrize(
    "name",
    [
        "no journal",
        "of no event",
        "of two recorders",
        *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW),
    ],
)
def test_spark_tells_the_same_of_a_recording_as_this_process(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A recording that one of them refuses is refused by the other with the same sentence."""
    place, case = tmp_path / "recording", CASES[name]
    case.make(place)
    here, there = (
        _judgement_or_refusal(_opened_here, place, case),
        _judgement_or_refusal(partial(parts.open_recording, spark), place, case),
    )

    assert json.loads(json.dumps(here)) == json.loads(json.dumps(there))


def test_spark_judges_every_anomaly_of_a_planned_run_as_this_process(spark: SparkSession, tmp_path: Path) -> None:
    """The history is judged with buckets and without them, and contains faults, moves and probes."""
    events = anomalies()
    write_parquet(tmp_path / "exchanged", events, row_group_size=300)
    (tmp_path / "buckets").mkdir()
    write([table_of(events)], tmp_path / "buckets", "part", 3)

    here = judge_run(engine_of(events), STRICT)
    there = [
        judge_run(JudgeEngine(HistoryOnSpark(spark, tmp_path / name)), STRICT).as_json()
        for name in ("exchanged", "buckets")
    ]

    assert there == [here.as_json()] * 2
    assert sum(prop.violation_count > 0 for prop in here.properties) >= 45


@pytest.mark.slow
def test_spark_judges_mutated_groups_of_a_planned_run_as_this_process(spark: SparkSession, tmp_path: Path) -> None:
    """The groups are broken at random, so that at least 15 kinds of violation are compared."""
    events = forward(break_at_random(3))
    write_parquet(tmp_path, events)

    here = judge_run(engine_of(events), STRICT, recorders=["never-seen"])
    there = judge_run(JudgeEngine(HistoryOnSpark(spark, tmp_path)), STRICT, recorders=["never-seen"])

    assert here.as_json() == there.as_json()
    assert sum(prop.violation_count > 0 for prop in here.properties) >= 15
