"""Mistakes in the metrics of policies: metrics that nobody reports, that are late, leave out work, or never fall."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from sluice.declaration import backlog
from sluice.declaration.metric_math import Fill, Metric, Operation, Series, Term, map_term, metric_ids
from sluice.rehearse import declared_service
from sluice.rehearse.experiment import (
    IN_FLIGHT,
    RUNNING,
    VISIBLE,
    Experiment,
    Mistake,
    comparison,
    describe_result,
    scales_in,
    value_with,
    with_own_metrics,
)
from sluice.rehearse.model.control_loop import EQUALLY_LATE, USUAL
from sluice.rehearse.model.policies import MetricExpression, MetricSource, TargetTracking
from sluice.rehearse.model.simulation import KnownMetrics


def _ids_of_metric(watched: MetricExpression, name: str) -> list[str]:
    return [id_ for id_, metric in watched.metrics.items() if metric.name == name]


def _find_ignored_in_flight(tried: Experiment) -> Iterator[Mistake]:
    """Find policies that may scale in by visible messages alone, so that messages in work look like no work."""
    for policy in tried.service.policies:
        watched = policy.watched
        visible = _ids_of_metric(watched, VISIBLE)
        if not visible or _ids_of_metric(watched, IN_FLIGHT) or not scales_in(policy):
            continue
        repaired = tried.service.exchange(policy, policy.with_watched(_with_in_flight(watched, visible[0])))
        yield Mistake(
            name="in-flight-ignored",
            policy=policy.name,
            found=f"{watched.text} counts {VISIBLE} and not {IN_FLIGHT}: work in progress looks like none",
            consequence=tried.comparison("long-jobs", repaired),
            repair=f"add {IN_FLIGHT} to {VISIBLE}",
        )


def _find_ignored_in_flight_in_own(tried: Experiment) -> Iterator[Mistake]:
    """Find the same mistake in custom metrics: they count visible messages, and none in flight."""
    for policy in tried.service.policies:
        for metric in policy.watched.metrics.values():
            key = (metric.namespace, metric.name)
            named = metric_ids(tried.own[key]) if key in tried.own else ()
            if "visible" not in named or "inflight" in named or not scales_in(policy):
                continue
            both = Operation(Metric("visible"), "+", Metric("inflight"))
            repaired = map_term(tried.own[key], lambda part, both=both: both if part == Metric("visible") else part)  # type: ignore[misc]
            before, after = (
                tried.result_on("long-jobs"),
                replace(tried, own={**tried.own, key: repaired}).result_on("long-jobs"),
            )
            yield Mistake(
                name="in-flight-ignored",
                policy=policy.name,
                found=f"{metric.name} is {tried.own[key].text()}: work in progress looks like none",
                consequence=comparison("long jobs", before, after),
                repair="publish visible and in-flight messages together",
            )


def _with_in_flight(watched: MetricExpression, visible: str) -> MetricExpression:
    in_flight = replace(watched.metrics[visible], name=IN_FLIGHT)
    both = Operation(Metric(visible), "+", Metric("notvisible"))
    term = map_term(watched.term, lambda part: both if part == Metric(visible) else part)
    return replace(watched, term=term, metrics={**watched.metrics, "notvisible": in_flight}, text=term.text())


def _find_zero_fills(tried: Experiment) -> Iterator[Mistake]:
    """Find expressions that fill a metric with 0 where it is only late."""
    for policy in tried.service.policies:
        watched = policy.watched
        late = [
            id_
            for id_, metric in watched.metrics.items()
            if metric.name in {RUNNING, VISIBLE, IN_FLIGHT} and _is_filled_with_zero(watched.term, id_)
        ]
        if not late:
            continue
        repeated = map_term(watched.term, _fill_with_repeat)
        repaired = tried.service.exchange(policy, policy.with_watched(replace(watched, term=repeated)))
        yield Mistake(
            name="filled-with-zero",
            policy=policy.name,
            found=f"FILL({late[0]}, 0) in {watched.text}: the metric comes minutes late, and until then it counts as 0",
            consequence=tried.comparison("burst", repaired, "a burst"),
            repair=f"FILL({late[0]}, REPEAT), inside FILL(…, 0) where no value at all means none",
        )


def _fill_with_repeat(part: Term) -> Term:
    if not isinstance(part, Fill) or not _is_zero(part.filling) or not any(_unfilled_ids(part.term)):
        return part
    return Fill(part.term, "REPEAT")


def _unfilled_ids(term: Term) -> Iterator[str]:
    """Yield the id of every metric that is not filled."""
    if isinstance(term, Metric):
        yield term.id
    elif not isinstance(term, Fill):
        for part in term.terms():
            yield from _unfilled_ids(part)


def _is_zero(filling: object) -> bool:
    return getattr(filling, "value", filling) == 0


def _is_filled_with_zero(term: Term, id_: str) -> bool:
    if isinstance(term, Fill) and id_ in _unfilled_ids(term.term):
        return _is_zero(term.filling)
    return any(_is_filled_with_zero(part, id_) for part in term.terms())


def _find_late_as_zero(tried: Experiment) -> Iterator[Mistake]:
    """Find metrics that count as 0 until they arrive, because they arrive later than others of the same expression.

    CloudWatch documents for metric math with two time series: a series without a data point yet counts as 0.
    """
    for policy in tried.service.policies:
        watched = policy.watched
        late = _late_metrics_as_zero(watched)
        if not late or any(_is_filled_with_zero(watched.term, id_) for id_ in late):
            continue
        repeated = map_term(watched.term, partial(_repeat_late, [*map(Metric, late)]))
        repaired = tried.service.exchange(policy, policy.with_watched(replace(watched, term=repeated)))
        equally = describe_result(tried.result_on("steady", variant=EQUALLY_LATE))
        yield Mistake(
            name="late-counts-as-0",
            policy=policy.name,
            found=f"in {watched.text} a metric that comes later than the others counts as 0 until then",
            consequence=f"{tried.comparison('steady', repaired, 'steady traffic')}; where all come equally late, which"
            f" AWS does not document: {equally}",
            repair=f"{', '.join(f'FILL({id_}, REPEAT)' for id_ in late)} in place of {', '.join(late)}",
        )


def _repeat_late(late: Sequence[Metric], part: Term) -> Term:
    return Fill(part, "REPEAT") if part in late else part


def _late_metrics_as_zero(watched: MetricExpression) -> list[str]:
    """Return the ids of metrics that come later than those of ECS, if the expression takes them as 0 until then."""
    late = [
        id_ for id_, metric in watched.metrics.items() if not metric.namespace.endswith(("/ECS", "ContainerInsights"))
    ]
    if len(late) in {0, len(watched.metrics)}:
        return []
    known: dict[str, Series] = {id_: [8.0, 8.0] for id_ in watched.metrics}
    value = watched.term.value_at({**known, **{id_: [8.0, None] for id_ in late}}, 1)
    return late if value is not None and value != watched.term.value_at(known, 1) else []


def _find_summed_gauges(tried: Experiment) -> Iterator[Mistake]:
    """Find a number of messages or tasks that is summed over minutes: over five minutes it is five times too large.

    AWS:
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    (read 2026-11-21): a data point each minute.
    """
    for policy in tried.service.policies:
        metrics = policy.watched.metrics
        added = {id_ for id_, metric in metrics.items() if _is_gauge(metric) and metric.statistic == "Sum"}
        minutes = max((metrics[id_].period_seconds // 60 for id_ in added), default=1)
        if minutes < 2:
            continue
        averages = {
            id_: replace(metric, statistic="Average") if id_ in added else metric for id_, metric in metrics.items()
        }
        repaired = tried.service.exchange(policy, policy.with_watched(replace(policy.watched, metrics=averages)))
        yield Mistake(
            name="sum-of-a-gauge",
            policy=policy.name,
            found=f"Sum of {metrics[min(added)].name} over {minutes} minutes is {minutes} times what there is",
            consequence=tried.comparison("steady", repaired, "steady traffic"),
            repair="Statistic Average",
        )


def _is_gauge(metric: MetricSource) -> bool:
    return metric.name in {VISIBLE, IN_FLIGHT, RUNNING, "DesiredTaskCount"}


def _find_not_proportional(tried: Experiment) -> Iterator[Mistake]:
    """Find target tracking on the number or age of messages: more tasks do not lower these in proportion.

    AWS: https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-using-sqs-queue.html (read 2026-11-23) and
    https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html (read
    2026-11-21): the metric has to change inversely to capacity.
    """
    tasks, service = tried.tasks, tried.service
    for policy in service.policies:
        if not isinstance(policy, TargetTracking):
            continue
        given = partial(value_with, policy.watched, tried.own)
        few, more_tasks = given(4.0, flow=4.0), given(4.0, flow=4.0, tasks=4.0)
        if few is None or few != more_tasks:
            continue
        if {given(8.0, flow=4.0), given(4.0, flow=4.0, age=14.0), given(4.0, flow=8.0)} == {few}:
            continue
        wanted = tasks.target_backlog
        per_task = declared_service.metric_expression(
            backlog.backlog_per_task(), queue=service.queue_dimensions, service=service.dimensions
        )
        repaired = service.exchange(policy, replace(policy, watched=per_task, target=wanted))
        yield Mistake(
            name="not-in-proportion",
            policy=policy.name,
            found=f"{policy.watched.text} is as high with four tasks as with two, and target tracking multiplies the"
            " tasks by how many times the target it is",
            consequence=tried.comparison("steady", repaired, "steady traffic"),
            repair=f"divide visible messages and those in flight by the running tasks, TargetValue {wanted:g}",
        )


_CALL_METRICS = {"NumberOfMessagesSent", "NumberOfMessagesReceived", "NumberOfMessagesDeleted", "NumberOfEmptyReceives"}


def _find_counted_calls(tried: Experiment) -> Iterator[Mistake]:
    """Find step policies on the number of calls to the queue alone, and not on the messages in it.

    AWS:
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    (read 2026-11-27): these metrics can include retries, and the queue's status is not to be estimated by them.
    """
    for policy in tried.service.policies:
        names = [metric.name for metric in policy.watched.metrics.values()]
        if isinstance(policy, TargetTracking) or not names or not _CALL_METRICS.issuperset(names):
            continue
        yield Mistake(
            name="calls-counted",
            policy=policy.name,
            found=f"{', '.join(names)} counts calls, with their retries, and not what is in the queue",
            consequence="a backlog without new calls is not seen, and retries look like work",
            repair=f"look at {VISIBLE} and {IN_FLIGHT} together",
        )


def _find_unreported(tried: Experiment) -> Iterator[Mistake]:
    """Find metrics that nobody reports, or that belong to another service or queue.

    AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Container-Insights-metrics-ECS.html (read
    2026-11-21).
    """
    service = tried.service
    known = KnownMetrics(service, {}, USUAL.lag_minutes, own=tried.own)
    for policy in service.policies:
        seen: dict[str, tuple[str, str]] = {}
        for metric in policy.watched.metrics.values():
            wanted = service.dimensions_in(metric.namespace)
            is_of_another = metric.dimensions.keys() == wanted.keys() and metric.dimensions != wanted
            written = ", ".join(f"{name} {value}" for name, value in metric.dimensions.items()) or "no dimension"
            right = ", ".join(f"{name} {value}" for name, value in wanted.items())
            if metric.namespace == "AWS/SQS" and is_of_another:
                if metric.dimensions["QueueName"] not in service.queue_candidates:
                    other = f"it looks at queue {metric.dimensions['QueueName']}, and the tasks receive from"
                    seen["wrong-queue"] = (f"{other} {wanted['QueueName']}", right)
            elif is_of_another:
                seen["wrong-service"] = (f"{metric.name} is of {written}, and it scales {right}", right)
            elif not known.is_reported(metric) and metric.dimensions == wanted:
                found = f"cluster {service.dimensions['ClusterName']} has Container Insights disabled, which reports"
                seen["no-container-insights"] = (f"{found} {metric.name}", "containerInsights: enabled")
            elif not known.is_reported(metric):
                seen["no-such-metric"] = (f"nobody reports {metric.namespace}/{metric.name} by {written}", right)
        for name, (found, repair) in seen.items():
            yield Mistake(
                name=name,
                policy=policy.name,
                found=found,
                consequence=tried.comparison(
                    "steady", with_own_metrics(service), _TRAFFIC_WORDS.get(name, "steady traffic")
                ),
                repair=repair,
            )


_TRAFFIC_WORDS = {"wrong-queue": "steady traffic, while that queue is empty"}

WATCHING = (
    _find_unreported,
    _find_counted_calls,
    _find_not_proportional,
    _find_ignored_in_flight,
    _find_ignored_in_flight_in_own,
    _find_zero_fills,
    _find_late_as_zero,
    _find_summed_gauges,
)
"""The functions that find mistakes, each of one kind."""
