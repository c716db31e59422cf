"""Recorded arrivals beside a profile are read exactly as they were written; a damaged file is refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import ConfigError
from spark_load.plan.plan import Plan, silence_seconds
from spark_load.profiles import profile, trace
from spark_load.profiles.estimate import Estimate
from spark_load.profiles.profile import NamedProfile
from tests.support.declaration import environment

INSTANTS = np.array([100_000_000, 100_500_000, 101_000_000, 101_000_000, 104_000_000])
GROUPS = np.array([7, 3, 3, 7, 3])
SIZES = np.array([160, 1_160, 260, 10, 460])


def traced_profile(folder: Path, more: str = "", *, speed: float = 1) -> NamedProfile:
    """Return a profile of five messages in two groups over four seconds."""
    trace.write(trace.rank_arrivals(INSTANTS, GROUPS, SIZES), folder / "t.parquet")
    (folder / "t.yaml").write_text(f"replay:\n  file: t.parquet\n  speed: {speed}\n{more}")
    return profile.load(str(folder / "t.yaml"))


def _rows(named: NamedProfile) -> list[dict[str, Any]]:
    """Return the plan's rows of messages, without end markers."""
    plan = Plan(named.profile, 1, named.trace_file)
    return [row for row in plan.batch(np.arange(plan.row_count)).to_pylist() if row["idx"] >= 0]


def test_a_plan_publishes_the_recorded_messages_at_their_recorded_times(tmp_path: Path) -> None:
    """Offsets begin with the first message. Group 3 has most messages, so it is number 0."""
    rows = _rows(traced_profile(tmp_path))

    assert [(row["offset_us"], row["group_number"]) for row in rows] == [
        (0, 1),
        (500_000, 0),
        (1_000_000, 0),
        (1_000_000, 1),
        (4_000_000, 0),
    ]


def test_speed_divides_every_instant(tmp_path: Path) -> None:
    """At four times the speed 4 s become 1, and the longest silence 0.75 s."""
    named = traced_profile(tmp_path, speed=4)

    assert [row["offset_us"] for row in _rows(named)] == [0, 125_000, 250_000, 250_000, 1_000_000]
    assert named.profile.duration_seconds == 1
    assert silence_seconds(named.profile) == 0.75


def test_a_payload_is_as_large_as_the_body_was_without_its_frame(tmp_path: Path) -> None:
    """A body of the load has a frame of 160 bytes around the payload, which cannot be negative."""
    named = traced_profile(tmp_path)
    plan = Plan(named.profile, 1, named.trace_file)

    assert list(map(len, plan.payloads(np.arange(5)))) == [0, 1_000, 100, 0, 300]
    assert named.profile.payload_bytes == 1_000


def test_a_profile_says_of_its_trace_what_estimates_need(tmp_path: Path) -> None:
    """Messages, groups, rates, the hottest group's share, the mean size and the longest silence."""
    named = traced_profile(tmp_path)
    estimate = Estimate.of(named.profile, environment("local"), "aws")

    assert named.profile.message_count == 5
    assert named.profile.group_count == 2
    assert [phase.messages_per_second for phase in named.profile.phases] == [2, 2, 0, 1]
    assert estimate.hottest_share == 0.6
    assert estimate.body_bytes == 410
    assert silence_seconds(named.profile) == 3


def test_a_warm_up_comes_before_the_recorded_messages(tmp_path: Path) -> None:
    """One second at the trace's first rate of 2/s: offsets below 0."""
    rows = _rows(traced_profile(tmp_path, "warm_up_seconds: 1\n"))

    assert [row["offset_us"] for row in rows] == [-1_000_000, -500_000, 0, 500_000, 1_000_000, 1_000_000, 4_000_000]
    assert [row["group_number"] for row in rows][2:] == [1, 0, 0, 1, 0]


def test_groups_of_several_tasks_stay_with_one_each(tmp_path: Path) -> None:
    """Two tasks publish the two groups."""
    rows = _rows(traced_profile(tmp_path, "publish_tasks: 2\n"))

    assert {(row["group_number"], row["task"]) for row in rows} == {(0, 0), (1, 1)}


def test_a_profile_with_a_trace_survives_json(tmp_path: Path) -> None:
    named = traced_profile(tmp_path)

    assert profile.Profile(**named.profile.as_json()) == named.profile


def test_a_profiles_digest_depends_on_its_trace_and_not_on_the_path(tmp_path: Path) -> None:
    """Runs of equal digests are compared. Another speed is another load."""
    other, faster = tmp_path / "other", tmp_path / "faster"
    other.mkdir()
    faster.mkdir()
    (other / "x.parquet").write_bytes(b"")
    first = traced_profile(tmp_path).profile
    (tmp_path / "t.parquet").rename(other / "moved.parquet")
    (other / "moved.yaml").write_text("replay: {file: moved.parquet}\n")

    assert profile.digest(profile.load(str(other / "moved.yaml")).profile) == profile.digest(first)
    assert profile.digest(traced_profile(faster, speed=2).profile) != profile.digest(first)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "group_count: 5\n",
            "group_count is 5, allowed beside replay is none: messages come as recorded; leave it out",
        ),
        ("group_skew: 0.5\n", "group_skew is 0.5, allowed beside replay is none"),
        ("poison_share: 2\n", "poison_share is 2 .*less than or equal to 1"),
    ],
)
def test_fields_that_the_trace_decides_are_refused_beside_it(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        traced_profile(tmp_path, text)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{file: none.parquet}", "the trace .*none.parquet is not there, needed beside the profile is the file"),
        ("{file: ../t.parquet}", r"replay.file is '../t.parquet': String should match"),
        ("{file: t.parquet, speed: 0}", "replay.speed is 0: Input should be greater than or equal to 0.01"),
        ("{file: t.parquet, sha256: a}", "replay.sha256 is given, allowed are file and speed"),
        ("{speed: 1}", "replay.file is"),
        ("t.parquet", "replay is 't.parquet'"),
        ("{file: text.parquet}", "the trace .*text.parquet cannot be read"),
        ("{file: columns.parquet}", "has the columns a, allowed are offset_us, group_rank, body_bytes"),
        ("{file: empty.parquet}", "is empty or damaged"),
        ("{file: backwards.parquet}", "is empty or damaged"),
        ("{file: unranked.parquet}", "is empty or damaged"),
        ("{file: null.parquet}", "is empty or damaged"),
        ("{file: large.parquet}", "is empty or damaged: .* bodies of at most 1,048,576 bytes; make it again"),
        ("{file: long.parquet}", "the trace .*long.parquet lasts 86,401 s at speed 1, allowed is at most 86,400 s"),
    ],
)
def test_an_invalid_trace_is_refused_in_one_line(tmp_path: Path, given: str, why: str) -> None:
    traced_profile(tmp_path)
    (tmp_path / "text.parquet").write_text("no columns")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "columns.parquet")
    for name, offsets, ranks in (
        ("empty", [], []),
        ("backwards", [0, 2, 1], [0, 0, 0]),
        ("unranked", [0, 1, 2], [0, 1, 1]),
        ("long", [0, 86_400_000_001], [0, 0]),
    ):
        arrivals = trace.Arrivals(*(np.array(values) for values in (offsets, ranks, [1] * len(offsets))))
        trace.write(arrivals, tmp_path / f"{name}.parquet")
    types = {"offset_us": pa.int64(), "group_rank": pa.int32(), "body_bytes": pa.int32()}
    for name, rows in (("null", [(0, 0, 1), (None, 0, 1), (2, 0, 1)]), ("large", [(0, 0, 1_048_577)])):
        columns = [pa.array(values, of) for values, of in zip(zip(*rows, strict=True), types.values(), strict=True)]
        pq.write_table(pa.table(columns, list(types)), tmp_path / f"{name}.parquet")
    (tmp_path / "bad.yaml").write_text(f"replay: {given}\n")

    with pytest.raises(ConfigError, match=why) as refused:
        profile.load(str(tmp_path / "bad.yaml"))
    assert "\n" not in str(refused.value)
