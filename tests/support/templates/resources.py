"""From a synthesized template to resources one can read and compare whole."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MESSAGING, OBSERVABILITY = "messaging", "observability"

type TemplateDict = dict[str, Any]
type ResourceProperties = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stack of an environment as the CDK CLI and CloudFormation get it."""

    template: TemplateDict
    file: Path
    metadata: Path
    is_protected: bool
    dependencies: tuple[str, ...]


type StackTemplates = dict[str, Stack]
"""The stacks of one environment by part: network, messaging, consumers, observability."""


def read(directory: Path) -> StackTemplates:
    """Return the stacks of the one environment that was synthesized into a directory."""
    (assembly,) = directory.glob("assembly-*")
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    stacks = {id_: artifact for id_, artifact in artifacts.items() if artifact["type"] == "aws:cloudformation:stack"}
    parts = {id_: stack["displayName"].rpartition("/")[2].lower() for id_, stack in stacks.items()}
    return {
        parts[id_]: Stack(
            template=json.loads((assembly / stack["properties"]["templateFile"]).read_text()),
            file=assembly / stack["properties"]["templateFile"],
            metadata=assembly / stack["additionalMetadataFile"],
            is_protected=stack["properties"].get("terminationProtection", False),
            dependencies=tuple(parts[other] for other in stack["dependencies"] if other in parts),
        )
        for id_, stack in stacks.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource with its references spelled out.

    `name` is its physical name or, without one, its logical id less the hash. `Ref(name)` is a reference to it,
    `Arn(name)` its attribute Arn; `<AWS::Region>` a pseudo parameter. What is imported from another stack reads as what
    it is there.
    """

    stack: str
    name: str
    kind: str
    properties: ResourceProperties
    tags: dict[str, str]
    deletion_policy: str | None
    update_replace_policy: str | None
    depends_on: tuple[str, ...]


_NAMES = (
    *("TopicName", "QueueName", "AliasName", "ClusterName", "ServiceName", "Family"),
    *("LogGroupName", "AlarmName", "DashboardName"),
)


def resources(stacks: StackTemplates) -> list[Resource]:
    """Return every resource of an environment."""
    exported: dict[str, Any] = {}
    return [
        resource
        for part, stack in stacks.items()
        for resource in template_resources(part, stack.template, exported=exported)
    ]


def template_resources(part: str, template: TemplateDict, *, exported: dict[str, Any] | None = None) -> list[Resource]:
    """Return every resource of one template; `exported` is what others export, to which its own is added."""
    exported = {} if exported is None else exported
    names = {id_: _name(id_, resource) for id_, resource in template["Resources"].items()}
    for output in template.get("Outputs", {}).values():
        if "Export" in output:
            exported[output["Export"]["Name"]] = _spell_out(output["Value"], names, exported)
    return [
        _resource(part, names[id_], _spell_out(resource, names, exported), names)
        for id_, resource in template["Resources"].items()
    ]


def _resource(part: str, name: str, resource: dict[str, Any], names: dict[str, str]) -> Resource:
    properties = dict(resource.get("Properties", {}))
    tags = properties.pop("Tags", [])
    return Resource(
        stack=part,
        name=name,
        kind=resource["Type"],
        properties=properties,
        tags={tag["Key"]: tag["Value"] for tag in tags},
        deletion_policy=resource.get("DeletionPolicy"),
        update_replace_policy=resource.get("UpdateReplacePolicy"),
        depends_on=tuple(names[id_] for id_ in resource.get("DependsOn", ())),
    )


def _name(id_: str, resource: dict[str, Any]) -> str:
    properties = resource.get("Properties", {})
    named = [properties[key] for key in _NAMES if isinstance(properties.get(key), str)]
    return named[0] if named else re.sub(r"[0-9A-F]{8}$", "", id_)


def outputs(template: TemplateDict) -> dict[str, Any]:
    """Return the values of a template's outputs, spelled out; without what it exports to other stacks."""
    names = {id_: _name(id_, resource) for id_, resource in template["Resources"].items()}
    return {
        name: _spell_out(output["Value"], names, {})
        for name, output in template.get("Outputs", {}).items()
        if "Export" not in output
    }


def _spell_out(value: Any, names: dict[str, str], exported: dict[str, Any]) -> Any:
    spelled_out = value
    match value:
        case {"Ref": str(id_)}:
            spelled_out = f"Ref({names[id_]})" if id_ in names else f"<{id_}>"
        case {"Fn::GetAtt": [id_, attribute]}:
            spelled_out = f"{attribute}({names.get(id_, id_)})"
        case {"Fn::ImportValue": name}:
            spelled_out = exported[name]
        case {"Fn::Sub": str(text)}:
            spelled_out = re.sub(r"\$\{(AWS::\w+)\}", r"<\1>", text)
        case {"Fn::Join": [separator, parts]}:
            spelled_out = separator.join(_spell_out(part, names, exported) for part in parts)
        case dict():
            spelled_out = {key: _spell_out(item, names, exported) for key, item in value.items()}
        case list():
            spelled_out = [_spell_out(item, names, exported) for item in value]
    return spelled_out


def of_kind(found: Iterable[Resource], kind: str) -> dict[str, ResourceProperties]:
    """Return the properties of every resource of that type by name; tags are looked at apart."""
    named = [(resource.name, resource.properties) for resource in found if resource.kind == kind]
    assert len(dict(named)) == len(named), f"two of {kind} have one name"
    return dict(named)


def statements(found: Iterable[Resource], role: str) -> list[ResourceProperties]:
    """Return what the role of that name is allowed by policies of its own; roles have no others unless they say so."""
    policies = of_kind(found, "AWS::IAM::Policy").values()
    return [
        statement
        for policy in policies
        if f"Ref({role})" in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
