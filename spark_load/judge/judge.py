"""From a history to a verdict: clear what is clean, hand the rest to the checker, measure, decide."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice import deviations
from sluice.history.checker import (
    Expectation,
    Measured,
    QueueContext,
    RunFacts,
    Thresholds,
    check_run,
    check_thresholds,
)
from sluice.history.checker.anomalies import ANOMALIES, JUDGED, Severity
from sluice.history.checker.verdict import Property, Verdict, Violation
from sluice.history.events import Kind, Outcome
from spark_load.history.reading import read_history
from spark_load.judge.counts import CALLS, EventCounts, around, may_have_moved
from spark_load.judge.groups import findings
from spark_load.judge.measures import measures
from spark_load.judge.screening.buckets import clear
from spark_load.plan.plan import Plan

_NO_THRESHOLDS = Thresholds()
_NOTHING_ALLOWED: Mapping[str, str] = {}


def judge(
    spark: SparkSession,
    place: Path,
    *,
    plan: Plan | None,
    expectation: Expectation,
    run: Mapping[str, Any],
    unknowns: tuple[str, ...] = (),
    thresholds: Thresholds = _NO_THRESHOLDS,
    allowed: Mapping[str, str] = _NOTHING_ALLOWED,
) -> Verdict:
    """Return the verdict on a history.

    Args:
        spark: any session whose executors see the folder.
        place: folder of Parquet: settled events, columns as in `sluice.history.events`.
        plan: what was to be published; None when nobody planned it.
        expectation: what the run was set up to be.
        run: what is known of the run: `target` (key into `sluice.deviations`), `recorders` (name to the queue it
            consumes), `max_receive_count` by queue; all of it is repeated in the verdict.
        unknowns: what already went wrong while it ran.
        thresholds: what was measured is held against.
        allowed: anomalies that are lawful for the shape of this load, and why; besides the target's deviations.
    """
    expectation = replace(expectation, max_receive_count=run["max_receive_count"])
    excused = _excused(run["target"], allowed)
    looked = clear(spark, place, expectation)
    event_counts, seen = looked.counts, looked.seen
    history = read_history(spark, place)
    surrounded = around(history, event_counts)
    counts = {**event_counts.counts, **seen}
    unfinished = _unfinished(event_counts.recorded, run)
    suspects = {*looked.suspects, *may_have_moved(history, expectation, surrounded)}
    found = findings(spark, place, suspects, _provable(event_counts, expectation, run, unfinished), surrounded)
    measured = measures(seen, expectation) | {
        "groups": counts["groups"],
        "suspect_groups": len(suspects),
        "events": counts["events"],
    }
    run_facts = _run_facts(event_counts, counts, measured, plan, unfinished)
    reasons = check_run(run_facts)
    held = _measured(history, measured, counts)
    crossed = check_thresholds(held, thresholds)
    measured |= {
        "calls": {"count": held.call_count, "throttled": held.throttled_count},
        "recovered_in_seconds": dict(held.recovered_in_seconds),
    }
    opportunities = _opportunities(counts, expectation, surrounded, thresholds, has_plan=plan is not None)
    return Verdict(
        properties=tuple(
            Property(
                anomaly=anomaly.id,
                opportunities=opportunities[anomaly.id],
                violation_count=found.counts.get(anomaly.id, 0) + len(crossed.get(anomaly.id, ())),
                allowed_because=excused.get(anomaly.id),
                is_unknown=anomaly.id in reasons,
                crossed=crossed.get(anomaly.id, ()),
            )
            for anomaly in JUDGED
        ),
        violations=tuple(violation for violation in found.shown if violation.anomaly not in excused),
        unknowns=(*unknowns, *reasons.values(), *_causes(found.shown, excused), *found.unknowns),
        measures=measured,
        run={**run, "known_deviations": _known_deviations(run["target"]), "allowed": dict(allowed)},
    )


def _excused(target: str, allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the anomalies that do not count here, and why."""
    return {**_known_deviations(target), **allowed}


def _unfinished(recorded: Mapping[str, Mapping[int, bool]], run: Mapping[str, Any]) -> list[str]:
    """Return the recorders that did not finish: a journal is not there, or the last attempt's has no `closed`.

    Earlier attempts of a resumed run may lack `closed`: their intents were flushed before each publish and delete. A
    message that was received but not recorded came again, so it is in the history; the extra receive is counted in
    `lost_receives`.
    """
    last = run.get("attempts", 1) - 1

    def is_whole(attempts: Mapping[int, bool]) -> bool:
        return len(attempts) > last and all(closed for attempt, closed in attempts.items() if attempt >= last)

    return [name for name in run["recorders"] if not is_whole(recorded.get(name, {}))]


def _provable(
    event_counts: EventCounts, expectation: Expectation, run: Mapping[str, Any], unfinished: list[str]
) -> Expectation:
    """Return the expectation with what this history cannot prove left out of it."""
    unproven = {
        queue: f"whose recorder {name} did not finish"
        for name, queue in run["recorders"].items()
        if name in unfinished and queue is not None
    }
    lost = Counter(event_counts.unanswered_receives)
    for name, attempts in event_counts.recorded.items():
        if name not in unfinished and (queue := run["recorders"].get(name)) is not None:
            lost[queue] += sum(not closed for closed in attempts.values())
    for queue, count in lost.items():
        # Enough lost answers can use a message's receives up without a trace: it is then in the DLQ, unseen.
        if count >= run["max_receive_count"].get(queue, 1):
            unproven[queue] = f"where {count} receives were not answered"
    if event_counts.counts["foreign"]:
        unproven = dict.fromkeys(expectation.queues, "which others used as well")
    is_recorded = not any(run["recorders"][name] is None for name in unfinished)
    return replace(
        expectation,
        unproven_queues={**expectation.unproven_queues, **unproven},
        lost_receives=lost,
        is_publishing_recorded=expectation.is_publishing_recorded and is_recorded,
    )


def _causes(violations: tuple[Violation, ...], excused: Mapping[str, str]) -> list[str]:
    """Return why the run itself was at fault, in what was found in its groups."""
    return [
        f"{violation.anomaly} in group {violation.message_group_id}: {violation.sentence}"
        for violation in violations
        if ANOMALIES[violation.anomaly].severity is Severity.HARNESS and violation.anomaly not in excused
    ]


def _known_deviations(target: str) -> dict[str, str]:
    return {anomaly: str(why) for anomaly, why in deviations.ANOMALIES.get(target, {}).items()}


# --- what was counted ------------------------------------------------------------------------------------------------


def _is(kind: Kind, outcome: Outcome | None = None) -> Any:
    column = F.col("kind") == kind.value
    return column if outcome is None else column & (F.col("outcome") == outcome.value)


def _opportunities(
    counts: Mapping[str, int],
    expectation: Expectation,
    surrounded: QueueContext,
    thresholds: Thresholds,
    *,
    has_plan: bool,
) -> dict[str, int]:
    """Return how often each anomaly could have happened, anomaly id to count. In doubt rather too few.

    What this history cannot tell had no opportunity: without end markers nothing was drained, without a plan nothing
    was meant to be, without a visibility timeout nothing was held, and what nobody recorded may have been published.
    """
    of_count = {
        "acked": "A2 C5",
        "received": "A6 B6 B8 E2 G1 G3",
        "unanswered": "A7 C6",
        "repeated": "B1 B5",
        "repeated_late": "B2",
        "later": "C1 D5",
        "shared": "C2",
        "redelivered": "C3",
        "numbered": "C4",
        "dead": "D4 F1 F4 F5 F6 F7 F12",
        "undelivered_polls": "E4",
        "summed": "G2",
        "enveloped": "G4",
        "handled": "R2 R3",
    }
    is_timed = set(expectation.queues) <= set(expectation.visibility_timeout_seconds)
    empty = sum(activity.empty_count for seconds in surrounded.activity.values() for activity in seconds)
    judged = {anomaly: counts[name] for name, anomalies in of_count.items() for anomaly in anomalies.split()}
    judged |= dict.fromkeys(("F8", "F9", "F10", "F11"), min(counts["dead"], len(surrounded.moves)))
    return judged | {
        "A1": counts["acked"] if counts["ended"] else 0,
        "A3": counts["received"] if counts["ended"] else 0,
        "A4": counts["received"] if expectation.is_publishing_recorded else 0,
        "A8": counts["deleted"] if is_timed else 0,
        "B7": counts["received"] if is_timed else 0,
        "D1": counts["later"] if is_timed else 0,
        "D2": counts["later"] if is_timed else 0,
        "R4": counts["handled"] if is_timed else 0,
        "A5": counts["refused"] if expectation.is_publishing_recorded else 0,
        "B3": counts["repeated_late"] if counts["ended"] else 0,
        "C7": counts["acked"] if expectation.is_planned else 0,
        "E1": counts["acked"] if counts["ended"] and len(expectation.queues) > 1 else 0,
        "D3": _if(expectation.passed_over_seconds_max, counts["later"]),
        "E3": _if(expectation.fan_out_skew_seconds_max, counts["acked"]),
        "E5": len(surrounded.faults),
        "F2": counts["received"] if expectation.max_receive_count else 0,
        "F3": counts["redelivered"] if surrounded.empty_since_us else 0,
        "H1": _if(expectation.stuck_seconds_max, counts["later"]),
        "H2": empty,
        "H3": _if(thresholds.latency_seconds_max, counts["received"]),
        "H4": _if(thresholds.drain_seconds_max, len(expectation.queues)),
        "H5": _if(thresholds.recovery_seconds_max, counts["faults"]),
        "H6": _if(thresholds.throttled_share_max, counts["calls"]),
        "H7": counts["publishes"] if has_plan else 0,
        "R1": counts["handled"] if expectation.effects_recorded else 0,
    }


def _if(threshold: float | None, count: int) -> int:
    """Return the count where there is a threshold: nothing else was judged."""
    return 0 if threshold is None else count


def _recoveries(history: DataFrame) -> dict[str, float]:
    """Return each fault, by when it began, to how long after its end the first call was answered ok."""
    faults = history.where(_is(Kind.FAULT) & F.col("responded_at_us").isNotNull())
    ended = faults.select("queue", "invoked_at_us", F.col("responded_at_us").alias("ended_at_us"))
    calls = history.where(F.col("kind").isin(*CALLS) & (F.col("outcome") == Outcome.OK.value))
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


def _measured(history: DataFrame, measured: Mapping[str, Any], counts: Mapping[str, int]) -> Measured:
    of_queue = {queue: of for queue, of in measured["queues"].items() if of["latency_us"] is not None}
    return Measured(
        latency_us={queue: of["latency_us"]["p99"] for queue, of in of_queue.items()},
        drained_in_seconds={queue: of["drain_seconds"] for queue, of in of_queue.items() if of["drain_seconds"]},
        recovered_in_seconds=_recoveries(history) if counts["faults"] else {},
        call_count=counts["calls"],
        throttled_count=counts["throttled"],
    )


def _run_facts(
    event_counts: EventCounts,
    counts: Mapping[str, int],
    measured: Mapping[str, Any],
    plan: Plan | None,
    unfinished: list[str],
) -> RunFacts:
    lateness = measured["lateness_us"] if plan is not None else None
    return RunFacts(
        published_count=counts["acked"],
        received_count=counts["received"],
        foreign_count=counts["foreign"],
        lateness_p99_us=None if lateness is None else lateness["p99"],
        lateness_budget_us=0 if plan is None else round(plan.profile.lateness_budget_seconds * 1e6),
        unclosed_journals=tuple(unfinished),
        unpublished_count=0 if plan is None else plan.row_count - counts["acked"],
        failed_calls=event_counts.failed_calls,
        clock_count=len(event_counts.clocks),
    )
