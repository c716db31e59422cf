"""Unknown is no value: what a template does not tell is resolved, given, refused, or said to be taken for granted."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import ConfigError
from sluice.rehearse import report
from sluice.rehearse.model.policies import MetricSource, QueueSettings, ScaledService
from sluice.rehearse.model.simulation import simulated_series
from sluice.rehearse.reading.cloudformation import load_template, may_be_same
from sluice.rehearse.reading.sources import read_parameters
from sluice.rehearse.reading.template import read_services
from tests.support.project import PROJECT

BY_HAND = PROJECT / "tests/support/templates/scaling"


def _backlog() -> Any:
    """Return a service whose only policy watches the queue that its role receives from, by a policy of its own."""
    (template,) = load_template(BY_HAND / "published_backlog.yaml").values()
    template = copy.deepcopy(template)
    _watch(template, {"Fn::GetAtt": "Orders.QueueName"})
    _receive(template, {"Fn::GetAtt": "Orders.Arn"})
    return template


def _watch(template: Any, queue: object) -> None:
    """Let the policy watch this queue."""
    settings = template["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    settings["CustomizedMetricSpecification"] |= {
        "Namespace": "AWS/SQS",
        "MetricName": "ApproximateNumberOfMessagesVisible",
        "Dimensions": [{"Name": "QueueName", "Value": queue}],
    }


def _receive(template: Any, queue: object) -> None:
    """Let the role receive from this queue."""
    (container,) = template["Resources"]["Tasks"]["Properties"]["ContainerDefinitions"]
    container.pop("Environment", None)
    document = template["Resources"]["Receive"]["Properties"]["PolicyDocument"]
    document["Statement"] = [{"Effect": "Allow", "Action": "sqs:ReceiveMessage", "Resource": queue}]


def _watched_queue(service: ScaledService) -> str:
    (policy,) = service.policies
    (metric,) = policy.watched.metrics.values()
    return metric.dimensions["QueueName"]


def test_services_of_one_name_are_named_by_stack_and_keep_their_policies(tmp_path: Path) -> None:
    """Three stages in one `cdk.out` have the same logical ids; only the tasks of Dev may protect themselves."""
    for stage in ("Dev", "Prod", "Staging"):
        template = _backlog()
        if stage == "Dev":
            statements = template["Resources"]["Receive"]["Properties"]["PolicyDocument"]["Statement"]
            statements.append({"Effect": "Allow", "Action": "ecs:UpdateTaskProtection", "Resource": "*"})
        file = tmp_path / f"assembly-{stage}" / f"{stage}Worker.template.json"
        file.parent.mkdir()
        file.write_text(json.dumps(template), encoding="utf-8")
    loaded = load_template(tmp_path)

    services = read_services(*loaded.values(), names=tuple(loaded))

    assert {service.name: service.is_protected for service in services} == {
        "DevWorker/orders": True,
        "ProdWorker/orders": False,
        "StagingWorker/orders": False,
    }


def test_stacks_with_the_same_file_name_are_named_by_their_paths() -> None:
    names = ("a/t.yaml", "b/t.yaml")

    services = read_services(_backlog(), _backlog(), names=names)

    assert [service.name for service in services] == ["a/t.yaml/orders", "b/t.yaml/orders"]


def test_an_export_of_several_stages_is_that_of_the_own_stage() -> None:
    """Two stages export one name; each imports its own."""
    templates: dict[str, Any] = {}
    for stage in ("dev", "prod"):
        queues = {"Resources": {"Jobs": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": f"{stage}-jobs"}}}}
        queues["Outputs"] = {"Q": {"Value": {"Fn::GetAtt": "Jobs.QueueName"}, "Export": {"Name": "jobs"}}}
        workers = _backlog()
        _watch(workers, {"Fn::ImportValue": "jobs"})
        templates |= {f"{stage}/queues.json": queues, f"{stage}/workers.json": workers}

    services = read_services(*templates.values(), names=tuple(templates))

    assert [_watched_queue(service) for service in services] == ["dev-jobs", "prod-jobs"]


@pytest.mark.parametrize(
    ("name", "other", "is_same"),
    [
        ("jobs", "jobs", True),
        ("jobs", "mail", False),
        ("<Queue>", "jobs", True),
        ("jobs", "<Queue>", True),
        ("<Stage>-jobs", "prod-jobs", True),
        ("<Stage>-jobs", "prod-mail", False),
        ("<Stage>-jobs", "<Stage>-mail", False),
        ("<Stage>-jobs", "<Queue>", True),
        ("a.b<Queue>", "axb", False),
    ],
)
def test_two_names_with_unknown_parts_may_be_the_same(name: str, other: str, is_same: bool) -> None:  # noqa: FBT001 (a case)
    """A part in angle brackets is known only after a deployment."""
    assert may_be_same(name, other) == is_same


SSM = "AWS::SSM::Parameter::Value<String>"


@pytest.mark.parametrize(
    ("arn", "name", "parameters"),
    [
        ("{{resolve:ssm:/shop/jobs-arn}}", "{{resolve:ssm:/shop/jobs-name}}", {}),
        (
            {"Ref": "Arn"},
            {"Ref": "Name"},
            {"Arn": {"Type": SSM, "Default": "/a"}, "Name": {"Type": SSM, "Default": "/n"}},
        ),
        ({"Ref": "Arn"}, "jobs", {"Arn": {"Type": "String"}}),
    ],
    ids=["dynamic reference", "SSM parameters", "no default"],
)
def test_a_queue_with_an_unknown_name_is_not_taken_for_another(arn: object, name: object, parameters: Any) -> None:
    """A policy whose queue is unknown is taken to look at its tasks' queue, and the output says so.

    The output also names the assumed type of queue.
    """
    template = _backlog()
    template["Parameters"] = parameters
    _watch(template, name)
    _receive(template, arn)

    (service,) = read_services(template)

    assert service.queue is not None
    assert _watched_queue(service) == service.queue.name
    assert len(service.assumed) == 2
    assert "is taken for a standard queue, as its name is not known; say it with --queue" in service.assumed[0]
    assert "looks at QueueName" in service.assumed[1]


def test_a_queue_with_a_known_name_is_told_from_another() -> None:
    """The role receives from Orders, and the policy watches Returns."""
    template = _backlog()
    _watch(template, {"Fn::GetAtt": "Returns.QueueName"})

    (service,) = read_services(template)

    assert service.queue == QueueSettings(name="Orders", is_fifo=False, visibility_timeout_seconds=300)
    assert _watched_queue(service) == "Returns"
    assert service.assumed == ()


def _nest(place: dict[str, Any]) -> tuple[Any, Any]:
    """Return a template that deploys the other one and gives it the name of its queue."""
    child = _backlog()
    child["Parameters"] = {"Queue": {"Type": "String"}, "Arn": {"Type": "String"}}
    _watch(child, {"Ref": "Queue"})
    _receive(child, {"Ref": "Arn"})
    passed = {"Queue": {"Fn::GetAtt": "Jobs.QueueName"}, "Arn": {"Fn::GetAtt": "Jobs.Arn"}}
    nested = {"Type": "AWS::CloudFormation::Stack", "Properties": {"Parameters": passed, **place}}
    nested |= {"Metadata": {"aws:asset:path": "Child.nested.template.json"}} if not place else {}
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "jobs.fifo", "FifoQueue": True}}
    return {"Resources": {"Jobs": queue, "Nested": nested}}, child


@pytest.mark.parametrize(
    ("place", "name"), [({}, "Child.nested.template.json"), ({"TemplateURL": "./child.yaml"}, "child.yaml")]
)
def test_a_nested_stack_knows_its_parameters(place: dict[str, Any], name: str) -> None:
    """CDK's metadata has the path of the nested template, or the path that `aws cloudformation package` replaces."""
    (service,) = read_services(*_nest(place), names=("out/root.json", f"out/{name}"))

    assert service.queue == QueueSettings(name="jobs.fifo", is_fifo=True)
    assert _watched_queue(service) == "jobs.fifo"
    assert service.assumed == ()


def test_outputs_of_a_nested_stack_are_known() -> None:
    root, child = _nest({"TemplateURL": "queues.json"})
    queues = {"Resources": {"Jobs": root["Resources"]["Jobs"]}}
    queues["Outputs"] = {"Name": {"Value": {"Fn::GetAtt": "Jobs.QueueName"}}}
    workers = _backlog()
    _watch(workers, {"Fn::GetAtt": "Nested.Outputs.Name"})
    workers["Resources"]["Nested"] = root["Resources"]["Nested"]

    (service,) = read_services(workers, queues, names=("root.json", "queues.json"))

    assert _watched_queue(service) == "jobs.fifo"
    assert child is not None


def _if(then: object, otherwise: object) -> dict[str, Any]:
    """Return a value that depends on the condition IsProd."""
    return {"Fn::If": ["IsProd", then, otherwise]}


def _add_condition(change: Callable[[Any], None]) -> Any:
    """Return a template with a condition on a parameter without default."""
    template = _backlog()
    template["Parameters"] = {"Env": {"Type": "String"}}
    template["Conditions"] = {"IsProd": {"Fn::Equals": [{"Ref": "Env"}, "prod"]}}
    change(template["Resources"])
    return template


def _make_max_capacity_conditional(resources: Any) -> None:
    resources["Target"]["Properties"]["MaxCapacity"] = _if(40, 4)


def _make_scale_in_conditional(resources: Any) -> None:
    settings = resources["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    settings["DisableScaleIn"] = _if(then=True, otherwise=False)


def _make_settings_conditional(resources: Any) -> None:
    properties = resources["Backlog"]["Properties"]
    settings = properties["TargetTrackingScalingPolicyConfiguration"]
    properties["TargetTrackingScalingPolicyConfiguration"] = _if(settings, {**settings, "TargetValue": 1})


def _make_a_right_conditional(resources: Any) -> None:
    document = resources["Receive"]["Properties"]["PolicyDocument"]
    protects = {"Effect": "Allow", "Action": "ecs:*", "Resource": "*"}
    document["Statement"].append(_if(protects, {"Ref": "AWS::NoValue"}))


def _make_the_policy_conditional(resources: Any) -> None:
    resources["Backlog"]["Condition"] = "IsProd"


@pytest.mark.parametrize(
    "change",
    [
        _make_max_capacity_conditional,
        _make_scale_in_conditional,
        _make_settings_conditional,
        _make_a_right_conditional,
        _make_the_policy_conditional,
    ],
)
def test_a_parameter_that_a_bound_needs_is_refused_without_a_value(change: Callable[[Any], None]) -> None:
    """A condition on the parameter is taken neither for true nor for false, wherever it stands."""
    template = _add_condition(change)

    with pytest.raises(ConfigError, match="give it: --parameter Env=VALUE") as refused:
        read_services(template)

    assert "\n" not in str(refused.value)
    assert read_services(template, parameters={"Env": "prod"}) != read_services(template, parameters={"Env": "dev"})


def test_no_value_is_asked_for_an_alternative_that_nothing_uses() -> None:
    template = _add_condition(lambda resources: resources["Service"]["Properties"].update(LoadBalancers=_if([1], [])))

    assert len(read_services(template)) == 1


def test_a_value_from_the_parameter_store_is_asked_for() -> None:
    """The default of an SSM parameter is the key under which its value is stored."""
    template = _backlog()
    template["Parameters"] = {"Most": {"Type": "AWS::SSM::Parameter::Value<Number>", "Default": "/shop/most"}}
    template["Resources"]["Target"]["Properties"]["MaxCapacity"] = {"Ref": "Most"}

    with pytest.raises(ConfigError, match=r"MaxCapacity is '<Most>'; .*; give it: --parameter Most=VALUE"):
        read_services(template)

    (service,) = read_services(template, parameters={"Most": "7"})
    assert service.max_tasks == 7


def test_a_parameter_that_no_template_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="--parameter names 'Evn', which no template has; allowed is one of Env"):
        read_services(_add_condition(_make_the_policy_conditional), parameters={"Evn": "prod"})


def test_a_service_that_a_condition_leaves_out_is_named_with_it() -> None:
    template = _add_condition(lambda resources: resources["Target"].update(Condition="IsProd"))

    with pytest.raises(ConfigError) as refused:
        read_services(template, parameters={"Env": "dev"})

    assert str(refused.value) == (
        "AWS::ApplicationAutoScaling::ScalableTarget Target has the condition IsProd, which is false with Env=dev; give"
        " another value: --parameter Env=VALUE"
    )


def test_an_action_that_is_not_rehearsed_is_named() -> None:
    """The policy is run when the alarm is over, which is not rehearsed."""
    (template,) = load_template(BY_HAND / "visible_steps.yaml").values()
    template = copy.deepcopy(template)
    resources: Any = template["Resources"]
    alarm = resources["ManyVisible"]["Properties"]
    alarm["OKActions"] = alarm.pop("AlarmActions")

    with pytest.raises(ConfigError, match="has it in AlarmActions; ManyVisible has it in OKActions, which is not reh"):
        read_services(template)


def test_the_cost_of_an_unknown_task_size_is_unknown() -> None:
    """No policy needs it."""
    template = _backlog()
    template["Parameters"] = {"TaskCpu": {"Type": "String"}}
    template["Resources"]["Tasks"]["Properties"]["Cpu"] = {"Ref": "TaskCpu"}

    (service,) = read_services(template)

    assert service.cpu_units is None
    assert service.memory_mib == 2_048
    assert report.dollars(service, 10) is None
    assert report.dollars(replace(service, cpu_units=1_024), 10) is not None


@pytest.mark.parametrize("changed", ["no sizes", "no task definition"])
def test_a_size_that_no_template_tells_is_not_taken_for_a_default(changed: str) -> None:
    """The cost of the tasks is then unknown."""
    template = _backlog()
    if changed == "no sizes":
        for name in ("Cpu", "Memory"):
            del template["Resources"]["Tasks"]["Properties"][name]
    else:
        template["Resources"]["Service"]["Properties"]["TaskDefinition"] = "orders:7"

    (service,) = read_services(template)

    assert service.cpu_units is None
    assert service.memory_mib is None


_TAKEN_FOR_NOT = (
    "whether the tasks may protect themselves from scale-in, as a policy of theirs is in no template: taken for not"
)


@pytest.mark.parametrize(
    ("role", "is_unknown"),
    [
        ({"Ref": "RoleArn"}, True),
        ("arn:aws:iam::aws:policy/AmazonECS_FullAccess", True),
        ("arn:aws:iam::111122223333:policy/workers", True),
        ("arn:aws:iam::aws:policy/AmazonSQSFullAccess", False),
        (None, False),
    ],
)
def test_a_task_with_unknown_rights_is_not_said_to_lack_protection(role: object, is_unknown: bool) -> None:  # noqa: FBT001 (a case)
    """Its role, or one of the role's policies, is in no template.

    The managed policy of AWS for SQS protects no task.
    """
    template = _backlog()
    properties = template["Resources"]["Role"]["Properties"]
    template["Parameters"]["RoleArn"] = {"Type": "String"}
    if isinstance(role, str):
        properties["ManagedPolicyArns"].append(role)
    else:
        template["Resources"]["Tasks"]["Properties"]["TaskRoleArn"] = role

    (service,) = read_services(template)

    assert not service.is_protected
    assert service.may_be_protected == is_unknown
    assert (_TAKEN_FOR_NOT in service.assumed) == is_unknown


@pytest.mark.parametrize(
    "document",
    [
        json.dumps({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}),
        {"Statement": [{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}]},
    ],
)
def test_rights_are_read_in_every_form(document: object) -> None:
    """A policy as JSON text, and one with NotAction."""
    template = _backlog()
    template["Resources"]["Receive"]["Properties"]["PolicyDocument"] = document

    (service,) = read_services(template)

    assert service.is_protected


def test_a_redrive_policy_is_read_from_a_text() -> None:
    template = _backlog()
    template["Resources"]["Orders"]["Properties"]["RedrivePolicy"] = '{"maxReceiveCount": 3}'

    (service,) = read_services(template)

    assert service.queue is not None
    assert service.queue.max_receive_count == 3


def test_an_import_with_an_unknown_name_is_unknown() -> None:
    """The imported value may be the queue that the policy reads."""
    template = _backlog()
    _receive(template, {"Fn::ImportValue": {"Fn::Sub": "${Net}-jobs-arn"}})
    _watch(template, "jobs")

    (service,) = read_services(template)

    assert "policy backlog looks at QueueName jobs, which is taken for <Net-jobs-arn>" in service.assumed


def test_a_parameter_in_metric_math_is_asked_for() -> None:
    template = _backlog()
    template["Parameters"]["Weight"] = {"Type": "Number"}
    settings = template["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    settings["CustomizedMetricSpecification"] = {"Metrics": [{"Id": "e", "Expression": {"Fn::Sub": "m / ${Weight}"}}]}

    with pytest.raises(ConfigError, match=r"Expression is 'm / <Weight>'; .* give it: --parameter Weight=VALUE"):
        read_services(template)


def test_an_action_that_depends_on_an_unknown_condition_is_refused() -> None:
    (written,) = load_template(BY_HAND / "visible_steps.yaml").values()
    template: Any = copy.deepcopy(written)
    template["Parameters"]["Env"] = {"Type": "String"}
    template["Conditions"]["IsLive"] = {"Fn::Equals": [{"Ref": "Env"}, "live"]}
    actions = {"Fn::If": ["IsLive", [{"Ref": "ScaleOut"}], []]}
    template["Resources"]["ManyVisible"]["Properties"]["AlarmActions"] = actions

    with pytest.raises(ConfigError, match=r"ManyVisible: AlarmActions .* give it: --parameter Env=VALUE"):
        read_services(template)


@pytest.mark.parametrize(("launch", "is_named"), [({}, True), ({"LaunchType": "FARGATE"}, False)])
def test_an_unset_launch_type_is_named(launch: dict[str, str], is_named: bool) -> None:  # noqa: FBT001 (a case)
    template = _backlog()
    properties = template["Resources"]["Service"]["Properties"]
    del properties["LaunchType"]
    properties |= launch

    (service,) = read_services(template)

    assert any("LaunchType of AWS::ECS::Service Service" in each for each in service.not_simulated) == is_named


@pytest.mark.parametrize(
    ("name", "fewest", "effect"),
    [
        ("ApproximateNumberOfMessagesVisible", 0, "come up to 15 minutes late after six hours"),
        ("ApproximateAgeOfOldestMessage", 2, "does not count for the age"),
    ],
)
def test_documented_effects_of_metrics_are_named(name: str, fewest: int, effect: str) -> None:
    template = _backlog()
    template["Resources"]["Target"]["Properties"]["MinCapacity"] = fewest
    settings = template["Resources"]["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    settings["CustomizedMetricSpecification"]["MetricName"] = name

    (service,) = read_services(template)

    (sentence,) = service.not_simulated
    assert effect in sentence


@pytest.mark.parametrize(
    ("namespace", "name", "series"),
    [
        ("AWS/ECS", "CPUUtilization", "running"),
        ("AWS/ECS", "MemoryUtilization", "running"),
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", None),
    ],
)
def test_samples_are_taken_for_what_they_count(namespace: str, name: str, series: str | None) -> None:
    """ECS sends a sample of each running task a minute; how many samples SQS sends, nobody says."""
    metric = MetricSource(namespace=namespace, name=name, dimensions={}, statistic="SampleCount")

    assert simulated_series(metric) == series


def test_an_option_names_the_queue() -> None:
    """One of the templates has its settings, another one is known by its name."""
    template = _backlog()
    _receive(template, [{"Fn::GetAtt": "Orders.Arn"}, {"Fn::GetAtt": "Returns.Arn"}])
    _watch(template, "Other")

    (untold,), (orders,), (other,) = (read_services(template, queue=name) for name in (None, "Orders", "their.fifo"))

    assert untold.queue is None
    assert untold.queue_candidates == ("Orders", "Returns")
    assert orders.queue == QueueSettings(name="Orders", is_fifo=False, visibility_timeout_seconds=300)
    assert other.queue == QueueSettings(name="their.fifo", is_fifo=True)


@pytest.mark.parametrize(
    "text",
    [
        '[{"ParameterKey": "A", "ParameterValue": "1"}, {"ParameterKey": "B", "ParameterValue": "2"}]',
        '["A=1", "B=2"]',
        '{"Parameters": {"A": "1", "B": "2"}, "Tags": {}}',
        '{"A": "1", "B": 2}',
        '\ufeff{"A": "1", "B": 2}',
    ],
)
def test_parameters_are_read_as_the_aws_cli_and_cloudformation_write_them(text: str, tmp_path: Path) -> None:
    """The command line's value of a parameter counts more than the file's."""
    file = tmp_path / "parameters.json"
    file.write_text(text, encoding="utf-8")

    assert read_parameters([], file) == {"A": "1", "B": "2"}
    assert read_parameters(["B=3=4", "C="], file) == {"A": "1", "B": "3=4", "C": ""}


@pytest.mark.parametrize(
    "text", ["", "7", "[7]", '["A"]', '[{"ParameterKey": "A"}]', '{"A": []}', '{"Parameters": {"A": {}}}']
)
def test_parameters_of_another_form_are_refused_in_a_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "parameters.json"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match="ParameterKey") as refused:
        read_parameters([], file)

    assert "\n" not in str(refused.value)


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="--parameter is 'Env', allowed is NAME=VALUE"):
        read_parameters(["Env"], None)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["t.json", "t.template", "t.yaml"])
def test_a_template_is_read_in_every_usual_form(name: str, encoding: str, tmp_path: Path) -> None:
    """Among the forms are a byte order mark, as PowerShell writes it, and JSON in a file of another name."""
    (tmp_path / name).write_text(json.dumps(_backlog()), encoding=encoding)

    (template,) = load_template(tmp_path / name).values()

    assert template == _backlog()


def test_other_bytes_are_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b"\x80\x81")

    with pytest.raises(ConfigError, match="allowed are UTF-8 and UTF-16"):
        load_template(tmp_path / "t.json")


def test_a_folder_of_yaml_is_read_together(tmp_path: Path) -> None:
    """Files that are no templates are left out."""
    (tmp_path / "queues").mkdir()
    for name in ("workers.yaml", "queues/jobs.template"):
        (tmp_path / name).write_text(json.dumps(_backlog(), indent=1), encoding="utf-8")
    (tmp_path / "values.yaml").write_text("replicas: 3\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("Resources:\n", encoding="utf-8")

    assert list(load_template(tmp_path)) == ["queues/jobs.template", "workers.yaml"]


@pytest.mark.parametrize(
    ("more", "assumed"),
    [
        ({"Transform": "AWS::Serverless-2016-10-31"}, ()),
        ({"Transform": ["AWS::LanguageExtensions"]}, ()),
        ({"Transform": ["Ours"]}, ("what the transform Ours makes of the template, which is read as it stands",)),
        (
            {"Transform": {"Name": "AWS::Include", "Parameters": {"Location": "s3://shop/more.yaml"}}},
            ("what the transform AWS::Include makes of the template, which is read as it stands",),
        ),
    ],
)
def test_a_macro_with_an_unknown_result_is_named(more: Any, assumed: Sequence[str]) -> None:
    (service,) = read_services(_backlog() | more)

    assert [each for each in service.assumed if "transform" in each] == [*assumed]


def test_a_module_is_named() -> None:
    template = _backlog()
    template["Resources"]["More"] = {"Type": "Shop::Scaling::More::MODULE"}

    (service,) = read_services(template)

    assert "what the module Shop::Scaling::More::MODULE is made of, which is left out" in service.assumed


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (
            "Resources:\n  {% if a %}\n  A: 1\n",
            "{% is of a template language, such as Jinja; give what it is rendered to",
        ),
        (
            "Resources:\n  A: {Type: B::C::D, Properties: {Size: {{ inputs.size }}}}\n",
            "{{ is of a template language, such as Jinja; give what it is rendered to",
        ),
        (
            "Resources:\n  {{- with $a := .B}}\n",
            "{{- is of a template language, such as Jinja; give what it is rendered to",
        ),
        (
            "Resources:\n  A: {Type: B::C::D, Properties: {Size: {{inputs.size}}}}\n",
            "{{ is of a template language, such as Jinja; give what it is rendered to",
        ),
        (
            "Resources:\n  Fn::ForEach::Queues: [Name, [A, B], {'Q${Name}': {Type: AWS::SQS::Queue}}]\n",
            "Fn::ForEach::Queues makes resources when it is deployed; give the processed template: aws cloudformation"
            " get-template --template-stage Processed",
        ),
    ],
)
def test_an_unfinished_template_is_refused_with_the_next_step(tmp_path: Path, text: str, refused: str) -> None:
    (tmp_path / "template.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as error:
        load_template(tmp_path / "template.yaml")

    assert str(error.value).endswith(refused)
