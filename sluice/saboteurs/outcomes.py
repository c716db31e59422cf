"""Saboteurs of a call's reported outcome: of refusals, and of the entries of a batch that failed."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import Edit, Hook, Saboteur, misreport, of_each

_SEND_BATCH, _PUBLISH_BATCH = "sqs.SendMessageBatch", "sns.PublishBatch"
_DELETE_BATCH, _CHANGE_BATCH = "sqs.DeleteMessageBatch", "sqs.ChangeMessageVisibilityBatch"
_BATCHES = (_SEND_BATCH, _DELETE_BATCH, _CHANGE_BATCH)
_NO_DIGEST = "0" * 32
_CALLS = {  # each makes two saboteurs, `accept-queues` and `blur-queues`, for the refusals of these operations
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
    """Gives every refusal the status 200, so that boto3 raises no error."""

    operations = ("sqs", "sns")  # the name of a service means all of its operations

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        http_response.status_code = 200


class _BlurErrors(Hook):
    """Gives every refusal the same text."""

    operations = ("sqs", "sns")

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Error" in parsed:
            parsed["Error"]["Message"] = "Bad Request"


class _LoseBatchEntries(Hook):
    """Sends only the first entry of a batch, and reports the others as successful."""

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
    """Report the failed entries of a batch as successful."""
    hidden = [{"Id": failed["Id"], "MessageId": "hidden"} for failed in parsed.pop("Failed", [])]
    parsed["Successful"] = parsed.get("Successful", []) + hidden


def _replacing(name: str, replace: Callable[[str], str]) -> Edit:
    """Return an edit of a batch's answer that replaces a field in every successful entry that has the field."""

    def edit(entry: dict[str, Any]) -> None:
        if name in entry:
            entry[name] = replace(entry[name])

    return of_each("Successful", edit)


def _misnumber_send(parsed: dict[str, Any]) -> None:
    if "SequenceNumber" in parsed:
        parsed["SequenceNumber"] = _next(parsed["SequenceNumber"])


def _next(number: str) -> str:
    return str(int(number) + 1)


def _of_some_calls(kind: type[Hook], operations: tuple[str, ...]) -> Callable[[int], Hook]:
    """Return a factory of hooks of a class that listen to these operations instead of the class's own."""
    return lambda every: kind(every, operations)


SABOTEURS = {
    "hide-errors": Saboteur("turns refusals into success", _HideErrors),
    "blur-errors": Saboteur("gives every refusal the same text", _BlurErrors),
    **{
        f"accept-{calls}": Saboteur(
            f"turns refusals of {' and '.join(operations)} into success", _of_some_calls(_HideErrors, operations)
        )
        for calls, operations in _CALLS.items()
    },
    **{
        f"blur-{calls}": Saboteur(
            f"gives refusals of {' and '.join(operations)} the same text", _of_some_calls(_BlurErrors, operations)
        )
        for calls, operations in _CALLS.items()
        if calls != "lookups"  # the text of their refusals is not recorded, so no promise is about it
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
        misreport(_replacing("SequenceNumber", lambda _: "1"), _SEND_BATCH),
    ),
    "misnumber-batch-entries": Saboteur(
        "answers the entries of a batch with numbers their messages do not have",
        misreport(_replacing("SequenceNumber", _next), _SEND_BATCH),
    ),
    "misname-batch-entries": Saboteur(
        "answers the entries of a batch with ids their messages do not have",
        misreport(_replacing("MessageId", lambda id_: f"misnamed-{id_}"), _SEND_BATCH),
    ),
    "misdigest-batch-bodies": Saboteur(
        "answers the entries of a batch with the MD5 of another body",
        misreport(_replacing("MD5OfMessageBody", lambda _: _NO_DIGEST), _SEND_BATCH),
    ),
    "misdigest-batch-attributes": Saboteur(
        "answers the entries of a batch with the MD5 of other attributes",
        misreport(_replacing("MD5OfMessageAttributes", lambda _: _NO_DIGEST), _SEND_BATCH),
    ),
    "misnumber-sends": Saboteur(
        "answers a send with a number its message does not have", misreport(_misnumber_send, "sqs.SendMessage")
    ),
    "misname-published-entries": Saboteur(
        "answers the entries of a publish with ids no copy names",
        misreport(_replacing("MessageId", lambda id_: f"misnamed-{id_}"), _PUBLISH_BATCH),
    ),
    "misnumber-published-entries": Saboteur(
        "answers the entries of a publish with numbers no copy names",
        misreport(_replacing("SequenceNumber", _next), _PUBLISH_BATCH),
    ),
}
