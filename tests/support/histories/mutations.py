"""Histories with one to three events dropped, moved, doubled or changed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sluice.history.events import HistoryEvent, Kind, settle
from tests.support.histories.builders import shift_event

VALUES: Mapping[str, Sequence[Any]] = {
    "body_hash": ["other", None],
    "outcome": ["info", "fail"],
    "queue": ["billing", "shipping", "billing-dlq", "events", None],
    "idx": [0, 1, 2, -1, 7, None],
    "sqs_message_id": ["billing 0", "billing 1", "other", None],
    "sns_sequence_number": ["0".zfill(39), "99".zfill(39), None],
    "receipt_handle_hash": ["billing 0 100", "billing 1 120", "other", None],
    "kind": ["visibility_changed", "redriven", "deleted", "received", "handled", "parked"],
    "receive_count": [None, 0, 2, 4],
    "deduplication_id": ["r.0", "billing 1", None],
    "attributes_hash": ["others", None],
    "md5_ok": [False, None],
    "sqs_sequence_number": ["115".zfill(39), None],
    "sns_message_id": ["sns 1", "other"],
    "sent_at_us": [None, -20_000_000, 119_000],
    "max_number_of_messages": [1],
    "detail": [None, '{"received": 2}', '{"state": "late"}'],
    "publish_attempt": [2],
    "visibility_timeout_seconds": [0, 1, 600],
    "message_run": ["older", None],
    "batch_position": [None, 0, 1],
    "invoked_at_us": [None, 0, 119_000],
    "call_id": ["receive/billing/100", "receive/billing/120"],
    "responded_at_us": [None, 0, 121_000, 900_000],
    "receive_request_attempt_id": ["attempt"],
}


def _put_into_call(events: list[HistoryEvent], position: int, *, with_its_times: bool) -> None:
    """Move a received event into the call of another received event, with or without the other's times."""
    receives = [number for number, e in enumerate(events) if e.kind == Kind.RECEIVED]
    if len(receives) < 2:
        return
    first, second = (receives[(position + offset) % len(receives)] for offset in (0, 1))
    other, changes = events[first], dict[str, Any]()
    if with_its_times:
        changes = {name: getattr(other, name) for name in ("invoked_at_us", "responded_at_us", "queue")}
    in_front = (other.batch_position or 0) if with_its_times else 0
    events[second] = replace(events[second], call_id=other.call_id, batch_position=in_front + position % 3, **changes)


def mutate(
    history: Sequence[HistoryEvent], rng: random.Random, *, values: Mapping[str, Sequence[Any]] = VALUES
) -> list[HistoryEvent]:
    """Return the events of a sane group, one to three of them dropped, moved, doubled or changed."""
    events = list(history)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        position = rng.randrange(len(events))
        edge_ms = rng.choice([299_900, 300_100, 600_000])
        by_ms = rng.choice([rng.randint(-150, 400), rng.randint(-40_000, 40_000), edge_ms])
        again = shift_event(replace(events[position], call_id=f"again/{position}/{by_ms}"), by_ms * 1_000)
        match rng.randrange(7):
            case 0:
                del events[position]
            case 1:
                events[position] = shift_event(events[position], by_ms * 1_000)
            case 2:
                events.append(again)
            case 3:
                events.append(replace(again, sqs_message_id="copy"))
            case 4:
                _put_into_call(events, position, with_its_times=True)
            case 5:
                _put_into_call(events, position, with_its_times=False)
            case _:
                name = rng.choice(sorted(values))
                events[position] = replace(events[position], **{name: rng.choice(values[name])})
    return settle(events)
