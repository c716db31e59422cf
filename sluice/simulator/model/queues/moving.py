"""Message move tasks: they move dead letters to the queue they came from, or to another one, at a given rate.

Ids in brackets, such as [MOV-14], are promises: `contract_tests.promises` has each as a sentence.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.refusal import invalid_parameter, invalid_value, not_found

RATE_MAX = 500  # [MOV-14]
RESULTS_MAX = 10  # [MOV-15]
_ARN = re.compile(r"arn:[\w-]+:sqs:[\w-]+:\d+:[\w.-]+")
_CANCEL_SECONDS = 0.001  # how long a task stays CANCELLING
type Queues = Mapping[str, SimulatedQueue]
"""The queues of an account, by ARN."""


@dataclass(slots=True, kw_only=True)
class MoveTaskState:
    """One move task; instants are seconds.

    Args:
        destination_arn: None moves each message to the queue it came from.
        rate: messages per second; None moves all at once.
        to_move: messages that could be moved when the task was started.
        next_at: when the task takes its next step.
        status: one of AWS's: RUNNING, CANCELLING, CANCELLED, COMPLETED, FAILED.
    """

    id: str
    source_arn: str
    destination_arn: str | None
    rate: int | None
    started_at: float
    to_move: int
    next_at: float
    moved: int = 0
    status: str = "RUNNING"
    failure: str | None = None

    def handle(self) -> str:
        """Return the opaque handle: base64 of a JSON object [MOV-06]."""
        return base64.b64encode(json.dumps({"taskId": self.id, "sourceArn": self.source_arn}).encode()).decode()

    def as_result(self) -> dict[str, Any]:
        """Return the task's entry in ListMessageMoveTasks; only a running task has a handle [MOV-07, MOV-11]."""
        known = {
            "TaskHandle": self.handle() if self.status == "RUNNING" else None,
            "Status": self.status,
            "SourceArn": self.source_arn,
            "DestinationArn": self.destination_arn,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.failure,
            "StartedTimestamp": round(self.started_at * 1_000),
        }
        return {name: value for name, value in known.items() if value is not None}


class SimulatedMoveTasks:
    """All move tasks of an account.

    Args:
        queues: the account's queues; the caller adds and removes queues later.
        new_id: makes task and message ids.
    """

    def __init__(self, queues: Queues, new_id: Callable[[], str]) -> None:
        self._queues, self._new_id = queues, new_id
        self._tasks: list[MoveTaskState] = []

    def changes_after(self, now: float) -> Iterator[float]:
        """Yield the instants after `now` at which a task takes its next step."""
        yield from (
            task.next_at for task in self._tasks if task.status in ("RUNNING", "CANCELLING") and task.next_at > now
        )

    def settle(self, now: float) -> None:
        """Let every task take the steps whose instant has come."""
        for task in self._tasks:
            while task.status in ("RUNNING", "CANCELLING") and task.next_at <= now:
                self._step(task)

    def _step(self, task: MoveTaskState) -> None:
        """Move the oldest message of a task's source queue [MOV-20], or end the task.

        A task receives as a consumer does: messages in flight stay, and so do the messages of their groups
        [MOV-26, not recorded].
        """
        step_at = task.next_at
        if task.status == "CANCELLING":
            task.status = "CANCELLED"
            return
        source = self._queues.get(task.source_arn)
        movable = [] if source is None else self._movable(source, step_at)
        if source is None or not movable:
            task.status = "COMPLETED"
            return
        message = movable[0]
        destination_arn = task.destination_arn or message.source_arn
        destination = self._queues.get(destination_arn or "")
        if destination is None:  # [MOV-12, MOV-21]
            task.status = "FAILED"
            task.failure = (
                "CouldNotDetermineMessageSource"
                if destination_arn is None
                else "AWS.SimpleQueueService.NonExistentQueue"
            )
            return
        del source.messages[message.id]
        destination.settle(step_at)
        destination.take_redriven(message, step_at, id_=self._new_id())
        task.moved += 1
        if len(movable) == 1:
            task.status = "COMPLETED"
        if task.rate is not None:  # without a rate AWS chooses one; the model moves everything at once
            task.next_at = step_at + 1 / task.rate

    def _movable(self, source: SimulatedQueue, now: float) -> list[QueuedMessage]:
        """Return the messages that a task could move now, the oldest first."""
        return source.receivable(now)

    def start(self, params: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Start a task and return its handle [MOV-01, MOV-02, MOV-10, MOV-14, MOV-16, MOV-22, MOV-23]."""
        source_arn, destination_arn = params["SourceArn"], params.get("DestinationArn")
        source = self._find("SourceArn", source_arn)
        self._check_source(source)
        if destination_arn is not None:
            self._check_destination(source, destination_arn)
        rate = params.get("MaxNumberOfMessagesPerSecond")
        if rate is not None and not 1 <= rate <= RATE_MAX:
            raise invalid_value(
                "Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: You must enter a number that's "
                "between 1 and 500."
            )
        if any(task.source_arn == source_arn and task.status in ("RUNNING", "CANCELLING") for task in self._tasks):
            raise invalid_value(
                "There is already a task running. "
                "Only one active task is allowed for a source queue arn at a given time."
            )
        task = MoveTaskState(
            id=self._new_id(),
            source_arn=source_arn,
            destination_arn=destination_arn,
            rate=rate,
            started_at=now,
            to_move=len(self._movable(source, now)),
            next_at=now,
        )
        self._tasks.append(task)
        return {"TaskHandle": task.handle()}

    def _check_source(self, source: SimulatedQueue) -> None:
        if not any(queue.dead_letter_arn() == source.arn for queue in self._queues.values()):
            raise invalid_value("Source queue must be configured as a Dead Letter Queue.")

    def _check_destination(self, source: SimulatedQueue, destination_arn: str) -> None:
        if destination_arn == source.arn:
            raise invalid_value("Source queue arn and destination queue arn cannot be the same.")
        if self._find("DestinationArn", destination_arn).is_fifo != source.is_fifo:
            raise invalid_value("The source queue and destination queue must be of the same queue type.")

    def _find(self, parameter: str, arn: str) -> SimulatedQueue:
        """Return the queue of an ARN; `parameter` is the name that AWS's refusal gives the ARN."""
        if not _ARN.fullmatch(arn):
            raise invalid_value(
                f"You must use this format to specify the {parameter}: "
                "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
            )
        queue = self._queues.get(arn)
        if queue is None:
            raise not_found(f"The resource that you specified for the {parameter} parameter doesn't exist.")
        return queue

    def list(self, params: Mapping[str, Any], _: float) -> dict[str, Any]:
        """Return the tasks of a source queue, the newest first; without MaxResults only the newest [MOV-15]."""
        self._find("SourceArn", params["SourceArn"])
        most = params.get("MaxResults", 1)
        if not 1 <= most <= RESULTS_MAX:  # text not recorded
            raise invalid_parameter("MaxResults", most, "Must be between 1 and 10, if provided.")
        of_source = [task for task in reversed(self._tasks) if task.source_arn == params["SourceArn"]]
        return {"Results": [task.as_result() for task in of_source[:most]]}

    def cancel(self, params: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Cancel a running task, and return how many messages it has moved [MOV-04, MOV-11, MOV-13]."""
        try:
            named = json.loads(base64.b64decode(params["TaskHandle"], validate=True))
            task_id, source_arn = named["taskId"], named["sourceArn"]
        except (binascii.Error, ValueError, KeyError, TypeError):
            raise invalid_value("Value for parameter TaskHandle is invalid.") from None
        self._find("SourceArn", source_arn)
        task = next((task for task in self._tasks if task.id == task_id), None)
        if task is None:
            raise not_found("Task does not exist.")
        if task.status != "RUNNING":  # text not recorded
            raise invalid_value("Only active tasks can be cancelled.")
        task.status, task.next_at = "CANCELLING", now + _CANCEL_SECONDS
        return {"ApproximateNumberOfMessagesMoved": task.moved}
