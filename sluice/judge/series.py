"""What the report's charts show: a history of any length as small tables.

There are at most BINS_MAX bins of time, RANKS_MAX of groups and CODES_MAX error codes, and timelines of at most
GROUPS_MAX groups with EVENTS_MAX events each, so a hundred million events make as small a file as a thousand.

A history is aggregated in Spark (`spark.series`) or in this process (`local_series`); what is made of that is here.
Percentiles of Spark are its percentile_approx: what is said to be the 99th is one whose rank is off by at most
1 / ACCURACY of the bin's messages, and exact in a bin of at most half as many. A latency is from the intended
publish to the first receive from that queue, and stands in the bin of the intended publish: a stall shows where the
messages were due, also those that could not be sent.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sluice.history.events import Kind
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Violation
from sluice.judge.folder.series_schema import BINS_MAX, SCHEMA_VERSION, Series
from sluice.judge.measures import PERCENTILES

RANKS_MAX = 20
CODES_MAX = 8
GROUPS_MAX = 8
EVENTS_MAX = 80
ACCURACY = 10_000
OTHER_CODES = "other"
_US = 1_000_000
_WIDTHS_SECONDS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600)
ALL = "all"  # no queue's name: those end in .fifo
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


type Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Time, cut into bins; what was before the first or after the last is in that."""

    started_at_us: int
    width_us: int
    count: int


class Aggregates(Protocol):
    """What a history adds up to, as rows; latencies are told as `count`, `percentiles` (of PERCENTILES) and `max`."""

    def span(self) -> Row:
        """Return instants of publishes and receives: `began`, `ended`, and of the warm-up `warm_from`, `warm_to`."""

    def moments(self, bins: Bins) -> Iterable[Row]:
        """Return what happened to messages by `queue` (ALL: anywhere), `moment` and `bin`: `happened`, and latencies.

        `moment` is acked, received, or due: then the latencies are of what was received.
        """

    def failures(self, bins: Bins) -> Iterable[Row]:
        """Return how many calls or entries failed, or came again, by `error`, `queue` (of those) and `bin`: `count`."""

    def tasks(self) -> Iterable[Row]:
        """Return for each recorder that received: its `queue`, and its first and last instant, `began` and `ended`."""

    def ranks(self) -> Mapping[int, Row]:
        """Return rank to `groups`, `messages` and `latency_us`, the latencies by queue; without the warm-up.

        The hottest groups have rank 0, and every rank has about as many groups.
        """

    def nearest(self, spans: Mapping[str, tuple[int, int]]) -> Iterable[Row]:
        """Return OF_EVENT and `message_group_id` of at most EVENTS_MAX events nearest to each group's span."""


def assembled(found: Aggregates, *, expectation: Expectation, violations: Sequence[Violation] = ()) -> Series:
    """Return the small tables of a history; groups with violations get a timeline."""
    span = found.span()
    started_at_us = span["began"] or 0
    ended_at_us = span["ended"] or started_at_us
    width_us = bin_width_us(ended_at_us - started_at_us)
    bins = Bins(started_at_us=started_at_us, width_us=width_us, count=(ended_at_us - started_at_us) // width_us + 1)
    moments = _moments(found, bins)
    failed, again = _failures(found, bins)
    nothing = [0] * bins.count
    tasks = _tasks(found, bins)
    return {
        "schema_version": SCHEMA_VERSION,
        "run": expectation.run,
        "accuracy": ACCURACY,
        "started_at_us": started_at_us,
        "bin_seconds": width_us / _US,
        "bin_count": bins.count,
        "warm_up": None
        if span["warm_from"] is None
        else [(span["warm_from"] - started_at_us) / _US, (span["warm_to"] - started_at_us) / _US],
        "published": moments.counts.get((ALL, "acked"), nothing),
        "queues": {
            queue: {
                "received": moments.counts.get((queue, "received"), nothing),
                "waiting": waiting(
                    moments.counts.get((queue, "acked"), nothing), moments.counts.get((queue, "received"), nothing)
                ),
                "again": again.get(queue, nothing),
                "tasks": tasks.get(queue, nothing),
                "latency_us": moments.latencies.get(queue, _no_latencies(bins.count)),
            }
            for queue in expectation.queues
        },
        "ranks": [
            {"groups": of["groups"], "messages": of["messages"]}
            | {"latency_us": {queue: _quantiles(row) for queue, row in of["latency_us"].items()}}
            for _, of in sorted(found.ranks().items())
        ],
        "failed": failed,
        "visibility": dict(expectation.visibility_timeout_seconds),
        "groups": _timelines(found, violations),
    }


def bin_width_us(span_us: int) -> int:
    """Return the smallest width, of those that read well, that cuts the span into at most BINS_MAX bins."""
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


def _quantiles(row: Row) -> dict[str, int | None]:
    values = row["percentiles"] or [None] * len(PERCENTILES)
    return {"count": row["count"], **dict(zip(PERCENTILES, values, strict=True)), "max": row["max"]}


def _no_latencies(bin_count: int) -> dict[str, list[int | None]]:
    return {"count": [0] * bin_count, **{name: [None] * bin_count for name in (*PERCENTILES, "max")}}


@dataclass(frozen=True, slots=True)
class _Moments:
    """What happened to messages in each bin: (queue, moment) to counts, and queue to the latencies of what was due."""

    counts: dict[tuple[str, str], list[int]]
    latencies: dict[str, dict[str, list[int | None]]]


def _moments(found: Aggregates, bins: Bins) -> _Moments:
    moments = _Moments(defaultdict(lambda: [0] * bins.count), defaultdict(lambda: _no_latencies(bins.count)))
    for row in found.moments(bins):
        if row["moment"] == "due":
            for name, value in _quantiles(row).items():
                moments.latencies[row["queue"]][name][row["bin"]] = value
        else:
            moments.counts[row["queue"], row["moment"]][row["bin"]] = row["happened"]
    return moments


def _failures(found: Aggregates, bins: Bins) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return what failed by error code, the most frequent first and the rest together; and what came again by queue."""
    rows = list(found.failures(bins))
    totals: Counter[str] = Counter()
    for row in rows:
        if row["error"] is not None:
            totals[row["error"]] += row["count"]
    shown = sorted(totals, key=lambda code: (-totals[code], code))[:CODES_MAX]
    failed = {code: [0] * bins.count for code in (*shown, *([OTHER_CODES] if len(totals) > len(shown) else []))}
    again: dict[str, list[int]] = defaultdict(lambda: [0] * bins.count)
    for row in rows:
        if row["error"] is not None:
            failed[row["error"] if row["error"] in shown else OTHER_CODES][row["bin"]] += row["count"]
        if row["queue"] is not None:
            again[row["queue"]][row["bin"]] += row["count"]
    return failed, again


def _tasks(found: Aggregates, bins: Bins) -> dict[str, list[int]]:
    """Return how many tasks of each queue were at work in the middle of each bin."""
    middles = [bins.started_at_us + (2 * number + 1) * bins.width_us // 2 for number in range(bins.count)]
    alive: dict[str, list[int]] = defaultdict(lambda: [0] * bins.count)
    for row in found.tasks():
        began, ended = bisect_left(middles, row["began"]), bisect_right(middles, row["ended"])
        for number in range(began, ended):
            alive[row["queue"]][number] += 1
    return alive


def rank_table(groups_by_size: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return, for each size a group has, the hottest first: the size, how many groups are hotter, how many have it."""
    table, hotter = [], 0
    for size in sorted(groups_by_size, reverse=True):
        table.append((size, hotter, groups_by_size[size]))
        hotter += groups_by_size[size]
    return table


def _timelines(found: Aggregates, violations: Sequence[Violation]) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each group nearest in time to what was found in it, in order."""
    spans = _shown_groups(violations)
    drawn: dict[str, list[dict[str, Any]]] = {group: [] for group in spans}
    for row in found.nearest(spans) if spans else ():
        drawn[row["message_group_id"]].append({name: row[name] for name in OF_EVENT if row[name] is not None})
    return drawn


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
