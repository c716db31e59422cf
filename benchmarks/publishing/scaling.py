"""Measure the gain from more publish tasks, each of which is offered the same.

The rate leaves cores free: on two cores, tasks without a limit would only compete for the processor.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from benchmarks.report import ResultTable, table
from benchmarks.rounds import Measurement, interleave
from sluice.history.delays import percentile

type Publish = Callable[..., dict[str, Any]]

_SECONDS, _LINGER_SECONDS = 5, 0.02
_FEW_MESSAGES = 100


class ScalingPoint(NamedTuple):
    """Figures of some publishers: messages a second, microseconds of processor time a message, and seconds late."""

    rate: Measurement
    cost: Measurement
    late: Measurement


@contextmanager
def publishers(*options: str) -> Iterator[Publish]:
    """Start `spark_publishers` with these options, and yield a function that lets it do one job."""
    command = [sys.executable, "-m", "benchmarks.publishing.spark_publishers", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        jobs, answers = process.stdin, process.stdout

        def publish_with(**job: Any) -> dict[str, Any]:
            print(json.dumps(job), file=jobs, flush=True)
            answer: dict[str, Any] = json.loads(answers.readline())
            assert answer["messages"] >= job["messages"], f"{job} sent only {answer['messages']} messages"
            return answer

        yield publish_with
        jobs.close()


def measure_scaling(
    publish_with: Publish,
    url: str,
    counts: Sequence[int],
    per_second: int,
    rounds: int,
) -> dict[int, ScalingPoint]:
    """Return the figures for each number of tasks in `counts`; each task is offered `per_second` messages.

    The fixed cost of a job, measured with 100 messages, is subtracted.
    """
    costs: dict[int, list[float]] = {count: [] for count in counts}
    lates: dict[int, list[float]] = {count: [] for count in counts}

    def run_job(count: int, messages: int) -> dict[str, Any]:
        job = {"transport": "sockets", "service": "sqs", "url": url, "tasks": count, "rate": per_second * count}
        return publish_with(**job, messages=messages, linger_seconds=_LINGER_SECONDS)

    def rate(count: int) -> float:
        few, took = run_job(count, _FEW_MESSAGES), run_job(count, per_second * count * _SECONDS)
        seconds = took["processor_seconds"] - few["processor_seconds"]
        costs[count].append(1e6 * seconds / (took["messages"] - few["messages"]))
        lates[count].append((percentile(took["late_us"], 0.99) or 0) / 1e6)
        return float(took["messages"] / took["load_seconds"])

    rates = interleave({count: partial(rate, count) for count in counts}, rounds)
    return {
        count: ScalingPoint(rates[count], Measurement(tuple(costs[count])), Measurement(tuple(lates[count])))
        for count in counts
    }


def scaling_table(per_second: int, scaled: Mapping[int, ScalingPoint]) -> ResultTable:
    """Return a table with a row for each number of tasks."""
    rows = [
        (
            count,
            f"{per_second * count:,}",
            f"{found.rate.median:,.0f}",
            found.rate.over(scaled[1].rate).ratio,
            f"{found.late.median:.2f}",
            f"{found.cost.median:.0f}",
            found.cost.noise,
        )
        for count, found in scaled.items()
    ]
    head = (
        *("tasks", "offered/s", "answered/s", "to one"),
        *("99% answered within, s", "processor µs a message", "noise"),
    )
    return table(head, rows, text_columns=0)
