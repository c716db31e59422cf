"""Breaks what a consumer does with a message it holds: hide it for longer, give it back, delete it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.limits import VISIBILITY_TIMEOUT_SECONDS_MAX
from sluice.saboteurs.base import RECEIVE, Hook, Saboteur, SqsCaller, ignore, refuse_with


class _StretchVisibility(Hook):
    operations = ("sqs.CreateQueue", "sqs.ReceiveMessage", "sqs.ChangeMessageVisibility")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        attributes = params.get("Attributes", {})
        if attributes.get("VisibilityTimeout", "0") != "0":
            attributes["VisibilityTimeout"] = str(VISIBILITY_TIMEOUT_SECONDS_MAX)
        if params.get("VisibilityTimeout"):
            params["VisibilityTimeout"] = VISIBILITY_TIMEOUT_SECONDS_MAX


class _Sticky(Hook):
    """Remembers a visibility timeout of each queue, and gives it to receives."""

    def begin(self) -> None:
        self._remembered: dict[str, int] = {}


class _StickyVisibility(_Sticky):
    operations = ("sqs.ChangeMessageVisibility", *RECEIVE)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.ChangeMessageVisibility":
            self._remembered[params["QueueUrl"]] = params["VisibilityTimeout"]
        elif params["QueueUrl"] in self._remembered:
            params["VisibilityTimeout"] = self._remembered[params["QueueUrl"]]


class _StickyReceives(_Sticky):
    operations = RECEIVE

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params.setdefault("VisibilityTimeout", self._remembered.get(params["QueueUrl"], 30))
        self._remembered[params["QueueUrl"]] = params["VisibilityTimeout"]


class _WithholdChanges(Hook):
    operations = ("sqs.ChangeMessageVisibility", *RECEIVE)

    def begin(self) -> None:
        self._changed: set[str] = set()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "ReceiptHandle" in params:
            self._changed.add(params["QueueUrl"])
        elif params["QueueUrl"] in self._changed:
            parsed.pop("Messages", None)


class _DeafenPolls(Hook):
    """Counts a call before it is sent: a poll may be answered before the thread of the call that caused it goes on."""

    def begin(self) -> None:
        self._calls = 0
        self._calls_before: dict[int, int] = {}

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation in RECEIVE:
            self._calls_before[id(params)] = self._calls
        else:
            self._calls += 1

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        before = self._calls_before.pop(id(params), None)
        if before is not None and self._calls > before:
            parsed.pop("Messages", None)


def _deafen_to(operation: str) -> Callable[[int], Hook]:
    return lambda every: _DeafenPolls(every, (operation, *RECEIVE))


class _UncountReleases(Hook):
    operations = ("sqs.ChangeMessageVisibility", *RECEIVE)

    def begin(self) -> None:
        self._message_of: dict[str, str] = {}
        self._released: Counter[str] = Counter()

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
    """Does for a delete whose handle is too old what a new consumer would: receives the message and deletes it."""

    operations = ("sqs.DeleteMessage",)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if http_response.status_code >= 300:
            for message in self.sqs.receive_message(QueueUrl=params["QueueUrl"]).get("Messages", []):
                self.sqs.delete_message(QueueUrl=params["QueueUrl"], ReceiptHandle=message["ReceiptHandle"])


class _ShowAfterChange(SqsCaller):
    """Gives what is in flight the new timeout of its queue."""

    operations = ("sqs.SetQueueAttributes", *RECEIVE)

    def begin(self) -> None:
        super().begin()
        self._handles: dict[str, list[str]] = defaultdict(list)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        url = params["QueueUrl"]
        self._handles[url] += [message["ReceiptHandle"] for message in parsed.get("Messages", [])]
        if seconds := params.get("Attributes", {}).get("VisibilityTimeout"):
            for handle in self._handles.pop(url, []):
                self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=int(seconds))


class _ExpireChangedHandles(Hook):
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
    operations = ("sqs.DeleteMessage", *RECEIVE)

    def begin(self) -> None:
        self._message_of: dict[str, str] = {}
        self._latest: dict[str, str] = {}

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
    operations = RECEIVE

    def begin(self) -> None:
        self._blocked: set[tuple[str, str]] = set()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        url, messages = params["QueueUrl"], parsed.pop("Messages", [])
        left = [message for message in messages if (url, _group(message)) not in self._blocked]
        groups = {_group(message) for message in left}
        if params.get("VisibilityTimeout") == 0 and len(groups) > 1:
            self._blocked |= {(url, group) for group in groups}
        if left:
            parsed["Messages"] = left


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
