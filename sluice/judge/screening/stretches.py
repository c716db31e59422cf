"""Select the messages of a suspect group that the checker needs: the unusual ones, and those around them.

A busy group may have a tenth of all events, of which one is wrong. A *cut* lies between two messages in the order of
the plan if all events of the messages before it end before any event behind it begins: publishes, receives, effects,
deletes and leases; and if all sequence numbers before it are lower. The messages between two cuts are a *stretch*. No
rule finds anything that spans a cut, and a stretch with nothing unusual, by `mark_suspects`, would be cleared if it
were a group. So the checker gets the stretches with something unusual, with a whole one on either side, and the ends of
the group: the first and last that came from each queue, and its end markers. The findings are the same as in the whole
group, and tests compare the two. Findings in a stretch that is only beside an unusual one do not count: messages in
front of it are left out, so that it may look as if it had waited.

A group is checked as a whole if it has several clocks, dead letters or shared ids, or if a rule may compare messages
that are far apart.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice import limits
from sluice.history.events import HistoryEvent
from sluice.judge.checker import Expectation, QueueContext
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.group import ENQUEUED_WITHIN_US, Group
from sluice.judge.checker.rules.blocking import UNDERFILLED_MIN
from sluice.judge.checker.standing import earliest_end_us
from sluice.judge.reading.columns import NONE, Columns, Events, hash_numbers
from sluice.judge.screening.encode import (
    NO_IDX,
    NO_QUEUE_INDEX,
    OK,
    PUBLISHED,
    RECEIVED,
    drop_left_out,
    encode_events,
    has_message_id,
)
from sluice.judge.screening.rollup import messages, queue_indexes
from sluice.judge.screening.suspects import empty_answer_bits, mark_suspects
from sluice.recorder.journal import events_of

WHOLE_MAX = 1_000
"""A group with at most so many events is checked as a whole, which is as fast as selecting."""
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class NeededEvents:
    """Events of a group, and the messages whose findings count; None means all."""

    events: pa.Table
    idxs: frozenset[int] | None = None


def needed_events(events: pa.Table, expectation: Expectation, around: QueueContext) -> NeededEvents:
    """Return those events of a group that the checker needs to find what it finds in all of them.

    `events` are all of one message group, whole and settled.
    """
    if len(events) <= WHOLE_MAX or not _is_simple_run(expectation, around):
        return NeededEvents(events)
    columns = drop_left_out(encode_events(Events(events), expectation))
    if not _is_simple(events, columns, expectation):
        return NeededEvents(events)
    found = messages(columns, expectation)
    is_suspect, waited = mark_suspects(found, expectation)
    is_suspect |= (waited & empty_answer_bits(around.activity, expectation)) != 0
    places = _places(columns["idx"], found["idx"])
    if _has_shared_ids(columns, places) or any(
        _may_be_underfilled(columns, queue_index) for queue_index in queue_indexes(expectation)
    ):
        return NeededEvents(events)
    is_theirs = _is_of(events, found["idx"][is_suspect])
    odd = Group(events_of(events.filter(is_theirs)), expectation, around)
    stretch = _stretches(columns, places, found, odd, expectation)
    is_suspect[_last_published_before(columns, places, is_suspect)] = True
    wanted = _wanted_stretches(stretch, is_suspect, found, expectation)
    around_them = np.concatenate((wanted - 1, wanted, wanted + 1))
    return NeededEvents(
        events.filter(_is_of(events, found["idx"][np.isin(stretch, around_them)])),
        frozenset(found["idx"][np.isin(stretch, wanted)].tolist()),
    )


def _is_simple_run(expectation: Expectation, around: QueueContext) -> bool:
    """Return whether nothing around the groups, or left open, connects messages that stand far apart."""
    is_delayed = any(seconds is None for seconds in expectation.delay_seconds.values())
    return expectation.is_planned and not (around.moves or around.purges or around.faults or is_delayed)


def _is_simple(events: pa.Table, rows: Columns, expectation: Expectation) -> bool:
    """Return whether a group has one clock, one order, no dead letter, and is younger than what its queues keep."""
    if len(pc.unique(events.column("clock_id"))) > 1 or not len(rows["idx"]):
        return False
    is_published, is_received = rows["kind"] == PUBLISHED, rows["kind"] == RECEIVED
    if (rows["idx"] == NO_IDX).any() or (is_received & (rows["queue_index"] == NO_QUEUE_INDEX)).any():
        return False
    if ((rows["high"] != 0) & (rows["low"] == NONE)).any():
        return False
    if (is_published & (rows["outcome"] == OK) & (rows["answered_us"] == NONE)).any():
        return False  # for C7 every later message would have been published too early
    ends = [pc.min_max(events.column(name)).as_py() for name in ("invoked_at_us", "responded_at_us")]
    known = [us for end in ends for us in end.values() if us is not None]
    kept = (*expectation.retention_seconds.values(), limits.MESSAGE_RETENTION_SECONDS)
    is_young = max(known, default=0) - min(known, default=0) < min(kept) * _US
    return is_young and all(
        len(np.unique(rows[name][which])) <= 1
        for name, which in (
            ("handle", is_published),  # where to
            *(("high", is_received & (rows["queue_index"] == index)) for index in queue_indexes(expectation)),
            ("high", is_published & (rows["high"] != 0)),
        )
    )


def _places(idx: np.ndarray, planned: np.ndarray) -> np.ndarray:
    """Return of each row the place of its message in the plan."""
    order = np.argsort(planned)
    return order[np.searchsorted(planned, idx, sorter=order)]


def _is_of(events: pa.Table, idxs: np.ndarray) -> pa.ChunkedArray:
    return pc.is_in(events.column("idx"), pa.array(idxs, pa.int64()))


def _last_published_before(rows: Columns, places: np.ndarray, is_suspect: np.ndarray) -> np.ndarray:
    """Return which messages were published last before an unusual one came: of a phantom they are the witness (A4)."""
    published, came = np.flatnonzero(rows["kind"] == PUBLISHED), (rows["kind"] == RECEIVED) & is_suspect[places]
    published = published[np.argsort(rows["invoked_us"][published], kind="stable")]
    before = np.searchsorted(rows["invoked_us"][published], rows["answered_us"][came]) - 1
    found: np.ndarray = places[published[before[before >= 0]]]
    return found


def _has_shared_ids(rows: Columns, places: np.ndarray) -> bool:
    """Return whether two messages have one receipt handle, or one SQS message id, in one queue.

    The events of a bundle have one handle. Then the SQS message id tells what was done with which of them.
    """
    is_of_queue, has_handle = rows["queue_index"] != 0, rows["handle"] != 0
    is_nameless = is_of_queue & has_handle & ~has_message_id(rows)
    for name, has_id in (
        ("handle", has_handle & is_nameless.any()),
        ("instance", has_handle | (rows["kind"] == RECEIVED)),
    ):
        which = np.flatnonzero(is_of_queue & has_id)
        keys = hash_numbers(rows["queue_index"][which], rows[name][which])
        order = np.argsort(keys)
        keys, owners = keys[order], places[which][order]
        if ((keys[1:] == keys[:-1]) & (owners[1:] != owners[:-1])).any():
            return True
    return False


def _may_be_underfilled(rows: Columns, queue_index: int) -> bool:
    """Return whether so many answers of a queue may have had room for a later message that D5 counts them."""
    which = np.flatnonzero((rows["kind"] == RECEIVED) & (rows["queue_index"] == queue_index))
    which = which[np.argsort(rows["answered_us"][which])]
    since_us = np.where(rows["since_us"][which] == NONE, NEVER_US, rows["since_us"][which])
    least_us = np.append(np.minimum.accumulate(since_us[::-1])[::-1], NEVER_US)  # of it and all behind it
    answered_us = rows["answered_us"][which]
    begin, end = (np.searchsorted(answered_us, answered_us, side) for side in ("left", "right"))
    after = np.where(end - begin == 1, end, begin)  # what was answered at once may be in any order
    is_there = least_us[after] + ENQUEUED_WITHIN_US < rows["invoked_us"][which]
    return int((rows["is_alone"][which] & is_there).sum()) >= UNDERFILLED_MIN


def _stretches(rows: Columns, places: np.ndarray, found: Columns, odd: Group, expectation: Expectation) -> np.ndarray:
    """Return of each message the number of its stretch."""
    count = len(found["idx"])
    is_cut = np.ones(count, dtype=bool)  # before it
    for queue_index in (0, *queue_indexes(expectation)):
        is_here = rows["queue_index"] == queue_index
        from_us, until_us = np.full(count, NEVER_US), np.full(count, -NEVER_US)
        invoked_us = np.where(rows["invoked_us"] == NONE, 0, rows["invoked_us"])[is_here]
        answered_us = np.where(rows["answered_us"] == NONE, rows["invoked_us"], rows["answered_us"])[is_here]
        np.minimum.at(from_us, places[is_here], np.minimum(invoked_us, answered_us))
        np.maximum.at(until_us, places[is_here], np.maximum(invoked_us, answered_us))
        if queue_index:
            _extend_by_holds(until_us, found["idx"], odd, expectation.queues[queue_index - 1])
        is_cut &= _is_over(until_us, from_us)
        is_numbered = is_here & (rows["low"] != NONE)
        lowest, highest = np.full(count, NEVER_US), np.full(count, -NEVER_US)
        np.minimum.at(lowest, places[is_numbered], rows["low"][is_numbered])
        np.maximum.at(highest, places[is_numbered], rows["low"][is_numbered])
        is_cut &= _is_over(highest, lowest)
    numbers: np.ndarray = np.cumsum(is_cut)
    return numbers


def _is_over(until: np.ndarray, since: np.ndarray) -> np.ndarray:
    """Return before which messages everything in front had ended when the first of it and all behind it began."""
    ended = np.concatenate(([-NEVER_US - 1], np.maximum.accumulate(until)[:-1]))
    return ended < np.minimum.accumulate(since[::-1])[::-1]


def _extend_by_holds(until_us: np.ndarray, idx: np.ndarray, odd: Group, queue: str) -> None:
    """Extend `until_us` to the latest times at which the checker assumes unusual messages in the queue, or held."""
    place = dict(zip(idx.tolist(), range(len(idx)), strict=True))
    for (of, _), receives in odd.instances.items():
        if of == queue and receives[0].idx is not None:
            where = place[receives[0].idx]
            until_us[where] = max(until_us[where], earliest_end_us(odd, receives))
    for receive in odd.received.get(queue, ()):
        if receive.idx is not None:
            until_us[place[receive.idx]] = max(until_us[place[receive.idx]], _hold_end_us(odd, receive))


def _hold_end_us(odd: Group, receive: HistoryEvent) -> int:
    return max(odd.lease_end_us(receive), odd.possible_lease_end_us(receive))


def _wanted_stretches(
    stretch: np.ndarray, is_suspect: np.ndarray, found: Columns, expectation: Expectation
) -> np.ndarray:
    """Return the stretches with something unusual, and the ends of the group."""
    is_wanted = is_suspect | (found["idx"] < 0)
    is_wanted[[0, -1]] = True
    for queue_index in queue_indexes(expectation):
        came = np.flatnonzero(found[f"count_{queue_index}"] > 0)
        is_wanted[came[:1]] = is_wanted[came[-1:]] = True
    return np.unique(stretch[is_wanted])
