"""The mistakes that policies on a queue's backlog are known for, each found by name, with what it does.

What is wrong is read from the policies; what it does is simulated on the traffic that shows it, beside the repaired
policy. Reported by others: https://github.com/aws/aws-cdk/issues/34072, https://github.com/aws/aws-cdk/issues/9242,
https://github.com/aws/containers-roadmap/issues/2113, https://github.com/kedacore/keda/issues/1663,
https://github.com/kedacore/keda/issues/5948, https://github.com/kedacore/keda/issues/7327.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from sluice.declaration import backlog
from sluice.declaration.backlog import SCALE_COOLDOWN_SECONDS
from sluice.declaration.metric_math import Fill, Metric, Operation, Series, Term, mapped, metric_ids
from sluice.rehearse import declared
from sluice.rehearse.model.control_loop import USUAL
from sluice.rehearse.model.policies import Policy, ScaledService, TargetTracking, Watched
from sluice.rehearse.model.scenarios import Scenario
from sluice.rehearse.model.simulation import TO_EXPRESSIONS, SimulationResult, TaskWork, simulate
from sluice.rehearse.model.traffic import RecordedTraffic

VISIBLE, IN_FLIGHT = "ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"
RUNNING = "RunningTaskCount"
_WAKE_MINUTES = 60
_OFF_BY = 0.1
_AGAIN_AND_AGAIN = 6
"""Times that tasks are taken back in hours of steady traffic, from which on it is no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake that was found.

    Args:
        name: of the kind.
        policy: the policy that has it; of the service where it is none's.
        found: what was found.
        consequence: what it does, simulated, with figures.
        repair: what to write instead.
    """

    name: str
    policy: str
    found: str
    consequence: str
    repair: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A service with what it is tried on.

    Args:
        service: as it is in the template.
        tasks: how its tasks work.
        scenarios: traffic by name.
        own: metrics of one's own, as expressions.
    """

    service: ScaledService
    tasks: TaskWork
    scenarios: Mapping[str, Scenario]
    own: Mapping[tuple[str, str], Term]

    def on(self, scenario: str, service: ScaledService | None = None) -> SimulationResult:
        """Return what comes of the service, or of another one, in that traffic."""
        tried = self.scenarios[scenario]
        return simulate(service or self.service, tried.traffic, tried.tasks, own=self.own)

    def beside(self, scenario: str, repaired: ScaledService, traffic: str | None = None) -> str:
        """Return what comes of the service in that traffic, and of the repaired one, in words."""
        return _beside(traffic or scenario.replace("-", " "), self.on(scenario), self.on(scenario, repaired))


def mistakes(tried: Tried) -> tuple[Mistake, ...]:
    """Return every mistake of a service's policies."""
    return tuple(found for rule in _RULES for found in rule(tried))


def _sources(watched: Watched, name: str) -> list[str]:
    return [id_ for id_, metric in watched.metrics.items() if metric.name == name]


def _in_flight_ignored(tried: Tried) -> Iterator[Mistake]:
    for policy in tried.service.policies:
        watched = policy.watched
        visible = _sources(watched, VISIBLE)
        if not visible or _sources(watched, IN_FLIGHT) or not _scales_in(policy):
            continue
        repaired = tried.service.exchange(policy, policy.looking_at(_with_in_flight(watched, visible[0])))
        yield Mistake(
            name="in-flight-ignored",
            policy=policy.name,
            found=f"{watched.text} counts {VISIBLE} and not {IN_FLIGHT}: work in progress looks like none",
            consequence=tried.beside("long-jobs", repaired),
            repair=f"add {IN_FLIGHT} to {VISIBLE}",
        )


def _in_flight_ignored_by_own(tried: Tried) -> Iterator[Mistake]:
    """Find the same in a metric of one's own."""
    for policy in tried.service.policies:
        for metric in policy.watched.metrics.values():
            key = (metric.namespace, metric.name)
            named = metric_ids(tried.own[key]) if key in tried.own else ()
            if "visible" not in named or "inflight" in named or not _scales_in(policy):
                continue
            both = Operation(Metric("visible"), "+", Metric("inflight"))
            repaired = mapped(tried.own[key], lambda part, both=both: both if part == Metric("visible") else part)  # type: ignore[misc]
            before, after = tried.on("long-jobs"), replace(tried, own={**tried.own, key: repaired}).on("long-jobs")
            yield Mistake(
                name="in-flight-ignored",
                policy=policy.name,
                found=f"{metric.name} is {tried.own[key].text()}: work in progress looks like none",
                consequence=_beside("long jobs", before, after),
                repair="publish visible and in-flight messages together",
            )


def _scales_in(policy: Policy) -> bool:
    if isinstance(policy, TargetTracking):
        return not policy.disables_scale_in
    return policy.adjustment_type == "ExactCapacity" or any(step.adjustment < 0 for step in policy.steps)


def _with_in_flight(watched: Watched, visible: str) -> Watched:
    in_flight = replace(watched.metrics[visible], name=IN_FLIGHT)
    both = Operation(Metric(visible), "+", Metric("notvisible"))
    term = mapped(watched.term, lambda part: both if part == Metric(visible) else part)
    return replace(watched, term=term, metrics={**watched.metrics, "notvisible": in_flight}, text=term.text())


def _filled_with_zero(tried: Tried) -> Iterator[Mistake]:
    for policy in tried.service.policies:
        watched = policy.watched
        late = [
            id_
            for id_, metric in watched.metrics.items()
            if metric.name in {RUNNING, VISIBLE, IN_FLIGHT} and _is_filled_with_zero(watched.term, id_)
        ]
        if not late:
            continue
        repeated = mapped(watched.term, _repeating)
        repaired = tried.service.exchange(policy, policy.looking_at(replace(watched, term=repeated)))
        yield Mistake(
            name="filled-with-zero",
            policy=policy.name,
            found=f"FILL({late[0]}, 0) in {watched.text}: the metric comes minutes late, and until then it counts as 0",
            consequence=tried.beside("burst", repaired, "a burst"),
            repair=f"FILL({late[0]}, REPEAT), inside FILL(…, 0) where no value at all means none",
        )


def _repeating(part: Term) -> Term:
    if not isinstance(part, Fill) or not _is_zero(part.filling) or not any(_raw(part.term)):
        return part
    return Fill(part.term, "REPEAT")


def _raw(term: Term) -> Iterator[str]:
    """Yield the id of every metric that is not filled."""
    if isinstance(term, Metric):
        yield term.id
    elif not isinstance(term, Fill):
        for part in term.terms():
            yield from _raw(part)


def _is_zero(filling: object) -> bool:
    return getattr(filling, "value", filling) == 0


def _is_filled_with_zero(term: Term, id_: str) -> bool:
    if isinstance(term, Fill) and id_ in _raw(term.term):
        return _is_zero(term.filling)
    return any(_is_filled_with_zero(part, id_) for part in term.terms())


_ONCE = RecordedTraffic(
    name="once", sent_at=np.array([610.0]), group=np.zeros(1, dtype=np.int64), lasts_minutes=_WAKE_MINUTES + 10
)
"""One message, ten minutes after the start."""


def _no_wake_from_zero(tried: Tried) -> Iterator[Mistake]:
    if tried.service.min_tasks:
        return
    outcome = simulate(_on_its_queue(tried.service), _ONCE, tried.tasks, own=tried.own)
    is_answered = any(after > before for _, before, after, _ in outcome.decisions)
    if outcome.first_task_seconds is None and not is_answered:
        yield Mistake(
            name="no-wake-from-zero",
            policy=tried.service.name,
            found="MinCapacity is 0, and no policy answers to a single message while no task runs",
            consequence=f"one message: no task within {_WAKE_MINUTES} minutes",
            repair="a step policy on an alarm over visible messages that needs no task to report, or MinCapacity 1",
        )


def _opposing_policies(tried: Tried) -> Iterator[Mistake]:
    """Find tasks that one policy starts and another one takes back before they receive, again and again."""
    if len(tried.service.policies) < 2:
        return
    before = tried.on("steady")
    started_minutes = math.ceil(tried.tasks.start_seconds / 60)
    taken_back = [
        (up, down)
        for (minute, fewer, more, up), (then, _, left, down) in pairwise(before.decisions)
        if more > fewer and left < more and up != down and then - minute <= max(1, started_minutes)
    ]
    if len(taken_back) < _AGAIN_AND_AGAIN:
        return
    (up, down), count = Counter(taken_back).most_common(1)[0]
    (policy,) = [policy for policy in tried.service.policies if policy.name == down][:1]
    yield Mistake(
        name="opposing-policies",
        policy=down,
        found=f"{up} starts tasks, and {down} takes them back before they receive",
        consequence=f"steady traffic: {count:,} times in {len(before.p95_seconds) / 60:.0f} hours; "
        + _beside("all in all", before, tried.on("steady", _on_all_work(tried.service, policy))),
        repair=f"let {down} look at {VISIBLE} and {IN_FLIGHT} together",
    )


def _on_all_work(service: ScaledService, policy: Policy) -> ScaledService:
    """Return the service with a policy that looks at visible messages and at those in flight."""
    work = Operation(backlog.repeated(backlog.VISIBLE), "+", backlog.repeated(backlog.IN_FLIGHT))
    everything = declared.watched(work, queue=service.queue_dimensions, service={})
    return service.exchange(policy, policy.looking_at(everything))


def _not_proportional(tried: Tried) -> Iterator[Mistake]:
    """Find target tracking on the messages themselves: more tasks do not bring the metric down in proportion.

    AWS: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-using-sqs-queue.html (read 2026-11-23).
    """
    tasks, service = tried.tasks, tried.service
    for policy in service.policies:
        if not isinstance(policy, TargetTracking):
            continue
        few, many, more_tasks = (
            _with_visible(policy.watched, tried.own, visible, tasks=count)
            for visible, count in ((4.0, 2.0), (8.0, 2.0), (8.0, 4.0))
        )
        if few is None or many is None or few == many or many != more_tasks:
            continue
        wanted = tasks.target_backlog
        per_task = declared.watched(backlog.backlog_per_task(), queue=service.queue_dimensions, service={})
        repaired = service.exchange(policy, replace(policy, watched=per_task, target=wanted))
        yield Mistake(
            name="not-in-proportion",
            policy=policy.name,
            found=f"{policy.watched.text} is as high with four tasks as with two, and target tracking multiplies the"
            " tasks by how many times the target it is",
            consequence=tried.beside("steady", repaired, "steady traffic"),
            repair=f"divide visible messages and those in flight by the running tasks, TargetValue {wanted:g}",
        )


def _cooldown_zero(tried: Tried) -> Iterator[Mistake]:
    blind_seconds = 60 * USUAL.lag_minutes + tried.tasks.start_seconds
    enough_seconds = max(SCALE_COOLDOWN_SECONDS, 60 * math.ceil(blind_seconds / 60))
    for policy in tried.service.policies:
        seconds = policy.scale_out_cooldown_seconds if isinstance(policy, TargetTracking) else policy.cooldown_seconds
        if seconds >= blind_seconds or not _adds_again(policy):
            continue
        if isinstance(policy, TargetTracking):
            rested: Policy = replace(policy, scale_out_cooldown_seconds=enough_seconds)
        else:
            rested = replace(policy, cooldown_seconds=enough_seconds)
        yield Mistake(
            name="cooldown-0" if seconds == 0 else "cooldown-too-short",
            policy=policy.name,
            found=f"it rests {seconds} s after scaling out, and what it did is seen after {blind_seconds:g} s or more",
            consequence=tried.beside("burst", tried.service.exchange(policy, rested), "a burst"),
            repair=f"a cooldown of {enough_seconds} s",
        )


def _adds_again(policy: Policy) -> bool:
    """Return whether it adds tasks to those it has added; one that sets a number does not."""
    if isinstance(policy, TargetTracking):
        return True
    return policy.adjustment_type != "ExactCapacity" and any(step.adjustment > 0 for step in policy.steps)


def _target_off(tried: Tried) -> Iterator[Mistake]:
    tasks = tried.tasks
    for policy in tried.service.policies:
        if not isinstance(policy, TargetTracking) or not _is_backlog_per_task(policy.watched, tried.own):
            continue
        worth_seconds = policy.target * tasks.handler_seconds / tasks.lanes
        ratio = worth_seconds / tasks.acceptable_latency_seconds
        if abs(ratio - 1) <= _OFF_BY:
            continue
        wanted = tasks.target_backlog
        repaired = tried.service.exchange(policy, replace(policy, target=wanted))
        has_no_lanes = tasks.lanes > 1 and abs(ratio * tasks.lanes - 1) <= _OFF_BY
        yield Mistake(
            name="target-without-lanes" if has_no_lanes else "target-off",
            policy=policy.name,
            found=f"TargetValue {policy.target:g} is {worth_seconds:.3g} s of work for {tasks.lanes} lanes,"
            f" declared are {tasks.acceptable_latency_seconds:g} s",
            consequence=tried.beside("steady", repaired, "steady traffic"),
            repair=f"TargetValue {wanted:g}: latency x lanes / handler time",
        )


def _is_backlog_per_task(watched: Watched, own: Mapping[tuple[str, str], Term]) -> bool:
    """Return whether two visible messages and two tasks make it 1, and four make it 2, whatever else there is."""
    return [_with_visible(watched, own, visible) for visible in (2.0, 4.0)] == [1.0, 2.0]


def _with_visible(
    watched: Watched, own: Mapping[tuple[str, str], Term], visible: float, tasks: float = 2.0
) -> float | None:
    there: dict[str, Series] = {name: [0.0] for name in TO_EXPRESSIONS.values()}
    there |= {"visible": [visible], "running": [tasks], "desired": [tasks], "age": [7.0], "cpu": [7.0]}
    series = {}
    for id_, metric in watched.metrics.items():
        key = (metric.namespace, metric.name)
        series[id_] = [own[key].value_at(there, 0)] if key in own else there.get(TO_EXPRESSIONS.get(key, ""), [None])
    return watched.term.value_at(series, 0)


def _wrong_queue(tried: Tried) -> Iterator[Mistake]:
    queue = tried.service.queue
    if queue is None:
        return
    for policy in tried.service.policies:
        others = {
            str(metric.dimensions.get("QueueName"))
            for metric in policy.watched.metrics.values()
            if metric.namespace == "AWS/SQS" and metric.dimensions.get("QueueName") != queue.name
        }
        for other in sorted(others):
            yield Mistake(
                name="wrong-queue",
                policy=policy.name,
                found=f"it looks at queue {other}, and the tasks receive from {queue.name}",
                consequence=tried.beside(
                    "steady", _on_its_queue(tried.service), "steady traffic, while that queue is empty"
                ),
                repair=f"QueueName {queue.name}",
            )


def _on_its_queue(service: ScaledService) -> ScaledService:
    """Return the service with every policy looking at the queue its tasks receive from."""
    queue = service.queue
    if queue is None:
        return service
    for policy in service.policies:
        watched = policy.watched
        metrics = {
            id_: replace(metric, dimensions={**metric.dimensions, "QueueName": queue.name})
            if metric.namespace == "AWS/SQS"
            else metric
            for id_, metric in watched.metrics.items()
        }
        service = service.exchange(policy, policy.looking_at(replace(watched, metrics=metrics)))
    return service


def _no_protection(tried: Tried) -> Iterator[Mistake]:
    service = tried.service
    if service.is_protected or service.min_tasks == service.max_tasks or not any(map(_scales_in, service.policies)):
        return
    outcome = tried.on("long-jobs")
    after = tried.on("long-jobs", replace(tried.service, is_protected=True))
    seconds = tried.scenarios["long-jobs"].tasks.handler_seconds
    yield Mistake(
        name="scale-in-without-protection",
        policy=tried.service.name,
        found="the tasks may not call ecs:UpdateTaskProtection: scaling in stops tasks at work",
        consequence=f"handlers of {seconds:g} s: {outcome.killed} messages cut short and delivered again;"
        f" protected: {after.killed}",
        repair="allow ecs:UpdateTaskProtection, and protect a task while it works on messages",
    )


def _beside(traffic: str, before: SimulationResult, after: SimulationResult) -> str:
    return f"{traffic}: {_in_short(before)}; repaired: {_in_short(after)}"


def _in_short(outcome: SimulationResult) -> str:
    p95 = outcome.quantile_seconds(0.95)
    seconds = "nothing handled" if p95 is None or math.isinf(p95) else f"p95 {p95:,.0f} s"
    turns = f", turned round {outcome.flaps} times" if outcome.flaps else ""
    return f"{seconds}, {outcome.task_hours:,.1f} task-hours, at most {outcome.most_tasks} tasks{turns}"


_RULES = (
    _not_proportional,
    _opposing_policies,
    _in_flight_ignored,
    _in_flight_ignored_by_own,
    _filled_with_zero,
    _no_wake_from_zero,
    _cooldown_zero,
    _target_off,
    _wrong_queue,
    _no_protection,
)
