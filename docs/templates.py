"""The templates of a declared environment, as `cdk synth` writes them, with what the construct tree knows besides."""

import json
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from sluice.declaration import Database, Environment, Gaps, Poison
from sluice.environments import ENVIRONMENTS
from stacks.stage import EnvironmentStage

type Resource = dict[str, Any]
type Template = dict[str, Any]

PROJECT = Path(__file__).resolve().parents[1]
STACKS = ("Messaging", "Consumers", "Observability")
_ACKNOWLEDGED, _BY_US = "aws:cdk:acknowledged-rules", "Annotation::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesized:
    """One environment's stacks.

    Args:
        environment: what was declared.
        templates: the template of each stack, by the stack's construct id.
        paths: the construct path of every resource, by (stack, logical id).
    """

    environment: Environment
    templates: dict[str, Template]
    paths: dict[tuple[str, str], str]

    def resources(self) -> dict[tuple[str, str], Resource]:
        """Return every resource of every stack, by (stack, logical id)."""
        return {(stack, id_): one for stack in STACKS for id_, one in self.templates[stack]["Resources"].items()}

    def of_type(self, kind: str) -> list[Resource]:
        """Return the properties of every resource of that type."""
        return [one.get("Properties", {}) for one in self.resources().values() if one["Type"] == kind]


def _stage(environment: Environment, directory: str) -> EnvironmentStage:
    context = json.loads((PROJECT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return EnvironmentStage(cdk.App(context=context, outdir=directory), environment=environment)


@cache
def synthesized(name: str) -> Synthesized:
    """Return the synthesized stacks of the environment of that name. Neither network nor account is needed."""
    return _synthesized(ENVIRONMENTS[name])


@cache
def everything() -> Synthesized:
    """Return prod's synthesized stacks as they would be with a relay, a database, parking and somebody to mail."""
    return _synthesized(_everything())


def _everything() -> Environment:
    first, *others = ENVIRONMENTS["prod"].consumers
    return replace(
        ENVIRONMENTS["prod"],
        consumers=(replace(first, poison=Poison.PARK, gaps=Gaps.HALT), *others),
        relay=True,
        database=Database(
            secret_arn="arn:aws:secretsmanager:us-east-1:111122223333:secret:sluice-AbCdEf",  # noqa: S106 (its name)
            security_group_id="sg-0a1b2c3d4e5f60718",
        ),
        alarm_emails=("operators@example.com",),
    )


def _synthesized(environment: Environment) -> Synthesized:
    with tempfile.TemporaryDirectory() as directory:
        stage = _stage(environment, directory)
        assembly = stage.synth()
        stacks: dict[str, cdk.Stack] = {id_: stage.node.find_child(id_) for id_ in STACKS}  # type: ignore[misc]
        templates = {id_: assembly.get_stack_artifact(stack.artifact_id).template for id_, stack in stacks.items()}
        paths = {
            (id_, str(stack.resolve(one.logical_id))): str(one.node.path)
            for id_, stack in stacks.items()
            for one in stack.node.find_all()
            if isinstance(one, cdk.CfnResource)
        }
    return Synthesized(environment=environment, templates=templates, paths=paths)


@cache
def acknowledgements() -> tuple[tuple[str, str, str], ...]:
    """Return (rule, construct path, reason) of every cdk-nag finding acknowledged, with everything declared there is.

    The environment is prod with a relay, a database and somebody to mail, so that no construct is missing. What CDK
    acknowledges of itself is left out.
    """
    with tempfile.TemporaryDirectory() as directory:
        stage = _stage(_everything(), directory)
        return tuple(
            (rule.removeprefix(_BY_US), str(construct.node.path), str(reason))
            for construct in stage.node.find_all()
            for entry in construct.node.metadata
            if entry.type == _ACKNOWLEDGED
            for rule, reason in entry.data.items()
            if rule.startswith(_BY_US)
        )
