"""What the report's charts show, aggregated in Spark: one exchange of the narrow columns by group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sluice.history.events import Kind, Outcome
from sluice.judge.checker import Expectation
from sluice.judge.checker.verdict import Violation
from sluice.judge.folder.series_schema import Series
from sluice.judge.measures import PERCENTILES
from sluice.judge.screening.encode import WARM_UP
from sluice.judge.series import (
    ACCURACY,
    ALL,
    DRAWN,
    EVENTS_MAX,
    OF_EVENT,
    RANKS_MAX,
    Bins,
    Row,
    assembled,
    rank_table,
)

_GROUP = "message_group_id"


def series(history: DataFrame, *, expectation: Expectation, violations: Sequence[Violation] = ()) -> Series:
    """Return the small tables of a history; groups with violations get a timeline."""
    messages = _messages(history, expectation).cache()
    found = assembled(_Aggregates(history, messages, expectation), expectation=expectation, violations=violations)
    messages.unpersist()
    return found


class _Aggregates:
    """What a history adds up to, see `series.Aggregates`; `messages` are those of `_messages`."""

    def __init__(self, history: DataFrame, messages: DataFrame, expectation: Expectation) -> None:
        self._history, self._messages, self._expectation = history, messages, expectation

    def span(self) -> Row:
        """Return instants of publishes and receives."""
        calls = self._history.where(F.col("kind").isin(Kind.PUBLISHED.value, Kind.RECEIVED.value))
        is_warm = F.col("phase") == WARM_UP
        due = F.coalesce("intended_at_us", "invoked_at_us")
        row = calls.agg(
            F.min(due).alias("began"),
            F.max(F.greatest("invoked_at_us", "responded_at_us")).alias("ended"),
            F.min(F.when(is_warm, due)).alias("warm_from"),
            F.max(F.when(is_warm, F.greatest("invoked_at_us", "responded_at_us"))).alias("warm_to"),
        ).first()
        assert row is not None, "an aggregate has one row"
        return row.asDict()

    def moments(self, bins: Bins) -> Iterable[Row]:
        """Return what happened, counted in one pass: a row for each message, queue, and thing that happened to it."""
        if not self._expectation.queues:
            return []
        messages, bin_of = self._messages, _bin_of(bins)
        first = [name for name in messages.columns if name.startswith("acked_")]
        acked = F.least(*first) if len(first) > 1 else F.col(first[0])
        anywhere = messages.select(
            F.lit(ALL).alias("queue"),
            F.lit("acked").alias("moment"),
            acked.alias("at_us"),
            F.lit(None).cast("bigint").alias("latency_us"),
        )
        delivered = _delivered(messages, self._expectation)
        happened = [
            F.struct(
                F.lit(moment).alias("moment"), F.col(column).alias("at_us"), latency.cast("bigint").alias("latency_us")
            )
            for moment, column, latency in (
                ("due", "intended_us", _latency()),
                ("acked", "acked_us", F.lit(None)),
                ("received", "received_us", F.lit(None)),
            )
        ]
        rows = (
            delivered.select("queue", F.inline(F.array(*happened)))
            .union(anywhere)
            .where("at_us is not null and (moment != 'due' or latency_us is not null)")
            .groupBy("queue", "moment", bin_of("at_us").alias("bin"))
            .agg(*_quantile_columns("latency_us"), F.count(F.lit(1)).alias("happened"))
            .collect()
        )
        return [row.asDict() for row in rows]

    def failures(self, bins: Bins) -> Iterable[Row]:
        """Return how many calls or entries failed, or came again."""
        bin_of = _bin_of(bins)
        is_again = (F.col("kind") == Kind.RECEIVED.value) & (F.col("receive_count") > 1)
        rows = (
            self._history.where((F.col("error").isNotNull() | is_again) & F.col("invoked_at_us").isNotNull())
            .groupBy("error", F.when(is_again, F.col("queue")).alias("queue"), bin_of("invoked_at_us").alias("bin"))
            .count()
            .collect()
        )
        return [row.asDict() for row in rows]

    def tasks(self) -> Iterable[Row]:
        """Return for each recorder that received when it was at work."""
        is_receive = F.col("kind").isin(Kind.POLL.value, Kind.RECEIVED.value)
        rows = (
            self._history.groupBy("worker")
            .agg(
                F.min(F.when(is_receive, F.col("queue"))).alias("queue"),
                F.min("invoked_at_us").alias("began"),
                F.max(F.coalesce("responded_at_us", "invoked_at_us")).alias("ended"),
            )
            .where("queue is not null and began is not null")
            .collect()
        )
        return [row.asDict() for row in rows]

    def ranks(self) -> Mapping[int, Row]:
        """Return the latencies by how hot the message's group is; groups of one size are put in a row by hash."""
        if not self._expectation.queues:
            return {}
        measured = self._messages.where("not is_warm_up")
        sizes = measured.groupBy(_GROUP).agg(F.count(F.lit(1)).alias("size"))
        groups_by_size = sizes.groupBy("size").agg(F.count("*").alias("groups")).collect()
        by_size = {row["size"]: row["groups"] for row in groups_by_size}
        if not by_size:
            return {}
        table = self._history.sparkSession.createDataFrame(
            rank_table(by_size), "size bigint, hotter bigint, alike bigint"
        )
        total = sum(by_size.values())
        position = F.col("hotter") + F.pmod(F.xxhash64(_GROUP), F.col("alike"))
        rank = F.floor(position * min(RANKS_MAX, total) / total).cast("int")
        ranked = (
            measured.withColumn("size", F.count(F.lit(1)).over(Window.partitionBy(_GROUP)))
            .join(F.broadcast(table), "size")
            .withColumn("rank", rank)
        )
        delivered = _delivered(ranked, self._expectation).withColumn("latency_us", _latency())
        counted = (
            sizes.join(F.broadcast(table), "size")
            .groupBy(rank.alias("rank"))
            .agg(F.count(F.lit(1)).alias("groups"), F.sum("size").alias("messages"))
            .collect()
        )
        found: dict[int, dict[str, Any]] = {row["rank"]: row.asDict() | {"latency_us": {}} for row in counted}
        for row in delivered.groupBy("rank", "queue").agg(*_quantile_columns("latency_us")).collect():
            found[row["rank"]]["latency_us"][row["queue"]] = row.asDict()
        return found

    def nearest(self, spans: Mapping[str, tuple[int, int]]) -> Iterable[Row]:
        """Return the events nearest to the time of each group's span."""
        wanted = self._history.sparkSession.createDataFrame(
            [(group, *span) for group, span in spans.items()], f"{_GROUP} string, from_us bigint, to_us bigint"
        )
        away = F.greatest(F.col("from_us") - F.col("invoked_at_us"), F.col("invoked_at_us") - F.col("to_us"), F.lit(0))
        nearest = Window.partitionBy(_GROUP).orderBy(away, "invoked_at_us", "kind", "idx")
        rows = (
            self._history.where(F.col(_GROUP).isin(*spans) & F.col("kind").isin(*(kind.value for kind in DRAWN)))
            .where(F.col("invoked_at_us").isNotNull())
            .join(F.broadcast(wanted), _GROUP)
            .withColumn("nearness", F.row_number().over(nearest))
            .where(F.col("nearness") <= EVENTS_MAX)
            .select(_GROUP, *OF_EVENT)
            .orderBy(_GROUP, "invoked_at_us", "kind", "idx")
            .collect()
        )
        return [row.asDict() for row in rows]


def _bin_of(bins: Bins) -> Callable[[str], Column]:
    def bin_of(instant: str) -> Column:
        last = F.lit(bins.count - 1)
        found = F.floor((F.col(instant) - bins.started_at_us) / bins.width_us)
        return F.greatest(F.lit(0), F.least(last, found)).cast("int")

    return bin_of


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
