"""The processes of the workers: none that nobody waits for."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice.clock import SystemClock
from spark_load.consume import worker_processes
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.runtime.task_context import Run
from tests.support.deployments import ONE_QUEUE

TWO = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\nconsumer: worker\nconsumers_per_queue: 2\n"


def _run(folder: Path) -> Run:
    plan = Plan(profile.parse(TWO, source="two"), 1)
    return Run(id="r", folder=folder, deployment=ONE_QUEUE, plan=plan, clock_id="c", clock_offset_us=0)


def test_workers_that_are_told_to_stop_before_they_begin_are_not_started(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.coordinator(SystemClock()).stop()

    assert worker_processes.work(run) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["board-0"]


def test_when_a_worker_cannot_be_started_those_before_it_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would consume on behind the back of a run that failed."""
    run, begin, begun = _run(tmp_path), subprocess.Popen, list[Any]()

    def kept(*arguments: Any, **options: Any) -> Any:
        begun.append(begin(*arguments, **options))
        return begun[-1]

    monkeypatch.setattr("subprocess.Popen", kept)
    monkeypatch.setattr(worker_processes, "_sluice", lambda *_: [sys.executable, "-c", "import time; time.sleep(20)"])
    monkeypatch.setenv("SLUICE_DSN", "sqlite://")
    (tmp_path / "workers" / "billing-1.log").mkdir(parents=True)  # where the second one's words would go
    run.coordinator(SystemClock()).start(SystemClock().now_us())

    with pytest.raises(IsADirectoryError):
        worker_processes.work(run)

    assert [item.poll() for item in begun] == [-signal.SIGTERM]
