"""Series for the report's charts: a history of any length as small tables.

There are at most BINS_MAX bins of time, RANKS_MAX of groups and CODES_MAX error codes, and timelines of at most
GROUPS_MAX groups with EVENTS_MAX events each, so a hundred million events make as small a file as a thousand.

A history is read twice, part by part: first for its beginning, its end and the sizes of its groups, then for the events
in each bin and rank, as a tally of all parts. Percentiles are of all values. They are exact if no part has more than
EXACT_MAX latencies; otherwise each is at most 1 / ACCURACY too small, and the largest of a bin is still exact. A
latency is from the intended publish to the first receive from that queue, and stands in the bin of the intended
publish: a stall shows where the messages were due, also those that could not be sent.
"""

import heapq
import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.history.events import CallOutcome, Kind
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Violation
from sluice.judge.folder.series_schema import BINS_MAX, EXACT_MAX, SCHEMA_VERSION, RunSeries
from sluice.judge.parts import History
from sluice.judge.reading.columns import NONE, Columns, Events
from sluice.judge.reading.parquet_files import RowSelection
from sluice.judge.screening.encode import WARM_UP
from sluice.judge.screening.rollup import difference, is_known
from sluice.judge.tally import ACCURACY, PERCENTILES, TALLY, ObservationTally, round_down_but_largest, tally_of
from sluice.recorder.journal import SCHEMA

RANKS_MAX = 20
CODES_MAX = 8
GROUPS_MAX = 8
EVENTS_MAX = 80
OTHER_CODES = "other"
_US = 1_000_000
_WIDTHS_SECONDS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600)
ALL = "all"  # cannot be a queue, whose name ends with .fifo
DRAWN = (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED, Kind.VISIBILITY_CHANGED, Kind.HANDLED, Kind.REDRIVEN)
OF_EVENT = (
    "kind",
    "queue",
    "idx",
    "invoked_at_us",
    "responded_at_us",
    "outcome",
    "error",
    "worker",
    "call_id",
    "batch_position",
    "receive_count",
    "receipt_handle_hash",
    "visibility_timeout_seconds",
)


_DRAWN_COLUMNS = ("message_group_id", *OF_EVENT)
_NO_LATENCIES: Mapping[str, int | None] = {"count": 0, **dict.fromkeys((*PERCENTILES, "max"))}
type SeriesRow = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Time, cut into bins; times before the first or after the last belong to that bin."""

    started_at_us: int
    width_us: int
    count: int

    def of(self, instants: np.ndarray) -> np.ndarray:
        """Return the bin of each instant."""
        found: np.ndarray = np.clip((instants - self.started_at_us) // self.width_us, 0, self.count - 1)
        return found


def series(history: History, *, expectation: Expectation, violations: Sequence[Violation] = ()) -> RunSeries:
    """Return the small tables of a history; groups with violations get a timeline."""
    extent = _extent(*history.look(partial(_extent_of_part, expectation=expectation)))
    bins = extent.bins
    tally = ObservationTally(history.tally(partial(_tally_of_part, expectation=expectation, extent=extent)))
    return {
        "schema_version": SCHEMA_VERSION,
        "run": expectation.run,
        "accuracy": ACCURACY,
        "started_at_us": bins.started_at_us,
        "bin_seconds": bins.width_us / _US,
        "bin_count": bins.count,
        "warm_up": extent.warm_up,
        "published": tally.counts("acked", ALL, bins.count),
        "queues": {
            queue: {
                "received": (received := tally.counts("received", queue, bins.count)),
                "waiting": waiting(tally.counts("acked", queue, bins.count), received),
                "again": tally.counts("again", queue, bins.count),
                "tasks": extent.tasks_at_work(queue),
                "latency_us": _per_bin(tally.distributions("due", queue), bins.count),
            }
            for queue in expectation.queues
        },
        "ranks": [
            {
                "groups": groups,
                "messages": messages,
                "latency_us": {
                    queue: tally.distributions("rank", queue).get(rank, _NO_LATENCIES) for queue in expectation.queues
                },
            }
            for rank, (groups, messages) in enumerate(
                zip(tally.counts("groups", "", RANKS_MAX), tally.counts("messages", "", RANKS_MAX), strict=True)
            )
            if groups
        ],
        "failed": _failures(tally, bins),
        "visibility": dict(expectation.visibility_timeout_seconds),
        "groups": _timelines(history, violations),
    }


def bin_width_us(span_us: int) -> int:
    """Return the smallest readable width that cuts the span into at most BINS_MAX bins."""
    for seconds in _WIDTHS_SECONDS:
        if span_us < seconds * _US * BINS_MAX:
            return round(seconds * _US)
    hours = math.ceil((span_us + 1) / (3_600 * _US * BINS_MAX))
    return hours * 3_600 * _US


def waiting(acked: Iterable[int], received: Iterable[int]) -> list[int]:
    """Return how many were acknowledged and not received at the end of each bin.

    Never less than none: a message can be received before its publisher has the answer.
    """
    return [
        max(0, sent - got)
        for sent, got in zip(itertools.accumulate(acked), itertools.accumulate(received), strict=True)
    ]


# --- the first look: from when to when, and how large groups are ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """The beginning and end of a history, the working times of its tasks, and the sizes of its groups.

    Args:
        bins: the time from the first intended publish to the last answer.
        warm_up: from and to, in seconds after the first; None without one.
        tasks: of each recorder that received: its queue, its first and last instant.
        groups_by_size: how many groups have so many messages, without the warm-up.
    """

    bins: Bins
    warm_up: list[float] | None
    tasks: Sequence[tuple[str, int, int]]
    groups_by_size: Mapping[int, int]

    def tasks_at_work(self, queue: str) -> list[int]:
        """Return how many tasks of a queue were at work in the middle of each bin."""
        bins = self.bins
        middles = [bins.started_at_us + (2 * number + 1) * bins.width_us // 2 for number in range(bins.count)]
        alive = [0] * bins.count
        for name, began_us, ended_us in self.tasks:
            if name == queue:
                for number in range(bisect_left(middles, began_us), bisect_right(middles, ended_us)):
                    alive[number] += 1
        return alive


_SPANS = pa.schema(
    {
        "worker": pa.string(),
        "queue": pa.string(),
        "is_warm_up": pa.bool_(),
        "from_us": pa.int64(),
        "until_us": pa.int64(),
    }
)
"""First and last instants of the events of a recorder in each queue; without a recorder, of publishes and receives."""
_SIZES = pa.schema({"size": pa.int64(), "groups": pa.int64()})


def _extent_of_part(part: Iterable[Events], *, expectation: Expectation) -> list[pa.Table]:
    spans, rows = list[SeriesRow](), list[pa.Table]()
    for events in part:
        spans += _spans(events)
        rows.append(_message_rows(events, expectation))
    messages = _messages(rows, expectation)
    _, of_group = np.unique(messages["group"][~messages["is_warm_up"]], return_counts=True)
    sizes, counts = np.unique(of_group, return_counts=True)
    of_all = _least_and_most(pa.Table.from_pylist(spans, _SPANS), "worker", "queue", "is_warm_up")
    return [pa.Table.from_pylist(of_all, _SPANS), pa.table({"size": sizes, "groups": counts}).cast(_SIZES)]


def _spans(events: Events) -> Iterator[SeriesRow]:
    invoked_us, responded_us = events.numbers("invoked_at_us"), events.numbers("responded_at_us")
    intended_us = events.numbers("intended_at_us")
    (worker, workers), (queue, queues) = events.codes("worker"), events.codes("queue")
    is_received = events.is_equal("kind", Kind.RECEIVED)
    is_receive = is_received | events.is_equal("kind", Kind.POLL)
    of_tasks = {
        "worker": worker,
        "queue": np.where(is_receive, queue, len(queues) - 1),
        "from_us": _known_instants(invoked_us),
        "until_us": _known_instants(np.where(responded_us == NONE, invoked_us, responded_us)),
    }
    for row in _least_and_most(pa.table(of_tasks), "worker", "queue"):
        yield row | {"worker": workers[row["worker"]], "queue": queues[row["queue"]]}
    of_calls = {
        "is_warm_up": events.is_equal("phase", WARM_UP),
        "from_us": _known_instants(np.where(intended_us == NONE, invoked_us, intended_us)),
        "until_us": _known_instants(np.maximum(invoked_us, responded_us)),
    }
    is_call = is_received | events.is_equal("kind", Kind.PUBLISHED)
    yield from _least_and_most(pa.table(of_calls).filter(pa.array(is_call)), "is_warm_up")


def _least_and_most(instants: pa.Table, *keys: str) -> list[SeriesRow]:
    found = instants.group_by(list(keys), use_threads=False).aggregate([("from_us", "min"), ("until_us", "max")])
    return found.rename_columns([*keys, "from_us", "until_us"]).to_pylist()  # type: ignore[no-any-return]


def _extent(spans: pa.Table, sizes: pa.Table) -> _Extent:
    """Return the sums of the tables of `_extent_of_part` over all parts."""
    rows = spans.to_pylist()
    calls = [row for row in rows if row["is_warm_up"] is not None]
    started_at_us = min((row["from_us"] for row in calls if row["from_us"] is not None), default=0)
    ended_at_us = max((row["until_us"] for row in calls if row["until_us"] is not None), default=started_at_us)
    width_us = bin_width_us(ended_at_us - started_at_us)
    warm = [row for row in calls if row["is_warm_up"] and row["from_us"] is not None]
    groups_by_size: Counter[int] = Counter()
    for row in sizes.to_pylist():
        groups_by_size[row["size"]] += row["groups"]
    return _Extent(
        bins=Bins(started_at_us=started_at_us, width_us=width_us, count=(ended_at_us - started_at_us) // width_us + 1),
        warm_up=[
            (min(row["from_us"] for row in warm) - started_at_us) / _US,
            (max(row["until_us"] for row in warm) - started_at_us) / _US,
        ]
        if warm
        else None,
        tasks=[*_tasks(rows)],
        groups_by_size=groups_by_size,
    )


def _tasks(spans: Sequence[SeriesRow]) -> Iterator[tuple[str, int, int]]:
    of_worker: dict[str, list[SeriesRow]] = defaultdict(list)
    for row in spans:
        if row["worker"] is not None:
            of_worker[row["worker"]].append(row)
    for rows in of_worker.values():
        queues = [row["queue"] for row in rows if row["queue"] is not None]
        began_us = [row["from_us"] for row in rows if row["from_us"] is not None]
        if queues and began_us:
            yield min(queues), min(began_us), max(row["until_us"] for row in rows if row["until_us"] is not None)


# --- messages, in both looks ---


def _message_rows(events: Events, expectation: Expectation) -> pa.Table:
    """Return a row for each publish or receive of a message of this run, end markers left out."""
    group, idx = events.hashes("message_group_id"), events.numbers("idx")
    is_published = events.is_equal("kind", Kind.PUBLISHED)
    is_received = events.is_equal("kind", Kind.RECEIVED) & events.is_equal("message_run", expectation.run)
    is_acked = is_published & events.is_equal("outcome", CallOutcome.OK)
    is_elsewhere = ~events.decode(
        "queue", expectation.queues.__contains__, bool
    )  # published to the topic, which sends it to all queues
    responded_us = events.numbers("responded_at_us")
    columns = {
        "group": group,
        "idx": idx,
        "due_us": _known_instants(events.numbers("intended_at_us")),
        "is_warm_up": events.is_equal("phase", WARM_UP),
    }
    for index, queue in enumerate(expectation.queues):
        is_here = events.is_equal("queue", queue)
        columns[f"acked_{index}"] = _known_instants(np.where(is_acked & (is_elsewhere | is_here), responded_us, NONE))
        columns[f"received_{index}"] = _known_instants(np.where(is_received & is_here, responded_us, NONE))
    return pa.table(columns).filter(pa.array((is_published | is_received) & (idx >= 0) & (group != 0)))


def _messages(rows: Sequence[pa.Table], expectation: Expectation) -> Columns:
    """Return each message: its group, its due time, and for each queue when it arrived and was first received."""
    queues = range(len(expectation.queues))
    firsts = ["due_us", *(f"{name}_{index}" for index in queues for name in ("acked", "received"))]
    none = pa.table(dict.fromkeys(("group", "idx", "is_warm_up", *firsts), pa.array([], pa.int64())))
    found = (
        (pa.concat_tables(rows) if rows else none)
        .group_by(["group", "idx"], use_threads=False)
        .aggregate([("is_warm_up", "max"), *((name, "min") for name in firsts)])
    )
    columns = {name: found.column(f"{name}_min").fill_null(NONE).to_numpy() for name in firsts}
    return columns | {
        "group": found.column("group").to_numpy(),
        "is_warm_up": found.column("is_warm_up_max").to_numpy().astype(bool),
    }


def _known_instants(instants: np.ndarray) -> pa.Array:
    return pa.array(instants, mask=instants == NONE)


# --- the second look: what happened in each bin of time, and in each rank of groups ---


def _tally_of_part(part: Iterable[Events], *, expectation: Expectation, extent: _Extent) -> list[pa.Table]:
    bins, rows, tallies = extent.bins, list[pa.Table](), [TALLY.empty_table()]
    for events in part:
        tallies += _failures_and_repeats(events, bins)
        rows.append(_message_rows(events, expectation))
    messages = _messages(rows, expectation)
    acked = [messages[f"acked_{index}"] for index in range(len(expectation.queues))]
    if acked:
        latest = np.iinfo(np.int64).max
        first_us = np.minimum.reduce([np.where(at_us == NONE, latest, at_us) for at_us in acked])
        tallies.append(tally_of("acked", ALL, bins.of(first_us[first_us < latest])))
    latencies = [
        difference(messages[f"received_{index}"], messages["due_us"]) for index in range(len(expectation.queues))
    ]
    is_exact = sum(int(is_known(latency_us).sum()) for latency_us in latencies) <= EXACT_MAX
    ranks = _ranks(messages, extent.groups_by_size)
    for index, queue in enumerate(expectation.queues):
        for what, at_us in (("acked", acked[index]), ("received", messages[f"received_{index}"])):
            tallies.append(tally_of(what, queue, bins.of(at_us[is_known(at_us)])))
        for what, places in (("due", bins.of(messages["due_us"])), ("rank", ranks)):
            which = is_known(latencies[index]) & (places >= 0)
            values = latencies[index][which]
            values = values if is_exact else round_down_but_largest(places[which], values)
            tallies.append(tally_of(what, queue, places[which], values))
    if expectation.queues:
        measured = ranks >= 0
        _, first = np.unique(messages["group"][measured], return_index=True)
        tallies += [tally_of("messages", "", ranks[measured]), tally_of("groups", "", ranks[measured][first])]
    return [pa.concat_tables(tallies)]


def _failures_and_repeats(events: Events, bins: Bins) -> Iterator[pa.Table]:
    """Yield how many calls or entries failed, by error, and how many messages were redelivered, by queue."""
    invoked_us = events.numbers("invoked_at_us")
    is_again = events.is_equal("kind", Kind.RECEIVED) & (events.numbers("receive_count") > 1)
    for what, name, is_it in (("failed", "error", np.ones(len(events), bool)), ("again", "queue", is_again)):
        codes, texts = events.codes(name)
        for code, text in enumerate(texts):
            if text is not None:
                yield tally_of(what, text, bins.of(invoked_us[is_it & (codes == code) & (invoked_us != NONE)]))


def _ranks(messages: Columns, groups_by_size: Mapping[int, int]) -> np.ndarray:
    """Return the rank of each message's group, -1 in the warm-up; groups of one size are ordered by hash.

    The hottest groups have rank 0, and every rank has about as many groups.
    """
    found = np.full(len(messages["group"]), -1)
    is_measured = ~messages["is_warm_up"]
    _, group, sizes = np.unique(messages["group"][is_measured], return_inverse=True, return_counts=True)
    if not len(sizes):
        return found
    table = np.array(rank_table(groups_by_size))[::-1]  # by size, the smallest first
    hotter, alike = table[np.searchsorted(table[:, 0], sizes)[group], 1:].T
    total = sum(groups_by_size.values())
    hashed = (messages["group"][is_measured] % alike.astype(np.uint64)).astype(np.int64)
    found[is_measured] = ((hotter + hashed) * (min(RANKS_MAX, total) / total)).astype(np.int64)
    return found


def _per_bin(latencies: Mapping[int, Mapping[str, int | None]], bin_count: int) -> dict[str, list[int | None]]:
    return {name: [latencies.get(number, _NO_LATENCIES)[name] for number in range(bin_count)] for name in _NO_LATENCIES}


def _failures(tally: ObservationTally, bins: Bins) -> dict[str, list[int]]:
    """Return the failures by error code, the most frequent first and the rest together."""
    names = tally.names("failed")
    found = {name: tally.counts("failed", name, bins.count) for name in names[:CODES_MAX]}
    others = [tally.counts("failed", name, bins.count) for name in names[CODES_MAX:]]
    return found | ({OTHER_CODES: [sum(counts) for counts in zip(*others, strict=True)]} if others else {})


def rank_table(groups_by_size: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return, for each size a group has, the hottest first: the size, how many groups are hotter, how many have it."""
    table, hotter = [], 0
    for size in sorted(groups_by_size, reverse=True):
        table.append((size, hotter, groups_by_size[size]))
        hotter += groups_by_size[size]
    return table


# --- timelines ---


def _timelines(history: History, violations: Sequence[Violation]) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each group nearest in time to its violation, in order."""
    spans = _shown_groups(violations)
    drawn: dict[str, list[dict[str, Any]]] = {group: [] for group in spans}
    if spans:
        (found,) = history.look(
            partial(_nearest_in_part, spans=spans), RowSelection("message_group_id", spans, _DRAWN_COLUMNS)
        )
        for row in sorted(found.to_pylist(), key=_sort_key):
            drawn[row["message_group_id"]].append({name: row[name] for name in OF_EVENT if row[name] is not None})
    return drawn


def _nearest_in_part(part: Iterable[Events], *, spans: Mapping[str, tuple[int, int]]) -> list[pa.Table]:
    """Return at most EVENTS_MAX events of each group, those nearest to its span."""
    schema = pa.schema([SCHEMA.field(name) for name in _DRAWN_COLUMNS])
    of_group: dict[str, list[SeriesRow]] = defaultdict(list)
    for events in part:
        for row in events.table.to_pylist():
            if row["kind"] in DRAWN and row["invoked_at_us"] is not None:
                of_group[row["message_group_id"]].append(row)

    def nearness(row: SeriesRow) -> tuple[Any, ...]:
        from_us, to_us = spans[row["message_group_id"]]
        return max(from_us - row["invoked_at_us"], row["invoked_at_us"] - to_us, 0), _sort_key(row)

    nearest = [row for rows in of_group.values() for row in heapq.nsmallest(EVENTS_MAX, rows, key=nearness)]
    return [pa.Table.from_pylist(nearest, schema)]


def _sort_key(row: SeriesRow) -> tuple[Any, ...]:
    return row["invoked_at_us"], row["kind"], row["idx"] is not None, row["idx"] or 0


def _shown_groups(violations: Sequence[Violation]) -> dict[str, tuple[int, int]]:
    """Return the groups that get a timeline, and the time each is about: the first of every anomaly, then the next."""
    in_turn: dict[str, list[Violation]] = defaultdict(list)
    for violation in violations:
        in_turn[violation.anomaly].append(violation)
    ordered = [found for row in itertools.zip_longest(*in_turn.values()) for found in row if found is not None]
    wanted: dict[str, tuple[int, int]] = {}
    for violation in ordered:
        instants = [
            instant
            for event in violation.witness
            for instant in (event.invoked_at_us, event.responded_at_us)
            if instant
        ]
        if instants and (violation.message_group_id in wanted or len(wanted) < GROUPS_MAX):
            began, ended = wanted.get(violation.message_group_id, (min(instants), max(instants)))
            wanted[violation.message_group_id] = (min(began, *instants), max(ended, *instants))
    return wanted
