"""Counts over all events of a history: the facts outside its groups, small enough for the driver."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sluice import limits
from sluice.error_codes import is_throttled
from sluice.history.events import CallOutcome, Kind, detail_of
from sluice.judge.checker import Activity, Expectation
from sluice.judge.reading.columns import NONE, Events
from sluice.judge.timing import TIMED

CALLS = (Kind.PUBLISHED.value, Kind.POLL.value, Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
_FRAMES = (Kind.OPENED.value, Kind.CLOSED.value)
_NAMED = ("kind", "outcome", "queue", "error", "clock_id")
AROUND = (Kind.REDRIVEN.value, Kind.PURGED.value, Kind.FAULT.value, Kind.PROBE.value)
"""Kinds of events that are of no group, and few."""


type Counts = dict[str, Any]
"""A row of COUNTED."""
COUNTED = pa.schema(
    {
        **dict.fromkeys((*_NAMED, "worker"), pa.string()),
        **dict.fromkeys(("attempt", "second", "answered"), pa.int64()),
        **dict.fromkeys(("events", "received", "ended", "redelivered", "numbered"), pa.int64()),
        **dict.fromkeys(("summed", "enveloped", "backward"), pa.int64()),
        **dict.fromkeys(("called", "served", "empty", "answered_by_us"), pa.int64()),
    }
)
"""Of counts of events: what they have in common, then how many of them are of each sort.

`worker` and `attempt` are told of frames only; `second`, `answered` (the number of messages) and `answered_by_us` (the
last answer) of polls that had an answer; `answered` is -1 if the poll does not say.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """Event counts of a whole history.

    Args:
        counts: name to how many events there are of it.
        recorded: recorder to its attempts, and whether each finished: then its journal has a `closed`.
        failed_calls: error code to how many events have it.
        unanswered_receives: queue to how many receives were never answered.
        clocks: that timed what happened; what was timed by none that is named has a clock of its own.
        activity: queue to its seconds, ascending.
    """

    counts: Mapping[str, int]
    recorded: Mapping[str, Mapping[int, bool]]
    failed_calls: Mapping[str, int]
    unanswered_receives: Mapping[str, int]
    clocks: frozenset[str]
    activity: Mapping[str, list[Activity]]


def facts(counted: pa.Table, expectation: Expectation) -> EventCounts:
    """Return the sums of the tables of `count` over all parts of a history."""
    rows = counted.to_pylist()
    failed: Counter[str] = Counter()
    unanswered: Counter[str] = Counter()
    recorded: dict[str, dict[int, bool]] = defaultdict(dict)
    for row in rows:
        if row["error"] is not None:
            failed[row["error"]] += row["events"]
        if row["kind"] == Kind.POLL and row["outcome"] == CallOutcome.INFO:
            unanswered[row["queue"]] += row["events"]
        if row["kind"] in _FRAMES:
            attempts, attempt = recorded[row["worker"]], row["attempt"]
            attempts[attempt] = attempts.get(attempt, False) or row["kind"] == Kind.CLOSED
    return EventCounts(
        counts=_counts(rows, expectation),
        recorded=recorded,
        failed_calls=failed,
        unanswered_receives=unanswered,
        clocks=_clocks(rows),
        activity=_activity(rows),
    )


def _clocks(rows: Iterable[Counts]) -> frozenset[str]:
    listed = list(rows)
    named = {row["clock_id"] for row in listed if row["clock_id"] is not None}
    return frozenset(named | {row["clock_id"] or "" for row in listed if row["kind"] in TIMED})


def count(events: Events, expectation: Expectation) -> pa.Table:
    """Return a table of COUNTED: how many events there are of each kind, outcome, queue and so on."""
    is_frame = events.decode("kind", lambda value: value in _FRAMES, bool)
    is_ours = events.decode("kind", lambda value: value == Kind.RECEIVED, bool)
    is_ours &= events.decode("message_run", lambda run: run == expectation.run, bool)
    invoked_us, answered_us = events.numbers("invoked_at_us"), events.numbers("responded_at_us")
    is_answered = events.decode("kind", lambda value: value == Kind.POLL, bool)
    is_answered &= events.decode("outcome", lambda value: value == CallOutcome.OK, bool) & (answered_us != NONE)
    received_count = events.decode("detail", _received_count, np.int64)
    is_long = events.numbers("wait_time_seconds", 0) > 0
    keys = {
        **{name: events.codes(name)[0] for name in _NAMED},
        "worker": np.where(is_frame, events.codes("worker")[0], -1),
        "attempt": np.where(is_frame, events.numbers("task_attempt", 0), -1),
        "second": np.where(is_answered & (invoked_us != NONE), invoked_us // 1_000_000, NONE),
        "answered": np.where(is_answered, received_count, 0),
    }
    sorts = {
        "received": is_ours,
        "ended": is_ours & (events.numbers("idx", 0) < 0),
        "redelivered": is_ours & (events.numbers("receive_count", 0) > 1),
        "numbered": is_ours & events.is_known("sqs_sequence_number"),
        "summed": is_ours & events.is_known("md5_ok"),
        "enveloped": is_ours & events.is_known("sns_message_id"),
        "backward": (invoked_us != NONE) & (answered_us != NONE) & (answered_us < invoked_us),
        "called": events.is_known("call_id") & (events.numbers("batch_position", 0) == 0),
        "served": is_answered & (received_count > 0),
        "empty": is_answered & (received_count == 0) & is_long,
    }
    sort = np.zeros(len(events), dtype=np.int16)  # a bit for each, so that there is little to add up
    for bit, is_of_sort in enumerate(sorts.values()):
        sort |= is_of_sort.astype(np.int16) << bit
    keys["sort"] = sort
    is_first = is_answered.copy()  # of neighbours that are alike, of which there are many
    for column in keys.values():
        is_first[1:] |= column[1:] != column[:-1]
    is_first[:1] = True
    where = np.flatnonzero(is_first)
    runs = {name: column[where] for name, column in keys.items()}
    runs["answered_by_us"] = np.where(is_answered[where], answered_us[where], NONE)
    runs["events"] = np.diff(where, append=len(events))
    alike = (
        pa.table(runs).group_by([*keys], use_threads=False).aggregate([("events", "sum"), ("answered_by_us", "max")])
    )
    columns = {name: alike.column(name) for name in keys}
    columns |= {"events": alike.column("events_sum"), "answered_by_us": alike.column("answered_by_us_max")}
    counts, sort = alike.column("events_sum").to_numpy(), alike.column("sort").to_numpy()
    columns |= {name: pa.array(np.where(sort >> bit & 1, counts, 0)) for bit, name in enumerate(sorts)}
    return _with_names(pa.table(columns), events)


def _with_names(counted: pa.Table, events: Events) -> pa.Table:
    """Return the counts with texts in place of codes."""
    columns = {name: counted.column(name).to_pylist() for name in COUNTED.names}
    for name in (*_NAMED, "worker"):
        values = events.codes(name)[1]
        columns[name] = [None if code < 0 else values[code] for code in columns[name]]
    columns["second"] = [None if second == NONE else second for second in columns["second"]]
    return pa.table(columns, schema=COUNTED)


def _received_count(detail: str | None) -> int:
    """Return how many messages a poll returned; -1 if the event does not say."""
    received = detail_of(detail).get("received")
    return received if isinstance(received, int) and 0 <= received <= limits.RECEIVE_MESSAGES_MAX else -1


def _counts(rows: Iterable[Counts], expectation: Expectation) -> dict[str, int]:
    dead = set(expectation.dead_letter_queues.values())
    undelivered = set(expectation.subscription_dead_letter_queues.values())
    counts: Counter[str] = Counter()
    for row in rows:
        kind, events = row["kind"], row["events"]
        for name in ("events", "received", "ended", "redelivered", "numbered", "summed", "enveloped", "backward"):
            counts[name] += row[name]
        counts["came"] += events * (kind == Kind.RECEIVED)
        counts["came_in"] += events * row["answered"]
        counts["unsized_polls"] += events * (row["answered"] < 0)
        counts["foreign"] += (events - row["received"]) * (kind == Kind.RECEIVED)
        counts["publishes"] += events * (kind == Kind.PUBLISHED)
        counts["sent"] += events * (kind == Kind.PUBLISHED and row["queue"] in expectation.queues)
        counts["deleted"] += events * (kind == Kind.DELETED and row["outcome"] == CallOutcome.OK)
        counts["dead"] += row["received"] * (row["queue"] in dead)
        counts["undelivered_polls"] += events * (kind == Kind.POLL and row["queue"] in undelivered)
        counts["handled"] += events * (kind == Kind.HANDLED)
        counts["faults"] += events * (kind == Kind.FAULT and row["outcome"] == CallOutcome.OK)
        counts["around"] += events * (kind in AROUND)
        counts["calls"] += row["called"] * (kind in CALLS)
        counts["throttled"] += row["called"] * (kind in CALLS and is_throttled(row["error"] or ""))
    counts["identified"] = counts["enveloped"] + min(counts["sent"], counts["received"])
    return counts


def _activity(rows: Iterable[Counts]) -> dict[str, list[Activity]]:
    seconds: dict[tuple[str, int], list[Counts]] = defaultdict(list)
    for row in rows:
        if row["second"] is not None:
            seconds[row["queue"], row["second"]].append(row)
    activity: dict[str, list[Activity]] = defaultdict(list)
    for (queue, second), same in sorted(seconds.items()):
        activity[queue].append(
            Activity(
                second=second,
                served_count=sum(row["served"] for row in same),
                empty_count=sum(row["empty"] for row in same),
                answered_by_us=max(row["answered_by_us"] for row in same),
            )
        )
    return dict(activity)
