"""How fast something is done: no faster than asked, without a burst at the start, and without drift."""

from sluice.clock import Clock


class Pace:
    """A token bucket: within any t seconds it is passed at most `per_second` x t + `burst` times.

    Args:
        per_second: how often in the long run; None is as often as asked.
        burst: how often at once after a rest.
    """

    def __init__(self, per_second: float | None, *, clock: Clock, burst: int = 1) -> None:
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._burst, self._clock = burst, clock
        self._due_at = clock.monotonic()

    def take(self) -> None:
        """Wait until it is time for one more; it counts from then, even if the clock is woken early."""
        earliest = self._due_at - (self._burst - 1) * self._interval
        self._clock.sleep(earliest - self._clock.monotonic())
        self._due_at = max(self._due_at, self._clock.monotonic()) + self._interval
