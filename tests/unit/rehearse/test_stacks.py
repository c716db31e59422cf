"""Templates that deploy or name each other: nothing of them is dropped without a word, whichever file it stands in."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import ConfigError
from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.reading.cloudformation import load_template
from sluice.rehearse.reading.template import read_services
from tests.support.project import PROJECT

BY_HAND = PROJECT / "tests/support/templates/scaling"


def _read(name: str) -> Any:
    (template,) = load_template(BY_HAND / name).values()
    return copy.deepcopy(template)


def _worker() -> Any:
    """Return a template of a service that gets its name, its most tasks and its queue's name as parameters."""
    template = _read("published_backlog.yaml")
    template["Parameters"] = {"Name": {"Type": "String"}, "Most": {"Type": "Number"}}
    resources = template["Resources"]
    resources["Service"]["Properties"]["ServiceName"] = {"Ref": "Name"}
    resources["Orders"]["Properties"]["QueueName"] = {"Ref": "Name"}
    resources["Target"]["Properties"] |= {
        "ResourceId": {"Fn::Sub": "service/shop/${Name}"},
        "MaxCapacity": {"Ref": "Most"},
    }
    resources["Backlog"]["Properties"]["ScalingTargetId"] = {"Ref": "Target"}
    return template


def _nest(place: Any, name: str, most: int, kind: str = "AWS::CloudFormation::Stack") -> dict[str, Any]:
    property_ = "Location" if "Serverless" in kind else "TemplateURL"
    return {"Type": kind, "Properties": {property_: place, "Parameters": {"Name": name, "Most": most}}}


def _read_files(files: dict[str, Any]) -> tuple[ScaledService, ...]:
    return read_services(*files.values(), names=tuple(files))


def test_a_template_that_is_nested_twice_gives_two_services() -> None:
    """Each with its own parameters: 4 and 9 tasks at most."""
    root = {"Resources": {"Mail": _nest("./worker.yaml", "mail", 4), "Bills": _nest("./worker.yaml", "bills", 9)}}

    services = _read_files({"root.yaml": root, "worker.yaml": _worker()})

    assert [(service.name, service.max_tasks, len(service.policies)) for service in services] == [
        ("mail", 4, 1),
        ("bills", 9, 1),
    ]


def test_services_of_one_name_are_named_by_their_nested_stacks() -> None:
    """Their own names are equal, so the names of their stacks are added."""
    root = {"Resources": {"Old": _nest("worker.yaml", "mail", 4), "New": _nest("worker.yaml", "mail", 9)}}

    services = _read_files({"root.yaml": root, "worker.yaml": _worker()})

    assert [service.name for service in services] == ["Old/mail", "New/mail"]


@pytest.mark.parametrize(
    ("root", "place", "file", "kind"),
    [
        ("a/root.yaml", "../shared/worker.yaml", "shared/worker.yaml", "AWS::CloudFormation::Stack"),
        ("template.yaml", "./worker.yaml", "worker.yaml", "AWS::Serverless::Application"),
        ("root.yaml", "https://s3.amazonaws.com/b/t/worker.yaml", "t/worker.yaml", "AWS::CloudFormation::Stack"),
        ("root.yaml", {"Fn::Sub": "https://${AWS::Region}/worker.yaml"}, "t/worker.yaml", "AWS::CloudFormation::Stack"),
    ],
)
def test_a_nested_template_is_found_where_it_is(root: str, place: object, file: str, kind: str) -> None:
    """It is in another folder, is an application of SAM, or is found by the end of a URL, which the output names."""
    files = {root: {"Resources": {"Mail": _nest(place, "mail", 4, kind)}}, file: _worker()}

    (service,) = _read_files(files)

    assert service.name == "mail"
    assert service.max_tasks == 4
    sentence = "whether the URLs of nested stacks are of the files of these names, taken for so: Mail"
    assert service.assumed == ((sentence,) if "http" in str(place) else ())


def test_a_nested_stack_without_its_template_is_named() -> None:
    template = _read("published_backlog.yaml")
    template["Resources"]["More"] = _nest("https://s3.amazonaws.com/b/0a1b.template", "", 0)

    (service,) = read_services(template)

    assert service.assumed == ("what nested stacks deploy whose templates are not among those given: More",)


def test_a_policy_follows_its_target_across_templates() -> None:
    """The target is exported by one template and imported by the other."""
    template = _read("published_backlog.yaml")
    policy = {"Resources": {"Backlog": template["Resources"].pop("Backlog")}}
    policy["Resources"]["Backlog"]["Properties"]["ScalingTargetId"] = {"Fn::ImportValue": "target"}
    (alone,) = read_services(template, policy)
    template["Outputs"] = {"Target": {"Value": {"Ref": "Target"}, "Export": {"Name": "target"}}}

    (service,) = read_services(template, policy)

    assert [found.name for found in service.policies] == ["backlog"]
    assert service.assumed == ()
    assert alone.policies == ()
    assert alone.assumed == ("what policy Backlog scales, as no template has its scalable target",)


def test_an_alarm_runs_a_policy_of_another_template() -> None:
    """By an export of one template and an import of the other."""
    template = _read("visible_steps.yaml")
    alarms: Any = {"Resources": {}}
    for alarm, policy in (("ManyVisible", "ScaleOut"), ("NoneVisible", "ScaleIn")):
        moved = alarms["Resources"][alarm] = template["Resources"].pop(alarm)
        moved["Properties"]["AlarmActions"] = {"Fn::ImportValue": policy}
        template["Outputs"] = template.get("Outputs", {}) | {
            policy: {"Value": {"Ref": policy}, "Export": {"Name": policy}}
        }

    (service,) = read_services(template, alarms)

    assert [policy.name for policy in service.policies] == ["scale-out", "scale-in"]


def test_services_of_one_name_in_two_clusters_are_told_apart() -> None:
    """By the ids of their scalable targets; only one has a policy."""
    template = _read("published_backlog.yaml")
    resources = template["Resources"]
    for id_ in ("Service", "Target", "Tasks"):
        resources[f"Night{id_}"] = copy.deepcopy(resources[id_])
    resources["NightService"]["Properties"] |= {"Cluster": "night", "TaskDefinition": {"Ref": "NightTasks"}}
    resources["NightTarget"]["Properties"]["ResourceId"] = "service/night/orders"
    resources["NightTasks"]["Properties"]["Cpu"] = "4096"

    services = _read_files({"shop.yaml": template})

    assert [(service.name, service.cpu_units, len(service.policies)) for service in services] == [
        ("shop/Target/orders", 1_024, 1),
        ("shop/NightTarget/orders", 4_096, 0),
    ]


def test_a_service_that_cannot_be_rehearsed_does_not_keep_another_from_it() -> None:
    """The refusal names the others, and one that is named is read alone."""
    template = _read("published_backlog.yaml")
    resources = template["Resources"]
    resources["WebTarget"] = copy.deepcopy(resources["Target"])
    resources["WebTarget"]["Properties"] |= {"ResourceId": "service/shop/web", "MaxCapacity": "{{resolve:ssm:/most}}"}

    with pytest.raises(ConfigError) as refused:
        read_services(template)
    (service,) = read_services(template, only="orders")

    assert str(refused.value) == (
        "AWS::ApplicationAutoScaling::ScalableTarget WebTarget: MaxCapacity is '<resolve:ssm:/most>'; allowed: a"
        " number, or a parameter with a default; write the value into a copy of the template; or rehearse another one:"
        " --service orders"
    )
    assert service.name == "orders"


def test_of_a_folder_of_cdk_only_its_own_templates_are_read(tmp_path: Path) -> None:
    """A manifest.json marks a folder of CDK, of which only the files *.template.json are read.

    The file lock.json has a key "Resources" and is no template.
    """
    first, second = _read("published_backlog.yaml"), _read("visible_steps.yaml")
    (tmp_path / "one.template.json").write_text(json.dumps(first), encoding="utf-8")
    (tmp_path / "other.yaml").write_text(json.dumps(second), encoding="utf-8")
    (tmp_path / "lock.json").write_text('{"packages": {"Resources": 1}}', encoding="utf-8")

    both = load_template(tmp_path)
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")

    assert list(both) == ["one.template.json", "other.yaml"]
    assert list(load_template(tmp_path)) == ["one.template.json"]


@pytest.mark.parametrize("text", ['{"Resources": {"A": {}, "A": {}}}', "Resources: {A: {Type: B}, A: {Type: C}}"])
def test_a_name_that_stands_twice_is_refused(text: str, tmp_path: Path) -> None:
    """A YAML reader would otherwise drop the first of the two."""
    (tmp_path / "t.template").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"cannot read .*: 'A' stands twice in one place; correct it"):
        load_template(tmp_path / "t.template")
