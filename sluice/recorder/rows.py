"""The rows that a recorder writes for the calls of boto3 clients, made of parameters and answers."""

import hashlib
import json
import re
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sluice.history.bundles import BundledBody, bundled_bodies, part_id, part_number
from sluice.history.events import (
    DELETION_DETAIL,
    OTHER_GROUP,
    CallOutcome,
    Identity,
    Kind,
    answer_detail,
    detail_of,
    pad_sequence_number,
    publish_detail,
    settings_detail,
    short_hash,
    subscription_detail,
    unwrap,
)
from sluice.recorder.move_tasks import RecordedMoveTasks
from sluice.recorder.subscriptions import RecordedSubscriptions

_HANDLES_MAX = 20_000
_NUMBER_SETTINGS = ("VisibilityTimeout", "MessageRetentionPeriod")
_NUMBER_MAX = (1 << 31) - 1

type JournalRow = dict[str, Any]
type AnsweredRows = list[tuple[JournalRow, CallOutcome]]


class Identify(Protocol):
    """Returns the identity of a message by its body and ids; None if they do not show it."""

    def __call__(self, *, body: str, deduplication_id: str | None, message_group_id: str | None) -> Identity | None:
        """Return the identity."""


def to_recordable(value: Any) -> Any:
    """Return a copy of parameters, or of an answer, in which a journal can hold every text and number.

    SQS and SNS refuse what a journal cannot hold: half a surrogate pair, a number of more than 32 bits, a bool in place
    of a number.
    """
    if isinstance(value, Mapping):
        return {name: to_recordable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_recordable(item) for item in value]
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, int):
        return max(-_NUMBER_MAX, min(int(value), _NUMBER_MAX))
    return bytes(value) if isinstance(value, bytearray) else value


def short_name(address: str) -> str:
    """Return the name at the end of a queue URL or an ARN."""
    return re.split("[:/]", address)[-1]


def group_id(address: str, found: str | None) -> str | None:
    """Return the group of a message at a queue URL or topic ARN; None at a standard one.

    There it promises no order and blocks nothing. AWS: the name of a FIFO queue or topic ends with `.fifo`; a standard
    queue takes a group id for fairness
    (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html, read 2026-11-27).
    """
    return found if address.endswith(".fifo") else None


class RowFactory:
    """Makes the rows of one process, and remembers the message of each receipt handle that it saw.

    Args:
        names: queue URL or topic ARN to the name used in the history; a queue or topic that is not there keeps the name
            at the end of its URL or ARN.
        identify: returns the identity of a message.
        keeps_sizes: whether the event of a publish records the size of the body; a load test knows it from its plan.
    """

    def __init__(self, *, names: Mapping[str, str], identify: Identify, keeps_sizes: bool = False) -> None:
        self._names, self._identify, self._keeps_sizes = names, identify, keeps_sizes
        self._queues = {short_name(address): name for address, name in names.items() if not address.startswith("arn:")}
        self._planned: dict[str, tuple[int, int, str | None]] = {}
        self._handles: OrderedDict[str, list[JournalRow]] = OrderedDict()
        self.move_tasks = RecordedMoveTasks()
        self.subscriptions = RecordedSubscriptions()

    def plan(
        self, *, deduplication_id: str, intended_at_us: int, publish_attempt: int, phase: str | None = None
    ) -> None:
        """Add to the next publish with that id its intended instant, its attempt and its phase."""
        self._planned[deduplication_id] = (intended_at_us, publish_attempt, phase)

    def name_of(self, address: str) -> str:
        """Return the history's name for a queue URL or topic ARN."""
        return self._names.get(address) or short_name(address)

    def name_of_queue(self, arn: str) -> str:
        """Return the history's name for a queue, given its ARN.

        `names` may have only the queue's URL. URL and ARN end with the same name, so the queue is then found by it.
        """
        return self._names.get(arn) or self._queues.get(short_name(arn), short_name(arn))

    def of_message(self, *, body: str, deduplication_id: str | None, message_group_id: str | None) -> JournalRow:
        """Return the fields that identify a message."""
        identity = self._identify(body=body, deduplication_id=deduplication_id, message_group_id=message_group_id)
        return {
            "message_group_id": message_group_id,
            "idx": None if identity is None else identity.idx,
            "message_run": None if identity is None else identity.run,
        }

    def of_bundled(self, event: BundledBody, message_group_id: str | None) -> JournalRow:
        """Return the fields that identify an event of a bundle: its group is the one that it states."""
        is_ordered = message_group_id is not None
        return self.of_message(
            body=event.body,
            deduplication_id=event.event_id,
            message_group_id=(event.message_group_id or message_group_id) if is_ordered else None,
        )

    def publish(self, address: str, entry: Mapping[str, Any], position: int | None) -> list[JournalRow]:
        """Return the event of a message that is published or sent; of a bundle, those of its events."""
        body, deduplication_id = _body(entry), entry.get("MessageDeduplicationId")
        group = group_id(address, entry.get("MessageGroupId"))
        row = {
            "kind": Kind.PUBLISHED.value,
            "queue": self.name_of(address),
            "batch_position": position,
            "attributes_hash": attributes_hash(entry.get("MessageAttributes")),
        }
        ids = {"deduplication_id": deduplication_id}
        bundled = bundled_bodies(body)
        if not bundled:
            of_message = self.of_message(body=body, deduplication_id=deduplication_id, message_group_id=group)
            return [row | ids | self._of_publish(body, deduplication_id) | of_message]
        return [
            _with_other_group(
                row
                | ids_of_event(ids, place, len(bundled))
                | self._of_publish(event.body, event.event_id)
                | self.of_bundled(event, group),
                group,
            )
            for place, event in enumerate(bundled)
        ]

    def _of_publish(self, body: str, planned_id: str | None) -> JournalRow:
        intended_at_us, attempt, phase = self._planned.pop(planned_id or "", (None, None, None))
        return {
            "intended_at_us": intended_at_us,
            "publish_attempt": attempt,
            "phase": phase,
            "body_hash": short_hash(body),
            "detail": publish_detail(len(body.encode()) if self._keeps_sizes else None),
        }

    def with_queues(self, row: JournalRow, address: str, entry: Mapping[str, Any], at_us: int) -> JournalRow:
        """Return the event of a publish with the queues that certainly get the message, or certainly do not."""
        accepted = self.subscriptions.acceptances(address, entry, at_us)
        if not accepted:
            return row
        named = {self.name_of_queue(arn): is_accepted for arn, is_accepted in accepted.items()}
        return row | {"detail": json.dumps({**detail_of(row["detail"]), "accepted": named})}

    def subscription(self, queue_arn: str | None) -> JournalRow:
        """Return the event of a change to a queue's subscription; None stands for a queue that is not known."""
        queue = None if queue_arn is None else self.name_of_queue(queue_arn)
        return {"kind": Kind.TOPOLOGY.value, "detail": subscription_detail(queue)}

    def handle(self, kind: Kind, url: str, entry: Mapping[str, Any], position: int | None) -> list[JournalRow]:
        """Return the events of a delete or visibility change, with the known facts about the message of its handle."""
        hashed = short_hash(entry.get("ReceiptHandle", ""))
        row = {
            "kind": kind.value,
            "queue": self.name_of(url),
            "batch_position": position,
            "receipt_handle_hash": hashed,
            "visibility_timeout_seconds": entry.get("VisibilityTimeout"),
        }
        return [row | of_message for of_message in self._handles.get(hashed, [{}])]

    def purge(self, url: str, _: Mapping[str, Any], position: int | None) -> list[JournalRow]:
        """Return the event of a purge."""
        return [{"kind": Kind.PURGED.value, "queue": self.name_of(url), "batch_position": position}]

    def delete_queue(self, url: str, entry: Mapping[str, Any], position: int | None) -> list[JournalRow]:
        """Return the event of a queue being deleted, which removes its messages as a purge does."""
        return [row | {"detail": DELETION_DETAIL} for row in self.purge(url, entry, position)]

    def set_queue(self, url: str, params: Mapping[str, Any], _: int | None) -> list[JournalRow]:
        """Return the event of a queue being given settings, of those that decide what it may do with a message."""
        attributes = params.get("Attributes", {})
        settings = {name: _whole_or_none(attributes[name]) for name in _NUMBER_SETTINGS if name in attributes}
        if "RedrivePolicy" in attributes:
            settings["maxReceiveCount"] = _receives_max(attributes["RedrivePolicy"])
        return [{"kind": Kind.TOPOLOGY.value, "detail": settings_detail(self.name_of(url), settings)}]

    def move(self, params: Mapping[str, Any]) -> JournalRow:
        """Return the event of a move task; without a destination each message goes to the queue it came from."""
        arn = params.get("DestinationArn")
        destination = None if arn is None else self.name_of_queue(arn)
        return {
            "kind": Kind.REDRIVEN.value,
            "queue": self.name_of_queue(params["SourceArn"]),
            "detail": json.dumps({"destination": destination}),
        }

    def poll(self, params: Mapping[str, Any], received_count: int) -> JournalRow:
        """Return the event of one receive call."""
        return {
            "kind": Kind.POLL.value,
            "queue": self.name_of(params["QueueUrl"]),
            "visibility_timeout_seconds": params.get("VisibilityTimeout"),
            "receive_request_attempt_id": params.get("ReceiveRequestAttemptId"),
            "max_number_of_messages": params.get("MaxNumberOfMessages", 1),
            "wait_time_seconds": params.get("WaitTimeSeconds"),
            "detail": answer_detail(received_count),
        }

    def receive_rows(
        self, params: Mapping[str, Any], message: Mapping[str, Any], position: int, count: int
    ) -> list[JournalRow]:
        """Return the event of one of the received messages, or those of its bundle; remember its receipt handle."""
        attributes = message.get("Attributes", {})
        whole = message.get("Body", "")
        body, envelope = unwrap(whole)
        deduplication_id = attributes.get("MessageDeduplicationId")
        group = group_id(params["QueueUrl"], attributes.get("MessageGroupId"))
        hashed = short_hash(message.get("ReceiptHandle", ""))
        row = {
            "kind": Kind.RECEIVED.value,
            "queue": self.name_of(params["QueueUrl"]),
            "batch_position": position,
            "receive_count": _whole(attributes.get("ApproximateReceiveCount")),
            "receipt_handle_hash": hashed,
            "sent_at_us": _ms_to_us(attributes.get("SentTimestamp")),
            "first_received_at_us": _ms_to_us(attributes.get("ApproximateFirstReceiveTimestamp")),
            "visibility_timeout_seconds": params.get("VisibilityTimeout"),
            "receive_request_attempt_id": params.get("ReceiveRequestAttemptId"),
            "max_number_of_messages": params.get("MaxNumberOfMessages", 1),
            "attributes_hash": _received_attributes_hash(params, message, is_enveloped=bool(envelope)),
            "md5_ok": message.get("MD5OfBody") == hashlib.md5(whole.encode(), usedforsecurity=False).hexdigest(),
            "detail": answer_detail(count),
        }
        ids = {
            "deduplication_id": deduplication_id,
            "sns_message_id": envelope.get("MessageId"),
            "sns_sequence_number": pad_sequence_number(envelope.get("SequenceNumber")),
            "sqs_message_id": message.get("MessageId"),
            "sqs_sequence_number": pad_sequence_number(attributes.get("SequenceNumber")),
        }
        bundled = bundled_bodies(body)
        if bundled:
            bodies, events = [event.body for event in bundled], [self.of_bundled(event, group) for event in bundled]
        else:
            of_message = self.of_message(body=body, deduplication_id=deduplication_id, message_group_id=group)
            bodies, events = [body], [of_message]
        ids_of_events = [ids_of_event(ids, place, len(events)) for place in range(len(events))]
        self._remember(
            hashed,
            [
                event | {"sqs_message_id": of_event["sqs_message_id"]}
                for event, of_event in zip(events, ids_of_events, strict=True)
            ],
        )
        return [
            _with_other_group(row | of_event | {"body_hash": short_hash(text)} | event, group)
            for text, event, of_event in zip(bodies, events, ids_of_events, strict=True)
        ]

    def _remember(self, handle_hash: str, of_events: list[JournalRow]) -> None:
        self._handles[handle_hash] = of_events
        if len(self._handles) > _HANDLES_MAX:
            self._handles.popitem(last=False)


def ids_of_event(ids: JournalRow, position: int, count: int) -> JournalRow:
    """Return the ids and sequence numbers of the event at a position in a message of `count` events."""
    if count == 1:
        return ids
    return {
        name: value and (part_number if name.endswith("_number") else part_id)(value, position)
        for name, value in ids.items()
    }


def _with_other_group(row: JournalRow, message_group_id: str | None) -> JournalRow:
    """Return the row of an event, with the group of its bundle in the detail if the event states another one."""
    if row["message_group_id"] == message_group_id:
        return row
    return row | {"detail": json.dumps({**detail_of(row["detail"]), OTHER_GROUP: message_group_id})}


def _flatten(of_entries: Sequence[list[JournalRow]]) -> list[JournalRow]:
    """Return the rows of a call's messages; the position of each event of a bundle is its own."""
    rows = [row for of_entry in of_entries for row in of_entry]
    if len(rows) > len(of_entries):
        for position, row in enumerate(rows):
            row["batch_position"] = position
    return rows


def _body(entry: Mapping[str, Any]) -> str:
    """Return the body that a queue gets; a message with `MessageStructure` json has a body for each protocol."""
    body = str(entry.get("Message", entry.get("MessageBody", "")))
    if entry.get("MessageStructure") == "json":
        try:
            by_protocol = json.loads(body)
            return str(by_protocol.get("sqs", by_protocol["default"]))
        except (ValueError, KeyError, AttributeError):
            pass  # SNS refuses it
    return body


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _whole_or_none(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _receives_max(policy: str) -> int | None:
    """Return the maxReceiveCount of a redrive policy; None if there is none, or the policy is none that SQS takes."""
    try:
        return int(json.loads(policy)["maxReceiveCount"])
    except (ValueError, LookupError, TypeError):
        return None


def _ms_to_us(text: str | None) -> int | None:
    return None if text is None else int(text) * 1_000


def _received_attributes_hash(
    params: Mapping[str, Any], message: Mapping[str, Any], *, is_enveloped: bool
) -> str | None:
    """Return the hash over the received attributes; None if not all attributes were requested, so some may be missing.

    A message without attributes has a hash too. But in an envelope of SNS the attributes are in the body: then None.
    """
    attributes = message.get("MessageAttributes")
    if {"All", ".*"}.isdisjoint(params.get("MessageAttributeNames", ())) or (is_enveloped and not attributes):
        return None
    return attributes_hash(attributes)


def attributes_hash(attributes: Mapping[str, Any] | None) -> str:
    """Return the hash of a message's attributes; a message without any has one, too, because that is known."""
    return short_hash(json.dumps(attributes or {}, sort_keys=True, default=lambda raw: b64encode(raw).decode()))


def entries_by_id(entries: Sequence[Mapping[str, Any] | None]) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a batch's answer by their ids, without those that name no message, such as null."""
    return {entry["Id"]: entry for entry in entries if entry and isinstance(entry.get("Id"), str)}


class _Operation:
    """The rows of an operation: before its call, when it was answered, and when it was refused or never answered."""

    is_flushed = True
    """Whether the rows from before a call are flushed to the file before the request is sent."""

    def rows_before_call(self, rows: RowFactory, params: Mapping[str, Any]) -> list[list[JournalRow]]:
        """Return the rows of a call that is about to be made, a list for each entry of its batch: by default none."""
        return []

    def begin(self, rows: RowFactory, call: dict[str, Any]) -> list[JournalRow]:
        """Return the rows of a call that is about to be made, which `call` keeps for its answer."""
        call["of_entries"] = self.rows_before_call(rows, call["params"])
        call["rows"] = _flatten(call["of_entries"])
        return list(call["rows"])

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        """Return the rows of a call that was answered, each with its outcome."""
        raise NotImplementedError

    def failure_rows(self, rows: RowFactory, call: Mapping[str, Any]) -> list[JournalRow]:
        """Return the rows of a call that was refused or never answered: by default those from before it."""
        return list(call["rows"])


class _IntendedOperation(_Operation):
    """An operation that is recorded before the call: its rows follow from the parameters.

    Args:
        address: the parameter with the queue or topic; a call without it, such as an SMS, has no rows.
        make: makes the rows of (rows, address, entry, position): several for a bundle.
        ok_fields: returns the fields that a successful entry of the answer adds.
        entries: the parameter that lists the entries; None for an operation on one message.
    """

    def __init__(
        self,
        address: str,
        make: Callable[[RowFactory, str, Mapping[str, Any], int | None], list[JournalRow]],
        ok_fields: Callable[[Mapping[str, Any]], JournalRow] = lambda _: {},
        *,
        entries: str | None = None,
    ) -> None:
        self._address, self._make, self._ok_fields, self._entries = address, make, ok_fields, entries

    def rows_before_call(self, rows: RowFactory, params: Mapping[str, Any]) -> list[list[JournalRow]]:
        address = params.get(self._address, params.get("TargetArn"))
        if address is None:
            return []
        if self._entries is None:
            return [self._make(rows, address, params, None)]
        return [self._make(rows, address, entry, index) for index, entry in enumerate(params.get(self._entries, []))]

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        return [answered for of_entry in self._answered_entries(call, parsed) for answered in of_entry]

    def _answered_entries(self, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> list[AnsweredRows]:
        """Return the answered rows of each entry."""
        if self._entries is None:
            return [self._with_fields(of_entry, self._ok_fields(parsed)) for of_entry in call["of_entries"]]
        good, bad = entries_by_id(parsed.get("Successful", [])), entries_by_id(parsed.get("Failed", []))
        return [
            self._answered_entry(of_entry, entry["Id"], good, bad)
            for of_entry, entry in zip(call["of_entries"], call["params"][self._entries], strict=True)
        ]

    def _answered_entry(
        self, of_entry: list[JournalRow], id_: str, good: Mapping[str, Any], bad: Mapping[str, Any]
    ) -> AnsweredRows:
        if id_ in good:
            return self._with_fields(of_entry, self._ok_fields(good[id_]))
        outcome, error = CallOutcome.INFO, "NotInAnswer"
        if id_ in bad:
            outcome = CallOutcome.FAIL if bad[id_].get("SenderFault") else CallOutcome.INFO
            error = bad[id_].get("Code")
        return [(row | {"error": error}, outcome) for row in of_entry]

    def _with_fields(self, of_entry: list[JournalRow], ids: JournalRow) -> AnsweredRows:
        count = len(of_entry)
        return [(row | ids_of_event(ids, place, count), CallOutcome.OK) for place, row in enumerate(of_entry)]


class _Publish(_IntendedOperation):
    """Publish and PublishBatch. An answered one also names the queues that certainly get the message, or do not."""

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        params = call["params"]
        topic = params.get("TopicArn", params.get("TargetArn"))
        entries = params.get("PublishBatchRequestEntries", [params])
        return [
            (rows.with_queues(row, topic, entry, call["invoked_at_us"]), outcome)
            for of_entry, entry in zip(self._answered_entries(call, parsed), entries, strict=False)
            for row, outcome in of_entry
        ]


class _Subscription(_Operation):
    """A call from whose answer the filter policy of a subscription is learnt; a call that may change it has a row.

    Args:
        learn: takes the subscriptions, parameters, answer, and time of the call.
        changes: returns the event of a change in a list; an empty list for a call that changes nothing.
    """

    def __init__(
        self,
        learn: Callable[[RecordedSubscriptions, Mapping[str, Any], Mapping[str, Any], int], None],
        changes: Callable[[RowFactory, Mapping[str, Any]], list[JournalRow]] = lambda *_: [],
    ) -> None:
        self._learn, self._changes = learn, changes

    def rows_before_call(self, rows: RowFactory, params: Mapping[str, Any]) -> list[list[JournalRow]]:
        return [self._changes(rows, params)]

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        self._learn(rows.subscriptions, call["params"], parsed, call["invoked_at_us"])
        return [(row, CallOutcome.OK) for row in call["rows"]]


def _begin_change(rows: RowFactory, params: Mapping[str, Any]) -> list[JournalRow]:
    return [rows.subscription(rows.subscriptions.begin_change(params["SubscriptionArn"]))]


class _Receive(_Operation):
    """ReceiveMessage: before its answer only the call is recorded; no hook reports the end of a cancelled call."""

    is_flushed = False  # if the process dies, its journal has no end, and a check knows that polls may be missing

    def rows_before_call(self, rows: RowFactory, params: Mapping[str, Any]) -> list[list[JournalRow]]:
        return [[rows.poll(params, 0)]]

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        """Return the event of the poll, and one for each message that it returned, or for each event of a bundle."""
        params = call["params"]
        messages: Sequence[Mapping[str, Any]] = to_recordable([m for m in parsed.get("Messages", []) if m])
        count = len(messages)
        received = [rows.receive_rows(params, message, index, count) for index, message in enumerate(messages)]
        return [(row, CallOutcome.OK) for row in (rows.poll(params, count), *_flatten(received))]


class _StartMove(_Operation):
    """StartMessageMoveTask: its answer says only that the task begins; a later list or cancel says how it ended."""

    def rows_before_call(self, rows: RowFactory, params: Mapping[str, Any]) -> list[list[JournalRow]]:
        return [[rows.move(params)]]

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        """Return no rows: the intent stands until the task has ended."""
        of_call = {name: call[name] for name in ("call_id", "invoked_at_us")}
        rows.move_tasks.start(call["params"]["SourceArn"], parsed.get("TaskHandle"), call["rows"][0] | of_call)
        return []


class _MoveTaskEnd(_Operation):
    """ListMessageMoveTasks and CancelMessageMoveTask: their answers may say how a task of this process ended."""

    def __init__(
        self, ended: Callable[[RecordedMoveTasks, Mapping[str, Any], Mapping[str, Any]], AnsweredRows]
    ) -> None:
        self._ended = ended

    def answer_rows(self, rows: RowFactory, call: Mapping[str, Any], parsed: Mapping[str, Any]) -> AnsweredRows:
        """Return the row of the task that ended, if one did."""
        return self._ended(rows.move_tasks, call["params"], parsed)


def _assigned_ids(service: str) -> Callable[[Mapping[str, Any]], JournalRow]:
    """Return a function that reads the id and sequence number that SNS or SQS assigned to a message."""
    return lambda entry: {
        f"{service}_message_id": entry.get("MessageId"),
        f"{service}_sequence_number": pad_sequence_number(entry.get("SequenceNumber")),
    }


def _make_handle_row(kind: Kind) -> Callable[[RowFactory, str, Mapping[str, Any], int | None], list[JournalRow]]:
    return lambda rows, url, entry, position: rows.handle(kind, url, entry, position)


OPERATIONS: Mapping[str, Mapping[str, _Operation]] = {
    "sns": {
        "Publish": _Publish("TopicArn", RowFactory.publish, _assigned_ids("sns")),
        "PublishBatch": _Publish(
            "TopicArn", RowFactory.publish, _assigned_ids("sns"), entries="PublishBatchRequestEntries"
        ),
        "Subscribe": _Subscription(
            RecordedSubscriptions.subscribe, lambda rows, params: [rows.subscription(params.get("Endpoint"))]
        ),
        "GetSubscriptionAttributes": _Subscription(RecordedSubscriptions.get_attributes),
        "SetSubscriptionAttributes": _Subscription(RecordedSubscriptions.set_attribute, _begin_change),
        "Unsubscribe": _Subscription(RecordedSubscriptions.unsubscribe, _begin_change),
    },
    "sqs": {
        "SendMessage": _IntendedOperation("QueueUrl", RowFactory.publish, _assigned_ids("sqs")),
        "SendMessageBatch": _IntendedOperation("QueueUrl", RowFactory.publish, _assigned_ids("sqs"), entries="Entries"),
        "ReceiveMessage": _Receive(),
        "PurgeQueue": _IntendedOperation("QueueUrl", RowFactory.purge),
        "DeleteQueue": _IntendedOperation("QueueUrl", RowFactory.delete_queue),
        "SetQueueAttributes": _IntendedOperation("QueueUrl", RowFactory.set_queue),
        "StartMessageMoveTask": _StartMove(),
        "ListMessageMoveTasks": _MoveTaskEnd(
            lambda tasks, params, answer: tasks.find_end(params["SourceArn"], answer.get("Results", []))
        ),
        "CancelMessageMoveTask": _MoveTaskEnd(lambda tasks, params, answer: tasks.cancel(params["TaskHandle"], answer)),
        "DeleteMessage": _IntendedOperation("QueueUrl", _make_handle_row(Kind.DELETED)),
        "DeleteMessageBatch": _IntendedOperation("QueueUrl", _make_handle_row(Kind.DELETED), entries="Entries"),
        "ChangeMessageVisibility": _IntendedOperation("QueueUrl", _make_handle_row(Kind.VISIBILITY_CHANGED)),
        "ChangeMessageVisibilityBatch": _IntendedOperation(
            "QueueUrl", _make_handle_row(Kind.VISIBILITY_CHANGED), entries="Entries"
        ),
    },
}
"""By service and operation name. A recorder records no other operations."""
