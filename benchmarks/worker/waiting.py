"""Measure handlers that wait for somebody else: on one event loop, on threads, with taskiq, and by hand.

`python -m benchmarks.worker.waiting DSN ENDPOINT KIND LANES CONNECTIONS` is the worker in a process of its own.
"""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from benchmarks import competitor_environment, sink
from benchmarks.databases import POSTGRES
from benchmarks.report import Section, table
from benchmarks.rounds import interleave
from benchmarks.worker.lanes import REGION, cpu_seconds, engine_with_inbox
from benchmarks.worker.workers import running_worker
from sluice.clock import SystemClock, eventually
from sluice.declaration import metrics
from sluice.messaging import Ack, Context, Event, Outcome
from sluice.messaging.database import engines
from sluice.messaging.handlers import ANY, Handlers
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.worker.processing.deleter import threads_of

_DELAY_SECONDS = 0.01
_WAIT_SECONDS = 1.0
_SECONDS = 6.0
_MANY, _FEW = 300, 20
_LOOP = Path(__file__).with_name("aiobotocore_loop.py")
_TASKIQ = Path(__file__).with_name("taskiq_worker.py")
_STATEMENT = text("SELECT 1")
_clock = SystemClock()


class _WaitResult(NamedTuple):
    messages: float
    seconds: float
    cpu_seconds: float
    mebibytes: float


def measure(urls: Mapping[str, str], rounds: int) -> Section:
    """Return the rate of handlers that wait for a second and then execute a statement."""
    url = urls[POSTGRES]
    competitor_environment.install()
    by_hand = f"aiobotocore by hand, {_MANY} tasks, no database"
    cells: dict[str, Callable[[], _WaitResult]] = {
        by_hand: _run_by_hand,
        f"taskiq, a message a receive, {_MANY} tasks, no database": partial(_run_taskiq, 1),
        f"taskiq, ten messages a receive, {_MANY} tasks, no database": partial(_run_taskiq, 10),
        f"worker, AsyncSession, {_MANY} lanes, {_FEW} connections": partial(_run_worker, url, "asyncio", _MANY, _FEW),
        f"worker, threads, {_FEW} lanes, {_FEW} connections": partial(_run_worker, url, "threads", _FEW, _FEW),
        "worker, threads, 80 lanes, 80 connections": partial(_run_worker, url, "threads", 80, 80),
    }
    results: dict[str, list[_WaitResult]] = {name: [] for name in cells}
    rates = interleave({name: partial(_rate, cell, results[name]) for name, cell in cells.items()}, rounds)
    rows = [
        (
            name,
            *(f"{rate.median:,.0f}", rate.noise, rate.over(rates[by_hand]).ratio),
            f"{1_000 * sum(run.cpu_seconds for run in results[name]) / sum(run.messages for run in results[name]):.2f}",
            f"{max(run.mebibytes for run in results[name]):,.0f}",
        )
        for name, rate in rates.items()
    ]
    head = ("what", "messages/s", "noise", "to aiobotocore", "processor, ms a message", "MiB")
    return Section(tables={"waiting": table(head, rows, text_columns=1)}, plots={})


def _rate(cell: Callable[[], _WaitResult], results: list[_WaitResult]) -> float:
    results.append(cell())
    return results[-1].messages / results[-1].seconds


def _run_by_hand() -> _WaitResult:
    with sink.running(_DELAY_SECONDS) as endpoint:
        arguments = [endpoint, str(_MANY), str(_WAIT_SECONDS), str(_SECONDS)]
        return _run_and_read_result([competitor_environment.PYTHON, str(_LOOP), *arguments])


def _run_taskiq(at_once: int) -> _WaitResult:
    """Run taskiq; with several messages a receive it keeps no order within a group."""
    with sink.running(_DELAY_SECONDS) as endpoint:
        arguments = [endpoint, str(_MANY), str(at_once), str(_WAIT_SECONDS), str(_SECONDS)]
        return _run_and_read_result([competitor_environment.PYTHON, str(_TASKIQ), *arguments])


def _run_worker(url: str, kind: str, lanes: int, connections: int) -> _WaitResult:
    with engine_with_inbox(url), sink.running(_DELAY_SECONDS) as endpoint:
        arguments = [url, endpoint, kind, str(lanes), str(connections)]
        return _run_and_read_result([sys.executable, "-m", "benchmarks.worker.waiting", *arguments])


def _run_and_read_result(command: list[str]) -> _WaitResult:
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return _WaitResult(*json.loads(shown.splitlines()[-1]))


async def _wait_on_loop(session: AsyncSession, _: Event, __: Context) -> Outcome:
    await asyncio.sleep(_WAIT_SECONDS)
    await session.execute(_STATEMENT)
    return Ack()


def _wait_on_thread(session: Any, _: Event, __: Context) -> Outcome:
    _clock.sleep(_WAIT_SECONDS)
    session.execute(_STATEMENT)
    return Ack()


def main() -> None:
    """Run the worker."""
    dsn, endpoint, kind = sys.argv[1:4]
    lanes, connections = map(int, sys.argv[4:])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sqs = queue.client(endpoint, REGION, connections=lanes + threads_of(lanes) + 2)
    source = Queue(sqs, f"{endpoint}/000000000000/benchmark.fifo")
    handlers = Handlers({ANY: _wait_on_loop if kind == "asyncio" else _wait_on_thread})
    engine = engines.engine(dsn)
    with running_worker(engine, source, handlers, lanes=lanes, database_connections=connections) as counts:
        eventually(
            lambda: counts.so_far()[metrics.HANDLED] > lanes, timeout_seconds=60, describe="every lane to be connected"
        )
        before, began, cpu = counts.so_far()[metrics.HANDLED], _clock.monotonic(), cpu_seconds()
        _clock.sleep(_SECONDS)
        spent = _clock.monotonic() - began, cpu_seconds() - cpu
        print(json.dumps([counts.so_far()[metrics.HANDLED] - before, *spent, _mebibytes_max()]), flush=True)


def _mebibytes_max() -> float:
    """Return the peak memory of this process. `resource.getrusage` may return that of its parent."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(status["VmHWM"].split()[0]) / 1_024


if __name__ == "__main__":
    main()
