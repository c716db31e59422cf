"""Measure outbox, relay, worker and load test, and keep the results as JSON: `python -m benchmarks [relay] …`."""

import logging
import os
import platform
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import click
import structlog
from sqlalchemy import text

from benchmarks import databases, report
from benchmarks.checking import check
from benchmarks.databases import POSTGRES
from benchmarks.outbox import bundles, growth, relay, storage, verdict, writers
from benchmarks.publishing import client, publish
from benchmarks.report import ResultTable, Section
from benchmarks.rounds import Measurement
from benchmarks.worker import hot_group, lanes, pace, waiting
from sluice.clock import SystemClock
from sluice.messaging.database import engines

_BENCHMARKS: dict[str, Callable[[Mapping[str, str], int], Section]] = {
    "relay": relay.measure,
    "bundles": bundles.measure,
    "writers": writers.measure,
    "growth": growth.measure,
    "verdict": verdict.measure,
    "storage": storage.measure,
    "lanes": lanes.measure,
    "client": client.measure,
    "hot-group": hot_group.measure,
    "worker": pace.measure,
    "waiting": waiting.measure,
    "publish": publish.measure,
    "check": check.measure,
}
_FLUSHES = 100  # in one sample of the disk's speed
_clock = SystemClock()


@click.command()
@click.argument("names", nargs=-1, metavar="[PART]...", type=click.Choice(list(_BENCHMARKS)))
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="How often each cell is measured."
)
def main(names: tuple[str, ...], rounds: int) -> None:
    """Measure all parts, or those named; write their results and plots; `make docs` shows them.

    \b relay     messages a second from outbox to topic bundles   events a second with bundles and without writers
    what the outbox costs those who write to it growth
    look and mark while the outbox grows verdict   an outbox compared with an inbox, row by row of their groups storage
    bytes a message leaves in Postgres lanes     what a worker costs over a plain receive and delete client    what a
    call to AWS costs the processor, beside boto3 hot-group one group: a message for each event, and bundles worker
    what workers do by processes, beside others; an inbox of ten million rows waiting   what a worker does whose
    handlers wait, on an event loop and on threads, beside aiobotocore and taskiq publish   what a message costs the
    load test to publish, beside other clients check     events the checker judges in a second, beside DuckDB

    publish and check need Java, lanes a LocalStack of its own; worker, waiting, publish and check install what they are
    held against. Nothing else should run on the machine meanwhile.

    \b
    Examples:
      python -m benchmarks
      python -m benchmarks publish --rounds 5
    """
    # SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that the servers a benchmark started are ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ |= {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark"}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with databases.start_both() as urls:
        for name in names or _BENCHMARKS:
            os.sync()  # flush files that wait to be written: that must not happen while something is measured
            began, load = _clock.monotonic(), os.getloadavg()[0]
            section = _BENCHMARKS[name](urls, rounds)
            report.write(section, measured=_run_facts(rounds, load))
            print(
                *(made.markdown() for made in section.tables.values()),
                f"{name}: {_clock.monotonic() - began:.0f} s",
                sep="\n",
                flush=True,
            )
        report.write(Section(tables={"machine": ResultTable(note=_machine(urls[POSTGRES], rounds))}, plots={}))


def _run_facts(rounds: int, load: float) -> str:
    """Return what a reader has to know of one run: its day, its rounds, and whether the machine was quiet before it."""
    today = datetime.fromtimestamp(_clock.now_us() / 1_000_000, tz=UTC).date()
    return f"{today}, {rounds} {'rounds' if rounds > 1 else 'round'}, load average before: {load:.1f}"


def _machine(postgres: str, rounds: int) -> str:
    """Return a sentence about the machine: cores, versions, and the time the disk needs to flush a write."""
    engine = engines.engine(postgres)
    with engines.reading(engine) as connection:
        version = connection.execute(text("SHOW server_version")).scalar_one()
    engine.dispose()
    flush = Measurement(tuple(_flush_milliseconds() for _ in range(rounds)))
    return (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), Python {platform.python_version()},"
        f" PostgreSQL {version} over a Unix socket, SQLite {sqlite3.sqlite_version}. A write of 8 KiB and its `fsync`"
        f" took {flush.median:.1f} ms (noise {flush.noise})."
    )


def _flush_milliseconds() -> float:
    """Return the mean time that a write of 8 KiB and its `fsync` take in the temporary folder."""
    with tempfile.TemporaryFile(buffering=0) as file:
        began = _clock.monotonic()
        for _ in range(_FLUSHES):
            file.write(bytes(8_192))
            os.fsync(file.fileno())
        return 1_000 * (_clock.monotonic() - began) / _FLUSHES


if __name__ == "__main__":
    main()
