"""`python -m messaging alive`."""

from pathlib import Path

import click

from messaging import alive as signs
from sluice.clock import SystemClock, clock_id
from sluice.errors import MessagingError


class NotAlive(MessagingError):
    """Raised when a process is not to be taken for alive."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path), envvar="SLUICE_ALIVE_FILE")
@click.option(
    "--within",
    "within_seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="How old its last sign of life may be.  [default: as the process itself promised]",
)
def alive(file: Path, within_seconds: float | None) -> None:
    """Check that the worker or relay with `--alive FILE` makes progress: 0 if so, 2 if not. For health checks.

    \b
    It fails when the process is dead, frozen or has not looked after itself in time, and when a lane, a drainer or the
    heartbeat gives no sign of life. A queue or a database that is away is no reason.
      python -m messaging worker --consumer billing --alive /dev/shm/alive
      python -m messaging alive /dev/shm/alive
    """
    try:
        sign = signs.read(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotAlive(f"no sign of life in {str(file)!r} ({reason}); is it what --alive names?") from error
    now_seconds = SystemClock().monotonic()
    problem = signs.problem(sign, now_seconds=now_seconds, clock_id=clock_id(), within_seconds=within_seconds)
    if problem is not None:
        raise NotAlive(problem)
    age_seconds = now_seconds - sign.monotonic_seconds
    click.echo(f"process {sign.pid} is alive, its last sign of life is {age_seconds:.1f} s old")
