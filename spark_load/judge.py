"""From journals to a verdict: compact, clear what is clean, hand the rest to the checker, measure, decide."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from sluice import deviations
from sluice.anomalies import ANOMALIES, JUDGED, Severity
from sluice.checker import (
    Activity,
    Expectation,
    Measured,
    RunFacts,
    Surroundings,
    Thresholds,
    check_group,
    check_run,
    check_thresholds,
    surroundings,
)
from sluice.errors import HistoryError
from sluice.history import Event, Kind, Outcome
from sluice.verdict import Property, Verdict, Violation
from spark_load.plan import Plan
from spark_load.suspects import by_group, suspects
from wire.journal import SCHEMA, SUFFIX, read_journal

_WITNESSED_MAX = 8  # violations shown of each anomaly; all are counted
_UNKNOWNS_MAX = 20
_PERCENTILES = (0.5, 0.95, 0.99)
_PERCENTILE_ACCURACY = 10_000
_NO_THRESHOLDS = Thresholds()
_THROTTLED = ("Throttl", "TooManyRequests", "RequestLimit", "SlowDown")
_CALLS = (Kind.PUBLISHED.value, Kind.POLL.value, Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
_FINDING_SCHEMA = "kind string, anomaly string, queue string, sort_key string, finding string"
_FINDING_ARROW = pa.schema([(name, pa.string()) for name in ("kind", "anomaly", "queue", "sort_key", "finding")])


def compact(spark: SparkSession, journals: Path, history: Path) -> None:
    """Write every journal of a run into one Parquet history, settled.

    Raises:
        HistoryError: there is no journal, or one of another version.
    """
    paths = sorted(str(path) for path in journals.glob(f"*{SUFFIX}"))
    if not paths:
        raise HistoryError(f"{journals} holds no journals: nothing was recorded; run the load test again")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from read_journal(Path(path)).to_batches()

    (
        spark.createDataFrame([(path,) for path in paths], "path string")
        .repartition(len(paths))
        .mapInArrow(read, from_arrow_schema(SCHEMA))
        .write.mode("overwrite")
        .parquet(str(history))
    )


def judge(
    history: DataFrame,
    *,
    plan: Plan,
    expectation: Expectation,
    run: Mapping[str, Any],
    unknowns: tuple[str, ...] = (),
    thresholds: Thresholds = _NO_THRESHOLDS,
) -> Verdict:
    """Return the verdict on a history.

    Args:
        history: settled events, columns as in `sluice.history`.
        plan: what was to be published.
        expectation: what the run was set up to be.
        run: what is known of the run: `target` (key into `sluice.deviations`), `recorders` (name to the queue it
            consumes), `max_receive_count` by queue; all of it is repeated in the verdict.
        unknowns: what already went wrong while it ran.
        thresholds: what was measured is held against.
    """
    grouped = by_group(history).cache()
    expectation = replace(expectation, max_receive_count=run["max_receive_count"])
    around = _surroundings(history)
    suspect = suspects(grouped, expectation, around).cache()
    counts = _counts(history, grouped, expectation)
    recorded = _recorded(history)
    unfinished = _unfinished(recorded, run)
    violations, found, open_questions = _check(
        grouped, suspect, _provable(history, expectation, run, recorded, unfinished, counts["foreign"]), around
    )
    measures = _measures(history, grouped, expectation) | {
        "groups": counts["groups"],
        "suspect_groups": suspect.count(),
        "events": counts["events"],
    }
    facts = _facts(history, counts, measures, plan, unfinished)
    reasons = check_run(facts)
    crossed = check_thresholds(_measured(history, measures, facts, counts), thresholds)
    grouped.unpersist()
    suspect.unpersist()
    opportunities = _opportunities(counts, expectation, around, thresholds)
    return Verdict(
        properties=tuple(
            Property(
                anomaly=anomaly.id,
                opportunities=opportunities[anomaly.id],
                violation_count=found.get(anomaly.id, 0) + len(crossed.get(anomaly.id, ())),
                allowed_because=_text(deviations.of_anomaly(run["target"], anomaly.id)),
                is_unknown=anomaly.id in reasons,
            )
            for anomaly in JUDGED
        ),
        violations=tuple(one for one in violations if deviations.of_anomaly(run["target"], one.anomaly) is None),
        unknowns=(*unknowns, *reasons.values(), *_at_fault(violations, run["target"]), *open_questions),
        measures=measures,
        run={**run, "known_deviations": _known_deviations(run["target"])},
    )


def _recorded(history: DataFrame) -> dict[str, dict[int, bool]]:
    """Return every recorder's attempts, and whether each finished: then its journal has a `closed`."""
    framed = history.groupBy("worker", "task_attempt").agg(F.count_if(_is(Kind.CLOSED)).alias("closed")).collect()
    recorded: dict[str, dict[int, bool]] = defaultdict(dict)
    for row in framed:
        recorded[row["worker"]][row["task_attempt"] or 0] = bool(row["closed"])
    return recorded


def _unfinished(recorded: Mapping[str, Mapping[int, bool]], run: Mapping[str, Any]) -> list[str]:
    """Return the recorders that did not finish: a journal is not there, or the last attempt's has no `closed`.

    That an earlier attempt of a resumed run did not finish is made good. Every publish and every delete was written
    down before it was made, and what somebody received and could not write down any more came again: it is still in the
    history, and a receive too many is in `lost_receives`.
    """
    last = run.get("attempts", 1) - 1

    def is_whole(attempts: Mapping[int, bool]) -> bool:
        return len(attempts) > last and all(closed for attempt, closed in attempts.items() if attempt >= last)

    return [name for name in run["recorders"] if not is_whole(recorded.get(name, {}))]


def _provable(
    history: DataFrame,
    expectation: Expectation,
    run: Mapping[str, Any],
    recorded: Mapping[str, Mapping[int, bool]],
    unfinished: list[str],
    foreign_count: int,
) -> Expectation:
    """Return the expectation with what this history cannot prove left out of it."""
    unproven = {
        queue: f"whose recorder {name} did not finish"
        for name, queue in run["recorders"].items()
        if name in unfinished and queue is not None
    }
    unanswered = history.where(_is(Kind.POLL, Outcome.INFO)).groupBy("queue").count().collect()
    lost = Counter({row["queue"]: row["count"] for row in unanswered})
    for name, attempts in recorded.items():
        if name not in unfinished and (queue := run["recorders"].get(name)) is not None:
            lost[queue] += sum(not closed for closed in attempts.values())
    for queue, count in lost.items():
        # Enough lost answers can use a message's receives up without a trace: it is then in the DLQ, unseen.
        if count >= run["max_receive_count"].get(queue, 1):
            unproven[queue] = f"where {count} receives were not answered"
    if foreign_count:
        unproven = dict.fromkeys(expectation.queues, "which others used as well")
    is_recorded = not any(run["recorders"][name] is None for name in unfinished)
    return replace(expectation, unproven_queues=unproven, lost_receives=lost, is_publishing_recorded=is_recorded)


def _surroundings(history: DataFrame) -> Surroundings:
    """Return what happened around the groups; the polls, which are many, are counted in Spark."""
    few = history.where(F.col("kind").isin(Kind.REDRIVEN.value, Kind.FAULT.value, Kind.PROBE.value)).collect()
    received = F.get_json_object("detail", "$.received").cast("int")
    polls = (
        history.where(_is(Kind.POLL, Outcome.OK) & F.col("responded_at_us").isNotNull())
        .groupBy("queue", F.floor(F.col("invoked_at_us") / 1_000_000).alias("second"))
        .agg(
            F.count_if(received > 0).alias("served_count"),
            F.count_if((received == 0) & (F.col("wait_time_seconds") > 0)).alias("empty_count"),
            F.max("responded_at_us").alias("answered_by_us"),
        )
        .orderBy("second")
        .collect()
    )
    activity: dict[str, list[Activity]] = defaultdict(list)
    for row in polls:
        said = row.asDict()
        activity[said.pop("queue")].append(Activity(**said))
    return replace(surroundings(Event(**row.asDict()) for row in few), activity=dict(activity))


def _at_fault(violations: tuple[Violation, ...], target: str) -> list[str]:
    """Return why the run itself was at fault, in what was found in its groups."""
    return [
        f"{one.anomaly} in group {one.message_group_id}: {one.sentence}"
        for one in violations
        if ANOMALIES[one.anomaly].severity is Severity.HARNESS and deviations.of_anomaly(target, one.anomaly) is None
    ]


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def _known_deviations(target: str) -> dict[str, str]:
    return {anomaly: str(why) for anomaly, why in deviations.ANOMALIES.get(target, {}).items()}


# --- the checker, on the suspects ------------------------------------------------------------------------------------


def _check(
    grouped: DataFrame, suspect: DataFrame, expectation: Expectation, around: Surroundings
) -> tuple[tuple[Violation, ...], dict[str, int], list[str]]:
    """Run the checker on every suspect group; return the violations to show, all counts, and what stays open."""

    def check(table: pa.Table) -> pa.Table:
        finding = check_group([Event(**row) for row in table.to_pylist()], expectation, around)
        rows = [
            {
                "kind": "violation",
                "anomaly": violation.anomaly,
                "queue": violation.queue,
                "sort_key": f"{violation.message_group_id} {violation.idxs[:1]}",
                "finding": json.dumps(violation.as_json()),
            }
            for violation in (*finding.violations, *finding.seen)
        ] + [
            {"kind": "unknown", "anomaly": None, "queue": None, "sort_key": text, "finding": text}
            for text in finding.unknowns
        ]
        return pa.Table.from_pylist(rows, schema=_FINDING_ARROW)

    found = (
        grouped.join(F.broadcast(suspect), "message_group_id", "left_semi")
        .groupBy("message_group_id")
        .applyInArrow(check, _FINDING_SCHEMA)
        .cache()
    )
    counts = {
        row["anomaly"]: row["count"] for row in found.where("kind = 'violation'").groupBy("anomaly").count().collect()
    }
    shown: list[Violation] = []
    for anomaly in sorted(counts):
        if ANOMALIES[anomaly].severity is Severity.INFORMATION:
            continue
        rows = found.where(F.col("anomaly") == anomaly).orderBy("sort_key").limit(_WITNESSED_MAX).collect()
        shown += [_violation(json.loads(row["finding"])) for row in rows]
    unknown = found.where("kind = 'unknown'")
    total = unknown.count()
    listed = [row["finding"] for row in unknown.orderBy("sort_key").limit(_UNKNOWNS_MAX).collect()]
    if total > len(listed):
        listed.append(f"… and {total - len(listed)} more of this kind")
    found.unpersist()
    return tuple(shown), counts, listed


def _violation(said: Mapping[str, Any]) -> Violation:
    return Violation(
        anomaly=said["anomaly"],
        message_group_id=said["message_group_id"],
        queue=said["queue"],
        idxs=tuple(said["idxs"]),
        sentence=said["sentence"],
        witness=tuple(Event(**event) for event in said["witness"]),
    )


# --- what was counted and measured -----------------------------------------------------------------------------------


def _is(kind: Kind, outcome: Outcome | None = None) -> Any:
    column = F.col("kind") == kind.value
    return column if outcome is None else column & (F.col("outcome") == outcome.value)


def _counts(history: DataFrame, grouped: DataFrame, expectation: Expectation) -> dict[str, int]:
    """Return the sums behind the opportunities and the run's facts."""
    ours = _is(Kind.RECEIVED) & (F.col("message_run") == expectation.run)
    window_us = expectation.deduplication_window_seconds * 1_000_000
    whole = history.agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(ours).alias("received"),
        F.count_if(
            _is(Kind.RECEIVED) & (F.col("message_run").isNull() | (F.col("message_run") != expectation.run))
        ).alias("foreign"),
        F.count_if(_is(Kind.PUBLISHED)).alias("publishes"),
        F.count_if(_is(Kind.DELETED, Outcome.OK)).alias("deleted"),
        F.count_if(ours & (F.col("receive_count") > 1)).alias("redelivered"),
        F.count_if(ours & F.col("sqs_sequence_number").isNotNull()).alias("numbered"),
        F.count_if(ours & F.col("md5_ok").isNotNull()).alias("summed"),
        F.count_if(ours & F.col("sns_message_id").isNotNull()).alias("enveloped"),
        F.count_if(ours & F.col("queue").isin(*expectation.dead_letter_queues.values())).alias("dead"),
        F.count_if(_is(Kind.POLL) & F.col("queue").isin(*expectation.subscription_dead_letter_queues.values())).alias(
            "undelivered_polls"
        ),
        F.count_if(_is(Kind.HANDLED)).alias("handled"),
        F.count_if(_is(Kind.FAULT)).alias("faults"),
        F.count_if(F.col("call_id").isNotNull() & F.col("kind").isin(*_CALLS)).alias("calls"),
        F.count_distinct("clock_id").alias("clocks"),
    ).first()
    messages = (
        grouped.where(_is(Kind.PUBLISHED))
        .groupBy("message_group_id", "idx")
        .agg(
            F.count_if(F.col("outcome") == Outcome.OK.value).alias("acked"),
            F.count_if(F.col("outcome") == Outcome.INFO.value).alias("unanswered"),
            (F.max("invoked_at_us") - F.min("invoked_at_us")).alias("span_us"),
        )
        .agg(
            F.count_if(F.col("acked") > 0).alias("acked"),
            F.count_if(F.col("acked") > 1).alias("repeated"),
            F.count_if((F.col("acked") > 1) & (F.col("span_us") >= window_us)).alias("repeated_late"),
            F.count_if((F.col("acked") == 0) & (F.col("unanswered") > 0)).alias("unanswered"),
            F.count_if((F.col("acked") == 0) & (F.col("unanswered") == 0)).alias("refused"),
        )
        .first()
    )
    sequences = (
        grouped.where(ours)
        .groupBy("message_group_id", "queue")
        .agg((F.count(F.lit(1)) - 1).alias("later"), (F.count(F.lit(1)) - F.count_distinct("call_id")).alias("shared"))
        .agg(
            F.coalesce(F.sum("later"), F.lit(0)).alias("later"),
            F.coalesce(F.sum("shared"), F.lit(0)).alias("shared"),
            F.count_distinct("message_group_id").alias("groups"),
        )
        .first()
    )
    counted: dict[str, int] = {}
    for row in (whole, messages, sequences):
        assert row is not None, "an aggregate has one row"
        counted |= row.asDict()
    return counted


def _opportunities(
    counts: Mapping[str, int], expectation: Expectation, around: Surroundings, thresholds: Thresholds
) -> dict[str, int]:
    """Return how often each anomaly could have happened, anomaly id to count. In doubt rather too few."""
    of_count = {
        "acked": "A1 A2 C5 C7 E1",
        "received": "A3 A4 A6 B6 B7 B8 E2 G1 G3",
        "refused": "A5",
        "unanswered": "A7 C6",
        "deleted": "A8",
        "repeated": "B1 B5",
        "repeated_late": "B2 B3",
        "later": "C1 D1 D2 D5",
        "shared": "C2",
        "redelivered": "C3",
        "numbered": "C4",
        "dead": "D4 F1 F4 F5 F6 F7 F12",
        "undelivered_polls": "E4",
        "summed": "G2",
        "enveloped": "G4",
        "handled": "R2 R3 R4",
        "publishes": "H7",
    }
    empty = sum(one.empty_count for seconds in around.activity.values() for one in seconds)
    judged = {anomaly: counts[name] for name, anomalies in of_count.items() for anomaly in anomalies.split()}
    judged |= dict.fromkeys(("F8", "F9", "F10", "F11"), min(counts["dead"], len(around.moves)))
    return judged | {
        "D3": _if(expectation.passed_over_seconds_max, counts["later"]),
        "E3": _if(expectation.fan_out_skew_seconds_max, counts["acked"]),
        "E5": len(around.faults),
        "F2": counts["received"] if expectation.max_receive_count else 0,
        "F3": counts["redelivered"] if around.empty_since_us else 0,
        "H1": _if(expectation.stuck_seconds_max, counts["later"]),
        "H2": empty,
        "H3": _if(thresholds.latency_seconds_max, counts["received"]),
        "H4": _if(thresholds.drain_seconds_max, len(expectation.queues)),
        "H5": _if(thresholds.recovery_seconds_max, counts["faults"]),
        "H6": _if(thresholds.throttled_share_max, counts["calls"]),
        "R1": counts["handled"] if expectation.effects_recorded else 0,
    }


def _if(threshold: float | None, count: int) -> int:
    """Return the count where there is a threshold: nothing else was judged."""
    return 0 if threshold is None else count


def _recoveries(history: DataFrame) -> dict[str, float]:
    """Return each fault, by when it began, to how long after its end the first call was answered ok."""
    faults = history.where(_is(Kind.FAULT) & F.col("responded_at_us").isNotNull())
    ended = faults.select("queue", "invoked_at_us", F.col("responded_at_us").alias("ended_at_us"))
    calls = history.where(F.col("kind").isin(*_CALLS) & (F.col("outcome") == Outcome.OK.value))
    first = (
        ended.join(
            calls.select(F.col("queue").alias("of_queue"), "responded_at_us"),
            (F.col("queue") == F.col("of_queue")) & (F.col("responded_at_us") >= F.col("ended_at_us")),
        )
        .groupBy("queue", "invoked_at_us")
        .agg(((F.min("responded_at_us") - F.min("ended_at_us")) / 1e6).alias("seconds"))
        .collect()
    )
    return {f"the fault of {row['queue']} at {row['invoked_at_us']}": row["seconds"] for row in first}


def _measured(history: DataFrame, measures: Mapping[str, Any], facts: RunFacts, counts: Mapping[str, int]) -> Measured:
    of_queue = {queue: of for queue, of in measures["queues"].items() if of["latency_us"] is not None}
    return Measured(
        latency_us={queue: of["latency_us"]["p99"] for queue, of in of_queue.items()},
        drained_in_seconds={queue: of["drain_seconds"] for queue, of in of_queue.items() if of["drain_seconds"]},
        recovered_in_seconds=_recoveries(history) if counts["faults"] else {},
        call_count=counts["calls"],
        throttled_count=sum(count for code, count in facts.failed_calls.items() if code.startswith(_THROTTLED)),
    )


def _measures(history: DataFrame, grouped: DataFrame, expectation: Expectation) -> dict[str, Any]:
    """Return rates, publish latency, lateness, and per queue the latency from intended publish to first receive."""
    published = history.where(_is(Kind.PUBLISHED, Outcome.OK) & (F.col("idx") >= 0))
    lateness = F.col("invoked_at_us") - F.col("intended_at_us")
    answered = F.col("responded_at_us") - F.col("invoked_at_us")
    row = published.agg(
        F.count(F.lit(1)).alias("count"),
        ((F.max("responded_at_us") - F.min("invoked_at_us")) / 1e6).alias("seconds"),
        _percentiles(lateness).alias("lateness"),
        F.max(lateness).alias("lateness_max"),
        _percentiles(answered).alias("publish"),
        F.max(answered).alias("publish_max"),
    ).first()
    assert row is not None
    return {
        "published": _rate(row["count"], row["seconds"]),
        "lateness_us": _quantiles(row["lateness"], row["lateness_max"]),
        "publish_latency_us": _quantiles(row["publish"], row["publish_max"]),
        "queues": _queue_measures(grouped, expectation),
    }


def _queue_measures(grouped: DataFrame, expectation: Expectation) -> dict[str, Any]:
    first = (
        grouped.where((F.col("idx") >= 0) & (_is(Kind.PUBLISHED) | _is(Kind.RECEIVED)))
        .groupBy("message_group_id", "idx")
        .agg(
            F.min("intended_at_us").alias("intended_at_us"),
            F.max(F.when(_is(Kind.PUBLISHED), F.col("invoked_at_us"))).alias("published_at_us"),
            *(
                F.min(F.when(_is(Kind.RECEIVED) & (F.col("queue") == queue), F.col("responded_at_us"))).alias(queue)
                for queue in expectation.queues
            ),
        )
    )
    measured = {}
    for queue in expectation.queues:
        received = F.col(f"`{queue}`")
        latency = received - F.col("intended_at_us")
        row = first.agg(
            F.count(received).alias("count"),
            ((F.max(received) - F.min(received)) / 1e6).alias("seconds"),
            _percentiles(latency).alias("latency"),
            F.max(latency).alias("latency_max"),
            ((F.max(received) - F.max("published_at_us")) / 1e6).alias("drain_seconds"),
        ).first()
        assert row is not None
        measured[queue] = {
            "received": _rate(row["count"], row["seconds"]),
            "drain_seconds": row["drain_seconds"],
            "latency_us": _quantiles(row["latency"], row["latency_max"]),
        }
    return measured


def _percentiles(column: Any) -> Any:
    return F.percentile_approx(column, list(_PERCENTILES), _PERCENTILE_ACCURACY)


def _rate(count: int, seconds: float | None) -> dict[str, Any]:
    return {"count": count, "seconds": seconds, "per_second": count / seconds if seconds else None}


def _quantiles(values: list[int] | None, largest: int | None) -> dict[str, int] | None:
    if values is None or largest is None:
        return None
    return {f"p{round(q * 100)}": value for q, value in zip(_PERCENTILES, values, strict=True)} | {"max": largest}


def _facts(
    history: DataFrame, counts: Mapping[str, int], measures: Mapping[str, Any], plan: Plan, unfinished: list[str]
) -> RunFacts:
    lateness = measures["lateness_us"]
    failed = history.where(F.col("error").isNotNull()).groupBy("error").count().collect()
    return RunFacts(
        published_count=counts["acked"],
        received_count=counts["received"],
        foreign_count=counts["foreign"],
        lateness_p99_us=None if lateness is None else lateness["p99"],
        lateness_budget_us=round(plan.profile.lateness_budget_seconds * 1e6),
        unclosed_journals=tuple(unfinished),
        unpublished_count=plan.row_count - counts["acked"],
        failed_calls={row["error"]: row["count"] for row in failed},
        clock_count=counts["clocks"],
    )
