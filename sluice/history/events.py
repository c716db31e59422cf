"""The event row: what every side records, and the only thing the judge looks at.

One row is one event. A call that returns several messages is one `poll` and one `received` per message, tied by
`call_id`. Each event of a bundle has a row, and ids of its own (`sluice.history.bundles`). Instants (`_us`) are
microseconds UTC as the recording host saw them. Sequence numbers are text, zero-padded to 39 digits so that they sort
as numbers: AWS documents 128 bits, and its 20-digit ones already overflow a long.

An `outcome` is `ok` (it happened), `fail` (it certainly did not) or `info` (nobody knows: the answer was lost, or the
recorder died before it came). Before a publish and before a delete the recorder writes the intent as `info` and
flushes; the answer is a second row with the same `call_id`, and `settle` makes the two one.

Our own identity (run, message group, idx) travels in the message body, because raw delivery hides everything SNS knew.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from sluice import limits

SCHEMA_VERSION = 1
_ENVELOPE_HEAD_CHARACTERS = 64  # SNS writes `"Type": "Notification"` first
IDX_MAX = 10**18 - 1  # fits int64
_STABLE_HEX_DIGITS = 13  # 52 bits, which a reader that parses JSON numbers as floats does not round
END_TYPE = "sluice.end"
"""The type of an end marker that goes through an outbox: no event of its group follows it."""

CHANGED_SUBSCRIPTION = "changed_subscription_of"
"""The queue whose subscription a call changed, in the `detail` of a `topology` event."""
CHANGED_QUEUE = "changed_queue"
"""The queue whose settings a call changed, in the `detail` of a `topology` event, beside the settings it gave."""
DELETION_DETAIL = '{"is_deletion": true}'
"""The `detail` of a purge that deleted the queue as well."""

READS_BUNDLES = "reads_bundles"
OPENING_DETAIL = json.dumps({READS_BUNDLES: True})
"""The `detail` of the `opened` event of a recorder that writes the events of a bundle; earlier ones wrote none."""
OTHER_GROUP = "bundle_group"
"""The group of a bundle that holds an event of another group, in the `detail` of that event's publish or receive."""


class Kind(StrEnum):
    """The kind of an event. `opened` and `closed` frame a journal; the rest happened to messages, queues or the run."""

    OPENED = "opened"
    CLOSED = "closed"
    PUBLISHED = "published"
    POLL = "poll"
    RECEIVED = "received"
    DELETED = "deleted"
    VISIBILITY_CHANGED = "visibility_changed"
    REDRIVEN = "redriven"
    PURGED = "purged"
    PROBE = "probe"
    FAULT = "fault"
    TOPOLOGY = "topology"
    PHASE = "phase"
    OUTBOXED = "outboxed"
    HANDLED = "handled"
    PARKED = "parked"


class CallOutcome(StrEnum):
    """The outcome of a call: whether it had its effect."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


def _column(arrow: str, note: str, default: Any = None) -> Any:
    return field(default=default, metadata={"arrow": arrow, "note": note})


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One event. A field that does not apply to its kind is None."""

    schema_version: int = _column("int32", "of this row", SCHEMA_VERSION)
    run: str = _column("string", "the run this event was recorded in", "")
    phase: str | None = _column("string", "part of the run: measure, drain, …")
    host: str | None = _column("string", "machine that recorded it")
    clock_id: str | None = _column("string", "events of one clock can be ordered exactly; others only within a bound")
    worker: str = _column("string", "who recorded it, e.g. publish-0 or consume-billing-1", "")
    task_attempt: int | None = _column("int32", "attempt of the Spark task, from 0")
    call_id: str | None = _column("string", "ties the events of one API call together")
    kind: str = _column("string", "one of Kind", "")
    queue: str | None = _column("string", "queue or topic name")
    message_group_id: str | None = _column("string", "")
    idx: int | None = _column("int64", "our number of the message within the run; -1 and less are end markers")
    message_run: str | None = _column("string", "the run the message itself says it is from")
    intended_at_us: int | None = _column("int64", "when the plan wanted it published, microseconds UTC")
    invoked_at_us: int | None = _column("int64", "just before the call, microseconds UTC")
    responded_at_us: int | None = _column("int64", "just after the answer, microseconds UTC; None when there was none")
    outcome: str = _column("string", "one of CallOutcome", CallOutcome.OK.value)
    error: str | None = _column("string", "error code, when not ok")
    batch_position: int | None = _column("int32", "position in the call's list, from 0; with bundles, among its events")
    publish_attempt: int | None = _column("int32", "1 for the first publish of this idx, 2 for a repeat, …")
    deduplication_id: str | None = _column("string", "")
    sns_message_id: str | None = _column("string", "")
    sns_sequence_number: str | None = _column("string", "39 digits")
    sqs_message_id: str | None = _column("string", "")
    sqs_sequence_number: str | None = _column("string", "39 digits")
    receive_count: int | None = _column("int32", "ApproximateReceiveCount")
    receipt_handle_hash: str | None = _column("string", "16 hex digits of the receipt handle's SHA-256")
    sent_at_us: int | None = _column("int64", "SentTimestamp, microseconds UTC")
    first_received_at_us: int | None = _column("int64", "ApproximateFirstReceiveTimestamp, microseconds UTC")
    visibility_timeout_seconds: int | None = _column("int32", "given with the call; None means the queue's own")
    receive_request_attempt_id: str | None = _column("string", "")
    max_number_of_messages: int | None = _column("int32", "asked for by a poll")
    wait_time_seconds: int | None = _column("int32", "of a poll")
    body_hash: str | None = _column("string", "16 hex digits of the body's SHA-256")
    attributes_hash: str | None = _column("string", "16 hex digits over the message attributes")
    md5_ok: bool | None = _column("bool", "whether the service's MD5 fits the body")
    visible_count: int | None = _column("int64", "messages, from a probe")
    in_flight_count: int | None = _column("int64", "messages, from a probe")
    delayed_count: int | None = _column("int64", "messages, from a probe")
    moved_count: int | None = _column("int64", "messages, from a move task")
    detail: str | None = _column("string", "JSON for whatever has no column")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


COLUMNS: tuple[tuple[str, str], ...] = tuple((column.name, column.metadata["arrow"]) for column in fields(HistoryEvent))
"""(name, Arrow type) of every column, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity that a body states: its run, its group, and its number."""

    run: str
    message_group_id: str
    idx: int


def unwrap(body: str) -> tuple[str, dict[str, Any]]:
    """Return (message, envelope) of a subscription without raw delivery; (body, {}) if the body is no envelope.

    AWS: https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html (read 2026-11-21).
    """
    if '"Notification"' in body[:_ENVELOPE_HEAD_CHARACTERS]:
        try:
            envelope = json.loads(body)
            return str(envelope["Message"]), envelope
        except (ValueError, KeyError, TypeError):
            pass
    return body, {}


def identity_of(*, body: str, deduplication_id: str | None, message_group_id: str | None) -> Identity | None:
    """Return the identity a received message carries, or None when it carries none.

    A body that no longer parses is looked up by its deduplication id, `<run>.<idx>`, so that a corrupted message is
    reported as corrupted rather than as foreign.
    """
    try:
        body_fields = json.loads(body)
        if "sluice" in body_fields:
            return _identity_of_envelope(body_fields)
        idx = body_fields["idx"]
        if isinstance(idx, int) and abs(idx) <= IDX_MAX:
            return Identity(run=str(body_fields["run"]), message_group_id=str(body_fields["group"]), idx=idx)
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        pass
    found = re.fullmatch(r"(.+)\.(-?[0-9]{1,18})", deduplication_id or "")
    if found is not None and message_group_id is not None:
        return Identity(run=found[1], message_group_id=message_group_id, idx=int(found[2]))
    return None


def identity_in(message: Mapping[str, Any]) -> Identity | None:
    """Return the identity of a message as ReceiveMessage gives it, with all its system attributes; None without one."""
    attributes = message.get("Attributes", {})
    return identity_of(
        body=message["Body"],
        deduplication_id=attributes.get("MessageDeduplicationId"),
        message_group_id=attributes.get("MessageGroupId"),
    )


def _identity_of_envelope(body_fields: dict[str, Any]) -> Identity:
    """Return the identity of an event of an outbox: its epoch is the run, its number in the group the idx."""
    seq = int(body_fields["seq"])
    if abs(seq) > IDX_MAX:
        raise ValueError(f"seq is {seq}, allowed is at most {IDX_MAX}")
    return Identity(
        run=f"epoch-{body_fields['epoch']}",
        message_group_id=str(body_fields["group"]),
        idx=-seq if body_fields["type"] == END_TYPE else seq,
    )


def answer_detail(received_count: int) -> str:
    """Return the `detail` of a poll, and of each message it returned: the number of these messages."""
    return f'{{"received": {received_count}}}'


def publish_detail(body_bytes: int | None, accepted: Mapping[str, bool] | None = None) -> str | None:
    """Return the `detail` of a publish; None if nothing is known.

    Args:
        body_bytes: the size of the body.
        accepted: each queue of which it is known, to whether its subscription accepts the message.
    """
    known = {"bytes": body_bytes, "accepted": accepted or None}
    known = {name: value for name, value in known.items() if value is not None}
    return json.dumps(known) if known else None


def acceptances_in(detail: str | None) -> Mapping[str, bool]:
    """Return the queues named in the `detail` of a publish, to whether their subscriptions accept the message."""
    accepted = detail_of(detail).get("accepted")
    return accepted if isinstance(accepted, dict) else {}


def detail_of(text: str | None) -> dict[str, Any]:
    """Return an event's `detail`; empty if it is no JSON object, since another program may have written it."""
    try:
        detail = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return detail if isinstance(detail, dict) else {}


def is_end_marker(idx: int | None) -> bool:
    """Return whether that idx is the end marker of its group: nothing of the group comes after it."""
    return idx is not None and idx < 0


def short_hash(text: str) -> str:
    """Return 16 hex digits of the text's SHA-256."""
    return short_hashes((text,))


def short_hashes(texts: Iterable[str]) -> str:
    """Return the short hashes of texts as one text, for thousands at once."""
    return b"".join([hashlib.sha256(text).digest()[:8] for text in map(str.encode, texts)]).hex()


def stable_idx(text: str) -> int:
    """Return an idx for a message without a number, made of a text that identifies the message.

    It is the same in every process, and says nothing about order.
    """
    return int(hashlib.sha256(text.encode()).hexdigest()[:_STABLE_HEX_DIGITS], 16)


def is_sampled(message_group_id: str, one_group_in: int) -> bool:
    """Return whether a recording of one group in `one_group_in` includes this one; every process decides the same."""
    return one_group_in == 1 or int(short_hash(message_group_id), 16) % one_group_in == 0


def recording_detail(one_group_in: int) -> str:
    """Return the `detail` of the `topology` event of a recording: it has no plan, and one group in `one_group_in`."""
    return json.dumps({"is_planned": False, "one_group_in": one_group_in})


def unseen_detail(calls: str) -> str:
    """Return the `detail` of the `topology` event that names calls a recorder noticed and could not record."""
    return json.dumps({"is_planned": False, "unseen": calls})


def subscription_detail(queue: str | None) -> str:
    """Return the `detail` of the `topology` event of a change to a queue's subscription; None if no queue is known."""
    return json.dumps({"is_planned": False, CHANGED_SUBSCRIPTION: queue})


def settings_detail(queue: str, settings: Mapping[str, int | None]) -> str:
    """Return the `detail` of the `topology` event of a call that gave a queue settings; None stands for no limit."""
    return json.dumps({"is_planned": False, CHANGED_QUEUE: queue, "settings": settings})


def pad_sequence_number(digits: str | None) -> str | None:
    """Return a sequence number as text that sorts like the number."""
    return None if digits is None else digits.zfill(limits.SEQUENCE_NUMBER_DIGITS_MAX)


type SettledRow = tuple[str, str | None, int | None, int | None, str | None]
"""The fields that settling needs: kind, call_id, batch_position, responded_at_us, error."""


def settled_positions(calls: Iterable[SettledRow]) -> list[int]:
    """Return the positions of the rows that remain when each call's intent and answer become one, ascending.

    An intent and its answer have the same kind, call and batch position. The answer remains; without an answer, the
    intent.
    """
    best: dict[tuple[str, str | None, int | None], tuple[int, bool, bool]] = {}
    without_call: list[int] = []
    for position, (kind, call_id, batch_position, responded_at_us, error) in enumerate(calls):
        if call_id is None:
            without_call.append(position)
            continue
        key, status = (kind, call_id, batch_position), (responded_at_us is not None, error is not None)
        if key not in best or status > best[key][1:]:
            best[key] = (position, *status)
    return sorted([*without_call, *(position for position, *_ in best.values())])


def settle(events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """Return the events with each call's intent and answer made one. Settling twice changes nothing."""
    all_events = list(events)
    calls = ((e.kind, e.call_id, e.batch_position, e.responded_at_us, e.error) for e in all_events)
    return [all_events[position] for position in settled_positions(calls)]
