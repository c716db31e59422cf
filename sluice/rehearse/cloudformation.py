"""CloudFormation templates as they are written: loaded, and their resources with the references resolved.

A reference resolves to text: of a queue `Arn` to an ARN that ends with its name, `Ref` to its URL, and so on, so that
`name_in` finds the same name however a resource is referred to. A resource without a name of its own is known by its
logical id. What only a deployment knows stays in the text as a placeholder in angle brackets, such as `<AWS::Region>`.
AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/intrinsic-function-reference.html
(read 2026-11-23).
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from sluice.errors import ConfigError

type Template = Mapping[str, Any]

_NAMES = {
    "AWS::ECS::Cluster": "ClusterName",
    "AWS::ECS::Service": "ServiceName",
    "AWS::ECS::TaskDefinition": "Family",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Role": "RoleName",
    "AWS::SQS::Queue": "QueueName",
}
"""Kind of resource to the property that names it. Others are known by their logical ids, which are never used twice."""
_REFS = {
    "AWS::ECS::Service": "arn:aws:ecs:<AWS::Region>:<AWS::AccountId>:service/<cluster>/{name}",
    "AWS::SQS::Queue": "https://sqs.<AWS::Region>.amazonaws.com/<AWS::AccountId>/{name}",
}
"""What `Ref` gives, where that is neither a name nor like an ARN that ends with it."""
_TYPE = re.compile(r"[\w:@.-]+")
_VARIABLE = re.compile(r"\$\{([^!${}][^{}]*)\}")


class _Loader(yaml.SafeLoader):
    """YAML with the short tags of CloudFormation."""


def _tagged(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    """Return `!Ref x` as {"Ref": x}, `!GetAtt a.b` as {"Fn::GetAtt": "a.b"}, and so on."""
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    return {tag if tag in {"Ref", "Condition"} else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _tagged)


def load_template(path: Path) -> tuple[Template, ...]:
    """Return the templates of a file, JSON or YAML, or of a folder of `cdk synth`, which are read together.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    if not path.is_dir():
        return (_load(path),)
    found = sorted(path.rglob("*.template.json"))
    if not found:
        raise ConfigError(f"{path} has no *.template.json; give a template, or the folder that `cdk synth` wrote")
    return tuple(map(_load, found))


def _load(path: Path) -> Template:
    if path.suffix not in {".json", ".yaml", ".yml"}:
        raise ConfigError(f"{path} is no template; allowed are .json, .yaml and .yml, or the folder of `cdk synth`")
    try:
        text = path.read_text(encoding="utf-8")
        loaded = json.loads(text) if path.suffix == ".json" else yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); give a template") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {' '.join(str(error).split())}; correct it") from error
    return _checked(loaded, str(path))


def _checked(template: Any, source: str) -> Template:
    """Return what looks like a template: its resources have a type, and properties by name."""
    resources = template.get("Resources") if isinstance(template, Mapping) else None
    if not isinstance(resources, Mapping):
        raise ConfigError(f"{source} has no Resources; give a CloudFormation template")
    for id_, resource in resources.items():
        kind, properties = _in(resource, "Type"), _in(resource, "Properties")
        if not (
            str(id_).isalnum()
            and _TYPE.fullmatch(kind if isinstance(kind, str) else "")
            and isinstance(properties, Mapping | None)
        ):
            shown = f"{resource!r:.60}"
            raise ConfigError(f"{source}: resource {id_!r} is {shown}; allowed: a Type and Properties; correct it")
    return cast("Template", template)


def segments(reference: str) -> list[str]:
    """Return the parts of an ARN, a URL or a resource id; of a name, the name."""
    return re.split(r"[:/](?![^<>]*>)", reference)


def name_in(reference: str) -> str:
    """Return the name at the end of an ARN, a URL or a resource id; of a name, the name."""
    return segments(reference)[-1]


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a resource, references resolved, or a part of them.

    Args:
        owner: type and logical id of the resource, for refusals.
        path: where in its properties these are, for refusals; with a dot at its end.
        values: name -> value.
    """

    owner: str
    path: str
    values: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """Return a property; None where there is none."""
        return self.values.get(name)

    def refused(self, name: str, allowed: str) -> ConfigError:
        """Return the refusal of a property."""
        seen = "missing" if self.get(name) is None else repr(self.get(name))
        return ConfigError(f"{self.owner}: {self.path}{name} is {seen}; allowed: {allowed}; correct the template")

    def text(self, name: str) -> str:
        """Return a property that has to be there, as text."""
        if self.get(name) is None:
            raise self.refused(name, "a text")
        return str(self.get(name))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a property that is a number; it has to be there, unless it has a default."""
        found: Any = default if self.get(name) is None else self.get(name)
        try:
            number = float(found)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self.refused(name, "a number, or a parameter with a default")
        return number

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a property that is a whole number, 0 or more; it has to be there, unless it has a default."""
        found = self.number(name, default)
        if not found.is_integer() or found < 0:
            raise self.refused(name, "a whole number, 0 or more")
        return int(found)

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return a property that is one of some words; it has to be there, unless it has a default."""
        found = default if self.get(name) is None else self.get(name)
        if found not in allowed:
            raise self.refused(name, ", ".join(allowed))
        return str(found)

    def is_true(self, name: str, *, default: bool = False) -> bool:
        """Whether a property is true; in YAML it may be text."""
        found = self.get(name)
        return default if found is None else str(found).lower() == "true"

    def items(self, name: str) -> list[Any]:
        """Return a property that is a list; anything else is the only item of one, and none is empty."""
        found = self.get(name)
        return [] if found is None else found if isinstance(found, list) else [found]

    def part(self, name: str) -> "Properties":
        """Return a property that has properties; none of them where there is none."""
        found = self.get(name)
        return Properties(self.owner, f"{self.path}{name}.", found if isinstance(found, Mapping) else {})

    def parts(self, name: str) -> "list[Properties]":
        """Return a property that is a list of such."""
        return [
            Properties(self.owner, f"{self.path}{name}.{index}.", item)
            for index, item in enumerate(self.items(name))
            if isinstance(item, Mapping)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A resource of a template.

    Args:
        stack: the template it is in.
        id: its logical id.
        kind: its type, such as `AWS::SQS::Queue`.
        written: its properties as they are written.
    """

    stack: "Stack"
    id: str
    kind: str
    written: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name, or its logical id."""
        given = self.written.get(_NAMES.get(self.kind, ""))
        return self.id if given is None else str(self.stack.resolved(given))

    @property
    def properties(self) -> Properties:
        """Its properties, references resolved."""
        values = {name: self.stack.resolved(value) for name, value in self.written.items()}
        return Properties(f"{self.kind} {self.id}", "", values)


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """One template, which may import what others export."""

    template: Template
    exports: Mapping[str, tuple["Stack", Any]] = field(repr=False)

    def resources(self) -> Iterator[Resource]:
        """Yield every resource that the parameters' defaults deploy, in the template's order."""
        for id_, resource in self.template["Resources"].items():
            if "Condition" not in resource or self._holds({"Condition": resource["Condition"]}):
                yield _resource(self, id_, resource)

    def resolved(self, value: Any) -> Any:
        """Return a value with its references resolved; None of `AWS::NoValue`."""
        if isinstance(value, list):
            items = (self.resolved(item) for item in value)
            return [item for item in items if item is not None]
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            ((function, argument),) = value.items()
            if function == "Ref" or str(function).startswith("Fn::"):
                return self._called(str(function), argument)
        return {key: self.resolved(item) for key, item in value.items()}

    def _called(self, function: str, argument: Any) -> Any:
        """Return what an intrinsic function gives; a placeholder where only a deployment knows."""
        found: Any
        match function, argument:
            case "Ref", str(name):
                found = self._ref(name)
            case "Fn::GetAtt", str(text):
                found = self._attribute(*text.partition(".")[::2])
            case "Fn::GetAtt", [str(id_), str(attribute)]:
                found = self._attribute(id_, attribute)
            case "Fn::Sub", str(text):
                found = self._substituted(text, {})
            case "Fn::Sub", [str(text), Mapping() as variables]:
                found = self._substituted(text, variables)
            case "Fn::ImportValue", name:
                found = self._imported(str(self.resolved(name)))
            case "Fn::If", [str(condition), then, otherwise]:
                found = self.resolved(then if self._holds({"Condition": condition}) else otherwise)
            case _:
                found = _computed(self.template, function, self.resolved(argument))
        return found

    def _resource(self, id_: str) -> Resource | None:
        found = self.template["Resources"].get(id_)
        return None if found is None else _resource(self, id_, found)

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return None
        if (resource := self._resource(name)) is not None:
            return _REFS.get(resource.kind, "{name}").format(name=resource.name)
        default = _in(self.template, "Parameters", name, "Default")
        return f"<{name}>" if default is None else default

    def _attribute(self, id_: str, attribute: str) -> str:
        if (resource := self._resource(id_)) is None:
            return f"<{id_}.{attribute}>"
        if attribute == "Arn":
            service = resource.kind.lower().split("::")[-2:][0]
            return f"arn:aws:{service}:<AWS::Region>:<AWS::AccountId>:{resource.name}"
        return resource.name if attribute in {"Name", "QueueName"} else f"<{id_}.{attribute}>"

    def _substituted(self, text: str, variables: Mapping[str, Any]) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1].strip()
            if name in variables:
                return str(self.resolved(variables[name]))
            return str(self._attribute(*name.split(".", 1)) if "." in name else self._ref(name))

        return _VARIABLE.sub(value, text).replace("${!", "${")

    def _imported(self, name: str) -> Any:
        if name not in self.exports:
            return f"<{name}>"
        stack, value = self.exports[name]
        return stack.resolved(value)

    def _holds(self, condition: Any) -> bool:
        """Return whether a condition holds with the parameters' defaults; one that cannot be told does not."""
        match condition:
            case {"Condition": str(name)}:
                return self._holds(_in(self.template, "Conditions", name))
            case {"Fn::Equals": [left, right]}:
                return str(self.resolved(left)) == str(self.resolved(right))
            case {"Fn::Not": [part]}:
                return not self._holds(part)
            case {"Fn::And": list(parts)}:
                return all(map(self._holds, parts))
            case {"Fn::Or": list(parts)}:
                return any(map(self._holds, parts))
        return False


def _resource(stack: Stack, id_: str, written: Mapping[str, Any]) -> Resource:
    return Resource(stack, id_, str(written.get("Type")), written.get("Properties") or {})


def _computed(template: Template, function: str, argument: Any) -> Any:
    """Return what a function of plain values gives, or a placeholder."""
    found: Any = None
    match function, argument:
        case "Fn::Join", [str(separator), list(parts)]:
            found = separator.join(map(str, parts))
        case "Fn::Split", [str(separator), str(text)] if separator:
            found = text.split(separator)
        case "Fn::Select", [index, list(items)] if str(index).isdigit() and int(index) < len(items):
            found = items[int(index)]
        case "Fn::FindInMap", [str(name), str(top), str(second), *_]:
            found = _in(template, "Mappings", name, top, second)
    return f"<{function} {json.dumps(argument, default=str)}>" if found is None else found


def _in(tree: Any, *path: str) -> Any:
    """Return what is at a path of keys; None where something on the way is no mapping or lacks the key."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


@dataclass(frozen=True, slots=True)
class Stacks:
    """The resources of templates that are deployed together."""

    all: tuple[Resource, ...]

    def of_kind(self, kind: str) -> Iterator[Resource]:
        """Yield every resource of a type."""
        return (resource for resource in self.all if resource.kind == kind)

    def find(self, kind: str, reference: object, near: Resource) -> Resource | None:
        """Return the resource that a name, an ARN or a URL refers to, first in the template it stands in; or None."""
        name = name_in(str(reference))
        found = [resource for resource in self.of_kind(kind) if name in {resource.name, resource.id}]
        return min(found, key=lambda resource: resource.stack is not near.stack, default=None)


def stacks_of(templates: Sequence[Template]) -> Stacks:
    """Return the resources of templates, what one exports known to the others.

    Raises:
        ConfigError: one is no template.
    """
    exports: dict[str, tuple[Stack, Any]] = {}
    stacks = [Stack(_checked(template, "the template"), exports) for template in templates]
    for stack in stacks:
        outputs = stack.template.get("Outputs")
        for output in outputs.values() if isinstance(outputs, Mapping) else ():
            if (name := _in(output, "Export", "Name")) is not None:
                exports[str(stack.resolved(name))] = (stack, output.get("Value"))
    return Stacks(tuple(resource for stack in stacks for resource in stack.resources()))
