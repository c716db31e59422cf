"""Saboteurs of sends and publishes: of their ids, order, attributes and sequence numbers."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from botocore.awsrequest import AWSResponse

from sluice.saboteurs.base import (
    ALL_SENDS,
    BATCH_SENDS,
    SENDS,
    Hook,
    Saboteur,
    address,
    answer_with,
    body,
    change,
    entries,
    omit,
)


class _ShortenIds(Hook):
    """Cuts group and deduplication ids to 64 characters."""

    operations = ALL_SENDS

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in entries(operation, params):
            for name in ("MessageGroupId", "MessageDeduplicationId"):
                if name in entry:
                    entry[name] = entry[name][:64]


class _SaltDeduplicationIds(Hook):
    """Appends a number to each deduplication id, so that no two sends have the same one."""

    operations = ("sqs.SendMessage", "sqs.SendMessageBatch")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in entries(operation, params):
            if "MessageDeduplicationId" in entry and self.strikes():
                entry["MessageDeduplicationId"] = f"{entry['MessageDeduplicationId'][:100]}.{self._opportunities}"


class _ForgetDeduplication(Hook):
    """Gives each repeated send another deduplication id, so that it is delivered again."""

    operations = ALL_SENDS

    def begin(self) -> None:
        self._sends: dict[tuple[str, str], int] = defaultdict(int)  # by (queue or topic, id or body)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in entries(operation, params):
            id_ = entry.get("MessageDeduplicationId", "")
            key = (address(params), id_ or body(entry))
            earlier_sends = self._sends[key]
            self._sends[key] += 1
            if earlier_sends and self.strikes():
                entry["MessageDeduplicationId"] = f"{id_[:100]}.again.{earlier_sends}"


class _ForgetAfterChange(_ForgetDeduplication):
    """Does so only for queues whose DeduplicationScope was changed."""

    operations = (*ALL_SENDS, "sqs.SetQueueAttributes")

    def begin(self) -> None:
        super().begin()
        self._changed: set[str] = set()

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.SetQueueAttributes":
            if "DeduplicationScope" in params["Attributes"]:
                self._changed.add(params["QueueUrl"])
        elif address(params) in self._changed:
            super().rewrite(operation, params)


class _SwallowRepeats(Hook):
    """Answers a repeated send with the answer of the first one, and does not send it."""

    operations = SENDS

    def begin(self) -> None:
        self._first: dict[tuple[str, str], dict[str, Any]] = {}  # answers, by (queue or topic, key of the send)

    def key(self, params: Mapping[str, Any]) -> str:
        """Return the value that is equal for repeated sends: the deduplication id, or the body without an id."""
        return str(params.get("MessageDeduplicationId") or body(params))

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        first = self._first.get((address(params), self.key(params)))
        return None if first is None else answer_with(**first)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        answer: dict[str, Any] = {name: parsed[name] for name in ("MessageId", "SequenceNumber") if name in parsed}
        self._first.setdefault((address(params), self.key(params)), answer)


class _SwallowBodies(_SwallowRepeats):
    """Takes two sends with the same body for repeats, whatever their ids."""

    def key(self, params: Mapping[str, Any]) -> str:
        return body(params)


class _MergeContents(_SwallowBodies):
    """Takes two sends with the same body for repeats if the second has no id."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        return None if "MessageDeduplicationId" in params else super().answer(operation, params)


class _RenumberAfterPurge(Hook):
    """Numbers the messages that are sent after a purge from 1 on."""

    operations = ("sqs.PurgeQueue", "sqs.SendMessage")

    def begin(self) -> None:
        self._numbers: dict[str, int] = {}

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        url = params["QueueUrl"]
        if "MessageBody" not in params:  # the answer to a purge
            self._numbers[url] = 0
        elif url in self._numbers and "SequenceNumber" in parsed:
            self._numbers[url] += 1
            parsed["SequenceNumber"] = str(self._numbers[url])


class _SaltContents(Hook):
    """Gives each publish without a deduplication id one of its own, instead of the hash of its body."""

    operations = ("sns.Publish", "sns.PublishBatch")

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        for entry in entries(operation, params):
            if self.strikes():
                entry.setdefault("MessageDeduplicationId", f"content-{self._opportunities}")


def _salt_published_id(params: dict[str, Any]) -> None:
    if "MessageDeduplicationId" in params:
        params["MessageDeduplicationId"] += ".published"


def _publish_as_text(params: dict[str, Any]) -> None:
    for name, attribute in params.get("MessageAttributes", {}).items():
        if attribute["DataType"] == "Binary":
            text = bytes(attribute["BinaryValue"]).decode("latin-1")
            params["MessageAttributes"][name] = {"DataType": "String", "StringValue": text}


class _FreezeSequenceNumbers(Hook):
    operations = SENDS

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "SequenceNumber" in parsed:
            parsed["SequenceNumber"] = "1"


class _LosePublishes(Hook):
    """Confirms a publish, or an entry of a batch, and does not send it."""

    operations = ("sns.Publish", "sns.PublishBatch")

    def begin(self) -> None:
        self._lost: list[dict[str, Any]] = []

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._lost = [entry for entry in entries(operation, params) if self.strikes()]
        if operation in BATCH_SENDS:
            others = [entry for entry in entries(operation, params) if entry not in self._lost]
            params[BATCH_SENDS[operation]] = others or self._lost[:1]  # botocore refuses an empty list

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if self._lost and entries(operation, params)[0] in self._lost:
            return (
                answer_with(MessageId="lost") if operation == "sns.Publish" else answer_with(Successful=[], Failed=[])
            )
        return None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "Successful" in parsed:
            parsed["Successful"] += [{"Id": entry["Id"], "MessageId": "lost"} for entry in self._lost]


SABOTEURS = {
    "shorten-ids": Saboteur("cuts group and deduplication ids to 64 characters", _ShortenIds),
    "salt-deduplication-ids": Saboteur("makes every deduplication id a new one", _SaltDeduplicationIds),
    "forget-deduplication": Saboteur("gives every repeat a deduplication id of its own", _ForgetDeduplication, ("B1",)),
    "forget-after-change": Saboteur(
        "gives every repeat an id of its own once the scope of its queue was changed", _ForgetAfterChange
    ),
    "swallow-repeats": Saboteur(
        "drops every repeat of a deduplication id, for ever and across groups", _SwallowRepeats
    ),
    "swallow-bodies": Saboteur("drops every repeat of a body", _SwallowBodies),
    "merge-contents": Saboteur("drops every repeat of a body without an id, across groups", _MergeContents),
    "renumber-after-purge": Saboteur("begins with sequence number 1 after a purge", _RenumberAfterPurge),
    "salt-published-contents": Saboteur("makes every publish without an id a new one", _SaltContents),
    "salt-published-ids": Saboteur(
        "publishes under other deduplication ids", change(_salt_published_id, "sns.Publish")
    ),
    "publish-binary-as-text": Saboteur("publishes binary attributes as text", change(_publish_as_text, "sns.Publish")),
    "freeze-sequence-numbers": Saboteur("gives every send the same sequence number", _FreezeSequenceNumbers),
    "lose-trace": Saboteur("sends without system attributes", omit("MessageSystemAttributes", of="sqs.SendMessage")),
    "strip-sent-attributes": Saboteur(
        "sends without message attributes", omit("MessageAttributes", of="sqs.SendMessage")
    ),
    "strip-published-attributes": Saboteur(
        "publishes without message attributes", omit("MessageAttributes", of="sns.Publish")
    ),
    "reverse-batch-sends": Saboteur(
        "sends the entries of a batch in reverse",
        change(lambda params: params.update(Entries=params["Entries"][::-1]), "sqs.SendMessageBatch"),
    ),
    "lose-publishes": Saboteur("acknowledges publishes and drops them", _LosePublishes, ("A1",)),
}
