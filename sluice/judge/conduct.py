"""Conduct of the consumers in a recording: SQS may keep every promise while a consumer is too slow.

AWS: a message whose visibility timeout ends before its delete is given out again, and its old handle is of no use
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html, read
2026-11-26). A lease certainly began before the receive was answered, so a handle is late only if it was used after its
answer by more than the timeout.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sluice.history.events import CallOutcome, Kind
from sluice.judge.parts import History
from sluice.judge.reading.columns import NONE, Events
from sluice.judge.tally import TALLY, ObservationTally
from sluice.pages import units
from sluice.pages.units import plural

_KINDS = (Kind.RECEIVED.value, Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
AGAIN = {
    "late": "the work took longer than the visibility timeout",
    "released": "the consumer released it",
    "unsettled": "its visibility timeout ended before a delete, as of a handler that failed or ended",
}
"""Cause of a redelivery to its description."""


class _LeaseEvent(NamedTuple):
    """A receive, delete or visibility change; ids that are only compared are hashes."""

    invoked_us: int
    responded_us: int
    kind: str
    queue: str
    group: str | None
    handle: int
    message: int
    place: int
    timeout_seconds: int
    clock: str | None
    outcome: str
    error: str | None

    def order(self) -> tuple[int, bool, int, int, int]:
        """Return the sort key of a group's rows, which does not depend on the order of their arrival."""
        return (self.invoked_us, self.kind != Kind.RECEIVED, self.place, self.handle, self.message)


@dataclass(slots=True)
class _Lease:
    """The lease of one message at a consumer.

    `ends_us` is the last instant at which it may have ended, if known; `deleted_us` when its first delete was answered;
    `refused` why its last delete was not accepted.
    """

    row: _LeaseEvent
    ends_us: int | None
    timeout_us: int | None
    settled_us: int | None = None
    deleted_us: int | None = None
    refused: str | None = None
    why_again: str | None = "unsettled"
    earlier: "_Lease | None" = None

    @property
    def is_settled(self) -> bool:
        """Return whether its consumer has deleted or released it."""
        return self.settled_us is not None

    def repeat(self, again: "_Lease") -> None:
        """Hide the message anew: a receive that is repeated by its attempt id returns the same handle (RCV-28)."""
        if self.ends_us is not None:
            self.ends_us = None if again.ends_us is None else max(self.ends_us, again.ends_us)


def conduct(history: History, timeouts: Mapping[str, int]) -> dict[str, Any]:
    """Return the conduct of the consumers of each queue, JSON-ready.

    Args:
        history: of a recording.
        timeouts: queue to the visibility timeout of its own, seconds; of others no handle is known to be late.

    Returns:
        `queues`: name to `work_us` (from receive to delete: count, percentiles, max; None without one), `again` (why a
        message was received again to how often), `late`, `late_work_us_max`, `late_timeout_us`, `refused` (error code
        to how many handles, of which no later delete was accepted), `together` (deletes that were answered before an
        earlier message of the group was settled, by one clock).
        `found`: a sentence for each thing that is no promise of AWS, and the consumer's to mend.
    """
    tally = ObservationTally(history.tally(partial(_conduct_of_part, timeouts=dict(timeouts))))
    queues = {name: _queue_conduct(tally, name) for name in sorted(tally.names("received"))}
    return {"queues": queues, "found": [line for name, of in queues.items() for line in _finding_sentences(name, of)]}


def _queue_conduct(tally: ObservationTally, queue: str) -> dict[str, Any]:
    refused = {}
    for name in tally.names("refused"):
        of, _, code = name.partition(" ")  # no queue's name has a space
        if of == queue:
            refused[code] = tally.total("refused", name)
    return {
        "work_us": tally.distributions("work", queue).get(0),
        "again": {why: count for why in AGAIN if (count := tally.total(why, queue))},
        "late": tally.total("late use", queue),
        "late_work_us_max": tally.span("late use", queue)[1],
        "late_timeout_us": tally.span("timeout of late use", queue)[1],
        "refused": refused,
        "together": tally.total("together", queue),
    }


def _finding_sentences(queue: str, of: Mapping[str, Any]) -> Iterator[str]:
    slow = f"work took up to {units.duration(of['late_work_us_max'])}, the timeout is {_timeout_text(of)}"
    if again := of["again"].get("late"):
        yield f"{queue}: {plural(again, 'message')} received again before the work on it had ended: {slow}"
    if of["late"]:
        handles = plural(of["late"], "receipt handle")
        yield f"{queue}: {handles} used after the visibility timeout had ended: {slow}"
    for code, count in of["refused"].items():
        yield f"{queue}: {plural(count, 'delete')} refused with {code}: the message was still in the queue, or is again"
    if of["together"]:
        messages = plural(of["together"], "message")
        yield (
            f"{queue}: {messages} deleted before an earlier one of the group that was also at work: by the order of the"
            " deletes two threads or consumers work on one group, and its order ends there"
        )


def _timeout_text(of: Mapping[str, Any]) -> str:
    return units.duration(of["late_timeout_us"])


def lines(measured: Mapping[str, Any]) -> list[str]:
    """Return the result of `conduct` as sentences for each queue, things to mend first."""
    found = list(measured["found"])
    for queue, of in measured["queues"].items():
        if work := of["work_us"]:
            found.append(
                f"{queue}: from receive to delete {units.duration(work['p50'])} (p50), {units.duration(work['p95'])}"
                f" (p95), at most {units.duration(work['max'])}, of {plural(work['count'], 'message')}"
            )
        found += [
            f"{queue}: {plural(count, 'message')} received again: {AGAIN[why]}"
            for why, count in of["again"].items()
            if why != "late"
        ]
    return found


def _conduct_of_part(part: Iterable[Events], *, timeouts: Mapping[str, int]) -> list[pa.Table]:
    leases: dict[tuple[str, str | None, int], _Lease] = {}
    of_message: dict[tuple[str, str | None, int], _Lease] = {}
    of_group: dict[tuple[str, str | None, str | None], list[_Lease]] = defaultdict(list)
    found: Counter[tuple[str, str, int]] = Counter()
    for row in sorted((row for events in part for row in _lease_events(events)), key=_LeaseEvent.order):
        key = row.queue, row.group, row.handle
        if row.kind != Kind.RECEIVED:
            used = leases.get(key)
            if used is not None and used.row.clock == row.clock:
                _apply_call(used, row, found)
        elif row.responded_us != NONE:
            lease = _lease_of(row, timeouts)
            if leases.setdefault(key, lease) is not lease:
                leases[key].repeat(lease)
                continue
            found["received", row.queue, 0] += 1
            of_group[row.queue, row.group, row.clock].append(lease)
            if row.message:
                lease.earlier = of_message.get((row.queue, row.group, row.message))
                of_message[row.queue, row.group, row.message] = lease
    found.update(chain.from_iterable(map(_count_lease, leases.values())))
    for of in of_group.values():
        for queue, count in _out_of_order(of):
            found["together", queue, 0] += count
    columns = zip(*((what, name, 0, value, count) for (what, name, value), count in found.items()), strict=True)
    made = [pa.array(column, field.type) for column, field in zip(columns, TALLY, strict=False)]
    return [pa.table(made, schema=TALLY) if made else TALLY.empty_table()]


def _lease_events(events: Events) -> Iterator[_LeaseEvent]:
    """Yield the receives, deletes and visibility changes of messages with a group."""
    kinds, names = events.codes("kind")
    is_of_group = events.is_known("message_group_id") & (events.numbers("invoked_at_us") != NONE)
    is_chosen = np.isin(kinds, [place for place, name in enumerate(names) if name in _KINDS]) & is_of_group
    chosen = np.flatnonzero(is_chosen)

    def texts(name: str) -> list[str | None]:
        codes, values = events.codes(name)
        return [values[code] for code in codes[chosen].tolist()]

    numbers = (events.numbers(name)[chosen].tolist() for name in ("invoked_at_us", "responded_at_us"))
    hashes = (events.hashes(name)[chosen].tolist() for name in ("receipt_handle_hash", "sqs_message_id"))
    invoked, responded = numbers
    handle, message = hashes
    columns = (
        invoked,
        responded,
        texts("kind"),
        texts("queue"),
        texts("message_group_id"),
        handle,
        message,
        events.numbers("batch_position", 0)[chosen].tolist(),
        events.numbers("visibility_timeout_seconds")[chosen].tolist(),
        texts("clock_id"),
        texts("outcome"),
        texts("error"),
    )
    yield from map(_LeaseEvent._make, zip(*columns, strict=True))


def _lease_of(row: _LeaseEvent, timeouts: Mapping[str, int]) -> _Lease:
    seconds = timeouts.get(row.queue) if row.timeout_seconds == NONE else row.timeout_seconds
    timeout_us = None if seconds is None else seconds * 1_000_000
    return _Lease(row, timeout_us=timeout_us, ends_us=None if timeout_us is None else row.responded_us + timeout_us)


def _apply_call(lease: _Lease, row: _LeaseEvent, found: Counter[tuple[str, str, int]]) -> None:
    """Record the effect of a delete or a visibility change on a lease."""
    worked_us = row.invoked_us - lease.row.responded_us
    if lease.ends_us is not None and row.invoked_us > lease.ends_us and not lease.is_settled:
        found["late use", row.queue, worked_us] += 1
        found["timeout of late use", row.queue, lease.timeout_us or 0] += 1
        lease.why_again = "late"
    if row.kind == Kind.DELETED:
        if not lease.is_settled:
            found["work", row.queue, max(0, worked_us)] += 1
        lease.refused = str(row.error) if row.outcome == CallOutcome.FAIL else None
        if lease.deleted_us is None and row.responded_us != NONE:
            lease.deleted_us = row.responded_us
        lease.settled_us = row.invoked_us if lease.settled_us is None else lease.settled_us
        if lease.why_again == "unsettled":
            lease.why_again = None  # its consumer deleted it, so a further receive has another cause
    elif row.outcome != CallOutcome.FAIL and row.timeout_seconds == NONE:
        lease.ends_us = None
    elif row.outcome != CallOutcome.FAIL and lease.ends_us is not None:
        ends_us = (row.invoked_us if row.responded_us == NONE else row.responded_us) + row.timeout_seconds * 1_000_000
        lease.ends_us = ends_us if row.outcome == CallOutcome.OK else max(lease.ends_us, ends_us)
        lease.timeout_us = row.timeout_seconds * 1_000_000
        if row.timeout_seconds == 0:
            lease.why_again, lease.settled_us = "released", row.invoked_us


def _count_lease(lease: _Lease) -> Iterator[tuple[str, str, int]]:
    """Yield the counts of a lease after all of its uses."""
    if lease.earlier is not None and lease.earlier.why_again is not None:
        yield lease.earlier.why_again, lease.row.queue, 0
    if lease.refused is not None:
        yield "refused", f"{lease.row.queue} {lease.refused}", 0


def _out_of_order(leases: list[_Lease]) -> Iterator[tuple[str, int]]:
    """Yield a queue for each message that was deleted while an earlier message of its group was still being handled.

    A message that is released meanwhile is delivered again behind the earlier one.
    """
    at_work_until = 0
    for lease in leases:
        if lease.settled_us is not None:
            is_over = lease.deleted_us is not None and lease.deleted_us <= at_work_until
            if is_over and lease.settled_us < at_work_until:  # not in one call
                yield lease.row.queue, 1
            at_work_until = max(at_work_until, lease.settled_us)
