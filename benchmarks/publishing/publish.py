"""What a message costs to publish: the load test's publishers against clients that only send.

Everybody sends calls of ten messages of 1 KiB to one process on the loopback that answers at once. Ours is the whole
pipeline: the plan in Spark, the exchange by group, pacing, signing, sending, and two rows of history for each message.

Whether more tasks publish more is measured at a rate for each that leaves cores free, at an endpoint with a limit of
its own: two cores cannot show more of tasks that go as fast as they can.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import locked, sink
from benchmarks.charts import Bar, bars
from benchmarks.publishing.certificates import certificate
from benchmarks.report import Section, table
from benchmarks.rounds import Measured, interleaved
from sluice.history.delays import percentile

_HERE = Path(__file__).resolve().parent
_MESSAGES = {"sockets": 300_000, "boto3": 3_000}
_CALLS = {"boto3": 200, "aiobotocore": 400, "locust": 200}
_TASKS = (1, 2, 3, 4)
_TASK_PER_SECOND, _LIMIT_PER_SECOND = 4_000, 14_000
_SCALED_SECONDS, _LINGER_SECONDS = 5, 0.02
_FEW_MESSAGES = 100
_CALL_MESSAGES = 10
_GOAL_PER_SECOND = 700_000
_DELAY_SECONDS, _SPREAD_SECONDS = 0.02, 0.02
_SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class _Cell:
    """Who sends where how."""

    kind: str
    client: str
    service: str
    is_tls: bool

    @property
    def name(self) -> str:
        """Return who sends."""
        return f"{self.kind}{self.client}"


class _Scaled(NamedTuple):
    """What so many tasks do: messages a second, microseconds of processor time a message, and seconds late."""

    rate: Measured
    cost: Measured
    late: Measured


type _Measure = Callable[..., dict[str, Any]]
_SPARK, _ALONE, _THEIRS = "Sluice in Spark, ", "Sluice's publisher alone, ", ""
_SERIES = [_SPARK, _ALONE, _THEIRS]


def measure(_: Mapping[str, str], rounds: int) -> Section:
    """Measure messages a processor second, what more tasks bring, and how true recorded latencies are."""
    locked.install()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        pair = certificate(Path(folder))
        os.environ["AWS_CA_BUNDLE"] = str(pair[0])
        with (
            sink.running(0) as plain,
            sink.running(0, pair) as tls,
            sink.running(_DELAY_SECONDS, spread_seconds=_SPREAD_SECONDS) as slow,
            sink.running(0, calls_per_second=_LIMIT_PER_SECOND / _CALL_MESSAGES) as limited,
            _publishers() as publish_with,
            _publishers("--alone") as publish_alone,
        ):
            urls = {False: plain, True: tls}
            warm_up = {"transport": "sockets", "service": "sqs", "url": tls, "messages": 20_000, "rate": None}
            for publish, tasks in ((publish_with, 1), (publish_with, max(_TASKS)), (publish_alone, 1)):
                publish(**warm_up, tasks=tasks)  # what comes first pays for what is made once
            cells = _cells(urls, {_SPARK: publish_with, _ALONE: publish_alone})
            found = interleaved(cells, rounds)
            scaled = _scaled(limited, publish_with, rounds)
            latencies = publish_with(transport="sockets", service="sqs", url=slow, messages=3_000, tasks=1, rate=500.0)
    return _section(found, scaled, latencies["latencies_us"])


@contextmanager
def _publishers(*options: str) -> Iterator[_Measure]:
    """Yield what does one job, in a Spark of its own or without."""
    command = [sys.executable, "-m", "benchmarks.publishing.in_spark", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def publish_with(**job: Any) -> dict[str, Any]:
            print(json.dumps(job), file=questions, flush=True)
            answer: dict[str, Any] = json.loads(answers.readline())
            assert answer["messages"] >= job["messages"], f"{job} sent only {answer['messages']} messages"
            return answer

        yield publish_with
        questions.close()


def _cells(urls: Mapping[bool, str], requests: Mapping[str, _Measure]) -> dict[_Cell, Callable[[], float]]:
    cells: dict[_Cell, Callable[[], float]] = {}
    for (is_tls, url), service in product(urls.items(), ("sns", "sqs")):
        for kind, client in (*product([_SPARK], _MESSAGES), (_ALONE, "sockets")):
            cells[_Cell(kind, client, service, is_tls)] = partial(_ours, requests[kind], client, service, url)
        for client in _CALLS:
            cells[_Cell(_THEIRS, client, service, is_tls)] = partial(_theirs, client, service, url)
    return cells


def _ours(publish_with: _Measure, transport: str, service: str, url: str) -> float:
    took = publish_with(
        transport=transport, service=service, url=url, messages=_MESSAGES[transport], tasks=1, rate=None
    )
    return float(took["messages"] / took["processor_seconds"])


def _theirs(client: str, service: str, url: str) -> float:
    command = [locked.PYTHON, str(_HERE / "competitors.py"), client, service, url]
    ended = subprocess.run([*command, str(_CALLS[client])], check=True, stdout=subprocess.PIPE, text=True)
    took = json.loads(ended.stdout.splitlines()[-1])
    return float(took["messages"] / took["processor_seconds"])


def _scaled(url: str, publish_with: _Measure, rounds: int) -> dict[int, _Scaled]:
    """Return what tasks do that are offered the same each, without what a job costs that publishes next to nothing."""
    costs: dict[int, list[float]] = {tasks: [] for tasks in _TASKS}
    lates: dict[int, list[float]] = {tasks: [] for tasks in _TASKS}

    def rate(tasks: int) -> float:
        per_second = _TASK_PER_SECOND * tasks
        job = {"transport": "sockets", "service": "sqs", "url": url, "tasks": tasks, "rate": per_second}
        few = publish_with(**job, messages=_FEW_MESSAGES, linger_seconds=_LINGER_SECONDS)
        took = publish_with(**job, messages=per_second * _SCALED_SECONDS, linger_seconds=_LINGER_SECONDS)
        more = took["messages"] - few["messages"]
        costs[tasks].append(1e6 * (took["processor_seconds"] - few["processor_seconds"]) / more)
        lates[tasks].append((percentile(took["late_us"], 0.99) or 0) / 1e6)
        return float(took["messages"] / took["load_seconds"])

    rates = interleaved({tasks: partial(rate, tasks) for tasks in _TASKS}, rounds)
    return {
        tasks: _Scaled(rates[tasks], Measured(tuple(costs[tasks])), Measured(tuple(lates[tasks]))) for tasks in _TASKS
    }


def _section(found: Mapping[_Cell, Measured], scaled: Mapping[int, _Scaled], latencies_us: list[int]) -> Section:
    return Section(
        tables={
            "publish": _costs(found),
            "publish-tasks": _scaling(scaled),
            "publish-accuracy": _accuracy(latencies_us),
        },
        plots={"publish": _plot(found)},
    )


def _costs(found: Mapping[_Cell, Measured]) -> str:
    rows = []
    for cell, rate in sorted(found.items(), key=_row_order):
        peer = found[_Cell(_THEIRS, "boto3", cell.service, cell.is_tls)]
        cores = f"{_GOAL_PER_SECOND / rate.median:,.0f}" if cell.service == "sqs" and cell.is_tls else ""
        where = (cell.service.upper(), "TLS" if cell.is_tls else "plain")
        rows.append((*where, cell.name, f"{rate.median:,.0f}", rate.noise, rate.over(peer).ratio, cores))
    head = ("service", "wire", "who", "messages a processor second", "noise", "to boto3", "cores for 700,000/s")
    return table(head, rows, text_columns=3)


def _row_order(cell: tuple[_Cell, Measured]) -> tuple[str, bool, float]:
    return cell[0].service, cell[0].is_tls, -cell[1].median


def _plot(found: Mapping[_Cell, Measured]) -> str:
    series = ["Sluice in Spark", "its publisher alone", "clients that only send"]
    drawn = [
        Bar(
            f"{cell.client}, {cell.service.upper()}{' over TLS' * cell.is_tls}",
            _SERIES.index(cell.kind),
            rate.median,
            f"{rate.median:,.0f}",
        )
        for cell, rate in sorted(found.items(), key=_row_order)
    ]
    return bars("What a message costs", "messages a processor second", series, drawn)


def _scaling(scaled: Mapping[int, _Scaled]) -> str:
    one_task = scaled[1].rate
    rows = [
        (
            tasks,
            f"{_TASK_PER_SECOND * tasks:,}",
            f"{found.rate.median:,.0f}",
            found.rate.over(one_task).ratio,
            f"{found.late.median:.2f}",
            f"{found.cost.median:.0f}",
            found.cost.noise,
        )
        for tasks, found in scaled.items()
    ]
    head = ("tasks", "offered/s", "answered/s", "to one", "99% answered within, s", "processor µs a message", "noise")
    return table(head, rows, text_columns=0)


def _accuracy(latencies_us: list[int]) -> str:
    rows = [
        (f"p{share * 100:g}", f"{1_000 * _known(share):.1f}", f"{(percentile(latencies_us, share) or 0) / 1_000:.1f}")
        for share in _SHARES
    ]
    return table(("", "the endpoint's delay, ms", "recorded, ms"), rows, text_columns=1)


def _known(share: float) -> float:
    """Return the quantile of the endpoint's delay: a constant, and an exponential one behind it."""
    return _DELAY_SECONDS - _SPREAD_SECONDS * math.log(1 - share)
