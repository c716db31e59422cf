"""Mutants of every rule of sending and receiving messages."""

# ruff: noqa: E501 (a table: one row per mutant)
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sluice import limits
from sluice.simulator.model import batches, message
from sluice.simulator.model.message import QueuedMessage
from sluice.simulator.model.queues import receiving, sending
from sluice.simulator.model.queues.fifo import FIRST_SEQUENCE_NUMBER, FifoQueue
from sluice.simulator.model.queues.queue import SimulatedQueue
from sluice.simulator.model.queues.receiving import Receiving
from sluice.simulator.model.queues.sending import Sending
from tests.mutants.mutant import Mutant, after, nothing, returning, without

_TAKE = Receiving._take
_RECEIVE = Receiving.receive
_AS_RECEIVED = receiving._as_received
_SEND = SimulatedQueue.send
_RETRY = FifoQueue.retry
_CHECK_SIZE = message.check_size


def _without_keys(*keys: str) -> Callable[..., Any]:
    return lambda result, *_, **__: {name: value for name, value in result.items() if name not in keys}


def _with_values(**values: Any) -> Callable[..., Any]:
    """Return a change that sets keys that are there; a callable value is given what stood there."""

    def change(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        replaced = {
            name: value(result[name]) if callable(value) else value for name, value in values.items() if name in result
        }
        return {**result, **replaced}

    return change


def _of_entries(**values: Any) -> Callable[..., Any]:
    """Return a change that sets keys of every successful entry."""
    change = _with_values(**values)

    def change_all(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        return {**result, "Successful": [change(entry) for entry in result.get("Successful", [])]}

    return change_all


def _report_failures_as_successes(result: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    failed = [{"Id": entry["Id"]} for entry in result.get("Failed", [])]
    return {"Successful": [*result.get("Successful", []), *failed]}


def _clamp(name: str, least: int, most: int) -> Callable[..., Any]:
    def receive(self: Receiving, params: Mapping[str, Any], now: float) -> dict[str, Any]:
        given = {name: min(most, max(least, params[name]))} if name in params else {}
        return _RECEIVE(self, {**params, **given}, now)

    return receive


def _take_with(**changed: Callable[[SimulatedQueue], Any]) -> Callable[..., list[QueuedMessage]]:
    def take(self: Receiving, queue: SimulatedQueue, params: Mapping[str, Any], **named: Any) -> list[QueuedMessage]:
        return _TAKE(self, queue, params, **{**named, **{name: value(queue) for name, value in changed.items()}})

    return take


def _by_old_names_only(self: Receiving, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    given = {name: value for name, value in params.items() if name != "MessageSystemAttributeNames"}
    return _RECEIVE(self, given, now)


def _by_new_names_only(self: Receiving, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    return _RECEIVE(self, {name: value for name, value in params.items() if name != "AttributeNames"}, now)


def _send_with(**named: Any) -> Callable[..., QueuedMessage]:
    def send(self: SimulatedQueue, sent: QueuedMessage, now: float, **given: Any) -> QueuedMessage:
        return _SEND(self, sent, now, **{**given, **named})

    return send


def _retry_with_new_handles(self: FifoQueue, attempt_id: str, now: float, **named: Any) -> list[QueuedMessage] | None:
    again = _RETRY(self, attempt_id, now, **named)
    return None if again is None else [replace(each, handle=f"{each.handle}") for each in map(_change_handle, again)]


def _change_handle(held: QueuedMessage) -> QueuedMessage:
    return replace(held, handle="AAAA" + str(held.handle))


def _retried_without_hiding(self: FifoQueue, attempt_id: str, now: float, **named: Any) -> list[QueuedMessage] | None:
    before = {id_: held.visible_at for id_, held in self.messages.items()}
    again = _RETRY(self, attempt_id, now, **named)
    for each in again or []:
        each.visible_at = before[each.id]
    return again


def _whole_batch_as_new(self: FifoQueue, attempt_id: str, _now: float, **_: Any) -> list[QueuedMessage] | None:
    self._attempts.pop(attempt_id, None)
    return None


def _of_awss_maximum(entry: Mapping[str, Any], *, bytes_max: int) -> None:
    _CHECK_SIZE(entry, bytes_max=max(bytes_max, limits.MESSAGE_BYTES_MAX))


def _body_only(entry: Mapping[str, Any]) -> int:
    return len(entry["MessageBody"].encode())


def _characters(entry: Mapping[str, Any]) -> int:
    return len(entry["MessageBody"])


def _number_as_constant(added: QueuedMessage, *_: Any) -> QueuedMessage:
    added.sequence_number = str(FIRST_SEQUENCE_NUMBER)
    return added


def _by_prefix_only(attributes: Mapping[str, Any], requested: list[str]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if "All" in requested or name in requested}


def _lower_prefix(attributes: Mapping[str, Any], requested: list[str]) -> dict[str, Any]:
    stems = tuple(name.removesuffix(".*") for name in requested)
    return {name: value for name, value in attributes.items() if "All" in requested or name.startswith(stems)}


_SYSTEM = (QueuedMessage, "system_attributes")
MUTANTS = (
    # What a message is.
    Mutant("sent-an-hour-early", "SentTimestamp is an hour early", *_SYSTEM, after(*_SYSTEM, _with_values(SentTimestamp=lambda text: str(int(text) - 3_600_000)))),
    Mutant("sent-in-seconds", "SentTimestamp is in seconds", *_SYSTEM, after(*_SYSTEM, _with_values(SentTimestamp=lambda text: text[:-3]))),
    Mutant("sender-unknown", "SenderId is nobody's", *_SYSTEM, after(*_SYSTEM, _with_values(SenderId=""))),
    Mutant("sender-missing", "SenderId is left out", *_SYSTEM, after(*_SYSTEM, _without_keys("SenderId"))),
    Mutant("first-receive-missing", "the time of the first receive is left out", *_SYSTEM, after(*_SYSTEM, _without_keys("ApproximateFirstReceiveTimestamp"))),
    Mutant("trace-header-lost", "the trace header is not received", *_SYSTEM, after(*_SYSTEM, _without_keys("AWSTraceHeader"))),
    Mutant("group-not-received", "the group is not received", *_SYSTEM, after(*_SYSTEM, _without_keys("MessageGroupId"))),
    Mutant("number-not-received", "the sequence number is not received", *_SYSTEM, after(*_SYSTEM, _without_keys("SequenceNumber"))),
    Mutant("id-not-received", "the deduplication id is not received", *_SYSTEM, after(*_SYSTEM, _without_keys("MessageDeduplicationId"))),
    Mutant("content-id-of-md5", "a content's id is not SHA-256", sending, "content_id", message.md5),
    Mutant("control-characters-allowed", "a body may have any character", message, "_INVALID_CHARACTER", re.compile("(?!)"), read_by=(sending, "check_content")),
    Mutant("id-with-control-characters", "a group or deduplication id may have control characters", message, "_ID", re.compile("[\\x00-\\x7f]{1,128}"), read_by=(sending, "check_id")),
    Mutant("id-beyond-ascii", "a group or deduplication id may have letters outside ASCII", message, "_ID", re.compile("[!-\\U0010ffff]{1,128}"), read_by=(sending, "check_id")),
    Mutant("content-unchecked", "bodies are not checked", sending, "check_content", nothing),
    Mutant("system-attributes-unchecked", "any system attribute is taken", sending, "check_content", without(sending, "check_content", "Message system attribute")),
    Mutant("attribute-values-unchecked", "message attributes may have any type and value", message, "_check_attribute_value", nothing),
    Mutant("any-size", "a message may have any size", sending, "check_size", nothing),
    Mutant("queue-size-ignored", "a queue's MaximumMessageSize has no effect", sending, "check_size", _of_awss_maximum),
    Mutant("attributes-have-no-size", "attributes do not count towards the size", message, "size_bytes", _body_only),
    Mutant("size-in-characters", "a size is counted in characters", message, "size_bytes", _characters),
    Mutant("body-md5-wrong", "a send's answer has another body's checksum", sending, "md5", returning("0" * 32)),
    Mutant("received-md5-wrong", "a received message has another body's checksum", receiving, "md5", returning("0" * 32)),
    Mutant("attributes-md5-wrong", "a send's answer has other attributes' checksum", sending, "md5_of_attributes", returning("0" * 32)),
    Mutant("received-attributes-md5-wrong", "a received message has other attributes' checksum", receiving, "md5_of_attributes", returning("0" * 32)),
    # Sending.
    Mutant("no-id-needed", "a queue without content-based deduplication needs no id", Sending, "_lacks_id", staticmethod(returning(value=False))),
    Mutant("no-group-needed", "a FIFO queue needs no group", Sending, "send", without(Sending, "send", "MessageGroupId", instead={"MessageId": "m", "SequenceNumber": "1"})),
    Mutant("delay-of-a-message-taken", "a FIFO queue takes a message's own delay", sending, "_check_parameters", without(sending, "_check_parameters", "DelaySeconds")),
    Mutant("delay-ignored", "a queue's delay has no effect", SimulatedQueue, "send", _send_with(delay_seconds=0)),
    Mutant("numbers-constant", "all messages have one sequence number", FifoQueue, "add", after(FifoQueue, "add", _number_as_constant)),
    # Batches.
    Mutant("batch-numbers-constant", "a batch's answer has one sequence number for all", Sending, "send_batch", after(Sending, "send_batch", _of_entries(SequenceNumber=str(FIRST_SEQUENCE_NUMBER)))),
    Mutant("batch-ids-other", "a batch's answer has other message ids than are received", Sending, "send_batch", after(Sending, "send_batch", _of_entries(MessageId=lambda id_: id_[::-1]))),
    Mutant("batch-md5-wrong", "a batch's answer has another body's checksum", Sending, "send_batch", after(Sending, "send_batch", _of_entries(MD5OfMessageBody="0" * 32))),
    Mutant("batch-any-total", "a batch may have any size in all", limits, "MESSAGE_BYTES_MAX", 10**9, read_by=(Sending, "send_batch")),
    Mutant("failed-hidden", "failed entries are not listed", batches, "handle_each", after(batches, "handle_each", _without_keys("Failed"))),
    Mutant("failed-as-successful", "failed entries are listed as successful", batches, "handle_each", after(batches, "handle_each", _report_failures_as_successes)),
    Mutant("eleven-entries", "a batch may have eleven entries", batches, "_ENTRIES_MAX", 11, read_by=(batches, "check")),
    Mutant("nine-entries", "a batch may have nine entries", batches, "_ENTRIES_MAX", 9, read_by=(batches, "check")),
    Mutant("empty-batch", "a batch may be empty", batches, "check", without(batches, "check", "EmptyBatchRequest")),
    Mutant("entry-ids-repeated", "two entries may have one id", batches, "check", without(batches, "check", "BatchEntryIdsNotDistinct")),
    Mutant("entry-ids-any", "the id of an entry may have any character", batches, "check", without(batches, "check", "InvalidBatchEntryId")),
    Mutant("late-failure-hidden", "a batch of deletes hides what failed", Receiving, "delete_batch", after(Receiving, "delete_batch", _without_keys("Failed"))),
    Mutant("change-failure-hidden", "a batch of visibility changes hides what failed", Receiving, "change_visibility_batch", after(Receiving, "change_visibility_batch", _without_keys("Failed"))),
    # Receiving.
    Mutant("eleven-clamped", "a receive of eleven is one of ten", Receiving, "receive", _clamp("MaxNumberOfMessages", 1, 10)),
    Mutant("wait-clamped", "a longer wait than 20 s is one of 20 s", Receiving, "receive", _clamp("WaitTimeSeconds", 0, 20)),
    Mutant("always-ten", "a receive brings up to ten, whatever was requested", Receiving, "_take", _take_with(most=lambda _queue: 10)),
    Mutant("visibility-of-the-queue", "a receive's own visibility timeout has no effect", Receiving, "_take", _take_with(visibility_seconds=lambda queue: queue.seconds("VisibilityTimeout"))),
    Mutant("new-names-ignored", "MessageSystemAttributeNames has no effect", Receiving, "receive", _by_old_names_only),
    Mutant("old-names-ignored", "AttributeNames has no effect", Receiving, "receive", _by_new_names_only),
    Mutant("all-system-attributes", "all system attributes are received, whatever was requested", receiving, "_as_received", lambda held, _system, requested: _AS_RECEIVED(held, ["All"], requested)),
    Mutant("all-attributes", "all message attributes are received, whatever was requested", receiving, "select_attributes", lambda attributes, _requested: dict(attributes)),
    Mutant("attribute-prefix-ignored", "message attributes are not received by prefix", receiving, "select_attributes", _by_prefix_only),
    Mutant("attribute-names-as-prefixes", "a requested name is a prefix", receiving, "select_attributes", _lower_prefix),
    # Receive attempts.
    Mutant("attempt-brings-new", "a repeated attempt is a new receive", FifoQueue, "retry", _whole_batch_as_new),
    Mutant("attempt-new-handles", "a repeated attempt brings other handles", FifoQueue, "retry", _retry_with_new_handles),
    Mutant("attempt-does-not-hide", "a repeated attempt hides nothing anew", FifoQueue, "retry", _retried_without_hiding),
    Mutant("attempt-after-change", "an attempt can be repeated after a visibility change", FifoQueue, "_is_untouched", staticmethod(lambda held, now: held.is_in_flight(now))),
    Mutant("attempt-for-a-minute", "an attempt can be repeated for a minute", limits, "DEDUPLICATION_WINDOW_SECONDS", 60, read_by=(FifoQueue, "retry")),
)  # fmt: skip
