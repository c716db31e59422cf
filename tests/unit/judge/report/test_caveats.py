"""A verdict's caveats stand beside it in every output, and in the last line on the terminal."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.judge import recording, report
from sluice.judge.checker import Expectation, Thresholds
from sluice.judge.checker.anomalies import JUDGED
from sluice.judge.checker.verdict import PropertyState, Verdict
from sluice.judge.engine import open_in_memory
from sluice.judge.judge import RunFacts, judge
from sluice.judge.report import junit, page
from spark_load.cli import ending
from tests.support.histories import finished_runs
from tests.support.histories.builders import EXPECTATION, full, sane
from tests.support.histories.recordings import KNOWN, engine_of, write_journal

_NO_SPEED = "it says nothing about speed: its profile sets no latency_seconds_max"
_NO_LOSS = (
    "loss was not judged (A1 lost, A3 vanished, E1 fan-out-incomplete): nothing marks where a group ends, so no queue"
    " is known to be drained"
)
_THRESHOLDS = {"D3", "E3", "H1", "H3", "H4", "H5", "H6"}


def _of_a_recording(folder: Path) -> Verdict:
    write_journal(folder, sane(), one_group_in=4)
    engine = open_in_memory(folder)
    assert engine is not None
    return recording.check(engine, folder, KNOWN, "endpoint")[0]


def _without_threshold() -> Verdict:
    profile = {**finished_runs.DESCRIBED["profile"], "latency_seconds_max": None}
    return replace(finished_runs.valid(), run={**finished_runs.DESCRIBED, "profile": profile})


def _page(verdict: Verdict) -> str:
    return page.html(verdict, finished_runs.series_of_one())


def _box(verdict: Verdict) -> str:
    return _page(verdict).partition('<p class="means">')[2].partition("</p>")[0]


def _last_line(verdict: Verdict, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        ending.finish(verdict, folder, as_json=True)
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("shown", [report.markdown, _box, junit.xml], ids=["summary", "page", "junit"])
def test_a_recording_whose_losses_were_not_judged_is_not_plainly_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: Callable[[Verdict], str]
) -> None:
    verdict = _of_a_recording(tmp_path / "recording")

    assert _last_line(verdict, tmp_path, capsys) == f"VALID; {_NO_LOSS}: "
    assert _NO_LOSS in shown(verdict).replace("\\", "")
    assert "loss was not judged" not in shown(finished_runs.valid())


def test_a_recording_without_acknowledged_publishes_is_not_judged_for_loss() -> None:
    """Without a publish, no message can be missing."""
    verdict = finished_runs.valid()
    counts = {"A1": 0, "A2": 0, "A3": 0, "E1": 0}
    properties = tuple(replace(prop, opportunities=counts.get(prop.anomaly, 640)) for prop in verdict.properties)

    shown = report.markdown(replace(verdict, properties=properties))

    assert (
        "loss was not judged (A1 lost, A3 vanished, E1 fan-out-incomplete): no acknowledged publish is on record"
        in shown
    )


@pytest.mark.parametrize("shown", [report.markdown, _box, junit.xml], ids=["summary", "page", "junit"])
def test_a_load_test_without_a_latency_threshold_says_nothing_about_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: Callable[[Verdict], str]
) -> None:
    verdict = _without_threshold()

    assert _last_line(verdict, tmp_path, capsys) == f"VALID; {_NO_SPEED}: "
    assert _NO_SPEED in shown(verdict).replace("\\", "")
    assert _NO_SPEED not in shown(finished_runs.valid()).replace("\\", "")
    assert _NO_SPEED not in shown(_of_a_recording(tmp_path / "recording")).replace("\\", "")
    assert _NO_SPEED not in shown(replace(finished_runs.invalid(), run=verdict.run)).replace("\\", "")


def _judge(thresholds: Thresholds, expectation: Expectation) -> Verdict:
    expectation = replace(expectation, max_receive_count={})
    return judge(
        engine_of(full()), RunFacts(expectation=expectation, target="endpoint", recorders={}, thresholds=thresholds)
    )


def test_a_property_without_a_threshold_is_not_called_not_exercised() -> None:
    limits = {"fan_out_skew_seconds_max": 9.0, "passed_over_seconds_max": 9.0, "stuck_seconds_max": 9.0}
    unset = _judge(Thresholds(), EXPECTATION)
    is_set = _judge(
        Thresholds(latency_seconds_max=9, drain_seconds_max=9, recovery_seconds_max=9, throttled_share_max=0.5),
        replace(EXPECTATION, **limits),  # type: ignore[arg-type]
    )
    holdings = {prop.anomaly: prop.holding for prop in is_set.properties if prop.anomaly in _THRESHOLDS}

    assert {prop.anomaly for prop in unset.properties if prop.holding is PropertyState.NO_THRESHOLD} == _THRESHOLDS
    assert holdings == dict.fromkeys(_THRESHOLDS, PropertyState.HOLDS) | {"H5": PropertyState.NOT_EXERCISED}


def test_a_missing_threshold_is_named_in_every_output(tmp_path: Path) -> None:
    verdict = replace(
        _without_threshold(),
        properties=tuple(
            replace(prop, has_threshold=prop.anomaly not in _THRESHOLDS, opportunities=prop.opportunities or 1)
            for prop in finished_runs.valid().properties
        ),
    )
    report.write(verdict, tmp_path)

    assert report.read_verdict(tmp_path).as_json() == verdict.as_json()
    assert {prop["holding"] for prop in json.loads((tmp_path / "verdict.json").read_text())["properties"]} >= {
        "no threshold"
    }
    assert junit.xml(verdict).count("no threshold is set for it") == len(_THRESHOLDS)
    assert "no opportunity to fail" not in junit.xml(verdict)
    shown = _page(verdict)
    assert "This run gave it no opportunity to fail." not in shown
    assert shown.count("No threshold is set for it.") == len(_THRESHOLDS)
    assert report.markdown(verdict).count("| no threshold |") == len(_THRESHOLDS)
    judged = len(JUDGED) - len(_THRESHOLDS)
    assert f"{judged} of {judged} judged properties were exercised" in shown
    assert f"{len(_THRESHOLDS)} have no threshold" in shown


@pytest.mark.parametrize("shown", [report.markdown, _box, junit.xml], ids=["summary", "page", "junit"])
def test_faults_that_hit_nothing_and_workers_that_ended_by_themselves_are_counted(
    shown: Callable[[Verdict], str],
) -> None:
    """They are no violation, but whoever reads VALID should know of them."""
    verdict = finished_runs.valid()
    of_run = {
        "faults": [{"kind": "kill", "target": "billing-0", "at_seconds": 1, "until_seconds": 1}] * 9,
        "missed": [f"kill of billing-{number} at 2 s" for number in range(4)],
        "crashed": ["audit-0 ended with 3 (the queue does not answer)"],
    }

    found = shown(replace(verdict, run={**verdict.run, **of_run})).replace("\\", "")

    named = "kill of billing-0 at 2 s; kill of billing-1 at 2 s; kill of billing-2"
    assert f"4 of 9 faults hit nothing, or were to come when the run ended: {named}" in found
    assert (
        "1 worker ended with an error under faults, and another took the place: audit-0 ended with 3 (the queue"
        in found
    )
    assert "hit nothing" not in shown(verdict)


def test_terminal_summary_leaves_out_properties_that_held() -> None:
    """Each property that held, or had no opportunity to fail, is a row of the whole summary only."""
    verdict = finished_runs.invalid()
    brief, whole = report.markdown(verdict, is_whole=False), report.markdown(verdict)

    assert len([line for line in whole.splitlines() if line.startswith("| ")]) > 60
    odd = [prop.anomaly for prop in verdict.properties if prop.holding is PropertyState.VIOLATED]
    assert all(f"| {anomaly} " in brief for anomaly in odd)
    assert "| H2 " not in brief
    assert "| H2 " in whole
    assert " · Order " in brief
    assert "`--all` lists each." in brief
