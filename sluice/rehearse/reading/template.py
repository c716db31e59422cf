"""The scaled ECS services of CloudFormation templates, as values of `rehearse.model.policies`.

A service is the target of an `AWS::ApplicationAutoScaling::ScalableTarget` with `ecs:service:DesiredCount`. Beside
these are Lambda functions that poll queues (`rehearse.reading.mappings`). Parameters have their defaults. If a fact is
unknown or not simulated, and a guess would change the outcome, it is refused in one line.

AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/AWS_ApplicationAutoScaling.html and
https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-cloudwatch-alarm.html (read
2026-11-23).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from sluice import limits
from sluice.declaration.metric_math import Metric, Term, metric_ids
from sluice.errors import ConfigError
from sluice.rehearse.model.policies import (
    STATISTICS,
    AdjustmentType,
    ComparisonOperator,
    MetricExpression,
    MetricSource,
    QueueSettings,
    ScaledService,
    ScalingPolicy,
    ScalingStep,
    SimulatedAlarm,
    StepScaling,
    TargetTracking,
    TreatMissingData,
)
from sluice.rehearse.model.simulation import CPU_SHARE
from sluice.rehearse.reading.cloudformation import (
    NESTED,
    Properties,
    Stacks,
    Template,
    TemplateResource,
    is_unknown,
    may_be_same,
    name_in,
    nested_place,
    segments,
    stacks_of,
)
from sluice.rehearse.reading.expressions import parse
from sluice.rehearse.reading.mappings import read_mappings
from sluice.rehearse.reading.properties import ALARM, POLICY, QUEUE, ROOM, SERVICE, TARGET, sentences
from sluice.rehearse.reading.task_definition import TaskDefinition, receives_that_are_no_attempts

_CLUSTER, _TASK = "AWS::ECS::Cluster", "AWS::ECS::TaskDefinition"
_DIMENSION = "ecs:service:DesiredCount"
_PREDEFINED = {
    "ECSServiceAverageCPUUtilization": "CPUUtilization",
    "ECSServiceAverageMemoryUtilization": "MemoryUtilization",
}
_COOLDOWN_SECONDS = 300
_TRANSFORMS = ("AWS::Serverless-", "AWS::LanguageExtensions", "AWS::SecretsManager-", "AWS::CodeDeployBlueGreen")
"""Macros of AWS that scale no ECS service; AWS::Include and custom macros may do anything."""


def read_services(
    *templates: Template,
    names: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    queue: str | None = None,
    only: str | None = None,
) -> tuple[ScaledService, ...]:
    """Return the scaled ECS services, and the functions on queues, of templates that are deployed together.

    There is at least one.

    Args:
        templates: the results of `load_template`.
        names: the file path of each; a service with the same name as another one is named after its stack, too.
        parameters: values of the templates' parameters, which replace their defaults.
        queue: name of the queue that the tasks receive from; None reads it from the templates.
        only: name of the only service to read; all are read if it is None, or if no service has that name.

    Raises:
        ConfigError: there is no such service, or its scaling is unknown or not simulated.
    """
    try:
        stacks = stacks_of(templates, names, parameters)
        targets = [target for target in stacks.of_kind(TARGET) if _dimension(target) == _DIMENSION]
        mappings = dict(read_mappings(stacks))
        if not (targets or mappings):
            raise _no_service_error(stacks)
        sources = {target: _service_name(stacks, target) for target in targets}
        sources |= {mapping: service.name for mapping, service in mappings.items()}
        called = dict(zip(_unique_names(sources), sources, strict=True))
        chosen = {name: source for name, source in called.items() if name == only} or called
        unread = tuple(_unread_parts(templates, stacks))
        services = []
        for name, source in chosen.items():
            try:
                service = mappings[source] if source in mappings else _read_service(stacks, source, queue)
            except ConfigError as error:
                others = ", ".join(other for other in chosen if other != name)
                raise ConfigError(
                    f"{error}; or rehearse another one: --service {others}" if others else str(error)
                ) from error
            services.append(replace(service, name=name, assumed=(*service.assumed, *unread)))
    except RecursionError as error:
        raise ConfigError("the template's references go in a circle; correct the template") from error
    return tuple(services)


def _unique_names(sources: Mapping[TemplateResource, str]) -> list[str]:
    """Return a unique name for the service of each target or mapping.

    Args:
        sources: target or mapping -> the name of its service, which others may have, too.
    """
    places = [source.stack.name for source in sources]
    short = [Path(place).name.partition(".")[0] for place in places]
    labels = short if len(set(short)) == len(set(places)) else places
    forms = [
        (name, f"{label}/{name}", f"{label}/{source.id}/{name}")
        for (source, name), label in zip(sources.items(), labels, strict=True)
    ]
    count = Counter(form for of_one in forms for form in of_one)
    return [next(form for form in of_one if count[form] == 1) for of_one in forms]


def _service_name(stacks: Stacks, target: TemplateResource) -> str:
    """Return the name of the service that a scalable target scales, as its own template or the target has it."""
    resource_id = str(target.properties.get("ResourceId"))
    service = _find_service(stacks, resource_id, target)
    return name_in(resource_id) if service is None else service.name


def _find_service(stacks: Stacks, resource_id: str, target: TemplateResource) -> TemplateResource | None:
    """Return the service of a resource id `service/CLUSTER/SERVICE`; None if no template has it."""
    return stacks.find(SERVICE, resource_id, target, cluster=[*segments(resource_id), "", ""][1])


def _unread_parts(templates: Iterable[Template], stacks: Stacks) -> Iterator[str]:
    """Yield the end of the sentence "not known: …" for each part of the templates that cannot be read.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/transform-section-structure.html (read
    2026-11-27).
    """
    for template in templates:
        transforms = template.get("Transform") or []
        for each in transforms if isinstance(transforms, list) else [transforms]:
            name = str(each.get("Name") if isinstance(each, Mapping) else each)
            if not name.startswith(_TRANSFORMS):
                yield f"what the transform {name} makes of the template, which is read as it stands"
    for resource in stacks.all:
        if resource.kind.endswith("::MODULE"):
            yield f"what the module {resource.kind} is made of, which is left out"
        if function := next((str(name) for name in resource.raw_properties if str(name).startswith("Fn::")), None):
            yield f"what {function} adds to {resource.kind} {resource.id}, which is read as it stands"
    for policy in stacks.of_kind(POLICY):
        if _target_of(stacks, policy) is None and _dimension(policy) in (None, _DIMENSION):
            yield f"what policy {policy.id} scales, as no template has its scalable target"
    yield from _unread_stacks(stacks)


def _unread_stacks(stacks: Stacks) -> Iterator[str]:
    """Yield the end of the sentence "not known: …" about nested stacks whose templates are missing, or are guessed."""
    nested = [resource for resource in stacks.all if resource.kind in NESTED and resource.is_condition_met is not False]
    missing = [each.id for each in nested if (each.stack.name, each.id) not in each.stack.links.children]
    by_url = [each.id for each in nested if each.id not in missing and "://" in nested_place(each)]
    if missing:
        yield f"what nested stacks deploy whose templates are not among those given: {', '.join(missing)}"
    if by_url:
        yield f"whether the URLs of nested stacks are of the files of these names, taken for so: {', '.join(by_url)}"


def _no_service_error(stacks: Stacks) -> ConfigError:
    """Return the error for templates without a scaled service; it names a false condition if one is the cause."""
    for target in stacks.omitted_resources(TARGET):
        stack, condition = target.stack, str(target.condition)
        values = [f"{name}={stack.ref(name)}" for name in stack.needed_parameters(condition)]
        if values:
            return ConfigError(
                f"{TARGET} {target.id} has the condition {condition}, which is false with {', '.join(values)}; give"
                f" another value: --parameter {stack.needed_parameters(condition)[0]}=VALUE"
            )
    return ConfigError(
        f"the template scales no ECS service; allowed: one or more {TARGET} of {_DIMENSION}; give the template"
        " that has them, or the folder of all templates"
    )


def _dimension(resource: TemplateResource) -> object:
    return resource.properties.get("ScalableDimension")


def _read_service(stacks: Stacks, target: TemplateResource, queue: str | None) -> ScaledService:
    """Return the ECS service of a scalable target, with its policies, its queue and its tasks."""
    properties = target.properties
    resource_id = properties.text("ResourceId")
    if len(segments(resource_id)) != len(("service", "cluster", "name")):
        raise properties.refusal("ResourceId", "service/CLUSTER/SERVICE")
    service = _find_service(stacks, resource_id, target)
    task = None if service is None else stacks.find(_TASK, service.properties.get("TaskDefinition"), service)
    definition = TaskDefinition(stacks, task, target)
    own = [policy for policy in stacks.of_kind(POLICY) if _target_of(stacks, policy) is target]
    if len(own) > limits.POLICIES_PER_SERVICE_MAX:
        raise ConfigError(
            f"{target.kind} {target.id} has {len(own)} policies; allowed: at most {limits.POLICIES_PER_SERVICE_MAX};"
            " remove some"
        )
    policies = tuple(found for policy in own for found in _read_policy(stacks, policy, resource_id))
    suspended = properties.part("SuspendedState")
    for name in ("DynamicScalingInSuspended", "DynamicScalingOutSuspended"):
        if suspended.is_true(name):
            raise suspended.refusal(name, "false, as nothing scales meanwhile")
    if (max_tasks := properties.integer("MaxCapacity")) < 1:
        raise properties.refusal("MaxCapacity", "1 or more, as nothing ever runs without")
    if max_tasks > limits.TASKS_PER_SERVICE_MAX:
        raise properties.refusal("MaxCapacity", f"at most {limits.TASKS_PER_SERVICE_MAX}, the tasks of a service")
    if (min_tasks := properties.integer("MinCapacity")) > max_tasks:
        raise properties.refusal("MinCapacity", f"0 to MaxCapacity, which is {max_tasks}")
    metrics = [metric for policy in policies for metric in policy.watched.metrics.values()]
    watched = [metric.dimensions["QueueName"] for metric in metrics if "QueueName" in metric.dimensions]
    candidates = definition.queues(watched)
    chosen = candidates if queue is None else [queue]
    settings = definition.settings(chosen[0]) if len(chosen) == 1 else None
    cluster, name = segments(resource_id)[1:]
    if service is not None:
        name = service.name
    place = stacks.find(_CLUSTER, cluster, target)
    alarms = [alarm for policy in own for alarm in _alarms_of(stacks, policy)]
    works_on = None if settings is None else stacks.find(QUEUE, settings.name, definition.near)
    parts = [target, *own, *alarms, *(each for each in (service, works_on) if each is not None)]
    return _with_assumed_names(
        ScaledService(
            name=name,
            min_tasks=min_tasks,
            max_tasks=max_tasks,
            policies=policies,
            queue=settings,
            queue_candidates=tuple(candidates) or definition.known_queues,
            dimensions={"ClusterName": cluster, "ServiceName": name},
            has_insights=_has_insights(place) is not False,
            desired_count=_desired_count(service),
            is_protected=definition.is_protected(),
            can_extend=definition.can_extend(),
            may_be_protected=definition.may_be_protected(),
            assumed=tuple(_assumptions(metrics, cluster, place, definition)),
            not_simulated=(
                *sentences(parts),
                *_other_queues(definition, metrics, settings),
                *_effects_of_metrics(metrics, min_tasks),
                *_missing_launch_type(service),
                *receives_that_are_no_attempts(settings),
            ),
            **definition.sizes(),
        )
    )


def _other_queues(
    definition: TaskDefinition, metrics: Sequence[MetricSource], queue: QueueSettings | None
) -> Iterator[str]:
    """Yield the end of the sentence "not simulated: …" if there are queues besides the simulated one.

    These are queues from which the task role may receive, and queues that custom metrics of the policies name.
    """
    own = [metric.dimensions.get("QueueName") for metric in metrics if metric.namespace != "AWS/SQS"]
    names = [*definition.allowed_queues, *(name for name in own if name in definition.known_queues)]
    others = dict.fromkeys(str(name) for name in names if queue is not None and name != queue.name)
    if others:
        yield f"the messages of other queues, from which the tasks may receive, too: {', '.join(others)}"


def _missing_launch_type(service: TemplateResource | None) -> Iterator[str]:
    """Yield the end of the sentence "not simulated: …" for a service without launch type and capacity providers."""
    if service is not None and not {"LaunchType", "CapacityProviderStrategy"} & service.properties.values.keys():
        yield f"LaunchType of {SERVICE} {service.id}, which is EC2 or what its cluster says ({ROOM})"


def _effects_of_metrics(metrics: Sequence[MetricSource], min_tasks: int) -> Iterator[str]:
    """Yield the end of the sentence "not simulated: …" for each effect that AWS documents of SQS's metrics.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-monitoring-using-cloudwatch.html and
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    (read 2026-11-27).
    """
    names = {metric.name for metric in metrics if metric.namespace == "AWS/SQS"}
    if names and min_tasks == 0:
        yield "that metrics of a queue come up to 15 minutes late after six hours without a message or a call"
    if "ApproximateAgeOfOldestMessage" in names:
        yield "that a message received three times does not count for the age of a standard queue's oldest message"


def _assumptions(
    metrics: Sequence[MetricSource], name: str, cluster: TemplateResource | None, tasks: TaskDefinition
) -> Iterator[str]:
    """Yield the end of the sentence "not known: …" for each assumption that the metrics depend on.

    An assumption is needed where no template says what is the case.
    """
    is_needed = any(metric.namespace == "ECS/ContainerInsights" for metric in metrics)
    if is_needed and _has_insights(cluster) is None:
        yield f"whether cluster {name} has Container Insights, which is taken for on"
    if any(metric.name == "CPUUtilization" for metric in metrics):
        yield f"how busy handlers keep the processor, which is taken for {CPU_SHARE:.0%} of what a lane has of it"
    if tasks.may_be_protected() and not tasks.is_protected():
        yield (
            "whether the tasks may protect themselves from scale-in, as a policy of theirs is in no template: taken for"
            " not"
        )


def _has_insights(cluster: TemplateResource | None) -> bool | None:
    """Return whether a cluster has Container Insights; None if its template leaves it to the account."""
    for setting in () if cluster is None else cluster.properties.parts("ClusterSettings"):
        if setting.get("Name") == "containerInsights" and not is_unknown(setting.get("Value")):
            return setting.choice("Value", ["enabled", "enhanced", "disabled"]) != "disabled"
    return None


def _desired_count(service: TemplateResource | None) -> int | None:
    """Return the number of tasks that a service's template sets; None if it sets none, or an unknown number."""
    properties = None if service is None else service.properties
    if properties is None or properties.get("DesiredCount") is None or is_unknown(properties.get("DesiredCount")):
        return None
    return properties.integer("DesiredCount")


def _with_assumed_names(service: ScaledService) -> ScaledService:
    """Return the service whose unknown dimensions are taken for its own, each such assumption listed in `assumed`."""
    queue, assumed = service.queue, [*service.assumed]
    if queue is not None and not queue.is_in_template and is_unknown(queue.name) and queue.name.endswith(">"):
        assumed.append(
            f"queue {queue.name} is taken for a standard queue, as its name is not known; say it with --queue"
        )
    known = {**service.dimensions, **service.queue_dimensions}
    policies = []
    for policy in service.policies:
        metrics = dict(policy.watched.metrics)
        for id_, metric in metrics.items():
            for dimension, value in metric.dimensions.items():
                wanted = known.get(dimension, value)
                if value != wanted and may_be_same(value, wanted):
                    metrics[id_] = replace(metrics[id_], dimensions={**metrics[id_].dimensions, dimension: wanted})
                    assumed.append(f"policy {policy.name} looks at {dimension} {value}, which is taken for {wanted}")
        policies.append(policy.with_watched(replace(policy.watched, metrics=metrics)))
    return replace(service, policies=tuple(policies), assumed=tuple(dict.fromkeys(assumed)))


def _read_policy(stacks: Stacks, policy: TemplateResource, resource_id: str) -> Iterator[ScalingPolicy]:
    """Yield a policy of the service with this resource id: a step scaling once for each of its alarms."""
    properties = policy.properties
    name = str(properties.get("PolicyName") or policy.id)
    if properties.choice("PolicyType", ["TargetTrackingScaling", "StepScaling"]) == "StepScaling":
        yield from _step_scaling(stacks, policy, name)
    else:
        yield _target_tracking(properties.part("TargetTrackingScalingPolicyConfiguration"), name, resource_id)


def _target_of(stacks: Stacks, policy: TemplateResource) -> TemplateResource | None:
    """Return the scalable target that a policy names, the nearest to the policy's template; None if there is none."""
    properties = policy.properties
    named = (properties.get("ScalingTargetId"), properties.get("ResourceId"), _dimension(policy))

    def is_named(target: TemplateResource) -> bool:
        own = (target.stack.ref(target.id), target.properties.get("ResourceId"), _dimension(target))
        return named[0] == own[0] or (named[0] is None and named[1:] == own[1:])

    found = filter(is_named, stacks.of_kind(TARGET))
    return max(found, key=lambda target: target.stack.nearness(policy.stack), default=None)


def _target_tracking(settings: Properties, name: str, resource_id: str) -> TargetTracking:
    if "PredefinedMetricSpecification" in settings.values:
        metric = settings.part("PredefinedMetricSpecification").choice("PredefinedMetricType", [*_PREDEFINED])
        names = dict(zip(("ClusterName", "ServiceName"), segments(resource_id)[1:], strict=True))
        watched = MetricExpression.alone(MetricSource(namespace="AWS/ECS", name=_PREDEFINED[metric], dimensions=names))
    else:
        watched = _metric_expression(settings.part("CustomizedMetricSpecification"))
    if (target := settings.number("TargetValue")) <= 0:
        raise settings.refusal("TargetValue", "more than 0")
    return TargetTracking(
        name=name,
        watched=watched,
        target=target,
        scale_out_cooldown_seconds=settings.integer("ScaleOutCooldown", _COOLDOWN_SECONDS),
        scale_in_cooldown_seconds=settings.integer("ScaleInCooldown", _COOLDOWN_SECONDS),
        disables_scale_in=settings.is_true("DisableScaleIn"),
    )


def _step_scaling(stacks: Stacks, policy: TemplateResource, name: str) -> Iterator[StepScaling]:
    """Yield a step scaling policy once for each alarm that runs it."""
    settings = policy.properties.part("StepScalingPolicyConfiguration")
    alarms = list(_alarms_of(stacks, policy))
    if not alarms:
        others = [
            f"; {alarm.id} has it in {name}, which is not rehearsed"
            for alarm in stacks.of_kind(ALARM)
            for name in ("OKActions", "InsufficientDataActions")
            if _is_action(policy, alarm.properties.items(name))
        ]
        raise ConfigError(
            f"{POLICY} {policy.id}: no {ALARM} of its template has it in AlarmActions{''.join(others)}; allowed: one"
            " or more; add the alarm, or remove the policy, which nothing runs"
        )
    adjustment_type = settings.choice("AdjustmentType", get_args(AdjustmentType.__value__))
    steps = tuple(map(_read_step, settings.parts("StepAdjustments")))
    if len(steps) > limits.STEPS_PER_POLICY_MAX:
        raise ConfigError(
            f"{POLICY} {policy.id} has {len(steps)} steps; allowed: at most {limits.STEPS_PER_POLICY_MAX}; divide them"
            " among several policies"
        )
    for alarm in alarms:
        yield StepScaling(
            name=name,
            alarm=_read_alarm(alarm),
            adjustment_type=cast("AdjustmentType", adjustment_type),
            steps=steps,
            cooldown_seconds=settings.integer("Cooldown", _COOLDOWN_SECONDS),
            min_adjustment_magnitude=settings.integer("MinAdjustmentMagnitude", 0),
        )


def _alarms_of(stacks: Stacks, policy: TemplateResource) -> Iterator[TemplateResource]:
    """Yield the alarms that run a policy.

    Raises:
        ConfigError: an undecided condition decides whether an alarm runs the policy.
    """
    for alarm in stacks.of_kind(ALARM):
        properties = alarm.properties
        actions = properties.items("AlarmActions")
        if _is_action(policy, actions) and properties.is_true("ActionsEnabled", default=True):
            yield alarm
        elif f'"{policy.id}"' in json.dumps(alarm.raw_properties.get("AlarmActions"), default=str) and any(
            str(action).startswith("<Fn::If") for action in actions
        ):
            raise properties.refusal("AlarmActions", "known actions")


def _is_action(policy: TemplateResource, actions: Sequence[object]) -> bool:
    """Return whether a policy is among the actions of an alarm."""
    return policy.stack.ref(policy.id) in actions


def _read_step(step: Properties) -> ScalingStep:
    lower, upper = (
        None if step.get(name) is None else step.number(name)
        for name in ("MetricIntervalLowerBound", "MetricIntervalUpperBound")
    )
    return ScalingStep(lower=lower, upper=upper, adjustment=step.number("ScalingAdjustment"))


def _read_alarm(alarm: TemplateResource) -> SimulatedAlarm:
    properties = alarm.properties
    if (evaluated := properties.integer("EvaluationPeriods")) < 1:
        raise properties.refusal("EvaluationPeriods", "1 or more")
    watched = _metric_expression(properties)
    return SimulatedAlarm(
        name=str(properties.get("AlarmName") or alarm.id),
        watched=watched,
        comparison=cast(
            "ComparisonOperator", properties.choice("ComparisonOperator", get_args(ComparisonOperator.__value__))
        ),
        threshold=properties.number("Threshold"),
        period_seconds=max((metric.period_seconds for metric in watched.metrics.values()), default=60),
        evaluation_periods=evaluated,
        datapoints_to_alarm=properties.integer("DatapointsToAlarm", evaluated),
        missing_data=cast(
            "TreatMissingData", properties.choice("TreatMissingData", get_args(TreatMissingData.__value__), "missing")
        ),
    )


def _metric_expression(properties: Properties) -> MetricExpression:
    """Return the expression of an alarm or a customized metric specification: one metric, or metric math."""
    queries = {query.text("Id"): query for query in properties.parts("Metrics")}
    if not queries:
        return MetricExpression.alone(_read_metric(properties, properties, "Statistic"))
    returned = [id_ for id_, query in queries.items() if query.is_true("ReturnData", default=True)]
    if len(returned) != 1:
        raise properties.refusal("Metrics", "exactly one that has not ReturnData: false")
    term = _expression_of(queries, returned[0], ())
    sources = {id_: _read_metric(stat.part("Metric"), stat, "Stat") for id_, stat in _metric_statistics(queries, term)}
    if "PERIOD(" in term.text() and {source.period_seconds for source in sources.values()} != {60}:
        raise properties.refusal("Metrics", "PERIOD only of metrics of 60 seconds, which is what is rehearsed")
    return MetricExpression(term=term, metrics=sources, text=str(queries[returned[0]].get("Expression") or returned[0]))


def _expression_of(queries: Mapping[str, Properties], id_: str, within: tuple[str, ...]) -> Term:
    """Return the expression of a metric query's id, with other expressions in place of their ids.

    Args:
        queries: id -> metric query of the alarm or policy.
        id_: the query to read.
        within: the ids of the expressions that are being read, to refuse an expression made of itself.
    """
    query = queries[id_]
    if query.get("Expression") is None:
        return Metric(id_)
    if id_ in within:
        raise query.refusal("Expression", "an expression that is not made of itself")
    text = query.text("Expression")
    try:
        named = [other for other in metric_ids(parse(text)) if other in queries]
    except ConfigError as error:
        raise (query.refusal("Expression", "metric math") if query.is_undecided("Expression") else error) from error
    return parse(text, {other: _expression_of(queries, other, (*within, id_)) for other in named})


def _metric_statistics(queries: Mapping[str, Properties], term: Term) -> Iterator[tuple[str, Properties]]:
    """Yield (id, MetricStat) of each metric in an expression."""
    for id_ in metric_ids(term):
        if id_ not in queries:
            some = next(iter(queries.values()))
            raise ConfigError(
                f"{some.owner}: metric math names {id_}; allowed: {', '.join(map(repr, queries))}; correct the template"
            )
        yield id_, queries[id_].part("MetricStat")


def _read_metric(metric: Properties, statistics: Properties, statistic: str) -> MetricSource:
    """Return a metric as an alarm or policy watches it.

    Args:
        metric: namespace, name and dimensions.
        statistics: period and statistic.
        statistic: the property of `statistics` with the statistic's name.
    """
    dimensions = metric.parts("Dimensions")
    source = MetricSource(
        namespace=metric.text("Namespace"),
        name=metric.text("MetricName"),
        dimensions={dimension.text("Name"): dimension.text("Value") for dimension in dimensions},
        statistic=str(statistics.get(statistic) or statistics.text("ExtendedStatistic")),
        period_seconds=statistics.integer("Period", 60),
    )
    if source.period_seconds == 0 or source.period_seconds % 60:
        raise statistics.refusal("Period", "60 or a multiple, as SQS and ECS report once a minute")
    if source.period_seconds > 60 and not re.fullmatch(STATISTICS, source.statistic):
        raise statistics.refusal(
            "Period", f"60 for {source.statistic}; more than that for percentiles and plain statistics"
        )
    return source
