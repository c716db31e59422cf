"""The places of a run's workers: each holds one process after the other, whatever becomes of it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.clock import Clock
from spark_load.consume.forked_worker import ForkedWorker

_AGAIN_SECONDS = 0.5  # a process that ends at once must not take all the machine
_FAILURES_MAX = 20  # of processes that ended with an error before they worked: no fault lasts that long


@dataclass(slots=True, kw_only=True)
class Place:
    """The place of one worker.

    Args:
        name: of the place.
        consumer: whose worker it is.
        worked: every process that was here, the last one at the end.
        killed: those that a fault, or who ended them, gave no time to close their journal.
        is_bad: whether the next one has handlers that fail.
        is_replaced: whether a fault ended the last one, so that another one follows.
        failures: how many ended in a row, with an error, before they worked.
    """

    name: str
    consumer: str
    worked: list[ForkedWorker] = field(default_factory=list)
    killed: list[ForkedWorker] = field(default_factory=list)
    is_bad: bool = False
    is_replaced: bool = False
    failures: int = 0
    started_at: float = 0.0

    @property
    def given_up(self) -> ForkedWorker | None:
        """Return the last one, where no other follows because too many ended before they worked; else None."""
        return self.worked[-1] if self.failures >= _FAILURES_MAX else None


class Places:
    """All places of a run. The run's thread tends to them, the injector's harms who is there.

    Args:
        names: of the places, to their consumer.
        start: starts a worker for a place, with the name of its log.
        is_harmed: whether faults are at work, by which a worker may end with an error and is started again.
        clock: for the pause before that.
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
        self._lock = threading.Lock()

    @property
    def all(self) -> list[Place]:
        """Return the places."""
        return list(self._places.values())

    @property
    def processes(self) -> list[tuple[str, ForkedWorker]]:
        """Return every process there ever was, and its consumer."""
        return [(place.consumer, process) for place in self.all for process in place.worked]

    def fill(self) -> None:
        """Start the first of each place."""
        for place in self.all:
            self._fill(place)

    def _fill(self, place: Place) -> None:
        name = f"{place.name}.{len(place.worked)}" if place.worked else place.name
        place.worked.append(self._start(place, name))
        place.started_at, place.is_replaced = self._clock.monotonic(), False

    def tend(self) -> bool:
        """Start another one where one has ended that is to be replaced; return whether any place is still at work."""
        with self._lock:
            at_work = [self._tend(place) for place in self.all]
            return any(at_work)

    def _tend(self, place: Place) -> bool:
        """Do so for one place; return whether it is at work, or will be."""
        last = place.worked[-1]
        code = last.poll()
        if code is None:
            return True
        if code and self._is_harmed() and last not in place.killed:
            place.killed.append(last)
            place.failures = 0 if last.is_polling() else place.failures + 1
            place.is_replaced = place.is_replaced or place.failures < _FAILURES_MAX
        if place.is_replaced and self._clock.monotonic() - place.started_at >= _AGAIN_SECONDS:
            self._fill(place)
        return place.is_replaced or place.worked[-1] is not last

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        with self._lock:
            place = self._places[name]
            if place.worked and place.worked[-1].poll() is None:
                place.killed.append(place.worked[-1])
                place.is_replaced = True
                place.worked[-1].kill()

    def terminate(self, name: str) -> None:
        """Send SIGTERM."""
        with self._lock:
            self._terminate(self._places[name])

    def _terminate(self, place: Place) -> None:
        if place.worked and place.worked[-1].poll() is None:
            place.is_replaced = True
            place.worked[-1].terminate()

    def freeze(self, name: str) -> None:
        """Send SIGSTOP."""
        with self._lock:
            if self._places[name].worked:
                self._places[name].worked[-1].freeze()

    def thaw(self, name: str) -> None:
        """Send SIGCONT."""
        with self._lock:
            if self._places[name].worked:
                self._places[name].worked[-1].thaw()

    def deploy(self, consumer: str, *, is_bad: bool) -> None:
        """Replace a consumer's workers by a version whose handlers fail, or by the one that works."""
        with self._lock:
            for place in self.all:
                if place.consumer == consumer:
                    place.is_bad = is_bad
                    self._terminate(place)
