"""Judge a change of templates: which resources with state it would remove, replace, or leave without protection.

All stacks are compared before the first is changed, because CloudFormation makes no change set of a stack that needs
another stack's new exports. So a replacement is followed through references, also into other stacks. CloudFormation's
schema of a resource type says which properties replace the resource; a property that may replace it counts as one.

AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-updating-stacks-update-behaviors.html
(read 2026-11-26).
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Any

from sluice.errors import ConfigError

type Template = Mapping[str, Any]
type Key = tuple[str, str]
"""A stack's name, and a logical id in it."""
type Schemas = Callable[[str], frozenset[str] | None]
"""Takes a resource type, and returns the properties whose change may replace the resource; None if unknown."""
type Importers = Callable[[str, str], Collection[str]]
"""Takes a stack's name and the name of its export, and returns the names of the stacks that import it."""

STATE: Mapping[str, str] = {
    "AWS::SQS::Queue": "the messages in it",
    "AWS::SNS::Topic": "its archive and every subscription to it, and producers publish to the old one",
    "AWS::SNS::Subscription": "what is published until another subscription is there",
    "AWS::KMS::Key": "whatever is encrypted with it",
    "AWS::RDS::DBCluster": "inbox, outbox and every other table",
    "AWS::RDS::DBInstance": "its data, or of a cluster the connections and the readers",
    "AWS::Backup::BackupVault": "the copies of the database in it",
    "AWS::ECS::Cluster": "the running tasks",
    "AWS::ECS::Service": "the deployment: a second service of that name cannot be made beside the first",
    "AWS::EC2::VPC": "the network of running tasks and of the database",
    "AWS::EC2::Subnet": "the network of running tasks and of the database",
    "AWS::CloudFormation::Stack": "what is in the nested stack, which is not looked into",
}
"""Resource types that a deployment may not remove or replace unasked, and what would be lost."""
_RETAINED = "what it holds: its author declared it retained"
_REMOVED_AT_WILL = ("AWS::ECS::Service",)
_LEFT_BEHIND = ("AWS::Logs::LogGroup",)  # stay in the account when they leave the template, to be found by their name
_KEEPS = ("Retain", "RetainExceptOnCreate", "Snapshot")
_PROTECTIONS = ("DeletionProtection", "DeletionProtectionEnabled")
_SHORTENED = {
    "AWS::SQS::Queue": ("MessageRetentionPeriod", "messages older than that"),
    "AWS::RDS::DBCluster": ("BackupRetentionPeriod", "backups older than that"),
    "AWS::SNS::Topic": ("ArchivePolicy.MessageRetentionPeriod", "archived messages older than that"),
}
_NAMES = ("QueueName", "TopicName", "DBClusterIdentifier", "DBInstanceIdentifier", "ServiceName", "ClusterName")


class HarmKind(Enum):
    """The harm that a change does to a resource."""

    REMOVE = "removed"
    REPLACE = "replaced"
    DOWNGRADE = "given an older engine"
    UNPROTECT = "left without deletion protection and retention"
    SHORTEN = "kept for a shorter time"
    WITHDRAW = "taken away or given another value"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFinding:
    """A resource, or an export, that a change would harm.

    Args:
        stack: the name of the stack.
        logical_id: the logical id in the stack.
        kind: the resource type, or `export`.
        name: the physical name if it is known, else the logical id.
        harm: what would happen to the resource.
        because: the property or reference that causes the harm.
        lost: what would be lost.
    """

    stack: str
    logical_id: str
    kind: str
    name: str
    harm: HarmKind
    because: str
    lost: str

    def __str__(self) -> str:
        """Return the finding in one line."""
        return (
            f"{self.stack}: {self.kind} {self.name} ({self.logical_id}) would be {self.harm.value}: {self.because};"
            f" lost would be {self.lost}"
        )


def bundled_schemas() -> Schemas:
    """Return the schemas of the resource types in Sluice's own stacks: None for every other type."""
    text = resources.files(__package__).joinpath("replacement.json").read_text(encoding="utf-8")
    known = {kind: frozenset(names) for kind, names in json.loads(text).items()}
    return known.get


def state_of(kind: str, resource: Mapping[str, Any]) -> str | None:
    """Return in words what would be lost with a deployed resource; None if a deployment may remove it unasked."""
    if kind in STATE:
        return STATE[kind]
    keeps = {resource.get(policy) for policy in ("DeletionPolicy", "UpdateReplacePolicy")} & {*_KEEPS}
    return _RETAINED if keeps and kind not in _LEFT_BEHIND else None


def judge(
    before: Mapping[str, Template],
    after: Mapping[str, Template],
    schemas: Schemas,
    *,
    importers: Importers | None = None,
) -> list[GuardFinding]:
    """Return a finding for each resource that the change from one set of stacks to another would harm.

    Args:
        before: stack name -> deployed template. A stack that is not in `after` stays as it is.
        after: stack name -> template to deploy, in the order of the deployment.
        schemas: the schemas of resource types.
        importers: returns the stacks that import an export, besides the stacks of `before`; None means no others.

    Raises:
        ConfigError: a macro of a template makes resources, which are not known before it runs.
    """
    for name, template in (*before.items(), *after.items()):
        _require_plain(name, template)
    found = [*_Change(before, after, schemas).findings(), *_withdrawn(before, after, importers)]
    return sorted(found, key=lambda found: (list(after).index(found.stack), found.logical_id))


def _require_plain(stack: str, template: Template) -> None:
    """Refuse a template with a Transform: its resources are not known before CloudFormation runs the macro."""
    if "Transform" in template or "Fn::Transform" in json.dumps(template):
        raise ConfigError(
            f"the template of {stack} has a Transform, allowed is one that names its resources; deploy that stack by"
            " itself, with cdk"
        )


class _Change:
    """A change from one set of stacks to another, with the resources that it replaces."""

    def __init__(self, before: Mapping[str, Template], after: Mapping[str, Template], schemas: Schemas) -> None:
        self._before, self._after, self._schemas = before, after, schemas
        self._exports, was = _exports(after), _exports(before)
        self._moved = {name for name in was if was[name] != self._exports.get(name)}
        self._old = {
            (stack, id_): resource
            for stack in after
            for id_, resource in before.get(stack, {}).get("Resources", {}).items()
        }
        self._new = {
            (stack, id_): resource
            for stack, template in after.items()
            for id_, resource in template.get("Resources", {}).items()
        }
        self._replaced = self._find_replaced()

    def findings(self) -> Iterator[GuardFinding]:
        """Yield a finding for each resource with state that the change removes, replaces or protects less."""
        for key, old in self._old.items():
            kind, new = old["Type"], self._new.get(key)
            state = state_of(kind, old)
            if state is None:
                continue
            if new is None:
                if kind not in _REMOVED_AT_WILL:
                    yield self._finding(key, HarmKind.REMOVE, "it is no longer in the template", state)
            elif key in self._replaced:
                yield self._finding(key, HarmKind.REPLACE, self._replaced[key], state)
            else:
                yield from self._weakenings(key, old, new, state)

    def _find_replaced(self) -> dict[Key, str]:
        """Return replaced resource -> the reason for its replacement.

        A resource that refers to a replaced one may be replaced as well, so references are followed until no more
        resources are found.
        """
        reasons: dict[Key, str] = {}
        changed = {key: self._changed_properties(key) for key in self._old if key in self._new}
        undecided = [*changed]
        while undecided:
            for key in undecided:
                if (reason := self._reason(key, changed[key], reasons)) is not None:
                    reasons[key] = reason
            still_undecided = [key for key in undecided if key not in reasons]
            if len(still_undecided) == len(undecided):
                break
            undecided = still_undecided
        return reasons

    def _reason(self, key: Key, changed: frozenset[str], reasons: Mapping[Key, str]) -> str | None:
        """Return why a resource is replaced, as far as the replaced resources are known; None if it is not."""
        old, new = self._old[key], self._new[key]
        if other := [name for name in ("Type", "Condition") if old.get(name) != new.get(name)]:
            return f"its {other[0].lower()} becomes {new.get(other[0])}"
        conditions = [
            _condition(resource.get("Condition"), template[key[0]])
            for resource, template in ((old, self._before), (new, self._after))
        ]
        if conditions[0] != conditions[1]:
            return f"its condition {new['Condition']} may be another one"
        fixed = self._schemas(old["Type"])
        if fixed is None:
            return f"{', '.join(sorted(changed))} changes, and its type is not known here" if changed else None
        if replacing := sorted(changed & fixed):
            return f"{', '.join(replacing)} changes"
        others = (
            f"{name} is {of}, which is another one then"
            for name in sorted(fixed & new.get("Properties", {}).keys())
            for of in self._others(key[0], new["Properties"][name], reasons)
        )
        return next(others, None)

    def _changed_properties(self, key: Key) -> frozenset[str]:
        """Return the names of properties that differ, values of parameters, mappings and conditions included."""
        old, new = self._old[key].get("Properties", {}), self._new[key].get("Properties", {})
        before, after = self._before[key[0]], self._after[key[0]]
        return frozenset(
            name
            for name in {*old, *new}
            if _with_parameters(old.get(name), before) != _with_parameters(new.get(name), after)
        )

    def _others(self, stack: str, value: Any, replaced: Mapping[Key, str]) -> Iterator[str]:
        """Yield the names of the resources and exports in a value that the change replaces, adds or removes."""
        targets = [(stack, id_) for id_ in _references(value)]
        for export in _imports(value):
            if export in self._moved:
                yield export
            elif export in self._exports:
                targets.append(self._exports[export])
        for target in targets:
            if target in replaced or (target in self._new) != (target in self._old):
                yield target[1]

    def _weakenings(
        self, key: Key, old: Mapping[str, Any], new: Mapping[str, Any], state: str
    ) -> Iterator[GuardFinding]:
        """Yield a finding for an older engine, for protection that is lost, and for a shorter retention."""
        was, now = old.get("Properties", {}), new.get("Properties", {})
        if old["Type"].startswith("AWS::RDS::") and _is_lower(now.get("EngineVersion"), was.get("EngineVersion")):
            versions = f"EngineVersion {was.get('EngineVersion')} becomes {now.get('EngineVersion')}"
            yield self._finding(key, HarmKind.DOWNGRADE, versions, state)
        protections_before = _protections(old)
        if protections_before and not _protections(new):
            yield self._finding(
                key, HarmKind.UNPROTECT, f"{' and '.join(protections_before)} goes", f"{state}, once it is deleted"
            )
        if old["Type"] in _SHORTENED:
            path, lost = _SHORTENED[old["Type"]]
            older, newer = _property(was, path), _property(now, path)
            if older is not None and _is_lower(newer, older):
                yield self._finding(key, HarmKind.SHORTEN, f"{path} {older} becomes {newer}", lost)

    def _finding(self, key: Key, harm: HarmKind, because: str, lost: str) -> GuardFinding:
        """Return a finding about a deployed resource, under its declared name if it has one."""
        resource = self._old[key]
        names = (resource.get("Properties", {}).get(name) for name in _NAMES)
        name = next((name for name in names if isinstance(name, str)), key[1])
        return GuardFinding(
            stack=key[0], logical_id=key[1], kind=resource["Type"], name=name, harm=harm, because=because, lost=lost
        )


def _withdrawn(
    before: Mapping[str, Template], after: Mapping[str, Template], importers: Importers | None
) -> Iterator[GuardFinding]:
    """Yield a finding for each export that changes before the stacks that import it are deployed.

    CloudFormation refuses such a change, but only after it has changed earlier stacks. AWS:
    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-stack-exports.html (read 2026-11-27).
    """
    imported = {stack: {*_imports(template)} for stack, template in before.items()}
    for stack, template in after.items():
        exports = _export_values(template)
        for id_, output in before.get(stack, {}).get("Outputs", {}).items():
            name = output.get("Export", {}).get("Name")
            if isinstance(name, str) and exports.get(name) != output["Value"]:
                others = set() if importers is None else {*importers(stack, name)} - imported.keys()
                if users := sorted(others | {user for user, names in imported.items() if name in names}):
                    yield GuardFinding(
                        stack=stack,
                        logical_id=id_,
                        kind="export",
                        name=name,
                        harm=HarmKind.WITHDRAW,
                        because=f"it is imported by {', '.join(users)}",
                        lost="the deployment, which CloudFormation refuses there; deploy first what imports it no more",
                    )
        imported[stack] = {*_imports(template)}


def _export_values(template: Template) -> dict[str, Any]:
    """Return the value of each export of a template, by the export's name."""
    return {
        output["Export"]["Name"]: output["Value"]
        for output in template.get("Outputs", {}).values()
        if isinstance(output.get("Export", {}).get("Name"), str)
    }


def judge_change_set(stack: str, changes: list[Mapping[str, Any]], deployed: Template) -> list[GuardFinding]:
    """Return a finding for each resource that a change set would harm, by CloudFormation's own description of it.

    Args:
        stack: the name of the stack.
        changes: `Changes` of DescribeChangeSet, all pages.
        deployed: the deployed template of the stack.

    AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_ResourceChange.html (read 2026-11-26).
    """
    found = []
    for change in (change["ResourceChange"] for change in changes if "ResourceChange" in change):
        id_, action = change["LogicalResourceId"], change["Action"]
        state = state_of(change["ResourceType"], deployed.get("Resources", {}).get(id_, {}))
        replacement = change.get("Replacement")
        is_removed = action == "Remove" and change["ResourceType"] not in _REMOVED_AT_WILL
        is_replaced = action == "Dynamic" or (action == "Modify" and replacement != "False")
        if state is not None and (is_removed or is_replaced):
            found.append(
                GuardFinding(
                    stack=stack,
                    logical_id=id_,
                    kind=change["ResourceType"],
                    name=change.get("PhysicalResourceId") or id_,
                    harm=HarmKind.REMOVE if is_removed else HarmKind.REPLACE,
                    because=f"its change set says {action}, replacement {replacement}",
                    lost=state,
                )
            )
    return found


def _exports(templates: Mapping[str, Template]) -> dict[str, Key]:
    """Return the resource that each export refers to, as its stack's name and logical id."""
    return {
        name: (stack, id_)
        for stack, template in templates.items()
        for output in template.get("Outputs", {}).values()
        if isinstance(name := output.get("Export", {}).get("Name"), str)
        for id_ in _references(output["Value"])
    }


def _references(value: Any) -> Iterator[str]:
    """Yield the logical ids of the resources and parameters that a value refers to."""
    match value:
        case {"Ref": str(id_)}:
            yield id_
        case {"Fn::GetAtt": [str(id_), *_]}:
            yield id_
        case {"Fn::GetAtt": str(text)}:
            yield text.partition(".")[0]
        case {"Fn::Sub": str(text)} | {"Fn::Sub": [str(text), *_]}:
            yield from (part.partition("}")[0].partition(".")[0] for part in text.split("${")[1:])
            if isinstance(value["Fn::Sub"], list):
                yield from _references(value["Fn::Sub"][1:])
        case dict():
            for item in value.values():
                yield from _references(item)
        case list():
            for item in value:
                yield from _references(item)


def _imports(value: Any) -> Iterator[str]:
    """Yield the names of the exports that a value imports."""
    match value:
        case {"Fn::ImportValue": str(name)}:
            yield name
        case dict():
            for item in value.values():
                yield from _imports(item)
        case list():
            for item in value:
                yield from _imports(item)


def _with_parameters(value: Any, template: Template) -> Any:
    """Return a value with the definition of each parameter, mapping and condition that it depends on."""
    match value:
        case {"Ref": _} | {"Fn::Sub": _}:
            known = template.get("Parameters", {})
            return {**value, "defined": {name: known[name] for name in _references(value) if name in known}}
        case {"Fn::FindInMap": [str(name), *_]}:
            return {**value, "defined": template.get("Mappings", {}).get(name)}
        case {"Fn::If": [str(name), *rest]}:
            return {"Fn::If": [_condition(name, template), *_with_parameters(rest, template)]}
        case {"Condition": str(name)} if len(value) == 1:
            return {"Condition": _condition(name, template)}
        case dict():
            return {key: _with_parameters(item, template) for key, item in value.items()}
    return [_with_parameters(item, template) for item in value] if isinstance(value, list) else value


def _condition(name: str | None, template: Template) -> Any:
    """Return a condition's definition, with the definitions that it depends on."""
    return None if name is None else _with_parameters(template.get("Conditions", {}).get(name), template)


def _protections(resource: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that keep a resource's data when the resource is deleted."""
    properties = resource.get("Properties", {})
    policy = resource.get("DeletionPolicy")
    names = [name for name in _PROTECTIONS if properties.get(name) is True]
    return [*names, f"DeletionPolicy {policy}"] if policy in _KEEPS else names


def _property(properties: Mapping[str, Any], path: str) -> Any:
    """Return the property at a path of names divided by dots; None if there is none."""
    found: Any = properties
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _is_lower(now: Any, was: Any) -> bool:
    """Return whether a number or version is lower than before, or may be because one of them is no plain number."""
    if now == was:
        return False
    numbers = [_numbers(value) for value in (now, was)]
    return None in numbers or numbers[0] < numbers[1]  # type: ignore[operator]  # None is met before


def _numbers(value: Any) -> list[int] | None:
    """Return the parts of a version as numbers; None if a part is no number."""
    try:
        return [int(part) for part in str(value).split(".")]
    except ValueError:
        return None
