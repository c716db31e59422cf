"""A replay is compared with its recording: by the instants of its messages, and by the shares of its groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.recorder.journal import SCHEMA
from spark_load.judge.replay import compare_replay
from spark_load.plan.plan import Plan, message_group_id
from spark_load.profiles import profile, trace

BEGAN_US = 5_000_000_000
PLANNED = [(0, 0), (1_000_000, 1), (2_000_000, 0), (3_000_000, 0)]
"""Of each message the instant and the group."""


def _plan(folder: Path) -> Plan:
    instants, groups = (np.array(values) for values in zip(*PLANNED, strict=True))
    trace.write(trace.rank_arrivals(instants, groups, np.full(4, 200)), folder / "t.parquet")
    (folder / "t.yaml").write_text("replay: {file: t.parquet}\n")
    named = profile.load(str(folder / "t.yaml"))
    return Plan(named.profile, 1, named.trace_file)


def _row(idx: int, late_us: int = 0, **more: Any) -> dict[str, Any]:
    """Return the record of a planned message's publish, which came so much later than planned."""
    offset_us, group = PLANNED[idx]
    return {
        "schema_version": 1,
        "run": "r",
        "worker": "w",
        "kind": "published",
        "outcome": "ok",
        "message_group_id": message_group_id(group),
        "idx": idx,
        "publish_attempt": 1,
        "phase": "measure",
        "intended_at_us": BEGAN_US + offset_us,
        "invoked_at_us": BEGAN_US + offset_us + late_us,
    } | more


def _compare(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    (folder / "history").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "history" / "part.parquet")
    found = compare_replay(folder / "history", _plan(folder))
    assert found is not None
    return found


def test_a_replay_as_recorded_has_no_error(tmp_path: Path) -> None:
    """All differences are 0: instants, intervals between messages, and the groups' shares."""
    assert _compare(tmp_path, [_row(idx) for idx in range(4)]) == {
        "planned": 4,
        "published": 4,
        "shift_us": {"p50": 0, "p95": 0, "p99": 0, "max": 0},
        "moved_share": 0,
        "interarrival_ks": 0,
        "skew_error": 0,
    }


def test_a_late_message_is_in_another_second_and_spoils_two_intervals(tmp_path: Path) -> None:
    """The third message comes 1.5 s late, after the fourth: intervals are 1, 2 and 0.5 s instead of 1, 1 and 1 s."""
    found = _compare(tmp_path, [_row(0), _row(1), _row(2, 1_500_000), _row(3)])

    assert found["shift_us"] == {"p50": 0, "p95": 1_500_000, "p99": 1_500_000, "max": 1_500_000}
    assert found["moved_share"] == 0.25
    assert found["interarrival_ks"] == pytest.approx(1 / 3)
    assert found["skew_error"] == 0


def test_a_message_that_was_not_published_is_missing_in_its_groups_share(tmp_path: Path) -> None:
    """Shares of 3/4 and 1/4 became 2/3 and 1/3."""
    found = _compare(tmp_path, [_row(0), _row(1), _row(2), _row(3, outcome="fail")])

    assert found["planned"] == 4
    assert found["published"] == 3
    assert found["skew_error"] == pytest.approx(1 / 12)


def test_repeats_markers_and_the_warm_up_are_no_arrivals(tmp_path: Path) -> None:
    """Nor are receives and the second try of a call: only the four planned messages count."""
    others = [
        _row(0, publish_attempt=2),
        _row(1) | {"idx": -2},
        _row(2, phase="warm_up") | {"idx": 9},
        _row(3, kind="received"),
        _row(3, 900_000, call_id="retry"),
    ]

    found = _compare(tmp_path, [*(_row(idx) for idx in range(4)), *others])

    assert found["published"] == 4
    assert found["shift_us"]["max"] == 0


def test_a_refused_message_is_not_published_by_its_planned_repeat(tmp_path: Path) -> None:
    """A repeat, publish attempt 2, was planned to be deduplicated, and has no planned instant to be compared with."""
    refused, repeat = _row(3, outcome="fail"), _row(3, publish_attempt=2)

    assert _compare(tmp_path, [_row(0), _row(1), _row(2), refused, repeat])["published"] == 3


def test_without_publishes_the_errors_of_a_replay_are_unknown(tmp_path: Path) -> None:
    found = _compare(tmp_path, [_row(0, outcome="fail")])

    assert found["published"] == 0
    assert found["shift_us"] is None
    assert found["skew_error"] is None
