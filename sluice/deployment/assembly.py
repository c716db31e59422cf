"""The output of `cdk synth`: the stacks of one environment, in the order in which they are deployed.

Reference: https://docs.aws.amazon.com/cdk/api/v2/docs/cloud-assembly-schema-readme.html (read 2026-11-26).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from sluice.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesizedStack:
    """A stack of a cloud assembly.

    Args:
        name: the stack's name in CloudFormation.
        path: the stack's name for the cdk command, such as `prod/Network`.
        template: the template that is to be deployed.
        lookup_role_arn: the role of `cdk bootstrap` that may read; None if the caller's own credentials are used.
        deploy_role_arn: the role of `cdk bootstrap` that may change stacks; None as above.
    """

    name: str
    path: str
    template: Mapping[str, Any]
    lookup_role_arn: str | None
    deploy_role_arn: str | None


def read_assembly(folder: Path, stage: str) -> list[SynthesizedStack]:
    """Return the stacks of a stage, each after those that it depends on.

    Args:
        folder: the output folder of `cdk synth`.
        stage: the stage's name, which is the environment's.

    Raises:
        ConfigError: there is no such stage in the folder.
    """
    nested = folder / f"assembly-{stage}"
    try:
        manifest = json.loads((nested / "manifest.json").read_text(encoding="utf-8"))
        stacks = {
            id_: _stack(id_, artifact, nested)
            for id_, artifact in manifest["artifacts"].items()
            if artifact["type"] == "aws:cloudformation:stack"
        }
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{folder} holds no templates of environment {stage!r} ({type(error).__name__}); write them with:"
            f" cdk synth -o {folder} -c env={stage} '{stage}/*'"
        ) from error
    needs = {id_: manifest["artifacts"][id_].get("dependencies", ()) for id_ in stacks}
    return [stacks[id_] for id_ in TopologicalSorter(needs).static_order() if id_ in stacks]


def _stack(id_: str, artifact: Mapping[str, Any], folder: Path) -> SynthesizedStack:
    """Return a stack from its entry in the assembly's manifest."""
    properties = artifact["properties"]
    return SynthesizedStack(
        name=properties.get("stackName", id_),
        path=artifact.get("displayName", id_),
        template=json.loads((folder / properties["templateFile"]).read_text(encoding="utf-8")),
        lookup_role_arn=properties.get("lookupRole", {}).get("arn"),
        deploy_role_arn=properties.get("assumeRoleArn"),
    )
