"""The files of a run's folder are read as they were written; a damaged one is refused with its field and value."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from sluice.errors import ConfigError, HistoryError
from sluice.judge import report
from sluice.judge.folder.layout import HISTORY, RUN_FILE
from spark_load.cli.report import report as report_command
from spark_load.profiles import profile
from spark_load.run import driver, run_file
from tests.support.histories import finished_runs
from tests.support.histories.builders import EXPECTATION


def _store(folder: Path, change: Callable[[Any], object]) -> Path:
    """Write the description of a run with these changes, and return the folder."""
    run_file.store(folder, finished_runs.DESCRIBED, EXPECTATION, ["it broke"])
    path = folder / RUN_FILE
    found = json.loads(path.read_text(encoding="utf-8"))
    change(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    return folder


def test_a_runs_description_is_read_as_written(tmp_path: Path) -> None:
    stored = driver.find_stored(_store(tmp_path, lambda result: result["described"].update(newer=[1])))

    assert stored.expectation == EXPECTATION
    assert stored.described == {**finished_runs.DESCRIBED, "newer": [1]}
    assert stored.plan.profile.group_count == 12
    assert stored.plan.seed == 7
    assert stored.unknowns == ("it broke",)


def test_a_run_of_a_version_with_more_profile_fields_is_read(tmp_path: Path) -> None:
    gone = {"producers_per_group": 1, "batch_same_group": False}
    folder = _store(tmp_path, lambda found: found["described"]["profile"].update(gone))

    assert driver.find_stored(folder).plan.profile == profile.of_run(finished_runs.DESCRIBED["profile"])
    _store(tmp_path, lambda found: found["described"]["profile"].update(gone | {"producers_per_group": 3}))
    with pytest.raises(
        HistoryError, match=r"profile\.producers_per_group is 3, Unexpected .*; see the folders in runs/"
    ):
        driver.find_stored(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("expectation"), "expectation is missing"),
        (
            lambda fields: fields["expectation"].update(queues="q"),
            "expectation.queues is 'q', allowed is a valid array",
        ),
        (lambda fields: fields["expectation"].update(newer=1), "expectation.newer is 1, Unexpected keyword argument"),
        (lambda fields: fields["described"].update(seed=float("nan")), "described.seed is nan, allowed is"),
        (
            lambda fields: fields["described"].update(attempts=0),
            "described.attempts is 0, allowed is greater than or equal",
        ),
        (
            lambda fields: fields["described"].update(recorders=["a"]),
            "described.recorders is ['a'], allowed is an object",
        ),
        (
            lambda fields: fields["described"].update(transport="pigeons"),
            "described.transport is 'pigeons', allowed is one of boto3, sockets",
        ),
        (
            lambda fields: fields["described"]["profile"].update(group_count=-3),
            "described.profile.group_count is -3, allowed is greater than or equal to 1",
        ),
    ],
)
def test_a_damaged_description_is_refused_with_field_and_value(
    tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(HistoryError) as refused:
        driver.find_stored(_store(tmp_path, change))

    assert str(refused.value).startswith(f"{tmp_path}/run.json is damaged: {message}")
    assert str(refused.value).endswith(f"judge its record alone: sluice check {tmp_path}/journals")


@pytest.mark.parametrize("text", ["[]", '"valid"', '{"status": "fine"}', "[" * 100_000])
def test_a_run_with_an_unreadable_verdict_is_not_resumed(tmp_path: Path, text: str) -> None:
    """The run may have been finished."""
    (tmp_path / report.VERDICT_FILE).write_text(text, encoding="utf-8")

    with pytest.raises(HistoryError, match=r"verdict\.json is damaged.*; move it away to go on"):
        report.read_status(tmp_path)


def test_a_folder_that_is_no_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not the folder of a run \(run.json is missing\); see the folders in"):
        driver.find_stored(tmp_path)


def test_a_damaged_series_is_named_and_made_again(tmp_path: Path) -> None:
    report.write(finished_runs.valid(), tmp_path)
    report.write_series({**finished_runs.series_of(finished_runs.valid()), "published": "all"}, tmp_path)

    ended = CliRunner().invoke(report_command, [str(tmp_path)])

    assert ended.stderr == (
        f"sluice: {tmp_path}/series.json is damaged: published is 'all', allowed is a valid array; it is made again"
        " from the history\n"
    )
    assert isinstance(ended.exception, HistoryError)


def test_charts_of_a_missing_or_damaged_history_name_the_next_step(tmp_path: Path) -> None:
    """Otherwise empty charts would replace those of an earlier page. The test needs no task of Spark."""
    run = driver.find_stored(_store(tmp_path, lambda _: None))
    history = tmp_path / HISTORY
    again = f"make it again from its journals: sluice check {tmp_path}"

    def refusal() -> str:
        with pytest.raises(HistoryError) as refused:
            driver.aggregate(Mock(spec=[]), run, finished_runs.valid())
        return str(refused.value)

    assert refusal() == f"there is no history in {history}; {again}"
    history.mkdir()
    (history / "events.parquet").write_bytes(b"PAR1")
    assert refusal().startswith(f"the history in {history} cannot be read (")
    assert refusal().endswith(f"; {again}")
