"""Saboteurs of dead-letter queues and move tasks. They know a DLQ by its name, which contains `dlq`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import (
    QUEUE_ATTRIBUTES,
    RECEIVE,
    Edit,
    Hook,
    IgnoreCall,
    Saboteur,
    change,
    ignore,
    misreport,
    of_each,
    omit,
    stamp,
)


class _WithholdDeadLetters(Hook):
    """Removes all messages from the answers of a DLQ."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "dlq" in params["QueueUrl"]:
            parsed.pop("Messages", None)


class _HurryDeadLetters(Hook):
    """Fills empty answers of a DLQ with messages that were received from other queues, and are still there."""

    operations = RECEIVE

    def begin(self) -> None:
        self._received: list[dict[str, Any]] = []

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "dlq" not in params["QueueUrl"]:
            self._received += parsed.get("Messages", [])
        elif "Messages" not in parsed and self._received:
            parsed["Messages"] = [self._received.pop(0)]


class _MoveOnce(IgnoreCall):
    """Sends the first move task to the service, and only confirms the others."""

    operations = ("sqs.StartMessageMoveTask",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        confirmation = super().answer(operation, params)
        return confirmation if self._opportunities > 1 else None


def _end_chain(params: dict[str, Any]) -> None:
    """Create a DLQ without its redrive policy, so that it has no DLQ of its own."""
    if "dlq" in params["QueueName"]:
        params["Attributes"].pop("RedrivePolicy", None)


def _quote_receive_count(parsed: dict[str, Any]) -> None:
    if text := parsed["Attributes"].get("RedrivePolicy"):
        policy = json.loads(text)
        parsed["Attributes"]["RedrivePolicy"] = json.dumps(policy | {"maxReceiveCount": str(policy["maxReceiveCount"])})


def _of_tasks(edit: Edit) -> Callable[[int], Hook]:
    """Return a factory of hooks that edit every listed move task."""
    return misreport(of_each("Results", edit), "sqs.ListMessageMoveTasks")


def _count_move(task: dict[str, Any]) -> None:
    task["ApproximateNumberOfMessagesMoved"] += 1


SABOTEURS = {
    "withhold-dead-letters": Saboteur("delivers nothing from a DLQ", _WithholdDeadLetters),
    "ignore-redrive-policy": Saboteur(
        "makes queues without the redrive policy asked for",
        omit("RedrivePolicy", of=("sqs.CreateQueue", "sqs.SetQueueAttributes")),
    ),
    "hurry-dead-letters": Saboteur("delivers from a DLQ what its source still keeps", _HurryDeadLetters),
    "move-once": Saboteur("confirms every move task after the first and does not start it", _MoveOnce),
    "end-chains": Saboteur("makes DLQs without a DLQ of their own", change(_end_chain, "sqs.CreateQueue")),
    "quote-receive-count": Saboteur(
        "reports maxReceiveCount as a string", misreport(_quote_receive_count, QUEUE_ATTRIBUTES)
    ),
    "hide-source-queue": Saboteur(
        "lists all queues of a DLQ but the last",
        misreport(lambda parsed: parsed.update(queueUrls=parsed["queueUrls"][:-1]), "sqs.ListDeadLetterSourceQueues"),
    ),
    "disguise-source": Saboteur(
        "names another queue as the one a dead letter came from",
        stamp("DeadLetterQueueSourceArn", "arn:aws:sqs:disguised"),
    ),
    "ignore-move-task": Saboteur("confirms a move task and does not start it", ignore("sqs.StartMessageMoveTask")),
    "redirect-move-tasks": Saboteur(
        "moves dead letters to their source, whatever the destination",
        omit("DestinationArn", of="sqs.StartMessageMoveTask"),
    ),
    "hurry-move-tasks": Saboteur(
        "ignores the rate of a move task", omit("MaxNumberOfMessagesPerSecond", of="sqs.StartMessageMoveTask")
    ),
    "miscount-moves": Saboteur("reports one message moved too many", _of_tasks(_count_move)),
    "report-moves-done": Saboteur(
        "reports every move task as completed", _of_tasks(lambda task: task.update(Status="COMPLETED"))
    ),
    "reverse-move-tasks": Saboteur(
        "lists the oldest move task first",
        misreport(lambda parsed: parsed["Results"].reverse(), "sqs.ListMessageMoveTasks"),
    ),
    "scramble-task-handles": Saboteur(
        "gives out task handles that lead nowhere",
        misreport(lambda parsed: parsed.update(TaskHandle="c2NyYW1ibGVk"), "sqs.StartMessageMoveTask"),
    ),
    "ignore-cancel": Saboteur(
        "confirms that a move task is cancelled and lets it run", ignore("sqs.CancelMessageMoveTask")
    ),
}
