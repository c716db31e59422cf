"""A disk that is full, or a folder that is gone: what cannot be written is said in a line, with what to do."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.clock import VirtualClock
from sluice.errors import HistoryError
from sluice.history.checker import Expectation
from sluice.history.checker.verdict import Verdict
from spark_load import report
from spark_load.run import resume, stored
from spark_load.runtime.coordinator import Progress, RunCoordinator

EXPECTATION = Expectation(run="r", queues=(), visibility_timeout_seconds={})


@contextmanager
def _full_disk() -> Iterator[None]:
    """Let no file of this process hold anything: a name still has room, as on most file systems that are full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_tasks_can_be_told_to_stop_where_the_disk_is_full(tmp_path: Path) -> None:
    """Else they would go on, and their driver wait for them."""
    coordinator = RunCoordinator(tmp_path, VirtualClock())

    with _full_disk():
        coordinator.stop()

    assert coordinator.is_stopped()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda folder: report.write(Verdict(), folder),
            r"summary.md \(File too large\); make room there, or copy it, and",
        ),
        (
            lambda folder: stored.store(folder, {}, EXPECTATION, []),
            r"run.json \(File too large\); make room there, or copy it, and judge it: sluice check",
        ),
        (
            lambda folder: RunCoordinator(folder, VirtualClock()).report(Progress(worker="w", role="consume")),
            r"\(File too large\); make room there",
        ),
    ],
)
def test_what_a_full_disk_has_no_room_for_is_said_in_a_line(
    tmp_path: Path, write: Callable[[Path], None], message: str
) -> None:
    """It names the file and the next step; what was recorded is kept."""
    with _full_disk(), pytest.raises(HistoryError, match=message):
        write(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_said_in_a_line(tmp_path: Path) -> None:
    """Here it is gone."""
    with (
        pytest.raises(HistoryError, match=r"gone \(No such file or directory\); make room there"),
        resume.held(tmp_path / "gone"),
    ):
        raise AssertionError("held")
