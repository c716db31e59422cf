"""Options of several commands, and what they name: the declaration, and where the tasks run."""

import os
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from sluice.declaration import Declaration, load_declaration, loading
from sluice.errors import unwritable


def declared(path: Path | None) -> Declaration:
    """Return the declaration, of which the workers that are started will have the same."""
    declaration = load_declaration(path)
    if path is not None:
        os.environ[loading.VARIABLE] = str(declaration.path)
    return declaration


def require_writable(file: Path, option: str) -> None:
    """Refuse a file to write to in a folder that cannot be written, before what it is to hold is computed.

    Raises:
        ConfigError: that is so; the message names the option.
        HistoryError: the disk is full or broken.
    """
    try:
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise unwritable(file, error, f"name a file in a folder that can be written, with {option}") from error


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--master` and `--remote` to a command."""
    remote = click.option(
        "--remote",
        metavar="URL",
        envvar="SPARK_REMOTE",
        help="A Spark Connect server, sc://host:port.  [default: $SPARK_REMOTE, else run here]",
    )
    master = click.option(
        "--master", metavar="URL", help="A standalone Spark master, spark://host:port.  [default: run here]"
    )
    return master(remote(command))


def clock_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--max-clock-offset`; the command gets `clock_bound_us`, 0 where it is not given."""
    return click.option(
        "--max-clock-offset",
        "clock_bound_us",
        metavar="MS",
        type=click.FloatRange(min=0.001),
        callback=lambda _context, _option, milliseconds: 0 if milliseconds is None else round(milliseconds * 1_000),
        help="Milliseconds that the clocks of any two machines are apart at most.  [default: what the history proves]",
    )(command)


def on_a_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add them, and give the command the `cluster` they name."""

    @cluster_options
    @wraps(command)
    def located(*, master: str | None, remote: str | None, **others: Any) -> None:
        from spark_load.runtime.spark_session import Cluster  # noqa: PLC0415 (what needs no cluster needs no Spark)

        command(cluster=Cluster(master=master, remote=remote or None), **others)

    return located
