"""Publish the plan: open loop, each message at its intended time, a group strictly one after the other.

A task never sends two messages of one group in one call: entries of a batch can fail apart, and the later one would
already be in. A call that fails is repeated with the same deduplication ids until it is too old to be safe; then its
groups are abandoned, because whatever came after would be a reorder of our own making.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession

from sluice import limits
from spark_load.coordination import Progress
from spark_load.plan import Planned
from spark_load.profile import OVERHEAD_BYTES
from spark_load.tasks import PUBLISHER, SUMMARY_SCHEMA, Desk, Run, desk

_PLAN_SCHEMA = "idx bigint, publish_attempt int, group_number int, offset_us bigint, task int"
_PLAN_ROWS_PER_TASK = 100_000
_LOOK_AHEAD = 200
_RETRY_SECONDS_MAX = 30  # far inside the deduplication window, so a retry is never a second message
_RETRY_PAUSE_SECONDS = 0.5


def plan_rows(spark: SparkSession, run: Run) -> DataFrame:
    """Return the plan as a DataFrame: one row per publish, columns as in `plan.Planned`, no order."""
    plan = run.plan

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _to_batch(planned for number in batch.column("id").to_pylist() for planned in plan.rows(number))

    partitions = 1 + plan.row_count // _PLAN_ROWS_PER_TASK
    return spark.range(0, plan.row_count, 1, partitions).mapInArrow(rows, _PLAN_SCHEMA)


def _to_batch(planned: Iterable[Planned]) -> pa.RecordBatch:
    listed = list(planned)
    types = {
        "idx": pa.int64(),
        "publish_attempt": pa.int32(),
        "group_number": pa.int32(),
        "offset_us": pa.int64(),
        "task": pa.int32(),
    }
    return pa.RecordBatch.from_pydict(
        {name: [getattr(one, name) for one in listed] for name in types}, schema=pa.schema(list(types.items()))
    )


def publish(spark: SparkSession, run: Run) -> DataFrame:
    """Return the job that publishes the plan; nothing happens until its rows are asked for.

    Runs one task per `publish_tasks`, each for the whole duration. Not safe to repeat: `spark.task.maxFailures` is 1.
    """

    def share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with desk(run, PUBLISHER) as at:
            rows = (Planned(**row) for batch in batches for row in batch.to_pylist())
            progress = _Publisher(at, run).publish(rows)
        yield pa.RecordBatch.from_pydict(
            {"worker": [progress.worker], "done": [progress.done], "abandoned": [progress.abandoned]}
        )

    return (
        plan_rows(spark, run)
        .repartitionById(run.plan.profile.publish_tasks, "task")
        .sortWithinPartitions("offset_us", "publish_attempt", "idx")
        .mapInArrow(share, SUMMARY_SCHEMA)
    )


class _Publisher:
    """Publishes one task's share."""

    def __init__(self, at: Desk, run: Run) -> None:
        self._at, self._run = at, run
        self._progress = Progress(worker=at.name, role="publish")
        self._waiting: deque[Planned] = deque()
        self._failing_since: float | None = None
        self._abandoned: set[int] = set()
        self._message_bytes = run.plan.profile.payload_bytes + OVERHEAD_BYTES

    def publish(self, rows: Iterator[Planned]) -> Progress:
        """Publish every row at its time, unless told to stop; return how it went."""
        self._at.board.say(self._progress, now=True)
        start_us = self._at.board.await_start()
        coming = next(rows, None)
        while (coming is not None or self._waiting) and not self._at.board.is_stopped():
            now_us = self._at.clock.now_us() - start_us
            while coming is not None and coming.offset_us <= now_us and len(self._waiting) < _LOOK_AHEAD:
                self._waiting.append(coming)
                coming = next(rows, None)
            batch = self._take_batch()
            if batch:
                self._send(batch, start_us)
            elif coming is not None:
                linger_seconds = self._run.plan.profile.publish_linger_seconds
                self._at.clock.sleep((coming.offset_us - now_us) / 1_000_000 + linger_seconds)
            self._at.board.say(self._progress)
        self._at.board.say(self._progress, now=True)
        return self._progress

    def _take_batch(self) -> list[Planned]:
        """Take the next messages that are due: at most ten, at most one of each group, in order."""
        batch: list[Planned] = []
        kept: deque[Planned] = deque()
        groups: set[int] = set()
        room = min(limits.PUBLISH_BATCH_ENTRIES_MAX, limits.PUBLISH_BYTES_MAX // self._message_bytes)
        while self._waiting and len(batch) < room:
            planned = self._waiting.popleft()
            if planned.group_number in self._abandoned:
                self._progress.abandoned += 1
            elif planned.group_number in groups:
                kept.append(planned)
            else:
                groups.add(planned.group_number)
                batch.append(planned)
        self._waiting.extendleft(reversed(kept))
        return batch

    def _send(self, batch: list[Planned], start_us: int) -> None:
        failed = self._failed(batch, start_us)
        self._progress.done += len(batch) - len(failed)
        if not failed:
            self._failing_since = None
            return
        now = self._at.clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since > _RETRY_SECONDS_MAX:
            self._abandoned |= {planned.group_number for planned in failed}
            self._progress.abandoned += len(failed)
            return
        self._waiting.extendleft(reversed(failed))
        self._at.clock.sleep(_RETRY_PAUSE_SECONDS)

    def _failed(self, batch: list[Planned], start_us: int) -> list[Planned]:
        """Publish the batch once and return what was not acknowledged, in order."""
        entries: list[dict[str, Any]] = []
        for position, planned in enumerate(batch):
            deduplication_id = self._run.plan.deduplication_id(planned, self._run.id)
            self._at.recorder.plan(
                deduplication_id=deduplication_id,
                intended_at_us=start_us + planned.offset_us,
                publish_attempt=planned.publish_attempt,
            )
            entries.append(
                {
                    "Id": str(position),
                    "Message": self._run.plan.body(planned.idx, planned.group_number, self._run.id),
                    "MessageGroupId": self._run.plan.identity(planned, self._run.id).message_group_id,
                    "MessageDeduplicationId": deduplication_id,
                }
            )
        try:
            answer = self._at.sns.publish_batch(TopicArn=self._run.site.topic_arn, PublishBatchRequestEntries=entries)
        except (BotoCoreError, ClientError):
            return batch
        acknowledged = {entry["Id"] for entry in answer.get("Successful", [])}
        return [planned for position, planned in enumerate(batch) if str(position) not in acknowledged]
