"""Three delays between a commit and its consumer, each measured alone, because a sum hides the cause.

A long outbox wait is caused by the relay (it polls rarely, is behind, or does not run), a long API time by the network
or SNS, a long receive wait by the consumers (too few, or the group is blocked).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sluice.history.events import CallOutcome, HistoryEvent, Kind


@dataclass(slots=True)
class Delays:
    """Delays in seconds, one per message that had the delay; no order.

    Args:
        outbox_wait: from the commit until the relay took it, by the database's clock.
        api_time: of the call that published it, by the relay's clock.
        receive_wait: from SQS's SentTimestamp until a consumer had it for the first time, in each queue; AWS's clock
            against the consumer's, so clocks that differ show here.
    """

    outbox_wait: list[float] = field(default_factory=list)
    api_time: list[float] = field(default_factory=list)
    receive_wait: list[float] = field(default_factory=list)


def measure_delays(events: Iterable[HistoryEvent]) -> Delays:
    """Return the delays in a settled history; for a repeat or a redelivery only the first one counts."""
    delays = Delays()
    seen: set[tuple[str, str | None, str | None, int | None]] = set()
    for event in sorted(events, key=lambda event: event.responded_at_us or 0):
        key = (event.kind, event.queue, event.message_group_id, event.idx)
        if event.idx is None or event.responded_at_us is None or event.outcome != CallOutcome.OK or key in seen:
            continue
        for kind, since_us, into in (
            (Kind.OUTBOXED, event.invoked_at_us, delays.outbox_wait),
            (Kind.PUBLISHED, event.invoked_at_us, delays.api_time),
            (Kind.RECEIVED, event.sent_at_us, delays.receive_wait),
        ):
            if event.kind == kind and since_us is not None:
                seen.add(key)
                into.append((event.responded_at_us - since_us) / 1_000_000)
    return delays


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the value below which a share (0 to 1) of the values lies, by nearest rank; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
