"""Measure the gain from more publish tasks, each of which is offered the same.

They are measured at a rate that leaves cores free: two cores cannot show more of tasks that go as fast as they can.
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
    """Yield what does one job, in a process of its own; options are those of `spark_publishers`."""
    command = [sys.executable, "-m", "benchmarks.publishing.spark_publishers", *options]
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


def measure_scaling(
    publish_with: Publish,
    url: str,
    counts: Sequence[int],
    per_second: int,
    rounds: int,
) -> dict[int, ScalingPoint]:
    """Return what so many publishers do, without what a job costs that publishes next to nothing.

    Each is offered `per_second`.
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
    """Return the table of what was measured of so many tasks."""
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
