"""Expectations that a run was set up with, and the events around its groups."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice import limits
from sluice.history.events import DELETION_DETAIL, CallOutcome, HistoryEvent, Kind, detail_of

_EMPTY_PROBES_MIN = 3
_SECOND_US = 1_000_000
_NONE: Mapping[str, str] = {}
_PURGED_WITHIN_US = limits.PURGE_SECONDS_MAX * _SECOND_US  # a call without an answer has begun its work by then, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The declared setup of a run.

    Args:
        run: id of the run; messages of another run are foreign.
        queues: every queue subscribed to the topic, by name. A message sent straight to a queue belongs to that queue
            only.
        visibility_timeout_seconds: queue to its visibility timeout; for a queue that is missing here, the hold of a
            message is known only if its receive gives a timeout.
        dead_letter_queues: queue to its DLQ.
        subscription_dead_letter_queues: queue to the DLQ of its subscription, where SNS puts messages that it could not
            deliver.
        max_receive_count: queue to its maxReceiveCount; for a queue that is missing here, rules that need it do not
            judge.
        retention_seconds: queue or DLQ to its retention; AWS's default if it is missing.
        delay_seconds: queue to its delay, 0 if it is missing; None if the delay is unknown: then it may be as long as
            the quickest message of a group took.
        deduplication_window_seconds: the deduplication window of the target.
        clock_bound_us: the largest difference between any two clocks of the run, microseconds; 0 if there is one clock.
        clocks_ahead_us: clock to another clock to the most by which the other may be ahead, if that is known better
            (`clocks`).
        unproven_queues: queue to the reason for which some of its receives may be missing in the history. A message
            that was not received from such a queue proves nothing.
        selective_queues: queue to whether the publishes on record tell which messages of a topic it gets, as far as
            they know (`history.events.acceptances_in`); of a queue with False they tell nothing that can be relied on.
            Its subscription may have a filter policy, or may have begun later than the recording, so a message that no
            publish tells it to get proves nothing by its absence. The other queues get every message.
        changed_timeouts: queue to its declared visibility timeout, if it was given another one meanwhile. It then has
            none above, and what rests on the declared one is open.
        changed_receive_counts: queue to its declared maxReceiveCount, likewise.
        lost_receives: queue to how many receives of it were never answered: each may have leased messages.
        is_publishing_recorded: whether every publish is in the history, if only as an intent.
        publishing_began_us: the time since which every publish is in the history, microseconds UTC; None means from the
            first, `NEVER_US` that others publish as well. Messages from before may arrive, may be repeated, and may
            have been received and deleted.
        receiving_began_us: queue to the time since which every receive of it is in the history.
        is_planned: whether idx counts the messages of a group in the order in which they were meant to be published. In
            a recording of other programs idx only tells messages apart (`history.stable_idx`), and the intended order
            is not judged.
        effects_recorded: the queues whose consumers recorded every effect; for other queues a missing effect proves
            nothing.
        gapless: the queues whose consumers lose no number, because no receive is an attempt (functions): there, a
            message that fills a gap was passed over by its consumer.
        fan_out_skew_seconds_max: the longest allowed time between a message's first and last queue; None does not judge
            it.
        passed_over_seconds_max: how long a group with an available message may wait while others are served; None does
            not judge it.
        stuck_seconds_max: how long a group with an available message may wait at all; None does not judge it.
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
    selective_queues: Mapping[str, bool] = field(default_factory=dict)
    changed_timeouts: Mapping[str, int] = field(default_factory=dict)
    changed_receive_counts: Mapping[str, int] = field(default_factory=dict)
    lost_receives: Mapping[str, int] = field(default_factory=dict)
    is_publishing_recorded: bool = True
    publishing_began_us: int | None = None
    receiving_began_us: Mapping[str, int] = field(default_factory=dict)
    is_planned: bool = True
    effects_recorded: tuple[str, ...] = ()
    gapless: tuple[str, ...] = ()
    fan_out_skew_seconds_max: float | None = None
    passed_over_seconds_max: float | None = None
    stuck_seconds_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The receives of a queue in one second.

    Args:
        second: seconds since 1970.
        served_count: receives answered with messages.
        empty_count: long polls answered with none.
        answered_by_us: when the last of these was answered, microseconds UTC.
    """

    second: int
    served_count: int
    empty_count: int
    answered_by_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move task.

    If it ended well, it moved everything that was in `source` at its begin; otherwise it may have moved some.

    Args:
        source: the DLQ.
        destination: the queue.
        began_at_us: when it was requested.
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
        is_certain: whether the queue certainly loses the messages that were in it before: a purge that was confirmed.
        is_deletion: whether the queue was deleted as well: another one of its name begins anew.
    """

    queue: str
    began_at_us: int
    ended_at_us: int
    is_certain: bool = False
    is_deletion: bool = False


class IdUse(NamedTuple):
    """A publish under a deduplication id: when it was tried, the latest time of its effect, its place and message.

    Args:
        message: its group and idx.
        id: the message id in the answer, which for a repeat is that of the first message; None without an answer.
    """

    from_us: int
    until_us: int
    queue: str | None
    message: tuple[str, int]
    id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """Events outside the groups: the same for all groups.

    Args:
        activity: queue to its seconds, ascending.
        moves: move tasks from DLQs back into queues.
        purges: purges of queues, each as long as it may have worked: a minute longer than its call.
        faults: injected faults that are documented to lose messages published meanwhile.
        empty_since_us: queue to the time since which probes found nothing in it any more.
        shared_ids: (group, idx) of each message that shares its deduplication id with other messages, to every publish
            under this id, in the order of their tries. If the scope is a queue or topic, the first one is delivered,
            and the others are acknowledged as its repeats (DED-01, SNS-113).
    """

    activity: Mapping[str, Sequence[Activity]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    purges: tuple[Loss, ...] = ()
    faults: tuple[Loss, ...] = ()
    empty_since_us: Mapping[str, int] = field(default_factory=dict)
    shared_ids: Mapping[tuple[str, int], Sequence[IdUse]] = field(default_factory=dict)

    def polls(self, queue: str, *, from_us: int, until_us: int) -> tuple[int, int]:
        """Return how many receives between the two times returned messages, and how many long polls returned none.

        Only seconds that lie completely between the times count, with all their answers.
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
    """Return the events that belong to no group: move tasks, purges, faults and probes.

    A move task names its destination in `detail` (`destination`), and a lossy fault says so there (`is_lossy`). A task
    without a destination moves each message to the queue that it came from: one of the queues with this DLQ, or one of
    `queues` if those are unknown.
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
                is_deletion=record.detail == DELETION_DETAIL,
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
