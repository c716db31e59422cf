"""The data of the report's charts: a history of any length as small tables, aggregated in Spark.

There are at most BINS_MAX bins of time, RANKS_MAX of groups and CODES_MAX error codes, and timelines of at most
GROUPS_MAX groups with EVENTS_MAX events each, so a hundred million events make as small a file as a thousand.

Percentiles are Spark's percentile_approx: what is said to be the 99th is one whose rank is off by at most
1 / ACCURACY of the bin's messages, and exact in a bin of at most half as many. A latency is from the intended
publish to the first receive from that queue, and stands in the bin of the intended publish: a stall shows where the
messages were due, also those that could not be sent.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from sluice.history.checker import Expectation
from sluice.history.checker.verdict import Violation
from sluice.history.events import Kind, Outcome
from spark_load.folder.series_schema import BINS_MAX, SCHEMA_VERSION, Series
from spark_load.judge.measures import PERCENTILES
from spark_load.plan.plan import WARM_UP

RANKS_MAX = 20
CODES_MAX = 8
GROUPS_MAX = 8
EVENTS_MAX = 80
ACCURACY = 10_000
OTHER_CODES = "other"
_US = 1_000_000
_WIDTHS_SECONDS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600)
_GROUP = "message_group_id"
_ALL = "all"  # no queue's name: those end in .fifo
_GROUPS_MAX_SHOWN = (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED, Kind.VISIBILITY_CHANGED, Kind.HANDLED, Kind.REDRIVEN)
_OF_EVENT = (
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


def series(history: DataFrame, *, expectation: Expectation, violations: Sequence[Violation] = ()) -> Series:
    """Return the small tables of a history.

    Args:
        history: settled events, columns as in `sluice.history.events`.
        expectation: what the run was set up to be.
        violations: whose groups get a timeline.

    Runs on the driver; one exchange of the narrow columns by group.
    """
    started_at_us, ended_at_us, warm_up = _span(history)
    bin_us = bin_width_us(ended_at_us - started_at_us)
    bin_count = (ended_at_us - started_at_us) // bin_us + 1

    def bin_of(instant: Column | str) -> Column:
        column = F.col(instant) if isinstance(instant, str) else instant
        last = F.lit(bin_count - 1)
        return F.greatest(F.lit(0), F.least(last, F.floor((column - started_at_us) / bin_us))).cast("int")

    messages = _messages(history, expectation).cache()
    moments = _moments(messages, expectation, bin_of, bin_count)
    failed, again = _failures(history, bin_of, bin_count)
    nothing = [0] * bin_count
    result: Series = {
        "schema_version": SCHEMA_VERSION,
        "run": expectation.run,
        "accuracy": ACCURACY,
        "started_at_us": started_at_us,
        "bin_seconds": bin_us / _US,
        "bin_count": bin_count,
        "warm_up": warm_up,
        "published": moments.counts.get((_ALL, "acked"), nothing),
        "queues": {
            queue: {
                "received": moments.counts.get((queue, "received"), nothing),
                "waiting": waiting(
                    moments.counts.get((queue, "acked"), nothing), moments.counts.get((queue, "received"), nothing)
                ),
                "again": again.get(queue, nothing),
                "latency_us": moments.latencies.get(queue, _no_latencies(bin_count)),
            }
            for queue in expectation.queues
        },
        "ranks": _ranks(messages, expectation),
        "failed": failed,
        "visibility": dict(expectation.visibility_timeout_seconds),
        "groups": _timelines(history, violations),
    }
    messages.unpersist()
    return result


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


def _span(history: DataFrame) -> tuple[int, int, list[float] | None]:
    """Return when it began and ended, microseconds UTC, and between which seconds of it was the warm-up."""
    calls = history.where(F.col("kind").isin(Kind.PUBLISHED.value, Kind.RECEIVED.value))
    is_warm = F.col("phase") == WARM_UP
    due = F.coalesce("intended_at_us", "invoked_at_us")
    row = calls.agg(
        F.min(due).alias("began"),
        F.max(F.greatest("invoked_at_us", "responded_at_us")).alias("ended"),
        F.min(F.when(is_warm, due)).alias("warm_from"),
        F.max(F.when(is_warm, F.greatest("invoked_at_us", "responded_at_us"))).alias("warm_to"),
    ).first()
    assert row is not None, "an aggregate has one row"
    began = row["began"] or 0
    if row["warm_from"] is None:
        return began, row["ended"] or began, None
    return began, row["ended"], [(row["warm_from"] - began) / _US, (row["warm_to"] - began) / _US]


def _messages(history: DataFrame, expectation: Expectation) -> DataFrame:
    """Return a row for each message: its group, when it was due, and for each queue when it was in and first came."""
    is_published = F.col("kind") == Kind.PUBLISHED.value
    is_received = (F.col("kind") == Kind.RECEIVED.value) & (F.col("message_run") == expectation.run)
    is_acked = is_published & (F.col("outcome") == Outcome.OK.value)
    elsewhere = ~F.col("queue").isin(*expectation.queues)  # the topic: it goes to all of them
    return (
        history.where((F.col("idx") >= 0) & F.col(_GROUP).isNotNull() & (is_published | is_received))
        .select(_GROUP, "idx", "kind", "outcome", "queue", "phase", "intended_at_us", "responded_at_us", "message_run")
        .repartition(F.col(_GROUP))
        .groupBy(_GROUP, "idx")
        .agg(
            F.min("intended_at_us").alias("intended_us"),
            F.coalesce(F.bool_or(F.col("phase") == WARM_UP), F.expr("false")).alias("is_warm_up"),
            *(
                column
                for index, queue in enumerate(expectation.queues)
                for column in (
                    F.min(F.when(is_acked & (elsewhere | (F.col("queue") == queue)), F.col("responded_at_us"))).alias(
                        f"acked_{index}"
                    ),
                    F.min(F.when(is_received & (F.col("queue") == queue), F.col("responded_at_us"))).alias(
                        f"received_{index}"
                    ),
                )
            ),
        )
        .drop("idx")
    )


def _delivered(messages: DataFrame, expectation: Expectation) -> DataFrame:
    """Return a row for each message and queue."""
    of_queue = (
        F.struct(
            F.lit(queue).alias("queue"),
            F.col(f"acked_{index}").alias("acked_us"),
            F.col(f"received_{index}").alias("received_us"),
        )
        for index, queue in enumerate(expectation.queues)
    )
    kept = [name for name in messages.columns if name in (_GROUP, "intended_us", "is_warm_up", "rank")]
    return messages.select(*kept, F.inline(F.array(*of_queue)))


def _latency() -> Column:
    return F.col("received_us") - F.col("intended_us")


def _quantile_columns(latency: Column | str) -> list[Column]:
    return [
        F.count(latency).alias("count"),
        F.percentile_approx(latency, list(PERCENTILES.values()), ACCURACY).alias("percentiles"),
        F.max(latency).alias("max"),
    ]


def _quantiles(row: Row) -> dict[str, int | None]:
    values = row["percentiles"] or [None] * len(PERCENTILES)
    return {"count": row["count"], **dict(zip(PERCENTILES, values, strict=True)), "max": row["max"]}


def _no_latencies(bin_count: int) -> dict[str, list[int | None]]:
    return {"count": [0] * bin_count, **{name: [None] * bin_count for name in (*PERCENTILES, "max")}}


@dataclass(frozen=True, slots=True)
class _Moments:
    """What happened to messages in each bin: (queue, what) to counts, and queue to the latencies of what was due."""

    counts: dict[tuple[str, str], list[int]]
    latencies: dict[str, dict[str, list[int | None]]]


def _moments(
    messages: DataFrame, expectation: Expectation, bin_of: Callable[[str], Column], bin_count: int
) -> _Moments:
    """Return them, counted in one pass: a row for each message, queue, and thing that happened to it there."""
    first = [name for name in messages.columns if name.startswith("acked_")]
    acked = F.least(*first) if len(first) > 1 else F.col(first[0])
    anywhere = messages.select(
        F.lit(_ALL).alias("queue"),
        F.lit("acked").alias("what"),
        acked.alias("at_us"),
        F.lit(None).cast("bigint").alias("latency_us"),
    )
    delivered = _delivered(messages, expectation)
    happened = [
        F.struct(F.lit(what).alias("what"), F.col(column).alias("at_us"), latency.cast("bigint").alias("latency_us"))
        for what, column, latency in (
            ("due", "intended_us", _latency()),
            ("acked", "acked_us", F.lit(None)),
            ("received", "received_us", F.lit(None)),
        )
    ]
    rows = (
        delivered.select("queue", F.inline(F.array(*happened)))
        .union(anywhere)
        .where("at_us is not null and (what != 'due' or latency_us is not null)")
        .groupBy("queue", "what", bin_of("at_us").alias("bin"))
        .agg(*_quantile_columns("latency_us"), F.count(F.lit(1)).alias("happened"))
        .collect()
    )
    found = _Moments(defaultdict(lambda: [0] * bin_count), defaultdict(lambda: _no_latencies(bin_count)))
    for row in rows:
        if row["what"] == "due":
            for name, value in _quantiles(row).items():
                found.latencies[row["queue"]][name][row["bin"]] = value
        else:
            found.counts[row["queue"], row["what"]][row["bin"]] = row["happened"]
    return found


def _failures(
    history: DataFrame, bin_of: Callable[[str], Column], bin_count: int
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return what failed by error code, the most frequent first and the rest together; and what came again by queue."""
    is_again = (F.col("kind") == Kind.RECEIVED.value) & (F.col("receive_count") > 1)
    rows = (
        history.where((F.col("error").isNotNull() | is_again) & F.col("invoked_at_us").isNotNull())
        .groupBy("error", F.when(is_again, F.col("queue")).alias("queue"), bin_of("invoked_at_us").alias("bin"))
        .count()
        .collect()
    )
    totals: Counter[str] = Counter()
    for row in rows:
        if row["error"] is not None:
            totals[row["error"]] += row["count"]
    codes = sorted(totals, key=lambda code: (-totals[code], code))[:CODES_MAX]
    failed = {code: [0] * bin_count for code in (*codes, *([OTHER_CODES] if len(totals) > len(codes) else []))}
    again: dict[str, list[int]] = defaultdict(lambda: [0] * bin_count)
    for row in rows:
        if row["error"] is not None:
            failed[row["error"] if row["error"] in codes else OTHER_CODES][row["bin"]] += row["count"]
        if row["queue"] is not None:
            again[row["queue"]][row["bin"]] += row["count"]
    return failed, again


def rank_table(groups_by_size: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return, for each size a group has, how many groups are hotter, and how many have that size.

    Args:
        groups_by_size: messages of a group to how many groups have that many.
    """
    table, hotter = [], 0
    for size in sorted(groups_by_size, reverse=True):
        table.append((size, hotter, groups_by_size[size]))
        hotter += groups_by_size[size]
    return table


def _ranks(messages: DataFrame, expectation: Expectation) -> list[dict[str, Any]]:
    """Return the latencies by how hot the message's group is, without the warm-up.

    The hottest groups have rank 0, and every rank has about as many groups. Groups of one size are put in a row by
    hash: which of them is the hotter nobody can say.
    """
    measured = messages.where("not is_warm_up")
    sizes = measured.groupBy(_GROUP).agg(F.count(F.lit(1)).alias("size"))
    by_size = {row["size"]: row["groups"] for row in sizes.groupBy("size").agg(F.count("*").alias("groups")).collect()}
    if not by_size:
        return []
    spark = messages.sparkSession
    table = spark.createDataFrame(rank_table(by_size), "size bigint, hotter bigint, alike bigint")
    total = sum(by_size.values())
    place = F.col("hotter") + F.pmod(F.xxhash64(_GROUP), F.col("alike"))
    rank = F.floor(place * min(RANKS_MAX, total) / total).cast("int")
    ranked = (
        measured.withColumn("size", F.count(F.lit(1)).over(Window.partitionBy(_GROUP)))
        .join(F.broadcast(table), "size")
        .withColumn("rank", rank)
    )
    delivered = _delivered(ranked, expectation).withColumn("latency_us", _latency())
    found: dict[int, dict[str, Any]] = {}
    for row in (
        sizes.join(F.broadcast(table), "size")
        .groupBy(rank.alias("rank"))
        .agg(F.count(F.lit(1)).alias("groups"), F.sum("size").alias("messages"))
        .collect()
    ):
        found[row["rank"]] = {"groups": row["groups"], "messages": row["messages"], "latency_us": {}}
    for row in delivered.groupBy("rank", "queue").agg(*_quantile_columns("latency_us")).collect():
        found[row["rank"]]["latency_us"][row["queue"]] = _quantiles(row)
    return [found[rank] for rank in sorted(found)]


def _timelines(history: DataFrame, violations: Sequence[Violation]) -> dict[str, list[dict[str, Any]]]:
    """Return the events of each group nearest in time to what was found in it, in order."""
    wanted = _shown_groups(violations)
    if not wanted:
        return {}
    spans = history.sparkSession.createDataFrame(
        [(group, *span) for group, span in wanted.items()], f"{_GROUP} string, from_us bigint, to_us bigint"
    )
    away = F.greatest(F.col("from_us") - F.col("invoked_at_us"), F.col("invoked_at_us") - F.col("to_us"), F.lit(0))
    nearest = Window.partitionBy(_GROUP).orderBy(away, "invoked_at_us", "kind", "idx")
    rows = (
        history.where(F.col(_GROUP).isin(*wanted) & F.col("kind").isin(*(kind.value for kind in _GROUPS_MAX_SHOWN)))
        .where(F.col("invoked_at_us").isNotNull())
        .join(F.broadcast(spans), _GROUP)
        .withColumn("nearness", F.row_number().over(nearest))
        .where(F.col("nearness") <= EVENTS_MAX)
        .select(_GROUP, *_OF_EVENT)
        .orderBy(_GROUP, "invoked_at_us", "kind", "idx")
        .collect()
    )
    found: dict[str, list[dict[str, Any]]] = {group: [] for group in wanted}
    for row in rows:
        fields = row.asDict()
        found[fields.pop(_GROUP)].append({name: value for name, value in fields.items() if value is not None})
    return found


def _shown_groups(violations: Sequence[Violation]) -> dict[str, tuple[int, int]]:
    """Return the groups that get a timeline, and the time each is about: the first of every anomaly, then the next."""
    in_turn: dict[str, list[Violation]] = defaultdict(list)
    for violation in violations:
        in_turn[violation.anomaly].append(violation)
    ordered = [item for row in itertools.zip_longest(*in_turn.values()) for item in row if item is not None]
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
