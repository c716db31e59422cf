"""`check` on histories no run wrote: what they show is judged, what they cannot tell never holds."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from sluice.history.checker import QueueContext, Thresholds
from sluice.history.checker.verdict import Holding, Status, Verdict
from sluice.history.events import Event, Kind, recording_detail
from sluice.recorder.journal import SCHEMA, Journal
from spark_load.history import parquet_files
from spark_load.history.compaction import compact
from spark_load.history.parquet_files import pieces, write
from spark_load.judge import recording
from spark_load.judge.groups import findings
from spark_load.judge.judge import judge
from spark_load.judge.recording import RecordedQueue
from spark_load.judge.screening import buckets
from spark_load.judge.screening.buckets import clear
from tests.support.anomalies import CASES
from tests.support.histories import EXPECTATION, QUEUES, RUN, sane

pytestmark = pytest.mark.spark
_KNOWN = {
    name: RecordedQueue(visibility_timeout_seconds=30, dead_letter_queue=f"{name}-dlq", max_receive_count=3)
    for name in QUEUES
}


def _record(folder: Path, events: Sequence[Event], *, one_group_in: int = 1) -> Path:
    """Write the events as the flight recorder does: nobody planned them, there are no end markers."""
    with Journal(folder, "_recorded-1", common={"run": RUN, "worker": "recorded-1", "task_attempt": 0}) as journal:
        journal.add(kind=Kind.TOPOLOGY.value, detail=recording_detail(one_group_in))
        for event in events:
            if (event.idx or 0) >= 0:
                journal.add(**{name: value for name, value in asdict(event).items() if name not in _OF_JOURNAL})
    return folder


_OF_JOURNAL = ("run", "worker", "task_attempt")


def _held(verdict: Verdict) -> set[str]:
    return {prop.anomaly for prop in verdict.properties if prop.holding is Holding.HOLDS}


@pytest.mark.slow
def test_what_a_recording_cannot_tell_does_not_hold(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is wrong: order and content hold; losses, plans and, without timeouts, leases were not exercised."""
    named = recording.check(spark, _record(tmp_path / "named", sane(), one_group_in=4), _KNOWN, "endpoint")
    derived = recording.check(spark, _record(tmp_path / "derived", sane()), {}, "endpoint")

    assert (named.status, named.unknowns, named.run["one_group_in"]) == (Status.VALID, (), 4)
    assert (derived.status, derived.unknowns) == (Status.VALID, ())
    assert _held(named) >= {"A2", "A4", "A8", "B7", "C1", "C5", "D1", "D2", "E2", "F2", "G1"}
    assert _held(named) & {"A1", "A3", "B3", "C7", "E1", "H7"} == set()
    assert _held(named) - _held(derived) == {"A8", "B7", "D1", "D2", "F2"}
    assert named.measures["suspect_groups"] == derived.measures["suspect_groups"] == 0


def test_what_a_recording_shows_is_invalid_and_what_is_open_unknown(spark: SparkSession, tmp_path: Path) -> None:
    """A reordered group has its witness; a message that did not come, and a torn journal, leave it open."""
    reordered = recording.check(spark, _record(tmp_path / "reordered", CASES["C1"].events), _KNOWN, "endpoint")
    last = [e for e in sane() if (e.queue, e.idx) != ("billing", 2)]
    missing = recording.check(spark, _record(tmp_path / "missing", last), {}, "endpoint")
    torn = _record(tmp_path / "torn", sane())
    (journal,) = torn.glob("*.arrows")
    journal.write_bytes(journal.read_bytes()[:-600])
    unfinished = recording.check(spark, torn, _KNOWN, "endpoint")

    assert (reordered.status, {violation.anomaly for violation in reordered.violations}) == (Status.INVALID, {"C1"})
    assert (missing.status, missing.unknowns) == (
        Status.UNKNOWN,
        (
            "group g1: 1 acknowledged message(s), first 2, not seen in billing, of which nobody said what it was to"
            " receive; name it with --queue",
        ),
    )
    assert unfinished.status is Status.UNKNOWN
    assert unfinished.violations == ()
    assert unfinished.unknowns == ("0 message(s) acknowledged and 0 received: nothing to judge",)


def test_what_nobody_asked_for_and_who_else_published_is_left_open(spark: SparkSession, tmp_path: Path) -> None:
    """Receives without their group are counted and named; a message from nowhere may be of another producer."""
    groupless = [e if e.kind == Kind.PUBLISHED else replace(e, message_group_id=None) for e in sane()]
    unrequested = recording.check(spark, _record(tmp_path / "unasked", groupless), _KNOWN, "endpoint")
    elsewhere = [e for e in sane() if (e.kind, e.idx) != (Kind.PUBLISHED, 2)]
    place = _record(tmp_path / "elsewhere", elsewhere)
    alone = recording.check(spark, place, _KNOWN, "endpoint")
    among_others = recording.check(spark, place, _KNOWN, "endpoint", has_other_producers=True)

    assert unrequested.status is Status.UNKNOWN
    assert unrequested.unknowns[0].endswith(
        " receive(s) and delete(s) are of messages whose group is not on record, and not judged; receive with"
        ' MessageSystemAttributeNames=["All"], and delete in the process that received'
    )
    assert (alone.status, {violation.anomaly for violation in alone.violations}) == (Status.INVALID, {"A4"})
    assert (among_others.status, among_others.violations) == (Status.UNKNOWN, ())
    assert among_others.unknowns == ("group g1: 2 message(s) received whose publishing may not be on record",)


@pytest.mark.parametrize(("began_ms", "may_be_back"), [(110, 0), (122, 1)])
def test_what_came_while_a_move_task_began_is_left_open(
    spark: SparkSession, tmp_path: Path, began_ms: int, may_be_back: int
) -> None:
    """The second message is received from 120 to 125 ms; between two receives nothing can have come back unseen."""
    move = Event(
        kind=Kind.REDRIVEN.value,
        queue="billing-dlq",
        invoked_at_us=began_ms * 1_000,
        responded_at_us=900_000,
        detail='{"destination": "billing"}',
    )

    verdict = recording.check(spark, _record(tmp_path, [*sane(), move]), _KNOWN, "endpoint")

    assert verdict.measures["suspect_groups"] == may_be_back
    assert (
        sum("may have come back to billing with a move task" in unknown for unknown in verdict.unknowns) == may_be_back
    )
    assert verdict.status is (Status.UNKNOWN if may_be_back else Status.VALID)


def test_what_is_no_history_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """Another version, other columns, two runs, no event at all; and what is not Parquet."""

    def parquet_files(name: str, table: pa.Table) -> Path:
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part.parquet")
        return tmp_path / name

    def rows(*events: Event) -> pa.Table:
        return pa.Table.from_pylist([asdict(event) for event in events], schema=SCHEMA)

    event = sane()[0]
    garbled = tmp_path / "garbled"
    garbled.mkdir()
    (garbled / "part.parquet").write_text("no", encoding="utf-8")

    def found(place: Path) -> str:
        with pytest.raises(HistoryError) as refused:
            recording.check(spark, place, _KNOWN, "endpoint")
        return str(refused.value).removeprefix(str(place))

    assert found(parquet_files("newer", rows(replace(event, schema_version=2)))) == (
        " is a history of version 2, allowed is 1; check it with the version of Sluice that wrote it"
    )
    assert found(parquet_files("other", pa.table({"a": [1]}))) == (
        " has other columns than a history of Sluice, version 1: 41 are missing, first 'schema_version';"
        " name another folder"
    )
    assert found(parquet_files("two", rows(event, replace(event, run="s")))) == (
        " is a history of 2 runs (r, s), allowed is one run; check each by itself"
    )
    assert found(parquet_files("none", rows())) == (
        " is a history without an event, allowed is one run; check each by itself"
    )
    assert found(garbled) == " is not a history of Sluice: part.parquet is not Parquet"
    for damage in (_zeroed, _cut):
        place = parquet_files(damage.__name__, rows(*sane()))
        damage(place / "part.parquet")
        assert found(place).startswith("/part.parquet cannot be read: ")
        assert found(place).endswith("; copy it again, or judge the journals it was made of")
    for column in ("schema_version", "idx"):  # the first is read by Spark, the second in its Python tasks
        (tmp_path / column).mkdir()
        write([rows(*sane())], tmp_path / column, "part", 1)
        _flip_in(tmp_path / column / "part-000.parquet", column)
        assert found(tmp_path / column).startswith("/part-000.parquet cannot be read: ")
        assert "CRC checksum verification failed" in found(tmp_path / column)


def _chunk(path: Path, column: str) -> pq.ColumnChunkMetaData:
    group = pq.read_metadata(path).row_group(0)
    return next(of for of in map(group.column, range(group.num_columns)) if of.path_in_schema == column)


def _flip_in(path: Path, column: str) -> None:
    """Flip a bit of a column's last page: what is left is Parquet."""
    chunk = _chunk(path, column)
    begin = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    data = bytearray(path.read_bytes())
    data[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)


def _zeroed(path: Path) -> None:
    """Write zeros over a page of a column, as a bad disk may."""
    with path.open("r+b") as file:
        file.seek(_chunk(path, "idx").data_page_offset)
        file.write(bytes(20))


def _cut(path: Path) -> None:
    """Leave bytes out in the middle, as a broken copy may: the end is there, and says that there is more."""
    data = path.read_bytes()
    path.write_bytes(data[:1_000] + data[-9_000:])


def test_what_is_lawful_under_a_load_is_allowed_and_what_warms_up_not_measured(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The anomaly counts and is named with its reason; so is one to warm up. A column and a file more do not matter."""
    events = [replace(e, phase="warm_up") if e.idx == 0 else e for e in CASES["C7"].events]
    _write(tmp_path / "events.parquet", events)
    table = pq.read_table(tmp_path / "events.parquet")
    pq.write_table(table.append_column("noted", [["by a stranger"] * len(table)]), tmp_path / "events.parquet")
    (tmp_path / "notes.txt").write_text("no Parquet", encoding="utf-8")

    verdict = judge(
        spark,
        tmp_path,
        plan=None,
        expectation=EXPECTATION,
        run={"run": RUN, "target": "endpoint", "recorders": {}, "max_receive_count": {}},
        thresholds=Thresholds(latency_seconds_max=0.001),
        allowed={"C7": "two producers publish each group"},
    )

    (found,) = [prop for prop in verdict.properties if prop.anomaly == "C7"]
    assert (found.holding, found.violation_count) == (Holding.ALLOWED, 1)
    assert (verdict.status, verdict.violations) == (Status.VALID, ())
    assert verdict.run["allowed"] == {"C7": "two producers publish each group"}
    assert verdict.measures["published"]["count"] == 2
    assert {of["received"]["count"] for of in verdict.measures["queues"].values()} == {2}
    assert verdict.measures["percentiles"] == "exact"
    assert [name.partition(" was ")[0] for name in verdict.crossed] == [f"H3: latency in {queue}" for queue in QUEUES]
    assert {name.partition(", ")[2] for name in verdict.crossed} == {"allowed are 0.001 s"}


def test_how_a_history_is_cut_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many files, row groups and partitions, in buckets or not: the same suspects, measures and violations."""
    broken = {"B7", "C1", "E1", "G1"}
    groups = {**{name: CASES[name].events for name in broken}, **{f"sane {number}": sane() for number in range(20)}}
    events = [replace(event, message_group_id=name) for name, of_group in groups.items() for event in of_group]
    whole, cut, settled = tmp_path / "whole", tmp_path / "cut", tmp_path / "settled"
    settled.mkdir()
    _write(whole / "events.parquet", events)
    for number in range(3):
        _write(cut / f"{number}.parquet", events[number::3], row_group_size=40)
        parquet_files.write([_table(events[number::3][part::2]) for part in range(2)], settled, str(number), 4)
    found = clear(spark, whole, EXPECTATION)
    monkeypatch.setattr(buckets, "_PARTITION_EVENTS", 80)
    monkeypatch.setattr(parquet_files, "_READ_EVENTS", 80)  # here, where pieces are cut

    for place in (cut, settled):
        again = clear(spark, place, EXPECTATION)

        assert set(found.suspects) == set(again.suspects) == broken
        assert len(again.suspects) == len(broken)
        assert again.seen == found.seen
        assert again.counts == found.counts
    assert found.counts.counts["events"] == len(events)
    shown = [findings(spark, place, broken, EXPECTATION, QueueContext()) for place in (whole, cut, settled)]
    assert set(shown[0].counts) == broken
    assert shown[0] == shown[1] == shown[2]


def test_a_small_history_has_work_for_two_cores(spark: SparkSession, tmp_path: Path) -> None:
    """However few its journals hold; else one core would judge what two can."""
    compact(spark, _record(tmp_path / "journals", sane()), tmp_path / "history")

    assert pieces(tmp_path / "history")[1] == 2


def test_a_history_that_is_kept_elsewhere_stays_there(spark: SparkSession, tmp_path: Path) -> None:
    """A link to a larger disk is followed, and what was there before is replaced there."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old.parquet").touch()
    (tmp_path / "history").symlink_to(tmp_path / "disk")

    compact(spark, _record(tmp_path / "journals", sane()), tmp_path / "history")

    assert (tmp_path / "history").readlink() == tmp_path / "disk"
    names = sorted(path.name for path in (tmp_path / "disk").iterdir())
    assert names == [f"journal-_recorded-1-{bucket:03d}.parquet" for bucket in range(2)]
    assert list(tmp_path.glob("*.partial*")) == []


def test_buckets_that_are_none_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """A file that says of its groups what is not so would split them: it is refused, and says what to do."""
    parquet_files.write(
        [_table([replace(event, message_group_id=name) for name in "abcd" for event in sane()])], tmp_path, "e", 2
    )
    paths = [tmp_path / f"e-{bucket:03d}.parquet" for bucket in range(2)]
    files = [(pq.read_table(path), pq.read_metadata(path).metadata) for path in paths]
    for path, (table, _), (_, found) in zip(paths, files, reversed(files), strict=True):
        with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(found)

    with pytest.raises(HistoryError, match=r"e-00[01]\.parquet says that its message groups are of one bucket, and"):
        recording.check(spark, tmp_path, _KNOWN, "endpoint")


def _write(path: Path, events: Sequence[Event], **document: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(_table(events), path, **document)


def _table(events: Sequence[Event]) -> pa.Table:
    return pa.Table.from_pylist([asdict(event) for event in events], schema=SCHEMA)
