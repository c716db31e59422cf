"""A limit to the rate of something: no faster than asked, without a burst at the start, and without drift."""

from sluice.clock import Clock


class Pace:
    """Lets at most `per_second` x t + 1 callers pass within any t seconds; None lets all pass at once."""

    def __init__(self, per_second: float | None, *, clock: Clock) -> None:
        self._interval = 0.0 if per_second is None else 1 / per_second
        self._clock = clock
        self._due_at = clock.monotonic()

    def take(self) -> None:
        """Wait for the next turn.

        The interval to the turn after it begins at the end of the wait, even if the wait ended early.
        """
        self._clock.sleep(self._due_at - self._clock.monotonic())
        self._due_at = max(self._due_at, self._clock.monotonic()) + self._interval
