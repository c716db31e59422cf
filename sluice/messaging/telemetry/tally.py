"""What a worker counts between two measurements."""

import threading
from collections import Counter

from sluice import metrics


class Tally:
    """Counts, for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count one more of that metric, or so many."""
        with self._lock:
            self._counts[name] += count

    def take(self) -> dict[str, float]:
        """Return what was counted since the last time, by the name of the metric; zero where nothing was."""
        with self._lock:
            taken = {name: float(self._counts[name]) for name in metrics.EVENTS}
            self._counts.clear()
        return taken
