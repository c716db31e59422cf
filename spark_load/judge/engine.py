"""A history as Spark reads it: for load tests, and for recordings that are too large for one process."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.errors import HistoryError
from sluice.history.events import Event, Kind, Outcome
from sluice.judge import recording
from sluice.judge.checker import Expectation, QueueContext
from sluice.judge.checker.verdict import Violation
from sluice.judge.counts import AROUND, CALLS
from sluice.judge.folder.layout import HISTORY
from sluice.judge.folder.series_schema import Series
from sluice.judge.groups import FOUND, UNKNOWN, UNKNOWNS_MAX, WITNESSED_MAX, Findings, found_in, gathered, groups_of
from sluice.judge.judge import Recovery
from sluice.judge.reading.damage import readable, undamaged
from sluice.judge.reading.parquet_files import buckets_of, pieces, read_groups
from sluice.judge.reading.reasons import reason
from sluice.judge.screening.buckets import Cleared
from sluice.judge.screening.stretches import needed
from sluice.judge.timing import SETTLED, TIMED, Timed, least
from sluice.recorder.journal import SCHEMA, events_of
from spark_load.judge.compaction import compact
from spark_load.judge.reading import describe_history, read_history, spread
from spark_load.judge.screening import clear
from spark_load.judge.series import series

_NEVER_US = 2**62
_FOUND = ", ".join(f"{name} string" for name in FOUND.names)


class SparkEngine:
    """Reads a history of settled events with Spark, whose executors see the folder of Parquet."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    @cached_property
    def _history(self) -> DataFrame:
        """Return the rows; what clears groups and checks them reads the files itself, and needs no plan of Spark's."""
        return read_history(self._spark, self._folder)

    def screen(self, expectation: Expectation) -> Cleared:
        """Return what one pass over the whole history finds."""
        return clear(self._spark, self._folder, expectation)

    def around(self) -> Iterable[Event]:
        """Return the events of the kinds `counts.AROUND`."""
        return [Event(**row.asDict()) for row in self._history.where(F.col("kind").isin(*AROUND)).collect()]

    def may_have_moved(self, expectation: Expectation, surrounded: QueueContext) -> Collection[str]:
        """Return the groups with a receive during which a move task to its queue began."""
        invoked_us = F.coalesce("invoked_at_us", F.lit(0)) - expectation.clock_bound_us
        answered_us = F.coalesce("responded_at_us", F.lit(_NEVER_US))
        during = [
            (F.col("queue") == move.destination)
            & (invoked_us <= move.began_at_us)
            & (answered_us >= move.began_at_us - expectation.clock_bound_us)
            for move in surrounded.moves
        ]
        is_ours = (F.col("kind") == Kind.RECEIVED.value) & (F.col("message_run") == expectation.run)
        groups = self._history.where(is_ours & reduce(or_, during) & F.col("message_group_id").isNotNull())
        return [row["message_group_id"] for row in groups.select("message_group_id").distinct().collect()]

    def timed(self, expectation: Expectation) -> Timed:
        """Return what the history says of the clocks that timed it."""
        events = self._history.where(F.col("kind").isin(*TIMED) & F.col("message_group_id").isNotNull())
        events = events.withColumn("clock_id", F.coalesce("clock_id", F.lit("")))
        several = events.groupBy("message_group_id").agg(F.min("clock_id"), F.max("clock_id"))
        several = several.where(F.col("min(clock_id)") != F.col("max(clock_id)"))
        times = [F.col("invoked_at_us"), F.col("responded_at_us")]
        ends = events.agg(F.max(F.greatest(*times)).alias("last"), F.min(F.least(*times)).alias("first")).first()
        received = events.where(_is(Kind.RECEIVED))
        settled = events.where(F.col("kind").isin(*SETTLED))
        rows = _caused(received, settled, ["queue", "receipt_handle_hash"], ("responded_at_us", "invoked_at_us"))
        if expectation.is_publishing_recorded:
            ours = received.where(F.col("message_run") == expectation.run)
            keys = ["message_group_id", "idx", "body_hash"]
            rows += _caused(events.where(_is(Kind.PUBLISHED)), ours, keys, ("invoked_at_us", "responded_at_us"))
        return Timed(
            groups=[row["message_group_id"] for row in several.collect()],
            ahead_us=least(rows),
            span_us=0 if ends is None or ends["last"] is None else ends["last"] - ends["first"],
        )

    def findings(self, suspects: Collection[str], expectation: Expectation, surrounded: QueueContext) -> Findings:
        """Run the checker on every suspect group, in tasks."""
        if not suspects:
            return gathered({}, ())
        found = self._found(suspects, expectation, surrounded).cache()
        counts = {row["anomaly"]: row["count"] for row in found.groupBy("anomaly").count().collect()}
        in_order = Window.partitionBy("anomaly").orderBy("sort_key", "finding")
        first = (
            found.withColumn("rank", F.row_number().over(in_order))
            .where(F.col("rank") <= F.when(F.col("anomaly") == UNKNOWN, UNKNOWNS_MAX).otherwise(WITNESSED_MAX))
            .orderBy("anomaly", "rank")
            .collect()
        )
        found.unpersist()
        return gathered(counts, (row.asDict() for row in first))

    def _found(self, suspects: Collection[str], expectation: Expectation, surrounded: QueueContext) -> DataFrame:
        def check(group: pa.Table) -> pa.Table:
            part = needed(group, expectation, surrounded)
            found = found_in(events_of(part.events), expectation, surrounded, part.idxs)
            return pa.Table.from_pylist(found, schema=FOUND)

        names = sorted(suspects)

        def check_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            wanted = pa.array(names, pa.string())
            read = [SCHEMA.empty_table(), *(read_groups(piece, wanted) for piece in describe_history(batches))]
            groups = groups_of(pa.concat_tables(read))
            del read
            while groups:  # the rows are gone when the last one's events are made: it may be a tenth of a history
                yield from check(groups.pop()).to_batches()

        found, bucket_count = pieces(self._folder)
        if bucket_count is None:
            few = self._spark.createDataFrame([(name,) for name in suspects], "message_group_id string")
            return (
                self._history.join(F.broadcast(few), "message_group_id", "left_semi")
                .groupBy("message_group_id")
                .applyInArrow(check, _FOUND)
            )
        theirs = buckets_of(suspects, bucket_count)
        tasks = [(piece.bucket, piece) for piece in found if piece.bucket in theirs]
        return spread(self._spark, tasks, bucket_count).mapInArrow(check_all, _FOUND)

    def recoveries(self) -> list[Recovery]:
        """Return the faults that ended, of each queue or topic they concern."""
        is_ok = F.col("outcome") == Outcome.OK.value
        is_ended = _is(Kind.FAULT) & is_ok & F.col("queue").isNotNull() & F.col("responded_at_us").isNotNull()
        ended = self._history.where(is_ended).select(
            "queue", F.col("invoked_at_us").alias("began_us"), F.col("responded_at_us").alias("ended_us"), "detail"
        )
        calls = self._history.where(F.col("kind").isin(*CALLS) & is_ok)
        first = (
            ended.join(
                calls.select(F.col("queue").alias("of_queue"), "responded_at_us"),
                (F.col("queue") == F.col("of_queue")) & (F.col("responded_at_us") >= F.col("ended_us")),
                "left",
            )
            .groupBy("queue", "began_us", "ended_us", "detail")
            .agg(F.min("responded_at_us").alias("answered_us"))
            .collect()
        )
        return [Recovery(**row.asDict()) for row in first]

    def series(self, expectation: Expectation, violations: Sequence[Violation]) -> Series:
        """Return what the report's charts show."""
        try:
            return series(self._history, expectation=expectation, violations=violations)
        except (PySparkException, Py4JError) as error:
            raise HistoryError(f"{self._folder} could not be aggregated: {reason(error)}") from error

    def overview(self) -> list[Mapping[str, Any]]:
        """Return what the history says of itself, see `recording.OVERVIEW`."""
        kind = F.col("kind")
        is_framed = kind.isin(*recording.FRAMED)
        is_consumed = kind.isin(*recording.CONSUMED)
        is_of_no_group = (
            kind.isin(*recording.OF_MESSAGES)
            & F.col("message_group_id").isNull()
            & (F.col("outcome") != Outcome.FAIL.value)
        )
        counted = self._history.groupBy(
            "schema_version",
            "run",
            F.when(is_framed | is_consumed, kind).alias("kind"),
            F.when(is_framed, F.col("worker")).alias("worker"),
            F.when(is_consumed, F.col("queue")).alias("queue"),
            F.when(_is(Kind.TOPOLOGY), F.col("detail")).alias("detail"),
            is_of_no_group.alias("is_of_no_group"),
        )
        return [row.asDict() for row in counted.count().collect()]


def _caused(
    causes: DataFrame, effects: DataFrame, keys: list[str], instants: tuple[str, str]
) -> list[tuple[str, str, int]]:
    """Return (clock, other clock, the least time between) of causes by one clock with effects by another."""
    since, until = instants
    first = causes.groupBy(*keys).agg(
        F.min("clock_id").alias("clock"), F.max("clock_id").alias("last_clock"), F.min(since).alias("since_us")
    )
    of_one = first.where(F.col("clock") == F.col("last_clock")).drop("last_clock")
    then = effects.groupBy(*keys, F.col("clock_id").alias("other")).agg(F.min(until).alias("until_us"))
    both = of_one.join(then, keys).where(F.col("clock") != F.col("other"))
    found = both.groupBy("clock", "other").agg(F.min(F.col("until_us") - F.col("since_us")).alias("us"))
    return [(row["clock"], row["other"], row["us"]) for row in found.collect() if row["us"] is not None]


def _is(kind: Kind) -> Column:
    return F.col("kind") == kind.value


@contextmanager
def opened(spark: SparkSession, root: Path) -> Iterator[SparkEngine]:
    """Read the folder of a recording, which executors see; journals become Parquet beside them first.

    Raises HistoryError for damage, also of what the block reads.
    """
    folder = recording.folder_of(root)
    is_made = recording.is_journals(folder)
    if is_made:
        compact(spark, folder, root / HISTORY)
        folder = root / HISTORY
    with readable(folder, PySparkException, Py4JError):
        if not is_made:
            _require_undamaged(spark, folder)
        yield SparkEngine(spark, folder)


def _require_undamaged(spark: SparkSession, folder: Path) -> None:
    """Refuse what somebody else made and is damaged, in tasks; of what is made of journals every row was looked at."""

    def examine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in describe_history(batches):
            for table in undamaged(piece):
                yield pa.RecordBatch.from_pydict({"events": [len(table)]})

    found, _ = pieces(folder)
    if found:
        tasks = spread(spark, enumerate(found), len(found))
        tasks.mapInArrow(examine, "events long").write.format("noop").mode("overwrite").save()
