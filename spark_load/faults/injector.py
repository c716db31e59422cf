"""Doing what the schedule says: each fault is begun and ended at its time, and handed over to be written down."""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sluice.clock import Clock
from spark_load.faults.drawing import Fault
from spark_load.faults.lines import Lines
from spark_load.faults.shapes import WIRE, FaultKind

_TICK_SECONDS = 0.05
_LOCK_SECONDS_MAX = 5.0  # to get hold of a database in which others write

type Record = Callable[[Fault[FaultKind], int, int], None]
"""Called with each fault when it has ended, and when it began and ended, microseconds UTC."""


class Processes(Protocol):
    """What a fault can do to processes, by the name of their place; nothing where there is none just now."""

    def kill(self, name: str) -> None:
        """Send SIGKILL; another one takes its place, here and below."""

    def terminate(self, name: str) -> None:
        """Send SIGTERM."""

    def freeze(self, name: str) -> None:
        """Send SIGSTOP."""

    def thaw(self, name: str) -> None:
        """Send SIGCONT."""

    def deploy(self, consumer: str, *, is_bad: bool) -> None:
        """Replace a consumer's processes by a version whose handlers fail, or by the one that works."""


class Held:
    """Databases in SQLite that are held: nobody else can write."""

    def __init__(self, databases: Mapping[str, Path]) -> None:
        self._databases = databases
        self._held: dict[str, sqlite3.Connection] = {}

    def hold(self, consumer: str) -> None:
        """Take the lock of a consumer's database; not where others keep it for too long, or none is there."""
        file = self._databases[consumer]
        if not file.exists():  # to open it would make an empty one, and the workers take that for theirs
            return
        connection = sqlite3.connect(file, timeout=_LOCK_SECONDS_MAX, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            connection.close()
            return
        self._held[consumer] = connection

    def release(self, consumer: str) -> None:
        """Give it back."""
        connection = self._held.pop(consumer, None)
        if connection is not None:
            connection.execute("ROLLBACK")
            connection.close()


@dataclass(slots=True, kw_only=True)
class Injector:
    """Does harm, in a thread of its own, until its schedule is over or it is stopped. Nothing stays harmed.

    Args:
        faults: in the order they begin.
        begun_us: when the schedule is at 0, microseconds UTC.
        processes: what there is of them.
        lines: to the endpoint.
        databases: of the consumers' inboxes.
        record: writes a fault down.
    """

    faults: Sequence[Fault[FaultKind]]
    begun_us: int
    processes: Processes
    lines: Lines
    databases: Held
    record: Record
    clock: Clock
    _under_way: list[tuple[Fault[FaultKind], int]] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Follow the schedule."""
        waiting = list(self.faults)
        try:
            while (waiting or self._under_way) and not self._stopped.is_set():
                now = (self.clock.now_us() - self.begun_us) / 1e6
                for entry in [entry for entry in self._under_way if entry[0].until_seconds <= now]:
                    self._under_way.remove(entry)
                    self._end(*entry)
                while waiting and waiting[0].at_seconds <= now:
                    self._begin(waiting.pop(0))
                self._stopped.wait(_TICK_SECONDS)
        finally:
            while self._under_way:
                self._end(*self._under_way.pop())

    def stop(self) -> None:
        """Have it end what is under way, and end."""
        self._stopped.set()

    def _begin(self, fault: Fault[FaultKind]) -> None:
        began_us = self.clock.now_us()
        name = fault.target.partition(":")[0]
        match fault.kind:
            case FaultKind.KILL:
                self.processes.kill(name)
            case FaultKind.TERMINATE:
                self.processes.terminate(name)
            case FaultKind.FREEZE:
                self.processes.freeze(name)
            case FaultKind.DEPLOY:
                self.processes.deploy(name, is_bad=True)
            case FaultKind.LOCK:
                self.databases.hold(name)
            case kind if kind in WIRE:
                self.lines.suffer(fault.target, kind, fault.detail)
        self._under_way.append((fault, began_us))

    def _end(self, fault: Fault[FaultKind], began_us: int) -> None:
        name = fault.target.partition(":")[0]
        match fault.kind:
            case FaultKind.FREEZE:
                self.processes.thaw(name)
            case FaultKind.DEPLOY:
                self.processes.deploy(name, is_bad=False)
            case FaultKind.LOCK:
                self.databases.release(name)
            case kind if kind in WIRE:
                self.lines.suffer(fault.target, None)
        with suppress(OSError):  # a disk that is full ends the run elsewhere, with its reason
            self.record(fault, began_us, self.clock.now_us())
