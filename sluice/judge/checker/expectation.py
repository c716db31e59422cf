"""Expectations that a run was set up with, and the events around its groups."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice import limits
from sluice.history.events import CallOutcome, HistoryEvent, Kind, detail_of

_EMPTY_PROBES_MIN = 3
_SECOND_US = 1_000_000
_NONE: Mapping[str, str] = {}
_PURGED_WITHIN_US = limits.PURGE_SECONDS_MAX * _SECOND_US  # also a call that nobody answered has begun by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The declared setup of a run.

    Args:
        run: id of the run; messages of another one are foreign.
        queues: every queue subscribed to the topic, by name. A message sent straight to one belongs to that one only.
        visibility_timeout_seconds: of each of those queues; of one that is not named nobody knows how long a message is
            held, unless the receive says it.
        dead_letter_queues: the DLQ of each of those queues.
        subscription_dead_letter_queues: where SNS puts what it could not deliver to each of those queues.
        max_receive_count: of each of those queues; what depends on one that is not named is not judged.
        retention_seconds: for how long each of those queues and DLQs keeps a message; AWS's default of one that is not
            named.
        delay_seconds: of each of those queues, 0 where it is not named; None where nobody knows it: then it may be as
            long as the quickest message of a group took.
        deduplication_window_seconds: of the target.
        clock_bound_us: how far any two clocks of the run may be apart, microseconds; 0 when there is one clock.
        clocks_ahead_us: clock to another clock to the most by which the other may be ahead of it, where that is known
            better (`clocks`).
        unproven_queues: queue to why some of what was received from it may not be in the history. That something was
            not received from there proves nothing.
        lost_receives: queue to how many receives were asked of it and never answered: each may have leased messages.
        is_publishing_recorded: whether every publish is in the history, if only as an intent.
        publishing_began_us: from when on it is, microseconds UTC; None means from the first, `NEVER_US` that others
            publish as well. What was published before may come, may be repeated, and may have been received and
            deleted.
        receiving_began_us: queue to the same for what was received from it.
        is_planned: whether idx counts the messages of a group in the order they were meant to be published. Of anyone's
            recorded messages it only tells them apart (`history.stable_idx`): what they were meant to be is not judged.
        effects_recorded: the queues whose consumers wrote down every effect; elsewhere a missing one proves nothing.
        fan_out_skew_seconds_max: allowed between a message's first and last queue; None does not judge it.
        passed_over_seconds_max: allowed for a group with an available message while others are served; None likewise.
        stuck_seconds_max: allowed for a group with an available message to stand still at all; None likewise.
    """

    run: str
    queues: tuple[str, ...]
    visibility_timeout_seconds: Mapping[str, int]
    dead_letter_queues: Mapping[str, str] = field(default_factory=dict)
    subscription_dead_letter_queues: Mapping[str, str] = field(default_factory=dict)
    max_receive_count: Mapping[str, int] = field(default_factory=dict)
    retention_seconds: Mapping[str, int] = field(default_factory=dict)
    delay_seconds: Mapping[str, int | None] = field(default_factory=dict)
    deduplication_window_seconds: int = limits.DEDUPLICATION_WINDOW_SECONDS
    clock_bound_us: int = 0
    clocks_ahead_us: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unproven_queues: Mapping[str, str] = field(default_factory=dict)
    lost_receives: Mapping[str, int] = field(default_factory=dict)
    is_publishing_recorded: bool = True
    publishing_began_us: int | None = None
    receiving_began_us: Mapping[str, int] = field(default_factory=dict)
    is_planned: bool = True
    effects_recorded: tuple[str, ...] = ()
    fan_out_skew_seconds_max: float | None = None
    passed_over_seconds_max: float | None = None
    stuck_seconds_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The receives asked of a queue in one second.

    Args:
        second: since 1970.
        served_count: answered with messages.
        empty_count: long polls answered with none.
        answered_by_us: when the last of both was answered, microseconds UTC.
    """

    second: int
    served_count: int
    empty_count: int
    answered_by_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move task: when it ended well, everything in `source` when it began went to `destination`; else some may have.

    Args:
        source: the DLQ.
        destination: the queue.
        began_at_us: when it was asked for.
        ended_at_us: when it was known to have ended.
        is_finished: whether it ended well.
    """

    source: str
    destination: str
    began_at_us: int
    ended_at_us: int
    is_finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A time in which a queue may lose messages.

    Args:
        is_certain: whether it certainly loses what was in the queue before: a purge that was confirmed.
    """

    queue: str
    began_at_us: int
    ended_at_us: int
    is_certain: bool = False


class IdUse(NamedTuple):
    """A publish under a deduplication id: when it was tried, by when it had its effect, to which place, of what.

    Args:
        message: its group and idx.
        id: the message id it was answered with, of a repeat that of the first; None without an answer.
    """

    from_us: int
    until_us: int
    queue: str | None
    message: tuple[str, int]
    id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """Events around the groups: the same for all of them.

    Args:
        activity: queue to its seconds, ascending.
        moves: of dead letters back into a queue.
        purges: of queues, each as long as it may have worked: a minute longer than its call.
        faults: that were injected and are documented to lose what was published meanwhile.
        empty_since_us: queue to the instant from which probes found nothing in it any more.
        shared_ids: (group, idx) of a message whose deduplication id others have as well to every publish under it, by
            when it was tried. Where the scope is a queue or topic, the one that came first is delivered, and the
            others are acknowledged as its repeats (DED-01, SNS-113).
    """

    activity: Mapping[str, Sequence[Activity]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    purges: tuple[Loss, ...] = ()
    faults: tuple[Loss, ...] = ()
    empty_since_us: Mapping[str, int] = field(default_factory=dict)
    shared_ids: Mapping[tuple[str, int], Sequence[IdUse]] = field(default_factory=dict)

    def polls(self, queue: str, *, from_us: int, until_us: int) -> tuple[int, int]:
        """Return how many receives between the two instants brought something, and how many long polls nothing.

        Counted are the seconds that lie between them as a whole, with all their answers.
        """
        seconds = self.activity.get(queue, ())
        first = bisect_left(seconds, -(-from_us // _SECOND_US), key=lambda activity: activity.second)
        after = bisect_left(seconds, until_us // _SECOND_US, key=lambda activity: activity.second)
        counted = [activity for activity in seconds[first:after] if activity.answered_by_us <= until_us]
        return sum(activity.served_count for activity in counted), sum(activity.empty_count for activity in counted)

    def last_poll_us(self, queue: str) -> int:
        """Return when the last receive of a queue was answered; 0 when there was none."""
        return max((activity.answered_by_us for activity in self.activity.get(queue, ())), default=0)


def queue_context(
    events: Iterable[HistoryEvent], *, queues: Sequence[str] = (), dead_letter_queues: Mapping[str, str] = _NONE
) -> QueueContext:
    """Return what the events that belong to no group say: move tasks, purges, faults and probes.

    A move task names its destination and a lossy fault itself in `detail` (`destination`, `is_lossy`). One whose
    destination is null takes each message to the queue it came from: one of those that have this DLQ, or one of
    `queues`, where nobody says which have it.
    """
    ungrouped = sorted(
        (event for event in events if event.queue is not None), key=lambda event: event.invoked_at_us or 0
    )
    of_kind: dict[str, list[HistoryEvent]] = defaultdict(list)
    for event in ungrouped:
        of_kind[event.kind].append(event)
    moved = [
        record
        for record in of_kind[Kind.REDRIVEN]
        if record.outcome != CallOutcome.FAIL and "destination" in detail_of(record.detail)
    ]
    return QueueContext(
        moves=tuple(
            Move(
                source=record.queue or "",
                destination=destination,
                began_at_us=record.invoked_at_us or 0,
                ended_at_us=record.responded_at_us or 0,
                is_finished=record.outcome == CallOutcome.OK,
            )
            for record in moved
            for destination in _destinations(record, queues, dead_letter_queues)
        ),
        purges=tuple(
            Loss(
                queue=record.queue or "",
                began_at_us=record.invoked_at_us or 0,
                ended_at_us=(record.responded_at_us or (record.invoked_at_us or 0) + _PURGED_WITHIN_US)
                + _PURGED_WITHIN_US,
                is_certain=record.outcome == CallOutcome.OK,
            )
            for record in of_kind[Kind.PURGED]
            if record.outcome != CallOutcome.FAIL
        ),
        faults=tuple(
            Loss(
                queue=record.queue or "", began_at_us=record.invoked_at_us or 0, ended_at_us=record.responded_at_us or 0
            )
            for record in of_kind[Kind.FAULT]
            if record.outcome != CallOutcome.FAIL and detail_of(record.detail).get("is_lossy") is True
        ),
        empty_since_us=_empty_since_us(of_kind[Kind.PROBE]),
    )


def _destinations(record: HistoryEvent, queues: Sequence[str], dead_letter_queues: Mapping[str, str]) -> Sequence[str]:
    named = detail_of(record.detail)["destination"]
    if named is not None:
        return [str(named)]
    sources = [queue for queue, dead_letter_queue in dead_letter_queues.items() if dead_letter_queue == record.queue]
    return sources or [queue for queue in queues if queue != record.queue]


def _empty_since_us(probes: Iterable[HistoryEvent]) -> dict[str, int]:
    trailing: dict[str, list[int]] = defaultdict(list)
    for probe in probes:
        counts = (probe.visible_count, probe.in_flight_count, probe.delayed_count)
        if any(counts):
            trailing[probe.queue or ""].clear()
        elif probe.responded_at_us is not None and None not in counts:
            trailing[probe.queue or ""].append(probe.responded_at_us)
    return {queue: times[0] for queue, times in trailing.items() if len(times) >= _EMPTY_PROBES_MIN}
