"""CloudFormation templates as they are written: loaded, and their resources with the references resolved.

A reference resolves to text: of a queue `Arn` to an ARN that ends with its name, `Ref` to its URL, and so on, so that
`name_in` finds the same name however a resource is referred to. A resource without a name of its own is known by its
logical id. What only a deployment knows stays in the text as a placeholder in angle brackets, such as `<AWS::Region>`:
it is unknown, and who needs it refuses it, or says what is taken for granted.
AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/intrinsic-function-reference.html
(read 2026-11-23).
"""

import codecs
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
    "AWS::ECS::Service": "arn:aws:ecs:<AWS::Region>:<AWS::AccountId>:service/{cluster}/{name}",
    "AWS::SQS::Queue": "https://sqs.<AWS::Region>.amazonaws.com/<AWS::AccountId>/{name}",
}
"""What `Ref` gives, where that is neither a name nor like an ARN that ends with it."""
_SUFFIXES = {".json", ".template", ".yaml", ".yml"}
_ENCODINGS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_NESTED = "AWS::CloudFormation::Stack"
_UNKNOWN = re.compile(r"<[^<>]+>")
_DYNAMIC = re.compile(r"\{\{(resolve:[^{}]*)\}\}")
_MARK = re.compile(r"\{%|\{\{-?\s|\{\{[-.]")  # a dynamic reference is {{resolve:…}}
_TYPE = re.compile(r"[\w:@.-]+")
_VARIABLE = re.compile(r"\$\{([^!${}][^{}]*)\}")


class _Loader(yaml.SafeLoader):
    """YAML with the short tags of CloudFormation."""


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
    """Return the template of a file, or those of a folder, which are read together, each by its file's path there.

    Of a folder that `cdk synth` wrote only what is called `*.template.json`; of another one every template.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    if not path.is_dir():
        return {path.name: _load(path, _text(path))}
    found = {file: _text(file) for file in sorted(path.rglob("*.template.json"))} or {
        file: text
        for file in sorted(path.rglob("*"))
        if file.suffix in _SUFFIXES
        and file.is_file()
        and re.search(r"^\s*[\"']?Resources[\"']?\s*:", text := _text(file), re.M)
    }
    if not found:
        raise ConfigError(
            f"{path} has no *.template.json, and no template in another file of {', '.join(sorted(_SUFFIXES))}; give a"
            " template, or the folder that `cdk synth` wrote"
        )
    return {file.relative_to(path).as_posix(): _load(file, text) for file, text in found.items()}


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        encoding = next((name for mark, name in _ENCODINGS.items() if content.startswith(mark)), "utf-8")
        return content.decode(encoding)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); give a template") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}; allowed are UTF-8 and UTF-16; give a template") from error


def _load(path: Path, text: str) -> Template:
    if path.suffix not in _SUFFIXES:
        allowed = ", ".join(sorted(_SUFFIXES))
        raise ConfigError(f"{path} is no template; allowed are {allowed}, or the folder of `cdk synth`")
    is_json = path.suffix == ".json" or text.lstrip().startswith("{")
    try:
        loaded = json.loads(text) if is_json else yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        if mark := _MARK.search(text):
            raise ConfigError(
                f"cannot read {path}: {mark[0].strip()} is of a template language, such as Jinja; give what it is"
                " rendered to"
            ) from error
        raise ConfigError(f"cannot read {path}: {' '.join(str(error).split())}; correct it") from error
    return _require_template(loaded, str(path))


def _require_template(template: Any, source: str) -> Template:
    """Return what looks like a template: its resources have a type, and properties by name."""
    resources = template.get("Resources") if isinstance(template, Mapping) else None
    if not isinstance(resources, Mapping):
        raise ConfigError(f"{source} has no Resources; give a CloudFormation template")
    for id_, resource in resources.items():
        if str(id_).startswith("Fn::"):
            raise ConfigError(
                f"{source}: {id_} makes resources when it is deployed; give the processed template:"
                " aws cloudformation get-template --template-stage Processed"
            )
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


def is_unknown(value: object) -> bool:
    """Return whether only a deployment knows a value, or a part of it."""
    return isinstance(value, str) and _UNKNOWN.search(value) is not None


def may_be_same(name: str, other: str) -> bool:
    """Return whether two names may be one when what is unknown of them is known."""
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
        """Return a property; None where there is none."""
        return self.values.get(name)

    def refusal(self, name: str, allowed: str) -> ConfigError:
        """Return the refusal of a property."""
        seen = "missing" if self.get(name) is None else repr(self.get(name))
        named = re.findall(r"[\w:]+", " ".join(_UNKNOWN.findall(seen)))
        wanted = [word for word in named if word in self.undecided] or [word for word in named if "AWS::" in word]
        step = f"give it: --parameter {wanted[0]}=VALUE" if wanted else "correct the template"
        return ConfigError(f"{self.owner}: {self.path}{name} is {seen}; allowed: {allowed}; {step}")

    def text(self, name: str) -> str:
        """Return a property that has to be there, as text."""
        if self.get(name) is None:
            raise self.refusal(name, "a text")
        return str(self.get(name))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a property that is a number; it has to be there, unless it has a default."""
        found: Any = default if self.get(name) is None else self.get(name)
        try:
            number = float(found)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self.refusal(name, "a number, or a parameter with a default")
        return number

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a property that is a whole number, 0 or more; it has to be there, unless it has a default."""
        found = self.number(name, default)
        if not found.is_integer() or found < 0:
            raise self.refusal(name, "a whole number, 0 or more")
        return int(found)

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return a property that is one of some words; it has to be there, unless it has a default."""
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
        """Return a property that is a list; anything else is the only item of one, and none is empty."""
        found = self.get(name)
        return [] if found is None else found if isinstance(found, list) else [found]

    def part(self, name: str) -> "Properties":
        """Return a property that has properties; none of them where there is none."""
        found = self.get(name)
        if is_unknown(found):
            raise self.refusal(name, "properties")
        values = found if isinstance(found, Mapping) else {}
        return Properties(self.owner, f"{self.path}{name}.", values, self.undecided)

    def parts(self, name: str) -> "list[Properties]":
        """Return a property that is a list of such."""
        if any(map(is_unknown, self.items(name))):
            raise self.refusal(name, "a list of properties")
        return [
            Properties(self.owner, f"{self.path}{name}.{index}.", item, self.undecided)
            for index, item in enumerate(self.items(name))
            if isinstance(item, Mapping)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class TemplateResource:
    """A resource of a template.

    Args:
        stack: the template it is in.
        id: its logical id.
        kind: its type, such as `AWS::SQS::Queue`.
        written: its properties as they are written.
        condition: the condition that it has; None where it is there in any case.
        metadata: what tools say of it.
    """

    stack: "TemplateStack"
    id: str
    kind: str
    written: Mapping[str, Any]
    condition: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_there(self) -> bool | None:
        """Return whether it is deployed; None where its condition cannot be told."""
        return True if self.condition is None else self.stack.holds({"Condition": self.condition})

    @property
    def name(self) -> str:
        """Its name, or its logical id."""
        given = self.written.get(_NAMES.get(self.kind, ""))
        return self.id if given is None else str(self.stack.resolve(given))

    @property
    def properties(self) -> Properties:
        """Its properties, references resolved."""
        values = {name: self.stack.resolve(value) for name, value in self.written.items()}
        return Properties(f"{self.kind} {self.id}", "", values, self.stack.undecided_parameters)


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Links between templates that are deployed together.

    Args:
        exports: name to the templates that export it, and the value there.
        parents: name of a nested template to the resource that deploys it.
        children: name of a template, and the id of such a resource, to the nested template.
    """

    exports: dict[str, list[tuple["TemplateStack", Any]]] = field(default_factory=dict)
    parents: dict[str, TemplateResource] = field(default_factory=dict)
    children: dict[tuple[str, str], "TemplateStack"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TemplateStack:
    """One template, which may import what others export.

    Args:
        name: its file's path, or what it is called instead; no other has it.
        template: what it says.
        given: parameters that the command line gives.
        links: what the templates are to each other.
    """

    name: str
    template: Template
    given: Mapping[str, str] = field(repr=False)
    links: Links = field(repr=False)

    @property
    def parent(self) -> TemplateResource | None:
        """The resource that deploys it, where it is nested."""
        return self.links.parents.get(self.name)

    @property
    def near(self) -> tuple[str, ...]:
        """Return its place, from far to near: its file's folder, the template that deploys it in the end, itself."""
        if self.parent is None:
            return (self.name.rpartition("/")[0], self.name, self.name)
        return (*self.parent.stack.near[:2], self.name)

    def nearness(self, other: "TemplateStack") -> tuple[bool, ...]:
        """Return how near another template is; what is nearer compares as more."""
        return tuple(own == others for own, others in zip(self.near, other.near, strict=True))[::-1]

    @property
    def undecided_parameters(self) -> frozenset[str]:
        """The parameters without a value."""
        names = _names_in(self.template.get("Parameters"))
        return frozenset(name for name in names if is_unknown(self.ref(name)))

    def resources(self) -> Iterator[TemplateResource]:
        """Yield every resource, also those that a condition leaves out, in the template's order."""
        return (_resource(self, id_, resource) for id_, resource in self.template["Resources"].items())

    def resolve(self, value: Any) -> Any:
        """Return a value with its references resolved; None of `AWS::NoValue`."""
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
                return self._call(str(function), argument)
        return {key: self.resolve(item) for key, item in value.items()}

    def _call(self, function: str, argument: Any) -> Any:
        """Return what an intrinsic function gives; a placeholder where only a deployment knows."""
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
                is_so = self.holds({"Condition": condition})
                if is_so is None:
                    return _placeholder(
                        f"Fn::If {condition} needs {' '.join(self.needed_parameters(condition)) or 'more'}"
                    )
                found = self.resolve(then if is_so else otherwise)
            case _:
                found = _compute(self.template, function, self.resolve(argument))
        return found

    def _resource(self, id_: str) -> TemplateResource | None:
        found = self.template["Resources"].get(id_)
        return None if found is None else _resource(self, id_, found)

    def ref(self, name: str) -> Any:
        """Return the value of a `Ref` to a name."""
        if name == "AWS::NoValue":
            return None
        if (resource := self._resource(name)) is not None:
            cluster = name_in(str(self.resolve(resource.written.get("Cluster") or "default")))
            return _REFS.get(resource.kind, "{name}").format(name=resource.name, cluster=cluster)
        parameter = _in(self.template, "Parameters", name)
        kind = str(_in(parameter, "Type"))
        if self.parent is not None:
            passed = _in(self.parent.written, "Parameters", name)
            value = _in(parameter, "Default") if passed is None else self.parent.stack.resolve(passed)
        else:
            is_stored = kind.startswith("AWS::SSM::")  # its default is the key of its value
            value = self.given.get(name, None if is_stored else _in(parameter, "Default"))
        if value is None:
            return f"<{name}>"
        is_list = isinstance(value, str) and (kind == "CommaDelimitedList" or kind.startswith("List<"))
        return [item.strip() for item in value.split(",")] if is_list else value

    def _attribute(self, id_: str, attribute: str) -> str:
        if (resource := self._resource(id_)) is None:
            return f"<{id_}.{attribute}>"
        if attribute == "Arn":
            service = resource.kind.lower().split("::")[-2:][0]
            return f"arn:aws:{service}:<AWS::Region>:<AWS::AccountId>:{resource.name}"
        nested, _, output = attribute.partition(".")
        if nested == "Outputs" and (child := self.links.children.get((self.name, id_))) is not None:
            value = child.resolve(_in(child.template, "Outputs", output, "Value"))
            return f"<{id_}.{attribute}>" if value is None else str(value)
        return resource.name if attribute in {"Name", "QueueName"} else f"<{id_}.{attribute}>"

    def _substitute(self, text: str, variables: Mapping[str, Any]) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1].strip()
            if name in variables:
                return str(self.resolve(variables[name]))
            return str(self._attribute(*name.split(".", 1)) if "." in name else self.ref(name))

        return _DYNAMIC.sub(r"<\1>", _VARIABLE.sub(value, text).replace("${!", "${"))

    def _import_value(self, name: str) -> Any:
        if name not in self.links.exports:
            return f"<{name}>"
        stack, value = max(self.links.exports[name], key=lambda export: export[0].nearness(self))
        return stack.resolve(value)

    def holds(self, condition: Any) -> bool | None:
        """Return whether a condition holds; None where it cannot be told, as a parameter has no value."""
        match condition:
            case {"Condition": str(name)}:
                return self.holds(_in(self.template, "Conditions", name))
            case {"Fn::Equals": [left, right]}:
                sides = [str(self.resolve(side)) for side in (left, right)]
                return None if sides[0] != sides[1] and any(map(is_unknown, sides)) else sides[0] == sides[1]
            case {"Fn::Not": [part]}:
                return None if (found := self.holds(part)) is None else not found
            case {"Fn::And": list(parts)}:
                found_all = [self.holds(part) for part in parts]
                return False if False in found_all else None if None in found_all else True
            case {"Fn::Or": list(parts)}:
                found_all = [self.holds(part) for part in parts]
                return True if True in found_all else None if None in found_all else False
        return None

    def needed_parameters(self, condition: str) -> list[str]:
        """Return the parameters on which a condition depends, by name."""
        return list(dict.fromkeys(self._parameters_in(_in(self.template, "Conditions", condition))))

    def _parameters_in(self, value: Any) -> Iterator[str]:
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
    return f"<{re.sub('[<>]', '', text)}>"


def _resource(stack: TemplateStack, id_: str, written: Mapping[str, Any]) -> TemplateResource:
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
        case "Fn::FindInMap", [str(name), str(top), str(second), *_]:
            found = _in(template, "Mappings", name, top, second)
    return _placeholder(f"{function} {json.dumps(argument, default=str)}") if found is None else found


def _in(tree: Any, *path: str) -> Any:
    """Return what is at a path of keys; None where something on the way is no mapping or lacks the key."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


@dataclass(frozen=True, slots=True)
class Stacks:
    """The resources of templates that are deployed together, also those that a condition leaves out."""

    all: tuple[TemplateResource, ...]

    def of_kind(self, kind: str) -> Iterator[TemplateResource]:
        """Yield every resource of a type that is deployed.

        Raises:
            ConfigError: one has a condition that cannot be told.
        """
        for resource in self.all:
            if resource.kind == kind and (is_there := _is_deployed(resource)) is not False:
                if is_there is None:
                    raise _undecided_error(resource)
                yield resource

    def omitted_resources(self, kind: str) -> Iterator[TemplateResource]:
        """Yield every resource of a type that a condition leaves out."""
        return (resource for resource in self.all if resource.kind == kind and _is_deployed(resource) is False)

    def find(self, kind: str, reference: object, near: TemplateResource) -> TemplateResource | None:
        """Return the resource that a name, an ARN or a URL refers to, the nearest to where it stands; or None."""
        name = name_in(str(reference))
        found = [resource for resource in self.of_kind(kind) if name in {resource.name, resource.id}]

        return max(found, key=lambda resource: resource.stack.nearness(near.stack), default=None)


def _is_deployed(resource: TemplateResource) -> bool | None:
    """Return whether a resource is deployed, and each template in which its own is nested; None where unknown."""
    parent = resource.stack.parent
    above = True if parent is None else _is_deployed(parent)
    return False if False in (above, resource.is_there) else None if None in (above, resource.is_there) else True


def _undecided_error(resource: TemplateResource) -> ConfigError:
    stack, condition = resource.stack, str(resource.condition)
    missing = [name for name in stack.needed_parameters(condition) if is_unknown(stack.ref(name))]
    step = f"give it: --parameter {missing[0]}=VALUE" if missing else "correct the template"
    return ConfigError(
        f"{resource.kind} {resource.id} has the condition {condition}, which cannot be told; needed is each of its"
        f" parameters ({', '.join(missing) or 'none is named'}); {step}"
    )


def stacks_of(
    templates: Sequence[Template], names: Sequence[str] = (), given: Mapping[str, str] | None = None
) -> Stacks:
    """Return the resources of templates, what one exports or passes on known to the others.

    Args:
        templates: deployed together.
        names: of each the path of its file; without any they are called by their numbers.
        given: values of parameters.

    Raises:
        ConfigError: one is no template, or none has a parameter that is given.
    """
    links, parameters = Links(), given or {}
    named = names or [f"template {number}" for number in range(1, len(templates) + 1)]
    stacks = [
        TemplateStack(name, _require_template(template, "the template"), parameters, links)
        for name, template in zip(named, templates, strict=True)
    ]
    for stack in stacks:
        _link_nested(stack, stacks)
    _require_known(parameters, stacks)
    for stack in stacks:
        outputs = stack.template.get("Outputs")
        for output in outputs.values() if isinstance(outputs, Mapping) else ():
            if (name := _in(output, "Export", "Name")) is not None:
                links.exports.setdefault(str(stack.resolve(name)), []).append((stack, output.get("Value")))
    return Stacks(tuple(resource for stack in stacks for resource in stack.resources()))


def _link_nested(stack: TemplateStack, stacks: Sequence[TemplateStack]) -> None:
    """Note which template a nested stack is of: CDK says it in metadata, `aws cloudformation package` in the URL."""
    for resource in stack.resources():
        if resource.kind == _NESTED:
            place = resource.metadata.get("aws:asset:path", resource.written.get("TemplateURL"))
            path = (Path(stack.name).parent / place).as_posix() if isinstance(place, str) else ""
            for child in stacks:
                if child.name == path and child is not stack and child.name not in stack.links.parents:
                    stack.links.parents[child.name] = resource
                    stack.links.children[stack.name, resource.id] = child


def _require_known(given: Mapping[str, str], stacks: Sequence[TemplateStack]) -> None:
    known = {name for stack in stacks for name in _names_in(stack.template.get("Parameters"))}
    for name in given:
        if name not in known and not name.startswith("AWS::"):
            raise ConfigError(
                f"--parameter names {name!r}, which no template has; allowed is one of"
                f" {', '.join(sorted(known)) or 'none: they have no parameters'}"
            )


def _names_in(parameters: Any) -> Iterator[str]:
    return map(str, parameters) if isinstance(parameters, Mapping) else iter(())
