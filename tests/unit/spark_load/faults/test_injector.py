"""Each fault is begun and ended, in whatever order its process is found, and written down with both instants."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sluice.clock import SystemClock
from spark_load.faults.drawing import Fault
from spark_load.faults.injector import Held, Injector
from spark_load.faults.lines import Lines
from spark_load.faults.shapes import FaultKind


class _Processes:
    """Notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")

    def terminate(self, name: str) -> None:
        self.done.append(f"terminate {name}")

    def freeze(self, name: str) -> None:
        self.done.append(f"freeze {name}")

    def thaw(self, name: str) -> None:
        self.done.append(f"thaw {name}")

    def deploy(self, consumer: str, *, is_bad: bool) -> None:
        self.done.append(f"deploy {'bad' if is_bad else 'good'} {consumer}")


def _fault(kind: FaultKind, target: str, at_seconds: float, until_seconds: float) -> Fault[FaultKind]:
    return Fault(kind=kind, target=target, at_seconds=at_seconds, until_seconds=until_seconds)


def test_each_fault_is_begun_ended_and_written_down_once() -> None:
    clock, processes, written = SystemClock(), _Processes(), list[tuple[str, float]]()
    faults = (
        _fault(FaultKind.DEPLOY, "billing", 0.0, 0.3),
        _fault(FaultKind.FREEZE, "billing-0", 0.05, 0.2),
        _fault(FaultKind.KILL, "billing-1", 0.1, 0.1),
    )
    with Lines() as lines:
        Injector(
            faults=faults,
            begun_us=clock.now_us(),
            processes=processes,
            lines=lines,
            databases=Held({}),
            record=lambda fault, began_us, ended_us: written.append((fault.kind, (ended_us - began_us) / 1e6)),
            clock=clock,
        ).run()

    assert [done for done in processes.done if "deploy" in done] == ["deploy bad billing", "deploy good billing"]
    assert [done for done in processes.done if "billing-0" in done] == ["freeze billing-0", "thaw billing-0"]
    assert processes.done.count("kill billing-1") == 1
    assert sorted(kind for kind, _ in written) == ["deploy", "freeze", "kill"]
    assert min(seconds for _, seconds in written) >= 0


def test_what_is_under_way_ends_with_a_run_that_is_stopped() -> None:
    """A frozen worker would never end, and its folder would be used on."""
    processes = _Processes()
    with Lines() as lines:
        injector = Injector(
            faults=(_fault(FaultKind.FREEZE, "billing-0", 0.0, 600.0),),
            begun_us=SystemClock().now_us(),
            processes=processes,
            lines=lines,
            databases=Held({}),
            record=lambda *_: injector.stop(),
            clock=SystemClock(),
        )
        injector.stop()
        injector._begin(injector.faults[0])
        injector.run()

    assert processes.done == ["freeze billing-0", "thaw billing-0"]


def test_nobody_writes_to_a_database_that_is_held(tmp_path: Path) -> None:
    """Until it is released, which may be done twice."""
    file = tmp_path / "inbox.db"
    with closing(sqlite3.connect(file, timeout=0)) as other:
        other.execute("CREATE TABLE t (n INTEGER)")
        held = Held({"billing": file})

        held.hold("billing")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO t VALUES (1)")
        held.release("billing")
        held.release("billing")
        other.execute("INSERT INTO t VALUES (2)")

        assert other.execute("SELECT n FROM t").fetchall() == [(2,)]


def test_a_database_that_is_not_yet_made_is_not_made_by_a_lock(tmp_path: Path) -> None:
    """Where consumers begin later, the workers would take the empty file for theirs, and miss their tables."""
    held = Held({"billing": tmp_path / "inbox.db"})

    held.hold("billing")
    held.release("billing")

    assert list(tmp_path.iterdir()) == []
