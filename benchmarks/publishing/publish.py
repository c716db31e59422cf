"""Measure the cost of publishing a message: the load test's publishers against clients that only send.

Each client sends calls of ten messages of 1 KiB to one process on the loopback that answers at once. The load test is
measured with its whole pipeline: the plan in Spark, the exchange by group, pacing, signing, sending, and two rows of
history for each message.

Whether more tasks publish more is measured at a fixed rate for each task, which leaves cores free, and at an endpoint
with a limit: on two cores, tasks without a limit would only compete for the processor.
"""

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks import competitor_environment, sink
from benchmarks.charts import ResultBar, bars
from benchmarks.publishing.certificates import certificate
from benchmarks.publishing.scaling import Publish, ScalingPoint, measure_scaling, publishers, scaling_table
from benchmarks.report import ResultTable, Section, table
from benchmarks.rounds import Measurement, interleave
from sluice.history.delays import percentile

_HERE = Path(__file__).resolve().parent
_MESSAGES = {"sockets": 300_000, "boto3": 3_000}
_ALONE_MESSAGES = 100_000
_CALLS = {"boto3": 200, "aiobotocore": 400, "locust": 200}
_TASKS = (1, 2, 3, 4)
_TASK_PER_SECOND, _LIMIT_PER_SECOND = 4_000, 14_000
_CALL_MESSAGES = 10
_GOAL_PER_SECOND = 700_000
_DELAY_SECONDS, _SPREAD_SECONDS = 0.02, 0.02
_SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One measured combination.

    Args:
        kind: what runs the client: `_SPARK`, `_ALONE`, or `_THEIRS` for a program of others.
        client: `sockets` or `boto3` of Sluice; a key of `_CALLS` for the others.
        service: where it sends to, `sns` or `sqs`.
        is_tls: whether over TLS.
    """

    kind: str
    client: str
    service: str
    is_tls: bool

    @property
    def name(self) -> str:
        """Return the name of the client in the table."""
        return f"{self.kind}{self.client}"


_SPARK, _ALONE, _THEIRS = "Sluice in Spark, ", "Sluice's publisher alone, ", ""
_SERIES = [_SPARK, _ALONE, _THEIRS]


def measure(_: Mapping[str, str], rounds: int) -> Section:
    """Measure messages a processor second, the gain from more tasks, and the error of recorded latencies."""
    competitor_environment.install()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        pair = certificate(Path(folder))
        os.environ["AWS_CA_BUNDLE"] = str(pair[0])
        with (
            sink.running(0) as plain,
            sink.running(0, pair) as tls,
            sink.running(_DELAY_SECONDS, spread_seconds=_SPREAD_SECONDS) as slow,
            sink.running(0, calls_per_second=_LIMIT_PER_SECOND / _CALL_MESSAGES) as limited,
            publishers() as publish_with,
            publishers("--alone") as publish_alone,
        ):
            urls = {False: plain, True: tls}
            warm_up = {"transport": "sockets", "service": "sqs", "url": tls, "messages": 20_000, "rate": None}
            for publish, tasks in ((publish_with, 1), (publish_with, max(_TASKS)), (publish_alone, 1)):
                publish(**warm_up, tasks=tasks)  # the first job also starts the JVM and the Python workers
            cells = _cells(urls, {_SPARK: publish_with, _ALONE: publish_alone})
            found = interleave(cells, rounds)
            scaled = measure_scaling(publish_with, limited, _TASKS, _TASK_PER_SECOND, rounds)
            latencies = publish_with(transport="sockets", service="sqs", url=slow, messages=3_000, tasks=1, rate=500.0)
    return _section(found, scaled, latencies["latencies_us"])


def _cells(urls: Mapping[bool, str], requests: Mapping[str, Publish]) -> dict[_Cell, Callable[[], float]]:
    cells: dict[_Cell, Callable[[], float]] = {}
    for (is_tls, url), service in product(urls.items(), ("sns", "sqs")):
        ours = [*((_SPARK, client, count) for client, count in _MESSAGES.items()), (_ALONE, "sockets", _ALONE_MESSAGES)]
        for kind, client, count in ours:
            cells[_Cell(kind, client, service, is_tls)] = partial(
                _our_rate, requests[kind], client, service, url, count
            )
        for client in _CALLS:
            cells[_Cell(_THEIRS, client, service, is_tls)] = partial(_their_rate, client, service, url)
    return cells


def _our_rate(publish_with: Publish, transport: str, service: str, url: str, messages: int) -> float:
    took = publish_with(transport=transport, service=service, url=url, messages=messages, tasks=1, rate=None)
    return float(took["messages"] / took["processor_seconds"])


def _their_rate(client: str, service: str, url: str) -> float:
    command = [competitor_environment.PYTHON, str(_HERE / "competitors.py"), client, service, url]
    ended = subprocess.run([*command, str(_CALLS[client])], check=True, stdout=subprocess.PIPE, text=True)
    took = json.loads(ended.stdout.splitlines()[-1])
    return float(took["messages"] / took["processor_seconds"])


def _section(
    found: Mapping[_Cell, Measurement], scaled: Mapping[int, ScalingPoint], latencies_us: list[int]
) -> Section:
    return Section(
        tables={
            "publish": _costs(found),
            "publish-tasks": scaling_table(_TASK_PER_SECOND, scaled),
            "publish-accuracy": _accuracy(latencies_us),
        },
        plots={"publish": _plot(found)},
    )


def _costs(found: Mapping[_Cell, Measurement]) -> ResultTable:
    rows = []
    for cell, rate in sorted(found.items(), key=_row_order):
        peer = found[_Cell(_THEIRS, "boto3", cell.service, cell.is_tls)]
        cores = f"{_GOAL_PER_SECOND / rate.median:,.0f}" if cell.service == "sqs" and cell.is_tls else ""
        where = (cell.service.upper(), "TLS" if cell.is_tls else "plain")
        rows.append((*where, cell.name, f"{rate.median:,.0f}", rate.noise, rate.over(peer).ratio, cores))
    head = ("service", "wire", "who", "messages a processor second", "noise", "to boto3", "cores for 700,000/s")
    return table(head, rows, text_columns=3)


def _row_order(cell: tuple[_Cell, Measurement]) -> tuple[str, bool, float]:
    return cell[0].service, cell[0].is_tls, -cell[1].median


def _plot(found: Mapping[_Cell, Measurement]) -> str:
    series = ["Sluice in Spark", "its publisher alone", "clients that only send"]
    drawn = [
        ResultBar(
            f"{cell.client}, {cell.service.upper()}{' over TLS' * cell.is_tls}",
            _SERIES.index(cell.kind),
            rate.median,
            f"{rate.median:,.0f}",
        )
        for cell, rate in sorted(found.items(), key=_row_order)
    ]
    return bars("What a message costs", "messages a processor second", series, drawn)


def _accuracy(latencies_us: list[int]) -> ResultTable:
    rows = [
        (
            f"p{share * 100:g}",
            f"{1_000 * _delay_quantile(share):.1f}",
            f"{(percentile(latencies_us, share) or 0) / 1_000:.1f}",
        )
        for share in _SHARES
    ]
    return table(("", "the endpoint's delay, ms", "recorded, ms"), rows, text_columns=1)


def _delay_quantile(share: float) -> float:
    """Return the quantile of the endpoint's delay: a constant, and an exponential one behind it."""
    return _DELAY_SECONDS - _SPREAD_SECONDS * math.log(1 - share)
