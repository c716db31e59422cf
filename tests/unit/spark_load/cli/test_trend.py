"""`sluice load trend`: the answer, its exit code and its page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.errors import HistoryError
from sluice.judge import report
from sluice.judge.checker.verdict import PropertyStatus
from spark_load.baselines import results
from spark_load.baselines.trend import EXIT_TOO_FEW
from spark_load.cli.trend import remember
from tests.support.drawn_results import runs, slow_down
from tests.support.project import PROJECT
from tests.unit.spark_load.baselines.test_results import verdict

_GATE, _GUIDE = ".github/workflows/release-gate.yml", "docs/guides/traces.md"


def _call(*arguments: str) -> Result:
    """Run `sluice load trend` with these arguments."""
    return CliRunner().invoke(cli, ["load", "trend", *arguments])


def _results(folder: Path, *, factor: float = 1, count: int = 26) -> Path:
    """Write the results of several runs; the last run is slower."""
    found = runs(np.random.default_rng(9), count)
    for each in [*found[:-1], slow_down(found[-1], factor)]:
        results.append(each, folder / "results.jsonl")
    return folder / "results.jsonl"


@pytest.mark.parametrize(
    ("factor", "count", "code", "word"),
    [(1, 26, 0, "NOT SLOWER"), (1.6, 26, 99, "SLOWER"), (1.6, 8, 98, "TOO FEW RUNS")],
)
def test_load_trend_answers_with_its_exit_code(tmp_path: Path, factor: float, count: int, code: int, word: str) -> None:
    """0 for not slower, 99 for slower, 98 for too few earlier runs."""
    called = _call("--results", str(_results(tmp_path, factor=factor, count=count)))

    assert called.exit_code == code
    assert called.exception is None or isinstance(called.exception, SystemExit)
    assert re.search(rf"\b{word}\b", called.stdout)


def test_load_trends_json_has_ratios_and_detectable_ratios(tmp_path: Path) -> None:
    """The last run is slower by a factor of 1.6. The detectable ratio is the smallest that would have been found."""
    found = json.loads(_call("--results", str(_results(tmp_path, factor=1.6)), "--json").stdout)

    assert found["answer"] == "slower"
    assert found["exit_code"] == 99
    assert len(found["before"]) == 24
    row = next(row for row in found["rows"] if row["what"] == "billing p50")
    assert row["slower"]
    assert row["newest"] == 1
    assert 1.4 < row["ratio"] < 1.8
    assert 1.05 <= row["detectable_ratio"] < 1.6


def test_the_page_shows_each_time_and_asks_the_network_for_nothing(tmp_path: Path) -> None:
    """It has a figure for each of twelve times, and can be opened without a network."""
    page = tmp_path / "trend.html"
    _call("--results", str(_results(tmp_path, factor=1.6)), "--page", str(page))

    html = page.read_text()
    assert html.count("<figure>") == 12
    assert "SLOWER" in html
    assert "prefers-color-scheme: dark" in html
    assert re.findall(r"(?:src|href)=\"http|<script|url\(", html) == []


def test_a_trend_page_of_too_few_runs_names_their_number(tmp_path: Path) -> None:
    page = tmp_path / "trend.html"
    _call("--results", str(_results(tmp_path, count=3)), "--page", str(page))

    assert "Nobody can say: found 2 valid runs" in page.read_text()


def test_a_run_in_a_folder_is_compared_with_results_beside_it(tmp_path: Path) -> None:
    """Only one earlier run is there, so the exit code is 98, too few."""
    (tmp_path / "r").mkdir()
    report.write(verdict(), tmp_path / "r")
    remember(verdict("earlier"), tmp_path)

    called = _call(str(tmp_path / "r"), "--json")

    assert json.loads(called.stdout)["before"] == ["earlier"]
    assert called.exit_code == 98


def test_a_sabotaged_run_is_not_remembered(tmp_path: Path) -> None:
    """Its times are no measurement of the service."""
    remember(verdict(saboteur="corrupt-bodies"), tmp_path)

    assert not (tmp_path / "results.jsonl").exists()


def test_a_run_whose_result_cannot_be_stored_keeps_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder is in the place of the results' file; the command prints that, and does not fail."""
    (tmp_path / "results.jsonl").mkdir()

    remember(verdict(), tmp_path)

    assert "not added to results.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("{", "line 5 of .* is damaged: it is '{'"),
        ('{"run": 1}', "line 5 of .* is damaged: run is 1"),
        (json.dumps({"schema_version": 2}), "line 5 of .* is damaged"),
    ],
)
def test_damaged_runs_are_not_taken_for_too_few(tmp_path: Path, damage: str, why: str) -> None:
    """A CI job lets exit code 98, too few runs, pass; a damaged file must end with another code."""
    path = _results(tmp_path, count=4)
    path.write_text(path.read_text() + damage + "\n")

    with pytest.raises(HistoryError, match=why):
        cli(["load", "trend", "--results", str(path)], standalone_mode=False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": PropertyStatus.UNKNOWN}, "the run is UNKNOWN: see its verdict"),
        ({"seconds": {}}, "no time of the run was measured: see its summary"),
    ],
)
def test_an_unknown_run_or_one_without_times_is_not_too_few_runs(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    """CI lets exit code 98 pass, so a run that says nothing must end with 2."""
    (last,) = runs(np.random.default_rng(9), 1)
    results.append(replace(last, **change), tmp_path / "results.jsonl")

    called = _call("--results", str(tmp_path / "results.jsonl"))

    assert called.exit_code == 2
    assert called.stderr == f"{why}\n"


def test_the_workflow_lets_too_few_runs_pass_and_nothing_else() -> None:
    """Both the release workflow and the guide's recipe accept the same exit code."""
    step = re.search(r"sluice load trend .* \|\| \[ \$\? = (\d+) \]", (PROJECT / _GATE).read_text())
    recipe = re.search(r"sluice load trend \|\| \[ \$\? = (\d+) \]", (PROJECT / _GUIDE).read_text())

    assert step is not None
    assert recipe is not None
    assert {int(step[1]), int(recipe[1])} == {EXIT_TOO_FEW}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--results", "none.jsonl"], "there are no results in none.jsonl"),
        (["nowhere"], "nowhere is not the folder of a run with a verdict"),
        (["--last", "3"], "3"),
        (["--page", "no/such/folder.html"], "--page"),
    ],
)
def test_wrong_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)

    called = _call(*arguments)

    assert called.exit_code != 0
    assert why in called.output + str(called.exception)
