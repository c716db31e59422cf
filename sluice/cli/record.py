"""`sluice record`, a program run as it is and its calls recorded; `sluice delays`, where a recording's time went."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click

from sluice.cli.options import json_option
from sluice.errors import ConfigError, unwritable
from sluice.history.delays import measured, percentile
from sluice.terminal import output
from sluice.terminal.values import Whole


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--one-group-in",
    type=Whole(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Record one message group in N, as a whole.",
)
def record(folder: Path, command: tuple[str, ...], one_group_in: int) -> None:
    """Run a Python program, and record what its SNS and SQS clients do.

    \b
    The program is not changed, and its exit code is returned. Python programs that it starts are recorded, too.
      sluice record --one-group-in 10 tuesday -- python -m my_service
      sluice check tuesday --queue my-queue.fifo=30
    """
    from sluice.recorder import every_client

    if shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}; name one, as after `--`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error, "name a folder that can be written") from error
    earlier = _journals(folder)
    environment = every_client.environment(folder, one_group_in, os.environ)
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ConfigError(f"cannot run {command[0]!r} ({error.strerror}); name a program, as after `--`") from error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well, which decides

    def forward(number: int, _: object) -> None:  # without the lock of `send_signal`, which `wait` may have
        if child.returncode is None:
            os.kill(child.pid, number)

    signal.signal(signal.SIGTERM, forward)
    code = child.wait()
    found = _journals(folder)
    written = str(len(found))
    if found - earlier:
        judge = f"judge them: sluice check {folder} --queue NAME=SECONDS"
    else:
        written += ", of which this made none" if earlier else ""
        judge = (
            "no Python program made an SNS or SQS client, or it ran with -I, -E or -S, or on a Python before 3.12,"
            " which keep the recorder out"
        )
    output.line(f"journals in {folder}: {written}; {judge}", is_error=True)
    sys.exit(code if code >= 0 else 128 - code)


def _journals(folder: Path) -> set[Path]:
    from sluice.recorder.journal import SUFFIX

    return set(folder.glob(f"*{SUFFIX}"))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def delays(folder: Path, as_json: bool) -> None:
    """Show where the time went in the recorded history of FOLDER: outbox wait, API time, receive wait."""
    from sluice.recorder.journal import SUFFIX, events_of, read_journal

    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise ConfigError(f"{folder} holds no journals (*{SUFFIX}); name the folder given to --record")
    found = measured([event for path in paths for event in events_of(read_journal(path))])
    parts = {"outbox wait": found.outbox_wait, "API time": found.api_time, "receive wait": found.receive_wait}
    rows = {
        name: {"count": len(values), **{f"p{share}": percentile(values, share / 100) for share in (50, 95, 99)}}
        for name, values in parts.items()
    }
    if as_json:
        output.as_json({"unit": "seconds", "delays": rows})
        return
    output.table(
        ("delay", "messages", "p50", "p95", "p99"),
        [(name, row["count"], *(_seconds(row[f"p{share}"]) for share in (50, 95, 99))) for name, row in rows.items()],
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
