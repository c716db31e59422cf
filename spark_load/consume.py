"""Consume every queue until its end markers have come: one Spark task is one consumer.

SQS is no Spark source: a receive leases messages and cannot be replayed. So consumers are tasks that work and keep a
journal; what they return does not matter.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession

from sluice import limits
from sluice.history import Identity, identity_of, is_end_marker
from spark_load.coordination import Progress
from spark_load.tasks import CONSUMER, SUMMARY_SCHEMA, Desk, Run, desk

_WAIT_SECONDS = 1
_ERROR_PAUSE_SECONDS = 0.5
_BEFORE_START_SECONDS_MAX = 240
_LAST_POLLS = 2
_DRAIN_FACTOR_MAX = 10  # times the load's duration; only for a driver that is gone, or messages that never end


def consume(spark: SparkSession, run: Run) -> DataFrame:
    """Return the job whose tasks consume all queues; nothing happens until its rows are asked for.

    Runs `consumers_per_queue` tasks for each queue, for the whole run. Not safe to repeat.
    """
    slots = len(run.site.queue_urls) * run.plan.profile.consumers_per_queue

    def slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column("id").to_pylist()]
        for number in numbers:
            with desk(run, CONSUMER) as at:
                progress = _Consumer(at, run, run.queue_of(number)).consume()
            yield pa.RecordBatch.from_pydict(
                {"worker": [progress.worker], "done": [progress.done], "abandoned": [progress.abandoned]}
            )

    return spark.range(0, slots, 1, slots).mapInArrow(slot, SUMMARY_SCHEMA)


class _Consumer:
    """One consumer of one queue."""

    def __init__(self, at: Desk, run: Run, queue: str) -> None:
        self._at, self._run, self._url = at, run, run.site.queue_urls[queue]
        self._progress = Progress(worker=at.name, role="consume", queue=queue)
        profile = run.plan.profile
        self._deadline = at.clock.monotonic() + (
            _BEFORE_START_SECONDS_MAX + profile.duration_seconds * _DRAIN_FACTOR_MAX + profile.drain_timeout_seconds
        )

    def consume(self) -> Progress:
        """Receive and delete until every group has ended, the driver says stop, or far too long has passed."""
        self._at.board.say(self._progress, now=True)
        while not self._is_over():
            self._poll()
            self._at.clock.sleep(self._run.plan.profile.poll_pause_seconds)
        for _ in range(_LAST_POLLS):  # behind the last end marker there should be nothing: look
            self._poll()
        self._at.board.say(self._progress, now=True)
        return self._progress

    def _is_over(self) -> bool:
        if self._at.board.is_stopped() or self._at.clock.monotonic() > self._deadline:
            return True
        siblings = (one for one in self._at.board.everyone() if one.queue == self._progress.queue)
        others = sum(one.ended for one in siblings if one.worker != self._progress.worker)
        return self._progress.ended + others >= self._run.plan.profile.group_count

    def _poll(self) -> None:
        try:
            answer = self._at.sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=limits.RECEIVE_MESSAGES_MAX,
                WaitTimeSeconds=_WAIT_SECONDS,
                MessageSystemAttributeNames=["All"],
            )
            self._delete(answer.get("Messages", []))
        except (BotoCoreError, ClientError):
            self._at.clock.sleep(_ERROR_PAUSE_SECONDS)
        self._at.board.say(self._progress)

    def _delete(self, messages: list[dict[str, Any]]) -> None:
        """Delete what is of this run. A stranger's message is left to whoever waits for it."""
        ours = [(message, identity) for message in messages if (identity := _identity(message)) is not None]
        ours = [(message, identity) for message, identity in ours if identity.run == self._run.id]
        if not ours:
            return
        entries = [
            {"Id": str(position), "ReceiptHandle": message["ReceiptHandle"]}
            for position, (message, _) in enumerate(ours)
        ]
        answer = self._at.sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        for entry in answer.get("Successful", []):
            self._progress.done += 1
            self._progress.ended += is_end_marker(ours[int(entry["Id"])][1].idx)


def _identity(message: dict[str, Any]) -> Identity | None:
    attributes = message.get("Attributes", {})
    return identity_of(
        body=message["Body"],
        deduplication_id=attributes.get("MessageDeduplicationId"),
        message_group_id=attributes.get("MessageGroupId"),
    )
