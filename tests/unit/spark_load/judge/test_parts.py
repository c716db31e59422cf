"""A history in several parts, as Spark reads it, gives the same results as in one part.

Compared are every anomaly, clocks, charts and mutated histories.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.errors import HistoryError
from sluice.history.events import HistoryEvent, Kind
from sluice.judge import recording, series
from sluice.judge.engine import JudgeEngine, read_into_memory
from sluice.judge.parts import InMemory, Partial
from sluice.judge.reading.columns import Events
from sluice.judge.reading.parquet_files import RowSelection, pieces, together, write
from sluice.judge.tally import PLACE_KEYS, TALLY, add_up, shorten
from spark_load.judge import parts
from tests.support.anomalies import CASES as ANOMALIES
from tests.support.cases import one_case_in
from tests.support.histories.builders import EXPECTATION, publish_event, receive_event
from tests.support.histories.planned_runs import STRICT, judge_run
from tests.support.histories.recording_cases import CASES, RecordingCase, anomalies, break_at_random, forward
from tests.support.histories.recordings import table_of

_PARTS = 3


class InParts:
    """A history whose parts are each read alone."""

    def look(self, partial: Partial, rows: RowSelection | None = None) -> list[pa.Table]:
        found = [partial(part) for part in self._parts(rows)]
        return [pa.concat_tables(tables) for tables in zip(*found, strict=True)]

    def tally(self, partial: Partial) -> pa.Table:
        (found,) = self.look(partial)
        from_whole = add_up(found)
        values = ("value", "count")
        listed = from_whole.group_by(PLACE_KEYS, use_threads=False).aggregate([(name, "list") for name in values])
        tables = [TALLY.empty_table()]
        for row in listed.to_pylist():
            rows = len(row["value_list"])
            columns = {name: [row[name]] * rows for name in PLACE_KEYS} | {name: row[f"{name}_list"] for name in values}
            tables.append(shorten(pa.table(columns, TALLY)))
        return pa.concat_tables(tables)

    def _parts(self, rows: RowSelection | None) -> Iterator[Iterator[Events]]:
        raise NotImplementedError


class InBuckets(InParts):
    """A history in buckets; each file has two row groups."""

    def __init__(self, table: pa.Table, folder: Path) -> None:
        folder.mkdir()
        write([table.slice(0, len(table) // 2), table.slice(len(table) // 2)], folder, "part", _PARTS)
        self._pieces, self._count = pieces(folder)

    def _parts(self, rows: RowSelection | None) -> Iterator[Iterator[Events]]:
        for bucket in range(_PARTS):
            yield parts._read_events([piece for piece in self._pieces if piece.bucket == bucket], rows, self._count)


class ExchangedHistory(InParts):
    """A history without buckets, whose events are handed to the parts as bytes."""

    def __init__(self, table: pa.Table) -> None:
        self._tables = [table.slice(0, len(table) // 2), table.slice(len(table) // 2)]

    def _parts(self, rows: RowSelection | None) -> Iterator[Iterator[Events]]:
        shares: list[list[pa.Table]] = [[] for _ in range(_PARTS)]
        for table in self._tables:
            batch = parts._serialize_tables(
                parts._split_by_partition(
                    Events(table if rows is None else rows.take(table)), _PARTS, is_whole=rows is not None
                )
            )
            for row in batch.to_pylist():
                shares[row["number"]].append(parts._deserialize_table(row["block"]))
        return (together(share) for share in shares)


_UNREADABLE = ("cut in its head", "no journal")


def _engines(history: InMemory, folder: Path) -> list[JudgeEngine]:
    """Return the judge's engine over a history in one part, in buckets and in exchanged parts."""
    return [
        JudgeEngine(history),
        JudgeEngine(InBuckets(history.table, folder)),
        JudgeEngine(ExchangedHistory(history.table)),
    ]


def _judge_recording(engine: JudgeEngine, place: Path, case: RecordingCase) -> dict[str, Any] | str:
    """Return verdict and charts of a recording, or the refusal."""
    try:
        verdict, expectation = recording.check(
            engine, place, case.queues, "endpoint", has_other_producers=case.has_other_producers
        )
    except HistoryError as error:
        return str(error)
    found = {"verdict": verdict.as_json(), "series": engine.series(expectation, verdict.violations)}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", one_case_in(3, [name for name in CASES if name not in _UNREADABLE]))
def test_a_recording_is_judged_alike_in_one_part_and_in_several(tmp_path: Path, name: str) -> None:
    """Spark reads a large history in parts; verdict and charts must not depend on that."""
    place, case = tmp_path / "recording", CASES[name]
    case.make(place)
    history = read_into_memory(place)
    assert history is not None, "no limit was given"

    from_whole, from_buckets, from_exchange = (
        _judge_recording(engine, place, case) for engine in _engines(history, tmp_path / "buckets")
    )

    assert from_whole == from_buckets
    assert from_whole == from_exchange


def test_receives_are_counted_alike_in_one_part_and_in_several(tmp_path: Path) -> None:
    """All receives of a message must be in one part to be counted."""
    receives = [receive_event("billing", 0, 40_000 * count, receive_count=count) for count in range(1, 7)]
    history = InMemory(table_of([publish_event(0, 0), *receives[:2], *receives[3:]]))

    unseen = [engine.unseen_receives(EXPECTATION)["billing"] for engine in _engines(history, tmp_path / "buckets")]

    assert unseen == [1, 1, 1]


def test_a_receive_without_an_answer_may_have_had_each_message(tmp_path: Path) -> None:
    receives = [receive_event("billing", idx, 40_000, receive_count=2) for idx in range(3)]
    engine = next(iter(_engines(InMemory(table_of(receives)), tmp_path / "buckets")))

    unseen = engine.unseen_receives(replace(EXPECTATION, lost_receives={"billing": 1}))

    assert unseen["billing"] == 0


@pytest.mark.parametrize(
    ("events", "recorders", "shown_min"),
    [
        pytest.param(anomalies(), [], 45, id="every anomaly"),
        pytest.param(forward(break_at_random(3)), ["never-seen"], 15, id="random"),
    ],
)
def test_a_planned_run_is_judged_alike_in_one_part_and_in_several(
    tmp_path: Path, events: Sequence[HistoryEvent], recorders: list[str], shown_min: int
) -> None:
    """Histories with every anomaly, or with random ones; `shown_min` keeps the comparison from being of nothing."""
    fault = next(event for event in events if event.kind == Kind.FAULT)
    missed = replace(fault, invoked_at_us=(fault.invoked_at_us or 0) + 1, outcome="fail")  # it hit nothing
    history = InMemory(table_of([*events, missed]))

    from_whole, from_buckets, from_exchange = (
        judge_run(engine, STRICT, recorders=recorders) for engine in _engines(history, tmp_path / "buckets")
    )

    assert from_whole.as_json() == from_buckets.as_json() == from_exchange.as_json()
    assert sum(prop.violation_count > 0 for prop in from_whole.properties) >= shown_min
    assert (
        from_whole.measures["faults"]
        == judge_run(JudgeEngine(InMemory(table_of(events))), STRICT).measures["faults"]
        != []
    )


@pytest.mark.parametrize("name", one_case_in(6, ANOMALIES))
def test_every_single_anomaly_is_found_alike_in_one_and_several_parts(tmp_path: Path, name: str) -> None:
    """For each anomaly a history that shows it, and one that nearly does."""
    case = ANOMALIES[name]
    for kind, events, expectation in (
        ("shown", case.events, case.expectation),
        ("nearly", case.near_miss, case.near_expectation or case.expectation),
    ):
        history = InMemory(table_of(events))

        from_whole, from_buckets, from_exchange = (
            judge_run(each, expectation) for each in _engines(history, tmp_path / kind)
        )

        assert from_whole.as_json() == from_buckets.as_json() == from_exchange.as_json()


def test_percentiles_of_many_latencies_are_rounded_down_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above a number of latencies they are counted in classes: by less than the stated accuracy.

    The maximum stays exact.
    """
    history = InMemory(table_of(anomalies()))
    exact, *_ = (engine.series(STRICT) for engine in _engines(history, tmp_path / "exact"))
    monkeypatch.setattr(series, "EXACT_MAX", 10)

    rounded = [engine.series(STRICT) for engine in _engines(history, tmp_path / "rounded")]

    for found in rounded:
        for queue, of in found["queues"].items():
            usual = exact["queues"][queue]["latency_us"]
            assert of["latency_us"]["count"] == usual["count"]
            assert of["latency_us"]["max"] == usual["max"]
            for name in ("p50", "p95", "p99"):
                for value, of_all in zip(of["latency_us"][name], usual[name], strict=True):
                    assert value == of_all or 0 < of_all - value <= abs(of_all) / found["accuracy"]
    assert rounded[0] != exact
