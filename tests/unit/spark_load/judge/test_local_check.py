"""`check` without Spark: what a recording shows is judged in this process, what it cannot tell never holds."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from sluice.errors import ConfigError, HistoryError
from sluice.history.checker.verdict import Holding, Status, Verdict
from spark_load import report
from spark_load.cli import check as under_test
from spark_load.cli.report import report as report_command
from spark_load.folder.layout import RUN_FILE
from spark_load.history.parquet_files import write
from spark_load.judge import local_engine, recording
from tests.support import finished_runs
from tests.support.anomalies import CASES as ANOMALIES
from tests.support.histories import full, sane
from tests.support.project import PROJECT
from tests.support.recorded_services import DEAD, QUEUE, RECEIVES_MAX, VISIBILITY_SECONDS
from tests.support.recording_cases import (
    CASES,
    RecordingCase,
    cut,
    flip_in,
    in_group,
    many_groups,
    table_of,
    write_journal,
    write_parquet,
    zeroed,
)

_SHOP_OPTION = f"{QUEUE}={VISIBILITY_SECONDS}:{DEAD}:{RECEIVES_MAX}"
_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from spark_load.judge import local_engine
local_engine.EVENTS_MAX = {events_max}
from sluice.cli.main import main
main()
"""
_NOT_IN_A_CHECKER = ["pyspark", "py4j", "boto3", "botocore", "sqlalchemy", "structlog", "grpc", "aws_cdk"]


def _checked(name: str, folder: Path) -> Verdict:
    CASES[name].make(folder)
    return _judged(folder, CASES[name])


def _judged(folder: Path, case: RecordingCase) -> Verdict:
    recording.check_place(folder)
    engine = local_engine.opened(folder)
    assert engine is not None, "no limit was given"
    return recording.check(engine, folder, case.queues, "endpoint", has_other_producers=case.has_other_producers)[0]


def _held(verdict: Verdict) -> set[str]:
    return {prop.anomaly for prop in verdict.properties if prop.holding is Holding.HOLDS}


# --- what is judged --------------------------------------------------------------------------------------------------


def test_what_a_recording_cannot_tell_does_not_hold(tmp_path: Path) -> None:
    """Nothing is wrong: order and content hold; losses, plans and, without timeouts, leases were not exercised."""
    named = _checked("sane", tmp_path / "named")
    derived = _checked("of queues nobody named", tmp_path / "derived")

    assert (named.status, named.unknowns, named.run["one_group_in"]) == (Status.VALID, (), 4)
    assert (derived.status, derived.unknowns) == (Status.VALID, ())
    assert _held(named) >= {"A2", "A4", "A8", "B7", "C1", "C5", "D1", "D2", "E2", "F2", "G1"}
    assert _held(named) & {"A1", "A3", "B3", "C7", "E1", "H7"} == set()
    assert _held(named) - _held(derived) == {"A8", "B7", "D1", "D2", "F2"}
    assert named.measures["suspect_groups"] == derived.measures["suspect_groups"] == 0


def test_what_a_recording_shows_is_invalid_and_what_is_open_unknown(tmp_path: Path) -> None:
    """A reordered group has its witness; a message that did not come, and a torn journal, leave it open."""
    reordered = _checked("reordered", tmp_path / "reordered")
    missing = _checked("missing its last message", tmp_path / "missing")
    torn = _checked("torn", tmp_path / "torn")

    assert (reordered.status, {violation.anomaly for violation in reordered.violations}) == (Status.INVALID, {"C1"})
    assert (missing.status, missing.unknowns) == (
        Status.UNKNOWN,
        (
            "group g1: 1 acknowledged message(s), first 2, not seen in billing, of which nobody said what it was to"
            " receive; name it with --queue",
        ),
    )
    assert torn.status is Status.UNKNOWN
    assert torn.violations == ()
    assert torn.unknowns == ("0 message(s) acknowledged and 0 received: nothing to judge",)


def test_what_nobody_asked_for_and_who_else_published_is_left_open(tmp_path: Path) -> None:
    """Receives without their group are counted and named; a message from nowhere may be of another producer."""
    unrequested = _checked("without groups", tmp_path / "unasked")
    alone = _checked("with a message from nowhere", tmp_path / "alone")
    among_others = _checked("with a message of another producer", tmp_path / "among others")

    assert unrequested.status is Status.UNKNOWN
    assert unrequested.unknowns[0].endswith(
        " receive(s) and delete(s) are of messages whose group is not on record, and not judged; receive with"
        ' MessageSystemAttributeNames=["All"], and delete in the process that received'
    )
    assert (alone.status, {violation.anomaly for violation in alone.violations}) == (Status.INVALID, {"A4"})
    assert (among_others.status, among_others.violations) == (Status.UNKNOWN, ())
    assert among_others.unknowns == ("group g1: 2 message(s) received whose publishing may not be on record",)


@pytest.mark.parametrize(
    ("name", "may_be_back"), [("with a move between receives", 0), ("with a move during a receive", 1)]
)
def test_what_came_while_a_move_task_began_is_left_open(tmp_path: Path, name: str, may_be_back: int) -> None:
    """The second message is received from 120 to 125 ms; between two receives nothing can have come back unseen."""
    verdict = _checked(name, tmp_path)

    assert verdict.measures["suspect_groups"] == may_be_back
    assert sum("may have come back to billing with a move task" in why for why in verdict.unknowns) == may_be_back
    assert verdict.status is (Status.UNKNOWN if may_be_back else Status.VALID)


def test_many_violations_are_counted_and_the_first_of_each_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many findings are kept on the way, and however few groups are looked at together."""
    events = [event for number in range(30) for event in in_group(ANOMALIES["C1"].events, f"group {number:02}")]
    write_journal(tmp_path, events)
    monkeypatch.setattr(local_engine, "_KEPT_MAX", 9)
    monkeypatch.setattr(local_engine, "_CHECKED_EVENTS", 40)
    engine = local_engine.opened(tmp_path)
    assert engine is not None

    verdict, _ = recording.check(engine, tmp_path, CASES["sane"].queues, "endpoint")

    assert [prop.violation_count for prop in verdict.properties if prop.anomaly == "C1"] == [30]
    assert [violation.message_group_id for violation in verdict.violations] == [
        f"group {number:02}" for number in range(8)
    ]


def test_the_charts_are_what_counting_message_by_message_gives() -> None:
    """Every bin, percentile, rank and failure of a run with a warm-up, a stall, a throttled call and a repeat."""
    events = finished_runs.history()

    drawn = local_engine.LocalEngine(table_of(events)).series(finished_runs.EXPECTATION, ())

    assert drawn == finished_runs.plain_series(events, bin_us=1_000_000)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_no_history_is_refused_in_one_line(tmp_path: Path) -> None:
    """Another version, other columns, two runs, no event at all; what is not Parquet, and what is damaged."""
    other, garbled, flipped = (tmp_path / name for name in ("strange", "garbled", "flipped"))
    for folder in (other, garbled, flipped):
        folder.mkdir()
    pq.write_table(pa.table({"a": [1]}), other / "part.parquet")
    (garbled / "part.parquet").write_text("no", encoding="utf-8")
    write([table_of(sane())], flipped, "part", 1)
    flip_in(flipped / "part-000.parquet", "idx")

    def refusal(place: Path) -> str:
        with pytest.raises(HistoryError) as refused:
            _judged(place, RecordingCase(make=lambda _: None))
        return str(refused.value).removeprefix(str(place))

    def of_case(name: str) -> str:
        CASES[name].make(tmp_path / name)
        return refusal(tmp_path / name)

    assert of_case("of another version") == (
        " is a history of version 2, allowed is 1; check it with the version of Sluice that wrote it"
    )
    assert of_case("of two runs") == (" is a history of 2 runs (another, r), allowed is one run; check each by itself")
    assert of_case("of no event") == " is a history without an event, allowed is one run; check each by itself"
    assert of_case("no journal").startswith("/_flipped.arrows is not a journal of Sluice (")
    assert refusal(other) == (
        " has other columns than a history of Sluice, version 1: 41 are missing, first 'schema_version';"
        " name another folder"
    )
    assert refusal(garbled) == " is not a history of Sluice: part.parquet is not Parquet"
    assert "CRC checksum verification failed" in refusal(flipped)
    for damage in (zeroed, cut):
        place = write_parquet(tmp_path / damage.__name__, sane())
        damage(place / "events.parquet")
        assert refusal(place).startswith("/events.parquet cannot be read: ")
        assert refusal(place).endswith("; copy it again, or judge the journals it was made of")


def test_a_bucket_that_is_missing_is_noticed(tmp_path: Path) -> None:
    """Its groups would be missing from the verdict."""
    write([table_of(many_groups())], tmp_path, "part", 4)
    (tmp_path / "part-002.parquet").unlink()

    with pytest.raises(HistoryError, match=r"is not whole: of part there are buckets \[0, 1, 3\]"):
        local_engine.opened(tmp_path)


# --- the command -----------------------------------------------------------------------------------------------------


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(under_test.check, [str(argument) for argument in arguments])


def test_a_recording_is_judged_where_neither_spark_nor_an_sdk_is_installed(tmp_path: Path) -> None:
    """With what the extra `checker` installs, and no Java: verdict, summary, page and JUnit, and the same exit code."""
    CASES["a service that delivers twice"].make(tmp_path / "tuesday")
    code = _WITHOUT.format(missing=_NOT_IN_A_CHECKER, events_max=300_000)

    ended = _python(code, tmp_path, "check", "tuesday", "--queue", _SHOP_OPTION)

    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("INVALID: tuesday/verdict.json, ")
    for file in (report.VERDICT_FILE, report.SUMMARY_FILE, report.JUNIT_FILE, report.PAGE_FILE, report.SERIES_FILE):
        assert (tmp_path / "tuesday" / file).stat().st_size > 0, file
    page = (tmp_path / "tuesday" / report.PAGE_FILE).read_text(encoding="utf-8")
    assert "A recording, tuesday (endpoint)" in page


def _python(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={"PATH": "/nowhere", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("events_max", "arguments", "why"),
    [
        (10, [], "many has more than 10 events"),
        (300_000, ["--master", "spark://there:7077"], "a cluster is named"),
    ],
)
def test_what_takes_spark_names_the_extra_where_it_is_not_installed(
    tmp_path: Path, events_max: int, arguments: list[str], why: str
) -> None:
    """In one line, with exit code 3; nothing was judged."""
    write_journal(tmp_path / "many", full())
    code = _WITHOUT.format(missing=_NOT_IN_A_CHECKER, events_max=events_max)

    ended = _python(code, tmp_path, "check", "many", *arguments)

    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.splitlines()[-1] == (
        f"sluice: {why}, which takes Spark: {_NOT_IN_A_CHECKER[0]} is not installed, which this needs;"
        " pip install 'sluice-fifo[load]'"
    )
    assert not (tmp_path / "many" / report.VERDICT_FILE).exists()


def test_the_other_commands_name_the_extra_too(tmp_path: Path) -> None:
    """One line, not a traceback; and the list of commands is there."""
    code = _WITHOUT.format(missing=_NOT_IN_A_CHECKER, events_max=1)

    ended = _python(code, tmp_path, "load", "resume", "runs/one", "--master", "spark://there:7077")
    listed = _python(code, tmp_path, "--help")

    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)
    assert "is not installed, which this needs; pip install 'sluice-fifo[load]'" in ended.stderr
    assert listed.returncode == 0
    assert "  check        Judge a recorded history" in listed.stdout


def test_above_so_many_events_spark_is_used_and_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and Parquet alike; --engine local judges them here all the same."""
    opened: list[Path] = []

    @contextmanager
    def with_spark(place: Path, *, master: str | None, remote: str | None) -> Iterator[local_engine.LocalEngine]:
        opened.append(place)
        engine = local_engine.opened(place)
        assert (master, remote) == (None, None)
        assert engine is not None
        yield engine

    monkeypatch.setattr(local_engine, "EVENTS_MAX", 10)
    monkeypatch.setattr(under_test, "_with_spark", lambda _why: SimpleNamespace(recording_opened=with_spark))
    places = [write_journal(tmp_path / "journals", full()), write_parquet(tmp_path / "parquet", sane())]
    (few,) = [write_journal(tmp_path / "few", [])]

    for place in places:
        result = _run(place)
        assert result.stderr.splitlines()[0] == (
            f"{place} has more than 10 events: it is judged with Spark (extra 'load');"
            " --engine local judges it in memory"
        )
        assert (place / report.VERDICT_FILE).exists()
        assert _run(place, "--engine", "local").stderr.count("Spark") == 0
    assert _run(few).stderr.count("Spark") == 0
    assert opened == places


def test_what_only_spark_can_read_is_not_asked_of_this_process(tmp_path: Path) -> None:
    """A run, or a cluster; both are named."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RUN_FILE).touch()

    of_run = _run(tmp_path / "run", "--engine", "local")
    of_cluster = _run(tmp_path, "--engine", "local", "--remote", "sc://there:15002")

    assert isinstance(of_run.exception, ConfigError)
    assert str(of_run.exception) == (
        f"--engine is local, and {tmp_path}/run is a run, which takes Spark; leave one of the two out"
    )
    assert isinstance(of_cluster.exception, ConfigError)
    assert "a cluster is named, which takes Spark" in str(of_cluster.exception)


def test_a_cluster_of_the_environment_does_not_keep_a_recording_from_being_judged_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPARK_REMOTE is set for load tests; whoever says --engine local means it."""
    CASES["reordered"].make(tmp_path)
    monkeypatch.setenv("SPARK_REMOTE", "sc://there:15002")

    assert _run(tmp_path, "--engine", "local").exit_code == 1


def test_a_page_that_cannot_be_drawn_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict was written before, and its exit code is its own; no older page stands beside it."""
    CASES["sane"].make(tmp_path)
    (tmp_path / report.PAGE_FILE).write_text("older", encoding="utf-8")

    def fail(*_: object) -> None:
        raise ValueError("no font")

    monkeypatch.setattr(report, "write_page", fail)
    result = _run(tmp_path, "--queue", "billing=30", "--queue", "shipping=30")

    assert result.exit_code == 0
    assert f"no page was drawn: no font; the verdict is in {tmp_path}/summary.md" in result.stderr
    assert not (tmp_path / report.PAGE_FILE).exists()


def test_the_page_of_a_recording_is_drawn_again(tmp_path: Path) -> None:
    """From what was stored with its verdict."""
    CASES["reordered"].make(tmp_path)
    _run(tmp_path, "--queue", "billing=30", "--queue", "shipping=30")
    first = (tmp_path / report.PAGE_FILE).read_text(encoding="utf-8")

    result = CliRunner().invoke(report_command, [str(tmp_path), "-o", str(tmp_path / "again.html")])

    assert result.exit_code == 0
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == first
    assert '<svg class="chart"' in first
