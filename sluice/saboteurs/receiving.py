"""Saboteurs of receives: of the messages that a receive returns, of their order, bodies and attributes."""

import contextlib
import copy
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from sluice.limits import RECEIVE_MESSAGES_MAX
from sluice.saboteurs.base import (
    ALL_SENDS,
    RECEIVE,
    Hook,
    Saboteur,
    SqsCaller,
    answer_with,
    body,
    change,
    entries,
    misreport,
    of_received,
    omit,
    stamp,
)

_HOUR_MILLISECONDS = 3_600_000
_DELAYED_MILLISECONDS = 1_000
_LONG_ANSWER_MESSAGES = 6


class _LeakGroup(Hook):
    """Remembers what is sent, and fills an empty answer with the oldest message that was not delivered yet."""

    operations = ("sqs.SendMessage", *RECEIVE)

    def begin(self) -> None:
        self._waiting: dict[str, list[dict[str, Any]]] = defaultdict(list)  # sends, by the queue's URL
        self._numbers = itertools.count()

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation == "sqs.SendMessage":
            self._waiting[params["QueueUrl"]].append(copy.deepcopy(params))

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "MessageBody" in params:  # the answer to a send
            return
        waiting = self._waiting[params["QueueUrl"]]
        delivered = [message["Body"] for message in parsed.get("Messages", [])]
        waiting[:] = [sent for sent in waiting if sent["MessageBody"] not in delivered]
        if not delivered and waiting and self.strikes():
            parsed["Messages"] = [self._forge(waiting.pop(0))]

    def _forge(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Return a received message made of the parameters of its send."""
        number = next(self._numbers)
        return {
            "MessageId": f"forged-{number}",
            "ReceiptHandle": f"forged-{number}",
            "Body": sent["MessageBody"],
            "Attributes": {"MessageGroupId": sent.get("MessageGroupId", ""), "ApproximateReceiveCount": "1"},
        }


class _WithholdLater(Hook):
    """Lets one answer with messages of each queue pass, and empties the later ones."""

    operations = RECEIVE

    def begin(self) -> None:
        self._served: set[str] = set()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if params["QueueUrl"] in self._served:
            parsed.pop("Messages", None)
        elif parsed.get("Messages"):
            self._served.add(params["QueueUrl"])


class _WithholdOtherGroups(Hook):
    """Delivers from each queue only the group that it received first."""

    operations = RECEIVE

    def begin(self) -> None:
        self._first_group: dict[str, str] = {}  # by the queue's URL

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        groups = [message.get("Attributes", {}).get("MessageGroupId", "") for message in parsed.get("Messages", [])]
        if groups:
            first = self._first_group.setdefault(params["QueueUrl"], groups[0])
            messages = [
                message for message, group in zip(parsed.pop("Messages"), groups, strict=True) if group == first
            ]
            parsed |= {"Messages": messages} if messages else {}


class _SplitReceives(SqsCaller):
    """Delivers the first group of an answer, and releases the messages of the others."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        messages = parsed.get("Messages", [])
        groups = [message.get("Attributes", {}).get("MessageGroupId") for message in messages]
        first_count = groups.count(groups[0]) if groups else 0  # an answer has one group after the other
        for message in messages[first_count:]:
            self.sqs.change_message_visibility(
                QueueUrl=params["QueueUrl"], ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        if messages:
            parsed["Messages"] = messages[:first_count]


class _BlockStandardQueues(_WithholdLater):
    """Withholds the later answers of standard queues only."""

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if not params["QueueUrl"].endswith(".fifo"):
            super().edit_answer(params, parsed, http_response)


class _DropMessages(SqsCaller):
    """Deletes received messages, and does not deliver them."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        delivered = []
        for message in parsed.pop("Messages", []):
            if self.strikes():
                # A message received with visibility timeout 0 cannot be deleted; it is only withheld.
                with contextlib.suppress(ClientError):
                    self.sqs.delete_message(QueueUrl=params["QueueUrl"], ReceiptHandle=message["ReceiptHandle"])
            else:
                delivered.append(message)
        if delivered:
            parsed["Messages"] = delivered


class _DeliverTwice(Hook):
    """Answers a later receive with a copy of a delivered message, under another message id."""

    operations = RECEIVE

    def begin(self) -> None:
        self._again: dict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        again = self._again[params["QueueUrl"]]
        return answer_with(Messages=[again.popleft()]) if again else None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if not message["MessageId"].startswith("again-") and self.strikes():
                self._again[params["QueueUrl"]].append({**message, "MessageId": "again-" + message["MessageId"]})


class _RepeatAttempts(Hook):
    """Answers each receive with a known ReceiveRequestAttemptId with the messages of the first one, for ever."""

    operations = RECEIVE

    def begin(self) -> None:
        self._first: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by (queue's URL, attempt id)

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        first = self._first.get((params["QueueUrl"], params.get("ReceiveRequestAttemptId", "")))
        return answer_with(Messages=copy.deepcopy(first)) if first else None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if "ReceiveRequestAttemptId" in params and "Messages" in parsed:
            self._first[params["QueueUrl"], params["ReceiveRequestAttemptId"]] = copy.deepcopy(parsed["Messages"])


class _ShortenAttempts(Hook):
    """Gives a receive that is repeated by its ReceiveRequestAttemptId a visibility timeout of one second."""

    operations = RECEIVE

    def begin(self) -> None:
        self._known_ids: set[str] = set()

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if params.get("ReceiveRequestAttemptId") in self._known_ids:
            params["VisibilityTimeout"] = 1

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if parsed.get("Messages"):
            self._known_ids.add(params.get("ReceiveRequestAttemptId", ""))


class _ShiftSentAt(Hook):
    """Adds to each message's SentTimestamp the number of messages received so far, in milliseconds."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if "SentTimestamp" in message.get("Attributes", {}) and self.strikes():
                sent_at = int(message["Attributes"]["SentTimestamp"])
                message["Attributes"]["SentTimestamp"] = str(sent_at + self._opportunities)


def _flatten_body(message: dict[str, Any]) -> None:
    message["Body"] = message["Body"].encode("ascii", "replace").decode()


def _stamp_group(message: dict[str, Any]) -> None:
    message.setdefault("Attributes", {}).setdefault("MessageGroupId", "stamped")


class _ReverseBatch(Hook):
    """Reverses the messages of an answer if `applies`, called with them, returns True."""

    operations: tuple[str, ...] = RECEIVE

    def __init__(self, every: int, applies: Callable[[list[dict[str, Any]]], bool] = bool) -> None:
        super().__init__(every)
        self._applies = applies

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        messages = parsed.get("Messages", [])
        if len(messages) > 1 and self._applies(messages) and self.strikes():
            messages.reverse()


class _ReverseMoves(_ReverseBatch):
    """Reverses the messages of all answers after the first move task."""

    operations = ("sqs.StartMessageMoveTask", *RECEIVE)

    def __init__(self, every: int) -> None:
        super().__init__(every, lambda _: self._has_moved)
        self._has_moved = False

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._has_moved |= operation == "sqs.StartMessageMoveTask"


def _reverse_if(applies: Callable[[list[dict[str, Any]]], bool]) -> Callable[[int], Hook]:
    return lambda every: _ReverseBatch(every, applies)


def _has_several_groups(messages: list[dict[str, Any]]) -> bool:
    return len({message.get("Attributes", {}).get("MessageGroupId") for message in messages}) > 1


def _is_received_again(messages: list[dict[str, Any]]) -> bool:
    return bool(messages[0].get("Attributes", {}).get("ApproximateReceiveCount", "1") != "1")


def _is_dead(messages: list[dict[str, Any]]) -> bool:
    return "DeadLetterQueueSourceArn" in messages[0].get("Attributes", {})


def _has_waited(messages: list[dict[str, Any]]) -> bool:
    attributes = messages[0].get("Attributes", {})
    sent, received = (int(attributes.get(name, 0)) for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"))
    return received - sent > _DELAYED_MILLISECONDS


class _InterleaveGroups(Hook):
    """Reorders an answer: the first message of each group, then the second of each, and so on."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for message in parsed.get("Messages", []):
            groups[message.get("Attributes", {}).get("MessageGroupId", "")].append(message)
        if len(groups) > 1 and self.strikes():
            rounds = itertools.zip_longest(*groups.values())
            parsed["Messages"] = [message for messages in rounds for message in messages if message is not None]


class _SwapBodies(Hook):
    """Exchanges the bodies of two successive messages when they are received.

    Args:
        every: unused; the pair is exchanged at each receive.
        first: the position of the first of the two among the messages sent to one queue, or to any topic.
        sends: the operations whose messages are counted.
    """

    def __init__(self, every: int, *, first: int, sends: tuple[str, ...]) -> None:
        super().__init__(every, (*sends, *RECEIVE))
        self._sends, self._pair = sends, slice(first, first + 2)
        self._sent: dict[str, list[str]] = defaultdict(list)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        if operation in self._sends:
            self._sent[params.get("QueueUrl", "")].extend(body(entry) for entry in entries(operation, params))

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            pair = (self._sent[params["QueueUrl"]] or self._sent[""])[self._pair]
            if message["Body"] in pair:
                message["Body"] = pair[len(pair) - 1 - pair.index(message["Body"])]


class _EachMessage(Hook):
    """Calls `edit` with each received message, or with each n-th one."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in parsed.get("Messages", []):
            if self.strikes():
                self.edit(message)

    def edit(self, message: dict[str, Any]) -> None:
        """Change the message in place."""


class _CorruptBodies(_EachMessage):
    """Replaces the last but two character of a body."""

    def edit(self, message: dict[str, Any]) -> None:
        message["Body"] = message["Body"][:-3] + "\N{REPLACEMENT CHARACTER}" + message["Body"][-2:]


class _ChangeMessageIds(_EachMessage):
    def edit(self, message: dict[str, Any]) -> None:
        message["MessageId"] = f"changed-{self._opportunities}-{message['MessageId']}"


class _RenumberMessages(_EachMessage):
    def edit(self, message: dict[str, Any]) -> None:
        message.setdefault("Attributes", {})["SequenceNumber"] = str(self._opportunities)


def _widen_attribute_names(params: dict[str, Any]) -> None:
    params["MessageSystemAttributeNames"] = params["MessageAttributeNames"] = ["All"]


def _wait_for_all(params: dict[str, Any]) -> None:
    """Turn a receive that does not want to wait into one that waits as long as the queue's attribute says."""
    if params.get("WaitTimeSeconds") == 0:
        del params["WaitTimeSeconds"]


def _ask_for_ten(params: dict[str, Any]) -> None:
    """Ask for ten messages where the caller names no number: one message alone cannot be out of order."""
    params.setdefault("MaxNumberOfMessages", RECEIVE_MESSAGES_MAX)


def _backdate(message: dict[str, Any]) -> None:
    if sent_at := message.get("Attributes", {}).get("SentTimestamp"):
        message["Attributes"]["SentTimestamp"] = str(int(sent_at) - _HOUR_MILLISECONDS)


def _blank_checksums(parsed: dict[str, Any]) -> None:
    for holder in (parsed, *parsed.get("Messages", [])):
        for name in ("MD5OfBody", "MD5OfMessageBody", "MD5OfMessageAttributes"):
            if name in holder:
                holder[name] = "0" * 32


SABOTEURS = {
    "leak-group": Saboteur("delivers the next message of a blocked group", _LeakGroup),
    "drop-messages": Saboteur("deletes messages instead of delivering them", _DropMessages, ("E1",)),
    "withhold-other-groups": Saboteur("delivers from a queue one group only", _WithholdOtherGroups),
    "block-standard-queues": Saboteur("delivers from a standard queue once only", _BlockStandardQueues),
    "drop-each-tenth": Saboteur("receives every tenth message and drops it", lambda every: _DropMessages(10 * every)),
    "repeat-each-tenth": Saboteur(
        "delivers every tenth message again as a new one", lambda every: _DeliverTwice(10 * every)
    ),
    "flatten-bodies": Saboteur("delivers question marks for what is not ASCII", of_received(_flatten_body)),
    "deliver-twice": Saboteur("delivers messages a second time, as new ones", _DeliverTwice, ("B1",)),
    "reverse-batch": Saboteur("reverses the messages of an answer", _ReverseBatch, ("C2",)),
    "interleave-groups": Saboteur("takes turns between the groups of an answer", _InterleaveGroups),
    "reverse-moved": Saboteur("reverses the messages of an answer after a move task", _ReverseMoves),
    **{
        f"reverse-{which}": Saboteur(f"reverses the messages of an answer {where}", _reverse_if(applies))
        for which, where, applies in (
            ("mixed", "of several groups", _has_several_groups),
            ("redelivered", "that begins with one received before", _is_received_again),
            ("dead-letters", "of dead letters", _is_dead),
            ("delayed", "that waited for more than a second", _has_waited),
            ("long", "of six or more", lambda messages: len(messages) >= _LONG_ANSWER_MESSAGES),
        )
    },
    "swap-late-bodies": Saboteur(
        "exchanges the fourth and the fifth message of a queue or topic",
        lambda every: _SwapBodies(every, first=3, sends=ALL_SENDS),
    ),
    "swap-batch-bodies": Saboteur(
        "exchanges the first two messages of a batch to a topic",
        lambda every: _SwapBodies(every, first=0, sends=("sns.PublishBatch",)),
    ),
    "corrupt-bodies": Saboteur("changes a character of received bodies", _CorruptBodies, ("G1",)),
    "change-message-ids": Saboteur("gives received messages other message ids", _ChangeMessageIds),
    "renumber-messages": Saboteur("gives a message another sequence number at every receive", _RenumberMessages),
    "widen-attribute-names": Saboteur(
        "returns all attributes whatever was asked for", change(_widen_attribute_names, *RECEIVE)
    ),
    "split-receives": Saboteur("delivers of an answer's groups the first only", _SplitReceives),
    "wait-for-all": Saboteur(
        "waits as long as the queue says where no wait is wanted", change(_wait_for_all, *RECEIVE)
    ),
    "fill-receives": Saboteur("brings ten messages where no number is given", change(_ask_for_ten, *RECEIVE)),
    "show-empty-lists": Saboteur(
        "answers an empty receive with an empty list",
        misreport(lambda parsed: parsed.setdefault("Messages", []), *RECEIVE),
    ),
    "blank-checksums": Saboteur(
        "answers checksums of nothing", misreport(_blank_checksums, "sqs.SendMessage", *RECEIVE)
    ),
    "drop-message-attributes": Saboteur(
        "delivers messages without their attributes",
        of_received(lambda message: message.pop("MessageAttributes", None)),
    ),
    "drop-sender": Saboteur(
        "delivers messages without the id of their sender",
        of_received(lambda message: message.get("Attributes", {}).pop("SenderId", None)),
    ),
    "regroup-messages": Saboteur("delivers all messages as of one group", stamp("MessageGroupId", "regrouped")),
    "relabel-messages": Saboteur(
        "delivers all messages under one deduplication id", stamp("MessageDeduplicationId", "relabelled")
    ),
    "freeze-sent-at": Saboteur("reports every message as sent at one instant", stamp("SentTimestamp", "1700000000000")),
    "backdate-messages": Saboteur("reports every message as sent an hour earlier", of_received(_backdate)),
    "misname-sender": Saboteur("reports every message as sent by somebody else", stamp("SenderId", "AIDAMISNAMED")),
    "freeze-receive-count": Saboteur("reports every receive as the first", stamp("ApproximateReceiveCount", "1")),
    "ignore-attempt-ids": Saboteur(
        "takes a repeated receive for a new one", omit("ReceiveRequestAttemptId", of=RECEIVE)
    ),
    "repeat-attempts": Saboteur("brings the same again for an attempt id, for ever", _RepeatAttempts),
    "shorten-attempts": Saboteur("hides what a repeated receive brings for a second", _ShortenAttempts),
    "shift-sent-at": Saboteur("reports every receive of a message as sent later", _ShiftSentAt),
    "stamp-groups": Saboteur("gives a group to messages without one", of_received(_stamp_group)),
    "ignore-wait": Saboteur("answers a long poll at once", omit("WaitTimeSeconds", of=RECEIVE)),
}
