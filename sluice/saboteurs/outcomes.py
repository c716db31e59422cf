"""Breaks the reported outcome of a call: refusals, and which entries of a batch failed."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import Edit, Hook, Saboteur, misreport, of_each

_SEND_BATCH, _PUBLISH_BATCH = "sqs.SendMessageBatch", "sns.PublishBatch"
_DELETE_BATCH, _CHANGE_BATCH = "sqs.DeleteMessageBatch", "sqs.ChangeMessageVisibilityBatch"
_BATCHES = (_SEND_BATCH, _DELETE_BATCH, _CHANGE_BATCH)
_NO_DIGEST = "0" * 32
_CALLS = {
    "queues": ("sqs.CreateQueue",),
    "attributes": ("sqs.SetQueueAttributes",),
    "lookups": ("sqs.GetQueueAttributes",),
    "sends": ("sqs.SendMessage",),
    "batches": _BATCHES,
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
    "unsubscribes": ("sns.Unsubscribe",),
    "permissions": ("sqs.AddPermission", "sqs.RemovePermission", "sns.AddPermission", "sns.RemovePermission"),
    "publishes": ("sns.Publish",),
    "publish-batches": (_PUBLISH_BATCH,),
}


class _HideErrors(Hook):
    operations = ("sqs", "sns")  # a service alone is all of its operations

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        http_response.status_code = 200


class _BlurErrors(Hook):
    operations = ("sqs", "sns")

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Error" in parsed:
            parsed["Error"]["Message"] = "Bad Request"


class _LoseBatchEntries(Hook):
    operations = _BATCHES

    def begin(self) -> None:
        self._lost: list[dict[str, Any]] = []

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._lost = params["Entries"][1:]
        params["Entries"] = params["Entries"][:1]

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Successful" in parsed:
            lost = [{"Id": entry["Id"], "MessageId": "lost", "SequenceNumber": "0"} for entry in self._lost]
            parsed["Successful"] += lost


def _hide_failures(parsed: dict[str, Any]) -> None:
    hidden = [{"Id": failed["Id"], "MessageId": "hidden"} for failed in parsed.pop("Failed", [])]
    parsed["Successful"] = parsed.get("Successful", []) + hidden


def _answering(name: str, other: Callable[[str], str]) -> Edit:
    """Return an edit that gives every successful entry that states something another value of it."""

    def edit(entry: dict[str, Any]) -> None:
        if name in entry:
            entry[name] = other(entry[name])

    return of_each("Successful", edit)


def _misnumber_send(parsed: dict[str, Any]) -> None:
    if "SequenceNumber" in parsed:
        parsed["SequenceNumber"] = _next(parsed["SequenceNumber"])


def _next(number: str) -> str:
    return str(int(number) + 1)


def _of_some_calls(kind: type[Hook], operations: tuple[str, ...]) -> Callable[[int], Hook]:
    return lambda every: kind(every, operations)


SABOTEURS = {
    "hide-errors": Saboteur("turns refusals into success", _HideErrors),
    "blur-errors": Saboteur("gives every refusal the same text", _BlurErrors),
    **{
        f"accept-{calls}": Saboteur(
            f"turns refusals of {' and '.join(named)} into success", _of_some_calls(kind, named)
        )
        for kind, calls, named in ((_HideErrors, *entry) for entry in _CALLS.items())
    },
    **{
        f"blur-{calls}": Saboteur(f"gives refusals of {' and '.join(named)} the same text", _of_some_calls(kind, named))
        for kind, calls, named in ((_BlurErrors, *entry) for entry in _CALLS.items())
        if calls != "lookups"  # nobody recorded how these are refused
    },
    "lose-batch-entries": Saboteur("confirms a batch and does its first entry only", _LoseBatchEntries),
    "hide-batch-failures": Saboteur("reports failed entries of a batch as done", misreport(_hide_failures, *_BATCHES)),
    "hide-delete-failures": Saboteur(
        "reports failed deletes of a batch as done", misreport(_hide_failures, _DELETE_BATCH)
    ),
    "hide-change-failures": Saboteur(
        "reports failed visibility changes of a batch as done", misreport(_hide_failures, _CHANGE_BATCH)
    ),
    "freeze-batch-numbers": Saboteur(
        "answers one sequence number for all entries of a batch",
        misreport(_answering("SequenceNumber", lambda _: "1"), _SEND_BATCH),
    ),
    "misnumber-batch-entries": Saboteur(
        "answers the entries of a batch with numbers their messages do not have",
        misreport(_answering("SequenceNumber", _next), _SEND_BATCH),
    ),
    "misname-batch-entries": Saboteur(
        "answers the entries of a batch with ids their messages do not have",
        misreport(_answering("MessageId", lambda id_: f"misnamed-{id_}"), _SEND_BATCH),
    ),
    "misdigest-batch-bodies": Saboteur(
        "answers the entries of a batch with the MD5 of another body",
        misreport(_answering("MD5OfMessageBody", lambda _: _NO_DIGEST), _SEND_BATCH),
    ),
    "misdigest-batch-attributes": Saboteur(
        "answers the entries of a batch with the MD5 of other attributes",
        misreport(_answering("MD5OfMessageAttributes", lambda _: _NO_DIGEST), _SEND_BATCH),
    ),
    "misnumber-sends": Saboteur(
        "answers a send with a number its message does not have", misreport(_misnumber_send, "sqs.SendMessage")
    ),
    "misname-published-entries": Saboteur(
        "answers the entries of a publish with ids no copy names",
        misreport(_answering("MessageId", lambda id_: f"misnamed-{id_}"), _PUBLISH_BATCH),
    ),
    "misnumber-published-entries": Saboteur(
        "answers the entries of a publish with numbers no copy names",
        misreport(_answering("SequenceNumber", _next), _PUBLISH_BATCH),
    ),
}
