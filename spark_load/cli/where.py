"""Where the tasks of a command run: its options are the same everywhere."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from spark_load.runtime.spark_session import Cluster


def on_a_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--master` and `--remote` to a command, which is given the `cluster` they name."""

    @click.option("--master", metavar="URL", help="A standalone Spark master, spark://host:port.  [default: run here]")
    @click.option(
        "--remote",
        metavar="URL",
        envvar="SPARK_REMOTE",
        help="A Spark Connect server, sc://host:port.  [default: $SPARK_REMOTE, else run here]",
    )
    @wraps(command)
    def located(*, master: str | None, remote: str | None, **others: Any) -> None:
        command(cluster=Cluster(master=master, remote=remote or None), **others)

    return located
