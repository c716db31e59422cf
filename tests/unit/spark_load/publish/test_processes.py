"""Publishing processes under faults: they are found by the process id that they report, and ended or frozen."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.clock import SystemClock, clock_id
from spark_load.faults.shapes import FaultKind
from spark_load.publish.processes import Publishers
from spark_load.runtime import coordinator
from spark_load.runtime.coordinator import RunCoordinator
from tests.support.project import PROJECT

_TASK = """
import sys
from pathlib import Path
from sluice.clock import SystemClock
from spark_load.runtime.coordinator import RunCoordinator
with RunCoordinator(Path(sys.argv[1]), SystemClock()).present("publish-0"):
    print("at work", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def task(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that reports itself as publish-0, and runs until its input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", _TASK, str(tmp_path)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        yield process
        process.kill()


@pytest.mark.parametrize(("kind", "number"), [(FaultKind.KILL, signal.SIGKILL), (FaultKind.TERMINATE, signal.SIGTERM)])
def test_a_fault_ends_a_publisher_once_and_allows_one_more_run(
    tmp_path: Path, task: "subprocess.Popen[str]", kind: FaultKind, number: signal.Signals
) -> None:
    board = RunCoordinator(tmp_path, SystemClock())
    publishers = Publishers(board)

    has_hit = [publishers.harm(kind, name) for name in ("publish-1", "publish-0", "publish-0")]

    assert has_hit == [False, True, False]  # nobody is publish-1, and the process of publish-0 was already ended
    assert task.wait(30) == -number
    assert [board.again_count(name) for name in ("publish-0", "publish-1")] == [1, 0]


def test_a_publisher_is_frozen_until_the_end_of_the_fault(tmp_path: Path, task: "subprocess.Popen[str]") -> None:
    """Then it ends normally. Without a running process a fault is not done, and its end changes nothing."""
    publishers = Publishers(RunCoordinator(tmp_path, SystemClock()))

    assert publishers.harm(FaultKind.FREEZE, "publish-0")
    assert os.waitid(os.P_PID, task.pid, os.WSTOPPED | os.WNOWAIT) is not None
    publishers.heal(FaultKind.FREEZE, "publish-0")
    task.communicate(timeout=30)

    assert task.returncode == 0
    assert not publishers.harm(FaultKind.FREEZE, "publish-0")
    publishers.heal(FaultKind.FREEZE, "publish-0")


def test_only_running_publishers_of_this_machine_are_harmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that has ended, not the driver itself, and not a process id of another machine."""
    board = RunCoordinator(tmp_path, SystemClock())
    publishers = Publishers(board)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait(30)
    (tmp_path / "process-publish-0.json").write_text(
        f'{{"pid": {gone.pid}, "machine": "{clock_id()}"}}', encoding="utf-8"
    )

    assert not publishers.harm(FaultKind.KILL, "publish-0")
    with board.present("publish-0"):
        assert not publishers.harm(FaultKind.KILL, "publish-0")
        monkeypatch.setattr(os, "getpid", lambda: 0)
        monkeypatch.setattr(coordinator, "clock_id", lambda: "another")
        assert not publishers.harm(FaultKind.FREEZE, "publish-0")

    with pytest.raises(ConnectionError), board.present("publish-0"):
        raise ConnectionError
    assert board.process("publish-0") is None  # what Spark does with its process is no fault's
    assert board.again_count("publish-0") == 0
