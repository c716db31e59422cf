"""What load to offer: read from YAML once, checked as a whole."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice import limits
from sluice.checker import Thresholds
from sluice.errors import ConfigError

_FOLDER = Path(__file__).resolve().parent / "profiles"
OVERHEAD_BYTES = 512  # identity and JSON around the payload, generously
_MESSAGES_MAX = 50_000_000


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Profile:
    """One load profile.

    Args:
        messages_per_second: offered rate, repeats not counted.
        duration_seconds: how long it is offered.
        group_count: number of message groups.
        group_skew: Zipf exponent of the groups' shares; 0 spreads evenly.
        payload_bytes: size of the random part of a body.
        duplicate_share: share of messages published a second time with the same deduplication id.
        duplicate_after_seconds: when that happens; must lie inside the deduplication window.
        publish_tasks: Spark tasks that publish; a group belongs to one of them.
        consumers_per_queue: Spark tasks that consume, for each queue.
        publish_linger_seconds: how long a due message may wait for others to share its call; counts as latency.
        poll_pause_seconds: how long a consumer rests between two receives, so that answers hold more messages.
        lateness_budget_seconds: how late the generator's 99th percentile may be before it measures only itself.
        drain_timeout_seconds: how long after the last publish nothing may be consumed before the drain is given up; the
            visibility timeout and more, or a message somebody holds ends it.
        latency_seconds_max: allowed 99th percentile from intended publish to first receive; None does not judge it, as
            with the thresholds below.
        drain_seconds_max: allowed from the last publish to the last first receive of a queue.
        recovery_seconds_max: allowed from the end of a fault to the first answer.
        throttled_share_max: allowed share of calls that are throttled.
        fan_out_skew_seconds_max: allowed between a message's first queue and its last.
        passed_over_seconds_max: allowed for a group with a message to wait while its queue serves others.
        stuck_seconds_max: allowed for a group with a message to wait at all, while its queue is polled.
    """

    messages_per_second: Annotated[float, Field(gt=0, le=100_000)]
    duration_seconds: Annotated[float, Field(gt=0, le=86_400)]
    group_count: Annotated[int, Field(ge=1, le=10_000_000)]
    group_skew: Annotated[float, Field(ge=0, le=5)] = 0
    payload_bytes: Annotated[int, Field(ge=0, le=limits.PUBLISH_BYTES_MAX - OVERHEAD_BYTES)] = 256
    duplicate_share: Annotated[float, Field(ge=0, le=1)] = 0
    duplicate_after_seconds: Annotated[float, Field(gt=0, lt=limits.DEDUPLICATION_WINDOW_SECONDS - 60)] = 2
    publish_tasks: Annotated[int, Field(ge=1, le=1_000)] = 1
    consumers_per_queue: Annotated[int, Field(ge=1, le=1_000)] = 1
    publish_linger_seconds: Annotated[float, Field(ge=0, le=10)] = 0
    poll_pause_seconds: Annotated[float, Field(ge=0, le=10)] = 0
    lateness_budget_seconds: Annotated[float, Field(gt=0, le=3_600)] = 1
    drain_timeout_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60
    latency_seconds_max: Annotated[float, Field(gt=0)] | None = None
    drain_seconds_max: Annotated[float, Field(gt=0)] | None = None
    recovery_seconds_max: Annotated[float, Field(gt=0)] | None = None
    throttled_share_max: Annotated[float, Field(ge=0, le=1)] | None = None
    fan_out_skew_seconds_max: Annotated[float, Field(gt=0)] | None = None
    passed_over_seconds_max: Annotated[float, Field(gt=0)] | None = None
    stuck_seconds_max: Annotated[float, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        if self.publish_tasks > self.group_count:
            raise ValueError(
                f"publish_tasks is {self.publish_tasks}, allowed is at most group_count ({self.group_count}):"
                " a group belongs to one task"
            )
        if not 1 <= self.message_count <= _MESSAGES_MAX:
            raise ValueError(
                f"messages_per_second x duration_seconds is {self.message_count} messages,"
                f" allowed is 1 to {_MESSAGES_MAX}"
            )

    @property
    def message_count(self) -> int:
        """Return the number of messages, repeats and end markers not counted."""
        return round(self.messages_per_second * self.duration_seconds)

    def thresholds(self) -> Thresholds:
        """Return what the run's measures are held against."""
        return Thresholds(
            latency_seconds_max=self.latency_seconds_max,
            drain_seconds_max=self.drain_seconds_max,
            recovery_seconds_max=self.recovery_seconds_max,
            throttled_share_max=self.throttled_share_max,
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as written in YAML."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NamedProfile:
    """A profile and what it is called in the run's name."""

    name: str
    profile: Profile


def names() -> list[str]:
    """Return the profiles that come with Sluice."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load(name: str) -> NamedProfile:
    """Return a profile by name, or by the path of a YAML file of one's own.

    Raises:
        ConfigError: there is none, or it is malformed; the message names the field, the value and what is allowed.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", Path(name).stem) is None:
        raise ConfigError(
            f"profile {name!r} is no name for a run, allowed are up to 40 letters, digits, hyphens and underscores;"
            " rename the file"
        )
    path = Path(name) if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(
            f"profile {name!r} cannot be read ({reason}),"
            f" allowed is one of {', '.join(names())} or the path of a .yaml file"
        ) from error
    return NamedProfile(name=path.stem, profile=parse(text, source=name))


def parse(text: str, *, source: str) -> Profile:
    """Return the profile a YAML text describes.

    Raises:
        ConfigError: as for `load`.
    """
    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise ConfigError(f"profile {source!r} is no YAML{where}; see spark_load/profiles/smoke.yaml") from error
    if not isinstance(said, dict):
        raise ConfigError(
            f"profile {source!r} is {str(said)[:80]!r}, allowed are lines of 'field: value';"
            " see spark_load/profiles/smoke.yaml"
        )
    try:
        return TypeAdapter(Profile).validate_python(said)
    except ValidationError as error:
        raise ConfigError(f"profile {source!r}: {'; '.join(_explain(one) for one in error.errors())}") from error


def _explain(error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{field} is missing"
    if error["type"] == "unexpected_keyword_argument":
        return f"{field} is no field of a profile"
    return f"{field} is {error['input']!r}: {message}" if field else message
