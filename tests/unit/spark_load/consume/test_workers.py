"""The processes of the workers: none that nobody waits for."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sluice.clock import SystemClock, eventually
from spark_load.consume import worker_processes
from spark_load.consume.forked_worker import ForkedWorker
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.runtime.task_context import Run
from tests.support.deployments import ONE_QUEUE
from tests.support.project import PROJECT

TWO = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\nconsumer: worker\nconsumers_per_queue: 2\n"


def _run(folder: Path) -> Run:
    plan = Plan(profile.parse(TWO, source="two"), 1)
    return Run(id="r", folder=folder, deployment=ONE_QUEUE, plan=plan, clock_id="c", clock_offset_us=0)


def test_workers_that_are_told_to_stop_before_they_begin_are_not_started(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.coordinator(SystemClock()).stop()

    assert worker_processes.work(run) == worker_processes.Worked()
    assert [path.name for path in tmp_path.iterdir()] == ["board-0"]


def test_when_a_worker_cannot_be_started_those_before_it_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would consume on behind the back of a run that failed."""
    run, begun = _run(tmp_path), list[ForkedWorker]()

    class Waiting(ForkedWorker):
        def __init__(self, _: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
            nowhere = ("--dsn", "postgresql://nobody@127.0.0.1:1/none")
            super().__init__(["schema", "apply", "--wait", "60", *nowhere], environment=environment, log=log)
            begun.append(self)

    monkeypatch.setattr(worker_processes, "ForkedWorker", Waiting)
    monkeypatch.setenv("SLUICE_DSN", "sqlite://")
    (tmp_path / "workers" / "billing-1.log").mkdir(parents=True)  # where the second one's words would go
    run.coordinator(SystemClock()).start(SystemClock().now_us())

    with pytest.raises(IsADirectoryError):
        worker_processes.work(run)

    assert [item.poll() for item in begun] == [-signal.SIGTERM]


def test_workers_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """Nobody would tell them to, and one that is scaled waits for a day."""
    log = tmp_path / "waiting.log"
    arguments = ["schema", "apply", "--wait", "600", "--dsn", "postgresql://nobody@127.0.0.1:1/none"]
    run = (
        "import os, sys\nfrom pathlib import Path\nfrom spark_load.consume.forked_worker import ForkedWorker\n"
        f"worker = ForkedWorker({arguments!r}, environment=os.environ, log=Path({str(log)!r}))\n"
        "print(worker.pid, worker.poll(), flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", run], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        pid, code = killed.stdout.readline().split()
        killed.kill()

    assert code == "None"
    eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists(), timeout_seconds=30, describe="the worker to end")
