"""CloudFormation templates: loading them, and reading their resources with references resolved.

A reference resolves to text: for a queue, `Arn` to an ARN that ends with its name, `Ref` to its URL, and so on. So
`name_in` finds the same name for every form of reference. A resource without a name is known by its logical id. A value
that only the deployment has stays in the text as a placeholder in angle brackets, such as `<AWS::Region>`. It is
unknown: a caller that needs it refuses it, or reports the assumption.

AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/intrinsic-function-reference.html (read
2026-11-23).
"""

import codecs
import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, takewhile
from operator import eq
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
"""Kind of resource to the property with its name. Other kinds are known by their logical ids, which are unique."""
_REFS = {
    "AWS::ECS::Service": "arn:aws:ecs:<AWS::Region>:<AWS::AccountId>:service/{cluster}/{name}",
    "AWS::SQS::Queue": "https://sqs.<AWS::Region>.amazonaws.com/<AWS::AccountId>/{name}",
}
"""The result of `Ref` for kinds where it is neither the name nor an ARN that ends with the name."""
_TARGET, _POLICY = "AWS::ApplicationAutoScaling::ScalableTarget", "AWS::ApplicationAutoScaling::ScalingPolicy"
_SUFFIXES = {".json", ".template", ".yaml", ".yml"}
_ENCODINGS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
NESTED = {"AWS::CloudFormation::Stack": "TemplateURL", "AWS::Serverless::Application": "Location"}
"""Kind of resource that deploys another template, to the property that says which."""
_UNKNOWN = re.compile(r"<[^<>]+>")
_DYNAMIC = re.compile(r"\{\{(resolve:[^{}]*)\}\}")
_MARK = re.compile(r"\{%|\{\{(?!resolve:)-?")  # a dynamic reference is {{resolve:…}}
_RESOURCES = re.compile(r"(?:^|[{,])\s*[\"']?Resources[\"']?\s*:", re.MULTILINE)
_TYPE = re.compile(r"[\w:@.-]+")
_VARIABLE = re.compile(r"\$\{([^!${}][^{}]*)\}")


class _Loader(yaml.SafeLoader):
    """YAML with the short tags of CloudFormation, in which no mapping has a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 (as the base)
        """Return the dict of a YAML mapping; refuse one with a key twice."""
        _require_once(str(key.value) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge")
        return super().construct_mapping(node, deep)


def _require_once(names: Iterable[str]) -> None:
    """Refuse a name that stands twice in one mapping, as its first value would be dropped."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} stands twice in one place")


def _unique_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; refuse a name that stands twice."""
    _require_once(name for name, _ in pairs)
    return dict(pairs)


def _construct_tag(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    """Return `!Ref x` as {"Ref": x}, `!GetAtt a.b` as {"Fn::GetAtt": "a.b"}, and so on."""
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    return {tag if tag in {"Ref", "Condition"} else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _construct_tag)


def load_template(path: Path) -> Mapping[str, Template]:
    """Return the template of a file, or the templates of a folder, each by its path in the folder.

    If `cdk synth` wrote the folder, it has a manifest, and only files named `*.template.json` are read, as the others
    are assets. Of any other folder every template is read.

    Raises:
        ConfigError: there is no template, or it cannot be read.
    """
    if not path.is_dir():
        return {path.name: _require_template(_parse_file(path, _read_text(path)), str(path))}
    pattern = "*.template.json" if (path / "manifest.json").is_file() else "*"
    loaded = {
        file: _parse_file(file, text)
        for file in sorted(path.rglob(pattern))
        if file.suffix in _SUFFIXES and file.is_file() and _RESOURCES.search(text := _read_text(file))
    }
    found = {
        file: template for file, template in loaded.items() if isinstance(_value_at(template, "Resources"), Mapping)
    }
    if not found:
        raise ConfigError(
            f"{path} has no *.template.json, and no template in another file of {', '.join(sorted(_SUFFIXES))}; give a"
            " template, or the folder that `cdk synth` wrote"
        )
    return {file.relative_to(path).as_posix(): _require_template(of, str(file)) for file, of in found.items()}


def _read_text(path: Path) -> str:
    """Return the text of a file in UTF-8 or UTF-16."""
    try:
        content = path.read_bytes()
        encoding = next((name for mark, name in _ENCODINGS.items() if content.startswith(mark)), "utf-8")
        return content.decode(encoding)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); give a template") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}; allowed are UTF-8 and UTF-16; give a template") from error


def _parse_file(path: Path, text: str) -> Any:
    """Return the JSON or YAML of a file with this text."""
    if path.suffix not in _SUFFIXES:
        allowed = ", ".join(sorted(_SUFFIXES))
        raise ConfigError(f"{path} is no template; allowed are {allowed}, or the folder of `cdk synth`")
    is_json = path.suffix == ".json" or text.lstrip().startswith("{")
    try:
        loaded = json.loads(text, object_pairs_hook=_unique_dict) if is_json else yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        if mark := _MARK.search(text):
            raise ConfigError(
                f"cannot read {path}: {mark[0].strip()} is of a template language, such as Jinja; give what it is"
                " rendered to"
            ) from error
        raise ConfigError(f"cannot read {path}: {' '.join(str(error).split())}; correct it") from error
    return loaded


def _require_template(template: Any, source: str) -> Template:
    """Return the argument if it is a template: its resources have a type, and properties by name."""
    resources = template.get("Resources") if isinstance(template, Mapping) else None
    if not isinstance(resources, Mapping):
        raise ConfigError(f"{source} has no Resources; give a CloudFormation template")
    for id_, resource in resources.items():
        if str(id_).startswith("Fn::"):
            raise ConfigError(
                f"{source}: {id_} makes resources when it is deployed; give the processed template:"
                " aws cloudformation get-template --template-stage Processed"
            )
        kind, properties = _value_at(resource, "Type"), _value_at(resource, "Properties")
        if not (
            str(id_).isalnum()
            and _TYPE.fullmatch(kind if isinstance(kind, str) else "")
            and isinstance(properties, Mapping | None)
        ):
            shown = f"{resource!r:.60}"
            raise ConfigError(f"{source}: resource {id_!r} is {shown}; allowed: a Type and Properties; correct it")
    return cast("Template", template)


def _read_json(value: object) -> object:
    """Return a property that CloudFormation also takes as JSON in a text, such as a policy's document."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def segments(reference: str) -> list[str]:
    """Return the parts of an ARN, a URL or a resource id; a plain name is its only part."""
    return re.split(r"[:/](?![^<>]*>)", reference)


def name_in(reference: str) -> str:
    """Return the name at the end of an ARN, a URL or a resource id; a plain name is returned unchanged."""
    return segments(reference)[-1]


def is_unknown(value: object) -> bool:
    """Return whether a value, or a part of it, is only known after the deployment."""
    return isinstance(value, str) and _UNKNOWN.search(value) is not None


def may_be_same(name: str, other: str) -> bool:
    """Return whether two names may be equal after the deployment has filled in their unknown parts."""
    if name == other or _UNKNOWN.findall(name) == _UNKNOWN.findall(other):
        return name == other
    if is_unknown(name) and is_unknown(other):
        return True
    pattern, text = (name, other) if is_unknown(name) else (other, name)
    return re.fullmatch(".*".join(map(re.escape, _UNKNOWN.split(pattern))), text) is not None


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a resource, references resolved, or a part of them.

    Args:
        owner: type and logical id of the resource, for refusals.
        path: where in its properties these are, for refusals; with a dot at its end.
        values: name -> value.
        undecided: parameters that have no value, which refusals ask for.
    """

    owner: str
    path: str
    values: Mapping[str, Any]
    undecided: frozenset[str] = frozenset()

    def get(self, name: str) -> Any:
        """Return a property; None if it is missing."""
        return self.values.get(name)

    def refusal(self, name: str, allowed: str) -> ConfigError:
        """Return the error that refuses a property: its value, the allowed values, and the user's next step."""
        seen = "missing" if self.get(name) is None else repr(self.get(name))
        named = re.findall(r"[\w:]+", " ".join(_UNKNOWN.findall(seen)))
        wanted = [word for word in named if word in self.undecided] or [word for word in named if "AWS::" in word]
        stored = "write the value into a copy of the template" if "<resolve:" in seen else "correct the template"
        step = f"give it: --parameter {wanted[0]}=VALUE" if wanted else stored
        return ConfigError(f"{self.owner}: {self.path}{name} is {seen}; allowed: {allowed}; {step}")

    def is_undecided(self, name: str) -> bool:
        """Return whether a property has a part that a parameter without a value decides."""
        words = re.findall(r"[\w:]+", " ".join(_UNKNOWN.findall(str(self.get(name)))))
        return any(word in self.undecided or "AWS::" in word for word in words)

    def text(self, name: str) -> str:
        """Return a property that has to be there, as text."""
        if self.get(name) is None:
            raise self.refusal(name, "a text")
        return str(self.get(name))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a property that is a number; it is required unless it has a default."""
        found: Any = default if self.get(name) is None else self.get(name)
        try:
            number = float(found)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self.refusal(name, "a number, or a parameter with a default")
        return number

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a property that is a whole number, 0 or more; it is required unless it has a default."""
        found = self.number(name, default)
        if not found.is_integer() or found < 0:
            raise self.refusal(name, "a whole number, 0 or more")
        return int(found)

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return a property that is one of the allowed words; it is required unless it has a default."""
        found = default if self.get(name) is None else self.get(name)
        if found not in allowed:
            raise self.refusal(name, ", ".join(allowed))
        return str(found)

    def is_true(self, name: str, *, default: bool = False) -> bool:
        """Return whether a property is true; in YAML it may be text."""
        found = self.get(name)
        if is_unknown(found):
            raise self.refusal(name, "true or false")
        return default if found is None else str(found).lower() == "true"

    def items(self, name: str) -> list[Any]:
        """Return a property as a list: a list unchanged, another value as the only item, a missing one as no item."""
        found = self.get(name)
        return [] if found is None else found if isinstance(found, list) else [found]

    def part(self, name: str) -> "Properties":
        """Return a property that has properties itself; an empty part if it is missing."""
        found = self.get(name)
        if is_unknown(found):
            raise self.refusal(name, "properties")
        values = {} if found is None else _read_json(found)
        if not isinstance(values, Mapping):
            raise self.refusal(name, "properties")
        return Properties(self.owner, f"{self.path}{name}.", values, self.undecided)

    def parts(self, name: str) -> "list[Properties]":
        """Return a property that is a list, each of whose items has properties itself."""
        if not all(isinstance(item, Mapping) for item in self.items(name)):
            raise self.refusal(name, "a list of properties")
        return [
            Properties(self.owner, f"{self.path}{name}.{index}.", item, self.undecided)
            for index, item in enumerate(self.items(name))
        ]


@dataclass(frozen=True, slots=True, eq=False)
class TemplateResource:
    """A resource of a template.

    Args:
        stack: its template.
        id: its logical id.
        kind: its type, such as `AWS::SQS::Queue`.
        raw_properties: its properties, with references unresolved.
        condition: its condition; None if it has none.
        metadata: metadata of tools.
    """

    stack: "TemplateStack"
    id: str
    kind: str
    raw_properties: Mapping[str, Any]
    condition: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_condition_met(self) -> bool | None:
        """Return whether its condition is met; True without a condition, None if it is undecided."""
        return True if self.condition is None else self.stack.is_met({"Condition": self.condition})

    @property
    def name(self) -> str:
        """Its name, or its logical id."""
        given = self.raw_properties.get(_NAMES.get(self.kind, ""))
        return self.id if given is None else str(self.stack.resolve(given))

    @property
    def properties(self) -> Properties:
        """Its properties, references resolved."""
        values = {name: self.stack.resolve(value) for name, value in self.raw_properties.items()}
        return Properties(f"{self.kind} {self.id}", "", values, self.stack.undecided_parameters)


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Links between templates that are deployed together.

    Args:
        exports: name of an export -> the templates that export it, and its value in each.
        parents: name of a nested template -> the resource that deploys it.
        children: (name of a template, id of its resource that deploys another one) -> the deployed template.
    """

    exports: dict[str, list[tuple["TemplateStack", Any]]] = field(default_factory=dict)
    parents: dict[str, TemplateResource] = field(default_factory=dict)
    children: dict[tuple[str, str], "TemplateStack"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TemplateStack:
    """One template, which may import the exports of other templates.

    Args:
        name: its file's path or another unique name.
        template: its content.
        parameters: values of parameters from the command line, by name.
        links: links between the templates.
    """

    name: str
    template: Template
    parameters: Mapping[str, str] = field(repr=False)
    links: Links = field(repr=False)

    @property
    def parent(self) -> TemplateResource | None:
        """Return the resource that deploys this template as a nested one; None if it is not nested."""
        return self.links.parents.get(self.name)

    @property
    def location(self) -> tuple[str, ...]:
        """Return where the template is, from far to near: its folder, the outermost template around it, its name."""
        if self.parent is None:
            return (self.name.rpartition("/")[0], self.name, self.name)
        return (*self.parent.stack.location[:2], self.name)

    def nearness(self, other: "TemplateStack") -> tuple[bool, ...]:
        """Return how near another template is, as a value that compares as greater for a nearer one."""
        return tuple(own == others for own, others in zip(self.location, other.location, strict=True))[::-1]

    @property
    def undecided_parameters(self) -> frozenset[str]:
        """Return the names of the parameters without a value."""
        names = _parameter_names(self.template.get("Parameters"))
        return frozenset(name for name in names if is_unknown(self.ref(name)))

    def resources(self) -> Iterator[TemplateResource]:
        """Yield every resource in the template's order, resources with a false condition included."""
        return (_to_resource(self, id_, resource) for id_, resource in self.template["Resources"].items())

    def resolve(self, value: Any) -> Any:
        """Return a value with its references resolved; `AWS::NoValue` gives None."""
        if isinstance(value, list):
            items = (self.resolve(item) for item in value)
            return [item for item in items if item is not None]
        if isinstance(value, str):
            return _DYNAMIC.sub(r"<\1>", value)
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            ((function, argument),) = value.items()
            if function == "Ref" or str(function).startswith("Fn::"):
                return self._call_function(str(function), argument)
        return {key: self.resolve(item) for key, item in value.items()}

    def _call_function(self, function: str, argument: Any) -> Any:
        """Return the result of an intrinsic function; a placeholder if only the deployment has it."""
        found: Any
        match function, argument:
            case "Ref", str(name):
                found = self.ref(name)
            case "Fn::GetAtt", str(text):
                found = self._attribute(*text.partition(".")[::2])
            case "Fn::GetAtt", [str(id_), str(attribute)]:
                found = self._attribute(id_, attribute)
            case "Fn::Sub", str(text):
                found = self._substitute(text, {})
            case "Fn::Sub", [str(text), Mapping() as variables]:
                found = self._substitute(text, variables)
            case "Fn::ImportValue", name:
                found = self._import_value(str(self.resolve(name)))
            case "Fn::If", [str(condition), then, otherwise]:
                is_so = self.is_met({"Condition": condition})
                if is_so is None:
                    return _placeholder(
                        f"Fn::If {condition} needs {' '.join(self.needed_parameters(condition)) or 'more'}"
                    )
                found = self.resolve(then if is_so else otherwise)
            case _:
                found = _compute(self.template, function, self.resolve(argument))
        return found

    def _find_resource(self, id_: str) -> TemplateResource | None:
        """Return the resource with this logical id; None if the template has none."""
        found = self.template["Resources"].get(id_)
        return None if found is None else _to_resource(self, id_, found)

    def ref(self, name: str) -> Any:
        """Return the value of a `Ref` to a resource or parameter; a placeholder if only the deployment has it."""
        if name == "AWS::NoValue":
            return None
        if (resource := self._find_resource(name)) is not None:
            if resource.kind == _TARGET:
                resource_id, dimension = (
                    str(self.resolve(resource.raw_properties.get(f))) for f in ("ResourceId", "ScalableDimension")
                )
                return f"{resource_id}|{dimension}|{dimension.partition(':')[0]}"
            if resource.kind == _POLICY:
                return f"arn:aws:autoscaling:<AWS::Region>:<AWS::AccountId>:scalingPolicy:{self.name}:{name}"
            cluster = name_in(str(self.resolve(resource.raw_properties.get("Cluster") or "default")))
            return _REFS.get(resource.kind, "{name}").format(name=resource.name, cluster=cluster)
        parameter = _value_at(self.template, "Parameters", name)
        kind = str(_value_at(parameter, "Type"))
        if self.parent is not None:
            passed = _value_at(self.parent.raw_properties, "Parameters", name)
            default = self.parameters.get(name, _value_at(parameter, "Default"))
            value = default if passed is None else self.parent.stack.resolve(passed)
        else:
            is_stored = kind.startswith("AWS::SSM::")  # its default is the key of its value
            value = self.parameters.get(name, None if is_stored else _value_at(parameter, "Default"))
        if value is None:
            return f"<{name}>"
        is_list = isinstance(value, str) and (kind == "CommaDelimitedList" or kind.startswith("List<"))
        return [item.strip() for item in value.split(",")] if is_list else value

    def _attribute(self, id_: str, attribute: str) -> str:
        """Return the result of `Fn::GetAtt`; a placeholder if only the deployment has it."""
        if (resource := self._find_resource(id_)) is None:
            return f"<{id_}.{attribute}>"
        if resource.kind in {_TARGET, _POLICY} and attribute in {"Id", "Arn"}:
            return str(self.ref(id_))
        if attribute == "Arn":
            service = resource.kind.lower().split("::")[-2:][0]
            return f"arn:aws:{service}:<AWS::Region>:<AWS::AccountId>:{resource.name}"
        nested, _, output = attribute.partition(".")
        if nested == "Outputs" and (child := self.links.children.get((self.name, id_))) is not None:
            value = child.resolve(_value_at(child.template, "Outputs", output, "Value"))
            return f"<{id_}.{attribute}>" if value is None else str(value)
        return resource.name if attribute in {"Name", "QueueName"} else f"<{id_}.{attribute}>"

    def _substitute(self, text: str, variables: Mapping[str, Any]) -> str:
        """Return the result of `Fn::Sub`: the text with each `${name}` replaced by its value."""

        def value(found: re.Match[str]) -> str:
            name = found[1].strip()
            if name in variables:
                return str(self.resolve(variables[name]))
            return str(self._attribute(*name.split(".", 1)) if "." in name else self.ref(name))

        return _DYNAMIC.sub(r"<\1>", _VARIABLE.sub(value, text).replace("${!", "${"))

    def _import_value(self, name: str) -> Any:
        """Return the result of `Fn::ImportValue`: of the nearest template that has an export of this name."""
        if name not in self.links.exports:
            return _placeholder(name)
        stack, value = max(self.links.exports[name], key=lambda export: export[0].nearness(self))
        return stack.resolve(value)

    def is_met(self, condition: Any) -> bool | None:
        """Return whether a condition is true; None if a parameter without a value leaves it undecided."""
        match condition:
            case {"Condition": str(name)}:
                return self.is_met(_value_at(self.template, "Conditions", name))
            case {"Fn::Equals": [left, right]}:
                sides = [str(self.resolve(side)) for side in (left, right)]
                return None if sides[0] != sides[1] and any(map(is_unknown, sides)) else sides[0] == sides[1]
            case {"Fn::Not": [part]}:
                return None if (found := self.is_met(part)) is None else not found
            case {"Fn::And": list(parts)}:
                found_all = [self.is_met(part) for part in parts]
                return False if False in found_all else None if None in found_all else True
            case {"Fn::Or": list(parts)}:
                found_all = [self.is_met(part) for part in parts]
                return True if True in found_all else None if None in found_all else False
        return None

    def needed_parameters(self, condition: str) -> list[str]:
        """Return the parameters on which a condition depends, by name."""
        return list(dict.fromkeys(self._parameters_in(_value_at(self.template, "Conditions", condition))))

    def _parameters_in(self, value: Any) -> Iterator[str]:
        """Yield the names that a part of a condition refers to, also through other conditions."""
        match value:
            case {"Ref": str(name)}:
                yield name
            case {"Condition": str(name)}:
                yield from self.needed_parameters(name)
            case Mapping():
                for part in value.values():
                    yield from self._parameters_in(part)
            case list():
                for part in value:
                    yield from self._parameters_in(part)


def _placeholder(text: str) -> str:
    """Return the text in angle brackets, which mark a value that only the deployment has."""
    return f"<{re.sub('[<>]', '', text)}>"


def _to_resource(stack: TemplateStack, id_: str, written: Mapping[str, Any]) -> TemplateResource:
    condition, metadata = written.get("Condition"), written.get("Metadata")
    return TemplateResource(
        stack,
        id_,
        str(written.get("Type")),
        written.get("Properties") or {},
        None if condition is None else str(condition),
        metadata if isinstance(metadata, Mapping) else {},
    )


def _compute(template: Template, function: str, argument: Any) -> Any:
    """Return the value of an intrinsic function of plain values, or a placeholder."""
    found: Any = None
    match function, argument:
        case "Fn::Join", [str(separator), list(parts)]:
            found = separator.join(map(str, parts))
        case "Fn::Split", [str(separator), str(text)] if separator:
            found = text.split(separator)
        case "Fn::Select", [index, list(items)] if str(index).isdigit() and int(index) < len(items):
            found = items[int(index)]
        case "Fn::FindInMap", [str(name), str(top), str(second), *default]:
            found = _value_at(template, "Mappings", name, top, second)
            if found is None and default and not any(map(is_unknown, (name, top, second))):
                found = _value_at(default[0], "DefaultValue")
    return _placeholder(f"{function} {json.dumps(argument, default=str)}") if found is None else found


def _value_at(tree: Any, *path: str) -> Any:
    """Return the value at a path of keys; None if a key is missing, or a value on the path is not a mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


@dataclass(frozen=True, slots=True)
class Stacks:
    """The resources of templates that are deployed together, resources with a false condition included."""

    all: tuple[TemplateResource, ...]

    def of_kind(self, kind: str) -> Iterator[TemplateResource]:
        """Yield every deployed resource of a type.

        Raises:
            ConfigError: the condition of one is undecided.
        """
        for resource in self.all:
            if resource.kind == kind and (is_there := _is_deployed(resource)) is not False:
                if is_there is None:
                    raise _undecided_error(resource)
                yield resource

    def omitted_resources(self, kind: str) -> Iterator[TemplateResource]:
        """Yield every resource of a type that a condition leaves out."""
        return (resource for resource in self.all if resource.kind == kind and _is_deployed(resource) is False)

    def find(
        self, kind: str, reference: object, near: TemplateResource, cluster: str | None = None
    ) -> TemplateResource | None:
        """Return the resource that a name, an ARN or a URL refers to, the nearest to `near`; None if there is none.

        If one template has several services of that name, the service of `cluster` is returned.
        """
        name = name_in(str(reference))
        found = [resource for resource in self.of_kind(kind) if name in {resource.name, resource.id}]

        def nearness(resource: TemplateResource) -> tuple[object, ...]:
            place = name_in(str(resource.properties.get("Cluster") or "default"))
            return (resource.stack.nearness(near.stack), place == cluster)

        return max(found, key=nearness, default=None)


def _is_deployed(resource: TemplateResource) -> bool | None:
    """Return whether a resource and all templates around its nested template are deployed; None if undecided."""
    parent = resource.stack.parent
    above = True if parent is None else _is_deployed(parent)
    return (
        False
        if False in (above, resource.is_condition_met)
        else None
        if None in (above, resource.is_condition_met)
        else True
    )


def _undecided_error(resource: TemplateResource) -> ConfigError:
    stack, condition = resource.stack, str(resource.condition)
    missing = [name for name in stack.needed_parameters(condition) if is_unknown(stack.ref(name))]
    step = f"give it: --parameter {missing[0]}=VALUE" if missing else "correct the template"
    return ConfigError(
        f"{resource.kind} {resource.id} has the condition {condition}, which cannot be told; needed is each of its"
        f" parameters ({', '.join(missing) or 'none is named'}); {step}"
    )


def stacks_of(
    templates: Sequence[Template], names: Sequence[str] = (), parameters: Mapping[str, str] | None = None
) -> Stacks:
    """Return the resources of templates that are deployed together, with their exports and parameters connected.

    Args:
        templates: the templates.
        names: the file path of each; without paths the templates are named by their numbers.
        parameters: values of parameters.

    Raises:
        ConfigError: one is not a template, or none of them has a given parameter.
    """
    parameters = parameters or {}
    named = names or [f"template {number}" for number in range(1, len(templates) + 1)]
    required = [_require_template(template, "the template") for template in templates]
    stacks = _deploy_all(dict(zip(named, required, strict=True)), parameters)
    _require_known(parameters, stacks)
    for stack in stacks:
        outputs = stack.template.get("Outputs")
        for output in outputs.values() if isinstance(outputs, Mapping) else ():
            if (name := _value_at(output, "Export", "Name")) is not None:
                stack.links.exports.setdefault(str(stack.resolve(name)), []).append((stack, output.get("Value")))
    return Stacks(tuple(resource for stack in stacks for resource in stack.resources()))


def _deploy_all(files: Mapping[str, Template], parameters: Mapping[str, str]) -> list[TemplateStack]:
    """Return a stack for each template; of a nested template, one for each resource that deploys it."""
    links = Links()
    nested = {
        file: {
            resource.id: _nested_file(resource, files)
            for resource in TemplateStack(file, of, parameters, links).resources()
        }
        for file, of in files.items()
    }
    references = Counter(child for children in nested.values() for child in children.values() if child is not None)
    stacks: dict[str, tuple[str, TemplateStack]] = {}

    def deploy(file: str, parent: TemplateResource | None, above: tuple[str, ...]) -> None:
        name = _free_name(file, parent if references[file] > 1 or file in stacks else None, stacks)
        stack = TemplateStack(name, files[file], parameters, links)
        stacks[name] = (file, stack)
        if parent is not None:
            links.parents[name] = parent
            links.children[parent.stack.name, parent.id] = stack
        for resource in stack.resources():
            child = nested[file][resource.id]
            if child is not None and child not in (*above, file):
                deploy(child, resource, (*above, file))

    for file in sorted(files, key=lambda file: references[file] > 0):
        if file not in {of for of, _ in stacks.values()}:
            deploy(file, None, ())
    order = list(files)
    return [stack for _, stack in sorted(stacks.values(), key=lambda deployed: order.index(deployed[0]))]


def _free_name(file: str, parent: TemplateResource | None, names: Collection[str]) -> str:
    """Return a unique name for the stack of a file, made of the file's path.

    Args:
        file: path of the template.
        parent: the resource that deploys the template, whose id the name gets; None for a name without one.
        names: the names of other stacks.
    """
    folder, slash, base = file.rpartition("/")
    name = file if parent is None else f"{folder}{slash}{parent.id}.{base}"
    others = (f"{folder}{slash}{name.rpartition('/')[2].replace('.', f'-{number}.', 1)}" for number in count(2))
    return next(each for each in chain([name], others) if each not in names)


def nested_place(resource: TemplateResource) -> str:
    """Return the place of a nested stack's template: a path from CDK's metadata, else the URL or path as written."""
    written = resource.stack.resolve(resource.raw_properties.get(NESTED[resource.kind]))
    return str(resource.metadata.get("aws:asset:path") or written)


def _nested_file(resource: TemplateResource, files: Collection[str]) -> str | None:
    """Return the file that a resource deploys as a nested stack; None if none of `files` is deployed so.

    A URL stands for the file whose path has the most in common with the URL's end.
    """
    if resource.kind not in NESTED:
        return None
    place = nested_place(resource)
    local = posixpath.normpath(posixpath.join(posixpath.dirname(resource.stack.name), place))
    if local in files:
        return local
    url = segments(place)[::-1]
    alike = {file: len(list(takewhile(bool, map(eq, file.split("/")[::-1], url)))) for file in files if "://" in place}
    most = max(alike.values(), default=0)
    best = [file for file, length in alike.items() if length == most > 0]
    return best[0] if len(best) == 1 else None


def _require_known(parameters: Mapping[str, str], stacks: Sequence[TemplateStack]) -> None:
    """Refuse a value for a parameter that no template has."""
    known = {name for stack in stacks for name in _parameter_names(stack.template.get("Parameters"))}
    for name in parameters:
        if name not in known and not name.startswith("AWS::"):
            raise ConfigError(
                f"--parameter names {name!r}, which no template has; allowed is one of"
                f" {', '.join(sorted(known)) or 'none: they have no parameters'}"
            )


def _parameter_names(parameters: Any) -> Iterator[str]:
    """Return the names in the `Parameters` of a template; none if that is no mapping."""
    return map(str, parameters) if isinstance(parameters, Mapping) else iter(())
