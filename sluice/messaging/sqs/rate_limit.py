"""A limit to the rate of something: no faster than asked, without a burst at the start, and without drift."""

from sluice.clock import Clock


class Pace:
    """Is passed at most `per_second` x t + 1 times within any t seconds; None is as often as asked."""

    def __init__(self, per_second: float | None, *, clock: Clock) -> None:
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._clock = clock
        self._due_at = clock.monotonic()

    def take(self) -> None:
        """Wait until it is time for one more; it counts from then, even if the clock is woken early."""
        self._clock.sleep(self._due_at - self._clock.monotonic())
        self._due_at = max(self._due_at, self._clock.monotonic()) + self._interval
