"""Count the resources of each type in every environment, in its synthesized templates."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import aws_cdk as cdk

from sluice.declaration import Environment
from stacks.stage import EnvironmentStage
from tools.pages.declared_fields import ENVIRONMENTS

_PROJECT = Path(__file__).resolve().parents[2]
_STACKS = ("Network", "Database", "Messaging", "Consumers", "Observability")


def rows() -> list[tuple[object, ...]]:
    """Return for every stack and resource type the number in each environment, and their sums last."""
    counted = {name: _count_resources(environment) for name, environment in ENVIRONMENTS.items()}
    kinds = sorted({key for item in counted.values() for key in item}, key=lambda key: (_STACKS.index(key[0]), key[1]))
    return [
        *(
            (stack, kind.removeprefix("AWS::"), *(item[stack, kind] or "" for item in counted.values()))
            for stack, kind in kinds
        ),
        ("all", "", *(item.total() for item in counted.values())),
    ]


def _count_resources(environment: Environment) -> Counter[tuple[str, str]]:
    """Count resources by stack and type. Needs neither network nor account."""
    context = json.loads((_PROJECT / "cdk.json").read_text(encoding="utf-8"))["context"]
    with tempfile.TemporaryDirectory() as directory:
        stage = EnvironmentStage(cdk.App(context=context, outdir=directory), environment=environment, project=_PROJECT)
        assembly = stage.synth()
        stacks: dict[str, cdk.Stack] = {id_: stage.node.find_child(id_) for id_ in _STACKS}  # type: ignore[misc]
        return Counter(
            (id_, resource["Type"])
            for id_, stack in stacks.items()
            for resource in assembly.get_stack_artifact(stack.artifact_id).template["Resources"].values()
        )
