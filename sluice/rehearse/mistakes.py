"""The known mistakes of policies on a queue's backlog, each found by name, with its effect.

A mistake is read from the policies. Its effect is simulated on traffic that shows it, and compared with the repaired
policy. Reported by others: https://github.com/aws/aws-cdk/issues/34072, https://github.com/aws/aws-cdk/issues/9242,
https://github.com/aws/aws-cdk/issues/20706, https://github.com/aws/copilot-cli/issues/3376,
https://github.com/mapbox/ecs-watchbot/issues/261, https://github.com/aws/containers-roadmap/issues/2113,
https://github.com/kedacore/keda/issues/1663, https://github.com/kedacore/keda/issues/5948,
https://github.com/kedacore/keda/issues/7327.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from sluice.declaration import backlog
from sluice.declaration.backlog import SCALE_COOLDOWN_SECONDS
from sluice.declaration.metric_math import Operation, Term, metric_ids
from sluice.rehearse import declared_service
from sluice.rehearse.experiment import (
    IN_FLIGHT,
    VISIBLE,
    Experiment,
    Mistake,
    comparison,
    scales_in,
    scales_out,
    value_with,
    with_own_metrics,
)
from sluice.rehearse.model.control_loop import USUAL
from sluice.rehearse.model.policies import MetricExpression, ScaledService, ScalingPolicy, StepScaling, TargetTracking
from sluice.rehearse.model.scenarios import per_second
from sluice.rehearse.model.simulation import SimulationResult, TaskWork, simulate
from sluice.rehearse.model.traffic import RecordedTraffic
from sluice.rehearse.watching import WATCHING

_WAKE_MINUTES = 60  # within this time after the only message a task must have started
_TARGET_TOLERANCE = 0.1  # a target may differ from the right one by this share
_SILENCE_MINUTES, _PEAK_MESSAGES_MAX = 180, 50_000
_TURNS_MIN = 6
"""The least number of scale-ins during some hours of calm traffic that counts as a mistake, not as chance."""
_SOON_MINUTES = 30  # tasks stopped within this time of their start, with work left, were stopped too early
_MUCH_LATER_FACTOR = 1.5  # a repair that multiplies a latency by more than this makes messages much later
_GAIN_SHARE_MAX = 0.9
"""A repair gains something if it reduces the task-hours, or the latency, to less than this share."""
_WORK_SERIES = {"visible", "inflight", "age", "empty", "received", "sent", "done"}
_CALM_TRAFFIC = {"steady": "steady traffic", "day": "a day's traffic"}
"""Traffic without jumps, in words: scaling has no reason to start and stop tasks repeatedly on it."""


def mistakes(tried: Experiment) -> tuple[Mistake, ...]:
    """Return every mistake of a service's policies; a Lambda function has none, as it has no policies."""
    if tried.service.mapping is not None:
        return ()
    watching = [found for rule in WATCHING for found in rule(tried)]
    others = [found for rule in _RULES for found in rule(tried)]
    return (*watching, *others, *_find_missing_scale_in(tried, is_explained=bool(watching)))


_SINGLE_MESSAGE = RecordedTraffic(
    name="once", sent_at=np.array([610.0]), group=np.zeros(1, dtype=np.int64), lasts_minutes=_WAKE_MINUTES + 10
)
"""Traffic of a single message, ten minutes after the start."""


def _find_missing_wake_from_zero(tried: Experiment) -> Iterator[Mistake]:
    """Find a service that may have no tasks and whose policies start none for a single message."""
    if tried.service.min_tasks:
        return
    outcome = simulate(with_own_metrics(tried.service), _SINGLE_MESSAGE, tried.tasks, own=tried.own)
    is_answered = any(after > before for _, before, after, _ in outcome.decisions)
    if outcome.first_task_seconds is None and not is_answered:
        yield Mistake(
            name="no-wake-from-zero",
            policy=tried.service.name,
            found="MinCapacity is 0, and no policy answers to a single message while no task runs",
            consequence=f"one message: no task within {_WAKE_MINUTES} minutes",
            repair="a step policy on an alarm over visible messages that needs no task to report, or MinCapacity 1",
        )


def _find_missing_scale_in(tried: Experiment, *, is_explained: bool) -> Iterator[Mistake]:
    """Find a service that keeps all tasks that its highest peak has started.

    AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-autoscaling-targettracking.html (read
    2026-11-27): without data target tracking does not scale in, and of several policies all that may have to be ready.

    Args:
        tried: the service.
        is_explained: whether another mistake explains it already: then only policies that may never scale in are named.
    """
    service = tried.service
    may_scale_in = any(map(scales_in, service.policies))
    if service.min_tasks == service.max_tasks or (may_scale_in and is_explained):
        return
    peak = _peak_traffic(tried)
    outcome = simulate(with_own_metrics(service), peak, tried.tasks, own=tried.own)
    if outcome.most_tasks == service.min_tasks or any(after < before for _, before, after, _ in outcome.decisions):
        return
    enabled = tuple(
        replace(each, disables_scale_in=False) if isinstance(each, TargetTracking) else each
        for each in service.policies
    )
    is_disabled = enabled != service.policies
    repaired = replace(
        service, policies=enabled if is_disabled else (*enabled, _busy_lanes_policy(tried)), has_insights=True
    )
    hours = _SILENCE_MINUTES // 60
    yield Mistake(
        name="never-scales-in",
        policy=", ".join(policy.name for policy in service.policies),
        found="no policy ever takes tasks away"
        if not may_scale_in
        else f"{hours} hours after a peak no policy has taken a task away",
        consequence=f"a peak, then silence: {outcome.series['desired'][-1]:g} tasks run {hours} hours later; "
        + tried.comparison("day", repaired, _CALM_TRAFFIC["day"]),
        repair="leave DisableScaleIn out" if is_disabled else "let one policy look at all work, and scale in by it",
    )


def _peak_traffic(tried: Experiment) -> RecordedTraffic:
    """Return traffic of a peak that needs many more tasks than the fewest, then of hours of silence."""
    tasks, fewest = tried.tasks, tried.service.min_tasks
    seconds = max(600.0, 2 * tasks.acceptable_latency_seconds)
    count = min(_PEAK_MESSAGES_MAX, math.ceil(per_second(tasks, 3.0 * (fewest + 1)) * seconds))
    alarm_seconds = [
        policy.alarm.period_seconds * policy.alarm.evaluation_periods
        for policy in tried.service.policies
        if isinstance(policy, StepScaling)
    ]
    work_seconds = 3 * (fewest + 1) / max(1, fewest) * seconds
    return RecordedTraffic(
        name="peak",
        sent_at=np.linspace(600, 600 + seconds, count),
        group=np.arange(count, dtype=np.int64),
        lasts_minutes=math.ceil((600 + seconds + work_seconds + 2 * max(alarm_seconds, default=0)) / 60)
        + _SILENCE_MINUTES,
    )


def _find_opposing_policies(tried: Experiment) -> Iterator[Mistake]:
    """Find tasks that one policy starts and another policy stops, again and again, while there is work for them."""
    if len(tried.service.policies) < 2:
        return
    for traffic in _CALM_TRAFFIC:
        before = tried.result_on(traffic)
        taken_back = _tasks_stopped_early(before, tried.tasks)
        if len(taken_back) >= _TURNS_MIN:
            break
    else:
        return
    (up, down), count = Counter(taken_back).most_common(1)[0]
    policy = next(policy for policy in tried.service.policies if policy.name == down)
    if isinstance(policy, StepScaling):
        repaired, repair = (
            _watching_all_work(tried.service, policy),
            f"let {down} look at {VISIBLE} and {IN_FLIGHT} together",
        )
    else:
        others = tuple(each for each in tried.service.policies if each is not policy)
        repaired, repair = replace(tried.service, policies=others), f"remove {down}, or let one policy do both"
    yield Mistake(
        name="opposing-policies",
        policy=down,
        found=f"{up} starts tasks, and {down} takes them back while messages wait for them",
        consequence=f"{_CALM_TRAFFIC[traffic]}: {count:,} times in {len(before.p95_seconds) / 60:.0f} hours; "
        + comparison("all in all", before, tried.result_on(traffic, repaired)),
        repair=repair,
    )


def _tasks_stopped_early(outcome: SimulationResult, tasks: TaskWork) -> list[tuple[str, str]]:
    """Return (starting, stopping policy) of tasks stopped before they receive, or soon and with work left."""
    starting_minutes = max(1, math.ceil(tasks.start_seconds / 60))
    return [
        (up, down)
        for (minute, fewer, more, up), (then, _, left, down) in pairwise(outcome.decisions)
        if more > fewer and left < more and up != down
        if then - minute <= starting_minutes
        or (then - minute <= _SOON_MINUTES and (outcome.series["visible"][then] or 0) > left * tasks.lanes)
    ]


def _find_flapping(tried: Experiment) -> Iterator[Mistake]:
    """Find tasks that are started and stopped again on calm traffic, and whose absence makes messages late."""
    tasks, service = tried.tasks, tried.service
    for traffic in _CALM_TRAFFIC:
        before = tried.result_on(traffic)
        is_late = (before.quantile_seconds(0.95) or 0) > tasks.acceptable_latency_seconds
        if before.flaps >= _TURNS_MIN and is_late:
            break
    else:
        return
    if len(_tasks_stopped_early(before, tasks)) >= _TURNS_MIN:
        return
    steady = _busy_lanes_policy(tried)
    waking = tuple(each for each in service.policies if isinstance(each, StepScaling) and not scales_in(each))
    after = tried.result_on(traffic, replace(service, policies=(steady, *waking), has_insights=True))
    repaired_p95 = after.quantile_seconds(0.95)
    if repaired_p95 is None or repaired_p95 > tasks.acceptable_latency_seconds:
        return
    yield Mistake(
        name="flapping",
        policy=Counter(because for *_, because in before.decisions).most_common(1)[0][0],
        found=f"{_CALM_TRAFFIC[traffic]}, and scaling turns round {before.flaps} times in"
        f" {len(before.p95_seconds) / 60:.0f} hours: tasks that keep up with their work are taken away,"
        " and late when they come back",
        consequence=comparison(_CALM_TRAFFIC[traffic], before, after),
        repair=f"let busy lanes count: target tracking on {steady.watched.text}, TargetValue {steady.target:g}",
    )


def _busy_lanes_policy(tried: Experiment) -> TargetTracking:
    """Return target tracking on the messages that wait and those in work, per task, which repairs propose."""
    tasks, service = tried.tasks, tried.service
    term = backlog.demand_per_task(tasks.target_backlog, lanes=tasks.lanes, processing_seconds=tasks.handler_seconds)
    watched = declared_service.metric_expression(term, queue=service.queue_dimensions, service=service.dimensions)
    return TargetTracking(name="busy lanes", watched=watched, target=tasks.target_backlog)


def _find_queue_not_watched(tried: Experiment) -> Iterator[Mistake]:
    """Find a service without a policy on its queue: tasks that wait for other services are no busier with a backlog.

    https://github.com/aws/aws-cdk/issues/20706 reports this for CPU.
    """
    service = tried.service
    starting = [policy for policy in service.policies if scales_out(policy)]
    if not starting or any(_sees_work(policy.watched, tried.own) for policy in starting):
        return
    repaired = replace(service, policies=(_busy_lanes_policy(tried),), has_insights=True)
    yield Mistake(
        name="queue-not-watched",
        policy=", ".join(policy.name for policy in starting),
        found="no policy that starts tasks looks at the queue's messages: a backlog is not seen where handlers wait for"
        " others",
        consequence=tried.comparison("day", repaired, _CALM_TRAFFIC["day"]),
        repair="target tracking on the backlog per task",
    )


def _sees_work(watched: MetricExpression, own: Mapping[tuple[str, str], Term]) -> bool:
    """Return whether an expression contains a metric of the queue's messages."""
    names = {metric.name for metric in watched.metrics.values() if metric.namespace == "AWS/SQS"}
    own_names = [own[key] for metric in watched.metrics.values() if (key := (metric.namespace, metric.name)) in own]
    return bool(names) or any({*metric_ids(term)} & _WORK_SERIES for term in own_names)


def _watching_all_work(service: ScaledService, policy: ScalingPolicy) -> ScaledService:
    """Return the service with this policy changed to watch visible messages and messages in flight together."""
    work = Operation(backlog.fill_with_repeat(backlog.VISIBLE), "+", backlog.fill_with_repeat(backlog.IN_FLIGHT))
    everything = declared_service.metric_expression(work, queue=service.queue_dimensions, service=service.dimensions)
    return service.exchange(policy, policy.with_watched(everything))


def _find_short_cooldowns(tried: Experiment) -> Iterator[Mistake]:
    """Find policies that add tasks again before the metric shows the effect of those that they added before."""
    blind_seconds = 60 * USUAL.lag_minutes + tried.tasks.start_seconds
    enough_seconds = max(SCALE_COOLDOWN_SECONDS, 60 * math.ceil(blind_seconds / 60))
    for policy in tried.service.policies:
        seconds = policy.scale_out_cooldown_seconds if isinstance(policy, TargetTracking) else policy.cooldown_seconds
        if seconds >= blind_seconds or not _adds_tasks_each_time(policy):
            continue
        if isinstance(policy, TargetTracking):
            slower: ScalingPolicy = replace(policy, scale_out_cooldown_seconds=enough_seconds)
        else:
            slower = replace(policy, cooldown_seconds=enough_seconds)
        repaired = tried.service.exchange(policy, slower)
        burst, day = ((tried.result_on(traffic), tried.result_on(traffic, repaired)) for traffic in ("burst", "day"))
        if _makes_messages_late(*burst, tried.tasks) and not any(
            after.task_hours < _GAIN_SHARE_MAX * before.task_hours for before, after in (burst, day)
        ):
            continue
        yield Mistake(
            name="cooldown-0" if seconds == 0 else "cooldown-too-short",
            policy=policy.name,
            found=f"its cooldown after scaling out is {seconds} s, but metrics show it {blind_seconds:g} s later",
            consequence=f"{comparison('a burst', *burst)}; {comparison(_CALM_TRAFFIC['day'], *day)}",
            repair=f"a cooldown of {enough_seconds} s",
        )


def _makes_messages_late(before: SimulationResult, after: SimulationResult, tasks: TaskWork) -> bool:
    """Return whether the repaired service is late, and much later than the service without the repair."""
    was, made = (outcome.quantile_seconds(0.95) or 0.0 for outcome in (before, after))
    return made > tasks.acceptable_latency_seconds and made > _MUCH_LATER_FACTOR * was


def _adds_tasks_each_time(policy: ScalingPolicy) -> bool:
    """Return whether a policy adds tasks each time it acts; one that sets the number of tasks does not."""
    if isinstance(policy, TargetTracking):
        return True
    return policy.adjustment_type != "ExactCapacity" and any(step.adjustment > 0 for step in policy.steps)


def _find_wrong_target(tried: Experiment) -> Iterator[Mistake]:
    """Find target tracking on the backlog per task whose target is not what the declared latency allows."""
    tasks = tried.tasks
    for policy in tried.service.policies:
        if not isinstance(policy, TargetTracking) or not _is_backlog_per_task(policy.watched, tried.own):
            continue
        worth_seconds = policy.target * tasks.handler_seconds / tasks.lanes
        ratio = worth_seconds / tasks.acceptable_latency_seconds
        if abs(ratio - 1) <= _TARGET_TOLERANCE:
            continue
        wanted = tasks.target_backlog
        repaired = tried.service.exchange(policy, replace(policy, target=wanted))
        has_no_lanes = tasks.lanes > 1 and abs(ratio * tasks.lanes - 1) <= _TARGET_TOLERANCE
        yield Mistake(
            name="target-without-lanes" if has_no_lanes else "target-off",
            policy=policy.name,
            found=f"TargetValue {policy.target:g} is {worth_seconds:.3g} s of work for {tasks.lanes} lanes,"
            f" declared are {tasks.acceptable_latency_seconds:g} s",
            consequence=tried.comparison("steady", repaired, "steady traffic"),
            repair=f"TargetValue {wanted:g}: latency x lanes / handler time",
        )


def _is_backlog_per_task(watched: MetricExpression, own: Mapping[tuple[str, str], Term]) -> bool:
    """Return whether an expression is visible messages per task, by its values for two tasks."""
    return [value_with(watched, own, visible, tasks=2.0) for visible in (2.0, 4.0)] == [1.0, 2.0]


def _find_gaps_between_steps(tried: Experiment) -> Iterator[Mistake]:
    """Find step policies with a range of distances from the alarm's threshold that no step covers.

    AWS: https://docs.aws.amazon.com/autoscaling/application/APIReference/API_StepAdjustment.html (read 2026-11-26):
    ranges have neither gaps nor overlaps.
    """
    for policy, ranges in _step_ranges(tried):
        low, high = (0.0, math.inf) if policy.alarm.comparison.startswith("Greater") else (-math.inf, 0.0)
        ends = [low, *(upper for lower, upper in ranges if upper > low and lower < high)]
        starts = [*(lower for lower, upper in ranges if upper > low and lower < high), high]
        gaps = [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]
        if gaps:
            end, start = gaps[0]
            yield Mistake(
                name="steps-with-gaps",
                policy=policy.name,
                found=f"no step says what to do from {end:g} to {start:g} beyond {policy.alarm.name}'s threshold of"
                f" {policy.alarm.threshold:g}",
                consequence="nothing is scaled while the metric is there, and AWS refuses such a policy",
                repair=f"a step from {end:g} to {start:g}",
            )


def _step_ranges(tried: Experiment) -> Iterator[tuple[StepScaling, list[tuple[float, float]]]]:
    """Yield each step policy with the lower and upper ends of its steps, in their order."""
    for policy in tried.service.policies:
        if isinstance(policy, StepScaling):
            yield (
                policy,
                sorted(
                    (-math.inf if step.lower is None else step.lower, math.inf if step.upper is None else step.upper)
                    for step in policy.steps
                ),
            )


def _find_unbounded_steps(tried: Experiment) -> Iterator[Mistake]:
    """Find step policies with a step that has neither a lower nor an upper bound.

    AWS: https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html (read
    2026-11-27): the bounds of a step cannot both be null.
    """
    for policy in tried.service.policies:
        if isinstance(policy, StepScaling) and any(step.lower is step.upper is None for step in policy.steps):
            is_above = policy.alarm.comparison.startswith("Greater")
            yield Mistake(
                name="step-without-bounds",
                policy=policy.name,
                found="a step has neither MetricIntervalLowerBound nor MetricIntervalUpperBound",
                consequence="AWS refuses such a policy",
                repair=f"MetricInterval{'Lower' if is_above else 'Upper'}Bound 0",
            )


def _find_overlapping_steps(tried: Experiment) -> Iterator[Mistake]:
    """Find step policies with a range of distances from the alarm's threshold that two steps cover."""
    for policy, ranges in _step_ranges(tried):
        doubled = [(start, end) for (_, end), (start, _) in pairwise(ranges) if start < end]
        if doubled:
            start, end = doubled[0]
            yield Mistake(
                name="steps-overlap",
                policy=policy.name,
                found=f"two steps say what to do from {start:g} to {end:g} beyond {policy.alarm.name}'s threshold of"
                f" {policy.alarm.threshold:g}",
                consequence="AWS refuses such a policy",
                repair=f"let one step end, and the next begin, between {start:g} and {end:g}",
            )


def _find_wrong_direction(tried: Experiment) -> Iterator[Mistake]:
    """Find a policy that adds tasks when there is less to do, or stops tasks when there is more.

    AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-autoscaling-targettracking.html (read
    2026-11-27): target tracking scales out above its target, and cannot below.
    """
    for policy in tried.service.policies:
        idle = value_with(policy.watched, tried.own, 0.0, age=0.0, empty=60.0)
        busy = value_with(policy.watched, tried.own, 1_000.0, age=1_000.0, in_flight=2.0 * tried.tasks.lanes)
        if idle is None or busy is None or idle == busy:
            continue
        rises = 1 if busy > idle else -1
        if isinstance(policy, TargetTracking):
            is_wrong = rises < 0
        else:
            is_above = policy.alarm.comparison.startswith("Greater")
            changes = [] if policy.adjustment_type == "ExactCapacity" else [step.adjustment for step in policy.steps]
            is_wrong = any(change * rises * (1 if is_above else -1) < 0 for change in changes)
        if is_wrong:
            repaired = replace(tried.service, policies=(_busy_lanes_policy(tried),), has_insights=True)
            yield Mistake(
                name="wrong-way",
                policy=policy.name,
                found=f"{policy.watched.text} is {idle:g} with nothing to do and {busy:g} with a full queue: the policy"
                " adds tasks where there is less to do, or takes them away where there is more",
                consequence=tried.comparison("steady", repaired, _CALM_TRAFFIC["steady"]),
                repair="a metric that rises with the work, such as the backlog per task",
            )


def _find_same_metric_twice(tried: Experiment) -> Iterator[Mistake]:
    """Find two target tracking policies of one service on one metric.

    AWS: the same page: several are possible as long as each uses another metric.
    """
    tracking = [policy for policy in tried.service.policies if isinstance(policy, TargetTracking)]
    for place, policy in enumerate(tracking):
        other = next((each for each in tracking[:place] if each.watched == policy.watched), None)
        if other is not None:
            low, high = sorted((other.target, policy.target))
            yield Mistake(
                name="same-metric-twice",
                policy=policy.name,
                found=f"{other.name} tracks {policy.watched.text} as well: each policy needs a metric of its own",
                consequence=f"tasks are added above {low:g}, and none is taken away before both allow it; the target"
                f" {high:g} means nothing",
                repair=f"remove {policy.name}, or {other.name}",
            )


def _find_slow_metrics(tried: Experiment) -> Iterator[Mistake]:
    """Find step policies that scale out late: by data points of more than a minute, or by many of them.

    AWS: https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html and
    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/service-configure-auto-scaling.html (read 2026-11-27):
    metrics with an interval of one minute, and a low number of periods, are recommended.
    """
    for policy in tried.service.policies:
        if not isinstance(policy, StepScaling) or not scales_out(policy):
            continue
        alarm = policy.alarm
        if alarm.period_seconds <= 60 and alarm.datapoints_to_alarm <= USUAL.high_minutes:
            continue
        few = min(alarm.datapoints_to_alarm, USUAL.high_minutes)
        prompt = replace(alarm, period_seconds=60, evaluation_periods=few, datapoints_to_alarm=few)
        repaired = tried.service.exchange(policy, replace(policy, alarm=prompt))
        before, after = tried.result_on("steady"), tried.result_on("steady", repaired)
        was, made = (outcome.quantile_seconds(0.95) or 0.0 for outcome in (before, after))
        if was > tried.tasks.acceptable_latency_seconds and made < _GAIN_SHARE_MAX * was:
            yield Mistake(
                name="slow-metric",
                policy=policy.name,
                found=f"{alarm.name} has a data point each {alarm.period_seconds} s, of which it needs"
                f" {alarm.datapoints_to_alarm}",
                consequence=comparison(_CALM_TRAFFIC["steady"], before, after),
                repair=f"Period 60, EvaluationPeriods {few}",
            )


def _find_fixed_desired_count(tried: Experiment) -> Iterator[Mistake]:
    """Find a DesiredCount beside policies: each update of the service resets the number that scaling has chosen.

    https://github.com/aws/aws-cdk/pull/13130 (read 2026-11-26).
    """
    service, count = tried.service, tried.service.desired_count
    if count is None or not service.policies:
        return
    most = tried.result_on("steady").most_tasks
    if not most <= count <= service.max_tasks:
        yield Mistake(
            name="desired-count",
            policy=service.name,
            found=f"DesiredCount is {count} in the template of a service that scales from {service.min_tasks} to"
            f" {service.max_tasks}",
            consequence=f"steady traffic takes up to {most} tasks; an update of the service leaves {count}",
            repair="leave DesiredCount out",
        )


def _find_short_visibility_timeout(tried: Experiment) -> Iterator[Mistake]:
    """Find a visibility timeout that ends while a handler works, for tasks that have no right to extend it.

    AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html (read
    2026-11-27): it should be as long as a message takes at most, or be extended meanwhile.
    """
    queue, seconds = tried.service.queue, tried.tasks.handler_seconds
    if queue is None or not queue.is_in_template or seconds < queue.visibility_timeout_seconds:
        return
    if tried.service.can_extend:
        return
    again = "every message comes again while it is worked on, and its delete comes too late"
    most = queue.max_receive_count
    yield Mistake(
        name="timeout-too-short",
        policy=tried.service.name,
        found=f"a handler works for {seconds:g} s, the visibility timeout of {queue.name} is"
        f" {queue.visibility_timeout_seconds} s, and the tasks may not call sqs:ChangeMessageVisibility",
        consequence=again if most is None else f"{again}; after {most} receives it is dead-lettered, handled or not",
        repair=f"a VisibilityTimeout of more than {math.ceil(seconds)} s, or the right to extend it while a task works",
    )


def _find_missing_protection(tried: Experiment) -> Iterator[Mistake]:
    """Find a service that stops tasks at work, because they may not protect themselves from scaling in."""
    service = tried.service
    is_safe = service.is_protected or service.may_be_protected
    if is_safe or service.min_tasks == service.max_tasks or not any(map(scales_in, service.policies)):
        return
    outcome = tried.result_on("long-jobs")
    after = tried.result_on("long-jobs", replace(tried.service, is_protected=True))
    seconds = tried.scenarios["long-jobs"].tasks.handler_seconds
    yield Mistake(
        name="scale-in-without-protection",
        policy=tried.service.name,
        found="the tasks may not call ecs:UpdateTaskProtection: scaling in stops tasks at work",
        consequence=f"handlers of {seconds:g} s: {outcome.killed} messages cut short and delivered again;"
        f" protected: {after.killed}"
        if outcome.killed
        else f"handlers of {seconds:g} s: none was cut short here, where nothing was scaled in at work",
        repair="allow ecs:UpdateTaskProtection, and protect a task while it works on messages",
    )


_RULES = (
    _find_opposing_policies,
    _find_flapping,
    _find_queue_not_watched,
    _find_missing_wake_from_zero,
    _find_short_cooldowns,
    _find_wrong_target,
    _find_wrong_direction,
    _find_same_metric_twice,
    _find_slow_metrics,
    _find_gaps_between_steps,
    _find_unbounded_steps,
    _find_overlapping_steps,
    _find_fixed_desired_count,
    _find_short_visibility_timeout,
    _find_missing_protection,
)
