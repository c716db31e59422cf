"""`sluice alive`: the health check of workers and relays."""

from pathlib import Path

import click

from sluice.clock import SystemClock, clock_id
from sluice.errors import MessagingError
from sluice.messaging import alive as signs
from sluice.terminal import output
from sluice.terminal.values import DAY_SECONDS, NumberType


@click.command()
@click.argument("file", type=click.Path(path_type=Path), envvar="SLUICE_ALIVE_FILE")
@click.option(
    "--within",
    "within_seconds",
    type=NumberType("seconds", 0.001, DAY_SECONDS),
    metavar="SECONDS",
    help="Maximum age of the last sign of life.  [default: as the process itself declared]",
)
def alive(file: Path, within_seconds: float | None) -> None:
    """Check that the worker or relay with `--alive FILE` makes progress: 0 if so, 2 if not. For health checks.

    \b
    It fails when the process is dead or frozen, when its main loop hangs, and when a lane, a drainer or the heartbeat
    gives no sign of life. It does not fail because a queue or a database is away.
      sluice worker --consumer billing --alive /dev/shm/alive
      sluice alive /dev/shm/alive
    """
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
