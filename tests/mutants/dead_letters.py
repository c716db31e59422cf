"""Mutants of every rule of dead letters, redrive policies and move tasks."""

# ruff: noqa: E501 (a table: one row per mutant)
import json
from collections.abc import Callable, Mapping
from typing import Any

from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues import settings
from sluice.simulator.model.queues.fifo import FifoQueue
from sluice.simulator.model.queues.moving import MoveTaskState, SimulatedMoveTasks
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.queues.sqs import Sqs
from tests.mutants.mutant import Mutant, after, returning, without

_POLICY = SimulatedQueue.redrive_policy
_START = SimulatedMoveTasks.start
_SETTLE = Sqs.settle
_DEAD_LETTER = FifoQueue.take_dead_letter
_REDRIVEN = SimulatedQueue.take_redriven
_MOVABLE = SimulatedMoveTasks._movable
_LIST = SimulatedMoveTasks.list


def _first_policy(self: SimulatedQueue) -> Any:
    return self.__dict__.setdefault("first_policy", _POLICY(self))


def _dead_at_once(self: Sqs, now: float) -> None:
    """Move a message to the DLQ when its last visibility timeout ends, without waiting for another receive."""
    _SETTLE(self, now)
    for source in list(self.queues.values()):
        target = self.queues.get(source.dead_letter_arn() or "")
        for held in source.receivable(now) if target is not None else ():
            if target is not None and source.is_exhausted(held):
                del source.messages[held.id]
                target.take_dead_letter(held, now, source_arn=source.arn)


def _dead_letter_with(**changes: Callable[[QueuedMessage, float], Any]) -> Callable[..., None]:
    """Return a `take_dead_letter` that changes these fields of the copy in the DLQ."""

    def take(self: FifoQueue, dead: QueuedMessage, now: float, *, source_arn: str) -> None:
        _DEAD_LETTER(self, dead, now, source_arn=source_arn)
        for name, value in changes.items():
            setattr(self.messages[dead.id], name, value(dead, now))

    return take


def _redrive_with(**changes: Callable[[QueuedMessage, float], Any]) -> Callable[..., None]:
    """Return a `take_redriven` that changes these fields of the redriven message."""

    def take(self: SimulatedQueue, moved: QueuedMessage, now: float, *, id_: str) -> None:
        _REDRIVEN(self, moved, now, id_=id_)
        for name, value in changes.items():
            if id_ in self.messages:
                setattr(self.messages[id_], name, value(moved, now))

    return take


def _beside_another(self: SimulatedMoveTasks, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    before, self._tasks = self._tasks, []
    try:
        return _START(self, params, now)
    finally:
        self._tasks = before + self._tasks


def _at_any_rate(_: None, _self: SimulatedMoveTasks, task: MoveTaskState) -> None:
    task.next_at = task.started_at


def _never_cancelled(_: None, _self: SimulatedMoveTasks, task: MoveTaskState) -> None:
    if task.status == "CANCELLED":
        task.status = "COMPLETED"


def _nothing_moved(_: None, _self: SimulatedMoveTasks, task: MoveTaskState) -> None:
    task.moved = 0


def _loses_what_fails(_: None, self: SimulatedMoveTasks, task: MoveTaskState) -> None:
    source = self._queues.get(task.source_arn)
    if task.status == "FAILED" and source is not None:
        for held in source.receivable(task.next_at)[:1]:
            del source.messages[held.id]


def _skips_what_fails(_: None, _self: SimulatedMoveTasks, task: MoveTaskState) -> None:
    if task.status == "FAILED":
        task.status, task.failure = "COMPLETED", None


def _moves_one_only(self: SimulatedMoveTasks, source: SimulatedQueue, now: float) -> list[QueuedMessage]:
    is_begun = any(task.source_arn == source.arn and task.moved for task in self._tasks[-1:])
    return [] if is_begun else _MOVABLE(self, source, now)


def _to_first_source(self: SimulatedMoveTasks, source: SimulatedQueue, now: float) -> list[QueuedMessage]:
    movable = _MOVABLE(self, source, now)
    for each in movable:
        each.source_arn = movable[0].source_arn
    return movable


def _without_field(*names: str) -> Callable[..., dict[str, Any]]:
    return lambda result, *_: {name: value for name, value in result.items() if name not in names}


def _of_all_sources(self: SimulatedMoveTasks, params: Mapping[str, Any], _now: float) -> dict[str, Any]:
    self._find("SourceArn", params["SourceArn"])
    return {"Results": [task.as_result() for task in reversed(self._tasks)][: params.get("MaxResults", 1)]}


def _all_without_limit(self: SimulatedMoveTasks, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    return _LIST(self, {"MaxResults": 10, **params}, now)


def _read_as_text(text: str) -> tuple[str, int]:
    policy = json.loads(text)
    return str(policy["deadLetterTargetArn"]), int(policy["maxReceiveCount"])


_STEP = (SimulatedMoveTasks, "_step")
_READ = (settings, "_read_redrive_policy")
MUTANTS = (
    # Dead-lettering.
    Mutant("dead-without-receive", "a message dies without another receive", Sqs, "settle", _dead_at_once),
    Mutant("first-redrive-policy", "a changed maxReceiveCount has no effect", SimulatedQueue, "redrive_policy", _first_policy),
    Mutant("dlq-loses-body", "the DLQ copy is another text", FifoQueue, "take_dead_letter", _dead_letter_with(body=lambda dead, _now: dead.body.upper())),
    Mutant("dlq-loses-trace", "the DLQ copy has no trace header", FifoQueue, "take_dead_letter", _dead_letter_with(trace_header=lambda *_: "Root=1-00000000-000000000000000000000000")),
    Mutant("dlq-hides", "the DLQ copy is invisible at first", FifoQueue, "take_dead_letter", _dead_letter_with(visible_at=lambda _dead, now: now + 3_600)),
    Mutant("dlq-old-retention", "a FIFO DLQ continues the retention", FifoQueue, "take_dead_letter", _dead_letter_with(retained_from=lambda dead, _now: dead.retained_from)),
    # Redrive policies.
    Mutant("by-queue-allows-all", "byQueue allows every queue", settings, "_allows", lambda policy, *, source: policy is None or "denyAll" not in policy or source == ""),
    Mutant("deny-all-allows", "denyAll denies nobody", settings, "_allows", after(settings, "_allows", lambda result, policy, **_: result or "denyAll" in (policy or ""))),
    Mutant("target-need-no-arn", "the target of a redrive policy need not be an ARN", *_READ, _read_as_text),
    Mutant("sources-not-listed", "ListDeadLetterSourceQueues lists nothing", Sqs, "_list_dead_letter_source_queues", returning({"queueUrls": []})),
    Mutant("sources-of-all", "ListDeadLetterSourceQueues lists every queue with a DLQ", Sqs, "_list_dead_letter_source_queues", lambda self, _params, _now: {"queueUrls": sorted(queue.url for queue in self.queues.values() if queue.dead_letter_arn())}),
    # What a move task moves.
    Mutant("moves-behind-in-flight", "a move task takes what is behind a message in flight", FifoQueue, "receivable", SimulatedQueue.receivable),
    Mutant("moves-one-only", "a move task moves one message", SimulatedMoveTasks, "_movable", _moves_one_only),
    Mutant("moves-to-one-source", "without destination everything goes to the first one's source", SimulatedMoveTasks, "_movable", _to_first_source),
    Mutant("redrive-loses-attributes", "a redriven message has no attributes", SimulatedQueue, "take_redriven", _redrive_with(attributes=lambda *_: {})),
    Mutant("redrive-loses-body", "a redriven message is another text", SimulatedQueue, "take_redriven", _redrive_with(body=lambda moved, _now: moved.body.upper())),
    Mutant("redrive-keeps-sent", "a redriven message keeps its time of sending", SimulatedQueue, "take_redriven", _redrive_with(sent_at=lambda moved, _now: moved.sent_at)),
    Mutant("redrive-keeps-retention", "a redriven message continues its retention", SimulatedQueue, "take_redriven", _redrive_with(retained_from=lambda moved, _now: moved.retained_from)),
    Mutant("redrive-keeps-message-id", "a redriven message keeps its message id", SimulatedQueue, "take_redriven", lambda self, moved, now, *, id_: _REDRIVEN(self, moved, now, id_=moved.id)),  # noqa: ARG005
    Mutant("redrive-hidden", "a redriven message is invisible at first", SimulatedQueue, "take_redriven", _redrive_with(visible_at=lambda _moved, now: now + 3_600)),
    # What a move task answers.
    Mutant("two-tasks", "a DLQ may have two tasks at a time", SimulatedMoveTasks, "start", _beside_another),
    Mutant("rate-ignored", "a rate has no effect", *_STEP, after(*_STEP, _at_any_rate)),
    Mutant("cancelled-as-completed", "a cancelled task is listed as completed", *_STEP, after(*_STEP, _never_cancelled)),
    Mutant("moved-not-counted", "a task does not count what it moved", *_STEP, after(*_STEP, _nothing_moved)),
    Mutant("failure-loses-message", "what cannot be moved is lost", *_STEP, after(*_STEP, _loses_what_fails)),
    Mutant("failure-as-completed", "a task that cannot move is completed", *_STEP, after(*_STEP, _skips_what_fails)),
    Mutant("to-move-missing", "a task does not say how many it has to move", MoveTaskState, "as_result", after(MoveTaskState, "as_result", _without_field("ApproximateNumberOfMessagesToMove"))),
    Mutant("rate-missing", "a task does not say its rate", MoveTaskState, "as_result", after(MoveTaskState, "as_result", _without_field("MaxNumberOfMessagesPerSecond"))),
    Mutant("destination-missing", "a task does not say its destination", MoveTaskState, "as_result", after(MoveTaskState, "as_result", _without_field("DestinationArn"))),
    Mutant("start-time-in-seconds", "a task's start is given in seconds", MoveTaskState, "as_result", after(MoveTaskState, "as_result", lambda result, _: result | {"StartedTimestamp": result["StartedTimestamp"] // 1_000})),
    Mutant("handle-missing", "a running task has no handle", MoveTaskState, "as_result", after(MoveTaskState, "as_result", _without_field("TaskHandle"))),
    Mutant("tasks-of-all", "tasks of every source are listed", SimulatedMoveTasks, "list", _of_all_sources),
    Mutant("all-tasks-listed", "all tasks are listed unless fewer are requested", SimulatedMoveTasks, "list", _all_without_limit),
    Mutant("destination-of-any-type", "source and destination need not be of one type", SimulatedMoveTasks, "_check_destination", without(SimulatedMoveTasks, "_check_destination", "same queue type")),
    Mutant("same-destination", "source and destination may be one queue", SimulatedMoveTasks, "_check_destination", without(SimulatedMoveTasks, "_check_destination", "cannot be the same")),
    Mutant("cancel-of-nothing", "a task that is not there can be cancelled", SimulatedMoveTasks, "cancel", without(SimulatedMoveTasks, "cancel", "Task does not exist", instead={"ApproximateNumberOfMessagesMoved": 0})),
    Mutant("cancel-of-ended", "a task that has ended can be cancelled", SimulatedMoveTasks, "cancel", without(SimulatedMoveTasks, "cancel", "Only active tasks", instead={"ApproximateNumberOfMessagesMoved": 0})),
    Mutant("cancel-moves-all", "a cancelled task says it moved nothing", SimulatedMoveTasks, "cancel", after(SimulatedMoveTasks, "cancel", lambda *_: {"ApproximateNumberOfMessagesMoved": 0})),
)  # fmt: skip
