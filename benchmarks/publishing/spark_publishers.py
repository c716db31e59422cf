"""The publishers of the load test, without consumers, a job for each line.

`python -m benchmarks.publishing.spark_publishers` starts them.

With `--alone` one publisher runs in this process, without Spark: the difference is the cost of Spark.

A line of input is JSON: transport, service, url, messages, tasks, and a rate, or null for as fast as possible. A line
of output has the seconds of the whole job, plan and exchange included, and the processor seconds of this process, the
JVM and the Python workers. With a rate, it also has the latencies that the history recorded.
"""

import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.processes import processor_seconds
from sluice.clock import SystemClock, clock_id, wall_minus_monotonic_us
from sluice.recorder.journal import read_journal
from spark_load.plan.plan import Plan
from spark_load.profiles.profile import Profile
from spark_load.publish.job import publish, publish_share
from spark_load.run.driver import TASK_MODULES
from spark_load.runtime import spark_session
from spark_load.runtime.coordinator import RunStep
from spark_load.runtime.deployment import LoadDeployment
from spark_load.runtime.task_context import LoadRun

_BODY_BYTES = 1_024
_ENVELOPE_BYTES = 99  # of the JSON around the payload
_GROUPS = 1_000
_SLOTS = 4
_START_DELAY_US = 4_000_000  # by then every task has started and waits
_clock = SystemClock()


@click.command()
@click.option("--alone", is_flag=True)
def main(*, alone: bool) -> None:
    """Do one job after the other until the input ends."""
    with nullcontext() if alone else spark_session.running(_SLOTS, preload=TASK_MODULES) as spark:
        for line in sys.stdin:
            print(json.dumps(_run_job(spark, **json.loads(line))), flush=True)


def _run_job(
    spark: SparkSession | None,
    *,
    transport: str,
    service: str,
    url: str,
    messages: int,
    tasks: int,
    rate: float | None,
    linger_seconds: float = 0,
) -> dict[str, Any]:
    profile = Profile(
        messages_per_second=rate or 1_000_000,
        duration_seconds=messages / (rate or 1_000_000),
        group_count=_GROUPS,
        payload_bytes=_BODY_BYTES - _ENVELOPE_BYTES,
        destination="topic" if service == "sns" else "queue",
        publish_tasks=tasks,
        publish_linger_seconds=linger_seconds,
        catch_up_ratio=100,
    )
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        run = LoadRun(
            id="20260101T000000-local-publish-0000",
            folder=Path(folder),
            deployment=_deployment(url),
            plan=Plan(profile, 1),
            clock_id=clock_id(),
            clock_offset_us=wall_minus_monotonic_us(),
            transport=transport,
        )
        began, began_processor = _clock.monotonic(), processor_seconds(os.getpid())
        run.coordinator(_clock).reach(RunStep.START, _clock.now_us() + (_START_DELAY_US if rate else 0))
        done = _publish(spark, run)
        seconds, processor = _clock.monotonic() - began, processor_seconds(os.getpid()) - began_processor
        return {
            "messages": done - _GROUPS,  # end markers are small, and not counted
            "seconds": seconds,
            "processor_seconds": processor,
            **(_read_journals(run.journals) if rate else {}),
        }


def _publish(spark: SparkSession | None, run: LoadRun) -> int:
    if spark is not None:
        return sum(row["done"] for row in publish(spark, run, None).collect())
    rows = run.plan.batch(np.arange(run.plan.row_count)).sort_by([("offset_us", "ascending")])
    return publish_share(run, iter([rows])).done


def _read_journals(journals: Path) -> dict[str, Any]:
    """Return each call's latency, each message's delay behind the plan, and the seconds the load took."""
    table = pa.concat_tables(map(read_journal, journals.iterdir()))
    table = table.filter(pc.and_(pc.equal(table.column("kind"), "published"), pc.greater_equal(table.column("idx"), 0)))
    invoked, answered = table.column("invoked_at_us"), table.column("responded_at_us")
    return {
        "latencies_us": pc.subtract(answered, invoked).to_pylist(),
        "late_us": pc.subtract(answered, table.column("intended_at_us")).to_pylist(),
        "load_seconds": (pc.max(answered).as_py() - pc.min(invoked).as_py()) / 1e6,
    }


def _deployment(url: str) -> LoadDeployment:
    return LoadDeployment(
        endpoint_url=url,
        region="us-east-1",
        topic_arn="arn:aws:sns:us-east-1:000000000000:t.fifo",
        topic="t.fifo",
        queue_urls={f"q{number}.fifo": f"{url}/000000000000/q{number}.fifo" for number in range(3)},
        dead_letter_queues={},
        visibility_timeout_seconds={},
        max_receive_count={},
    )


if __name__ == "__main__":
    main()
