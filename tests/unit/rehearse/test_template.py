"""The scaling of a service is read out of templates: ours, those of CDK's own pattern, and others written by hand."""

import copy
import functools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_ecs_patterns as patterns
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.declaration import Environment, backlog, naming
from sluice.declaration.metric_math import Metric
from sluice.errors import ConfigError
from sluice.rehearse.model.policies import (
    MetricExpression,
    MetricSource,
    QueueSettings,
    ScaledService,
    ScalingStep,
    SimulatedAlarm,
    StepScaling,
    TargetTracking,
)
from sluice.rehearse.reading.cloudformation import Template, load_template
from sluice.rehearse.reading.expressions import parse
from sluice.rehearse.reading.template import read_services
from tests.support.project import PROJECT
from tests.support.templates.environments import FULL, SHARED

BY_HAND = PROJECT / "tests/support/templates/scaling"


@functools.cache
def _handwritten_template(name: str) -> Template:
    (template,) = load_template(BY_HAND / name).values()
    return template


def _read(name: str) -> dict[str, Any]:
    return copy.deepcopy(dict(_handwritten_template(name)))


def _sqs(name: str, queue: str, *, statistic: str = "Average", period_seconds: int = 60) -> MetricSource:
    return MetricSource(
        namespace="AWS/SQS",
        name=name,
        dimensions={"QueueName": queue},
        statistic=statistic,
        period_seconds=period_seconds,
    )


def _expression_of(source: MetricSource) -> MetricExpression:
    return MetricExpression(term=Metric("metric"), metrics={"metric": source}, text="metric")


@pytest.mark.parametrize("environment", [FULL, SHARED], ids=lambda environment: environment.name)
def test_our_services_are_read_as_they_are_declared(environment: Environment, templates_folder: Path) -> None:
    """All stacks of the deployed folder are read together. Of a queue that no stack has, only the name is known."""
    services = {
        service.name: service for service in read_services(*load_template(templates_folder / environment.name).values())
    }

    assert set(services) == {naming.service_name(environment, consumer.name) for consumer in environment.consumers}
    for consumer in environment.consumers:
        service, (tracking, *others) = (
            (found := services[naming.service_name(environment, consumer.name)]),
            found.policies,
        )
        term = consumer.demand_per_task
        assert service.min_tasks == consumer.min_tasks
        assert service.max_tasks == consumer.max_tasks
        assert service.cpu_units == consumer.cpu
        assert service.memory_mib == consumer.memory_mib
        assert service.stop_timeout_seconds == consumer.stop_timeout_seconds
        assert service.is_protected
        assert service.queue == (
            QueueSettings(
                name=naming.queue_name(environment, consumer),
                is_fifo=consumer.fifo,
                visibility_timeout_seconds=consumer.visibility_timeout_seconds,
                max_receive_count=consumer.max_attempts,
            )
            if consumer.queue is None
            else QueueSettings(name="invoices.fifo")
        )
        assert isinstance(tracking, TargetTracking)
        assert tracking.target == consumer.target_backlog
        assert tracking.watched.term == term
        assert tracking.watched.text == term.text()
        assert tracking.watched.metrics[backlog.IN_FLIGHT] == _sqs(
            "ApproximateNumberOfMessagesNotVisible", naming.queue_name(environment, consumer)
        )
        assert tracking.watched.metrics[backlog.RUNNING] == MetricSource(
            namespace="ECS/ContainerInsights",
            name="RunningTaskCount",
            dimensions={"ClusterName": naming.cluster_name(environment), "ServiceName": service.name},
        )
        steps = [policy for policy in others if isinstance(policy, StepScaling)]
        assert [step.alarm.watched.term for step in steps] == (
            [backlog.work_without_workers()] if consumer.min_tasks == 0 else []
        )


def test_the_pattern_of_cdk_is_read(tmp_path: Path) -> None:
    """`QueueProcessingFargateService` as it is installed: CPU, and steps on the messages visible in five minutes."""
    app = cdk.App(outdir=str(tmp_path), builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Shop")
    patterns.QueueProcessingFargateService(
        stack, "Jobs", image=ecs.ContainerImage.from_registry("worker"), min_scaling_capacity=2, max_scaling_capacity=7
    )
    app.synth()

    (service,) = read_services(*load_template(tmp_path).values())

    assert service.queue is not None
    queue = service.queue.name
    visible = _expression_of(
        _sqs("ApproximateNumberOfMessagesVisible", queue, statistic="Maximum", period_seconds=300),
    )
    tracking, *steps = service.policies
    assert service.min_tasks == 2
    assert service.max_tasks == 7
    assert service.is_protected is False
    assert service.queue == QueueSettings(name=queue, is_fifo=False, visibility_timeout_seconds=30, max_receive_count=3)
    assert queue.startswith("JobsEcsProcessingQueue")
    assert isinstance(tracking, TargetTracking)
    (cpu,) = tracking.watched.metrics.values()
    assert tracking.target == 50
    assert cpu.namespace == "AWS/ECS"
    assert cpu.name == "CPUUtilization"
    assert cpu.dimensions["ServiceName"] == service.name
    assert [
        (policy.alarm.watched, policy.alarm.comparison, policy.alarm.threshold, policy.steps)
        for policy in steps
        if isinstance(policy, StepScaling)
    ] == [
        (visible, "LessThanOrEqualToThreshold", 0, (ScalingStep(lower=None, upper=0, adjustment=-1),)),
        (
            visible,
            "GreaterThanOrEqualToThreshold",
            100,
            (ScalingStep(lower=0, upper=400, adjustment=1), ScalingStep(lower=400, upper=None, adjustment=5)),
        ),
    ]


def test_steps_on_visible_messages_are_read_from_yaml() -> None:
    """The YAML has short tags, parameters, a mapping and conditions, each at its default."""
    queue = "<AWS::StackName>-jobs.fifo"

    assert read_services(_read("visible_steps.yaml")) == (
        ScaledService(
            name="Workers",
            min_tasks=1,
            max_tasks=12,
            queue=QueueSettings(name=queue, is_fifo=True, visibility_timeout_seconds=120, max_receive_count=4),
            dimensions={"ClusterName": "shop", "ServiceName": "Workers"},
            stop_timeout_seconds=90,  # the container that is not essential is not waited for
            cpu_units=512,
            memory_mib=1_024,
            policies=(
                StepScaling(
                    name="scale-out",
                    adjustment_type="PercentChangeInCapacity",
                    min_adjustment_magnitude=2,
                    cooldown_seconds=120,
                    steps=(
                        ScalingStep(lower=0, upper=400, adjustment=50),
                        ScalingStep(lower=400, upper=None, adjustment=100),
                    ),
                    alarm=SimulatedAlarm(
                        name="<AWS::StackName>-many-visible",
                        watched=_expression_of(_sqs("ApproximateNumberOfMessagesVisible", queue, statistic="Maximum")),
                        comparison="GreaterThanThreshold",
                        threshold=100,
                        evaluation_periods=3,
                        datapoints_to_alarm=2,
                        missing_data="notBreaching",
                    ),
                ),
                StepScaling(
                    name="scale-in",
                    adjustment_type="ChangeInCapacity",
                    cooldown_seconds=300,
                    steps=(ScalingStep(lower=None, upper=0, adjustment=-1),),
                    alarm=SimulatedAlarm(
                        name="NoneVisible",
                        watched=MetricExpression(
                            term=parse("visible + flying"),
                            metrics={
                                "visible": _sqs("ApproximateNumberOfMessagesVisible", queue, period_seconds=300),
                                "flying": _sqs(
                                    "ApproximateNumberOfMessagesNotVisible", queue, statistic="p90", period_seconds=300
                                ),
                            },
                            text="visible + flying",
                        ),
                        comparison="LessThanOrEqualToThreshold",
                        threshold=0,
                        period_seconds=300,
                        evaluation_periods=2,
                        datapoints_to_alarm=2,
                    ),
                ),
            ),
        ),
    )


def test_a_published_backlog_is_read_from_yaml() -> None:
    """The role may receive from two queues; the service works on the one in its environment variables."""
    published = MetricSource(namespace="Shop/Workers", name="BacklogPerTask", dimensions={"Service": "orders"})

    assert read_services(_read("published_backlog.yaml")) == (
        ScaledService(
            name="orders",
            min_tasks=2,
            max_tasks=40,
            queue=QueueSettings(name="Orders", is_fifo=False, visibility_timeout_seconds=300),
            dimensions={"ClusterName": "shop", "ServiceName": "orders"},
            is_protected=True,
            cpu_units=1_024,
            memory_mib=2_048,
            policies=(
                TargetTracking(
                    name="backlog",
                    watched=_expression_of(published),
                    target=25.5,
                    scale_out_cooldown_seconds=60,
                    disables_scale_in=True,
                ),
            ),
        ),
    )


def _change(template: dict[str, Any], *path: object, value: object) -> dict[str, Any]:
    """Return the template with something in it set, or without it where the value is None."""
    *way, last = path
    found: Any = template
    for key in way:
        found = found[key]
    if value is None:
        del found[last]
    else:
        found[last] = value
    return template


ROLE = ("Resources", "WorkerRole", "Properties", "Policies", 0, "PolicyDocument", "Statement")


@pytest.mark.parametrize(
    ("path", "value", "queue"),
    [
        (ROLE, {"Effect": "Allow", "Action": "sqs:ReceiveMessage", "Resource": {"Fn::GetAtt": "Jobs.Arn"}}, "Jobs"),
        (ROLE, {"Effect": "Allow", "Action": ["*"], "Resource": "arn:aws:sqs:*:*:*-jobs.fifo"}, "Jobs"),
        (ROLE, {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}, "Jobs"),  # of two, the environment's
        (ROLE, {"Effect": "Allow", "Action": "SQS:receivemessage", "Resource": "arn:aws:sqs:a:1:far.fifo"}, "far.fifo"),
        (ROLE, {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}, "Jobs"),  # the environment's
        (ROLE, {"Effect": "Allow", "NotAction": "sqs:*", "NotResource": "*"}, "Jobs"),
        (ROLE, [], "Jobs"),
    ],
)
def test_a_services_queue_is_the_one_its_role_may_receive_from(path: tuple[str], value: object, queue: str) -> None:
    """If the role allows any or none, the queue in the task's variables counts."""
    (service,) = read_services(_change(_read("visible_steps.yaml"), *path, value=value))

    assert service.queue is not None
    assert service.queue.name == {"Jobs": "<AWS::StackName>-jobs.fifo"}.get(queue, queue)
    assert service.queue.is_fifo


ORDERS, RETURNS, INFO = {"Fn::GetAtt": "Orders.Arn"}, {"Ref": "Returns"}, "info"


@pytest.mark.parametrize(
    ("role", "environment", "watched", "queue"),
    [
        ([ORDERS], [RETURNS], "Returns", "Orders"),  # the role is right
        ([ORDERS, RETURNS], [INFO], None, None),
        ([ORDERS, RETURNS], [RETURNS], "Orders", "Returns"),
        ([ORDERS, RETURNS], ["https://sqs.eu-central-1.amazonaws.com/1/theirs"], "Orders", "Orders"),
        ([ORDERS, RETURNS, "arn:aws:sqs:a:1:far"], [ORDERS, RETURNS], "Orders", "Orders"),
        ([], ["https://sqs.eu-central-1.amazonaws.com/1/theirs"], "Orders", "theirs"),
        ([], [{"Fn::GetAtt": "Returns.QueueName"}], None, "Returns"),
        ([], [ORDERS, RETURNS, INFO], "Returns", "Returns"),
        ([], [ORDERS, RETURNS], None, None),
        ([], [INFO], "Orders", "Orders"),
        ([], [], None, None),
    ],
)
def test_role_then_variables_then_metrics_decide_a_services_queue(
    role: list[object], environment: list[object], watched: str | None, queue: str | None
) -> None:
    """Each may name several queues or none; if all three leave several, the queue is unknown."""
    template = _read("published_backlog.yaml")
    document = template["Resources"]["Receive"]["Properties"]["PolicyDocument"]
    document["Statement"] = [
        {"Effect": "Allow", "Action": "sqs:ReceiveMessage", "Resource": role},
        {"Effect": "Deny", "Action": ["sqs:ReceiveMessage", "ecs:UpdateTaskProtection"], "Resource": "*"},
    ]
    (container,) = template["Resources"]["Tasks"]["Properties"]["ContainerDefinitions"]
    container["Environment"] = [{"Name": "X", "Value": value} for value in environment]
    settings = template["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    if watched is not None:
        settings["CustomizedMetricSpecification"]["Dimensions"] = [{"Name": "QueueName", "Value": watched}]

    (service,) = read_services(template)

    assert (service.queue and service.queue.name) == queue
    assert not service.is_protected


def test_a_task_without_role_or_size_takes_those_of_its_containers() -> None:
    """Two containers of 512 and 128 CPU units are 640."""
    template = _read("published_backlog.yaml")
    task = template["Resources"]["Tasks"]["Properties"]
    for name in ("TaskRoleArn", "Cpu", "Memory"):
        del task[name]
    task["ContainerDefinitions"][0] |= {"Cpu": 512, "Memory": 1_024}
    task["ContainerDefinitions"].append({"Name": "metrics", "Cpu": 128, "Memory": 64, "Essential": "false"})

    (service,) = read_services(template)

    assert service.cpu_units == 640
    assert service.memory_mib == 1_088
    assert service.is_protected is False
    assert service.queue == QueueSettings(name="Orders", is_fifo=False, visibility_timeout_seconds=300)


def test_a_service_of_another_template_is_known_by_its_scalable_target() -> None:
    template = _read("published_backlog.yaml")
    for name in ("Service", "Orders", "Returns"):
        del template["Resources"][name]

    (service,) = read_services(template)

    assert service.name == "orders"
    assert service.min_tasks == 2
    assert service.max_tasks == 40
    assert len(service.policies) == 1
    assert service.queue is None


def test_a_policy_may_be_in_a_template_of_its_own() -> None:
    """It names its target, or its service."""
    template = _read("published_backlog.yaml")
    policy = {"Resources": {"Backlog": template["Resources"].pop("Backlog")}}
    by_service = copy.deepcopy(policy)
    properties = by_service["Resources"]["Backlog"]["Properties"]
    del properties["ScalingTargetId"]
    properties |= {"ResourceId": "service/shop/orders", "ScalableDimension": "ecs:service:DesiredCount"}

    for other in (policy, by_service):
        (service,) = read_services(other, template)
        assert [found.name for found in service.policies] == ["backlog"]


def test_stages_of_one_app_are_not_mixed_up() -> None:
    """Their templates have the same logical ids. Each service has the policies and alarms of its own stage."""
    template = _read("visible_steps.yaml")
    (service,) = read_services(template)

    first, second = read_services(template, copy.deepcopy(template))

    assert first.name == "template 1/Workers"
    assert second.name == "template 2/Workers"
    assert replace(first, name="Workers") == replace(second, name="Workers") == service


@pytest.mark.parametrize(
    "policy",
    [
        {"Type": "AWS::IAM::Policy", "Properties": {"Roles": [{"Ref": "Role"}]}},
        {"Type": "AWS::IAM::RolePolicy", "Properties": {"RoleName": "orders-worker"}},
        {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"Roles": [{"Ref": "Role"}]}},
    ],
)
def test_policies_are_found_in_any_form(policy: dict[str, Any]) -> None:
    template = _read("published_backlog.yaml")
    del template["Resources"]["Role"]["Properties"]["ManagedPolicyArns"]
    del template["Resources"]["Tasks"]["Properties"]["ContainerDefinitions"][0]["Environment"]
    statements = [
        {"Effect": "Allow", "Action": "sqs:ReceiveMessage", "Resource": {"Fn::GetAtt": ["Orders", "Arn"]}},
        {"Effect": "Allow", "Action": "ecs:UpdateTaskProtection", "Resource": "*"},
    ]
    template["Resources"]["Receive"] = policy
    policy["Properties"]["PolicyDocument"] = {"Statement": statements}

    (service,) = read_services(template)

    assert service.queue == QueueSettings(name="Orders", is_fifo=False, visibility_timeout_seconds=300)
    assert service.is_protected


def _split() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return two templates: queues, and what works on one of them and imports its name and ARN."""
    queues: dict[str, Any] = {
        "Resources": {"Orders": {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 77}}},
        "Outputs": {
            "Arn": {"Value": {"Fn::GetAtt": ["Orders", "Arn"]}, "Export": {"Name": {"Fn::Sub": "queues-arn"}}},
            "Name": {"Value": {"Fn::GetAtt": ["Orders", "QueueName"]}, "Export": {"Name": "queues-name"}},
            "Unexported": {"Value": "x"},
        },
    }
    workers = _read("published_backlog.yaml")
    for name in ("Orders", "Returns"):
        del workers["Resources"][name]
    policy = workers["Resources"]["Receive"]["Properties"]["PolicyDocument"]
    policy["Statement"][0]["Resource"] = {"Fn::ImportValue": "queues-arn"}
    settings = workers["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    settings["CustomizedMetricSpecification"]["Dimensions"] = [
        {"Name": "QueueName", "Value": {"Fn::ImportValue": {"Fn::Join": ["-", ["queues", "name"]]}}}
    ]
    return queues, workers


def test_stacks_of_a_folder_are_read_together(tmp_path: Path) -> None:
    """A stack's import is another one's export, also below the folder; alone, only that it imports is known."""
    queues, workers = _split()
    for path, template in (("Queues.template.json", queues), ("assembly-Shop/Workers.template.json", workers)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(json.dumps(template), encoding="utf-8")
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")

    (service,) = read_services(*load_template(tmp_path).values())
    (alone,) = read_services(workers)

    assert service.queue == QueueSettings(name="Orders", is_fifo=False, visibility_timeout_seconds=77)
    (tracking,) = service.policies
    assert isinstance(tracking, TargetTracking)
    assert tracking.watched.metrics["metric"].dimensions == {"QueueName": "Orders"}
    assert alone.queue == QueueSettings(name="<queues-arn>", is_fifo=False)


def test_expressions_may_name_others() -> None:
    template = _read("visible_steps.yaml")
    metrics = template["Resources"]["NoneVisible"]["Properties"]["Metrics"]
    metrics[0]["Expression"] = "IF(twice > 0, twice, 0)"
    metrics.append({"Id": "twice", "Expression": "2 * visible", "ReturnData": False})

    (service,) = read_services(template)

    policy = service.policies[1]
    assert isinstance(policy, StepScaling)
    assert policy.alarm.watched.term.text() == "IF(((2 * visible) > 0), (2 * visible), 0)"
    assert list(policy.alarm.watched.metrics) == ["visible"]
    assert policy.alarm.watched.text == "IF(twice > 0, twice, 0)"


TARGET, OUT = ("Resources", "WorkersTarget", "Properties"), ("Resources", "ScaleOut", "Properties")
STEPS = (*OUT, "StepScalingPolicyConfiguration")
ALARM, MATH = ("Resources", "ManyVisible", "Properties"), ("Resources", "NoneVisible", "Properties")


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (
            ("Parameters", "MinTasks", "Default"),
            None,
            "AWS::ApplicationAutoScaling::ScalableTarget WorkersTarget: MinCapacity is '<MinTasks>'; allowed: a number,"
            " or a parameter with a default; give it: --parameter MinTasks=VALUE",
        ),
        ((*TARGET, "MaxCapacity"), None, "WorkersTarget: MaxCapacity is missing; allowed: a number, or a parameter"),
        ((*TARGET, "MaxCapacity"), 2.5, "WorkersTarget: MaxCapacity is 2.5; allowed: a whole number, 0 or more"),
        ((*TARGET, "MinCapacity"), 13, "WorkersTarget: MinCapacity is 13; allowed: 0 to MaxCapacity, which is 12"),
        ((*TARGET, "ResourceId"), {"Ref": "Image"}, "ResourceId is '<Image>'; allowed: service/CLUSTER/SERVICE"),
        ((*TARGET, "ScalableDimension"), "dynamodb:table:ReadCapacityUnits", "the template scales no ECS service"),
        ((*OUT, "PolicyType"), "PredictiveScaling", "ScaleOut: PolicyType is 'PredictiveScaling'; allowed: TargetTr"),
        (
            (*STEPS, "AdjustmentType"),
            "More",
            "StepScalingPolicyConfiguration.AdjustmentType is 'More'; allowed: Change",
        ),
        (
            (*STEPS, "StepAdjustments", 1, "ScalingAdjustment"),
            "x",
            "StepScalingPolicyConfiguration.StepAdjustments.1.ScalingAdjustment is 'x'; allowed: a number",
        ),
        (
            (*ALARM, "AlarmActions"),
            [],
            "ScalingPolicy ScaleOut: no AWS::CloudWatch::Alarm of its template has it in Ala",
        ),
        ((*ALARM, "ActionsEnabled"), False, "ScalingPolicy ScaleOut: no AWS::CloudWatch::Alarm of its template"),
        (
            (*ALARM, "ComparisonOperator"),
            "GreaterThanUpperThreshold",
            "ManyVisible: ComparisonOperator is 'GreaterThanU",
        ),
        ((*ALARM, "Threshold"), None, "ManyVisible: Threshold is missing"),
        ((*ALARM, "EvaluationPeriods"), -1, "ManyVisible: EvaluationPeriods is -1; allowed: a whole number, 0 or more"),
        (
            (*ALARM, "TreatMissingData"),
            "zero",
            "ManyVisible: TreatMissingData is 'zero'; allowed: missing, breaching, ",
        ),
        ((*ALARM, "Statistic"), None, "ManyVisible: ExtendedStatistic is missing"),
        ((*ALARM, "MetricName"), None, "ManyVisible: MetricName is missing; allowed: a text"),
        ((*ALARM, "Period"), 10, "ManyVisible: Period is 10; allowed: 60 or a multiple, as SQS and ECS report once a"),
        ((*MATH, "Metrics", 2, "MetricStat", "Stat"), "tm90", "MetricStat.Period is 300; allowed: 60 for tm90; more"),
        (
            (*STEPS, "StepAdjustments"),
            ["x"],
            "StepScalingPolicyConfiguration.StepAdjustments is ['x']; allowed: a list",
        ),
        (
            (*STEPS, "StepAdjustments"),
            [{"MetricIntervalLowerBound": lower, "ScalingAdjustment": 1} for lower in range(21)],
            "ScalingPolicy ScaleOut has 21 steps; allowed: at most 20",
        ),
        ((*MATH, "Metrics", 1, "ReturnData"), True, "NoneVisible: Metrics is ["),
        ((*MATH, "Metrics", 0, "Expression"), "visible +", "metric math 'visible +', character 10: the end is not"),
        ((*MATH, "Metrics", 0, "Expression"), "all + 1", "NoneVisible: Metrics.0.Expression is 'all + 1'; allowed: an"),
        (
            (*MATH, "Metrics", 0, "Expression"),
            "seen",
            "NoneVisible: metric math names seen; allowed: 'all', 'visible', 'flying'",
        ),
        ((*MATH, "Metrics", 0, "Expression"), "visible / PERIOD(visible)", "allowed: PERIOD only of metrics of 60 s"),
        (
            ("Resources", "WorkerTasks", "Properties", "Cpu"),
            "much",
            "WorkerTasks: Cpu is 'much'; allowed: a number, or",
        ),
        (
            ("Resources", "Jobs", "Properties", "VisibilityTimeout"),
            "long",
            "Queue Jobs: VisibilityTimeout is 'long'; all",
        ),
        (
            ("Resources", "Jobs", "Properties", "QueueName"),
            {"Fn::GetAtt": ["Jobs", "QueueName"]},
            "the template's references go in a circle",
        ),
    ],
)
def test_a_template_that_cannot_be_rehearsed_is_refused_in_one_line(
    path: tuple[object, ...], value: object, reason: str
) -> None:
    template = _change(_read("visible_steps.yaml"), *path, value=value)

    with pytest.raises(ConfigError) as refused:
        read_services(template)

    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


_JUNK: list[Any] = [
    *(None, True, 1, -1, 2.5, math.inf, "", "x", "\n", [], {}, [1], [None], {"a": {"b": 1}}),
    *({"Ref": 1}, {"Ref": "None"}, {"Fn::If": []}, {"Fn::GetAtt": "Jobs"}, {"Fn::GetAtt": ["Jobs"]}, {"Fn::Sub": "${"}),
    *(
        {"Fn::Sub": "${Jobs.Arn.X}"},
        {"Fn::Select": [9, ["a"]]},
        {"Fn::Join": ["", 1]},
        {"Fn::Transform": {"Name": "x"}},
    ),
]


def _paths(tree: object, *above: object) -> Iterator[tuple[object, ...]]:
    """Yield the path of everything in a template."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from _paths(value, *above, key)


_PATHS = [(file.name, path) for file in sorted(BY_HAND.iterdir()) for path in _paths(_read(file.name))]


@settings(max_examples=100, deadline=None, database=None, print_blob=True)
@given(place=st.sampled_from(_PATHS), junk=st.sampled_from(_JUNK))
@example(place=("visible_steps.yaml", ("Resources", "ScaleIn", "Properties", "ScalableDimension")), junk=[])
@example(place=("visible_steps.yaml", ("Resources", "TestOnly", "Condition")), junk="\n")
def test_any_value_in_a_template_is_read_or_refused_in_one_line(
    place: tuple[str, tuple[object, ...]], junk: object
) -> None:
    (name, path), refusal = place, ""

    try:
        read_services(_change(_read(name), *path, value=junk))
    except ConfigError as refused:
        refusal = str(refused)

    assert "\n" not in refusal


@pytest.mark.parametrize(
    "specification", [{"PredefinedMetricType": "ALBRequestCountPerTarget"}, {}], ids=["of a load balancer", "none"]
)
def test_a_predefined_metric_that_is_not_rehearsed_is_refused(specification: dict[str, str]) -> None:
    template = _read("published_backlog.yaml")
    settings = template["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    settings["PredefinedMetricSpecification"] = specification

    with pytest.raises(ConfigError, match="allowed: ECSServiceAverageCPUUtilization, ECSServiceAverageMemoryUtil"):
        read_services(template)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("t.json", "{", "t.json: Expecting property name"),
        ("t.yaml", "a: [", "t.yaml: while parsing a flow node"),
        ("t.yaml", "- !Ref a", "t.yaml has no Resources; give a CloudFormation template"),
        ("t.yaml", "Resources: {Queue: 1}", "t.yaml: resource 'Queue' is 1; allowed: a Type and Properties"),
        ("t.yaml", "Resources: !!python/name:os.system", "t.yaml: could not determine a constructor"),
        ("t.toml", "", "t.toml is no template; allowed are .json, .template, .yaml, .yml, or the folder"),
        ("t.yaml", None, "t.yaml (No such file or directory); give a template"),
        (".", None, "has no *.template.json, and no template in another file of .json, .template, .yaml, .yml; give a"),
    ],
)
def test_a_file_that_is_no_template_is_refused_in_a_line(
    name: str, text: str | None, reason: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refused:
        load_template(tmp_path / name)

    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
