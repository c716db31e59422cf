"""`check` on histories no run wrote: what they show is judged, what they cannot tell never holds."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from sluice.judge import recording
from sluice.judge.checker import QueueContext
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.reading import parquet_files
from sluice.judge.reading.checksums import beside
from sluice.judge.reading.folders import require_history
from sluice.judge.reading.parquet_files import pieces, write
from sluice.judge.recording import RecordedQueue
from sluice.judge.screening.measures import measures
from sluice.recorder.journal import Journal
from spark_load.judge import parts
from spark_load.judge.compaction import compact
from spark_load.judge.parts import HistoryOnSpark
from tests.support.anomalies import CASES
from tests.support.histories.builders import EXPECTATION, RUN, sane
from tests.support.histories.recordings import KNOWN, flip_in, table_of, write_journal, write_parquet, write_zeros
from tests.support.project import PROJECT

pytestmark = pytest.mark.spark


def _check(
    spark: SparkSession,
    place: Path,
    queues: Mapping[str, RecordedQueue],
    target: str,
    *,
    has_other_producers: bool = False,
) -> Verdict:
    require_history(place)
    with parts.open_recording(spark, place) as opened:
        return recording.check(opened, place, queues, target, has_other_producers=has_other_producers)[0]


def test_a_damaged_file_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """The line names the file and the next step, although a task of Spark has found the damage."""

    def refusal(place: Path) -> str:
        with pytest.raises(HistoryError) as refused:
            _check(spark, place, KNOWN, "endpoint")
        return str(refused.value).removeprefix(str(place))

    place = write_parquet(tmp_path / "zeroed", sane())
    write_zeros(place / "events.parquet")
    refused = refusal(place)
    assert refused.startswith("/events.parquet cannot be read: ")
    assert refused.endswith("; copy it again, or judge the journals it was made of")
    (tmp_path / "flipped").mkdir()
    write([table_of(sane())], tmp_path / "flipped", "part", 1)
    flip_in(tmp_path / "flipped" / "part-000.parquet", "idx")
    beside(tmp_path / "flipped" / "part-000.parquet").unlink()
    refused = refusal(tmp_path / "flipped")
    assert refused.startswith("/part-000.parquet cannot be read: ")
    assert "CRC checksum verification failed" in refused


def test_a_row_that_cannot_be_is_refused_by_file_row_and_field(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for Parquet, which Spark's tasks check before judging.

    It holds for journals too, while they are converted to Parquet.
    """
    events = sane()
    place = write_parquet(tmp_path / "parquet", [*events[:9], replace(events[9], kind="sent")], row_group_size=4)
    with Journal(tmp_path / "journals", "j", common={"run": RUN, "worker": "w"}) as journal:
        for event in events[:2]:
            journal.add(**{name: of for name, of in asdict(event).items() if name not in ("run", "worker")})
        journal.add(kind="sent")

    with pytest.raises(HistoryError, match=rf"^{place}/events\.parquet, row 10: kind is 'sent', allowed is "):
        _check(spark, place, KNOWN, "endpoint")
    with pytest.raises(HistoryError, match=rf"^{journal.path}, row \d: kind is 'sent', allowed is "):
        _check(spark, tmp_path / "journals", KNOWN, "endpoint")


@pytest.mark.slow  # a Spark for each damage
def test_sparks_own_error_of_damage_is_not_printed(tmp_path: Path) -> None:
    """Spark's log is not printed either: one line is left, besides Java's own at its start."""
    events = sane()
    write_parquet(tmp_path, [*events[:5], replace(events[5], outcome="perhaps")])

    ended = subprocess.run(
        [sys.executable, "-m", "sluice", "check", str(tmp_path), "--engine", "spark"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    lines = [line for line in ended.stderr.splitlines() if not line.startswith(("WARNING: ", "Picked up "))]
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert lines == [
        f"sluice: {tmp_path}/events.parquet, row 6: outcome is 'perhaps', allowed is one of ok, fail, info;"
        " copy the file again, or leave it out"
    ]


def test_the_division_of_a_history_does_not_change_its_findings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same events are divided into files in three ways, and four groups break a promise."""
    broken = {"B7", "C1", "E1", "G1"}
    groups = {**{name: CASES[name].events for name in broken}, **{f"sane {number}": sane() for number in range(8)}}
    events = [replace(event, message_group_id=name) for name, of_group in groups.items() for event in of_group]
    whole, cut, settled = tmp_path / "whole", tmp_path / "cut", tmp_path / "settled"
    settled.mkdir()
    write_parquet(whole, events)
    for number in range(3):
        write_parquet(cut, events[number::3], name=str(number), row_group_size=40)
        parquet_files.write([table_of(events[number::3][part::2]) for part in range(2)], settled, str(number), 4)
    found = JudgeEngine(HistoryOnSpark(spark, whole)).screen(EXPECTATION)
    monkeypatch.setattr(parts, "_PARTITION_EVENTS", 80)
    monkeypatch.setattr(parquet_files, "_READ_EVENTS", 80)  # here, where pieces are cut

    for place in (cut, settled):
        again = JudgeEngine(HistoryOnSpark(spark, place)).screen(EXPECTATION)

        assert set(found.suspects) == set(again.suspects) == broken
        assert len(again.suspects) == len(broken)
        assert measures(again.seen, EXPECTATION) == measures(found.seen, EXPECTATION)
        assert again.counts == found.counts
    assert found.counts.counts["events"] == len(events)
    shown = [
        JudgeEngine(HistoryOnSpark(spark, place)).findings(broken, EXPECTATION, QueueContext())
        for place in (whole, cut, settled)
    ]
    assert set(shown[0].counts) == broken
    assert shown[0] == shown[1] == shown[2]


def test_a_small_history_has_work_for_two_cores(spark: SparkSession, tmp_path: Path) -> None:
    """The history is divided even if its journals are few. Otherwise one core would judge all of it."""
    compact(spark, write_journal(tmp_path / "journals", sane()), tmp_path / "history")

    assert pieces(tmp_path / "history")[1] == 2


def test_a_history_that_is_kept_elsewhere_stays_there(spark: SparkSession, tmp_path: Path) -> None:
    """The folder is a link to another disk: new files replace the old ones there, and the link stays."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old.parquet").touch()
    (tmp_path / "history").symlink_to(tmp_path / "disk")

    compact(spark, write_journal(tmp_path / "journals", sane()), tmp_path / "history")

    assert (tmp_path / "history").readlink() == tmp_path / "disk"
    names = sorted(path.name for path in (tmp_path / "disk").glob("[!.]*"))
    assert names == [f"journal-_recorded-1-{bucket:03d}.parquet" for bucket in range(2)]
    assert list(tmp_path.glob("*.partial*")) == []


def test_a_file_whose_groups_are_of_another_bucket_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A file whose groups are not in the bucket that its name says would split these groups.

    It is refused with the next step.
    """
    parquet_files.write(
        [table_of([replace(event, message_group_id=name) for name in "abcd" for event in sane()])], tmp_path, "e", 2
    )
    paths = [tmp_path / f"e-{bucket:03d}.parquet" for bucket in range(2)]
    files = [(pq.read_table(path), pq.read_metadata(path).metadata) for path in paths]
    for path, (table, _), (_, found) in zip(paths, files, reversed(files), strict=True):
        with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(found)
        beside(path).unlink()

    with pytest.raises(
        HistoryError,
        match=r"e-00[01]\.parquet has a message group of another bucket than its metadata names, allowed are",
    ):
        _check(spark, tmp_path, KNOWN, "endpoint")
