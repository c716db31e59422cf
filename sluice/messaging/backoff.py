"""Delays before the next attempt: exponential backoff with jitter.

The jitter keeps attempts that failed together from being repeated together:
https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/ (read 2026-11-21).
"""

from math import inf

from sluice.declaration.validation import declaration_class, require, satisfying


@declaration_class
class Backoff:
    """Delays that double.

    Args:
        base_seconds: before the second try, at most.
        cap_seconds: never longer than this.
        floor_seconds: never shorter than this.

    Raises:
        FieldError: not 0 < floor <= base <= cap.
    """

    base_seconds: float
    cap_seconds: float = satisfying(lambda seen: seen < inf, "a finite number of seconds")
    floor_seconds: float = satisfying(lambda seen: seen > 0, "more than 0 seconds")

    def __post_init__(self) -> None:
        bounds = f"{self.floor_seconds:g} to {self.cap_seconds:g} seconds, floor_seconds to cap_seconds"
        require(self, self.floor_seconds <= self.base_seconds <= self.cap_seconds, field="base_seconds", allowed=bounds)

    def seconds(self, attempt: int, jitter: float) -> float:
        """Return the delay after the `attempt`-th failure, counted from 1.

        Args:
            attempt: how often it has failed.
            jitter: a random number from 0 to 1; it chooses the delay between the floor and the whole delay.
        """
        whole = min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 60))
        return self.floor_seconds + (whole - self.floor_seconds) * jitter
