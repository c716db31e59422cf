"""The two batch calls: their requests, made of a shared frame and the values of each, and the reading of answers."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sluice import limits
from sluice.aws.operation import AwsOperation
from sluice.history.events import CallOutcome
from sluice.recorder.rows import entries_by_id
from spark_load.plan.plan import BodyTemplate
from spark_load.publish.transport import TransportCall

_OK, _FAIL, _INFO = CallOutcome.OK.value, CallOutcome.FAIL.value, CallOutcome.INFO.value
NOT_IN_ANSWER = "NotInAnswer"
_TEMPLATES_KEPT = 64
_IDS = tuple(str(position) for position in range(limits.PUBLISH_BATCH_ENTRIES_MAX))


class BatchCall(NamedTuple):
    """A service's names of its batch call, and of the parameters for address, entries and body."""

    operation: str
    method: str
    address: str
    entries: str
    body: str

    def params(self, address: str, entries: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
        """Return the call's parameters; each entry has the body, the group's id and the deduplication id."""
        named = [
            {"Id": id_, self.body: body, "MessageGroupId": group_id, "MessageDeduplicationId": deduplication_id}
            for id_, (body, group_id, deduplication_id) in zip(_IDS, entries, strict=False)
        ]
        return {self.address: address, self.entries: named}


CALLS: Mapping[str, BatchCall] = {
    "sns": BatchCall("PublishBatch", "publish_batch", "TopicArn", "PublishBatchRequestEntries", "Message"),
    "sqs": BatchCall("SendMessageBatch", "send_message_batch", "QueueUrl", "Entries", "MessageBody"),
}
"""The batch call of each service."""


class EntryResults(NamedTuple):
    """The results of a call's entries, a column each, with a value for each message.

    None if the answer has no value.
    """

    outcomes: Sequence[str]
    errors: Sequence[str | None]
    message_ids: Sequence[str | None]
    sequence_numbers: Sequence[str | None]

    @classmethod
    def alike(cls, count: int, outcome: str, error: str | None = None) -> "EntryResults":
        """Return the same result for all entries, without ids."""
        nothing = [None] * count
        return cls([outcome] * count, [error] * count, nothing, nothing)

    @classmethod
    def of(cls, call: TransportCall, answer: Mapping[str, Any]) -> "EntryResults":
        """Return the results in a successful answer, as boto3 returns it, to a call's messages."""
        ids, taken, refused = _IDS[: call.size], answer.get("Successful", []), answer.get("Failed", [])
        if not refused and len(taken) == len(ids) and all(map(_has_id, taken, ids)):
            columns = [[entry.get(name) for entry in taken] for name in ("MessageId", "SequenceNumber")]
            return cls([_OK] * len(ids), [None] * len(ids), *columns)
        by_id = {id_: _accepted_entry(entry) for id_, entry in entries_by_id(taken).items()} | {
            id_: _refused_entry(entry) for id_, entry in entries_by_id(refused).items()
        }
        return cls(*zip(*[by_id.get(id_, _MISSING) for id_ in ids], strict=True))


type Entry = tuple[str, str | None, str | None, str | None]
"""(outcome, error, message id, sequence number) of one message; see `EntryResults`."""
_MISSING: Entry = (_INFO, NOT_IN_ANSWER, None, None)


def _has_id(entry: Mapping[str, Any] | None, id_: str) -> bool:
    return bool(entry and entry.get("Id") == id_)


def _accepted_entry(entry: Mapping[str, Any]) -> Entry:
    return _OK, None, entry.get("MessageId"), entry.get("SequenceNumber")


def _refused_entry(entry: Mapping[str, Any]) -> Entry:
    """Return the result of a failed entry. The sender's errors had no effect; the service's errors may have had one."""
    return _FAIL if entry.get("SenderFault") else _INFO, entry.get("Code"), None, None


def body_encoder(service: str, operation: AwsOperation) -> Callable[[TransportCall], bytes]:
    """Return a function that encodes the body of a call's request.

    The encoded body of the first call with a frame is cut at the frame's gaps, and its pieces serve the later calls.
    """

    @lru_cache(_TEMPLATES_KEPT)
    def pieces(address: str, frame: BodyTemplate, size: int) -> list[str]:
        body, gap = frame.with_gaps()
        encoded = operation.encode(CALLS[service].params(address, [(body, gap, gap)] * size)).decode("ascii")
        return [part for piece in encoded.split(gap) for part in (piece, "")][:-1]

    def encode(call: TransportCall) -> bytes:
        own, sent = slice(call.begin, call.end), call.sent
        parts = pieces(call.address, sent.template, call.size).copy()
        columns = (*sent.values, sent.message_group_ids, sent.deduplication_ids)
        for position, column in enumerate(columns):
            parts[2 * position + 1 :: 2 * len(columns)] = column[own]
        return "".join(parts).encode("ascii")

    return encode
