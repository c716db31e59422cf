"""The checker, on the groups that are suspect."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.history.checker import Expectation, QueueContext, check_group
from sluice.history.checker.anomalies import ANOMALIES, Severity
from sluice.history.checker.verdict import Violation
from sluice.history.events import Event
from sluice.recorder.journal import SCHEMA, events_of, taken
from spark_load.history.parquet_files import buckets_of, pieces, read_groups
from spark_load.history.reading import describe_history, read_history, spread

_WITNESSED_MAX = 8  # violations shown of each anomaly; all are counted
_UNKNOWNS_MAX = 20
_UNKNOWN = ""  # in place of an anomaly
_SCHEMA = "anomaly string, sort_key string, finding string"
_ARROW = pa.schema([(name, pa.string()) for name in ("anomaly", "sort_key", "finding")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the checker found in all groups.

    Args:
        shown: the first violations of each anomaly that is not lawful.
        counts: anomaly to how many there are, lawful ones included.
        unknowns: what stays open, as sentences.
    """

    shown: tuple[Violation, ...] = ()
    counts: Mapping[str, int]
    unknowns: tuple[str, ...] = ()


def findings(
    spark: SparkSession, history: Path, suspects: Collection[str], expectation: Expectation, around: QueueContext
) -> Findings:
    """Run the checker on every suspect group.

    Args:
        spark: its executors see the folder.
        history: folder of Parquet, columns as in `sluice.history.events`, settled.
        suspects: names of groups.
        expectation: what the run was set up to be, without what the history cannot prove.
        around: what happened outside the groups.
    """
    if not suspects:
        return Findings(counts={})
    found = _checked(spark, history, suspects, expectation, around).cache()
    counts = {row["anomaly"]: row["count"] for row in found.groupBy("anomaly").count().collect()}
    in_order = Window.partitionBy("anomaly").orderBy("sort_key")
    first = (
        found.withColumn("rank", F.row_number().over(in_order))
        .where(F.col("rank") <= F.when(F.col("anomaly") == _UNKNOWN, _UNKNOWNS_MAX).otherwise(_WITNESSED_MAX))
        .orderBy("anomaly", "rank")
        .collect()
    )
    found.unpersist()
    unknowns = [row["finding"] for row in first if row["anomaly"] == _UNKNOWN]
    if counts.get(_UNKNOWN, 0) > len(unknowns):
        unknowns.append(f"… and {counts[_UNKNOWN] - len(unknowns)} more of this kind")
    return Findings(
        shown=tuple(_violation(json.loads(row["finding"])) for row in first if _is_shown(row["anomaly"])),
        counts={anomaly: count for anomaly, count in counts.items() if anomaly != _UNKNOWN},
        unknowns=tuple(unknowns),
    )


def _is_shown(anomaly: str) -> bool:
    return anomaly != _UNKNOWN and ANOMALIES[anomaly].severity is not Severity.INFORMATION


def _checked(
    spark: SparkSession, history: Path, suspects: Collection[str], expectation: Expectation, around: QueueContext
) -> DataFrame:
    def check(events: list[Event]) -> pa.Table:
        finding = check_group(events, expectation, around)
        rows = [
            {
                "anomaly": violation.anomaly,
                "sort_key": f"{violation.message_group_id} {violation.idxs[:1]}",
                "finding": json.dumps(violation.as_json()),
            }
            for violation in (*finding.violations, *finding.seen)
        ] + [{"anomaly": _UNKNOWN, "sort_key": text, "finding": text} for text in finding.unknowns]
        return pa.Table.from_pylist(rows, schema=_ARROW)

    names = sorted(suspects)

    def check_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = pa.array(names, pa.string())
        groups = _groups(
            pa.concat_tables([SCHEMA.empty_table(), *(read_groups(item, wanted) for item in describe_history(batches))])
        )
        while groups:  # the rows are gone when the last one's events are made: it may be a tenth of a history
            yield from check(events_of(groups.pop())).to_batches()

    found, bucket_count = pieces(history)
    if bucket_count is None:
        few = spark.createDataFrame([(name,) for name in suspects], "message_group_id string")
        return (
            read_history(spark, history)
            .join(F.broadcast(few), "message_group_id", "left_semi")
            .groupBy("message_group_id")
            .applyInArrow(lambda group: check(events_of(group)), _SCHEMA)
        )
    theirs = buckets_of(suspects, bucket_count)
    return spread(spark, [(piece.bucket, piece) for piece in found if piece.bucket in theirs], bucket_count).mapInArrow(
        check_all, _SCHEMA
    )


def _groups(events: pa.Table) -> list[pa.Table]:
    """Return the events of each group."""
    group = events.column("message_group_id").combine_chunks().dictionary_encode().indices.to_numpy()
    ordered = taken(events, np.argsort(group, kind="stable"))
    counts = np.bincount(group)
    return [
        ordered.slice(end - count, count)
        for end, count in zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True)
    ]


def _violation(fields: Mapping[str, Any]) -> Violation:
    return Violation(
        anomaly=fields["anomaly"],
        message_group_id=fields["message_group_id"],
        queue=fields["queue"],
        idxs=tuple(fields["idxs"]),
        sentence=fields["sentence"],
        witness=tuple(Event(**event) for event in fields["witness"]),
    )
