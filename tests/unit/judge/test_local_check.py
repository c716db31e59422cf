"""`check` without Spark: a recording is judged in this process, and a property that it cannot show never holds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import main
from sluice.errors import ConfigError, HistoryError
from sluice.history.events import HistoryEvent, Kind
from sluice.judge import engine as judging
from sluice.judge import groups, recording, report
from sluice.judge.checker import Thresholds
from sluice.judge.checker.verdict import PropertyState, PropertyStatus, Verdict
from sluice.judge.engine import JudgeEngine, open_in_memory
from sluice.judge.folder.layout import RUN_FILE
from sluice.judge.judge import RunFacts, faults_of, judge
from sluice.judge.reading.checksums import beside
from sluice.judge.reading.folders import require_history
from sluice.judge.reading.parquet_files import write
from sluice.recorder.journal import Journal
from spark_load.cli import check as under_test
from spark_load.cli.report import report as report_command
from tests.support.anomalies import CASES as ANOMALIES
from tests.support.histories import finished_runs
from tests.support.histories.builders import EXPECTATION, QUEUES, full, sane
from tests.support.histories.recorded_services import DEAD, QUEUE, RECEIVES_MAX, VISIBILITY_SECONDS
from tests.support.histories.recording_cases import CASES, RecordingCase, many_groups
from tests.support.histories.recordings import (
    cut,
    engine_of,
    flip_in,
    in_group,
    table_of,
    write_journal,
    write_parquet,
    write_zeros,
)
from tests.support.project import PROJECT

_SHOP_OPTION = f"{QUEUE}={VISIBILITY_SECONDS}:{DEAD}:{RECEIVES_MAX}"
_WITHOUT = """
import contextlib, io, json, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from sluice.judge import engine as judging
from sluice.cli.main import main
ended = []
for events_max, arguments in json.loads(sys.argv[1]):
    judging.EVENTS_MAX, sys.argv[1:] = events_max, arguments
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as error:
            code = error.code
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""
_NOT_IN_A_CHECKER = ["pyspark", "py4j", "boto3", "botocore", "sqlalchemy", "structlog", "grpc", "aws_cdk"]


def _check_case(name: str, folder: Path) -> Verdict:
    CASES[name].make(folder)
    return _judge(folder, CASES[name])


def _judge(folder: Path, case: RecordingCase) -> Verdict:
    require_history(folder)
    engine = open_in_memory(folder)
    assert engine is not None, "no limit was given"
    return recording.check(engine, folder, case.queues, "endpoint", has_other_producers=case.has_other_producers)[0]


def _held_properties(verdict: Verdict) -> set[str]:
    return {prop.anomaly for prop in verdict.properties if prop.holding is PropertyState.HOLDS}


# --- what is judged --------------------------------------------------------------------------------------------------


def test_properties_a_recording_cannot_show_do_not_hold(tmp_path: Path) -> None:
    named = _check_case("sane", tmp_path / "named")
    derived = _check_case("of queues nobody named", tmp_path / "derived")

    assert named.status == PropertyStatus.VALID
    assert named.unknowns == ()
    assert named.run["one_group_in"] == 4
    assert derived.status == PropertyStatus.VALID
    assert derived.unknowns == ()
    assert _held_properties(named) >= {"A2", "A4", "A8", "B7", "C1", "C5", "D1", "D2", "E2", "F2", "G1"}
    assert _held_properties(named) & {"A1", "A3", "B3", "C7", "E1", "H7"} == set()
    assert _held_properties(named) - _held_properties(derived) == {"A8", "B7", "D1", "D2", "F2"}
    assert named.measures["suspect_groups"] == derived.measures["suspect_groups"] == 0


def test_anomalies_are_invalid_and_open_questions_unknown(tmp_path: Path) -> None:
    reordered = _check_case("reordered", tmp_path / "reordered")
    missing = _check_case("missing its last message", tmp_path / "missing")
    torn = _check_case("torn", tmp_path / "torn")

    assert reordered.status == PropertyStatus.INVALID
    assert {violation.anomaly for violation in reordered.violations} == {"C1"}
    assert missing.status == PropertyStatus.UNKNOWN
    assert missing.unknowns == (
        "group g1: 1 acknowledged message(s), first 2, not seen in billing, of which nobody said what it was to"
        " receive; name it with --queue",
    )
    assert torn.status is PropertyStatus.UNKNOWN
    assert torn.violations == ()
    (why,) = torn.unknowns
    assert why.startswith("0 message(s) acknowledged and 0 received: nothing to judge; 1 recorder(s) did not finish: ")


def test_unrequested_messages_and_other_producers_are_left_open(tmp_path: Path) -> None:
    unrequested = _check_case("without groups", tmp_path / "unasked")
    alone = _check_case("with a message from nowhere", tmp_path / "alone")
    among_others = _check_case("with a message of another producer", tmp_path / "among others")

    assert unrequested.status is PropertyStatus.UNKNOWN
    assert unrequested.unknowns[0].endswith(
        " receive(s) and delete(s) in billing are of messages without a group on record, and not judged; a standard"
        " queue promises no order, within a group neither; if billing is a FIFO queue, receive with"
        ' MessageSystemAttributeNames=["All"], and delete in the process that received'
    )
    assert alone.status == PropertyStatus.INVALID
    assert {violation.anomaly for violation in alone.violations} == {"A4"}
    assert among_others.status == PropertyStatus.UNKNOWN
    assert among_others.violations == ()
    assert among_others.unknowns == ("group g1: 2 message(s) received whose publishing may not be on record",)


def test_receives_without_their_group_are_no_loss(tmp_path: Path) -> None:
    """Message 1 was received without its group id, so the later receive of message 2 proves no loss."""
    events = [
        replace(event, message_group_id=None) if event.kind == Kind.RECEIVED and event.idx == 1 else event
        for event in sane()
    ]
    write_journal(tmp_path, events)

    verdict = _judge(tmp_path, CASES["sane"])

    assert verdict.status == PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert any(why.endswith("not seen in billing, where 1 calls tell no group") for why in verdict.unknowns)


def test_a_journal_that_ends_before_its_first_event_is_unfinished(tmp_path: Path) -> None:
    write_journal(tmp_path, sane())
    whole = next(tmp_path.glob("*.arrows"))
    whole.with_stem("recorded-2").write_bytes(whole.read_bytes()[:100])

    verdict = _judge(tmp_path, CASES["sane"])

    assert verdict.status is PropertyStatus.UNKNOWN
    assert "1 recorder(s) did not finish: recorded-2" in verdict.unknowns


def test_an_answer_before_its_call_is_refused(tmp_path: Path) -> None:
    first, *rest = sane()
    write_journal(tmp_path, [replace(first, responded_at_us=(first.invoked_at_us or 0) - 1), *rest])

    with pytest.raises(HistoryError, match=r"1 event\(s\) were answered before they were invoked: a clock"):
        _judge(tmp_path, CASES["sane"])


@pytest.mark.parametrize("skew_ms", [-50, 50])
def test_anomalies_across_several_clocks_are_unknown(tmp_path: Path, skew_ms: int) -> None:
    """Every second call of a lawful history has times of a clock that is ahead or behind."""
    events = [
        replace(
            event,
            clock_id="d",
            invoked_at_us=(event.invoked_at_us or 0) + skew_ms * 1_000,
            responded_at_us=(event.responded_at_us or 0) + skew_ms * 1_000,
        )
        if number % 2
        else event
        for number, event in enumerate(sane())
    ]
    write_journal(tmp_path, events)

    verdict = _judge(tmp_path, CASES["sane"])

    assert verdict.status == PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert any("2 clocks timed it" in why for why in verdict.unknowns)


@pytest.mark.parametrize(
    ("name", "may_be_back"), [("with a move between receives", 0), ("with a move during a receive", 1)]
)
def test_receives_while_a_move_task_began_are_left_open(tmp_path: Path, name: str, may_be_back: int) -> None:
    """The second message is received from 120 to 125 ms.

    Between two receives no message can return without being seen.
    """
    verdict = _check_case(name, tmp_path)

    assert verdict.measures["suspect_groups"] == may_be_back
    assert sum("may have come back to billing with a move task" in why for why in verdict.unknowns) == may_be_back
    assert verdict.status is (PropertyStatus.UNKNOWN if may_be_back else PropertyStatus.VALID)


def test_many_violations_are_counted_and_the_first_of_each_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event for number in range(30) for event in in_group(ANOMALIES["C1"].events, f"group {number:02}")]
    write_journal(tmp_path, events)
    monkeypatch.setattr(groups, "_KEPT_MAX", 9)
    monkeypatch.setattr(groups, "_CHECKED_EVENTS", 40)
    engine = open_in_memory(tmp_path)
    assert engine is not None

    verdict, _ = recording.check(engine, tmp_path, CASES["sane"].queues, "endpoint")

    assert [prop.violation_count for prop in verdict.properties if prop.anomaly == "C1"] == [30]
    assert [violation.message_group_id for violation in verdict.violations] == [
        f"group {number:02}" for number in range(8)
    ]


def test_charts_equal_a_count_message_by_message() -> None:
    events = finished_runs.history()

    drawn = engine_of(events).series(EXPECTATION, ())

    assert drawn == finished_runs.plain_series(events, bin_us=1_000_000)
    assert max(drawn["queues"]["billing"]["tasks"]) == 1


def test_allowed_anomalies_pass_and_the_warm_up_is_not_measured(
    tmp_path: Path,
) -> None:
    """An allowed anomaly is counted and named with its reason. Unknown columns and files are ignored."""
    events = [replace(e, phase="warm_up") if e.idx == 0 else e for e in ANOMALIES["C7"].events]
    write_parquet(tmp_path, events)
    table = pq.read_table(tmp_path / "events.parquet")
    pq.write_table(table.append_column("noted", [["by a stranger"] * len(table)]), tmp_path / "events.parquet")
    (tmp_path / "notes.txt").write_text("no Parquet", encoding="utf-8")

    engine = open_in_memory(tmp_path)
    assert engine is not None, "no limit was given"

    verdict = judge(
        engine,
        RunFacts(
            expectation=replace(EXPECTATION, max_receive_count={}),
            target="endpoint",
            recorders={},
            thresholds=Thresholds(latency_seconds_max=0.001),
            allowed={"C7": "two producers publish each group"},
        ),
    )

    (found,) = [prop for prop in verdict.properties if prop.anomaly == "C7"]
    assert found.holding == PropertyState.ALLOWED
    assert found.violation_count == 1
    assert verdict.status == PropertyStatus.VALID
    assert verdict.violations == ()
    assert verdict.run["allowed"] == {"C7": "two producers publish each group"}
    assert verdict.measures["published"]["count"] == 2
    assert {of["received"]["count"] for of in verdict.measures["queues"].values()} == {2}
    assert verdict.measures["percentiles"] == "exact"
    assert [name.partition(" was ")[0] for name in verdict.crossed_thresholds] == [
        f"H3 late: latency in {queue}" for queue in QUEUES
    ]
    assert {name.partition(", ")[2] for name in verdict.crossed_thresholds} == {"allowed are 0.001 s"}


def test_a_fault_has_recovered_after_a_successful_call_of_each_queue() -> None:
    """The last two faults have not: no call follows the first of them, and the second has no end.

    They also have no `detail`, as if another program had recorded them.
    """
    slow: dict[str, Any] = {
        "detail": '{"kind": "slow", "target": "all:endpoint", "how": "0.1 s"}',
        "invoked_at_us": 90_000,
    }
    events = [
        *full(),
        *(
            HistoryEvent(kind=Kind.FAULT, run="r", queue=queue, responded_at_us=110_000, **slow)
            for queue in EXPECTATION.queues
        ),
        HistoryEvent(kind=Kind.FAULT, run="r", queue="billing", invoked_at_us=500_000, responded_at_us=600_000),
        HistoryEvent(kind=Kind.FAULT, run="r", queue="billing", invoked_at_us=500_000),
    ]
    answered = next(event for event in events if event.kind == Kind.DELETED and event.queue == "billing")
    failed = replace(answered, responded_at_us=112_000, outcome="fail", error="x", call_id="failed")

    found = faults_of(engine_of([*events, failed]).recoveries([*events, failed]))

    assert found == [
        {
            "kind": "slow",
            "target": "all:endpoint",
            "how": "0.1 s",
            "began_at_us": 90_000,
            "ended_at_us": 110_000,
            "recovered_in_seconds": {"billing": 0.003, "shipping": 0.008},
        },
        {
            "kind": "fault",
            "target": "billing",
            "how": "",
            "began_at_us": 500_000,
            "ended_at_us": 600_000,
            "recovered_in_seconds": {"billing": None},
        },
    ]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_folder_without_history_is_refused_in_one_line(tmp_path: Path) -> None:
    other, garbled, flipped = (tmp_path / name for name in ("strange", "garbled", "flipped"))
    for folder in (other, garbled, flipped):
        folder.mkdir()
    pq.write_table(pa.table({"a": [1]}), other / "part.parquet")
    (garbled / "part.parquet").write_text("no", encoding="utf-8")
    write([table_of(sane())], flipped, "part", 1)
    flip_in(flipped / "part-000.parquet", "idx")

    def refusal(place: Path) -> str:
        with pytest.raises(HistoryError) as refused:
            _judge(place, RecordingCase(make=lambda _: None))
        return str(refused.value).removeprefix(str(place))

    def of_case(name: str) -> str:
        CASES[name].make(tmp_path / name)
        return refusal(tmp_path / name)

    assert of_case("of another version") == (
        " is a history of version 2, allowed is 1; check it with the version of Sluice that wrote it"
    )
    assert of_case("of two runs") == (" is a history of 2 runs (another, r), allowed is one run; check each by itself")
    assert of_case("of no event") == " is a history without an event, needed are those of one run; record it again"
    assert of_case("no journal").startswith("/_flipped.arrows is not a journal of Sluice (")
    assert refusal(other) == (
        " has other columns than a history of Sluice, version 1: 41 are missing, first 'schema_version';"
        " name another folder"
    )
    assert refusal(garbled).startswith(
        " is not a history of Sluice: part.parquet is not Parquet (Parquet file size is 2"
    )
    assert refusal(garbled).endswith("; copy it again, or leave it out")
    assert refusal(flipped) == (
        "/part-000.parquet is damaged: it does not have the checksums in .part-000.parquet.crc;"
        " copy both again, or judge the journals it was made of"
    )
    beside(flipped / "part-000.parquet").unlink()
    assert "CRC checksum verification failed" in refusal(flipped)
    for damage in (write_zeros, cut):
        place = write_parquet(tmp_path / damage.__name__, sane())
        damage(place / "events.parquet")
        assert refusal(place).startswith("/events.parquet cannot be read: ")
        assert refusal(place).endswith("; copy it again, or judge the journals it was made of")


def test_a_flipped_bit_of_a_footer_or_a_journal_is_refused(tmp_path: Path) -> None:
    """A footer has no checksum: the file is refused by name, or read as it was."""
    place = write_parquet(tmp_path / "parquet", sane())
    path, journals = place / "events.parquet", write_journal(tmp_path / "journals", sane())
    before = _judge(place, CASES["sane"])
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")

    refused = 0
    for index in range(footer, len(whole), (len(whole) - footer) // 4):
        damaged = bytearray(whole)
        damaged[index] ^= 1 << (index % 8)
        path.write_bytes(damaged)
        try:
            verdict = _judge(place, CASES["sane"])
        except HistoryError as error:
            refused += path.name in str(error)
        else:
            assert verdict.as_json() == before.as_json(), index
    assert refused > 0

    (journal,) = journals.glob("*.arrows")
    flipped = bytearray(journal.read_bytes())
    flipped[len(flipped) // 2] ^= 8
    journal.write_bytes(flipped)
    with pytest.raises(
        HistoryError, match=rf"^{journal} is damaged: what stands at byte \d+ does not have its checksum"
    ):
        _judge(journals, CASES["sane"])


def test_a_bucket_that_is_missing_is_noticed(tmp_path: Path) -> None:
    write([table_of(many_groups())], tmp_path, "part", 4)
    (tmp_path / "part-002.parquet").unlink()

    with pytest.raises(HistoryError, match=r"is not whole: of part there are buckets \[0, 1, 3\]"):
        open_in_memory(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("run", None), ("worker", None), ("outcome", "maybe"), ("kind", "sent"), ("invoked_at_us", 2**63 - 1)],
)
@pytest.mark.parametrize("is_journal", [True, False])
def test_an_impossible_row_ends_the_command_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: Any, *, is_journal: bool
) -> None:
    events = sane()
    if is_journal:
        folder, changed = (
            tmp_path,
            {name: of for name, of in asdict(events[0]).items() if name not in ("run", "worker")},
        )
        with Journal(folder, "e", common={"run": "r", "worker": "w"}) as journal:
            journal.add(**changed)
            journal.add(**changed | {field: value})
        row, name = 3, "e.arrows"
    else:
        folder, (row, name) = tmp_path, (4, "events.parquet")
        write_parquet(folder, [*events[:3], replace(events[3], **{field: value}), *events[4:]])

    with pytest.raises(SystemExit) as ended:
        main(["check", str(folder), "--engine", "local"])

    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith(f"sluice: {folder}/{name}, row {row}: {field} is {value!r}, allowed is ")


# --- the command -----------------------------------------------------------------------------------------------------


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(under_test.check, [str(argument) for argument in arguments])


class _CommandResult(NamedTuple):
    """The result of a command."""

    exit_code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def without_spark(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, _CommandResult]]:
    """Return (folder, results of commands) from an environment with the extra `checker` only, and without Java."""
    folder = tmp_path_factory.mktemp("without")
    CASES["a service that delivers twice"].make(folder / "tuesday")
    write_journal(folder / "many", full())
    commands = {
        "judge": (300_000, ["check", "tuesday", "--queue", _SHOP_OPTION]),
        "many": (10, ["check", "many"]),
        "cluster": (300_000, ["check", "many", "--master", "spark://there:7077"]),
        "resume": (300_000, ["load", "resume", "runs/one", "--master", "spark://there:7077"]),
        "help": (300_000, ["--help"]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(missing=_NOT_IN_A_CHECKER), json.dumps(list(commands.values()))],
        cwd=folder,
        env={"PATH": "/nowhere", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return folder, {name: _CommandResult(*ended) for name, ended in zip(commands, json.loads(ran.stdout), strict=True)}


def test_a_recording_is_judged_where_neither_spark_nor_an_sdk_is_installed(
    without_spark: tuple[Path, dict[str, _CommandResult]],
) -> None:
    folder, ended = without_spark[0] / "tuesday", without_spark[1]["judge"]

    assert ended.exit_code == 1, ended.err
    assert ended.err.splitlines()[-1].startswith("INVALID: tuesday/verdict.json, ")
    for file in (report.VERDICT_FILE, report.SUMMARY_FILE, report.JUNIT_FILE, report.PAGE_FILE, report.SERIES_FILE):
        assert (folder / file).stat().st_size > 0, file
    assert "A recording, tuesday (endpoint)" in (folder / report.PAGE_FILE).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "why"), [("many", "many has more than 10 events"), ("cluster", "a cluster is named")]
)
def test_a_missing_spark_names_the_extra(
    without_spark: tuple[Path, dict[str, _CommandResult]], command: str, why: str
) -> None:
    folder, ended = without_spark[0], without_spark[1][command]

    assert ended.exit_code == 3
    assert ended.out == ""
    assert ended.err.splitlines()[-1] == (
        f"sluice: {why}, which takes Spark: {_NOT_IN_A_CHECKER[0]} is not installed, which this needs;"
        " pip install 'sluice-fifo[load]'"
    )
    assert not (folder / "many" / report.VERDICT_FILE).exists()


def test_without_spark_resume_names_the_extra_and_help_works(
    without_spark: tuple[Path, dict[str, _CommandResult]],
) -> None:
    resume, listed = without_spark[1]["resume"], without_spark[1]["help"]

    assert resume.exit_code == 3
    assert resume.err.count("\n") == 1
    assert "is not installed, which this needs; pip install 'sluice-fifo[load]'" in resume.err
    assert listed.exit_code == 0
    assert "  check        Judge a recorded history" in listed.out


def test_a_large_recording_is_judged_with_spark_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_places: list[Path] = []

    @contextmanager
    def with_spark(place: Path, *, master: str | None, remote: str | None) -> Iterator[JudgeEngine]:
        opened_places.append(place)
        engine = open_in_memory(place)
        assert master is None
        assert remote is None
        assert engine is not None
        yield engine

    monkeypatch.setattr(report, "write_page", lambda *_: None)  # slow, and of no interest
    monkeypatch.setattr(judging, "EVENTS_MAX", 10)
    monkeypatch.setattr(under_test, "_spark_commands", lambda _why: SimpleNamespace(recording_opened=with_spark))
    places = [write_journal(tmp_path / "journals", full()), write_parquet(tmp_path / "parquet", sane())]
    few = write_journal(tmp_path / "few", [])

    for place in places:
        result = _run(place)
        assert result.stderr.splitlines()[0] == (
            f"{place} has more than 10 events: it is judged with Spark (extra 'load');"
            " --engine local judges it in memory"
        )
        assert (place / report.VERDICT_FILE).exists()
        assert _run(place, "--engine", "local").stderr.count("Spark") == 0
    assert _run(few).stderr.count("Spark") == 0
    assert opened_places == places


def test_engine_local_refuses_a_run_and_a_cluster(tmp_path: Path) -> None:
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


def test_engine_local_takes_precedence_over_a_spark_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARK_REMOTE may be set for load tests."""
    CASES["reordered"].make(tmp_path)
    monkeypatch.setenv("SPARK_REMOTE", "sc://there:15002")

    assert _run(tmp_path, "--engine", "local").exit_code == 1


def test_a_page_that_cannot_be_drawn_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    CASES["reordered"].make(tmp_path)
    _run(tmp_path, "--queue", "billing=30", "--queue", "shipping=30")
    first = (tmp_path / report.PAGE_FILE).read_text(encoding="utf-8")

    result = CliRunner().invoke(report_command, [str(tmp_path), "-o", str(tmp_path / "again.html")])

    assert result.exit_code == 0
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == first
    assert '<svg class="chart"' in first
