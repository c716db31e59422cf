"""Breaks one promise each, between a boto3 client and the service: the proof that a test, or the judge, can turn red.

A saboteur hooks into the client. It rewrites parameters before they are sent, answers a call itself, or rewrites an
answer; the service behind it stays honest. `sabotage(clients, name)` installs one on all clients of a caller, which
then share its memory. `every=n` makes it strike at each n-th opportunity only.
"""

import contextlib
import copy
import itertools
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from sluice.errors import ConfigError
from sluice.limits import RECEIVE_MESSAGES_MAX, VISIBILITY_TIMEOUT_SECONDS_MAX
from wire import simulator

_PARAMS = "sluice_saboteur"
_SENDS = ("sqs.SendMessage", "sns.Publish")
_BATCH_SENDS = {"sqs.SendMessageBatch": "Entries", "sns.PublishBatch": "PublishBatchRequestEntries"}
_RECEIVE = ("sqs.ReceiveMessage",)
_ALL_SENDS = (*_SENDS, *_BATCH_SENDS)


def _entries(operation: str, params: Any) -> list[dict[str, Any]]:
    """Return the messages of a send or publish, single or batch; changing them changes what is sent."""
    listed: list[dict[str, Any]] = params[_BATCH_SENDS[operation]] if operation in _BATCH_SENDS else [params]
    return listed


def _address(params: Mapping[str, Any]) -> str:
    return str(params.get("QueueUrl") or params.get("TopicArn"))


def _body(entry: Mapping[str, Any]) -> str:
    return str(entry.get("MessageBody") or entry.get("Message"))


def _answer(**parsed: Any) -> tuple[AWSResponse, dict[str, Any]]:
    """Return what a `before-call` hook returns to answer in the service's place."""
    return AWSResponse("http://saboteur", 200, {}, None), parsed


class _Saboteur:
    """Does nothing yet; subclasses name the operations they listen to and override what they need."""

    operations: ClassVar[Iterable[str]] = ()

    def __init__(self, every: int) -> None:
        self._every = every
        self._opportunities = 0

    def strikes(self) -> bool:
        """Count one opportunity and return whether it is to be used."""
        self._opportunities += 1
        return self._opportunities % self._every == 0

    def attach(self, client: BaseClient) -> None:
        """Listen to this client."""
        service = client.meta.service_model.service_name
        for operation in self.operations:
            if operation.split(".")[0] != service:
                continue
            events = client.meta.events
            events.register(f"before-parameter-build.{operation}", self._before_build)
            events.register(f"before-call.{operation}", self._before_call)
            events.register(f"after-call.{operation}", self._after_call)

    def _before_build(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        context[_PARAMS] = params
        self.rewrite(f"{model.service_model.service_name}.{model.name}", params)

    def _before_call(self, model: Any, context: dict[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]] | None:
        return self.answer(f"{model.service_model.service_name}.{model.name}", context[_PARAMS])

    def _after_call(
        self, http_response: AWSResponse, parsed: dict[str, Any], context: dict[str, Any], **_: Any
    ) -> None:
        self.answered(context[_PARAMS], parsed, http_response)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        """Change the parameters in place."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        """Answer in the service's place, or return None to let the call go through."""
        return None

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        """Change the answer in place."""


class _LeakGroup(_Saboteur):
    operations = ("sqs.SendMessage", *_RECEIVE)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._waiting: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._numbers = itertools.count()

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.SendMessage":
            self._waiting[params["QueueUrl"]].append(copy.deepcopy(params))

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "MessageBody" in params:
            return
        waiting = self._waiting[params["QueueUrl"]]
        delivered = [message["Body"] for message in parsed.get("Messages", [])]
        waiting[:] = [sent for sent in waiting if sent["MessageBody"] not in delivered]
        if not delivered and waiting and self.strikes():
            parsed["Messages"] = [self._forge(waiting.pop(0))]

    def _forge(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "MessageId": f"forged-{number}",
            "ReceiptHandle": f"forged-{number}",
            "Body": sent["MessageBody"],
            "Attributes": {"MessageGroupId": sent.get("MessageGroupId", ""), "ApproximateReceiveCount": "1"},
        }


class _WithholdLater(_Saboteur):
    operations = _RECEIVE

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._served: set[str] = set()

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if params["QueueUrl"] in self._served:
            parsed.pop("Messages", None)
        elif parsed.get("Messages"):
            self._served.add(params["QueueUrl"])


class _IgnoreCall(_Saboteur):
    """Answers that all is well, and does not pass the call on."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if not self.strikes():
            return None
        if "Entries" in params:
            return _answer(Successful=[{"Id": entry["Id"]} for entry in params["Entries"]], Failed=[])
        return _answer(TaskHandle="ignored", ApproximateNumberOfMessagesMoved=0)


class _IgnoreDelete(_IgnoreCall):
    operations = ("sqs.DeleteMessage", "sqs.DeleteMessageBatch")


class _IgnoreVisibilityChange(_IgnoreCall):
    operations = ("sqs.ChangeMessageVisibility", "sqs.ChangeMessageVisibilityBatch")


class _IgnorePurge(_IgnoreCall):
    operations = ("sqs.PurgeQueue",)


class _IgnoreMoveTask(_IgnoreCall):
    operations = ("sqs.StartMessageMoveTask",)


class _IgnoreCancel(_IgnoreCall):
    operations = ("sqs.CancelMessageMoveTask",)


class _IgnoreUnsubscribe(_IgnoreCall):
    operations = ("sns.Unsubscribe",)


class _IgnoreAttributeChanges(_IgnoreCall):
    operations = ("sqs.SetQueueAttributes",)


class _IgnoreTags(_IgnoreCall):
    operations = ("sqs.TagQueue", "sqs.CreateQueue", "sns.TagResource")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params.pop("tags", None)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return None if operation == "sqs.CreateQueue" else super().answer(operation, params)


class _ForgetAttributes(_Saboteur):
    operations = ("sqs.CreateQueue",)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if "Attributes" in params:
            kept = {name: value for name, value in params["Attributes"].items() if name == "FifoQueue"}
            params["Attributes"] = kept


class _MoveQueues(_Saboteur):
    operations = ("sqs.CreateQueue",)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._made: set[str] = set()

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if params["QueueName"] in self._made and "QueueUrl" in parsed:
            parsed["QueueUrl"] = parsed["QueueUrl"].removesuffix(".fifo") + "-moved.fifo"
        self._made.add(params["QueueName"])


class _ShortenIds(_Saboteur):
    operations = _ALL_SENDS

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in _entries(operation, params):
            for name in ("MessageGroupId", "MessageDeduplicationId"):
                if name in entry:
                    entry[name] = entry[name][:64]


class _SaltDeduplicationIds(_Saboteur):
    operations = ("sqs.SendMessage", "sqs.SendMessageBatch")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in _entries(operation, params):
            if "MessageDeduplicationId" in entry and self.strikes():
                entry["MessageDeduplicationId"] = f"{entry['MessageDeduplicationId'][:100]}.{self._opportunities}"


class _WidenAttributeNames(_Saboteur):
    operations = _RECEIVE

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params["MessageSystemAttributeNames"] = params["MessageAttributeNames"] = ["All"]


class _FillReceives(_Saboteur):
    operations = _RECEIVE

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params.setdefault("MaxNumberOfMessages", RECEIVE_MESSAGES_MAX)


class _TellAllAttributes(_Saboteur):
    operations = ("sqs.GetQueueAttributes",)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params["AttributeNames"] = ["All"]


class _ReverseBatchSends(_Saboteur):
    operations = ("sqs.SendMessageBatch",)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params["Entries"] = params["Entries"][::-1]


class _LoseBatchEntries(_Saboteur):
    operations = ("sqs.SendMessageBatch", "sqs.DeleteMessageBatch", "sqs.ChangeMessageVisibilityBatch")

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


class _StickyVisibility(_Saboteur):
    operations = ("sqs.ChangeMessageVisibility", *_RECEIVE)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._changed: dict[str, int] = {}

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.ChangeMessageVisibility":
            self._changed[params["QueueUrl"]] = params["VisibilityTimeout"]
        elif params["QueueUrl"] in self._changed:
            params["VisibilityTimeout"] = self._changed[params["QueueUrl"]]


class _StickyReceives(_Saboteur):
    operations = _RECEIVE

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._given: dict[str, int] = {}

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params.setdefault("VisibilityTimeout", self._given.get(params["QueueUrl"], 30))
        self._given[params["QueueUrl"]] = params["VisibilityTimeout"]


class _WithholdChanged(_Saboteur):
    operations = ("sqs.ChangeMessageVisibility", *_RECEIVE)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._changed: set[str] = set()

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "ReceiptHandle" in params:
            self._changed.add(params["QueueUrl"])
        elif params["QueueUrl"] in self._changed:
            parsed.pop("Messages", None)


class _RenumberMessages(_Saboteur):
    operations = _RECEIVE

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if self.strikes():
                message.setdefault("Attributes", {})["SequenceNumber"] = str(self._opportunities)


class _StretchVisibility(_Saboteur):
    operations = ("sqs.CreateQueue", "sqs.ReceiveMessage", "sqs.ChangeMessageVisibility")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        attributes = params.get("Attributes", {})
        if attributes.get("VisibilityTimeout", "0") != "0":
            attributes["VisibilityTimeout"] = str(VISIBILITY_TIMEOUT_SECONDS_MAX)
        if params.get("VisibilityTimeout"):
            params["VisibilityTimeout"] = VISIBILITY_TIMEOUT_SECONDS_MAX


class _ReverseBatch(_Saboteur):
    operations = _RECEIVE

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if len(parsed.get("Messages", [])) > 1 and self.strikes():
            parsed["Messages"].reverse()


class _ForgetDeduplication(_Saboteur):
    operations = _ALL_SENDS

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._sent: dict[tuple[str, str], int] = defaultdict(int)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in _entries(operation, params):
            given = entry.get("MessageDeduplicationId", "")
            number = self._sent[_address(params), given or _body(entry)]
            self._sent[_address(params), given or _body(entry)] += 1
            if number and self.strikes():
                entry["MessageDeduplicationId"] = f"{given[:100]}.again.{number}"


class _SwallowRepeats(_Saboteur):
    operations = _SENDS

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._first: dict[tuple[str, str], dict[str, Any]] = {}

    def key(self, params: Mapping[str, Any]) -> str:
        """Return what makes two sends the same."""
        return str(params.get("MessageDeduplicationId") or _body(params))

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        first = self._first.get((_address(params), self.key(params)))
        return None if first is None else _answer(**first)

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        said: dict[str, Any] = {name: parsed[name] for name in ("MessageId", "SequenceNumber") if name in parsed}
        self._first.setdefault((_address(params), self.key(params)), said)


class _SwallowBodies(_SwallowRepeats):
    def key(self, params: Mapping[str, Any]) -> str:
        return _body(params)


class _SwapBodies(_Saboteur):
    operations = (*_ALL_SENDS, *_RECEIVE)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._first: dict[str, list[str]] = defaultdict(list)
        self._published: list[str] = []

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation in _ALL_SENDS:
            sent = self._first[params["QueueUrl"]] if "QueueUrl" in params else self._published
            sent.extend(_body(entry) for entry in _entries(operation, params))

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            first = (self._first[params["QueueUrl"]] or self._published)[:2]
            if message["Body"] in first:
                message["Body"] = first[len(first) - 1 - first.index(message["Body"])]


class _FreezeSequenceNumbers(_Saboteur):
    operations = _SENDS

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "SequenceNumber" in parsed:
            parsed["SequenceNumber"] = "1"


class _FreezeReceiveCount(_Saboteur):
    operations = _RECEIVE

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            message.get("Attributes", {})["ApproximateReceiveCount"] = "1"


class _HideErrors(_Saboteur):
    operations = ("sqs", "sns")  # a service alone is all of its operations

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        http_response.status_code = 200


class _BlurErrors(_Saboteur):
    operations = ("sqs", "sns")

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Error" in parsed:
            parsed["Error"]["Message"] = "Bad Request"


class _ChangeMessageIds(_Saboteur):
    operations = _RECEIVE

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if self.strikes():
                message["MessageId"] = f"changed-{self._opportunities}-{message['MessageId']}"


class _WithholdDeadLetters(_Saboteur):
    operations = _RECEIVE

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "dlq" in params["QueueUrl"]:
            parsed.pop("Messages", None)


class _DropMessages(_Saboteur):
    operations = _RECEIVE

    def attach(self, client: BaseClient) -> None:
        super().attach(client)
        # Drops go through a client of their own, so that neither the recorder nor another saboteur takes part.
        credentials = client._request_signer._credentials.get_frozen_credentials()  # noqa: SLF001 (nothing public)
        self._own = botocore.session.get_session().create_client(
            "sqs",
            endpoint_url=client.meta.endpoint_url,
            region_name=client.meta.region_name,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            aws_session_token=credentials.token,
        )
        simulator.join(self._own, client)

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        kept = []
        for message in parsed.pop("Messages", []):
            if self.strikes():
                # Received with a visibility timeout of 0 it cannot be deleted; then it is only withheld.
                with contextlib.suppress(ClientError):
                    self._own.delete_message(QueueUrl=params["QueueUrl"], ReceiptHandle=message["ReceiptHandle"])
            else:
                kept.append(message)
        if kept:
            parsed["Messages"] = kept


class _DeliverTwice(_Saboteur):
    operations = _RECEIVE

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._again: dict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        again = self._again[params["QueueUrl"]]
        return _answer(Messages=[again.popleft()]) if again else None

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if not message["MessageId"].startswith("again-") and self.strikes():
                self._again[params["QueueUrl"]].append({**message, "MessageId": "again-" + message["MessageId"]})


class _CorruptBodies(_Saboteur):
    operations = _RECEIVE

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if self.strikes():
                message["Body"] = message["Body"][:-3] + "\N{REPLACEMENT CHARACTER}" + message["Body"][-2:]


class _LosePublishes(_Saboteur):
    operations = ("sns.Publish", "sns.PublishBatch")

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._lost: list[dict[str, Any]] = []

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._lost = [entry for entry in _entries(operation, params) if self.strikes()]
        if operation in _BATCH_SENDS:
            kept = [entry for entry in _entries(operation, params) if entry not in self._lost]
            params[_BATCH_SENDS[operation]] = kept or self._lost[:1]  # an empty list would not pass validation

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if self._lost and _entries(operation, params)[0] in self._lost:
            return _answer(MessageId="lost") if operation == "sns.Publish" else _answer(Successful=[], Failed=[])
        return None

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Successful" in parsed:
            parsed["Successful"] += [{"Id": entry["Id"], "MessageId": "lost"} for entry in self._lost]


class _IgnoreSubscribe(_Saboteur):
    operations = ("sns.Subscribe",)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return _answer(SubscriptionArn=f"{params['TopicArn']}:ignored")


class _LoseSecondSubscription(_IgnoreSubscribe):
    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        self.strikes()
        return super().answer(operation, params) if self._opportunities == 2 else None


class _RenameRepeats(_Saboteur):
    operations = ("sns.Subscribe", "sns.CreateTopic")

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._answered: set[str] = set()

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for name in ("SubscriptionArn", "TopicArn"):
            if name in parsed and parsed[name] in self._answered:
                parsed[name] += "-again"
            self._answered.add(parsed.get(name, ""))


class _UnwrapDeliveries(_Saboteur):
    operations = ("sns.Subscribe",)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        params["Attributes"] = params.get("Attributes", {}) | {"RawMessageDelivery": "true"}


class _ReusePublishIds(_Saboteur):
    operations = ("sns.Publish", *_RECEIVE)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._published: dict[str, str] = {}

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "TopicArn" in params:
            self._published = {name: parsed[name] for name in ("MessageId", "SequenceNumber") if name in parsed}
            return
        for message in parsed.get("Messages", []):
            message["MessageId"] = self._published.get("MessageId", message["MessageId"])
            message["Attributes"]["SequenceNumber"] = self._published.get("SequenceNumber", "")


class _ShareUndeliveredQueue(_Saboteur):
    operations = ("sns.GetSubscriptionAttributes",)

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self._first: str | None = None

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if self._first is None:
            self._first = parsed["Attributes"]["RedrivePolicy"]
        parsed["Attributes"]["RedrivePolicy"] = self._first


class _Omit(_Saboteur):
    """Leaves parameters or attributes out of what is asked."""

    def __init__(self, every: int, names: tuple[str, ...], operations: tuple[str, ...]) -> None:
        super().__init__(every)
        self.operations = operations  # type: ignore[misc]  # here, of the instance
        self._names = names

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for name in self._names:
            params.pop(name, None)
        if "Attributes" in params:
            kept = {name: value for name, value in params["Attributes"].items() if name not in self._names}
            params["Attributes"] = kept


def _omit(*names: str, of: tuple[str, ...]) -> Callable[[int], _Saboteur]:
    return lambda every: _Omit(every, names, of)


class _Misreport(_Saboteur):
    """Answers what is configured with something else."""

    def __init__(self, every: int, edit: Callable[[dict[str, Any]], None], operations: tuple[str, ...]) -> None:
        super().__init__(every)
        self.operations = operations  # type: ignore[misc]  # here, of the instance
        self._edit = edit

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if http_response.status_code < 300:
            self._edit(parsed)


def _misreport(edit: Callable[[dict[str, Any]], None], *operations: str) -> Callable[[int], _Saboteur]:
    return lambda every: _Misreport(every, edit, operations)


_QUEUE_ATTRIBUTES, _TOPIC_ATTRIBUTES = "sqs.GetQueueAttributes", "sns.GetTopicAttributes"


def _without_attribute(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda parsed: parsed["Attributes"].pop(name, None)


def _without_encryption(parsed: dict[str, Any]) -> None:
    for name in ("SqsManagedSseEnabled", "KmsMasterKeyId"):
        parsed["Attributes"].pop(name, None)


def _shorten_retention(parsed: dict[str, Any]) -> None:
    parsed["Attributes"]["MessageRetentionPeriod"] = "60"


def _quote_receive_count(parsed: dict[str, Any]) -> None:
    if text := parsed["Attributes"].get("RedrivePolicy"):
        policy = json.loads(text)
        parsed["Attributes"]["RedrivePolicy"] = json.dumps(policy | {"maxReceiveCount": str(policy["maxReceiveCount"])})


def _undercount(parsed: dict[str, Any]) -> None:
    for name in parsed.get("Attributes", {}):
        if name.startswith("ApproximateNumber"):
            parsed["Attributes"][name] = "0"


def _strip_topic(parsed: dict[str, Any]) -> None:
    parsed["Attributes"] = {name: parsed["Attributes"][name] for name in ("Owner", "TopicArn")}


def _of_each(listed: str, edit: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    """Return an edit of every element of a list in the answer."""

    def edit_each(parsed: dict[str, Any]) -> None:
        for element in parsed.get(listed, []):
            edit(element)

    return edit_each


def _with_attribute(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    """Return an edit that gives every received message that has the system attribute another value."""

    def edit(message: dict[str, Any]) -> None:
        if name in message.get("Attributes", {}):
            message["Attributes"][name] = value

    return _of_each("Messages", edit)


def _count_move(task: dict[str, Any]) -> None:
    task["ApproximateNumberOfMessagesMoved"] += 1


def _hide_subscription(parsed: dict[str, Any]) -> None:
    parsed["Subscriptions"].pop()


def _rewrite_policy(rewrite: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def edit(parsed: dict[str, Any]) -> None:
        policy = json.loads(parsed["Attributes"]["Policy"])
        rewrite(policy)
        parsed["Attributes"]["Policy"] = json.dumps(policy)

    return edit


def _allow_plain_http(policy: dict[str, Any]) -> None:
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Effect"] != "Deny"]


def _allow_foreign_sources(policy: dict[str, Any]) -> None:
    for statement in policy["Statement"]:
        if statement["Effect"] == "Allow":
            statement.pop("Condition")


def _mute_alarms(parsed: dict[str, Any]) -> None:
    for alarm in parsed["MetricAlarms"]:
        alarm["AlarmActions"] = []


def _raise_thresholds(parsed: dict[str, Any]) -> None:
    for alarm in parsed["MetricAlarms"]:
        alarm["Threshold"] += 1


def _shrink_messages(parsed: dict[str, Any]) -> None:
    if "MaximumMessageSize" in parsed.get("Attributes", {}):
        parsed["Attributes"]["MaximumMessageSize"] = "262144"


def _show_empty_lists(parsed: dict[str, Any]) -> None:
    parsed.setdefault("Messages", [])


def _hide_failures(parsed: dict[str, Any]) -> None:
    parsed["Successful"] += [{"Id": failed["Id"], "MessageId": "hidden"} for failed in parsed.pop("Failed", [])]


def _blank_checksums(parsed: dict[str, Any]) -> None:
    for said in (parsed, *parsed.get("Messages", [])):
        for name in ("MD5OfBody", "MD5OfMessageBody", "MD5OfMessageAttributes"):
            if name in said:
                said[name] = "0" * 32


@dataclass(frozen=True, slots=True)
class Saboteur:
    """One saboteur.

    Args:
        name: for `--sabotage` and `promises`.
        does: what it does, one clause.
        make: builds it; argument is `every`.
        shows: the anomalies it makes a load test find; empty when it is of no use there.
    """

    name: str
    does: str
    make: Callable[[int], _Saboteur]
    shows: tuple[str, ...] = ()


SABOTEURS: dict[str, Saboteur] = {
    saboteur.name: saboteur
    for saboteur in (
        Saboteur("leak-group", "delivers the next message of a blocked group", _LeakGroup),
        Saboteur("withhold-later", "delivers nothing after the first delivery of a queue", _WithholdLater),
        Saboteur("ignore-delete", "confirms a delete and does not do it", _IgnoreDelete),
        Saboteur(
            "ignore-visibility-change", "confirms a visibility change and does not do it", _IgnoreVisibilityChange
        ),
        Saboteur("ignore-purge", "confirms a purge and does not do it", _IgnorePurge),
        Saboteur("ignore-move-task", "confirms a move task and does not start it", _IgnoreMoveTask),
        Saboteur("stretch-visibility", "makes every visibility timeout twelve hours", _StretchVisibility),
        Saboteur("reverse-batch", "reverses the messages of an answer", _ReverseBatch, ("C2",)),
        Saboteur(
            "forget-deduplication", "gives every repeat a deduplication id of its own", _ForgetDeduplication, ("B1",)
        ),
        Saboteur(
            "swallow-repeats", "drops every repeat of a deduplication id, for ever and across groups", _SwallowRepeats
        ),
        Saboteur("swallow-bodies", "drops every repeat of a body", _SwallowBodies),
        Saboteur("swap-bodies", "exchanges the first two messages of a queue", _SwapBodies),
        Saboteur("freeze-sequence-numbers", "gives every send the same sequence number", _FreezeSequenceNumbers),
        Saboteur("freeze-receive-count", "reports every receive as the first", _FreezeReceiveCount),
        Saboteur("hide-errors", "turns refusals into success", _HideErrors),
        Saboteur("blur-errors", "gives every refusal the same text", _BlurErrors),
        Saboteur("change-message-ids", "gives received messages other message ids", _ChangeMessageIds),
        Saboteur("withhold-dead-letters", "delivers nothing from a DLQ", _WithholdDeadLetters),
        Saboteur("drop-messages", "deletes messages instead of delivering them", _DropMessages, ("E1",)),
        Saboteur("deliver-twice", "delivers messages a second time, as new ones", _DeliverTwice, ("B1",)),
        Saboteur("ignore-subscribe", "confirms a subscription and does not make it", _IgnoreSubscribe),
        Saboteur(
            "lose-redrive-policy",
            "reports queues without their redrive policy",
            _misreport(_without_attribute("RedrivePolicy"), _QUEUE_ATTRIBUTES),
        ),
        Saboteur(
            "lose-encryption",
            "reports queues without their encryption",
            _misreport(_without_encryption, _QUEUE_ATTRIBUTES),
        ),
        Saboteur(
            "shorten-retention",
            "reports queues that keep messages for a minute",
            _misreport(_shorten_retention, _QUEUE_ATTRIBUTES),
        ),
        Saboteur(
            "widen-topic-scope",
            "reports topics that deduplicate across groups",
            _misreport(_without_attribute("FifoThroughputScope"), _TOPIC_ATTRIBUTES),
        ),
        Saboteur(
            "hide-subscription",
            "lists all subscriptions but the last",
            _misreport(_hide_subscription, "sns.ListSubscriptionsByTopic"),
        ),
        Saboteur(
            "share-undelivered-queue",
            "reports the first subscription's DLQ for all",
            _ShareUndeliveredQueue,
        ),
        Saboteur(
            "allow-plain-http",
            "reports policies that deny nothing",
            _misreport(_rewrite_policy(_allow_plain_http), _QUEUE_ATTRIBUTES, _TOPIC_ATTRIBUTES),
        ),
        Saboteur(
            "allow-foreign-sources",
            "reports policies that allow without a condition",
            _misreport(_rewrite_policy(_allow_foreign_sources), _QUEUE_ATTRIBUTES, _TOPIC_ATTRIBUTES),
        ),
        Saboteur(
            "mute-alarms", "reports alarms that tell nobody", _misreport(_mute_alarms, "cloudwatch.DescribeAlarms")
        ),
        Saboteur(
            "raise-thresholds",
            "reports alarms that ring later",
            _misreport(_raise_thresholds, "cloudwatch.DescribeAlarms"),
        ),
        Saboteur(
            "ignore-redrive-policy",
            "makes queues without the redrive policy asked for",
            _omit("RedrivePolicy", of=("sqs.CreateQueue", "sqs.SetQueueAttributes")),
        ),
        Saboteur(
            "quote-receive-count",
            "reports maxReceiveCount as a string",
            _misreport(_quote_receive_count, _QUEUE_ATTRIBUTES),
        ),
        Saboteur(
            "hide-source-queue",
            "lists all queues of a DLQ but the last",
            _misreport(
                lambda parsed: parsed.update(queueUrls=parsed["queueUrls"][:-1]), "sqs.ListDeadLetterSourceQueues"
            ),
        ),
        Saboteur(
            "disguise-source",
            "names another queue as the one a dead letter came from",
            _misreport(_with_attribute("DeadLetterQueueSourceArn", "arn:aws:sqs:disguised"), *_RECEIVE),
        ),
        Saboteur(
            "drop-message-attributes",
            "delivers messages without their attributes",
            _misreport(_of_each("Messages", lambda message: message.pop("MessageAttributes", None)), *_RECEIVE),
        ),
        Saboteur(
            "regroup-messages",
            "delivers all messages as of one group",
            _misreport(_with_attribute("MessageGroupId", "regrouped"), *_RECEIVE),
        ),
        Saboteur(
            "freeze-sent-at",
            "reports every message as sent at one instant",
            _misreport(_with_attribute("SentTimestamp", "1700000000000"), *_RECEIVE),
        ),
        Saboteur(
            "redirect-move-tasks",
            "moves dead letters to their source, whatever the destination",
            _omit("DestinationArn", of=("sqs.StartMessageMoveTask",)),
        ),
        Saboteur(
            "hurry-move-tasks",
            "ignores the rate of a move task",
            _omit("MaxNumberOfMessagesPerSecond", of=("sqs.StartMessageMoveTask",)),
        ),
        Saboteur(
            "miscount-moves",
            "reports one message moved too many",
            _misreport(_of_each("Results", _count_move), "sqs.ListMessageMoveTasks"),
        ),
        Saboteur(
            "report-moves-done",
            "reports every move task as completed",
            _misreport(_of_each("Results", lambda task: task.update(Status="COMPLETED")), "sqs.ListMessageMoveTasks"),
        ),
        Saboteur(
            "reverse-move-tasks",
            "lists the oldest move task first",
            _misreport(lambda parsed: parsed["Results"].reverse(), "sqs.ListMessageMoveTasks"),
        ),
        Saboteur(
            "scramble-task-handles",
            "gives out task handles that lead nowhere",
            _misreport(lambda parsed: parsed.update(TaskHandle="c2NyYW1ibGVk"), "sqs.StartMessageMoveTask"),
        ),
        Saboteur("ignore-cancel", "confirms that a move task is cancelled and lets it run", _IgnoreCancel),
        Saboteur(
            "undercount-queue",
            "reports queues as empty",
            _misreport(_undercount, _QUEUE_ATTRIBUTES),
        ),
        Saboteur(
            "strip-topic",
            "reports topics without their attributes",
            _misreport(_strip_topic, _TOPIC_ATTRIBUTES),
        ),
        Saboteur(
            "wrap-raw-deliveries",
            "delivers with the envelope where none is wanted",
            _omit("RawMessageDelivery", of=("sns.Subscribe",)),
        ),
        Saboteur(
            "ignore-filter-policy",
            "delivers what a filter policy keeps out",
            _omit("FilterPolicy", "FilterPolicyScope", of=("sns.Subscribe",)),
        ),
        Saboteur(
            "ignore-filter-scope",
            "takes every filter policy for one of attributes",
            _omit("FilterPolicyScope", of=("sns.Subscribe",)),
        ),
        Saboteur(
            "lose-undelivered",
            "makes subscriptions without a DLQ",
            _omit("RedrivePolicy", of=("sns.Subscribe",)),
        ),
        Saboteur(
            "lose-second-subscription", "confirms the second subscription and does not make it", _LoseSecondSubscription
        ),
        Saboteur("rename-repeats", "gives a topic or subscription asked for again another ARN", _RenameRepeats),
        Saboteur("unwrap-deliveries", "delivers without the envelope where one is wanted", _UnwrapDeliveries),
        Saboteur(
            "ignore-message-size",
            "makes topics of the usual message size",
            _omit("MaximumMessageSize", of=("sns.CreateTopic",)),
        ),
        Saboteur("ignore-unsubscribe", "confirms an unsubscribe and does not do it", _IgnoreUnsubscribe),
        Saboteur("reuse-publish-ids", "delivers copies under the ids of their publish", _ReusePublishIds),
        Saboteur("forget-attributes", "makes queues without the attributes asked for", _ForgetAttributes),
        Saboteur(
            "ignore-attribute-changes", "confirms a change of attributes and does not do it", _IgnoreAttributeChanges
        ),
        Saboteur(
            "shrink-messages", "reports queues of small messages", _misreport(_shrink_messages, _QUEUE_ATTRIBUTES)
        ),
        Saboteur("move-queues", "answers another URL when a queue is created again", _MoveQueues),
        Saboteur("ignore-tags", "confirms tags and does not keep them", _IgnoreTags),
        Saboteur("shorten-ids", "cuts group and deduplication ids to 64 characters", _ShortenIds),
        Saboteur("salt-deduplication-ids", "makes every deduplication id a new one", _SaltDeduplicationIds),
        Saboteur(
            "lose-trace", "sends without system attributes", _omit("MessageSystemAttributes", of=("sqs.SendMessage",))
        ),
        Saboteur("reverse-batch-sends", "sends the entries of a batch in reverse", _ReverseBatchSends),
        Saboteur("lose-batch-entries", "confirms a batch and does its first entry only", _LoseBatchEntries),
        Saboteur(
            "hide-batch-failures",
            "reports failed entries of a batch as done",
            _misreport(_hide_failures, *_LoseBatchEntries.operations),
        ),
        Saboteur(
            "show-empty-lists", "answers an empty receive with an empty list", _misreport(_show_empty_lists, *_RECEIVE)
        ),
        Saboteur("widen-attribute-names", "returns all attributes whatever was asked for", _WidenAttributeNames),
        Saboteur(
            "drop-sender",
            "delivers messages without the id of their sender",
            _misreport(
                _of_each("Messages", lambda message: message.get("Attributes", {}).pop("SenderId", None)), *_RECEIVE
            ),
        ),
        Saboteur("renumber-messages", "gives a message another sequence number at every receive", _RenumberMessages),
        Saboteur(
            "blank-checksums",
            "answers checksums of nothing",
            _misreport(_blank_checksums, "sqs.SendMessage", *_RECEIVE),
        ),
        Saboteur("fill-receives", "brings ten messages where no number is given", _FillReceives),
        Saboteur("tell-all-attributes", "tells every attribute whatever was asked for", _TellAllAttributes),
        Saboteur(
            "hide-queues",
            "lists no queue",
            _misreport(lambda parsed: parsed.pop("QueueUrls", None), "sqs.ListQueues"),
        ),
        Saboteur(
            "ignore-attempt-ids",
            "takes a repeated receive for a new one",
            _omit("ReceiveRequestAttemptId", of=_RECEIVE),
        ),
        Saboteur("ignore-wait", "answers a long poll at once", _omit("WaitTimeSeconds", of=_RECEIVE)),
        Saboteur(
            "ignore-receive-visibility",
            "hides received messages for the queue's timeout",
            _omit("VisibilityTimeout", of=_RECEIVE),
        ),
        Saboteur("sticky-receives", "keeps a receive's visibility timeout for the next one", _StickyReceives),
        Saboteur("sticky-visibility", "keeps a changed visibility timeout for the next receive", _StickyVisibility),
        Saboteur("withhold-changed", "delivers nothing after a visibility change of a queue", _WithholdChanged),
        Saboteur("corrupt-bodies", "changes a character of received bodies", _CorruptBodies, ("G1",)),
        Saboteur("lose-publishes", "acknowledges publishes and drops them", _LosePublishes, ("A1",)),
    )
}


def saboteur(name: str) -> Saboteur:
    """Return the saboteur of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in SABOTEURS:
        raise ConfigError(f"saboteur {name!r} is unknown, allowed is one of {', '.join(SABOTEURS)}")
    return SABOTEURS[name]


def sabotage(clients: Iterable[BaseClient], name: str, *, every: int = 1) -> None:
    """Install one saboteur on all these clients, with one memory.

    Raises:
        ConfigError: there is no saboteur of that name.
    """
    made = saboteur(name).make(every)
    for client in clients:
        made.attach(client)
