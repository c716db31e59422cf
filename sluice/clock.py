"""The one module that touches the system's clocks and sleeps."""

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The source of time that time-dependent code is given instead of the `time` module."""

    def now_us(self) -> int:
        """Return the instant in microseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Wait; a value of zero or less returns at once."""


_ANSWER_CHARACTERS_MAX = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Goes on while the machine sleeps, as SQS does. What Linux calls monotonic stops meanwhile; macOS has it the other way.
_MONOTONIC: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_minus_monotonic_us() -> int:
    """Return what, added to this machine's monotonic clock, gives the wall clock now, microseconds."""
    return (time.time_ns() - time.clock_gettime_ns(_MONOTONIC)) // 1_000


def wall_us() -> int:
    """Return the wall clock now, which may be set meanwhile: for signatures, which a service compares with its own."""
    return time.time_ns() // 1_000


def clock_id() -> str:
    """Return the id of this machine's monotonic clock: the same for all its processes until it is booted again."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def utc(at_us: int) -> datetime:
    """Return an instant of the years 1 to 9999 as a date and time: a float of its last ones is in the year after."""
    return _EPOCH + timedelta(microseconds=at_us)


class SystemClock:
    """The machine's clock. Its instants never run backwards, whatever is done to the wall clock meanwhile.

    Time passes while the machine sleeps, too.

    Args:
        offset_us: from `wall_minus_monotonic_us`, so that several processes of one machine agree; None takes its own.
    """

    def __init__(self, offset_us: int | None = None) -> None:
        self.offset_us = wall_minus_monotonic_us() if offset_us is None else offset_us

    def now_us(self) -> int:
        """Return the wall clock's instant, as it was when the offset was taken and has advanced since."""
        return time.clock_gettime_ns(_MONOTONIC) // 1_000 + self.offset_us

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.clock_gettime(_MONOTONIC)

    def sleep(self, seconds: float) -> None:
        """Sleep for real."""
        if seconds > 0:
            time.sleep(seconds)


class VirtualClock:
    """A clock that moves only when told: for tests and simulations.

    Args:
        start_us: the first instant, microseconds UTC.
    """

    def __init__(self, start_us: int = 0) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        """Return the instant the clock was moved to."""
        return self._now_us

    def monotonic(self) -> float:
        """Return the same instant in seconds."""
        return self._now_us / 1_000_000

    def sleep(self, seconds: float) -> None:
        """Move the clock; nobody waits."""
        self._now_us += max(0, round(seconds * 1_000_000))


_clock: Clock = SystemClock()


@contextmanager
def waiting_on(clock: Clock) -> Iterator[None]:
    """Let every `eventually` that is given no clock go by this one meanwhile, in all threads."""
    global _clock  # noqa: PLW0603 (one process, one time: that is what it is for)
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


class NotReachedError(AssertionError):
    """Raised by `eventually` when its bound passes first."""


def eventually[T](
    condition: Callable[[], T],
    *,
    timeout_seconds: float,
    describe: str,
    interval_seconds: float = 0.05,
    clock: Clock | None = None,
    until: Callable[[T], bool] = bool,
) -> T:
    """Call `condition` until what it returns is true, or is what was waited for, and return that.

    The condition is always tried once more after the bound, so a slow machine does not turn a kept promise into a
    broken one.

    Args:
        condition: asked again and again.
        timeout_seconds: the bound; there is no way to wait for ever.
        describe: what was waited for, for the failure message.
        interval_seconds: rest between two tries.
        clock: what measures the bound and the rest; None means the machine's, or that of `waiting_on`.
        until: whether an answer is the one waited for. With it the condition returns what was seen, so that a failure
            can say what that was, where a bare False says nothing.

    Raises:
        NotReachedError: the bound passed and the answer was still another one.
    """
    clock = _clock if clock is None else clock
    deadline = clock.monotonic() + timeout_seconds
    while True:
        last_try = clock.monotonic() >= deadline
        answer = condition()
        if until(answer):
            return answer
        if last_try:
            raise NotReachedError(f"waited {timeout_seconds:g} s for {describe}{_answer_text(answer)}")
        clock.sleep(interval_seconds)


def _answer_text(answer: object) -> str:
    """Return the words for the last answer; a condition that only says no has seen nothing to tell."""
    if isinstance(answer, bool):
        return ""
    text = repr(answer)
    shown = text if len(text) <= _ANSWER_CHARACTERS_MAX else f"{text[:_ANSWER_CHARACTERS_MAX]}…"
    return f"; the last answer was {shown}"
