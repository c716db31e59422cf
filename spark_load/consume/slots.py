"""The places of a run's workers: each holds one process after the other."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.clock import Clock
from spark_load.consume.forked_worker import ForkedWorker
from spark_load.faults.shapes import FaultKind

LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 0.5  # between two starts at a place, so that a process that ends at once is not started in a busy loop
_FAILURES_MAX = 20  # in a row that ended with an error before they worked: so many are no effect of a fault


@dataclass(slots=True, kw_only=True)
class Place:
    """The place of one worker.

    Args:
        name: name of the place.
        consumer: the consumer of its workers.
        worked: every process at this place, the last one at the end.
        killed: those that had no time to close their journal, because a fault or the run ended them.
        crashed: those that ended with an error by themselves.
        filled: those whose disk was full, so that their records are incomplete.
        ahead_seconds: how far the clock of the next process is ahead.
        is_bad: whether the next process has failing handlers.
        is_replaced: whether a fault ended the last process, so that another one follows.
        failures: how many processes in a row ended with an error before they worked.
    """

    name: str
    consumer: str
    worked: list[ForkedWorker] = field(default_factory=list)
    killed: list[ForkedWorker] = field(default_factory=list)
    crashed: list[ForkedWorker] = field(default_factory=list)
    filled: list[ForkedWorker] = field(default_factory=list)
    ahead_seconds: float = 0
    is_bad: bool = False
    is_replaced: bool = False
    failures: int = 0
    started_at: float = 0.0

    @property
    def abandoned_worker(self) -> ForkedWorker | None:
        """Return the last process if no other one follows, because too many ended before they worked.

        Otherwise None.
        """
        return self.worked[-1] if self.failures >= _FAILURES_MAX else None


@dataclass(slots=True)
class _Roll:
    """A rolling restart: the next place is restarted when the new process at the current place works.

    Args:
        waiting: places that are still to be restarted.
        current: the place that was restarted last.
        count: the processes that this place had before its restart.
    """

    waiting: deque[Place]
    current: Place | None = None
    count: int = 0

    def is_next_due(self) -> bool:
        """Return whether the next place is due."""
        last = self.current
        return last is None or (len(last.worked) > self.count and last.worked[-1].is_polling())


class Places:
    """All places of a run. The run's thread calls `tend`; the fault injector's thread calls `harm` and `heal`.

    Args:
        names: the consumer of each place, by the place's name.
        start: starts a worker for a place; takes the place and the name of the worker's log.
        is_harmed: returns whether faults are at work; then a worker that ended with an error is started again.
        clock: for the pause before a new start.
    """

    def __init__(
        self,
        names: dict[str, str],
        start: Callable[[Place, str], ForkedWorker],
        *,
        is_harmed: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._places = {name: Place(name=name, consumer=consumer) for name, consumer in names.items()}
        self._start, self._is_harmed, self._clock = start, is_harmed, clock
        self._rolls: dict[str, _Roll] = {}
        self._lock = threading.Lock()

    @property
    def all(self) -> list[Place]:
        """Return the places."""
        return list(self._places.values())

    @property
    def processes(self) -> list[tuple[str, ForkedWorker]]:
        """Return (consumer, process) of every process that was started."""
        return [(place.consumer, process) for place in self.all for process in place.worked]

    def fill(self) -> None:
        """Start the first process of each place; if one cannot be started, the earlier ones are in `processes`."""
        for place in self.all:
            self._fill(place)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Start the first processes, and tend to all until all have ended or `is_over`; then some may still run."""
        self.fill()
        while self.tend() and not is_over():
            self._clock.sleep(LOOK_SECONDS)

    def _fill(self, place: Place) -> None:
        """Start the next process of a place."""
        name = f"{place.name}.{len(place.worked)}" if place.worked else place.name
        place.worked.append(self._start(place, name))
        place.started_at, place.is_replaced = self._clock.monotonic(), False

    def tend(self) -> bool:
        """Replace ended processes that are to be replaced; return whether any place is still working."""
        with self._lock:
            at_work = [self._tend(place) for place in self.all]
            self._rolls = {name: roll for name, roll in self._rolls.items() if self._roll_on(roll)}
            return any(at_work)

    def _tend(self, place: Place) -> bool:
        """Replace the process of one place if needed; return whether the place works or will work."""
        last = place.worked[-1]
        code = last.poll()
        if code is None:
            return True
        if code and self._is_harmed() and last not in place.killed:
            place.killed.append(last)
            place.crashed.append(last)
            place.failures = 0 if last.is_polling() else place.failures + 1
            place.is_replaced = place.is_replaced or place.failures < _FAILURES_MAX
        if place.is_replaced and self._clock.monotonic() - place.started_at >= _AGAIN_SECONDS:
            self._fill(place)
        return place.is_replaced or place.worked[-1] is not last

    def harm(self, kind: FaultKind, name: str, detail: str = "") -> bool:
        """Apply a fault to a place, or to all places of a consumer; return whether it hit a process."""
        with self._lock:
            places = [place for place in self.all if name in (place.name, place.consumer)]
            if kind is FaultKind.ROLL:
                self._rolls[name] = _Roll(deque(places))
                return any(place.worked and place.worked[-1].poll() is None for place in places)
            hits = [self._harm_place(kind, place, detail) for place in places]
            return any(hits)

    def is_rolling(self, name: str) -> bool:
        """Return whether places of that name still have to be restarted one after the other."""
        with self._lock:
            return name in self._rolls

    def _roll_on(self, roll: _Roll) -> bool:
        """Restart the next place if it is due; return whether there are more."""
        while roll.is_next_due():
            if not roll.waiting:
                return False
            place = roll.waiting.popleft()
            if self._harm_place(FaultKind.TERMINATE, place, ""):
                roll.current, roll.count = place, len(place.worked)
        return True

    def _harm_place(self, kind: FaultKind, place: Place, detail: str) -> bool:
        """Apply a fault to one place; return whether it hit a process.

        DEPLOY and SKEW change what the next process of the place is started with; the present one is terminated, so
        that the next one starts. KILL and TERMINATE end the present process, and it is replaced too. FREEZE and FULL
        leave it in its place.
        """
        if not place.worked:
            return False
        place.is_bad = place.is_bad or kind is FaultKind.DEPLOY
        if kind is FaultKind.SKEW:
            place.ahead_seconds = float(detail.removesuffix(" s"))
        last = place.worked[-1]
        if last.poll() is not None:  # it has ended: only a fault of the next process can still hit one
            return place.is_replaced and kind in (FaultKind.DEPLOY, FaultKind.SKEW)
        match kind:
            case FaultKind.FREEZE:
                return last.freeze()
            case FaultKind.FULL:
                place.filled.append(last)
                return last.fill_disk(is_full=True)
            case FaultKind.KILL:
                place.killed.append(last)
        place.is_replaced = True
        return last.kill() if kind is FaultKind.KILL else last.terminate()

    def heal(self, kind: FaultKind, name: str) -> None:
        """End the effects of a fault on a place, or on all places of a consumer."""
        with self._lock:
            if kind is FaultKind.ROLL:
                self._rolls.pop(name, None)
            for place in self.all:
                if name in (place.name, place.consumer):
                    self._heal(kind, place)

    def _heal(self, kind: FaultKind, place: Place) -> None:
        if kind is FaultKind.FREEZE and place.worked:
            place.worked[-1].thaw()
        elif kind is FaultKind.FULL:
            for process in place.filled:
                process.fill_disk(is_full=False)
        elif kind in (FaultKind.DEPLOY, FaultKind.SKEW):
            place.is_bad = place.is_bad and kind is not FaultKind.DEPLOY
            place.ahead_seconds = place.ahead_seconds if kind is FaultKind.DEPLOY else 0
            self._harm_place(FaultKind.TERMINATE, place, "")
