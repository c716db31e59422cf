"""The move tasks that one process started. The answer to the start does not say how a task ends; a later list does.

AWS: StartMessageMoveTask answers at once with a handle; ListMessageMoveTasks tells how a task ended, without the handle
(MOV-07). A DLQ has one task at a time (MOV-10). See API_StartMessageMoveTask.html, API_ListMessageMoveTasks.html and
API_CancelMessageMoveTask.html in https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
(read 2026-11-23).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluice.history.events import CallOutcome

_ENDED = ("COMPLETED", "CANCELLED", "FAILED")
_CLOCKS_DIFFER_US = 60_000_000  # SQS's clock may be this far behind; a task that began earlier still is another one

type EndedTasks = list[tuple[dict[str, Any], CallOutcome]]


@dataclass(frozen=True, slots=True)
class _StartedTask:
    handle: str | None
    row: dict[str, Any]


class RecordedMoveTasks:
    """The known move tasks of each DLQ, by its ARN."""

    def __init__(self) -> None:
        self._started: dict[str, _StartedTask] = {}
        self._earlier: dict[str, set[int]] = defaultdict(set)

    def start(self, source_arn: str, handle: str | None, row: dict[str, Any]) -> None:
        """Remember a task that SQS accepted, by the event of its call."""
        self._started[source_arn] = _StartedTask(handle, row)

    def find_end(self, source_arn: str, tasks: Iterable[Mapping[str, Any]]) -> EndedTasks:
        """Return the event of the task started here, with its outcome, if the list says that it has ended."""
        began = {_us(task["StartedTimestamp"]): task for task in tasks}
        started = self._started.get(source_arn)
        if started is None:
            self._earlier[source_arn] |= began.keys()
            return []
        least_us = started.row["invoked_at_us"] - _CLOCKS_DIFFER_US
        own = [us for us in began if us >= least_us and us not in self._earlier[source_arn]]
        task = began[max(own)] if own else {}  # a task of another process may have begun just before
        if task.get("Status") not in _ENDED:
            return []
        self._started.pop(source_arn, None)
        self._earlier[source_arn] |= began.keys()
        is_whole = task["Status"] == "COMPLETED"
        error = None if is_whole else task.get("FailureReason", task["Status"])
        return [_end_event(started, task, error, CallOutcome.OK if is_whole else CallOutcome.INFO)]

    def cancel(self, handle: str, answer: Mapping[str, Any]) -> EndedTasks:
        """Return the event of the task with that handle that this process started.

        Nobody knows which messages it moved.
        """
        found = [arn for arn, started in self._started.items() if started.handle == handle]
        return [_end_event(self._started.pop(arn), answer, "CANCELLED", CallOutcome.INFO) for arn in found]


def _end_event(started: _StartedTask, answer: Mapping[str, Any], error: str | None, outcome: CallOutcome) -> Any:
    moved = answer.get("ApproximateNumberOfMessagesMoved")
    return started.row | {"moved_count": moved, "error": error}, outcome


def _us(began: int | datetime) -> int:
    return round(began.timestamp() * 1_000_000) if isinstance(began, datetime) else began * 1_000
