"""Doing what the schedule says: each fault is begun and ended at its time, and counted."""

import signal
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spark_load.faults.lines import Lines
from spark_load.faults.shapes import WIRE, FaultKind
from tests.chaos.faults.schedule import Fault, Kind
from tests.chaos.system.database import Database
from tests.chaos.system.fleet import Fleet, Slot

type Operate = Callable[[Fault], None]


@dataclass(slots=True)
class _Roll:
    """A rolling restart: one process after the other, each when the one before it is there again."""

    waiting: deque[Slot]
    current: tuple[Slot, int] | None = None

    def step(self) -> bool:
        """End the next one when its turn has come; return whether there is more to do."""
        if self.current is not None:
            slot, started_count = self.current
            if slot.started_count == started_count:
                return True
            self.current = None
        if not self.waiting:
            return False
        slot = self.waiting.popleft()
        self.current = slot, slot.started_count
        slot.send(signal.SIGTERM, is_end=True)
        return True


@dataclass(slots=True)
class Injector:
    """Does harm.

    Args:
        faults: in the order they begin.
        fleet: the processes.
        lines: between them and what they need.
        database: everybody's.
        operate: does what an operator is to do.
        counts: how often what was done.
    """

    faults: Sequence[Fault]
    fleet: Fleet
    lines: Lines
    database: Database
    operate: Operate
    counts: Counter[str] = field(default_factory=Counter)
    begun_count: int = 0
    _under_way: list[Fault] = field(default_factory=list)
    _rolls: list[_Roll] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Return whether everything was begun and ended."""
        return self.begun_count == len(self.faults) and not self._under_way and not self._rolls

    def step(self, at_seconds: float) -> None:
        """Begin and end what is due at that time of the schedule."""
        for fault in [entry for entry in self._under_way if entry.until_seconds <= at_seconds]:
            self._under_way.remove(fault)
            self._end(fault)
        while self.begun_count < len(self.faults) and self.faults[self.begun_count].at_seconds <= at_seconds:
            fault = self.faults[self.begun_count]
            self.begun_count += 1
            self._begin(fault)
            self._under_way.append(fault)
        self._rolls = [roll for roll in self._rolls if roll.step()]

    def end_all(self) -> None:
        """End what is under way, whenever it should have ended."""
        for fault in self._under_way:
            self._end(fault)
        self._under_way.clear()
        self._rolls.clear()

    def _begin(self, fault: Fault) -> None:
        self.counts[f"{fault.kind} {fault.detail}".strip() if fault.kind is Kind.DATABASE else str(fault.kind)] += 1
        match fault.kind:
            case FaultKind.KILL:
                self.fleet.slots[fault.target].send(signal.SIGKILL, is_end=True)
            case FaultKind.TERMINATE:
                self.fleet.slots[fault.target].send(signal.SIGTERM, is_end=True)
            case FaultKind.FREEZE:
                self.fleet.slots[fault.target].freeze()
            case Kind.ROLL:
                self._rolls.append(_Roll(deque(self.fleet.of(fault.target))))
            case Kind.DATABASE:
                self.database.restart(fault.detail)
            case Kind.REDRIVE | Kind.RESEND:
                self.operate(fault)
            case kind if kind in WIRE:
                self.lines.suffer(fault.target, kind, fault.detail)

    def _end(self, fault: Fault) -> None:
        if fault.kind is FaultKind.FREEZE:
            self.fleet.slots[fault.target].thaw()
        elif fault.kind in WIRE:
            self.lines.suffer(fault.target, None)
        elif fault.kind is Kind.DATABASE:
            self.database.await_up()
