"""A stage whose stacks can be reached: by stacks of one's own, and by projects of an earlier version."""

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from sluice.constructs.feature_flags import FLAGS
from sluice.declaration import Consumer, NewDatabase
from sluice.errors import ConfigError
from stacks.stage import EnvironmentStage
from tests.support.declaration import ENVIRONMENTS
from tests.support.project import PROJECT

_LARGE = NewDatabase(min_acus=1, max_acus=32)

LOCAL = ENVIRONMENTS["local"]
_STACKS = ["Network", "Database", "Messaging", "Consumers", "Observability"]


def _app(folder: Path) -> cdk.App:
    flags = dict.fromkeys(FLAGS, True)
    return cdk.App(context=flags, outdir=str(folder), builtin_cloud_formation_validation=False)


def test_stacks_of_a_stage_are_its_attributes(tmp_path: Path) -> None:
    stage = EnvironmentStage(_app(tmp_path), environment=LOCAL)

    assert [stack.node.id for stack in stage.node.children] == _STACKS
    assert list(stage.messaging.fan_out.topics) == ["events"]
    assert list(stage.messaging.fan_out.consumers) == list(stage.consumers.services) == ["billing", "shipping", "audit"]
    assert list(stage.consumers.relays) == ["events"]
    assert stage.messaging.producers is not None
    assert stage.messaging.producers.outbox_policy is not None
    assert stage.database is not None
    assert stage.database.database.access.secret_arn
    assert stage.network.network.producers is not None
    assert stage.observability.operators.topic.topic_arn
    assert cdk.Stack.of(stage.observability.dashboard) is stage.observability


def test_the_guides_own_stack_uses_what_the_stage_has(tmp_path: Path) -> None:
    """The example of docs/guides/existing-things.md, as it stands there: it may write, and tells operators."""
    guide = (PROJECT / "docs" / "guides" / "existing-things.md").read_text(encoding="utf-8")
    (example,) = (found for found in re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL) if "class " in found)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 (the guide's own text)
    stage = EnvironmentStage(_app(tmp_path), environment=replace(LOCAL, tags={"team": "shop"}))

    own = names["ShopStack"](stage)

    template = Template.from_stack(own)
    template.has_resource_properties("AWS::CloudWatch::Alarm", {"Threshold": 10_000})
    (alarm,) = template.find_resources("AWS::CloudWatch::Alarm").values()
    (role,) = template.find_resources("AWS::IAM::Role").values()
    assert "sluice-local-observability" in str(alarm["Properties"]["AlarmActions"])
    assert "sluice-local-messaging" in str(role["Properties"]["ManagedPolicyArns"])
    assert {"Key": "team", "Value": "shop"} in role["Properties"]["Tags"]


def test_a_project_of_an_earlier_version_finds_the_stage_where_it_was(tmp_path: Path) -> None:
    """The whole of such a project: tests/integration/packaging/test_new_project.py."""
    place = importlib.import_module("sluice.constructs.stage")

    with pytest.warns(DeprecationWarning, match=r"write stacks/stage\.py as `sluice init` does"):
        stage = place.EnvironmentStage(_app(tmp_path), environment=LOCAL)

    assert [stack.node.id for stack in stage.node.children] == _STACKS


@pytest.mark.parametrize("name", ["Consumers", "EnvironmentStack"])
def test_other_names_of_the_stage_are_found_where_they_were(name: str) -> None:
    place = importlib.import_module("sluice.constructs.stage")

    with pytest.warns(DeprecationWarning, match=f"sluice.constructs.stage.{name} goes "):
        assert getattr(place, name).__name__ == name


def test_more_resources_than_a_stack_may_have_are_refused_with_their_number(tmp_path: Path) -> None:
    """The refusal is one line, and comes before CDK's own traceback at the end of synth."""
    consumers = tuple(Consumer(name=f"c{number}") for number in range(41))

    with pytest.raises(ConfigError) as refused:
        EnvironmentStage(_app(tmp_path), environment=replace(LOCAL, consumers=consumers, database=_LARGE))

    assert str(refused.value) == (
        "Environment('local').consumers is '41 consumers, with 501 resources in stack sluice-local-consumers', allowed"
        " is as many as 500 resources in a stack are enough for; declare new ones with Consumer(stack='more'), in"
        " stacks beside these"
    )
