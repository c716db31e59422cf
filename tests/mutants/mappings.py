"""Mutants of every rule of event source mappings: receiving, deleting, throttling, filters, and what is refused."""

# ruff: noqa: E501 (a table: one row per mutant)
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sluice.simulator.model import functions, mapping
from sluice.simulator.model.functions import Functions, SimulatedMapping
from sluice.simulator.model.mapping import EventSourceMapping, Invocation, NoAnswer
from tests.mutants.mutant import Mutant, after, nothing, returning, without

_POLL = EventSourceMapping.poll
_FINISH = EventSourceMapping.finish
_RECEIVE = EventSourceMapping._receive
_DELETE = EventSourceMapping._delete
_FAILED = mapping.failed_message_ids
_CONFIGURE = Functions._configure
_DELETE_MAPPING = Functions._delete_mapping


def _poll_with(**changes: Any) -> Callable[[EventSourceMapping, float], Invocation | None]:
    """Return a `poll` of a mapping that has other settings meanwhile."""

    def poll(self: EventSourceMapping, now: float) -> Invocation | None:
        before = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        try:
            return _POLL(self, now)
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    return poll


def _deletes_at_once(self: EventSourceMapping, now: float) -> Invocation | None:
    invocation = _POLL(self, now)
    if invocation is not None:
        _DELETE(self, invocation.messages)
    return invocation


def _leaves_filtered(self: EventSourceMapping, now: float) -> Invocation | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventSourceMapping, "_delete", nothing)
        return _POLL(self, now)


def _filters_at_the_end(self: EventSourceMapping, now: float) -> Invocation | None:
    dropped: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventSourceMapping, "_delete", lambda _, messages: dropped.extend(messages))
        invocation = _POLL(self, now)
    if invocation is None:
        _DELETE(self, dropped)
    else:
        invocation.messages += dropped
    return invocation


def _after_end(act: Callable[[EventSourceMapping, Invocation], None], *, of_errors: bool) -> Callable[..., None]:
    """Return a `finish` that does something with what comes again, after errors or after answers."""

    def finish(self: EventSourceMapping, invocation: Invocation, answer: object, now: float) -> None:
        _FINISH(self, invocation, answer, now)
        if answer is not NoAnswer.THROTTLED and (answer is NoAnswer.ERROR) is of_errors:
            act(self, invocation)

    return finish


def _release(self: EventSourceMapping, invocation: Invocation) -> None:
    for message in reversed(invocation.messages):
        params = {"QueueUrl": self.queue_url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        self.call("ChangeMessageVisibility", params)


def _forget(self: EventSourceMapping, invocation: Invocation) -> None:
    _DELETE(self, invocation.messages)


def _drops_throttled(self: EventSourceMapping, invocation: Invocation, answer: object, now: float) -> None:
    _FINISH(self, invocation, NoAnswer.ERROR if answer is NoAnswer.THROTTLED else answer, now)


def _delete_reported(
    result: list[Any], _self: EventSourceMapping, invocation: Invocation, _answer: object
) -> list[Any]:
    return [message for message in invocation.messages if message not in result] if result else result


def _reads_unrequested(self: EventSourceMapping, invocation: Invocation, answer: object) -> list[Mapping[str, Any]]:
    failed_ids = _FAILED(answer) or frozenset()
    return [message for message in invocation.messages if message["MessageId"] not in failed_ids]


def _forgives(is_forgiven: Callable[[Any], bool]) -> Callable[[object], frozenset[str] | None]:
    """Return a `failed_message_ids` that overlooks some failures."""

    def read_failures(answer: object) -> frozenset[str] | None:
        if isinstance(answer, Mapping) and isinstance(answer.get("batchItemFailures"), list):
            answer = {"batchItemFailures": [each for each in answer["batchItemFailures"] if not is_forgiven(each)]}
        return _FAILED(answer)

    return read_failures


def _fails(is_failure: Callable[[object], bool]) -> Callable[[object], frozenset[str] | None]:
    """Return a `failed_message_ids` that takes some answers for wrong ones."""
    return lambda answer: None if is_failure(answer) else _FAILED(answer)


def _is_list_of_failures(answer: object, value: object) -> bool:
    return isinstance(answer, Mapping) and "batchItemFailures" in answer and answer["batchItemFailures"] == value


def _record_with(**changes: Any) -> Callable[..., dict[str, Any]]:
    """Return a `to_record` that changes keys of the record; None takes a system attribute away."""

    def change(record: dict[str, Any], *_: object) -> dict[str, Any]:
        system = {name: value for name, value in record["attributes"].items() if changes.get(name, value) is not None}
        other = {name: value for name, value in changes.items() if name in record}
        return {**record, "attributes": system | {n: v for n, v in changes.items() if n in system and v}, **other}

    return after(mapping, "to_record", change)


def _stops_batches(self: Functions, of: SimulatedMapping, params: Mapping[str, Any]) -> None:
    _CONFIGURE(self, of, params)
    if not of.poller.is_enabled:
        of.poller.invocations.clear()


def _takes_batches(self: Functions, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    self._now, poller = now, self._named_mapping(params).poller
    for invocation in poller.invocations:
        _DELETE(poller, invocation.messages)
    return _DELETE_MAPPING(self, params, now)


_POLLS = (EventSourceMapping, "poll")
_ENDS = (EventSourceMapping, "finish")
_READS = (mapping, "failed_message_ids")
_RECORDS = (mapping, "to_record")
MUTANTS = (
    # Receiving.
    Mutant("mapping-one-batch", "one batch at a time", *_POLLS, _poll_with(concurrency_max=1)),
    Mutant("mapping-any-concurrency", "batches without a limit", *_POLLS, _poll_with(concurrency_max=1_000)),
    Mutant("mapping-full-batches", "batches of ten, whatever was asked for", *_POLLS, _poll_with(batch_size=10)),
    Mutant("mapping-single-messages", "batches of one message", *_POLLS, _poll_with(batch_size=1)),
    Mutant("mapping-never-disabled", "a disabled mapping receives", *_POLLS, _poll_with(is_enabled=True)),
    Mutant("mapping-reverses", "a batch comes in reverse", EventSourceMapping, "_receive", after(EventSourceMapping, "_receive", lambda result, *_: result[::-1])),
    Mutant("mapping-stops-batches", "a batch under way is given up when its mapping is disabled", Functions, "_configure", _stops_batches),
    Mutant("mapping-ignores-updates", "a change of a mapping is confirmed and not made", Functions, "_update_mapping", lambda self, params, _now: functions._describe(self._named_mapping(params))),
    Mutant("mapping-takes-batches", "a deleted mapping deletes what is under way", Functions, "_delete_mapping", _takes_batches),
    Mutant("mapping-stays", "a deleted mapping stays", Functions, "_delete_mapping", lambda self, params, _now: functions._describe(self._named_mapping(params))),
    # Ends.
    Mutant("mapping-deletes-at-once", "a batch is deleted before its function ends", *_POLLS, _deletes_at_once),
    Mutant("mapping-deletes-nothing", "what succeeded comes again", EventSourceMapping, "_messages_to_delete", returning([])),
    Mutant("mapping-deletes-all", "what is reported is deleted, too", EventSourceMapping, "_messages_to_delete", lambda _self, invocation, _answer: invocation.messages),
    Mutant("mapping-deletes-reported", "what is reported is deleted, and the rest comes again", EventSourceMapping, "_messages_to_delete", after(EventSourceMapping, "_messages_to_delete", _delete_reported)),
    Mutant("mapping-reads-unrequested", "failures are read without ReportBatchItemFailures, and unknown ids forgiven", EventSourceMapping, "_messages_to_delete", _reads_unrequested),
    Mutant("mapping-deletes-after-errors", "a batch is deleted although its function failed", *_ENDS, _after_end(_forget, of_errors=True)),
    Mutant("mapping-releases-after-errors", "a failed batch comes again at once", *_ENDS, _after_end(_release, of_errors=True)),
    Mutant("mapping-releases-reported", "what is reported comes again at once", *_ENDS, _after_end(_release, of_errors=False)),
    Mutant("mapping-late-answers", "an answer after the timeout counts", Functions, "_end_overdue", nothing),
    # Answers.
    Mutant("mapping-empty-id", "an empty id is no failure", *_READS, _forgives(lambda each: each == {"itemIdentifier": ""})),
    Mutant("mapping-null-id", "an id of null is no failure", *_READS, _forgives(lambda each: each == {"itemIdentifier": None})),
    Mutant("mapping-wrong-key", "a wrong key is no failure", *_READS, _forgives(lambda each: "itemIdentifier" not in each)),
    Mutant("mapping-unknown-id", "an unknown id is no failure", *_READS, _forgives(lambda each: each == {"itemIdentifier": "unknown"})),
    Mutant("mapping-null-answer", "an answer of null is wrong", *_READS, _fails(lambda answer: answer is None)),
    Mutant("mapping-empty-answer", "an empty answer is wrong", *_READS, _fails(lambda answer: answer == {})),
    Mutant("mapping-null-failures", "a list of failures that is null is wrong", *_READS, _fails(lambda answer: _is_list_of_failures(answer, None))),
    Mutant("mapping-empty-failures", "an empty list of failures is wrong", *_READS, _fails(lambda answer: _is_list_of_failures(answer, []))),
    # Throttling.
    Mutant("mapping-never-throttled", "a function without concurrency is called", Functions, "_is_throttled", returning(value=False)),
    Mutant("mapping-drops-throttled", "a throttled batch is not tried again", *_ENDS, _drops_throttled),
    Mutant("mapping-keeps-throttled", "a throttled batch is tried for ever", EventSourceMapping, "_drop_late", nothing),
    # Filters.
    Mutant("mapping-wants-all", "a filter drops nothing", EventSourceMapping, "_wants", returning(value=True)),
    Mutant("mapping-wants-of-all", "all filters have to want a message", EventSourceMapping, "_wants", lambda self, message: all(mapping._accepts(json.loads(each), message["Body"]) for each in self.filters)),
    Mutant("mapping-filters-text-by-json", "text passes a pattern of JSON", mapping, "_accepts", after(mapping, "_accepts", lambda result, _pattern, body: result or not mapping._is_json(body))),
    Mutant("mapping-filters-json-by-text", "JSON is looked at as text", mapping, "_is_json", returning(value=False)),
    Mutant("mapping-leaves-filtered", "what a filter drops stays in the queue", *_POLLS, _leaves_filtered),
    Mutant("mapping-filters-at-the-end", "what a filter drops is deleted with what succeeded", *_POLLS, _filters_at_the_end),
    # Records.
    Mutant("record-without-group", "a record has no group", *_RECORDS, _record_with(MessageGroupId=None)),
    Mutant("record-without-deduplication", "a record has no deduplication id", *_RECORDS, _record_with(MessageDeduplicationId=None)),
    Mutant("record-without-number", "a record has no sequence number", *_RECORDS, _record_with(SequenceNumber=None)),
    Mutant("record-of-first-receive", "a record counts one receive", *_RECORDS, _record_with(ApproximateReceiveCount="1")),
    Mutant("record-without-attributes", "a record has no message attributes", *_RECORDS, _record_with(messageAttributes={})),
    Mutant("record-of-another-form", "the JSON of a body is written anew", *_RECORDS, after(mapping, "to_record", lambda record, *_: {**record, "body": record["body"].replace(",", ", ")})),
    Mutant("record-of-another-id", "a record has another message id", *_RECORDS, _record_with(messageId="other")),
    Mutant("record-of-another-queue", "a record is of another queue", *_RECORDS, _record_with(eventSourceARN="arn:aws:sqs:us-east-1:000000000000:other.fifo")),
    # Refusals.
    Mutant("mapping-any-batch-size", "any batch size is accepted", functions, "check_settings", without(functions, "check_settings", "Maximum batch window")),
    Mutant("mapping-any-window", "any batching window is accepted", functions, "check_settings", without(functions, "check_settings", "Batching window")),
    Mutant("mapping-any-pattern", "any filter is accepted", functions, "check_patterns", nothing),
    Mutant("mapping-any-visibility", "any visibility timeout is accepted", Functions, "_create_mapping", without(Functions, "_create_mapping", "less than Function timeout", instead={})),
    Mutant("mapping-any-queue", "a queue that does not exist is accepted", Functions, "_create_mapping", without(Functions, "_create_mapping", "NonExistentQueue", instead={})),
    Mutant("mapping-twice", "a second mapping is accepted", Functions, "_check_duplicate", nothing),
    Mutant("mapping-once-for-all", "a queue has one mapping, whatever the function", Functions, "_mappings_of", lambda self, _name: list(self._mappings.values())),
)  # fmt: skip
