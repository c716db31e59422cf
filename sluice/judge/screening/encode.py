"""Encode events as rows of numbers, so that screening works on whole columns.

Texts that are only compared for equality are hashed to 64 bits, a queue is its index in the expectation (from 1; 0 is
publishing), a sequence number its last 18 digits and the hash of the others.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sluice.history.events import OTHER_GROUP, CallOutcome, Kind, answer_detail
from sluice.judge.checker import Expectation
from sluice.judge.reading.columns import NONE, Columns, Events

NO_IDX = -(2**62)
NO_QUEUE_INDEX = -1
PUBLISHED, RECEIVED, DELETED, HANDLED, OTHER, LEFT_OUT = range(6)
OK, INFO, FAILED = range(3)
WARM_UP = "warm_up"
_CODES: dict[str, int] = {
    Kind.PUBLISHED: PUBLISHED,
    Kind.RECEIVED: RECEIVED,
    Kind.DELETED: DELETED,
    Kind.HANDLED: HANDLED,
}
_OUTCOMES: dict[str, int] = {CallOutcome.OK: OK, CallOutcome.INFO: INFO}
_ORDINARY = (*_CODES, Kind.OUTBOXED)
_APART = np.uint64(0x9E3779B97F4A7C15)  # makes the hashes of one id in two queues different
_TO_TOPIC = 2  # added to the index of the queue a message was published to, so that none is 0


class EncodedRows(NamedTuple):
    """Columns of narrow rows, besides the `group` of each, which is a hash.

    Args:
        kind: LEFT_OUT for an event without a group, or of another run.
        outcome: OK, INFO or FAILED.
        is_odd: whether the event would not occur in a run without failures.
        invoked_us: the instant of the call; `answered_us` that of its answer.
        since_us: for a publish the intended instant, for a receive the instant at which the message was sent.
        low: the last digits of the sequence number; `high` is a hash of the others.
        handle: for a receive or delete the receipt handle, for a publish the number of its queue or topic.
        call: the call of a publish or receive; `position` is its position in the call.
        instance: a hash of the group, the queue and the SQS message id; for a publish its idx.
        lease_seconds: the visibility timeout of a receive; -1 if it is unknown.
        is_alone: whether the message was the only one in an answer that had room for more.
    """

    kind: np.ndarray
    queue_index: np.ndarray
    outcome: np.ndarray
    is_odd: np.ndarray
    is_warm_up: np.ndarray
    body: np.ndarray
    attributes: np.ndarray
    deduplication: np.ndarray
    idx: np.ndarray
    invoked_us: np.ndarray
    answered_us: np.ndarray
    since_us: np.ndarray
    low: np.ndarray
    high: np.ndarray
    handle: np.ndarray
    call: np.ndarray
    position: np.ndarray
    instance: np.ndarray
    lease_seconds: np.ndarray
    is_alone: np.ndarray


def encode_events(events: Events, expectation: Expectation) -> Columns:
    """Return the events as the columns of `EncodedRows`, and the column `group`."""
    kind = events.decode("kind", lambda value: _code(value, _CODES, OTHER), np.int8)
    queue_index = events.decode("queue", lambda value: _queue_index(value, expectation), np.int16)
    is_published, is_received = kind == PUBLISHED, kind == RECEIVED
    is_made = is_published | is_received
    idx = events.numbers("idx", NO_IDX)
    low, high = events.sequence_numbers("sns_sequence_number", "sqs_sequence_number")
    handle = events.hashes("receipt_handle_hash")
    group = events.hashes("message_group_id")
    invoked_us, answered_us = events.numbers("invoked_at_us"), events.numbers("responded_at_us")
    outcome = events.decode("outcome", lambda value: _code(value, _OUTCOMES, FAILED), np.int8)
    is_odd = (
        ~events.decode("kind", lambda value: value in _ORDINARY, bool)
        | (kind <= DELETED) & ~events.is_known("call_id")
        | (invoked_us == NONE)
        | (answered_us == NONE)
        | (answered_us < invoked_us)
        | (outcome != OK)
        | (is_published | (high != 0)) & (low == NONE)
        | (is_received | (kind == HANDLED)) & (queue_index == NO_QUEUE_INDEX)
        | is_received & ~events.is_known("sqs_message_id")
        | (is_received | (kind == DELETED)) & (handle == 0)
        | is_received & (events.numbers("receive_count") != 1)
        | is_received & (events.is_known("sns_message_id") | events.is_known("sns_sequence_number"))
        | events.is_false("md5_ok")
        | (is_published | is_received) & events.decode("detail", lambda detail: OTHER_GROUP in (detail or ""), bool)
    )
    queue_number = np.where(is_published, np.int16(0), queue_index)
    in_queue = events.hashes("sqs_message_id") ^ group ^ queue_number.astype(np.uint64) * _APART
    is_of_this_run = events.decode("message_run", lambda run: run == expectation.run, bool)
    is_kept = (group != 0) & (~(is_received | (kind == HANDLED)) | is_of_this_run)
    is_kept &= is_odd | ~events.decode("kind", lambda value: value == Kind.OUTBOXED, bool)
    has_one_message = events.decode("detail", lambda detail: detail == answer_detail(1), bool)
    return {
        "group": group,
        "instance": np.where(queue_number > 0, in_queue, idx.view(np.uint64)),
        "queue_index": queue_number,
        "idx": idx,
        "kind": np.where(is_kept, kind, np.int8(LEFT_OUT)),
        "outcome": outcome,
        "is_odd": is_odd,
        "is_warm_up": events.decode("phase", lambda value: value == WARM_UP, bool),
        "invoked_us": invoked_us,
        "answered_us": answered_us,
        "call": np.where(is_made, events.hashes("call_id"), np.uint64(0)),
        "position": np.where(is_made, events.numbers("batch_position", 0), 0).astype(np.int32),
        "low": low,
        "high": high,
        "handle": np.where(is_published, (queue_index + _TO_TOPIC).astype(np.uint64), handle),
        "body": events.hashes("body_hash"),
        "attributes": events.hashes("attributes_hash"),
        "deduplication": events.hashes("deduplication_id"),
        "since_us": np.where(is_published, events.numbers("intended_at_us"), events.numbers("sent_at_us")),
        "lease_seconds": np.where(is_received, _lease_seconds(events, expectation), -1).astype(np.int32),
        "is_alone": is_received & (events.numbers("max_number_of_messages") > 1) & has_one_message,
    }


def has_message_id(rows: Columns) -> np.ndarray:
    """Return of each row of a queue whether its SQS message id is known."""
    found: np.ndarray = rows["instance"] != rows["group"] ^ rows["queue_index"].astype(np.uint64) * _APART
    return found


def drop_left_out(rows: Columns) -> Columns:
    """Return the rows without those that are left out."""
    is_kept = rows["kind"] != LEFT_OUT
    return rows if is_kept.all() else {name: column[is_kept] for name, column in rows.items()}


def target_queue_indexes(handle: np.ndarray) -> np.ndarray:
    """Return the queue indexes messages were published to, from their publishes' handles; NO_QUEUE_INDEX: the topic."""
    return handle.astype(np.int64) - _TO_TOPIC


def _code(value: str | None, codes: Mapping[str, int], otherwise: int) -> int:
    return otherwise if value is None else codes.get(value, otherwise)


def _queue_index(queue: str | None, expectation: Expectation) -> int:
    return expectation.queues.index(queue) + 1 if queue in expectation.queues else NO_QUEUE_INDEX


def _lease_seconds(events: Events, expectation: Expectation) -> np.ndarray:
    timeouts = events.numbers("visibility_timeout_seconds", -1)
    of_queue = expectation.visibility_timeout_seconds
    usual = events.decode("queue", lambda value: -1 if value is None else of_queue.get(value, -1), np.int64)
    return np.where(timeouts < 0, usual, timeouts)
