"""The app of docs/guides/your-own-stack.md, as it stands there, in a folder that has nothing but Sluice's wheel."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.packaging.conftest import run_to_end
from tests.support.project import PROJECT

pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.slow]  # an app and a pipeline from the wheel
_GUIDE = (PROJECT / "docs" / "guides" / "your-own-stack.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def assembly(environment_with: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the app is synthesized to; once for all."""
    folder = tmp_path_factory.mktemp("shop")
    (app,) = re.findall(r"```python\n(.*?)```", _GUIDE, flags=re.DOTALL)
    (settings,) = re.findall(r"```json\n(.*?)```", _GUIDE, flags=re.DOTALL)
    (folder / "app.py").write_text(app, encoding="utf-8")
    context = json.dumps(json.loads(settings)["context"])
    python = environment_with("all") / "bin" / "python"

    run_to_end(python, "app.py", cwd=folder, CDK_OUTDIR=str(folder / "out"), CDK_CONTEXT_JSON=context)
    return folder / "out"


@pytest.fixture(scope="module")
def shop(assembly: Path) -> dict[str, Any]:
    """Return the resources of the stack with the fan-out by their logical ids."""
    (file,) = (assembly / "assembly-Pipeline-Production").glob("*Shop*.template.json")
    resources: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["Resources"]
    return resources


def _of(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    return {id_: found["Properties"] for id_, found in resources.items() if found["Type"] == kind}


def _actions(resources: dict[str, Any], role: str) -> set[str]:
    """Return what the policies of a role allow."""
    return {
        action
        for policy in _of(resources, "AWS::IAM::Policy").values()
        if any(named["Ref"].startswith(role) for named in policy["Roles"])
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }


def test_the_tasks_run_in_the_existing_vpc_and_cluster(shop: dict[str, Any]) -> None:
    services = _of(shop, "AWS::ECS::Service").values()

    assert {service["ServiceName"] for service in services} == {"shop-prod-refunds", "shop-prod-relay"}
    assert {service["Cluster"] for service in services} == {"everybodys"}
    subnets = [service["NetworkConfiguration"]["AwsvpcConfiguration"]["Subnets"] for service in services]
    assert subnets == [["subnet-0a1b2c3d4e5f60718", "subnet-0f1e2d3c4b5a69788"]] * 2
    assert _of(shop, "AWS::EC2::VPC") == _of(shop, "AWS::ECS::Cluster") == {}


def test_every_role_has_the_permissions_boundary(assembly: Path, shop: dict[str, Any]) -> None:
    """The roles of the pipeline have it as well as those of the stack."""
    pipeline = json.loads((assembly / "Pipeline.template.json").read_text(encoding="utf-8"))["Resources"]
    roles = [*_of(shop, "AWS::IAM::Role").values(), *_of(pipeline, "AWS::IAM::Role").values()]

    assert len(roles) > 8
    assert all("policy/shop-boundary" in json.dumps(role["PermissionsBoundary"]) for role in roles)


def test_the_bootstrap_qualifier_is_everywhere(assembly: Path) -> None:
    texts = [file.read_text(encoding="utf-8") for file in assembly.rglob("*.json")]

    assert any("cdk-shop-deploy-role-111122223333-eu-central-1" in text for text in texts)
    assert not any("hnb659fds" in text for text in texts)


def test_every_container_has_the_proxy(shop: dict[str, Any]) -> None:
    """The four are those of the worker, of the relay, and of the steps before them that create tables."""
    containers = [
        container
        for task in _of(shop, "AWS::ECS::TaskDefinition").values()
        for container in task["ContainerDefinitions"]
    ]

    variables = [{each["Name"]: each["Value"] for each in container["Environment"]} for container in containers]
    assert len(containers) == 4
    assert {found["HTTPS_PROXY"] for found in variables} == {"http://proxy.shop.internal:3128"}
    assert {found["NO_PROXY"] for found in variables} == {"169.254.170.2,.shop.internal"}


def test_a_grantee_may_do_only_the_granted_actions(shop: dict[str, Any]) -> None:
    assert _actions(shop, "Legacy") == {"sns:Publish"}
    assert _actions(shop, "Audit") == {
        *("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"),
        *("sqs:GetQueueUrl", "sqs:GetQueueAttributes"),
    }


def test_the_only_alarm_is_the_apps_own(shop: dict[str, Any]) -> None:
    """The app declares it for the DLQ; Sluice adds no alarm."""
    (alarm,) = _of(shop, "AWS::CloudWatch::Alarm").values()

    (dimension,) = alarm["Dimensions"]
    watched = dimension["Value"]["Fn::GetAtt"][0]
    assert shop[watched]["Properties"]["QueueName"] == "shop-prod-refunds-dlq.fifo"


def test_the_pipelines_last_stage_approves_prepares_and_deploys(assembly: Path) -> None:
    """The test reads the order in which the template lists the actions, and not their RunOrder."""
    pipeline = json.loads((assembly / "Pipeline.template.json").read_text(encoding="utf-8"))["Resources"]
    (found,) = _of(pipeline, "AWS::CodePipeline::Pipeline").values()

    stages = {stage["Name"]: [action["Name"] for action in stage["Actions"]] for stage in found["Stages"]}
    assert list(stages)[-1] == "Production"
    assert stages["Production"] == ["Approve", "Shop.Prepare", "Shop.Deploy"]
