"""What a history says besides its groups: one aggregate over all events, small enough for the driver."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from sluice.checker import Activity, Expectation, Surroundings, surroundings
from sluice.history import Event, Kind, Outcome, answer_detail
from spark_load.transport import is_throttled

CALLS = (Kind.PUBLISHED.value, Kind.POLL.value, Kind.DELETED.value, Kind.VISIBILITY_CHANGED.value)
_FRAMES = (Kind.OPENED.value, Kind.CLOSED.value)
_AROUND = (Kind.REDRIVEN.value, Kind.FAULT.value, Kind.PROBE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the events of a whole history add up to.

    Args:
        counts: name to how many events there are of it.
        recorded: recorder to its attempts, and whether each finished: then its journal has a `closed`.
        failed_calls: error code to how many events tell of it.
        unanswered_receives: queue to how many receives were never answered.
        clocks: all there are.
        activity: queue to its seconds, ascending.
    """

    counts: Mapping[str, int]
    recorded: Mapping[str, Mapping[int, bool]]
    failed_calls: Mapping[str, int]
    unanswered_receives: Mapping[str, int]
    clocks: frozenset[str | None]
    activity: Mapping[str, list[Activity]]


def facts(history: DataFrame, expectation: Expectation) -> Facts:
    """Return what the events add up to; counted in Spark, in one pass."""
    rows = _cube(history, expectation).collect()
    failed: Counter[str] = Counter()
    unanswered: Counter[str] = Counter()
    recorded: dict[str, dict[int, bool]] = defaultdict(dict)
    for row in rows:
        if row["error"] is not None:
            failed[row["error"]] += row["events"]
        if row["kind"] == Kind.POLL and row["outcome"] == Outcome.INFO:
            unanswered[row["queue"]] += row["events"]
        if row["kind"] in _FRAMES:
            attempts, attempt = recorded[row["recorder"]], row["attempt"]
            attempts[attempt] = attempts.get(attempt, False) or row["kind"] == Kind.CLOSED
    return Facts(
        counts=_counts(rows, expectation),
        recorded=recorded,
        failed_calls=failed,
        unanswered_receives=unanswered,
        clocks=frozenset(row["clock_id"] for row in rows if row["clock_id"] is not None),
        activity=_activity(rows),
    )


def around(history: DataFrame, told: Facts) -> Surroundings:
    """Return what happened around the groups: polls as they were counted, of the rest every event."""
    few: Iterable[Row] = ()
    if told.counts["around"]:
        few = history.where(F.col("kind").isin(*_AROUND)).collect()
    return replace(surroundings(Event(**row.asDict()) for row in few), activity=told.activity)


def _cube(history: DataFrame, expectation: Expectation) -> DataFrame:
    kind = F.col("kind")
    is_frame, is_received = kind.isin(*_FRAMES), kind == Kind.RECEIVED.value
    is_ours = is_received & (F.col("message_run") == expectation.run)
    is_answered = (kind == Kind.POLL.value) & (F.col("outcome") == Outcome.OK.value)
    is_answered = is_answered & F.col("responded_at_us").isNotNull()
    received_count = _received_count()
    return history.groupBy(
        "kind",
        "outcome",
        "queue",
        "error",
        "clock_id",
        F.when(is_frame, F.col("worker")).alias("recorder"),
        F.when(is_frame, F.coalesce("task_attempt", F.lit(0))).alias("attempt"),
        F.when(is_answered, F.floor(F.col("invoked_at_us") / 1_000_000)).alias("second"),
    ).agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(is_ours).alias("received"),
        F.count_if(is_ours & (F.col("idx") < 0)).alias("ended"),
        F.count_if(is_ours & (F.col("receive_count") > 1)).alias("redelivered"),
        F.count_if(is_ours & F.col("sqs_sequence_number").isNotNull()).alias("numbered"),
        F.count_if(is_ours & F.col("md5_ok").isNotNull()).alias("summed"),
        F.count_if(is_ours & F.col("sns_message_id").isNotNull()).alias("enveloped"),
        F.count_if(F.col("call_id").isNotNull() & (F.coalesce("batch_position", F.lit(0)) == 0)).alias("called"),
        F.count_if(is_answered & (received_count > 0)).alias("served"),
        F.count_if(is_answered & (received_count == 0) & (F.col("wait_time_seconds") > 0)).alias("empty"),
        F.max(F.when(is_answered, F.col("responded_at_us"))).alias("answered_by_us"),
    )


def _received_count() -> Column:
    """Return how many messages a poll brought; the usual text is not parsed."""
    detail = F.col("detail")
    return F.when(detail == answer_detail(0), F.lit(0)).otherwise(F.get_json_object(detail, "$.received").cast("int"))


def _counts(rows: Iterable[Row], expectation: Expectation) -> dict[str, int]:
    dead = set(expectation.dead_letter_queues.values())
    undelivered = set(expectation.subscription_dead_letter_queues.values())
    counts: Counter[str] = Counter()
    for row in rows:
        kind, events = row["kind"], row["events"]
        for name in ("events", "received", "ended", "redelivered", "numbered", "summed", "enveloped"):
            counts[name] += row[name]
        counts["foreign"] += (events - row["received"]) * (kind == Kind.RECEIVED)
        counts["publishes"] += events * (kind == Kind.PUBLISHED)
        counts["deleted"] += events * (kind == Kind.DELETED and row["outcome"] == Outcome.OK)
        counts["dead"] += row["received"] * (row["queue"] in dead)
        counts["undelivered_polls"] += events * (kind == Kind.POLL and row["queue"] in undelivered)
        counts["handled"] += events * (kind == Kind.HANDLED)
        counts["faults"] += events * (kind == Kind.FAULT)
        counts["around"] += events * (kind in _AROUND)
        counts["calls"] += row["called"] * (kind in CALLS)
        counts["throttled"] += row["called"] * (kind in CALLS and is_throttled(row["error"] or ""))
    return counts


def _activity(rows: Iterable[Any]) -> dict[str, list[Activity]]:
    seconds: dict[tuple[str, int], list[Row]] = defaultdict(list)
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
