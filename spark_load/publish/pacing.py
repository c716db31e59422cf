"""Decide when to send and when to retry: pure functions of time and random draws.

AWS: full jitter, https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ (read 2026-11-21).
"""

from collections.abc import Callable

from sluice import limits
from sluice.error_codes import is_throttled

RETRY_SECONDS_MAX = 30  # far inside the deduplication window, so a retry is never a second message
RESENT_WITHIN_SECONDS = limits.DEDUPLICATION_WINDOW_SECONDS - RETRY_SECONDS_MAX - 5
"""For so long after a publish without an answer, a resumed run may repeat it: SNS still knows its deduplication id."""
_RETRY_PAUSE_SECONDS = 0.5
_THROTTLED_SECONDS_MAX = 180  # not longer, because a call that was answered with 503 may have had an effect
_BACKOFF_SECONDS = 0.05
_BACKOFF_SECONDS_MAX = 5.0
_DOUBLINGS_MAX = 10


class PublishPace:
    """The instant of the plan up to which a publisher may send: the present one, if the publisher is not behind.

    After a stall the publisher catches up at `ratio` times the planned rate. Without this bound it would send
    everything at once, a load that the plan does not have. The instant does not move while the publisher cannot send.
    It begins at `start_us`, microseconds along the plan.
    """

    def __init__(self, *, ratio: float, start_us: int, now_us: int) -> None:
        self._ratio, self._until_us, self._looked_us = ratio, float(start_us), now_us

    def until_us(self, now_us: int, *, is_blocked: bool) -> float:
        """Return the instant along the plan up to which messages are due."""
        passed_us, self._looked_us = now_us - self._looked_us, now_us
        if not is_blocked:
            self._until_us = max(self._until_us, min(now_us, self._until_us + self._ratio * passed_us))
        return self._until_us

    def seconds_to(self, offset_us: int, now_us: int) -> float:
        """Return the seconds until the plan is due up to an instant, if nothing blocks."""
        waits_us: tuple[float, ...] = (0, offset_us - now_us, (offset_us - self._until_us) / self._ratio)
        return max(waits_us) / 1_000_000


class RetryPolicy:
    """Counts the failures of each group, and decides how long it waits before a retry.

    `uniform` returns a random number from [0, 1), the same for the same key.
    """

    def __init__(self, uniform: Callable[[str], float]) -> None:
        self._uniform = uniform
        self._groups: dict[int, tuple[float, int]] = {}
        self._down_since: float | None = None

    def forget_failures(self, groups: list[int]) -> None:
        """Forget earlier failures."""
        self._down_since = None
        if self._groups:
            for group in groups:
                self._groups.pop(group, None)

    def rest_seconds(self, group: int, code: str, now: float) -> float | None:
        """Return how long a group rests after a failure; None if it is too late to try again.

        After throttling, the rest grows with each failure, and differs between groups, so that they do not all retry at
        once. After other failures it stays the same, until the group has failed for half a minute, or no call at all
        has succeeded for as long.
        """
        since, tries = self._groups.get(group, (now, 0))
        self._groups[group] = (since, tries + 1)
        if is_throttled(code):
            if now - since > _THROTTLED_SECONDS_MAX:
                return None
            longest: float = min(_BACKOFF_SECONDS_MAX, _BACKOFF_SECONDS * 2 ** min(tries, _DOUBLINGS_MAX))
            return longest * self._uniform(f"{group}.{tries}")
        self._down_since = now if self._down_since is None else self._down_since
        return None if now - min(since, self._down_since) > RETRY_SECONDS_MAX else _RETRY_PAUSE_SECONDS
