"""Publish the plan: a Spark task for each publisher, a group's messages all in one, by time.

Which messages a publisher sends when is `publisher`; what carries them, `transport`.
"""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_load.agenda import Due
from spark_load.coordination import Progress
from spark_load.publisher import Publisher
from spark_load.resume import left, remembered
from spark_load.tasks import PUBLISHER, SUMMARY_SCHEMA, Desk, Run, desk
from spark_load.transport import Transport
from spark_load.transport.ledger import Ledger
from spark_load.transport.opening import opened

_PLAN_SCHEMA = "idx bigint, publish_attempt int, group_number int, offset_us bigint, task int"
_PLAN_ROWS_PER_TASK = 100_000


def plan_rows(spark: SparkSession, run: Run) -> DataFrame:
    """Return the plan as a DataFrame: one row per publish, columns as in `plan.Planned`, no order."""
    plan = run.plan

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield plan.batch(batch.column("id"))

    partitions = 1 + plan.row_count // _PLAN_ROWS_PER_TASK
    return spark.range(0, plan.row_count, 1, partitions).mapInArrow(rows, _PLAN_SCHEMA)


def publish(spark: SparkSession, run: Run) -> DataFrame:
    """Return the job that publishes the plan; nothing happens until its rows are asked for.

    Runs one task per `publish_tasks`, each for the whole duration. Not safe to repeat: `spark.task.maxFailures` is 1.
    """

    def share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        progress = publish_share(run, chain.from_iterable(map(due, batches)))
        yield pa.RecordBatch.from_pydict(
            {"worker": [progress.worker], "done": [progress.done], "abandoned": [progress.abandoned]}
        )

    return (
        (left(spark, run, plan_rows(spark, run)) if run.attempt else plan_rows(spark, run))
        .repartitionById(run.plan.profile.publish_tasks, "task")
        .sortWithinPartitions("offset_us", "publish_attempt", "idx")
        .mapInArrow(share, SUMMARY_SCHEMA)
    )


def publish_share(run: Run, rows: Iterator[Due]) -> Progress:
    """Publish one task's share of the plan, by time; return how it went.

    Runs inside a Spark task; once for each share.
    """
    with desk(run, PUBLISHER) as at:
        transport = _transport(run, at)
        try:
            return Publisher(
                run.plan,
                run=run.id,
                addresses=_addresses(run),
                transport=transport,
                board=at.board,
                clock=at.clock,
                name=at.name,
            ).publish(remembered(run, at.board, rows) if run.begin_by_us else rows)
        finally:
            transport.close()


def due(batch: pa.RecordBatch) -> Iterator[Due]:
    """Return the rows of a batch of the plan."""
    return map(Due, *(batch.column(name).to_pylist() for name in Due._fields))


def _addresses(run: Run) -> list[str]:
    is_straight = run.plan.profile.destination == "queue"
    return list(run.site.queue_urls.values()) if is_straight else [run.site.topic_arn]


def _transport(run: Run, at: Desk) -> Transport:
    service, client = ("sqs", at.sqs) if run.plan.profile.destination == "queue" else ("sns", at.sns)
    ledger = Ledger(at.journal, names=run.site.names(), run=run.id, service=service)
    return opened(run.transport, client, recorder=at.recorder, ledger=ledger, clock=at.clock)
