"""Saboteurs of a consumer's calls about a received message: visibility changes, releases and deletes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.limits import VISIBILITY_TIMEOUT_SECONDS_MAX
from sluice.saboteurs.base import RECEIVE, Hook, Saboteur, SqsCaller, ignore, refuse_with


class _StretchVisibility(Hook):
    """Replaces every visibility timeout other than 0 by the longest one, twelve hours."""

    operations = ("sqs.CreateQueue", "sqs.ReceiveMessage", "sqs.ChangeMessageVisibility")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        attributes = params.get("Attributes", {})
        if attributes.get("VisibilityTimeout", "0") != "0":
            attributes["VisibilityTimeout"] = str(VISIBILITY_TIMEOUT_SECONDS_MAX)
        if params.get("VisibilityTimeout"):
            params["VisibilityTimeout"] = VISIBILITY_TIMEOUT_SECONDS_MAX


class _Sticky(Hook):
    """Remembers a visibility timeout of each queue, and uses it for later receives."""

    def begin(self) -> None:
        self._remembered: dict[str, int] = {}  # seconds, by the queue's URL


class _StickyVisibility(_Sticky):
    """Remembers the timeout of the last visibility change."""

    operations = ("sqs.ChangeMessageVisibility", *RECEIVE)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.ChangeMessageVisibility":
            self._remembered[params["QueueUrl"]] = params["VisibilityTimeout"]
        elif params["QueueUrl"] in self._remembered:
            params["VisibilityTimeout"] = self._remembered[params["QueueUrl"]]


class _StickyReceives(_Sticky):
    """Remembers the timeout of the last receive."""

    operations = RECEIVE

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params.setdefault("VisibilityTimeout", self._remembered.get(params["QueueUrl"], 30))  # 30: SQS's default
        self._remembered[params["QueueUrl"]] = params["VisibilityTimeout"]


class _WithholdChanges(Hook):
    """Empties all answers of a queue after its first visibility change."""

    operations = ("sqs.ChangeMessageVisibility", *RECEIVE)

    def begin(self) -> None:
        self._changed: set[str] = set()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "ReceiptHandle" in params:
            self._changed.add(params["QueueUrl"])
        elif params["QueueUrl"] in self._changed:
            parsed.pop("Messages", None)


class _DeafenPolls(Hook):
    """Empties the answer of a receive during which another call was made.

    It counts calls before they are sent: the call may release a long poll in another thread, whose answer may arrive
    before the call's own.
    """

    def begin(self) -> None:
        self._calls = 0
        self._calls_before: dict[int, int] = {}

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation in RECEIVE:
            self._calls_before[id(params)] = self._calls
        else:
            self._calls += 1

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        calls_before = self._calls_before.pop(id(params), None)  # None for the answer to another call
        if calls_before is not None and self._calls > calls_before:
            parsed.pop("Messages", None)


def _deafen_to(operation: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that empty receives during which this operation was called."""
    return lambda every: _DeafenPolls(every, (operation, *RECEIVE))


class _UncountReleases(Hook):
    """Subtracts from a message's receive count the receives after which it was released."""

    operations = ("sqs.ChangeMessageVisibility", *RECEIVE)

    def begin(self) -> None:
        self._message_of: dict[str, str] = {}  # message ids, by receipt handle
        self._released: Counter[str] = Counter()  # releases, by message id

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.ChangeMessageVisibility" and params["VisibilityTimeout"] == 0:
            self._released[self._message_of.get(params["ReceiptHandle"], "")] += 1

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            self._message_of[message["ReceiptHandle"]] = message["MessageId"]
            if count := message.get("Attributes", {}).get("ApproximateReceiveCount"):
                message["Attributes"]["ApproximateReceiveCount"] = str(
                    int(count) - self._released[message["MessageId"]]
                )


class _DeleteUnheld(SqsCaller):
    """After a refused delete, receives from the queue and deletes the received messages, as a new consumer would."""

    operations = ("sqs.DeleteMessage",)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if http_response.status_code >= 300:
            for message in self.sqs.receive_message(QueueUrl=params["QueueUrl"]).get("Messages", []):
                self.sqs.delete_message(QueueUrl=params["QueueUrl"], ReceiptHandle=message["ReceiptHandle"])


class _ShowAfterChange(SqsCaller):
    """Gives messages in flight the new visibility timeout of their queue."""

    operations = ("sqs.SetQueueAttributes", *RECEIVE)

    def begin(self) -> None:
        super().begin()
        self._handles: dict[str, list[str]] = defaultdict(list)  # receipt handles, by the queue's URL

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        url = params["QueueUrl"]
        self._handles[url] += [message["ReceiptHandle"] for message in parsed.get("Messages", [])]
        if seconds := params.get("Attributes", {}).get("VisibilityTimeout"):
            for handle in self._handles.pop(url, []):
                self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=int(seconds))


class _ExpireChangedHandles(Hook):
    """Refuses a delete whose receipt handle was used for a visibility change."""

    operations = ("sqs.ChangeMessageVisibility", "sqs.DeleteMessage")

    def begin(self) -> None:
        self._changed: set[str] = set()

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if operation == "sqs.ChangeMessageVisibility":
            self._changed.add(params["ReceiptHandle"])
        elif params["ReceiptHandle"] in self._changed:
            return refuse_with("InvalidParameterValue", "The receipt handle has expired.")
        return None


class _DeleteByAnyHandle(Hook):
    """Replaces the receipt handle of a delete by the latest one of the same message."""

    operations = ("sqs.DeleteMessage", *RECEIVE)

    def begin(self) -> None:
        self._message_of: dict[str, str] = {}  # message ids, by receipt handle
        self._latest: dict[str, str] = {}  # receipt handles, by message id

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.DeleteMessage":
            message = self._message_of.get(params["ReceiptHandle"], "")
            params["ReceiptHandle"] = self._latest.get(message, params["ReceiptHandle"])

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            self._message_of[message["ReceiptHandle"]] = message["MessageId"]
            self._latest[message["MessageId"]] = message["ReceiptHandle"]


class _HastenChanges(Hook):
    operations = ("sqs.ChangeMessageVisibility",)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params["VisibilityTimeout"] = min(params["VisibilityTimeout"], 1)


class _BlockZeroReceives(Hook):
    """Withholds groups for ever that a receive with visibility timeout 0 returned together."""

    operations = RECEIVE

    def begin(self) -> None:
        self._blocked: set[tuple[str, str]] = set()  # (queue's URL, group)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        url, messages = params["QueueUrl"], parsed.pop("Messages", [])
        delivered = [message for message in messages if (url, _group(message)) not in self._blocked]
        groups = {_group(message) for message in delivered}
        if params.get("VisibilityTimeout") == 0 and len(groups) > 1:
            self._blocked |= {(url, group) for group in groups}
        if delivered:
            parsed["Messages"] = delivered


def _group(message: Mapping[str, Any]) -> str:
    return str(message.get("Attributes", {}).get("MessageGroupId"))


SABOTEURS = {
    "expire-changed-handles": Saboteur("lets a handle expire when its timeout is changed", _ExpireChangedHandles),
    "delete-by-any-handle": Saboteur("deletes with a handle of an earlier receive too", _DeleteByAnyHandle),
    "hasten-changes": Saboteur("hides a message for a second at most after a visibility change", _HastenChanges),
    "ignore-delete": Saboteur(
        "confirms a delete and does not do it", ignore("sqs.DeleteMessage", "sqs.DeleteMessageBatch")
    ),
    "ignore-visibility-change": Saboteur(
        "confirms a visibility change and does not do it",
        ignore("sqs.ChangeMessageVisibility", "sqs.ChangeMessageVisibilityBatch"),
    ),
    "deafen-polls": Saboteur(
        "answers nothing to a poll that waited while something was deleted", _deafen_to("sqs.DeleteMessage")
    ),
    "deafen-polls-to-sends": Saboteur(
        "answers nothing to a poll that waited while something was sent", _deafen_to("sqs.SendMessage")
    ),
    "uncount-released": Saboteur("does not count a receive that ended with a release", _UncountReleases),
    "delete-unheld": Saboteur("deletes with an expired handle what nobody holds", _DeleteUnheld),
    "show-after-change": Saboteur(
        "gives messages in flight the new visibility timeout of their queue", _ShowAfterChange
    ),
    "stretch-visibility": Saboteur("makes every visibility timeout twelve hours", _StretchVisibility),
    "sticky-visibility": Saboteur("keeps a changed visibility timeout for the next receive", _StickyVisibility),
    "sticky-receives": Saboteur("keeps a receive's visibility timeout for the next one", _StickyReceives),
    "block-zero-receives": Saboteur(
        "blocks the groups of an answer with several, if it was received with a visibility timeout of 0",
        _BlockZeroReceives,
    ),
    "withhold-changed": Saboteur("delivers nothing after a visibility change of a queue", _WithholdChanges),
}
