"""The processes of a run's workers: how they are started, replaced and ended."""

import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sluice.clock import SystemClock, VirtualClock, clock_id, eventually
from sluice.errors import EndpointError
from spark_load.consume import slots, worker_processes
from spark_load.consume.forked_worker import ForkedWorker
from spark_load.faults.shapes import FaultKind
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.task_context import LoadRun
from tests.support.deployments import ONE_QUEUE
from tests.support.project import PROJECT

TWO_WORKERS = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\nconsumer: worker\nconsumers_per_queue: 2\n"


def _run(folder: Path) -> LoadRun:
    plan = Plan(profile.parse(TWO_WORKERS, source="two"), 1)
    return LoadRun(id="r", folder=folder, deployment=ONE_QUEUE, plan=plan, clock_id="c", clock_offset_us=0)


def test_a_run_that_is_stopped_first_starts_no_worker(tmp_path: Path) -> None:
    """Its folder has nothing but the board on which the stop is written."""
    run = _run(tmp_path)
    run.coordinator(SystemClock()).reach(RunStep.STOP)

    assert worker_processes.work(run) == worker_processes.WorkersResult()
    assert [path.name for path in tmp_path.iterdir()] == ["board-0"]


def test_when_a_worker_cannot_be_started_the_earlier_ones_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they would go on consuming after the run has failed."""
    run, begun = _run(tmp_path), list[ForkedWorker]()

    class Waiting(ForkedWorker):
        def __init__(self, _: Sequence[str], *, environment: Mapping[str, str], log: Path, **_more: float) -> None:
            nowhere = ("--dsn", "postgresql://nobody@127.0.0.1:1/none")
            super().__init__(["schema", "apply", "--wait", "60", *nowhere], environment=environment, log=log)
            begun.append(self)

    monkeypatch.setattr(worker_processes, "ForkedWorker", Waiting)
    monkeypatch.setenv("SLUICE_DSN", "sqlite://")
    (tmp_path / "workers" / "billing-1.log").mkdir(parents=True)  # where the second one's words would go
    run.coordinator(SystemClock()).reach(RunStep.START, SystemClock().now_us())

    with pytest.raises(IsADirectoryError):
        worker_processes.work(run)

    assert [item.poll() for item in begun] == [-signal.SIGTERM]


@pytest.mark.parametrize(("has_faults", "longer_seconds"), [(False, 0), (True, 30)])
def test_under_faults_a_worker_waits_for_the_messages_of_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_faults: bool, longer_seconds: int
) -> None:
    """They are hidden until their visibility timeout ends; an idle worker must not end earlier."""
    run = replace(_run(tmp_path), has_faults=has_faults)
    given = list[str]()
    monkeypatch.setattr(worker_processes, "ForkedWorker", lambda arguments, **_: given.extend(arguments))

    worker_processes.start(run, "billing.fifo", "billing", "billing-0", "sqlite://")

    seconds = float(given[given.index("--until-idle") + 1])
    assert seconds == worker_processes.idle_seconds(run.plan.profile) + longer_seconds


class _RefusingWorker:
    """A worker that has already ended with an error; it says whether it had begun to work."""

    def __init__(self, _: Sequence[str], *, environment: Mapping[str, str], log: Path, **_more: float) -> None:
        self.environment, self.log, self.pid = environment, log, 0
        self.has_worked = False

    def poll(self) -> int:
        return 3

    def wait(self, _: float) -> bool:
        return True

    def is_polling(self) -> bool:
        return self.has_worked

    def last_words(self) -> str:
        return "there is no such table"


def test_workers_that_refuse_under_faults_are_given_up_after_twenty_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fault lasts that long, and a run that restarted them for ever would not end."""
    run, begun = replace(_run(tmp_path), has_faults=True), list[str]()

    class Refusing(_RefusingWorker):
        def __init__(
            self, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path, **_more: float
        ) -> None:
            super().__init__(arguments, environment=environment, log=log)
            begun.append(log.name)
            assert len(begun) < 100, "they are never given up"

    monkeypatch.setattr(worker_processes, "ForkedWorker", Refusing)
    monkeypatch.setattr(slots, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(slots, "_AGAIN_SECONDS", 0)
    monkeypatch.setenv("SLUICE_DSN", "sqlite://")
    run.coordinator(SystemClock()).reach(RunStep.START, SystemClock().now_us())

    with pytest.raises(EndpointError, match="a worker of billing ended with 3: there is no such table"):
        worker_processes.work(run)

    assert sorted(begun) == sorted(
        name
        for place in ("billing-0", "billing-1")
        for name in (f"{place}.log", *(f"{place}.{n}.log" for n in range(1, 20)))
    )


def test_a_worker_that_has_worked_gets_twenty_new_tries() -> None:
    """A worker is given up after twenty starts in a row without work.

    The fifteenth has worked, so twenty more follow.
    """
    clock, begun = VirtualClock(), list[_RefusingWorker]()

    def start(_: slots.Place, name: str) -> ForkedWorker:
        begun.append(_RefusingWorker([], environment={}, log=Path(name)))
        begun[-1].has_worked = len(begun) == 15
        return cast("ForkedWorker", begun[-1])

    places = slots.Places({"billing-0": "billing"}, start, is_harmed=lambda: True, clock=clock)
    places.fill()
    while places.tend():
        clock.sleep(1)
        assert len(begun) < 100, "it is never given up"

    assert len(begun) == 15 + 20
    assert places.all[0].abandoned_worker is not None
    assert len(places.all[0].crashed) == len(begun)


def test_a_worker_with_another_clock_counts_as_another_machine() -> None:
    """Otherwise the checker would compare times of two clocks as if they were of one."""
    process = (
        "from spark_load.consume import forked_worker\nfrom sluice.cli.services import running\n"
        "from sluice.clock import SystemClock\nforked_worker._set_clock(-7_200)\n"
        "print(SystemClock().now_us(), running.clock_id())\n"
    )
    ended = subprocess.run([sys.executable, "-c", process], cwd=PROJECT, capture_output=True, text=True, check=True)
    now_us, _, own_id = ended.stdout.strip().partition(" ")

    assert 7_000 < (SystemClock().now_us() - int(now_us)) / 1e6 < 7_400
    assert own_id == f"{clock_id()}, -7200 s ahead"


def test_a_worker_on_a_full_disk_writes_nothing_until_there_is_room(tmp_path: Path) -> None:
    """It cannot even append to a file that exists; other processes can still write."""
    arguments = ["schema", "apply", "--wait", "600", "--dsn", "postgresql://nobody@127.0.0.1:1/none"]
    worker = ForkedWorker(arguments, environment=os.environ, log=tmp_path / "worker.log")
    unlimited = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)

    worker.fill_disk(is_full=True)
    assert resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)[0] == 0
    worker.fill_disk(is_full=False)
    assert resource.prlimit(worker.pid, resource.RLIMIT_FSIZE) == unlimited

    worker.kill()
    assert worker.wait(30)
    worker.fill_disk(is_full=True)


def test_a_worker_on_a_full_disk_is_no_killed_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have worked on without recording, so its journal may have a hole, however it ends later."""
    run = replace(_run(tmp_path), has_faults=True)

    class Full(_RefusingWorker):
        pids = itertools.count(1)

        def __init__(
            self, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path, **_more: float
        ) -> None:
            super().__init__(arguments, environment=environment, log=log)
            self.pid = next(self.pids)
            self.code: int | None = None

        def poll(self) -> int | None:  # type: ignore[override]
            return self.code

        def fill_disk(self, *, is_full: bool) -> bool:
            return is_full

        def kill(self) -> bool:
            self.code = -9
            return True

        terminate = kill

    def harm(places: slots.Places) -> None:
        harming = threading.Thread(target=lambda: _harm(places), daemon=True)
        harming.start()

    def _harm(places: slots.Places) -> None:
        eventually(lambda: places.harm(FaultKind.FULL, "billing-0"), timeout_seconds=30, describe="a worker")
        eventually(lambda: places.harm(FaultKind.KILL, "billing-1"), timeout_seconds=30, describe="the other one")
        assert places.harm(FaultKind.KILL, "billing-0")
        run.coordinator(SystemClock()).reach(RunStep.STOP)

    monkeypatch.setattr(worker_processes, "ForkedWorker", Full)
    monkeypatch.setattr(slots, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(slots, "_AGAIN_SECONDS", 600)
    monkeypatch.setenv("SLUICE_DSN", "sqlite://")
    run.coordinator(SystemClock()).reach(RunStep.START, SystemClock().now_us())

    worked = worker_processes.work(run, harm)

    assert worked.killed == ["worker-billing-2"]
    assert sorted(worked.recorders) == ["worker-billing-1", "worker-billing-2"]


def test_a_fault_reports_whether_it_hit_a_running_process() -> None:
    """For a consumer with several processes, one running process is enough."""
    begun: dict[str, _RefusingWorker] = {}

    class _Working(_RefusingWorker):
        def poll(self) -> int | None:  # type: ignore[override]
            return None if self.has_worked else 0

        def terminate(self) -> bool:
            self.has_worked = False
            return True

    def start(place: slots.Place, name: str) -> ForkedWorker:
        begun[place.name] = _Working([], environment={}, log=Path(name))
        begun[place.name].has_worked = place.name == "billing-1"
        return cast("ForkedWorker", begun[place.name])

    names = dict.fromkeys(("billing-0", "billing-1"), "billing")
    places = slots.Places(names, start, is_harmed=lambda: True, clock=VirtualClock())

    assert not places.harm(FaultKind.TERMINATE, "billing-1")
    places.fill()
    assert not places.harm(FaultKind.TERMINATE, "billing-0")
    assert places.harm(FaultKind.DEPLOY, "billing")
    assert not places.harm(FaultKind.KILL, "billing-1")
    assert places.harm(FaultKind.SKEW, "billing-1", "-7.5 s")
    assert [place.is_bad for place in places.all] == [True, True]
    places.heal(FaultKind.DEPLOY, "billing")
    assert [(place.is_bad, place.ahead_seconds) for place in places.all] == [(False, 0), (False, -7.5)]
    places.heal(FaultKind.SKEW, "billing-1")
    assert places.all[1].ahead_seconds == 0


class _RollingWorker:
    """A worker that ends when it gets SIGTERM; the test says whether it works."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.has_worked = False

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> bool:
        self.code = 0
        return True

    def is_polling(self) -> bool:
        return self.has_worked


def test_a_rolling_restart_waits_for_each_new_process() -> None:
    """Each of billing's two workers is ended only when the one before it has been replaced and works.

    Audit is left alone.
    """
    begun: list[_RollingWorker] = []
    clock = VirtualClock()

    def start(_place: slots.Place, _name: str) -> ForkedWorker:
        begun.append(_RollingWorker())
        return cast("ForkedWorker", begun[-1])

    names = dict.fromkeys(("billing-0", "billing-1"), "billing") | {"audit-0": "audit"}
    places = slots.Places(names, start, is_harmed=lambda: True, clock=clock)
    places.fill()
    clock.sleep(1)

    assert places.harm(FaultKind.ROLL, "billing")
    places.tend()
    assert [process.code for process in begun] == [0, None, None]
    places.tend()
    assert [process.code for process in begun] == [0, None, None, None]
    begun[3].has_worked = True
    places.tend()
    assert [process.code for process in begun] == [0, 0, None, None]
    assert places.is_rolling("billing")
    places.tend()
    begun[4].has_worked = True
    places.tend()

    assert not places.is_rolling("billing")
    assert [process.code for process in begun] == [0, 0, None, None, None]
    assert [len(place.worked) for place in places.all] == [2, 2, 1]


def test_workers_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """A killed run tells nobody to stop, and a scaled worker would wait for a day until it is idle for long enough."""
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


def test_a_worker_that_ends_under_observation_counts_as_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end between a look at it and a signal to it; an error there would end all faults of the run."""
    arguments = ["schema", "apply", "--wait", "600", "--dsn", "postgresql://nobody@127.0.0.1:1/none"]
    worker = ForkedWorker(arguments, environment=os.environ, log=tmp_path / "worker.log")
    assert [worker.freeze(), worker.thaw(), worker.kill()] == [True, True, True]
    assert worker.wait(30)
    monkeypatch.setattr(ForkedWorker, "poll", lambda _: None)

    found = [worker.freeze(), worker.thaw(), worker.terminate(), worker.kill(), worker.fill_disk(is_full=True)]

    assert found == [False] * 5
