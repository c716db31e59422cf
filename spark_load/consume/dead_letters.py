"""The driver's steps after the queues were drained: read dead letters, move them back, check that all queues are empty.

Only the driver's journal records the messages in a DLQ. A dead letter is read and released before it is moved back,
because a move task reports a number of messages, and never which.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sluice import limits
from sluice.clock import NotReachedError, eventually
from sluice.history.events import Kind, identity_in
from spark_load.runtime.task_context import LoadRun, TaskContext

_WAIT_SECONDS = 1
_HELD_SECONDS = 600  # received messages stay in flight while a DLQ is read, so that no receive returns them again
_READS_MAX = 100_000
_MOVE_SECONDS_MAX = 600
_COUNTERS = {
    "visible_count": "ApproximateNumberOfMessages",
    "in_flight_count": "ApproximateNumberOfMessagesNotVisible",
    "delayed_count": "ApproximateNumberOfMessagesDelayed",
}
_PROBES = 3  # in a row that must find every queue empty
_PROBES_MAX = 12
_PROBE_SECONDS, _PROBE_SECONDS_ON_AWS = 0.5, 30  # on AWS the counters are right after about a minute


class DeadLetters:
    """The DLQs of a run's queues and subscriptions. Messages of other runs in them are read, too, and released."""

    def __init__(self, context: TaskContext, run: LoadRun) -> None:
        self._context, self._run, self._deployment = context, run, run.deployment

    def read(self, *, keeps: bool, queues: Collection[str] = ()) -> dict[str, int]:
        """Read DLQs until they are empty, and return how many messages of this run were in each.

        All DLQs are read at once, because each waits a second for further messages. Raises some of FAILURES.

        Args:
            keeps: release the messages at the end, instead of deleting them.
            queues: names of DLQs; empty means all of the run.
        """
        queues = queues or (
            *self._deployment.dead_letter_queues.values(),
            *self._deployment.undelivered_queues.values(),
        )
        with ThreadPoolExecutor(len(queues)) as pool:
            counts = pool.map(lambda queue: self._read(self._deployment.urls[queue], keeps=keeps), queues)
            return dict(zip(queues, counts, strict=True))

    def _read(self, url: str, *, keeps: bool) -> int:
        """Read one DLQ; return how many messages of this run were in it."""
        count, to_release = 0, list[str]()
        for messages in self._receives(url):
            ours = [message["ReceiptHandle"] for message in messages if self._is_ours(message)]
            count += len(ours)
            if ours and not keeps:
                self._context.sqs.delete_message_batch(QueueUrl=url, Entries=_entries(ours))
            handles = [message["ReceiptHandle"] for message in messages]
            to_release += handles if keeps else [handle for handle in handles if handle not in ours]
        for batch in batched(to_release, limits.RECEIVE_MESSAGES_MAX):
            self._context.sqs.change_message_visibility_batch(
                QueueUrl=url, Entries=_entries(batch, VisibilityTimeout=0)
            )
        return count

    def _receives(self, url: str) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the messages of one receive after the other, until a receive finds none."""
        for _ in range(_READS_MAX):
            answer = self._context.sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=limits.RECEIVE_MESSAGES_MAX,
                WaitTimeSeconds=_WAIT_SECONDS,
                VisibilityTimeout=_HELD_SECONDS,
                MessageSystemAttributeNames=["All"],
            )
            if not answer.get("Messages"):
                return
            yield answer["Messages"]

    def _is_ours(self, message: Mapping[str, Any]) -> bool:
        identity = identity_in(message)
        return identity is not None and identity.run == self._run.id

    def bring_back(self, queues: Collection[str]) -> int:
        """Move the messages of these DLQs back to their queues, and return how many were moved.

        Messages that a subscription could not deliver stay in its DLQ. Raises some of FAILURES.
        """
        return sum(self._move(dlq) for dlq in self._deployment.dead_letter_queues.values() if dlq in queues)

    def _move(self, dlq: str) -> int:
        """Move the messages of one DLQ back by a move task, and return how many it moved."""
        arn, sqs = self._deployment.arns[dlq], self._context.sqs
        handle = sqs.start_message_move_task(SourceArn=arn).get("TaskHandle")

        def latest() -> dict[str, Any]:
            listed = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=1).get("Results", [])
            return listed[0] if listed else {"Status": "NOT_LISTED"}

        task = eventually(
            latest,
            until=lambda task: task["Status"] not in ("RUNNING", "CANCELLING"),
            timeout_seconds=_MOVE_SECONDS_MAX,
            describe=f"the move task {handle or ''} of {dlq} to end",
            clock=self._context.clock,
        )
        if task["Status"] != "COMPLETED":
            raise NotReachedError(
                f"the move task of {dlq} ended as {task['Status']} ({task.get('FailureReason', 'no reason')})"
            )
        return int(task.get("ApproximateNumberOfMessagesMoved", 0))

    def probe(self) -> bool:
        """Record the counts of every queue until all were zero in three probes in a row; return whether they were."""
        pause_seconds = _PROBE_SECONDS_ON_AWS if self._deployment.endpoint_url is None else _PROBE_SECONDS
        in_a_row = 0
        for _ in range(_PROBES_MAX):
            counts = [self._probe(name, url) for name, url in self._deployment.urls.items()]
            in_a_row = 0 if any(counts) else in_a_row + 1
            if in_a_row == _PROBES:
                return True
            self._context.clock.sleep(pause_seconds)
        return False

    def _probe(self, name: str, url: str) -> int:
        """Record the counts of one queue, and return their sum."""
        requested_at_us = self._context.clock.now_us()
        counts = self._counts(url)
        self._context.journal.add(
            kind=Kind.PROBE.value,
            queue=name,
            invoked_at_us=requested_at_us,
            responded_at_us=self._context.clock.now_us(),
            **counts,
        )
        return sum(counts.values())

    def are_queues_empty(self) -> bool:
        """Return whether the counts of the consumers' queues are zero; this is not recorded."""
        return not any(sum(self._counts(url).values()) for url in self._deployment.queue_urls.values())

    def _counts(self, url: str) -> dict[str, int]:
        attributes = self._context.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return {column: int(attributes[name]) for column, name in _COUNTERS.items()}


FAILURES = (BotoCoreError, ClientError, NotReachedError)
"""Errors after which the rest of the run is still judged."""


def _entries(handles: Sequence[str], **more: Any) -> list[dict[str, Any]]:
    """Return the entries of a batch, one for each receipt handle; `more` is added to each."""
    return [{"Id": str(position), "ReceiptHandle": handle, **more} for position, handle in enumerate(handles)]
