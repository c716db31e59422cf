"""Breaks the reported outcome of a call: refusals, and which entries of a batch failed."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import Hook, Saboteur, misreport

_CALLS = {
    "queues": ("sqs.CreateQueue",),
    "attributes": ("sqs.SetQueueAttributes",),
    "lookups": ("sqs.GetQueueAttributes",),
    "sends": ("sqs.SendMessage",),
    "batches": ("sqs.SendMessageBatch", "sqs.DeleteMessageBatch", "sqs.ChangeMessageVisibilityBatch"),
    "receives": ("sqs.ReceiveMessage",),
    "deletes": ("sqs.DeleteMessage",),
    "changes": ("sqs.ChangeMessageVisibility",),
    "purges": ("sqs.PurgeQueue",),
    "moves": ("sqs.StartMessageMoveTask", "sqs.ListMessageMoveTasks"),
    "cancels": ("sqs.CancelMessageMoveTask",),
    "topics": ("sns.CreateTopic", "sns.DeleteTopic", "sns.TagResource"),
    "topic-attributes": ("sns.SetTopicAttributes",),
    "subscriptions": ("sns.Subscribe",),
    "subscription-attributes": ("sns.SetSubscriptionAttributes", "sns.GetSubscriptionAttributes"),
    "publishes": ("sns.Publish",),
    "publish-batches": ("sns.PublishBatch",),
}
_BATCHES = ("sqs.SendMessageBatch", "sqs.DeleteMessageBatch", "sqs.ChangeMessageVisibilityBatch")


class _HideErrors(Hook):
    operations = ("sqs", "sns")  # a service alone is all of its operations

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        http_response.status_code = 200


class _BlurErrors(Hook):
    operations = ("sqs", "sns")

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Error" in parsed:
            parsed["Error"]["Message"] = "Bad Request"


class _LoseBatchEntries(Hook):
    operations = _BATCHES

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._lost: list[dict[str, Any]] = []

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._lost = params["Entries"][1:]
        params["Entries"] = params["Entries"][:1]

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Successful" in parsed:
            lost = [{"Id": entry["Id"], "MessageId": "lost", "SequenceNumber": "0"} for entry in self._lost]
            parsed["Successful"] += lost


def _hide_failures(parsed: dict[str, Any]) -> None:
    parsed["Successful"] += [{"Id": failed["Id"], "MessageId": "hidden"} for failed in parsed.pop("Failed", [])]


def _of_some_calls(kind: type[Hook], operations: tuple[str, ...]) -> Callable[[int], Hook]:
    return lambda every: kind(every, operations)


SABOTEURS = (
    Saboteur("hide-errors", "turns refusals into success", _HideErrors),
    Saboteur("blur-errors", "gives every refusal the same text", _BlurErrors),
    *(
        Saboteur(
            f"accept-{calls}", f"turns refusals of {' and '.join(named)} into success", _of_some_calls(kind, named)
        )
        for kind, calls, named in ((_HideErrors, *entry) for entry in _CALLS.items())
    ),
    *(
        Saboteur(f"blur-{calls}", f"gives refusals of {' and '.join(named)} the same text", _of_some_calls(kind, named))
        for kind, calls, named in ((_BlurErrors, *entry) for entry in _CALLS.items())
        if calls != "lookups"  # nobody recorded how these are refused
    ),
    Saboteur("lose-batch-entries", "confirms a batch and does its first entry only", _LoseBatchEntries),
    Saboteur("hide-batch-failures", "reports failed entries of a batch as done", misreport(_hide_failures, *_BATCHES)),
)
