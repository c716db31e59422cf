"""A full disk, or a folder that is gone, is reported in one line with the next step."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.clock import VirtualClock
from sluice.errors import ConfigError, HistoryError
from sluice.judge import report
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Verdict
from spark_load.run import resume, run_file
from spark_load.runtime.coordinator import RunCoordinator, RunStep, TaskProgress
from tests.support.full_disk import files_limited_to

EXPECTATION = Expectation(run="r", queues=(), visibility_timeout_seconds={})


def test_tasks_can_be_told_to_stop_where_the_disk_is_full(tmp_path: Path) -> None:
    """Otherwise they would go on, and their driver would wait for them."""
    coordinator = RunCoordinator(tmp_path, VirtualClock())

    with files_limited_to(0):
        coordinator.reach(RunStep.STOP)

    assert coordinator.is_stopped()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda folder: report.write(Verdict(), folder),
            r"summary.md \(File too large\); make room there, or copy it, and",
        ),
        (
            lambda folder: run_file.store(folder, {}, EXPECTATION, []),
            r"run.json \(File too large\); make room there, or copy it, and judge it: sluice check",
        ),
        (
            lambda folder: RunCoordinator(folder, VirtualClock()).report(TaskProgress(worker="w", role="consume")),
            r"\(File too large\); make room there",
        ),
    ],
)
def test_a_full_disk_is_reported_in_one_line(tmp_path: Path, write: Callable[[Path], None], message: str) -> None:
    with files_limited_to(0), pytest.raises(HistoryError, match=message):
        write(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_reported_in_a_line(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"gone \(No such file or directory\); make room there"),
        resume.run_lock(tmp_path / "gone"),
    ):
        raise AssertionError("held")
