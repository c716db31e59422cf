"""Carry out the schedule of faults: each fault begins and ends at its time, and is recorded."""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sluice.clock import Clock
from sluice.errors import HistoryError
from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.lines import Lines
from spark_load.faults.servers import Restarts
from spark_load.faults.shapes import WIRE, FaultKind

_TICK_SECONDS = 0.05
_FULL = (OSError, HistoryError)  # a full disk ends the run where its journals are written; the injector goes on

type _UnderWay = tuple[ScheduledFault[FaultKind], int, bool]
type Record = Callable[[ScheduledFault[FaultKind], int, int, bool], None]
"""Called with each ended fault, its begin and end, microseconds UTC, and whether it hit a process."""


class Processes(Protocol):
    """Processes that a fault can hit.

    A name is that of one process's place, or of a consumer: then of all its places.
    """

    def harm(self, kind: FaultKind, name: str, detail: str) -> bool:
        """Begin a fault; return whether a process exists that it hit."""

    def heal(self, kind: FaultKind, name: str) -> None:
        """End a fault, if it is of a kind that lasts."""

    def is_rolling(self, name: str) -> bool:
        """Return whether a rolling restart still has processes to restart."""


class PoisonPlan:
    """Files that tell the handlers of a consumer to fail, and how: handlers read the file before each event."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, consumer: str) -> Path:
        """Return the file of a consumer; it exists while the consumer fails."""
        return self._folder / consumer

    def begin(self, consumer: str, detail: str) -> None:
        """Let a consumer fail in this way."""
        self._folder.mkdir(exist_ok=True)
        draft = self.file(f".{consumer}")
        draft.write_text(detail, encoding="utf-8")
        draft.replace(self.file(consumer))

    def end(self, consumer: str) -> None:
        """Let a consumer succeed again."""
        self.file(consumer).unlink(missing_ok=True)


class DatabaseLocks:
    """Write locks on SQLite databases: while one is held, no other process can write to the database."""

    def __init__(self, databases: Mapping[str, Path]) -> None:
        self._databases = databases
        self._held: dict[str, sqlite3.Connection] = {}

    def hold(self, consumer: str) -> bool:
        """Lock a consumer's database; return False if another process writes, or there is no database."""
        file = self._databases[consumer]
        if not file.exists():  # connecting would create an empty database, which the workers would then use
            return False
        connection = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            connection.close()
            return False
        self._held[consumer] = connection
        return True

    def release(self, consumer: str) -> None:
        """Unlock a consumer's database."""
        connection = self._held.pop(consumer, None)
        if connection is not None:
            connection.execute("ROLLBACK")
            connection.close()


@dataclass(slots=True, kw_only=True)
class Injector:
    """Injects the faults of a schedule, in a thread of its own, and ends each one: at its time, or when it is stopped.

    Args:
        faults: in the order they begin.
        begun_us: the instant of the schedule's second 0, microseconds UTC.
        processes: the processes that can be hit.
        lines: the lines to the endpoint and the database.
        databases: locks of the consumers' SQLite inboxes.
        restarts: the commands that restart the endpoint or a database server.
        record: called when a fault has ended, to write it to the history.
        announce: called when a restart begins, because this process may die before the restart has ended.
    """

    faults: Sequence[ScheduledFault[FaultKind]]
    begun_us: int
    processes: Processes
    lines: Lines
    databases: DatabaseLocks
    restarts: Restarts
    record: Record
    clock: Clock
    announce: Callable[[ScheduledFault[FaultKind], int], None] = lambda *_: None
    _under_way: list[_UnderWay] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Follow the schedule until it is over, or `stop` is called."""
        waiting = list(self.faults)
        try:
            while (waiting or self._under_way) and not self._stopped.is_set():
                now = (self.clock.now_us() - self.begun_us) / 1e6
                for entry in [entry for entry in self._under_way if self._is_over(entry[0], now)]:
                    self._under_way.remove(entry)
                    self._end(*entry)
                while waiting and waiting[0].at_seconds <= now:
                    self._begin(waiting.pop(0))
                self._under_way = [self._lock_now(*entry) for entry in self._under_way]
                self._stopped.wait(_TICK_SECONDS)
        finally:
            # Restarts are ended last, because that may take minutes and no process should stay frozen meanwhile.
            self._under_way.sort(key=lambda entry: entry[0].kind is FaultKind.RESTART, reverse=True)
            while self._under_way:
                self._end(*self._under_way.pop())

    def stop(self) -> None:
        """End the faults under way, and then the injector."""
        self._stopped.set()

    def _is_over(self, fault: ScheduledFault[FaultKind], now: float) -> bool:
        """Return whether a fault is to be ended now; a restart ends when its command has ended."""
        if fault.until_seconds > now:
            return False
        if fault.kind is FaultKind.RESTART:
            return self.restarts.is_over(fault.target)
        return fault.kind is not FaultKind.ROLL or not self.processes.is_rolling(fault.target)

    def _begin(self, fault: ScheduledFault[FaultKind]) -> None:
        began_us = self.clock.now_us()
        name = fault.target.partition(":")[0]
        is_met = False
        restarting = [other.target for other, _, _ in self._under_way if other.kind is FaultKind.RESTART]
        if fault.kind is FaultKind.RESTART and fault.target in restarting:  # the last restart takes longer than planned
            self._write_down(fault, began_us, is_met=False)
            return
        if fault.kind in WIRE:
            self.lines.suffer(fault.target, fault.kind, fault.detail)
        elif fault.kind is FaultKind.RESTART:
            with suppress(*_FULL):
                self.announce(fault, began_us)
            self.restarts.begin(fault.target)
        elif fault.kind is not FaultKind.LOCK:  # `_lock_now` takes the lock, as soon as no process is writing
            with suppress(*_FULL):
                is_met = self.processes.harm(fault.kind, name, fault.detail)
        self._under_way.append((fault, began_us, is_met))

    def _lock_now(self, fault: ScheduledFault[FaultKind], began_us: int, is_met: bool) -> _UnderWay:  # noqa: FBT001
        """Try again to lock a database that another process was writing to when the fault began.

        Return (fault, microseconds of its beginning, whether it hit the database).
        """
        if is_met or fault.kind is not FaultKind.LOCK or not self.databases.hold(fault.target.partition(":")[0]):
            return fault, began_us, is_met
        return fault, self.clock.now_us(), True

    def _end(self, fault: ScheduledFault[FaultKind], began_us: int, is_met: bool) -> None:  # noqa: FBT001 (as it was put away)
        name = fault.target.partition(":")[0]
        if fault.kind in WIRE:
            is_met = self.lines.hits(fault.target) > 0
            self.lines.suffer(fault.target, None)
        elif fault.kind is FaultKind.LOCK:
            self.databases.release(name)
        elif fault.kind is FaultKind.RESTART:
            is_met = self.restarts.end(fault.target)
        else:
            self.processes.heal(fault.kind, name)
        self._write_down(fault, began_us, is_met=is_met)

    def _write_down(self, fault: ScheduledFault[FaultKind], began_us: int, *, is_met: bool) -> None:
        with suppress(*_FULL):
            self.record(fault, began_us, self.clock.now_us(), is_met)
