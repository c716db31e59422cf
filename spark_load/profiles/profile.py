"""Read a load profile from YAML and validate it; errors name the field, its line, and what is allowed."""

import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice.errors import ConfigError
from sluice.judge.folder.json_files import BRIEF, sentence
from spark_load.faults.shapes import Faults, GivenFault
from spark_load.profiles import constraints
from spark_load.profiles import trace as traces
from spark_load.profiles.fields import Phase, ProfileFields
from spark_load.profiles.trace import Replay

_FIELDS = "its fields: python -m pydoc spark_load.profiles.profile.Profile"


@dataclass(frozen=True, slots=True)
class ProfileText:
    """The parsed text of a profile, with the place of each value."""

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


def _read(text: str, *, source: str) -> ProfileText:
    """Return the fields in a profile's text; refuse a text that is no YAML mapping, or has a field twice."""
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
    return ProfileText(document, node)


def close_to(name: str, known: Sequence[str]) -> str:
    """Return the end of an error's text that asks whether a similar known name was meant; empty if none is similar."""
    found = difflib.get_close_matches(name, dict.fromkeys(known), n=2)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _line(node: yaml.Node, location: Sequence[str | int]) -> str:
    """Return the line of a value, in brackets; if the value has none, that of its nearest parent."""
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


_FOLDER = Path(__file__).resolve().parent
RELAY_LEASE_SECONDS = 25
"""The lease of a load test's relays: the time after which another relay leads if the leader was killed. The minimum."""
_REASONS_MAX = 5
_DIGEST_DIGITS = 16
_GONE = {"producers_per_group": 1, "batch_same_group": False}
"""Fields of older profiles, with the only value of each whose load can still be offered."""
_RECORDED = (
    "messages_per_second",
    "duration_seconds",
    "phases",
    "group_count",
    "group_skew",
    "payload_bytes",
)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Profile(ProfileFields):
    """A load profile whose fields fit each other."""

    def __post_init__(self) -> None:
        ProfileFields.__post_init__(self)  # super() fails here: a dataclass with slots is a copy of this class
        if (refusal := constraints.refusal(self)) is not None:
            raise ValueError(refusal)


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A profile with its name, which is part of run ids, and the file of its trace, if it has one."""

    name: str
    profile: Profile
    trace_file: Path | None = None


def names() -> list[str]:
    """Return the profiles that come with Sluice."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def about(name: str) -> tuple[str, str]:
    """Return (what a built-in profile shows, what it is for): the first two lines of its file."""
    shows, where, *_ = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return shows.removeprefix("# "), where.removeprefix("# For ").partition(":")[0]


def load(name: str) -> NamedProfile:
    """Return a profile by its name, or by the path of your own YAML file.

    Raises:
        ConfigError: there is no such profile, or it is malformed; the message names the field, the value and what is
            allowed.
    """
    require_name(name)
    path = Path(name) if name.lower().endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no profile {name!r}, allowed is one of {', '.join(names())} or the path of a .yaml file"
            f"{close_to(name, names())}"
        ) from error
    except OSError as error:
        raise ConfigError(f"profile {name!r} cannot be read ({error.strerror}); name another file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"profile {name!r} is not UTF-8 (byte {error.start + 1}); save it as UTF-8") from error
    loaded = parse(text, source=name, folder=path.parent)
    trace_file = None if loaded.replay is None else path.parent / loaded.replay.file
    return NamedProfile(name=path.stem, profile=loaded, trace_file=trace_file)


def require_name(name: str) -> None:
    """Refuse the name or path of a profile that cannot be part of a run's name.

    Raises:
        ConfigError: the name is too long, or has other characters.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", Path(name).stem) is None:
        raise ConfigError(
            f"profile {name!r} is not a name for a run, allowed are up to 40 letters, digits, hyphens and underscores;"
            " rename the file"
        )


def parse(text: str, *, source: str, folder: Path | None = None) -> Profile:
    """Return the profile a YAML text describes; `folder` has its trace; raises as `load` does."""
    written = _read(text, source=source)
    try:
        return TypeAdapter(Profile).validate_python(_with_recorded(written.text, folder or Path(), source))
    except ValidationError as error:
        shapes = (Profile, Phase, Replay, Faults, GivenFault)
        fields = [field.name for shape in shapes for field in dataclass_fields(shape)]
        reasons = "; ".join(written.explain(problem, fields) for problem in error.errors()[:_REASONS_MAX])
        raise ConfigError(f"profile {source!r}: {reasons}") from error


def _with_recorded(text: Mapping[Any, Any], folder: Path, source: str) -> Mapping[Any, Any]:
    """Return a profile's fields, with those of the trace that it names.

    Unchanged if the trace will be refused later.
    """
    given = text.get("replay")
    if not isinstance(given, dict):
        return text
    if name := next((name for name in _RECORDED if name in text), None):
        raise ConfigError(
            f"profile {source!r}: {name} is {BRIEF.repr(text[name])}, allowed beside replay is none:"
            " messages come as recorded; leave it out"
        )
    if name := next((name for name in given if name not in ("file", "speed")), None):
        raise ConfigError(f"profile {source!r}: replay.{name} is given, allowed are file and speed")
    try:
        replay = TypeAdapter(Replay).validate_python(given)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in ("replay", *problem["loc"]))
        raise ConfigError(
            f"profile {source!r}: {field} is {BRIEF.repr(problem['input'])}: {sentence(problem)}"
        ) from error
    return {**text, **traces.profile_fields(folder / replay.file, replay.speed)}


def of_run(stored: Mapping[str, Any]) -> Profile:
    """Return the profile that is stored with a run, also of an older version, whose profiles had more fields.

    Raises:
        ValidationError: it is no profile of this version.
    """
    return Profile(**{name: value for name, value in stored.items() if name not in _GONE or value != _GONE[name]})


def digest(profile: Profile) -> str:
    """Return 16 hex digits of a hash of all fields of a profile: the same for the same load, wherever its trace is.

    The hash includes fields that no longer exist, so that the digests of earlier runs stay comparable.
    """
    fields = profile.as_json() | _GONE
    if profile.replay is not None:
        fields["replay"] = {**fields["replay"], "file": ""}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:_DIGEST_DIGITS]
