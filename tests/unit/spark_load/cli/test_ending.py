"""A command keeps its verdict and its reason, even if something fails while it ends."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from sluice.judge.checker.anomalies import ANOMALIES
from sluice.judge.checker.verdict import EXIT_CROSSED
from spark_load.cli import ending, spark_commands
from spark_load.run import driver
from spark_load.runtime import spark_session
from tests.support.histories import finished_runs


class _Dead:
    """A Spark session whose JVM was killed."""

    def stop(self) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_a_session_that_died_does_not_hide_why_a_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping the session fails too, and the run's own error is still raised."""
    monkeypatch.setattr(spark_session, "_start", lambda *_: _Dead())

    with pytest.raises(ZeroDivisionError), spark_session.running(1):
        _ = 1 / 0


def test_a_crossed_threshold_has_its_own_exit_code_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ending.finish(finished_runs.crossed_verdict(), tmp_path, as_json=True)

    assert ended.value.code == EXIT_CROSSED
    assert "H3 late: latency in shipping was 2.33 s, allowed are 2.2 s\n" in capsys.readouterr().err


def test_ctrl_c_while_a_page_is_drawn_costs_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict is already written. It is printed, with the command that draws the page later."""

    def stop(_folder: Path) -> driver.StoredRun:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "find_stored", stop)

    spark_commands.draw(None, tmp_path, finished_runs.valid())  # type: ignore[arg-type]

    assert capsys.readouterr().err == (f"no page was drawn: stopped; to try again: sluice report {tmp_path}\n")


@pytest.mark.parametrize(
    "odd", ["order[/x]", "tenant[a]", ":smile:", "\x1b[2J\x1b]0;t\x07", "\x9b31m\x7f", "a\nforged"]
)
@pytest.mark.parametrize("form", ["json", "summary"])
def test_names_of_a_history_are_printed_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], odd: str, form: str
) -> None:
    """Names with markup or a terminal's control characters have no effect in the summary, the reasons and JSON."""
    verdict = finished_runs.invalid()
    violation = replace(verdict.violations[0], message_group_id=odd, sentence=f"of {odd}")
    verdict = replace(verdict, violations=(violation,), unknowns=(f"what became of {odd}",))

    with pytest.raises(SystemExit):
        ending.finish(verdict, tmp_path, as_json=form == "json")

    out, err = capsys.readouterr()
    assert [line for line in f"{out}\n{err}".split("\n") if not line.isprintable()] == []
    escaped = "".join(name if name.isprintable() else name.encode("unicode_escape").decode() for name in odd)
    assert err.splitlines()[:2] == [
        f"what became of {escaped}",
        f"{violation.anomaly} {ANOMALIES[violation.anomaly].name} in group {escaped}, all queues, message 1:"
        f" of {escaped}",
    ]
    if form == "json":
        assert json.loads(out)["unknowns"] == [f"what became of {odd}"]
    elif odd.isprintable():
        assert f"group {odd}," in " ".join(out.split())
