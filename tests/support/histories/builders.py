"""Hand-written histories: one group, a few messages, times in milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.history.events import HistoryEvent, Kind, answer_detail, is_end_marker, pad_sequence_number
from sluice.judge.checker import Expectation, Finding, QueueContext
from sluice.judge.checker.verdict import Violation

RUN = "r"
QUEUES = ("billing", "shipping")
EXPECTATION = Expectation(
    run=RUN,
    queues=QUEUES,
    visibility_timeout_seconds={"billing": 30, "shipping": 30},
    dead_letter_queues={"billing": "billing-dlq", "shipping": "shipping-dlq"},
)
END = -1


def _event(kind: Kind, idx: int | None, at_ms: int, took_ms: int | None, **fields: Any) -> HistoryEvent:
    ids = {"run": RUN, "clock_id": "c", "message_group_id": "g1", "message_run": RUN, "idx": idx}
    answered_us = None if took_ms is None else (at_ms + took_ms) * 1_000
    return HistoryEvent(
        **{"kind": kind.value, **ids, "invoked_at_us": at_ms * 1_000, "responded_at_us": answered_us, **fields}
    )


def publish_event(idx: int, at_ms: int, *, took_ms: int | None = 5, **changes: Any) -> HistoryEvent:
    """Return an acknowledged publish; its sequence number is its time, `took_ms` None loses the answer."""
    fields: dict[str, Any] = {
        "worker": "publish-0",
        "call_id": f"publish/{at_ms}",
        "queue": "events",
        "intended_at_us": at_ms * 1_000,
        "outcome": "info" if took_ms is None else "ok",
        "publish_attempt": 1,
        "deduplication_id": f"r.{idx}",
        "sns_sequence_number": None if took_ms is None else pad_sequence_number(str(at_ms + 1)),
        "body_hash": f"body {idx}",
    }
    return _event(Kind.PUBLISHED, idx, at_ms, took_ms, **(fields | changes))


def receive_event(queue: str, idx: int, at_ms: int, *, took_ms: int = 5, **changes: Any) -> HistoryEvent:
    """Return the receive of one message, in its own call."""
    fields: dict[str, Any] = {
        "worker": f"consume-{queue}",
        "call_id": f"receive/{queue}/{at_ms}",
        "queue": queue,
        "batch_position": 0,
        "deduplication_id": f"r.{idx}",
        "sqs_message_id": f"{queue} {idx}",
        "receive_count": 1,
        "receipt_handle_hash": f"{queue} {idx} {at_ms}",
        "body_hash": f"body {idx}",
    }
    return _event(Kind.RECEIVED, idx, at_ms, took_ms, **(fields | changes))


def delete_event(receive: HistoryEvent, at_ms: int, *, took_ms: int | None = 5, **changes: Any) -> HistoryEvent:
    fields: dict[str, Any] = {
        "worker": receive.worker,
        "call_id": f"delete/{receive.queue}/{at_ms}",
        "queue": receive.queue,
        "message_group_id": receive.message_group_id,
        "outcome": "info" if took_ms is None else "ok",
        "batch_position": 0,
        "sqs_message_id": receive.sqs_message_id,
        "receipt_handle_hash": receive.receipt_handle_hash,
    }
    return _event(Kind.DELETED, receive.idx, at_ms, took_ms, **(fields | changes))


def consume_events(queue: str, idxs: list[int], from_ms: int) -> list[HistoryEvent]:
    """Return the receives and deletes of messages, one after the other, 20 ms each."""
    events: list[HistoryEvent] = []
    for number, idx in enumerate(idxs):
        receive = receive_event(queue, idx, from_ms + number * 20)
        events += [receive, delete_event(receive, from_ms + number * 20 + 8)]
    return events


def sane() -> list[HistoryEvent]:
    """Return three messages and their end marker, published, received and deleted without any anomaly."""
    return [
        publish_event(0, 0),
        publish_event(1, 10),
        publish_event(2, 20),
        publish_event(END, 30),
        *consume_events("billing", [0, 1, 2, END], 100),
        *consume_events("shipping", [0, 1, 2, END], 105),
    ]


def full() -> list[HistoryEvent]:
    """Return the sane history as whole as a recorder writes it, with the effects of billing's consumer."""
    return [whole for event in sane() for whole in _whole(event)]


def _whole(event: HistoryEvent) -> list[HistoryEvent]:
    if event.kind == Kind.DELETED:
        return [event]
    if event.kind == Kind.PUBLISHED:
        return [replace(event, attributes_hash="attributes", sns_message_id=f"sns {event.idx}")]
    number = pad_sequence_number(str((event.invoked_at_us or 0) // 1_000 + 7))
    receive = replace(
        event,
        attributes_hash="attributes",
        md5_ok=True,
        sqs_sequence_number=number,
        sent_at_us=25_000,
        max_number_of_messages=10,
        detail=answer_detail(1),
    )
    return [receive, *([effect_event(receive)] if event.queue == "billing" and not is_end_marker(event.idx) else [])]


def effect_event(receive: HistoryEvent) -> HistoryEvent:
    """Return the effect of a received message, committed before its delete."""
    return _event(
        Kind.HANDLED,
        receive.idx,
        (receive.responded_at_us or 0) // 1_000 + 1,
        1,
        worker=receive.worker,
        queue=receive.queue,
        message_group_id=receive.message_group_id,
        sqs_message_id=receive.sqs_message_id,
        receive_count=receive.receive_count,
        body_hash=receive.body_hash,
        detail='{"state": "contiguous"}',
    )


def shift_event(event: HistoryEvent, by_us: int) -> HistoryEvent:
    """Return an event shifted to later by `by_us`."""
    instants = {name: getattr(event, name) for name in ("invoked_at_us", "responded_at_us")}
    return replace(event, **{name: value + by_us for name, value in instants.items() if value is not None})


def without(events: list[HistoryEvent], **match: Any) -> list[HistoryEvent]:
    return [e for e in events if not all(getattr(e, name) == value for name, value in match.items())]


def only(events: list[HistoryEvent], **match: Any) -> HistoryEvent:
    (found,) = [e for e in events if all(getattr(e, name) == value for name, value in match.items())]
    return found


def publish_of(events: list[HistoryEvent], idx: int) -> HistoryEvent:
    return only(events, kind="published", idx=idx)


def receive_of(events: list[HistoryEvent], idx: int, queue: str = "billing") -> HistoryEvent:
    return only(events, kind="received", queue=queue, idx=idx)


WITHOUT_BILLING = without(sane(), queue="billing")
"""The sane history of the publishers and of shipping."""

_NOTHING_AROUND = QueueContext()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A history that shows an anomaly, and one that nearly does.

    Args:
        anomaly: the id of the anomaly.
        events: the history that shows only this anomaly.
        idxs: the messages of the violation; queue, sentence and witness are its further fields.
        near_miss: a similar history that shows no violation, and not this anomaly.
        expectation: the expectation of both histories.
        around: the surrounding events of both histories.
        near_expectation: the expectation of the near miss if it differs.
        near_around: the surrounding events of the near miss if they differ.
        also_seen: lawful anomalies that the history shows as well.
    """

    anomaly: str
    events: Sequence[HistoryEvent]
    idxs: tuple[int, ...]
    sentence: str
    witness: tuple[HistoryEvent, ...]
    near_miss: Sequence[HistoryEvent]
    queue: str | None = "billing"
    expectation: Expectation = EXPECTATION
    around: QueueContext = _NOTHING_AROUND
    near_expectation: Expectation | None = None
    near_around: QueueContext | None = None
    also_seen: frozenset[str] = frozenset()

    @property
    def violation(self) -> Violation:
        """Return the whole expected violation."""
        return Violation(
            anomaly=self.anomaly,
            message_group_id="g1",
            queue=self.queue,
            idxs=self.idxs,
            sentence=self.sentence,
            witness=self.witness,
        )

    def violations_of(self, finding: Finding) -> list[Violation]:
        """Return all that was found, without the lawful things it cannot but show."""
        return [
            *finding.violations,
            *(violation for violation in finding.seen if violation.anomaly not in self.also_seen),
        ]
