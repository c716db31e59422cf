"""From a history to a verdict: clear lawful groups by screening, check the others, measure, decide."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice import deviations
from sluice.clock import utc
from sluice.errors import HistoryError
from sluice.history.events import detail_of
from sluice.judge.checker import (
    Expectation,
    MeasuredValues,
    QueueContext,
    RunCounts,
    Thresholds,
    check_run,
    check_thresholds,
    open_thresholds,
    queue_context,
)
from sluice.judge.checker.anomalies import ANOMALIES, JUDGED, Anomaly, Severity
from sluice.judge.checker.clocks import NEVER_US
from sluice.judge.checker.verdict import Property, Verdict, Violation
from sluice.judge.counts import EventCounts
from sluice.judge.engine import JudgeEngine, Recovery
from sluice.judge.screening.measures import COUNTED, measures
from sluice.judge.timing import ClockTimings, with_clock_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMessages:
    """Messages that were to be published: end markers are counted as messages."""

    message_count: int
    lateness_budget_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts of one run, or one recording, for the judge.

    Args:
        expectation: the declared setup; its `clock_bound_us` is the declared bound, 0 if none was declared.
        target: key into `sluice.deviations`.
        recorders: name to the queue that it consumes; None for a publisher, or if unknown.
        attempts: how often the run was begun.
        killed: names of recorders that a fault killed.
        plan: the planned messages; None without a plan.
        thresholds: the thresholds of its measures.
        allowed: anomalies that are lawful for this kind of load, with the reason; besides the target's deviations.
        unknowns: reasons for doubt that were known while it ran.
        described: further facts that the verdict repeats.
    """

    expectation: Expectation
    target: str
    recorders: Mapping[str, str | None]
    attempts: int = 1
    killed: tuple[str, ...] = ()
    plan: PlannedMessages | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    allowed: Mapping[str, str] = field(default_factory=dict)
    unknowns: tuple[str, ...] = ()
    described: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limits(self) -> dict[str, float | None]:
        """Return the threshold of each anomaly that is judged only against one; None if it is not set."""
        return {
            "D3": self.expectation.passed_over_seconds_max,
            "E3": self.expectation.fan_out_skew_seconds_max,
            "H1": self.expectation.stuck_seconds_max,
            "H3": self.thresholds.latency_seconds_max,
            "H4": self.thresholds.drain_seconds_max,
            "H5": self.thresholds.recovery_seconds_max,
            "H6": self.thresholds.throttled_share_max,
        }


def judge(engine: JudgeEngine, facts: RunFacts) -> Verdict:
    """Return the verdict on the history that the engine reads."""
    expectation, thresholds = facts.expectation, facts.thresholds
    known_deviations = {anomaly: str(why) for anomaly, why in deviations.ANOMALIES.get(facts.target, {}).items()}
    excused = {**known_deviations, **facts.allowed}
    screened = engine.screen(replace(expectation, clock_bound_us=0))
    event_counts, seen = screened.counts, screened.seen
    _require_forward_clocks(event_counts)
    around = engine.around() if event_counts.counts["around"] else []
    context = replace(
        queue_context(
            around,
            queues=expectation.queues,
            dead_letter_queues=expectation.dead_letter_queues,
        ),
        activity=event_counts.activity,
        shared_ids={} if expectation.is_planned else engine.shared_ids(),
    )
    counts = {**event_counts.counts, **{name: seen.total(name) for name in COUNTED}}
    unfinished = _unfinished_recorders(event_counts.recorded, facts)
    provable = _with_provable_facts(event_counts, facts, unfinished)
    uncounted: list[str] = []
    if not expectation.is_planned and counts["redelivered"]:
        declared, provable = provable, _with_others(provable, engine.unseen_receives(provable))
        uncounted = _undeclared_others(declared, provable, context)
    timed = engine.clock_timings(provable) if len(event_counts.clocks) > 1 else ClockTimings()
    provable, clock_unknowns = with_clock_bound(provable, event_counts.clocks, timed)
    is_disturbed = bool(context.moves or context.purges)
    moved = engine.around_moves_and_purges(provable, context) if is_disturbed else ()
    unconfirmed_groups = engine.groups_with_unconfirmed_ids(provable) if counts["sent"] else ()
    suspects = {*screened.suspects, *moved, *timed.groups, *unconfirmed_groups}
    found = engine.findings(suspects, provable, context)
    measured = measures(seen, expectation) | {
        "groups": counts["groups"],
        "suspect_groups": len(suspects),
        "events": counts["events"],
    }
    run_counts = _run_counts(event_counts, counts, measured, facts.plan, unfinished)
    faults = faults_of(engine.recoveries(around) if counts["faults"] else ())
    held = _measured_values(measured, counts, faults, clock_bound_us=provable.clock_bound_us)
    reasons = check_run(run_counts) | open_thresholds(held, thresholds)
    crossed = check_thresholds(held, thresholds)
    measured |= {
        "calls": {"count": held.call_count, "throttled": held.throttled_count},
        "faults": faults,
    }
    if counts["came"] > counts["came_in"] and not counts["unsized_polls"]:
        measured |= {"bundles": {"events": counts["came"], "messages": counts["came_in"]}}
    if len(event_counts.clocks) > 1:
        known_us = provable.clock_bound_us if provable.clock_bound_us < NEVER_US else None
        measured |= {"clocks": {"count": len(event_counts.clocks), "apart_us_max": known_us}}
    counts |= {"recovered": len(held.recovered_in_seconds)}
    opportunities = _opportunities(counts, facts, context)
    return Verdict(
        properties=tuple(
            Property(
                anomaly=anomaly.id,
                opportunities=opportunities[anomaly.id],
                violation_count=found.counts.get(anomaly.id, 0) + len(crossed.get(anomaly.id, ())),
                allowed_because=excused.get(anomaly.id),
                is_unknown=anomaly.id in reasons,
                has_threshold=facts.limits.get(anomaly.id, 0.0) is not None,
                crossed=crossed.get(anomaly.id, ()),
            )
            for anomaly in JUDGED
        ),
        violations=tuple(violation for violation in found.shown if violation.anomaly not in excused),
        unknowns=(
            *facts.unknowns,
            *reasons.values(),
            *clock_unknowns,
            *uncounted,
            *_harness_faults(found.shown, excused),
            *found.unknowns,
        ),
        measures=measured,
        run={**facts.described, "known_deviations": known_deviations, "allowed": dict(facts.allowed)},
    )


def _require_forward_clocks(event_counts: EventCounts) -> None:
    if backward_count := event_counts.counts["backward"]:
        raise HistoryError(
            f"{backward_count} event(s) were answered before they were invoked: a clock was set back, and nothing is"
            " certain; record again"
        )


def _unfinished_recorders(recorded: Mapping[str, Mapping[int, bool]], facts: RunFacts) -> list[str]:
    """Return the recorders that did not finish: a journal is missing, or the last attempt's has no `closed`.

    Earlier attempts of a resumed run may lack `closed`: their intents were flushed before each publish and delete. A
    message that was received but not recorded came again, so it is in the history; the extra receive is counted in
    `lost_receives`. The same goes for the recorders of workers that a fault killed, whose effects the databases tell.
    """
    last = facts.attempts - 1

    def is_whole(attempts: Mapping[int, bool]) -> bool:
        return len(attempts) > last and all(closed for attempt, closed in attempts.items() if attempt >= last)

    return [name for name in facts.recorders if name not in facts.killed and not is_whole(recorded.get(name, {}))]


def _with_provable_facts(event_counts: EventCounts, facts: RunFacts, unfinished: list[str]) -> Expectation:
    """Return the expectation without the parts that this history cannot prove."""
    expectation = facts.expectation
    unproven = {
        queue: f"whose recorder {name} did not finish"
        for name, queue in facts.recorders.items()
        if name in unfinished and queue is not None
    }
    lost = Counter(event_counts.unanswered_receives)
    for name, attempts in event_counts.recorded.items():
        if name not in unfinished and (queue := facts.recorders.get(name)) is not None:
            lost[queue] += sum(not closed for closed in attempts.values())
    for queue, count in lost.items():
        # Enough lost answers can use a message's receives up without a trace: it is then in the DLQ, unseen.
        if count >= expectation.max_receive_count.get(queue, 1):
            unproven[queue] = f"where {count} receives were not answered"
    if event_counts.counts["foreign"]:
        unproven = dict.fromkeys(expectation.queues, "which others used as well")
    is_recorded = not any(facts.recorders[name] is None for name in unfinished)
    return replace(
        expectation,
        unproven_queues={**expectation.unproven_queues, **unproven},
        lost_receives=lost,
        is_publishing_recorded=expectation.is_publishing_recorded and is_recorded,
    )


def _with_others(expectation: Expectation, unseen: Mapping[str, int]) -> Expectation:
    """Return the expectation with other consumers on each queue whose receive counts show unrecorded receives."""
    others = {
        queue: f"where {count} receive(s) that are counted are not on record"
        for queue, count in unseen.items()
        if count
    }
    return replace(expectation, unproven_queues={**others, **expectation.unproven_queues})


def _undeclared_others(declared: Expectation, provable: Expectation, context: QueueContext) -> list[str]:
    """Return the reasons for doubt about queues whose receive counts show consumers that nobody declared.

    A message that a move task brought may count on from its earlier receives (MOV-19), which proves no other consumer.
    """
    moved_to = {move.destination for move in context.moves}
    return [
        f"{queue}, {why}: another consumer may have had its messages; record it, or say --other-consumers"
        for queue, why in provable.unproven_queues.items()
        if queue not in declared.unproven_queues and queue not in moved_to
    ]


def _harness_faults(violations: tuple[Violation, ...], excused: Mapping[str, str]) -> list[str]:
    """Return sentences about violations that the run itself caused, such as a late generator."""
    return [
        f"{violation.anomaly} in group {violation.message_group_id}: {violation.sentence}"
        for violation in violations
        if ANOMALIES[violation.anomaly].severity is Severity.HARNESS and violation.anomaly not in excused
    ]


def _opportunities(counts: Mapping[str, int], facts: RunFacts, context: QueueContext) -> dict[str, int]:
    """Return how often each anomaly could have happened, anomaly id to count.

    An anomaly that this history cannot show had no opportunity: unrecorded publishes are possible, and without a plan
    nothing was intended.
    """
    expectation = facts.expectation
    seconds = [activity for of_queue in context.activity.values() for activity in of_queue]
    count_of = {
        **counts,
        "moved": min(counts["dead"], sum(move.is_finished for move in context.moves)),
        "lossy_faults": len(context.faults),
        "empty_polls": sum(activity.empty_count for activity in seconds),
        "queues": len(expectation.queues),
    }
    is_known = {
        "ends": counts["ended"] > 0,
        "publishing": expectation.is_publishing_recorded,
        "timeouts": set(expectation.queues) <= set(expectation.visibility_timeout_seconds),
        "order": expectation.is_planned,
        "fan_out": len(expectation.queues) > 1,
        "receives": bool(expectation.max_receive_count),
        "emptied": bool(context.empty_since_us),
        "plan": facts.plan is not None,
        "effects": bool(expectation.effects_recorded),
    }

    def count(anomaly: Anomaly) -> int:
        known = is_known | {"threshold": facts.limits.get(anomaly.id) is not None}
        return count_of[anomaly.counted or ""] if all(known[what] for what in anomaly.given) else 0

    return {anomaly.id: count(anomaly) for anomaly in JUDGED}


def faults_of(recoveries: Iterable[Recovery]) -> list[dict[str, Any]]:
    """Return each fault once, in the order they began, with the seconds to its recovery in each queue or topic."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for of in sorted(recoveries, key=lambda of: (of.began_us or 0, of.ended_us, of.detail or "", of.queue)):
        detail = detail_of(of.detail)
        fault = {
            "kind": str(detail.get("kind", "fault")),
            "target": str(detail.get("target", of.queue)),
            "how": str(detail.get("how", "")),
            "began_at_us": of.began_us,
            "ended_at_us": of.ended_us,
        }
        seconds = None if of.answered_us is None else (of.answered_us - of.ended_us) / 1e6
        found.setdefault(tuple(fault.values()), fault | {"recovered_in_seconds": {}})["recovered_in_seconds"][
            of.queue
        ] = seconds
    return list(found.values())


def _time_text(at_us: int | None) -> str:
    return "an unknown time" if at_us is None else f"{utc(at_us):%H:%M:%S.%f} UTC"


def _measured_values(
    measured: Mapping[str, Any],
    counts: Mapping[str, int],
    faults: Iterable[Mapping[str, Any]],
    *,
    clock_bound_us: int,
) -> MeasuredValues:
    of_queue = {queue: of for queue, of in measured["queues"].items() if of["latency_us"] is not None}
    return MeasuredValues(
        latency_us={queue: of["latency_us"]["p99"] for queue, of in of_queue.items()},
        drained_in_seconds={queue: of["drain_seconds"] for queue, of in of_queue.items() if of["drain_seconds"]},
        recovered_in_seconds={
            f"{fault['kind']} of {fault['target']} at {_time_text(fault['began_at_us'])} in {queue}": seconds
            for fault in faults
            for queue, seconds in fault["recovered_in_seconds"].items()
            if seconds is not None
        },
        call_count=counts["calls"],
        throttled_count=counts["throttled"],
        clock_bound_us=clock_bound_us,
    )


def _run_counts(
    event_counts: EventCounts,
    counts: Mapping[str, int],
    measured: Mapping[str, Any],
    plan: PlannedMessages | None,
    unfinished: list[str],
) -> RunCounts:
    lateness = measured["lateness_us"] if plan is not None else None
    return RunCounts(
        published_count=counts["acked"],
        received_count=counts["received"],
        foreign_count=counts["foreign"],
        lateness_p99_us=None if lateness is None else lateness["p99"],
        lateness_budget_us=0 if plan is None else round(plan.lateness_budget_seconds * 1e6),
        unclosed_journals=tuple(unfinished),
        unpublished_count=0 if plan is None else plan.message_count - counts["acked"],
        failed_calls=event_counts.failed_calls,
    )
