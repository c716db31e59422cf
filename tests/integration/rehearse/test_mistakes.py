"""Each mistake is planted into a template of ours and into one written by hand: it is found, and no other is."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluice.declaration import Consumer, Environment, naming
from sluice.rehearse.alternatives import OWN_METRICS
from sluice.rehearse.declared_service import service_of, tasks_of
from sluice.rehearse.experiment import Experiment, Mistake
from sluice.rehearse.mistakes import mistakes
from sluice.rehearse.model.policies import MetricExpression, MetricSource, ScaledService, TargetTracking
from sluice.rehearse.model.scenarios import scenarios
from sluice.rehearse.model.simulation import TaskWork
from sluice.rehearse.reading.cloudformation import Template, load_template
from sluice.rehearse.reading.expressions import parse
from sluice.rehearse.reading.template import read_services
from tests.support.cases import one_case_in
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT
from tests.support.templates.environments import FULL, SHARED
from tests.support.templates.synthesis import synthesize

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

BY_HAND = PROJECT / "tests/support/templates/scaling"
LEDGER, NIGHT = FULL.consumers
OWN = {("Shop/Workers", "BacklogPerTask"): parse("(visible + inflight) / IF(running > 0, running, 1)")}


def _mistakes_of(service: ScaledService, tasks: TaskWork, groups: int = 60) -> tuple[Mistake, ...]:
    return mistakes(Experiment(service, tasks, scenarios(service, tasks, groups=groups), {**OWN_METRICS, **OWN}))


def _names(service: ScaledService, tasks: TaskWork) -> list[str]:
    return [mistake.name for mistake in _mistakes_of(service, tasks)]


@pytest.mark.parametrize(
    ("environment", "consumer"),
    [
        pytest.param(environment, consumer, marks=[] if environment in (FULL, SHARED) else pytest.mark.slow)
        for environment in (*ENVIRONMENTS.values(), FULL, SHARED)
        for consumer in environment.consumers
    ],
    ids=lambda value: value.name,
)
def test_our_own_templates_have_no_mistake(environment: Environment, consumer: Consumer) -> None:
    """Templates of all declared environments are tried; test_advice.py compares them with the declarations."""
    service, tasks = service_of(environment, consumer), tasks_of(consumer)

    assert mistakes(Experiment(service, tasks, scenarios(service, tasks, groups=9), OWN_METRICS)) == ()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Template, ...]:
    """Return the templates of an environment with two consumers, one of which scales from zero."""
    folder = tmp_path_factory.mktemp("full")
    synthesize(FULL, folder)
    return tuple(load_template(folder).values())


def _resources(template: Any, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for id_, resource in template["Resources"].items():
        if resource["Type"] == kind:
            yield id_, resource["Properties"]


def _policies(template: Any, consumer: Consumer) -> Iterator[dict[str, Any]]:
    """Yield the target tracking configurations of a consumer's service."""
    name = naming.service_name(FULL, consumer.name)
    for _, properties in _resources(template, "AWS::ApplicationAutoScaling::ScalingPolicy"):
        if "TargetTrackingScalingPolicyConfiguration" in properties and name in json.dumps(properties):
            yield properties["TargetTrackingScalingPolicyConfiguration"]


def _change_expression(configuration: dict[str, Any], change: Callable[[str], str]) -> None:
    (query,) = [each for each in configuration["CustomizedMetricSpecification"]["Metrics"] if "Expression" in each]
    assert change(query["Expression"]) != query["Expression"]
    query["Expression"] = change(query["Expression"])


def _without_in_flight(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        _change_expression(configuration, lambda _: "FILL(visible, REPEAT) / FILL(running, REPEAT)")


def _fill_with_zero(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        _change_expression(
            configuration, lambda text: text.replace("FILL(FILL(running, REPEAT), 0)", "FILL(running, 0)")
        )


def _without_cooldown(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        configuration["ScaleOutCooldown"] = 0


def _with_a_short_cooldown(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        configuration["ScaleOutCooldown"] = 60


def _without_lanes(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        configuration["TargetValue"] /= LEDGER.lanes


def _with_twice_the_target(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        configuration["TargetValue"] *= 2


def _on_another_queue(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        for query in configuration["CustomizedMetricSpecification"]["Metrics"]:
            for dimension in query.get("MetricStat", {}).get("Metric", {}).get("Dimensions", ()):
                if dimension["Name"] == "QueueName":
                    dimension["Value"] = naming.queue_name(FULL, NIGHT)


def _with_gaps_as_zero(template: Any) -> None:
    for configuration in _policies(template, LEDGER):
        _change_expression(configuration, lambda _: "(visible + inflight) / running")


def _dimensions_of_running(template: Any) -> Iterator[list[dict[str, Any]]]:
    for configuration in _policies(template, LEDGER):
        for query in configuration["CustomizedMetricSpecification"]["Metrics"]:
            if query["Id"] == "running":
                yield query["MetricStat"]["Metric"]["Dimensions"]


def _of_another_service(template: Any) -> None:
    for dimensions in _dimensions_of_running(template):
        (service,) = [each for each in dimensions if each["Name"] == "ServiceName"]
        service["Value"] = naming.service_name(FULL, NIGHT.name)
        dimensions.reverse()  # their order means nothing


def _without_a_cluster(template: Any) -> None:
    for dimensions in _dimensions_of_running(template):
        dimensions[:] = [each for each in dimensions if each["Name"] == "ServiceName"]


def _without_insights(template: Any) -> None:
    for _, properties in _resources(template, "AWS::ECS::Cluster"):
        properties["ClusterSettings"] = [{"Name": "containerInsights", "Value": "disabled"}]


def _with_a_desired_count(template: Any) -> None:
    for _, properties in _resources(template, "AWS::ECS::Service"):
        properties["DesiredCount"] = 1


def _without_protection(template: Any) -> None:
    for _, properties in _resources(template, "AWS::IAM::Policy"):
        statements = properties["PolicyDocument"]["Statement"]
        statements[:] = [each for each in statements if "ecs:UpdateTaskProtection" not in each["Action"]]


def _never_woken(template: Any) -> None:
    for id_ in [
        id_
        for id_, properties in _resources(template, "AWS::ApplicationAutoScaling::ScalingPolicy")
        if properties["PolicyType"] == "StepScaling"
    ]:
        del template["Resources"][id_]


OURS: dict[str, tuple[Consumer, Callable[[Any], None]]] = {
    "in-flight-ignored": (LEDGER, _without_in_flight),
    "filled-with-zero": (LEDGER, _fill_with_zero),
    "late-counts-as-0": (LEDGER, _with_gaps_as_zero),
    "wrong-service": (LEDGER, _of_another_service),
    "no-such-metric": (LEDGER, _without_a_cluster),
    "no-container-insights": (LEDGER, _without_insights),
    "desired-count": (LEDGER, _with_a_desired_count),
    "no-wake-from-zero": (NIGHT, _never_woken),
    "cooldown-0": (LEDGER, _without_cooldown),
    "cooldown-too-short": (LEDGER, _with_a_short_cooldown),
    "target-without-lanes": (LEDGER, _without_lanes),
    "target-off": (LEDGER, _with_twice_the_target),
    "wrong-queue": (LEDGER, _on_another_queue),
    "scale-in-without-protection": (LEDGER, _without_protection),
}


@pytest.mark.parametrize("name", one_case_in(3, OURS))
def test_a_mistake_planted_into_our_template_is_found_and_no_other(name: str, ours: tuple[Template, ...]) -> None:
    """Each of OURS changes one thing in the template of our stacks."""
    consumer, plant = OURS[name]
    templates = copy.deepcopy(ours)
    for template in templates:
        plant(template)

    services = {service.name: service for service in read_services(*templates)}

    service = services[naming.service_name(FULL, consumer.name)]
    assert _names(service, tasks_of(consumer)) == [name]


STEPS_TASKS = TaskWork(lanes=1, handler_seconds=2, acceptable_latency_seconds=120)
BACKLOG_TASKS = TaskWork(lanes=5, handler_seconds=2, acceptable_latency_seconds=10.2)


def _steps() -> Any:
    """Return the steps on visible messages that was written by hand, without its mistakes."""
    (template,) = load_template(BY_HAND / "visible_steps.yaml").values()
    template = copy.deepcopy(template)
    resources: Any = template["Resources"]
    resources["ScaleOut"]["Properties"]["StepScalingPolicyConfiguration"]["Cooldown"] = 300
    document = resources["WorkerRole"]["Properties"]["Policies"][0]["PolicyDocument"]
    document["Statement"].append({"Effect": "Allow", "Action": "ecs:UpdateTaskProtection", "Resource": "*"})
    return template


def _of_orders(name: str) -> dict[str, Any]:
    dimensions = [{"Name": "QueueName", "Value": {"Fn::GetAtt": ["Orders", "QueueName"]}}]
    metric = {"Namespace": "AWS/SQS", "MetricName": name, "Dimensions": dimensions}
    return {"ReturnData": False, "MetricStat": {"Stat": "Average", "Period": 60, "Metric": metric}}


_SCALE_IN: tuple[Any, Any] = (
    {
        "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
        "Properties": {
            "PolicyName": "scale-in",
            "PolicyType": "StepScaling",
            "ScalingTargetId": "service/shop/orders|ecs:service:DesiredCount|ecs",
            "StepScalingPolicyConfiguration": {
                "AdjustmentType": "ChangeInCapacity",
                "StepAdjustments": [{"MetricIntervalUpperBound": 0, "ScalingAdjustment": -5}],
            },
        },
    },
    {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "Metrics": [
                {"Id": "all", "Expression": "visible + flying"},
                {**_of_orders("ApproximateNumberOfMessagesVisible"), "Id": "visible"},
                {**_of_orders("ApproximateNumberOfMessagesNotVisible"), "Id": "flying"},
            ],
            "EvaluationPeriods": 15,
            "ComparisonOperator": "LessThanThreshold",
            "Threshold": 1,
            "AlarmActions": [{"Ref": "ScaleIn"}],
        },
    },
)
"""What takes tasks away once all work has been done for a quarter of an hour, for the template above."""


def _backlog() -> Any:
    """Return the handwritten template that scales on a backlog which a Lambda publishes, with its mistakes repaired.

    So it scales in, too.
    """
    (template,) = load_template(BY_HAND / "published_backlog.yaml").values()
    template = copy.deepcopy(template)
    _tracking_of(template)["ScaleOutCooldown"] = 300
    resources: Any = template["Resources"]
    resources["ScaleIn"], resources["Nothing"] = copy.deepcopy(_SCALE_IN)
    return template


def _tracking_of(template: Any) -> Any:
    return template["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]


def _steps_in_on(expression: str) -> Callable[[Any], None]:
    def plant(template: Any) -> None:
        template["Resources"]["NoneVisible"]["Properties"]["Metrics"][0]["Expression"] = expression

    return plant


def _steps_from_zero(template: Any) -> None:
    template["Parameters"]["MinTasks"]["Default"] = 0


def _steps_cooldown(seconds: int) -> Callable[[Any], None]:
    def plant(template: Any) -> None:
        settings = template["Resources"]["ScaleOut"]["Properties"]["StepScalingPolicyConfiguration"]
        settings["Cooldown"] = seconds

    return plant


def _steps_taken_back(template: Any) -> None:
    """Let the step in ask only for messages in flight, each minute: there are none before a task receives."""
    _steps_from_zero(template)
    resources = template["Resources"]
    resources["ScaleIn"]["Properties"]["StepScalingPolicyConfiguration"] |= {
        "AdjustmentType": "ExactCapacity",
        "Cooldown": 0,
        "StepAdjustments": [{"MetricIntervalUpperBound": 0, "ScalingAdjustment": 0}],
    }
    resources["ManyVisible"]["Properties"]["Threshold"] = 0
    alarm = resources["NoneVisible"]["Properties"]
    alarm["EvaluationPeriods"] = 1
    alarm["Metrics"][0]["Expression"] = "flying"
    for query in alarm["Metrics"][1:]:
        query["MetricStat"] |= {"Period": 60, "Stat": "Average"}


def _steps_of_sums(template: Any) -> None:
    template["Resources"]["NoneVisible"]["Properties"]["Metrics"][1]["MetricStat"]["Stat"] = "Sum"


def _steps_with_a_gap(template: Any) -> None:
    settings = template["Resources"]["ScaleOut"]["Properties"]["StepScalingPolicyConfiguration"]
    settings["StepAdjustments"][0]["MetricIntervalUpperBound"] = 300


def _steps_beside_the_processor(template: Any) -> None:
    """Let a policy on CPU take tasks away that wait for others, as CDK's own pattern had it."""
    resources = template["Resources"]
    resources["Processor"] = copy.deepcopy(resources["ScaleOut"])
    properties = resources["Processor"]["Properties"]
    del properties["StepScalingPolicyConfiguration"]
    properties |= {
        "PolicyName": "processor",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": 50,
            "PredefinedMetricSpecification": {"PredefinedMetricType": "ECSServiceAverageCPUUtilization"},
        },
    }


def _processor_alone(template: Any) -> None:
    settings = _tracking_of(template)
    del settings["CustomizedMetricSpecification"]
    settings["PredefinedMetricSpecification"] = {"PredefinedMetricType": "ECSServiceAverageCPUUtilization"}


def _few_tasks(template: Any) -> None:
    template["Resources"]["Target"]["Properties"] |= {"MinCapacity": 1, "MaxCapacity": 6}
    del _tracking_of(template)["DisableScaleIn"]


def _tracking_age(template: Any) -> None:
    _tracking_visible(template)
    _tracking_of(template)["CustomizedMetricSpecification"]["MetricName"] = "ApproximateAgeOfOldestMessage"


def _tracking_visible(template: Any) -> None:
    metric = _tracking_of(template)["CustomizedMetricSpecification"]
    metric |= {"Namespace": "AWS/SQS", "MetricName": "ApproximateNumberOfMessagesVisible"}
    metric["Dimensions"] = [{"Name": "QueueName", "Value": {"Fn::GetAtt": "Orders.QueueName"}}]


def _steps_on_dead_letters(template: Any) -> None:
    dimensions = template["Resources"]["ManyVisible"]["Properties"]["Dimensions"]
    dimensions[0]["Value"] = {"Fn::GetAtt": "DeadJobs.QueueName"}


def _steps_without_protection(template: Any) -> None:
    template["Resources"]["WorkerRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].pop()


def _target(value: float) -> Callable[[Any], None]:
    def plant(template: Any) -> None:
        _tracking_of(template)["TargetValue"] = value

    return plant


def _steps_that_cannot_extend(template: Any) -> None:
    resources = template["Resources"]
    resources["Jobs"]["Properties"]["VisibilityTimeout"] = 2
    (document,) = (each["PolicyDocument"] for each in resources["WorkerRole"]["Properties"]["Policies"])
    document["Statement"][1]["Action"].remove("sqs:ChangeMessageVisibility")


def _steps_out_only(template: Any) -> None:
    for name in ("ScaleIn", "NoneVisible"):
        del template["Resources"][name]


def _steps_in_that_never_come(template: Any) -> None:
    """Let the alarm of the step in wait for a metric that has no data while no task runs, or all is quiet."""
    template["Resources"]["NoneVisible"]["Properties"]["Threshold"] = -1


def _steps_that_overlap(template: Any) -> None:
    settings = template["Resources"]["ScaleOut"]["Properties"]["StepScalingPolicyConfiguration"]
    settings["StepAdjustments"][0]["MetricIntervalUpperBound"] = 500


def _steps_the_wrong_way(template: Any) -> None:
    alarm = template["Resources"]["ManyVisible"]["Properties"]
    alarm |= {"ComparisonOperator": "LessThanThreshold"}
    settings = template["Resources"]["ScaleOut"]["Properties"]["StepScalingPolicyConfiguration"]
    settings["StepAdjustments"] = [{"MetricIntervalUpperBound": 0, "ScalingAdjustment": 50}]


def _steps_on_slow_points(template: Any) -> None:
    template["Resources"]["ManyVisible"]["Properties"]["Period"] = 900


def _steps_on_many_points(template: Any) -> None:
    template["Resources"]["ManyVisible"]["Properties"] |= {"EvaluationPeriods": 15, "DatapointsToAlarm": 15}


def _steps_on_calls(template: Any) -> None:
    """Let the step out ask how many messages are sent, and the step in say nowhere when it begins."""
    template["Resources"]["ManyVisible"]["Properties"] |= {"MetricName": "NumberOfMessagesSent", "Statistic": "Sum"}
    settings = template["Resources"]["ScaleIn"]["Properties"]["StepScalingPolicyConfiguration"]
    settings["StepAdjustments"] = [{"ScalingAdjustment": -1}]


def _steps_with_too_many_desired(template: Any) -> None:
    template["Resources"]["Workers"]["Properties"]["DesiredCount"] = 20


def _never_in(template: Any) -> None:
    for name in ("ScaleIn", "Nothing"):
        del template["Resources"][name]


def _tracking_empty_receives(template: Any) -> None:
    _tracking_visible(template)
    metric = _tracking_of(template)["CustomizedMetricSpecification"]
    metric |= {"MetricName": "NumberOfEmptyReceives", "Statistic": "Sum"}


def _tracking_sent(template: Any) -> None:
    _tracking_visible(template)
    metric = _tracking_of(template)["CustomizedMetricSpecification"]
    metric |= {"MetricName": "NumberOfMessagesSent", "Statistic": "Sum"}


def _tracking_twice(template: Any) -> None:
    again = copy.deepcopy(template["Resources"]["Backlog"])
    again["Properties"]["PolicyName"] = "backlog-too"
    template["Resources"]["Again"] = again


def _nothing(_template: Any) -> None:
    """Plant nothing."""


@pytest.mark.parametrize(
    ("template", "plant", "names"),
    [
        (_steps, _nothing, []),
        (_steps, _steps_in_on("visible"), ["in-flight-ignored"]),
        (_steps, _steps_in_on("FILL(visible, 0) + FILL(flying, REPEAT)"), ["filled-with-zero"]),
        (_steps, _steps_from_zero, ["no-wake-from-zero"]),
        (_steps, _steps_taken_back, ["opposing-policies"]),
        (_steps, _steps_beside_the_processor, ["opposing-policies"]),
        (_steps, _steps_of_sums, ["sum-of-a-gauge"]),
        (_steps, _steps_with_a_gap, ["steps-with-gaps"]),
        (_steps, _steps_cooldown(0), ["cooldown-0"]),
        (_steps, _steps_cooldown(120), ["cooldown-too-short"]),
        (_steps, _steps_on_dead_letters, ["wrong-queue"]),
        (_steps, _steps_without_protection, ["scale-in-without-protection"]),
        (_steps, _steps_that_cannot_extend, ["timeout-too-short"]),
        (_steps, _steps_out_only, ["never-scales-in"]),
        (_steps, _steps_in_that_never_come, ["never-scales-in"]),
        (_steps, _steps_that_overlap, ["steps-overlap"]),
        (_steps, _steps_the_wrong_way, ["wrong-way"]),
        (_steps, _steps_on_slow_points, ["slow-metric"]),
        (_steps, _steps_on_many_points, ["slow-metric"]),
        (_steps, _steps_on_calls, ["calls-counted", "step-without-bounds"]),
        (_steps, _steps_with_too_many_desired, ["desired-count"]),
        (_backlog, _nothing, []),
        (_backlog, _never_in, ["never-scales-in"]),
        (_backlog, _tracking_empty_receives, ["wrong-way"]),
        (_backlog, _tracking_twice, ["same-metric-twice"]),
        (_backlog, _tracking_visible, ["not-in-proportion"]),
        (_backlog, _tracking_age, ["not-in-proportion"]),
        (_backlog, _tracking_sent, ["not-in-proportion"]),
        (_backlog, _few_tasks, ["flapping"]),
        (_backlog, _processor_alone, ["queue-not-watched"]),
        (_backlog, _target(25.5 / 5), ["target-without-lanes"]),
        (_backlog, _target(60), ["target-off"]),
    ],
    ids=lambda value: getattr(value, "__name__", None) or ",".join(value) or "none",
)
def test_only_the_planted_mistake_is_found_in_a_handwritten_template(
    template: Callable[[], Any], plant: Callable[[Any], None], names: list[str]
) -> None:
    """`_nothing` plants no mistake: the template itself has none."""
    written = template()
    plant(written)

    (service,) = read_services(written)

    assert _names(service, STEPS_TASKS if template is _steps else BACKLOG_TASKS) == names


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("visible_steps.yaml", ["cooldown-too-short", "scale-in-without-protection"]),
        ("published_backlog.yaml", ["cooldown-too-short", "never-scales-in"]),
    ],
    ids=["steps", "backlog"],
)
def test_the_mistakes_of_unchanged_handwritten_templates_are_found(name: str, names: list[str]) -> None:
    """The files have mistakes that `_steps` and `_backlog` take out for the test above."""
    (service,) = read_services(*load_template(BY_HAND / name).values())

    assert _names(service, STEPS_TASKS if "steps" in name else BACKLOG_TASKS) == names


def test_each_policy_that_reads_another_queue_is_a_mistake() -> None:
    """Both policies of the service read another queue; on its own queue they would start a task."""
    service = service_of(FULL, NIGHT)
    assert service.queue is not None

    names = _names(replace(service, queue=replace(service.queue, name="other")), tasks_of(NIGHT))

    assert names == ["wrong-queue"] * 2


def test_steps_that_set_a_number_need_no_cooldown() -> None:
    """Taken again they change nothing."""
    template = _steps()
    _steps_cooldown(0)(template)
    settings = template["Resources"]["ScaleOut"]["Properties"]["StepScalingPolicyConfiguration"]
    settings["AdjustmentType"] = "ExactCapacity"
    for step, tasks in zip(settings["StepAdjustments"], (4, 12), strict=True):
        step["ScalingAdjustment"] = tasks
    in_flight = _steps_in_on("visible + flying")
    in_flight(template)

    (service,) = read_services(template)

    assert "cooldown-0" not in _names(service, STEPS_TASKS)


def test_two_policies_that_fight_are_named_with_the_remedy() -> None:
    """Repaired, it waits until nothing is left."""
    template = _steps()
    _steps_taken_back(template)
    (service,) = read_services(template)

    (mistake,) = _mistakes_of(service, STEPS_TASKS)

    assert mistake.policy == "scale-in"
    assert mistake.found == "scale-out starts tasks, and scale-in takes them back while messages wait for them"
    *_, sentence = mistake.consequence.partition("all in all: ")
    before, after = (float(each.split()[1].replace(",", "")) for each in sentence.split("; repaired: "))
    assert after < before / 2


def test_a_mistakes_effect_is_simulated_beside_its_repair() -> None:
    """Long jobs: messages are cut short without protection, and none with it."""
    service = replace(service_of(FULL, LEDGER), is_protected=False)

    (mistake,) = _mistakes_of(service, tasks_of(LEDGER))

    cut_short = int(mistake.consequence.split(": ")[1].split()[0])
    assert cut_short > 0
    assert mistake.consequence.endswith("protected: 0")


OWN_BACKLOG_PER_TASK = "(visible + inflight) / IF(running > 0, running, 1)"
REPEATED = "FILL(FILL(visible + inflight, REPEAT) / FILL(running, REPEAT), 0)"


def _on(text: str, own: str | None = None, target: float = 120) -> Experiment:
    """Return a service of two lanes a task, tracked on an expression, or on a metric of its own that is one."""
    consumer = Consumer(name="billing", lanes=2, min_tasks=1, max_tasks=4, acceptable_latency_seconds=60)
    place = replace(ENVIRONMENTS["dev"], consumers=(consumer,))
    service, tasks = service_of(place, consumer), replace(tasks_of(consumer), protected_seconds=0)
    (policy,) = service.policies
    assert isinstance(policy, TargetTracking)
    metrics = {"m": MetricSource(namespace="Own", name="Load", dimensions={})} if own else policy.watched.metrics
    watched = MetricExpression(term=parse(text), metrics=metrics, text=text)
    changed = replace(service, policies=(replace(policy, watched=watched, target=target),))
    given = {**OWN_METRICS, ("Own", "Load"): parse(own or "visible")}
    return Experiment(changed, tasks, scenarios(changed, tasks, groups=20), given)


@pytest.mark.parametrize(
    ("text", "own", "target", "names"),
    [
        pytest.param("FILL((visible + inflight) / running, 0)", None, 120, ["filled-with-zero"], id="zero"),
        pytest.param(REPEATED, None, 120, ["flapping"], id="repeat"),
        pytest.param("(visible + inflight) / running", None, 120, ["late-counts-as-0"], id="no-fill"),
        pytest.param(
            "m", "visible / IF(running > 0, running, 1)", 120, ["in-flight-ignored", "flapping"], id="own-visible"
        ),
        pytest.param("m", OWN_BACKLOG_PER_TASK, 120, ["flapping"], id="own-backlog-per-task"),
        pytest.param("m", OWN_BACKLOG_PER_TASK, 60, ["flapping", "target-without-lanes"], id="own-target-of-one-lane"),
        pytest.param("m", "age", 60, ["not-in-proportion", "flapping"], id="own-age"),
        pytest.param(
            "FILL(visible, REPEAT) + FILL(inflight, REPEAT)", None, 120, ["not-in-proportion", "flapping"], id="backlog"
        ),
        pytest.param("m", "visible + inflight", 120, ["not-in-proportion", "flapping"], id="own-backlog"),
        pytest.param("m", "inflight / IF(running > 0, running, 1)", 1.7, [], id="own-busy-lanes"),
    ],
)
def test_mistakes_are_found_in_a_policys_expression_and_in_its_own_metric(
    text: str, own: str | None, target: float, names: list[str]
) -> None:
    """`text` is the policy's expression, and `own` the formula of a metric `m` that the user publishes.

    What does not halve when the tasks double is not in proportion to them: an age, or a backlog that is not divided by
    the tasks. Of steady traffic a tracked backlog scales out and in again: it flaps. The number of busy lanes of a task
    does neither.
    """
    assert [mistake.name for mistake in mistakes(_on(text, own, target))] == names


def test_a_service_that_never_scales_in_needs_no_protection() -> None:
    """Protection is against the end of a task at work, and such a service ends none."""
    tried = _on(REPEATED)
    (policy,) = tried.service.policies
    assert isinstance(policy, TargetTracking)
    stays = replace(tried.service, is_protected=False, policies=(replace(policy, disables_scale_in=True),))
    shrinks = replace(tried.service, is_protected=False)

    assert [mistake.name for mistake in mistakes(replace(tried, service=stays))] == ["never-scales-in"]
    assert [mistake.name for mistake in mistakes(replace(tried, service=shrinks))] == [
        "flapping",
        "scale-in-without-protection",
    ]


@pytest.mark.slow  # simulated days
def test_a_cooldown_lasts_until_metrics_show_the_started_tasks() -> None:
    """320 s until metrics and start: 300 are too few, and 360 are advised."""
    tried = _on(REPEATED)
    slow = replace(tried, tasks=replace(tried.tasks, start_seconds=200))

    _, mistake = mistakes(slow)

    assert mistake.name == "cooldown-too-short"
    assert mistake.repair == "a cooldown of 360 s"
