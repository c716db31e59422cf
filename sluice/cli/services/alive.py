"""`sluice alive`."""

from pathlib import Path

from sluice.clock import SystemClock, clock_id
from sluice.errors import MessagingError
from sluice.messaging import alive as signs
from sluice.terminal import output


def alive(*, file: Path, within_seconds: float | None) -> None:
    try:
        sign = signs.read(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MessagingError(f"no sign of life in {str(file)!r} ({reason}); is it what --alive names?") from error
    now_seconds = SystemClock().monotonic()
    problem = signs.problem(sign, now_seconds=now_seconds, clock_id=clock_id(), within_seconds=within_seconds)
    if problem is not None:
        raise MessagingError(problem)
    age_seconds = now_seconds - sign.monotonic_seconds
    output.line(f"process {sign.pid} is alive, its last sign of life is {age_seconds:.1f} s old")
