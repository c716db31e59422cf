"""How long to wait before the next attempt: exponential backoff with jitter.

What failed together must not return together, hence the jitter:
https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/ (read 2026-11-21).
"""

from dataclasses import dataclass
from math import inf

from sluice.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that double.

    Args:
        base_seconds: before the second try, at most.
        cap_seconds: never longer than this.
        floor_seconds: never shorter than this.

    Raises:
        ConfigError: not 0 < floor <= base <= cap.
    """

    base_seconds: float
    cap_seconds: float
    floor_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.floor_seconds <= self.base_seconds <= self.cap_seconds < inf:
            raise ConfigError(
                f"backoff is {self.floor_seconds:g} <= {self.base_seconds:g} <= {self.cap_seconds:g} s, allowed is"
                " 0 < floor <= base <= cap"
            )

    def seconds(self, attempt: int, jitter: float) -> float:
        """Return the delay after the `attempt`-th failure, from 1.

        Args:
            attempt: how often it has failed.
            jitter: from a random generator, 0 to 1: where between floor and the whole delay it falls.
        """
        whole = min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 60))
        return self.floor_seconds + (whole - self.floor_seconds) * jitter
