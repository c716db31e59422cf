"""The report's charts have bins of time, ranks of groups and timelines, and are as small for any history."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sluice.history.events import HistoryEvent
from sluice.judge.checker.verdict import Violation
from sluice.judge.engine import JudgeEngine
from sluice.judge.folder.series_schema import BINS_MAX
from sluice.judge.parts import InMemory
from sluice.judge.reading.columns import Events
from sluice.judge.series import (
    EVENTS_MAX,
    GROUPS_MAX,
    RANKS_MAX,
    _extent_of_part,
    _shown_groups,
    bin_width_us,
    rank_table,
    waiting,
)
from sluice.judge.tally import TALLY, ObservationTally, shorten
from sluice.recorder.journal import SCHEMA
from tests.support.anomalies import CASES
from tests.support.histories import finished_runs
from tests.support.histories.builders import EXPECTATION, publish_event
from tests.support.histories.recordings import engine_of, table_of


@pytest.mark.parametrize(
    ("span_seconds", "bin_seconds"),
    [(0, 0.5), (59, 0.5), (60, 1), (119, 1), (120, 2), (86_400, 900), (86_400 * 30, 25_200)],
)
def test_the_width_of_a_bin_grows_with_the_span(span_seconds: int, bin_seconds: float) -> None:
    width = bin_width_us(span_seconds * 1_000_000)

    assert width == bin_seconds * 1_000_000
    assert span_seconds * 1_000_000 // width + 1 <= BINS_MAX


def test_groups_are_ranked_by_size() -> None:
    assert rank_table({1_000: 1, 7: 10, 1: 9}) == [(1_000, 0, 1), (7, 1, 10), (1, 11, 9)]
    assert rank_table({}) == []


def _violation(anomaly: str, group: str, *at_ms: int) -> Violation:
    witness = tuple(publish_event(0, published_ms, message_group_id=group) for published_ms in at_ms)
    return Violation(anomaly=anomaly, message_group_id=group, queue=None, idxs=(0,), sentence="", witness=witness)


def test_a_timeline_spans_all_violations_of_its_group() -> None:
    found = [_violation("A1", "g", 100), _violation("B1", "g", 50, 70), _violation("C1", "g", 120)]

    assert _shown_groups(found) == {"g": (50_000, 125_000)}


def test_each_anomaly_gets_a_timeline_before_one_gets_a_second() -> None:
    many = [_violation("A1", f"a{number}", 10) for number in range(GROUPS_MAX + 1)]
    found = [*many, _violation("B1", "b", 10), _violation("A1", "a0", 90)]

    groups = _shown_groups(found)

    assert list(groups) == ["a0", "b", *(f"a{number}" for number in range(1, GROUPS_MAX - 1))]
    assert groups["a0"] == (10_000, 95_000)


def test_the_waiting_count_is_never_negative() -> None:
    """A message can be received before its publisher has the answer."""
    assert waiting([3, 0, 2, 0], [1, 3, 0, 1]) == [2, 0, 1, 0]


def test_a_timeline_has_the_events_nearest_to_its_violation() -> None:
    violation = CASES["C1"].violation
    far = [_shift(finished_runs.history(1)[0], number) for number in range(EVENTS_MAX)]
    others = [replace(event, message_group_id="g2") for event in finished_runs.history(100)]

    fields = engine_of([*CASES["C1"].events, *far, *others]).series(EXPECTATION, [violation])

    timeline = fields["groups"]["g1"]
    near = [(event["kind"], event["idx"], event["invoked_at_us"]) for event in timeline if event["idx"] < 1_000]
    assert list(fields["groups"]) == ["g1"]
    assert len(timeline) == EVENTS_MAX
    assert sorted(near) == sorted(
        (event.kind, event.idx, event.invoked_at_us) for event in CASES["C1"].events if event.invoked_at_us is not None
    )


def _shift(event: HistoryEvent, number: int) -> HistoryEvent:
    at_us = 10_000_000_000 + number * 1_000
    return replace(
        event,
        message_group_id="g1",
        idx=1_000 + number,
        call_id=f"far/{number}",
        invoked_at_us=at_us,
        responded_at_us=at_us,
        intended_at_us=at_us,
    )


def test_a_part_read_in_pieces_gives_the_same_as_at_once() -> None:
    """On Spark the driver adds up the tables of all parts."""
    history = table_of(finished_runs.history())
    pieces = [Events(history.slice(begin, 100)) for begin in range(0, len(history), 100)]

    at_once, in_pieces = (_extent_of_part(part, expectation=EXPECTATION) for part in ([Events(history)], pieces))

    for whole, joined in zip(at_once, in_pieces, strict=True):
        keys = [(name, "ascending") for name in whole.column_names]
        assert whole.sort_by(keys).equals(joined.sort_by(keys))


def test_the_series_of_a_large_history_stays_small() -> None:
    count, rng = 100_000, np.random.default_rng(1)
    idx, took_us = np.arange(count), rng.integers(1_000_000, size=count)
    groups = pa.array(rng.integers(10_000, size=count)).cast(pa.string())

    def events(kind: str, queue: str) -> pa.Table:
        columns = {
            **{name: pa.array([text]).take(pa.array(np.zeros(count, np.int8))) for name, text in texts(kind, queue)},
            "message_group_id": groups,
            **dict.fromkeys(("intended_at_us", "invoked_at_us"), idx * 860_000),
            "idx": idx,
            "responded_at_us": idx * 860_000 + took_us,
        }
        nothing = {name: pa.nulls(count) for name in SCHEMA.names if name not in columns}
        return pa.table(columns | nothing).select(SCHEMA.names).cast(SCHEMA)

    def texts(kind: str, queue: str) -> list[tuple[str, str]]:
        return [("kind", kind), ("queue", queue), ("run", "r"), ("message_run", "r"), ("outcome", "ok")]

    history = pa.concat_tables([events("published", "events"), events("received", "billing")])

    fields = JudgeEngine(InMemory(history)).series(EXPECTATION)

    assert fields["bin_count"] == 96
    assert len(fields["ranks"]) == RANKS_MAX
    assert fields["bin_count"] <= BINS_MAX
    assert sum(fields["published"]) == sum(fields["queues"]["billing"]["received"]) == count
    assert sum(rank["groups"] for rank in fields["ranks"]) == len(groups.unique())
    assert [rank["groups"] for rank in fields["ranks"]] == pytest.approx([500] * RANKS_MAX, rel=0.1)
    assert fields["ranks"][0]["messages"] > 2 * fields["ranks"][-1]["messages"]
    assert len(json.dumps(fields)) < 30_000


def test_a_shortened_tally_has_the_percentiles_of_all_values() -> None:
    """Spark gives the driver four rows of a bin that has thousands of values."""
    rng = np.random.default_rng(1)
    for rows in (1, 2, 5, 300):
        counts = rng.integers(1, 50, size=rows)
        columns = {"what": ["due"] * rows, "name": ["q"] * rows, "place": [3] * rows, "count": counts}
        whole = pa.table({**columns, "value": rng.permutation(rows) * 7 - 20}).select(TALLY.names).cast(TALLY)

        short = shorten(whole)

        assert short.num_rows <= 4
        assert short.schema == TALLY
        assert ObservationTally(short).distributions("due", "q") == ObservationTally(whole).distributions("due", "q")
        assert ObservationTally(short).counts("due", "q", 4) == [0, 0, 0, counts.sum()]
