"""Each fault is begun and ended, and recorded with both instants, whether its process exists or not."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from sluice.clock import SystemClock, eventually
from sluice.errors import HistoryError
from spark_load.faults import lines as lines_module
from spark_load.faults import servers
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.injector import DatabaseLocks, Injector, PoisonPlan, Record
from spark_load.faults.lines import Lines
from spark_load.faults.servers import Restarts
from spark_load.faults.shapes import FaultKind
from tests.support.endpoints import fake_aws


class _Processes:
    """Notes the faults of processes; those in `absent` do not exist."""

    def __init__(self, *absent: str) -> None:
        self.absent, self.done = absent, list[str]()

    def harm(self, kind: FaultKind, name: str, _detail: str) -> bool:
        self.done.append(f"{kind} {name}")
        return name not in self.absent

    def heal(self, kind: FaultKind, name: str) -> None:
        self.done.append(f"no more {kind} {name}")

    def is_rolling(self, name: str) -> bool:
        self.done.append(f"is {name} rolling")
        return self.done.count(f"is {name} rolling") < 3


def _fault(kind: FaultKind, target: str, at_seconds: float, until_seconds: float) -> ScheduledFault[FaultKind]:
    return ScheduledFault(kind=kind, target=target, at_seconds=at_seconds, until_seconds=until_seconds)


def _injector(
    *faults: ScheduledFault[FaultKind],
    processes: _Processes,
    lines: Lines,
    record: Record,
    held: DatabaseLocks | None = None,
) -> Injector:
    """Return an injector of these faults."""
    return Injector(
        faults=faults,
        begun_us=SystemClock().now_us(),
        processes=processes,
        lines=lines,
        databases=DatabaseLocks({}) if held is None else held,
        restarts=Restarts(),
        record=record,
        clock=SystemClock(),
    )


def _run_schedule(faults: Sequence[ScheduledFault[FaultKind]], processes: _Processes) -> dict[FaultKind, bool]:
    """Follow a schedule; return for each kind of fault whether it was recorded as done."""
    written = list[tuple[FaultKind, bool]]()

    def record(fault: ScheduledFault[FaultKind], began_us: int, ended_us: int, is_met: bool) -> None:  # noqa: FBT001
        assert began_us <= ended_us
        written.append((fault.kind, is_met))

    with Lines() as lines:
        lines.open("billing-1:endpoint", lambda: asyncio.open_connection("127.0.0.1", 1))
        _injector(
            *faults,
            processes=processes,
            lines=lines,
            record=record,
            held=DatabaseLocks({"billing": Path("/nowhere/inbox.db")}),
        ).run()
    assert len(written) == len(faults)
    return dict(written)


def test_each_fault_is_begun_ended_and_recorded_once() -> None:
    """A deployment, a freeze within it, and a kill, which takes no time."""
    processes = _Processes()
    faults = (
        _fault(FaultKind.DEPLOY, "billing", 0.0, 0.3),
        _fault(FaultKind.FREEZE, "billing-0", 0.05, 0.2),
        _fault(FaultKind.KILL, "billing-1", 0.1, 0.1),
    )

    assert _run_schedule(faults, processes) == dict.fromkeys((FaultKind.DEPLOY, FaultKind.FREEZE, FaultKind.KILL), True)

    for fault in faults:
        of_fault = f"{fault.kind} {fault.target}"
        assert [done for done in processes.done if of_fault in done] == [of_fault, f"no more {of_fault}"]


def test_a_rolling_restart_lasts_until_the_last_process_is_new() -> None:
    """It was to last 0.01 s. The injector asks three times until it is over, and ends it then."""
    processes = _Processes()

    assert _run_schedule((_fault(FaultKind.ROLL, "billing", 0.0, 0.01),), processes) == {FaultKind.ROLL: True}

    assert processes.done == ["roll billing", *["is billing rolling"] * 3, "no more roll billing"]


def test_poison_is_a_file_while_it_lasts(tmp_path: Path) -> None:
    """Workers read from the file how their handler is to fail. Ending a poison that never began changes nothing."""
    poison = PoisonPlan(tmp_path / "poison")
    poison.end("billing")
    poison.begin("billing", "raise")
    assert poison.file("billing").read_text(encoding="utf-8") == "raise"
    poison.begin("audit", "die")
    poison.end("billing")

    assert [file.name for file in (tmp_path / "poison").iterdir()] == ["audit"]


def test_a_fault_without_a_target_is_written_down_as_not_done() -> None:
    """A fault that hit no process, connection or database must not count as exercised."""
    faults = (
        _fault(FaultKind.KILL, "billing-0", 0.0, 0.0),
        _fault(FaultKind.FREEZE, "billing-1", 0.0, 0.1),
        _fault(FaultKind.CUT, "billing-1:endpoint", 0.0, 0.1),
        _fault(FaultKind.LOCK, "billing:database", 0.0, 0.1),
    )

    found = _run_schedule(faults, _Processes("billing-0"))

    assert found == {FaultKind.KILL: False, FaultKind.FREEZE: True, FaultKind.CUT: False, FaultKind.LOCK: False}


def test_a_line_to_a_url_without_port_uses_the_http_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_aws.running() as endpoint, Lines() as lines:
        monkeypatch.setattr(lines_module, "HTTP_PORT", urlsplit(endpoint.url).port)
        url = lines.to_endpoint("publish:endpoint", "http://127.0.0.1")

        with pytest.raises(HTTPError, match="403: Forbidden"):  # it answers
            urlopen(url, timeout=30)


def test_faults_under_way_end_with_a_stopped_run() -> None:
    """A frozen worker would never end, and would write into the run's folder later."""
    processes = _Processes()
    with Lines() as lines:
        injector = _injector(
            _fault(FaultKind.FREEZE, "billing-0", 0.0, 600.0),
            processes=processes,
            lines=lines,
            record=lambda *_: injector.stop(),
        )
        injector.stop()
        injector._begin(injector.faults[0])
        injector.run()

    assert processes.done == ["freeze billing-0", "no more freeze billing-0"]


def test_a_fault_under_way_does_not_wait_for_a_later_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a worker would stay frozen, and a database locked, while the restart command runs."""
    os.mkfifo(tmp_path / "healed")
    pipe = os.open(tmp_path / "healed", os.O_RDWR)
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", f"read -r word < {tmp_path}/healed")
    monkeypatch.setattr(servers, "COMMAND_SECONDS_MAX", 30)
    written = list[tuple[FaultKind, bool]]()

    class Healing(_Processes):
        def heal(self, kind: FaultKind, name: str) -> None:
            super().heal(kind, name)
            os.write(pipe, b"healed\n")

    with Lines() as lines:
        injector = _injector(
            _fault(FaultKind.FREEZE, "billing-0", 0.0, 600.0),
            _fault(FaultKind.RESTART, "database", 0.0, 600.0),
            processes=Healing(),
            lines=lines,
            record=lambda fault, _began_us, _ended_us, is_met: written.append((fault.kind, is_met)),
        )
        for fault in injector.faults:
            injector._begin(fault)
        injector.stop()
        injector.run()
    os.close(pipe)

    assert written == [(FaultKind.FREEZE, True), (FaultKind.RESTART, True)]


def test_faults_end_even_if_they_cannot_be_recorded() -> None:
    """A full disk ends the run with its reason; the injector's thread must still thaw frozen workers."""
    processes = _Processes()

    def record(*_: object) -> None:
        raise HistoryError("no space")

    with Lines() as lines:
        _injector(
            _fault(FaultKind.FREEZE, "billing-0", 0.0, 0.3),
            _fault(FaultKind.FREEZE, "billing-1", 0.0, 0.3),
            _fault(FaultKind.KILL, "billing-0", 0.1, 0.1),
            processes=processes,
            lines=lines,
            record=record,
        ).run()

    assert {"no more freeze billing-0", "no more freeze billing-1", "kill billing-0"} <= set(processes.done)


def test_nobody_writes_to_a_locked_database(tmp_path: Path) -> None:
    """The lock lasts until its release; a second release does no harm."""
    file = tmp_path / "inbox.db"
    with closing(sqlite3.connect(file, timeout=0)) as other:
        other.execute("CREATE TABLE t (n INTEGER)")
        held = DatabaseLocks({"billing": file})

        assert held.hold("billing")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO t VALUES (1)")
        held.release("billing")
        held.release("billing")
        other.execute("INSERT INTO t VALUES (2)")

        assert other.execute("SELECT n FROM t").fetchall() == [(2,)]


def test_a_lock_does_not_create_a_database_that_does_not_exist(tmp_path: Path) -> None:
    """Workers that begin later would take the empty file for their database, and miss its tables."""
    held = DatabaseLocks({"billing": tmp_path / "inbox.db"})

    assert not held.hold("billing")
    held.release("billing")

    assert list(tmp_path.iterdir()) == []


def test_a_database_under_a_write_is_locked_later(tmp_path: Path) -> None:
    """A frozen worker may be writing for as long as it is frozen; the lock begins after that."""
    file = tmp_path / "inbox.db"
    processes, written = _Processes(), list[tuple[FaultKind, bool]]()
    with Lines() as lines, closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (n INTEGER)")
        other.execute("BEGIN IMMEDIATE")
        injector = _injector(
            _fault(FaultKind.LOCK, "billing:database", 0.0, 0.6),
            _fault(FaultKind.KILL, "billing-0", 0.1, 0.1),
            processes=processes,
            lines=lines,
            record=lambda fault, _began, _ended, is_met: written.append((fault.kind, is_met)),
            held=DatabaseLocks({"billing": file}),
        )
        following = threading.Thread(target=injector.run)
        following.start()
        eventually(lambda: processes.done, timeout_seconds=30, describe="the kill behind the lock")
        other.execute("ROLLBACK")
        following.join(30)

    assert written == [(FaultKind.KILL, True), (FaultKind.LOCK, True)]


type _WrittenFaults = list[tuple[ScheduledFault[FaultKind], bool]]


@contextmanager
def _restarting(*faults: ScheduledFault[FaultKind]) -> Iterator[tuple[_Processes, _WrittenFaults]]:
    """Yield (processes, recorded faults) while a thread follows a schedule; wait for the thread when the block ends."""
    processes, written = _Processes(), list[tuple[ScheduledFault[FaultKind], bool]]()
    with Lines() as lines:
        injector = _injector(
            *faults,
            processes=processes,
            lines=lines,
            record=lambda fault, _began, _ended, is_met: written.append((fault, is_met)),
        )
        following = threading.Thread(target=injector.run)
        following.start()
        yield processes, written
        following.join(30)


@pytest.mark.parametrize("word", ["true", "false"])
def test_a_restart_lasts_until_its_command_ends_and_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """A command that failed restarted nothing, so its fault is not done."""
    go = tmp_path / "go"
    os.mkfifo(go)
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", f"read -r word < {go}; $word")
    restart = _fault(FaultKind.RESTART, "database", 0.0, 0.1)
    kill = _fault(FaultKind.KILL, "billing-0", 0.2, 0.2)

    with _restarting(restart, kill) as (_, written):
        eventually(lambda: written, timeout_seconds=30, describe="the kill behind the restart")
        go.write_text(f"{word}\n", encoding="utf-8")

    assert written == [(kill, True), (restart, word == "true")]


def test_a_restart_that_is_due_during_another_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first takes longer than planned, and only one command runs at a time; later faults are done."""
    go, log = tmp_path / "go", tmp_path / "log"
    os.mkfifo(go)
    monkeypatch.setenv("SLUICE_RESTART_DATABASE", f"echo begun >> {log}; read -r _ < {go}")
    faults = (
        _fault(FaultKind.RESTART, "database", 0.0, 0.1),
        _fault(FaultKind.RESTART, "database", 0.2, 0.3),
        _fault(FaultKind.KILL, "billing-0", 0.4, 0.4),
    )

    with _restarting(*faults) as (processes, written):
        eventually(lambda: processes.done, timeout_seconds=30, describe="the kill behind the restarts")
        go.write_text("go\n", encoding="utf-8")

    assert sorted((fault.at_seconds, is_met) for fault, is_met in written) == [(0.0, True), (0.2, False), (0.4, True)]
    assert log.read_text(encoding="utf-8") == "begun\n"
