"""A verdict as JUnit, as a page, and compared with another run; the verdicts are made by hand."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from sluice.errors import ConfigError, HistoryError
from sluice.history.events import HistoryEvent
from sluice.judge import report
from sluice.judge.checker.anomalies import JUDGED
from sluice.judge.checker.verdict import PropertyStatus, Verdict, Violation
from sluice.judge.folder.series_schema import SCHEMA_VERSION, RunSeries, SeriesSchema
from sluice.judge.report import figures, junit, page, timeline
from sluice.judge.report.summary import harm_sentence, reasons, since, threshold_results, where, witness_lines
from spark_load.baselines import comparison
from spark_load.baselines.comparison import Limits, compare
from spark_load.cli.report import compare as compare_command
from spark_load.cli.report import report as report_command
from tests.support.anomalies import CASES
from tests.support.histories import finished_runs

# --- Markdown ------------------------------------------------------------------------------------------------------


def test_markdown_escapes_text_from_outside() -> None:
    """A group's id, an error or a queue's name begins no table, link or line, and does not vanish as a tag."""
    odd = "g|1 *<b>*\n# [x](http://x) \x1b_y_"
    violation = replace(finished_runs.invalid().violations[0], message_group_id=odd, queue=odd, sentence=odd)
    verdict = Verdict(violations=(violation,), unknowns=(odd,), run={"run": odd})
    shown = "g\\|1 \\*\\<b\\>\\* \\# \\[x\\](http://x) \N{REPLACEMENT CHARACTER}\\_y\\_"

    lines = report.markdown(verdict).splitlines()

    assert lines[0] == f"# UNKNOWN — {shown}"
    assert f"- {shown}" in lines
    (line,) = [line for line in lines if line.startswith(f"- **{violation.anomaly}")]
    assert f"in group {shown}, queue {shown}, message" in line
    assert line.endswith(f": {shown} (+0 s is 1970-01-01T00:00:00.010000Z)")


def test_the_page_shows_the_scaling_of_workers_after_the_measures() -> None:
    verdict = Verdict(violations=(), run={"run": "r", "scaling": ["billing: tasks 0 → 1", "audit: tasks 1"]})

    assert "\n\n## Scaling\n\n- billing: tasks 0 → 1\n- audit: tasks 1\n\n" in report.markdown(verdict)
    assert "## Scaling" not in report.markdown(replace(verdict, run={"run": "r"}))


def test_a_violation_names_group_queue_and_messages() -> None:
    """In a recording an idx is a hash, so the deduplication id is shown instead, unless it contains the idx."""
    event = HistoryEvent(idx=7, deduplication_id="order-17", invoked_at_us=5)
    violation = Violation(
        anomaly="C1", message_group_id="g", queue=None, idxs=(7, 8, -1), sentence="s", witness=(event,)
    )

    assert where(violation) == "group g, all queues, message 7 (order-17), 8, the end marker"
    assert where(replace(violation, queue="q", idxs=(8,))) == "group g, queue q, message 8"
    assert where(replace(violation, idxs=())) == "group g, all queues, no single message"
    assert where(replace(violation, idxs=(-1,))) == "group g, all queues, the end marker"
    assert where(replace(violation, idxs=(7,), witness=(replace(event, deduplication_id="r.7"),))).endswith("message 7")


def test_the_times_of_a_witness_are_counted_from_its_first_event() -> None:
    """The earliest event need not be the first in the list, and a call may have no answer."""
    witness = (
        HistoryEvent(
            kind="received",
            queue="q",
            idx=1,
            invoked_at_us=1_763_690_000_250_000,
            responded_at_us=1_763_690_000_250_001,
        ),
        HistoryEvent(
            kind="visibility_changed",
            queue="q",
            outcome="info",
            visibility_timeout_seconds=6,
            invoked_at_us=1_763_689_999_000_000,
        ),
        HistoryEvent(kind="deleted"),
    )
    violation = Violation(anomaly="D1", message_group_id="g", queue="q", idxs=(1,), sentence="s", witness=witness)

    assert since(violation) == " (+0 s is 2025-11-21T01:53:19.000000Z)"
    assert since(replace(violation, witness=())) == ""
    assert witness_lines(violation) == [
        "`received` +1.250000 s, answered +1.250001 s: worker=, queue=q, idx=1, outcome=ok",
        "`visibility_changed` +0.000000 s, never answered: worker=, queue=q, outcome=info,"
        " visibility_timeout_seconds=6",
        "`deleted` at an unknown time: worker=, outcome=ok",
    ]


def test_a_lease_that_was_extended_is_drawn_to_where_it_ended() -> None:
    """A change in time moves its end, and a delete ends it; a change that failed or came late has no effect."""
    of_message = {"idx": 1, "queue": "billing", "receipt_handle_hash": "h", "outcome": "ok"}
    receive = of_message | {"kind": "received", "invoked_at_us": 1_000_000, "visibility_timeout_seconds": 30}

    def visibility_change(second: int, seconds: int, outcome: str = "ok") -> dict[str, Any]:
        fields = {"kind": "visibility_changed", "outcome": outcome, "visibility_timeout_seconds": seconds}
        return of_message | fields | {"invoked_at_us": second * 1_000_000}

    def lease_end_seconds(*others: dict[str, Any]) -> float:
        found = finished_runs.series_of(finished_runs.valid())
        return timeline._lease_end(receive, [receive, *others], found) / 1e6

    assert lease_end_seconds() == 31
    assert lease_end_seconds(visibility_change(20, 60)) == 80
    assert lease_end_seconds(visibility_change(70, 60), visibility_change(20, 60)) == 130
    assert lease_end_seconds(visibility_change(20, 60, "fail")) == lease_end_seconds(visibility_change(40, 60)) == 31
    assert lease_end_seconds(visibility_change(20, 0)) == 20
    assert (
        lease_end_seconds(visibility_change(20, 60), of_message | {"kind": "deleted", "invoked_at_us": 50_000_000})
        == 50
    )


# --- JUnit -----------------------------------------------------------------------------------------------------------


def _suite(verdict: Verdict) -> ET.Element:
    return next(iter(ET.fromstring(junit.xml(verdict))))  # noqa: S314 (we wrote it)


@pytest.mark.parametrize(
    ("made", "failures", "errors"),
    [
        (finished_runs.valid, 0, 0),
        (finished_runs.crossed_verdict, 1, 0),
        (finished_runs.unknown, 0, 1),
        (finished_runs.invalid, 7, 0),
    ],
)
def test_junit_has_a_case_for_every_property_and_one_for_the_run(
    made: Callable[[], Verdict], failures: int, errors: int
) -> None:
    suite = _suite(made())

    paths = {"tests": "", "failures": "/failure", "errors": "/error", "skipped": "/skipped"}
    found = {name: len(suite.findall(f"testcase{path}")) for name, path in paths.items()}
    assert found == {"tests": len(JUDGED) + 1, "failures": failures, "errors": errors, "skipped": 7}
    assert {name: int(suite.attrib[name]) for name in paths} == found


def test_a_junit_failure_has_its_witnesses() -> None:
    failure = _suite(finished_runs.invalid()).find("testcase[@name='C1 nothing was reordered']/failure")

    assert failure is not None
    assert failure.text is not None
    lines = failure.text.splitlines()
    assert lines[0] == (
        "group C1, queue billing, message 1, 2: the second message was received before the first was asked for"
        " (+0 s is 1970-01-01T00:00:00.010000Z)"
    )
    assert lines[1].startswith(
        "    `published` +0.000000 s, answered +0.005000 s: worker=publish-0, queue=events, idx=1, "
    )
    assert len(lines) == 1 + len(CASES["C1"].witness)


def test_an_unknown_run_is_never_green_in_junit() -> None:
    reasons = [_suite(verdict).findall("testcase/error") for verdict in (finished_runs.unknown(), Verdict())]

    assert [[error.attrib["message"] for error in of] for of in reasons] == [
        ["1 recorder(s) did not finish: consume-1"],
        ["nothing was exercised"],
    ]


def test_junit_replaces_characters_that_xml_cannot_hold() -> None:
    (violation, *_) = finished_runs.invalid().violations
    strange = replace(violation, message_group_id="g\x00\x1b<&>")

    suite = _suite(replace(finished_runs.invalid(), violations=(strange,)))

    assert "group g\ufffd\ufffd<&>" in "".join(suite.itertext())


@pytest.mark.parametrize(
    "render",
    [
        report.markdown,
        junit.xml,
        lambda verdict: page.html(verdict, finished_runs.series_of_one()),
        lambda verdict: json.dumps(verdict.as_json()),
    ],
    ids=["summary", "junit", "page", "json"],
)
def test_a_crossed_threshold_is_named_with_both_values(render: Callable[[Verdict], str]) -> None:
    sentence = "latency in shipping was 2.33 s, allowed are 2.2 s"
    crossed = finished_runs.crossed_verdict()
    allowed = tuple(replace(prop, allowed_because="it is known to be") for prop in crossed.properties)

    assert sentence in render(crossed)
    assert replace(crossed, properties=allowed).crossed_thresholds == []


# --- stored and read back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made", [finished_runs.valid, finished_runs.crossed_verdict, finished_runs.unknown, finished_runs.invalid]
)
def test_a_stored_verdict_reads_as_it_was_written(made: Callable[[], Verdict], tmp_path: Path) -> None:
    report.write(made(), tmp_path)

    read = report.read_verdict(tmp_path)

    assert read.as_json() == made().as_json()
    assert read.exit_code == made().exit_code


def _damage(**changes: Any) -> Callable[[Path], object]:
    def rewrite(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")

    return rewrite


def test_a_folder_without_a_verdict_is_refused(tmp_path: Path) -> None:
    """The folder is no run's, or its run is not judged yet."""
    with pytest.raises(ConfigError, match=r"is not the folder of a run with a verdict \(verdict.json is missing\)"):
        report.read_verdict(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: path.write_text("{", encoding="utf-8"),
            "(Invalid JSON: EOF while parsing an object at line 1 column 1); judge the run again: ",
        ),
        (lambda path: path.write_bytes(b"\xff\xfe"), "(Invalid JSON: "),
        (lambda path: path.write_text("[" * 100_000, encoding="utf-8"), "(Invalid JSON: recursion limit exceeded"),
        (lambda path: path.write_text("[]", encoding="utf-8"), "it is [], allowed is an object"),
        (_damage(properties=[{"anomaly": "Z9"}]), "properties.0.anomaly is 'Z9', allowed is one of A1, "),
        (
            _damage(status="valid"),
            "its status is valid, and its properties and unknowns make invalid; judge the run again: sluice check /",
        ),
        (_damage(measures={"queues": 7}), "measures.queues is 7, allowed is an object"),
        (_damage(measures={"queues": {}}), "measures is {'queues': {}}, events is missing"),
        (_damage(run={"profile": "smoke"}), "run.profile is 'smoke', allowed is an object"),
        (_damage(run={"run": "r", "known_deviations": {"Z9": ""}}), "allowed is one of A1, "),
        (_damage(schema_version=2), "has schema version 2, this version of Sluice reads up to 1"),
    ],
)
def test_a_verdict_that_cannot_be_read_is_refused_with_what_to_do(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    report.write(finished_runs.invalid(), tmp_path)
    damage(tmp_path / report.VERDICT_FILE)

    with pytest.raises(HistoryError) as refused:
        report.read_verdict(tmp_path)

    assert message in str(refused.value)


def test_series_of_another_run_or_version_are_not_used(tmp_path: Path) -> None:
    verdict = finished_runs.valid()
    fields = finished_runs.series_of(verdict)

    report.write_series(fields, tmp_path)
    assert report.read_series(tmp_path, verdict) == json.loads(json.dumps(fields))
    assert fields.keys() == SeriesSchema.__required_keys__
    for stored in ({**fields, "run": "other"}, {"schema_version": SCHEMA_VERSION + 1, "run": fields["run"]}):
        report.write_series(stored, tmp_path)
        assert report.read_series(tmp_path, verdict) is None
    (tmp_path / report.SERIES_FILE).unlink()
    assert report.read_series(tmp_path, verdict) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bin_count": "4"}, "bin_count is '4', allowed is a valid integer"),
        ({"bin_seconds": 0}, "bin_seconds is 0, allowed is greater than 0"),
        ({"bin_seconds": float("nan")}, "bin_seconds is nan, allowed is a finite number"),
        ({"started_at_us": 10**400}, "allowed is less than or equal to 9007199254740992"),
        ({"published": [1]}, "published has 1 values, allowed are as many as bin_count, "),
        ({"failed": {"Throttled": []}}, "failed.Throttled has 0 values, allowed are as many as bin_count, "),
        (
            {"ranks": [{"groups": 0, "messages": 0, "latency_us": {}}]},
            "ranks.0.groups is 0, allowed is greater than or",
        ),
        ({"groups": {"g": [{"kind": "eaten"}]}}, "groups.g.0.kind is 'eaten', allowed is one of opened, closed, "),
        ({"warm_up": [0]}, "warm_up is [0], List should have at least 2 items"),
    ],
)
def test_an_invalid_series_is_refused_with_field_and_value(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    verdict = finished_runs.valid()
    report.write_series(finished_runs.series_of(verdict) | changes, tmp_path)

    with pytest.raises(HistoryError) as refused:
        report.read_series(tmp_path, verdict)

    assert str(refused.value).startswith(f"{tmp_path}/series.json is damaged: ")
    assert message in str(refused.value)
    assert str(refused.value).endswith("; it is made again from the history")


def test_judging_again_removes_the_page_of_the_older_verdict(tmp_path: Path) -> None:
    """If the new page cannot be drawn, the old one must not contradict the new verdict."""
    for name in (report.PAGE_FILE, report.SERIES_FILE):
        (tmp_path / name).write_text("older", encoding="utf-8")

    report.write(finished_runs.valid(), tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"verdict.json", "summary.md", "junit.xml"}


# --- the page --------------------------------------------------------------------------------------------------------


def test_every_anomaly_has_a_timeline() -> None:
    found = finished_runs.plain_series(finished_runs.history(80), bin_us=1_000_000)
    groups = {
        anomaly: [event.as_dict() for event in case.events if event.invoked_at_us is not None]
        for anomaly, case in CASES.items()
    }

    without = [
        anomaly
        for anomaly, case in CASES.items()
        if timeline.lay_out(case.violation, {**found, "groups": {"g1": groups[anomaly]}}) is None
    ]

    assert without == []


def test_a_timeline_names_its_question_and_ends_leases_where_they_ended() -> None:
    """C1: the second message is received first; its lease ends with its delete, 3 ms later."""
    verdict = finished_runs.invalid()
    (violation,) = [entry for entry in verdict.violations if entry.anomaly == "C1"]

    chart = timeline.lay_out(violation, finished_runs.series_of(verdict))

    assert chart is not None
    bars = [row for rows in chart.to_dict()["datasets"].values() for row in rows]
    leases = [row for row in bars if row["tone"] == "in question" and row["row"].startswith("billing")]
    assert [(row["row"], row["began"], row["ended"]) for row in leases] == [
        ("billing #2", 0.125, 0.128),
        ("billing #1", 0.145, 0.148),
    ]


def test_faults_are_drawn_over_backlog_latency_and_tasks() -> None:
    """All on one time axis: a band from a fault's beginning to its end, or a line if it has no duration."""
    series = finished_runs.series_of(finished_runs.valid())

    drawn = figures.faults(series, finished_runs.FAULTS)

    assert drawn is not None
    assert all(f">{fault['kind']} {fault['target']}<" in drawn.svg for fault in finished_runs.FAULTS)
    assert drawn.svg.count('fill-opacity="0.16"') == 3 * 2  # in three charts two stretches, which are no instants
    assert drawn.svg.count('stroke-opacity="0.7"') == 3 * 2
    assert [f">{title}<" for title in ("backlog", "p99", "tasks") if f">{title}<" not in drawn.svg] == []
    over, open_ = (figures._band(fault, series, 60.0, is_labelled=True) for fault in finished_runs.FAULTS[1:3])
    assert (over.began, over.ended, over.until) == pytest.approx((1 / 3, 26 / 60, 28.31 / 60))
    assert (open_.began, open_.ended, open_.until) == pytest.approx((0.4, 0.45, 0.45))
    assert figures.faults(series, []) is None


def test_the_page_has_the_recovery_of_every_fault_beside_what_is_allowed() -> None:
    verdict = finished_runs.faulty()

    text = page.html(verdict, finished_runs.series_of(verdict))

    row = '<td>{}</td><td class="number" data-title="from">{}</td><td class="number" data-title="to">{}</td>'
    assert row.format("all:endpoint", "24.0 s", "27.0 s") in text
    assert '<th scope="row">answer after-500</th>' in text
    assert [mark for mark in ("✓ 1.2 s", "! 2.31 s", ">nothing followed in events<") if mark not in text] == []
    assert "recovered after at most 2.31 s, nothing followed 2 of them. Allowed: 2 s.</p>" in text
    assert 'href="#faults"' in text
    assert 'id="faults"' not in page.html(finished_runs.valid(), finished_runs.series_of_one())


def test_sentence_reasons_markdown_and_junit_say_which_faults_were_done() -> None:
    """One fault of five was not done, and two had no successful call after them. Without faults nothing is said."""
    verdict = finished_runs.faulty()
    done = "4 of 5 faults done (2 kill, 1 slow, 1 answer)"
    sentence = f"{done}, recovered after at most 2.31 s, nothing followed 2 of them"

    assert harm_sentence(verdict) == sentence
    assert f"{sentence}." in reasons(verdict)
    assert report.markdown(verdict).splitlines()[2].replace("\\", "") == f"{sentence}."
    assert "| kill | 2 | billing-0, shipping-1 | 1.2 s | 1 |" in report.markdown(verdict)
    assert sentence in junit.xml(verdict)
    assert harm_sentence(finished_runs.valid()) is None
    once = replace(verdict, measures={"faults": finished_runs.FAULTS[:1]}, run={})
    assert harm_sentence(once) == "1 fault done (1 kill), recovered after 1.2 s"
    assert (
        harm_sentence(replace(once, measures={"faults": finished_runs.FAULTS[3:]}))
        == "1 fault done (1 kill), nothing followed 1 of them"
    )
    assert harm_sentence(replace(once, measures={}, run={"faults": [{}, {}]})) == "0 of 2 faults done"


def test_the_page_has_every_judged_anomaly_and_loads_nothing_from_outside() -> None:
    """The page is one file without scripts and outside links. Text from outside, as the endpoint's URL, is escaped."""
    verdict = finished_runs.invalid()
    hostile = replace(verdict, run={**verdict.run, "endpoint_url": "<script>alert(1)</script>"})

    text = page.html(hostile, finished_runs.series_of(hostile))

    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert [where for where in ('href="http', "src=", "url(", "@import", '<link rel="style') if where in text] == []
    assert [anomaly.id for anomaly in JUDGED if f'<tr id="{anomaly.id}"' not in text] == []
    assert text.count('<svg class="chart"') == 2 + 2 + 2 + 1 + 7  # time, latency, ranks, failures, timelines
    assert "{{" not in text
    assert len(text) < 400_000


def test_a_run_without_events_has_a_page() -> None:
    nothing: RunSeries = {**finished_runs.series_of_one(), "started_at_us": 0}
    verdict = Verdict(unknowns=("0 message(s) acknowledged and 0 received: nothing to judge",), run={"run": "r"})

    found = page.html(verdict, nothing)

    assert "UNKNOWN" in found
    assert "0 message(s) acknowledged and 0 received: nothing to judge" in found


def test_thresholds_stand_beside_the_measured_values() -> None:
    """Only the thresholds that the profile sets; a value above its threshold is marked."""
    rows = [
        (row.anomaly, row.measure, row.seen, row.allowed, row.is_met)
        for row in threshold_results(finished_runs.crossed_verdict())
    ]

    assert rows == [
        ("H7", "lateness of the generator, p99", "2 s", "at most 3 s", True),
        ("H3", "latency of billing, p99", "2.07 s", "at most 2.2 s", True),
        ("H3", "latency of shipping, p99", "2.33 s", "at most 2.2 s", False),
    ]


# --- two runs --------------------------------------------------------------------------------------------------------


def _slower(verdict: Verdict, factor: float) -> Verdict:
    measures = json.loads(json.dumps(verdict.measures))
    of = measures["queues"]["billing"]["latency_us"]
    of["p99"] = round(of["p99"] * factor)
    return replace(verdict, measures=measures)


@pytest.mark.parametrize(
    ("first", "second", "exit_code"),
    [
        (finished_runs.valid(), finished_runs.valid(), 0),
        (finished_runs.invalid(), finished_runs.valid(), 0),
        (finished_runs.unknown(), finished_runs.valid(), 0),
        (finished_runs.invalid(), finished_runs.invalid(), 0),
        (finished_runs.valid(), finished_runs.invalid(), 1),
        (finished_runs.unknown(), finished_runs.invalid(), 1),
        (finished_runs.valid(), finished_runs.unknown(), 2),
        (finished_runs.unknown(), finished_runs.unknown(), 2),
        (finished_runs.valid(), _slower(finished_runs.valid(), 1.19), 0),
        (finished_runs.valid(), _slower(finished_runs.valid(), 1.21), 99),
        (finished_runs.valid(), finished_runs.crossed_verdict(), 99),
        (finished_runs.crossed_verdict(), finished_runs.crossed_verdict(), 0),
    ],
)
def test_exit_codes_of_comparing_two_runs(first: Verdict, second: Verdict, exit_code: int) -> None:
    """1 if the second is worse, 2 if unknown, 99 if a ratio is above the given 1.2, otherwise 0."""
    assert compare(first, second, Limits(latency_ratio_max=1.2)).exit_code == exit_code


def test_a_further_anomaly_is_worse_even_if_both_runs_are_invalid() -> None:
    first, second = finished_runs.invalid(), finished_runs.invalid()
    first = replace(
        first, properties=tuple(replace(p, violation_count=int(p.anomaly == "A1")) for p in first.properties)
    )

    compared = compare(first, second, Limits())

    assert compared.new == ["B1", "C1", "D1", "D2", "F4", "G1"]
    assert compared.gone == []
    assert compared.exit_code == 1
    assert compare(second, first, Limits()).gone == ["B1", "C1", "D1", "D2", "F4", "G1"]


def test_a_measure_that_disappeared_crosses_a_ratio() -> None:
    """A queue that received nothing has no latency, which does not make it faster."""
    second = replace(finished_runs.valid(), measures={**finished_runs.MEASURES, "queues": {}})

    compared = compare(finished_runs.valid(), second, Limits(latency_ratio_max=2, rate_ratio_min=0.5))

    crossed = [number.what for number in compared.numbers if number.crossed]
    assert crossed == [
        f"{what} {queue}"
        for what, queue in [
            ("received from", "billing"),
            ("received from", "shipping"),
            *((f"{percentile} of", queue) for queue in ("billing", "shipping") for percentile in ("p50", "p95", "p99")),
        ]
    ]
    assert compared.exit_code == 99


def _store(folder: Path, verdict: Verdict) -> Path:
    folder.mkdir()
    report.write(verdict, folder)
    return folder


def test_compare_prints_ratios_and_ends_with_its_code(tmp_path: Path) -> None:
    folders = [
        _store(tmp_path / "a", finished_runs.valid()),
        _store(tmp_path / "b", _slower(finished_runs.valid(), 1.5)),
    ]

    ended = CliRunner().invoke(compare_command, [*map(str, folders), "--latency-ratio-max", "1.2", "--json"])

    printed = json.loads(ended.stdout)
    assert ended.exit_code == printed["exit_code"] == 99
    (p99,) = [number for number in printed["numbers"] if number["what"] == "p99 of billing"]
    assert p99 == {
        "what": "p99 of billing",
        "unit": "us",
        "first": 2_070_000,
        "second": 3_105_000,
        "ratio": 1.5,
        "crossed": True,
    }


@pytest.mark.parametrize("ratio", ["nan", "inf", "0", "-1", "much"])
def test_a_ratio_that_nothing_can_cross_is_refused(tmp_path: Path, ratio: str) -> None:
    """A gate that passes every run is worse than none."""
    folders = [_store(tmp_path / "a", finished_runs.valid()), _store(tmp_path / "b", finished_runs.valid())]

    refused = CliRunner().invoke(compare_command, [*map(str, folders), "--latency-ratio-max", ratio])

    assert refused.exit_code == 2  # click's own; the command line's is 3
    assert "Invalid value for '--latency-ratio-max'" in refused.stderr


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    folder = _store(tmp_path / "a", finished_runs.valid())

    refused = CliRunner().invoke(compare_command, [str(folder), f"{folder}/../a"])

    assert isinstance(refused.exception, ConfigError)
    assert str(refused.exception) == f"both runs are {folder}, allowed are two; name another"


def test_runs_of_different_profiles_are_refused_unless_forced(tmp_path: Path) -> None:
    other = {**finished_runs.DESCRIBED, "profile": {**finished_runs.DESCRIBED["profile"], "group_count": 13}}
    folders = [
        _store(tmp_path / "a", finished_runs.valid()),
        _store(tmp_path / "b", replace(finished_runs.valid(), run=other)),
    ]

    refused = CliRunner().invoke(compare_command, [*map(str, folders)])
    forced = CliRunner().invoke(compare_command, [*map(str, folders), "--force"])

    assert isinstance(refused.exception, ConfigError)
    assert "the profiles differ in group_count (12 and 13)" in str(refused.exception)
    assert forced.exit_code == 0
    assert "group_count" in forced.stdout


def test_a_recording_whose_charts_were_not_stored_is_judged_again_for_them(tmp_path: Path) -> None:
    """Spark reads a run again; for a recording only `check` knows the queues."""
    report.write(finished_runs.valid(), tmp_path)

    refused = CliRunner().invoke(report_command, [str(tmp_path)])

    assert isinstance(refused.exception, HistoryError)
    assert str(refused.exception) == (
        f"{tmp_path} is a recording, and what its page shows was not stored with its verdict; judge it again:"
        f" sluice check {tmp_path}"
    )


def test_report_draws_a_stored_run_again_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _store(tmp_path / "a", finished_runs.invalid())
    report.write_series(finished_runs.series_of_one(), folder)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    ended = CliRunner().invoke(report_command, [str(folder), "-o", str(tmp_path / "page.html")])

    assert ended.exit_code == 0
    assert ended.stdout == f"{tmp_path / 'page.html'}\n"
    assert "INVALID" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not (folder / report.PAGE_FILE).exists()


def test_the_hand_made_verdicts_have_the_statuses_of_their_names() -> None:
    """Otherwise the tests above would test something else."""
    made = [finished_runs.valid(), finished_runs.crossed_verdict(), finished_runs.unknown(), finished_runs.invalid()]

    assert [verdict.status for verdict in made] == [
        PropertyStatus.VALID,
        PropertyStatus.VALID,
        PropertyStatus.UNKNOWN,
        PropertyStatus.INVALID,
    ]
    assert [verdict.exit_code for verdict in made] == [0, 99, 2, 1]
    assert comparison.markdown(compare(made[0], made[3], Limits())).startswith("# VALID → INVALID\n")
