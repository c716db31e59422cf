"""The load to offer: read from YAML once, validated as a whole."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice.errors import ConfigError
from sluice.judge.folder import json_files
from spark_load.faults.shapes import Faults, GivenFault
from spark_load.profiles import constraints, loading
from spark_load.profiles import trace as traces
from spark_load.profiles.fields import Phase, ProfileFields
from spark_load.profiles.trace import Replay

_FOLDER = Path(__file__).resolve().parent
RELAY_LEASE_SECONDS = 25
"""Of the relays of an outbox, and the least they take: so long after a leader was killed another one leads."""
_REASONS_MAX = 5
_DIGEST_DIGITS = 16
_GONE = {"producers_per_group": 1, "batch_same_group": False}
"""Fields that profiles had before, and what they said of a load that can still be offered."""
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
    """One load profile, whose fields go together."""

    def __post_init__(self) -> None:
        ProfileFields.__post_init__(self)  # a dataclass with slots is another class than the one super() means
        if (refusal := constraints.refusal(self)) is not None:
            raise ValueError(refusal)


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A profile, its name in run ids, and the file of its trace, where it has one."""

    name: str
    profile: Profile
    trace_file: Path | None = None


def names() -> list[str]:
    """Return the profiles that come with Sluice."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def about(name: str) -> tuple[str, str]:
    """Return what a profile that comes with Sluice shows, and what it is for, as the two lines say it begins with."""
    shows, where, *_ = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return shows.removeprefix("# "), where.removeprefix("# For ").partition(":")[0]


def load(name: str) -> NamedProfile:
    """Return a profile by name, or by the path of a YAML file of one's own.

    Raises:
        ConfigError: there is none, or it is malformed; the message names the field, the value and what is allowed.
    """
    require_name(name)
    path = Path(name) if name.lower().endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no profile {name!r}, allowed is one of {', '.join(names())} or the path of a .yaml file"
            f"{loading.close_to(name, names())}"
        ) from error
    except OSError as error:
        raise ConfigError(f"profile {name!r} cannot be read ({error.strerror}); name another file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"profile {name!r} is not UTF-8 (byte {error.start + 1}); save it as UTF-8") from error
    loaded = parse(text, source=name, folder=path.parent)
    trace_file = None if loaded.replay is None else path.parent / loaded.replay.file
    return NamedProfile(name=path.stem, profile=loaded, trace_file=trace_file)


def require_name(name: str) -> None:
    """Refuse a profile, by name or path, of which no run can have its name.

    Raises:
        ConfigError: that is so.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", Path(name).stem) is None:
        raise ConfigError(
            f"profile {name!r} is not a name for a run, allowed are up to 40 letters, digits, hyphens and underscores;"
            " rename the file"
        )


def parse(text: str, *, source: str, folder: Path | None = None) -> Profile:
    """Return the profile a YAML text describes; `folder` has its trace; raises as `load` does."""
    written = loading.read(text, source=source)
    try:
        return TypeAdapter(Profile).validate_python(_with_recorded(written.text, folder or Path(), source))
    except ValidationError as error:
        shapes = (Profile, Phase, Replay, Faults, GivenFault)
        fields = [field.name for shape in shapes for field in dataclass_fields(shape)]
        reasons = "; ".join(written.explain(problem, fields) for problem in error.errors()[:_REASONS_MAX])
        raise ConfigError(f"profile {source!r}: {reasons}") from error


def _with_recorded(text: Mapping[Any, Any], folder: Path, source: str) -> Mapping[Any, Any]:
    """Return what a profile's text says, with what the trace it names says; unchanged where that is refused later."""
    given = text.get("replay")
    if not isinstance(given, dict):
        return text
    if name := next((name for name in _RECORDED if name in text), None):
        raise ConfigError(
            f"profile {source!r}: {name} is {json_files.BRIEF.repr(text[name])}, allowed beside replay is none:"
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
            f"profile {source!r}: {field} is {json_files.BRIEF.repr(problem['input'])}: {json_files.sentence(problem)}"
        ) from error
    return {**text, **traces.described(folder / replay.file, replay.speed)}


def of_run(stored: Mapping[str, Any]) -> Profile:
    """Return the profile that a run was stored with, also by a version whose profiles had more fields.

    Raises:
        ValidationError: it is not one of this version.
    """
    return Profile(**{name: value for name, value in stored.items() if name not in _GONE or value != _GONE[name]})


def digest(profile: Profile) -> str:
    """Return 16 hex digits over everything a profile says: the same for the same load, wherever its trace lies.

    Runs of before are compared with later ones, so it is also over the fields that are gone.
    """
    fields = profile.as_json() | _GONE
    if profile.replay is not None:
        fields["replay"] = {**fields["replay"], "file": ""}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:_DIGEST_DIGITS]
