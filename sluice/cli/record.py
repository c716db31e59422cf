"""`sluice record` runs a program and records its calls; `sluice delays` shows where a recording's time went."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from sluice.cli.options import json_option
from sluice.endpoint import checked_url
from sluice.errors import ConfigError, unwritable
from sluice.history.delays import measure_delays, percentile
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT
from sluice.terminal.programs import require_program, run_program
from sluice.terminal.values import Whole


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--proxy", "port", type=Whole(0, 65_535), metavar="PORT", help="Record what passes this loopback port.")
@click.option("--to", "endpoint", metavar="URL|aws", help="Where the proxy sends it: an endpoint, or AWS's own.")
@click.option(
    "--one-group-in",
    type=Whole(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Record one message group in N, as a whole.",
)
def record(folder: Path, command: tuple[str, ...], port: int | None, endpoint: str | None, one_group_in: int) -> None:
    """Run a Python program, and record what its SNS and SQS clients do.

    \b
    The program is not changed, and its exit code is returned. Python programs that it starts are recorded, too.
      sluice record --one-group-in 10 tuesday -- python -m my_service
      sluice check tuesday --queue my-queue.fifo=30

    For programs in any language, start a proxy and lead their SQS and SNS calls through it:

    \b
      sluice record tuesday --proxy 4567 --to aws          # or --to http://127.0.0.1:4566
      export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:4567    # where the programs run
      export AWS_ENDPOINT_URL_SNS=http://127.0.0.1:4567
      node my_service.js

    The proxy signs each call with its own credentials; the programs need some, but any will do. Ctrl-C or SIGTERM ends
    the proxy and closes its journal, with exit code 0; with 2 if the journal could not be written to its end.
    """
    if port is None and endpoint is None:
        if not command:
            raise ConfigError("no program is named, and no proxy; name a program after `--`, or give --proxy and --to")
        _record_program(folder, command, one_group_in)
    if port is None or endpoint is None or command:
        raise ConfigError(
            "a proxy needs --proxy and --to, and takes no program; give both, and start the programs elsewhere"
        )
    _record_proxy(folder, port, endpoint, one_group_in)


def _make(folder: Path) -> None:
    """Create the folder of the recording; refuse one that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error, "name a folder that can be written") from error


def _record_proxy(folder: Path, port: int, endpoint: str, one_group_in: int) -> None:
    """Record the calls that pass a proxy on the loopback, until SIGINT, SIGTERM or SIGHUP; then exit."""
    from sluice.recorder import record as start_recording
    from sluice.recorder.proxy import AWS, RecordingProxy

    endpoint = endpoint if endpoint == AWS else checked_url(endpoint)
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # new threads inherit the mask, so that `sigwait` below gets them
    _make(folder)
    with start_recording((), folder, worker="proxy", one_group_in=one_group_in) as recording:
        with RecordingProxy(recording, port=port, endpoint=endpoint) as proxy:
            output.line(
                f"recording {proxy.url} -> {endpoint} into {folder}; set AWS_ENDPOINT_URL_SQS and AWS_ENDPOINT_URL_SNS"
                f" to {proxy.url}; Ctrl-C ends it",
                is_error=True,
            )
            signal.sigwait(ends)
        is_whole = recording.is_on
    judge = f"judge it: sluice check {folder} --queue NAME=SECONDS" if is_whole else "its recording stopped early"
    output.line(f"journal in {folder}; {judge}", is_error=True)
    sys.exit(0 if is_whole else COULD_NOT)


def _record_program(folder: Path, command: tuple[str, ...], one_group_in: int) -> NoReturn:
    """Run a program with the recorder in each of its Python processes, and exit with its exit code."""
    from sluice.recorder import every_client

    require_program(command)
    _make(folder)
    earlier = _journals(folder)
    environment = every_client.environment(folder, one_group_in, os.environ)
    code = run_program(command, environment)
    journals = _journals(folder)
    written = str(len(journals))
    if journals - earlier:
        judge = f"judge them: sluice check {folder} --queue NAME=SECONDS"
    else:
        written += ", of which this made none" if earlier else ""
        judge = (
            "no Python program made an SNS or SQS client, or it ran with -I, -E or -S, or on a Python before 3.12,"
            " which keep the recorder out"
        )
    output.line(f"journals in {folder}: {written}; {judge}", is_error=True)
    sys.exit(code)


def _journals(folder: Path) -> set[Path]:
    """Return the journals that a folder has."""
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
    measured = measure_delays([event for path in paths for event in events_of(read_journal(path))])
    parts = {"outbox wait": measured.outbox_wait, "API time": measured.api_time, "receive wait": measured.receive_wait}
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
    """Return seconds as text; `-` where there is no value."""
    return "-" if value is None else f"{value:.3f} s"
