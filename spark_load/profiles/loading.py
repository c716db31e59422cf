"""A profile's YAML with line numbers, for messages that say what to correct."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sluice.errors import ConfigError
from sluice.judge.folder.json_files import BRIEF, sentence

_FIELDS = "its fields: python -m pydoc spark_load.profiles.profile.Profile"


@dataclass(frozen=True, slots=True)
class Written:
    """What the text says, and where."""

    text: Mapping[Any, Any]
    node: yaml.MappingNode

    def explain(self, error: Any, fields: Sequence[str]) -> str:
        """Return one pydantic error as a sentence: the field, its value and line, and what is allowed."""
        field = ".".join(str(part) for part in error["loc"])
        line = _line(self.node, error["loc"])
        if error["type"] == "missing":
            return f"{field} is missing"
        if error["type"] == "unexpected_keyword_argument":
            return f"{field}{line} is not a field of a profile{close_to(str(error['loc'][-1]), fields)}"
        is_mapping = error["type"] == "dataclass_type"
        message = "allowed are fields of its own, such as 'name: value' on a line" if is_mapping else sentence(error)
        return f"{field} is {BRIEF.repr(error['input'])}{line}: {message}" if field else message


def read(text: str, *, source: str) -> Written:
    """Return what a profile's text says, if it is a YAML mapping in which each field stands once."""
    try:
        node, document = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None)
        where = "" if mark is None else f" (line {mark.line + 1}{f': {problem}' if problem else ''})"
        raise ConfigError(f"profile {source!r} is not YAML{where}; {_FIELDS}") from error
    if not isinstance(document, dict) or not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            f"profile {source!r} is {BRIEF.repr(document)}, allowed are lines of 'field: value'; {_FIELDS}"
        )
    first: dict[Any, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.value in first:
            raise ConfigError(
                f"profile {source!r}: {key.value} is given twice (lines {first[key.value]} and {line}); remove one"
            )
        first[key.value] = line
    return Written(document, node)


def close_to(name: str, known: Sequence[str]) -> str:
    """Return a question naming what was perhaps meant; empty when nothing is close."""
    found = difflib.get_close_matches(name, dict.fromkeys(known), n=2)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _line(node: yaml.Node, location: Sequence[str | int]) -> str:
    """Return where a value stands, in brackets; as near to it as there is something."""
    for part in location:
        if isinstance(node, yaml.MappingNode):
            inner = {key.value: value for key, value in node.value}.get(str(part))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            inner = node.value[part]
        else:
            inner = None
        if inner is None:
            break
        node = inner
    return f" (line {node.start_mark.line + 1})"
