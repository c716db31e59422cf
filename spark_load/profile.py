"""What load to offer: read from YAML once, checked as a whole."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice import limits
from sluice.checker import Thresholds
from sluice.errors import ConfigError

_FOLDER = Path(__file__).resolve().parent / "profiles"
OVERHEAD_BYTES = 512  # identity and JSON around the payload, generously
END_MARKERS_AFTER_SECONDS = 0.5
LATE_REPEAT_SECONDS_MIN = limits.DEDUPLICATION_WINDOW_SECONDS + 60  # the queue's window begins after the publish
_MESSAGES_MAX = 50_000_000
_SECONDS_MAX = 86_400
_RAW_ONLY = (
    "handler_seconds",
    "failure_share",
    "crash_share",
    "poison_share",
    "redrive",
    "visibility_timeout_seconds",
)  # what our own loop injects; the worker has a handler and settings of its own

type _Share = Annotated[float, Field(ge=0, le=1)]
type _Rate = Annotated[float, Field(ge=0, le=1_000_000)]
type _Threshold = Annotated[float, Field(gt=0)] | None


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Phase:
    """A stretch of the load.

    Args:
        duration_seconds: how long it lasts.
        messages_per_second: offered rate, at its start; 0 offers nothing, or begins a ramp at nothing.
        to_per_second: the rate at its end, reached linearly; None keeps the rate.
    """

    duration_seconds: Annotated[float, Field(gt=0, le=_SECONDS_MAX)]
    messages_per_second: _Rate
    to_per_second: _Rate | None = None

    @property
    def end_per_second(self) -> float:
        """Return the rate at its end."""
        return self.messages_per_second if self.to_per_second is None else self.to_per_second

    @property
    def message_count(self) -> float:
        """Return how many messages fall into it; rarely a whole number."""
        return (self.messages_per_second + self.end_per_second) / 2 * self.duration_seconds


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Profile:
    """One load profile: a constant rate for a duration, or phases.

    Args:
        messages_per_second: offered rate, repeats not counted; with phases their mean, and not to be given.
        duration_seconds: how long it is offered, warm-up not counted; with phases their sum, and not to be given.
        phases: one after the other, in place of the two above.
        warm_up_seconds: how long messages are offered at the first phase's rate beforehand; they are drained before the
            load begins, count for no measure or threshold, and are judged for safety.
        group_count: number of message groups.
        group_skew: Zipf exponent of the groups' shares; 0 spreads evenly.
        payload_bytes: size of the random part of a body.
        destination: `topic`, or `queue`: straight into every queue, and no topic.
        duplicate_share: share of messages published a second time with the same deduplication id.
        duplicate_after_seconds: when that happens; must lie inside the deduplication window.
        late_duplicate_share: share of messages published a second time when the window is over; none of those above.
        late_duplicate_after_seconds: when that happens; must lie outside the window.
        publish_tasks: Spark tasks that publish; a group belongs to one of them, unless it has several producers.
        producers_per_group: publish tasks a group's messages are spread over; more than one race each other.
        batch_same_group: whether a call may hold several messages of one group, of which each may fail alone.
        publish_linger_seconds: how long a due message may wait for others to share its call; counts as latency.
        catch_up_ratio: after a stall at most this multiple of the highest rate is offered.
        consumers_per_queue: Spark tasks that consume, for each queue.
        consumer: `raw`, our own loop, or `worker`, the worker of `messaging`, which takes none of the injections below.
        consume_after_seconds: how long consumers wait after the load began: a backlog builds.
        poll_pause_seconds: how long a consumer rests between two receives, so that answers hold more messages.
        handler_seconds: how long a consumer holds each message before it is done.
        visibility_timeout_seconds: given with each receive; None leaves it to the queue.
        failure_share: share of messages given back at their first receive.
        crash_share: share of messages forgotten at their first receive: their lease has to run out.
        poison_share: share of messages that fail at every receive and end in the DLQ.
        redrive: whether a move task brings the dead letters back after the drain; then they succeed.
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

    messages_per_second: Annotated[float, Field(gt=0, le=1_000_000)] = 0
    duration_seconds: Annotated[float, Field(gt=0, le=_SECONDS_MAX)] = 0
    phases: Annotated[tuple[Phase, ...], Field(max_length=1_000)] = ()
    warm_up_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0
    group_count: Annotated[int, Field(ge=1, le=10_000_000)]
    group_skew: Annotated[float, Field(ge=0, le=5)] = 0
    payload_bytes: Annotated[int, Field(ge=0, le=limits.PUBLISH_BYTES_MAX - OVERHEAD_BYTES)] = 256
    destination: Literal["topic", "queue"] = "topic"
    duplicate_share: _Share = 0
    duplicate_after_seconds: Annotated[float, Field(gt=0, lt=limits.DEDUPLICATION_WINDOW_SECONDS - 60)] = 2
    late_duplicate_share: _Share = 0
    late_duplicate_after_seconds: Annotated[float, Field(ge=LATE_REPEAT_SECONDS_MIN, le=_SECONDS_MAX)] | None = None
    publish_tasks: Annotated[int, Field(ge=1, le=1_000)] = 1
    producers_per_group: Annotated[int, Field(ge=1, le=1_000)] = 1
    batch_same_group: bool = False
    publish_linger_seconds: Annotated[float, Field(ge=0, le=10)] = 0
    catch_up_ratio: Annotated[float, Field(gt=1, le=100)] = 2
    consumers_per_queue: Annotated[int, Field(ge=1, le=1_000)] = 1
    consumer: Literal["raw", "worker"] = "raw"
    consume_after_seconds: Annotated[float, Field(ge=0, le=_SECONDS_MAX)] = 0
    poll_pause_seconds: Annotated[float, Field(ge=0, le=10)] = 0
    handler_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0
    visibility_timeout_seconds: Annotated[int, Field(ge=1, le=limits.VISIBILITY_TIMEOUT_SECONDS_MAX)] | None = None
    failure_share: _Share = 0
    crash_share: _Share = 0
    poison_share: _Share = 0
    redrive: bool = False
    lateness_budget_seconds: Annotated[float, Field(gt=0, le=3_600)] = 1
    drain_timeout_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60
    latency_seconds_max: _Threshold = None
    drain_seconds_max: _Threshold = None
    recovery_seconds_max: _Threshold = None
    throttled_share_max: _Share | None = None
    fan_out_skew_seconds_max: _Threshold = None
    passed_over_seconds_max: _Threshold = None
    stuck_seconds_max: _Threshold = None

    def __post_init__(self) -> None:
        if self.phases:
            self._sum_up()
        for check in (self._check_rate, self._check_tasks, self._check_repeats, self._check_consumer):
            refusal = check()
            if refusal is not None:
                raise ValueError(refusal)

    def _sum_up(self) -> None:
        seconds = sum(phase.duration_seconds for phase in self.phases)
        mean = sum(phase.message_count for phase in self.phases) / seconds
        for name, value in (("messages_per_second", mean), ("duration_seconds", seconds)):
            given = getattr(self, name)
            if given not in (0, value):  # a stored profile has both, alike
                raise ValueError(f"{name} is {given:g}, allowed beside phases is none: they make {value:g}")
            object.__setattr__(self, name, value)
        if seconds > _SECONDS_MAX:
            raise ValueError(f"the phases last {seconds:g} s, allowed is at most {_SECONDS_MAX}")

    def _check_rate(self) -> str | None:
        if not self.phases and not (self.messages_per_second and self.duration_seconds):
            missing = [name for name in ("messages_per_second", "duration_seconds") if not getattr(self, name)]
            return f"{' and '.join(missing)} missing: give messages_per_second and duration_seconds, or phases"
        if not 1 <= self.measured_count <= self.message_count <= _MESSAGES_MAX:
            return (
                f"messages_per_second x duration_seconds is {self.message_count} messages,"
                f" allowed is 1 to {_MESSAGES_MAX}"
            )
        if self.warm_up_seconds and not self.warm_up_count:
            return (
                f"warm_up_seconds is {self.warm_up_seconds:g}, which at the first phase's rate"
                f" ({self.steps[0].messages_per_second:g} a second) is no message: leave it out, or warm up for longer"
            )
        return None

    def _check_tasks(self) -> str | None:
        if self.producers_per_group > self.publish_tasks:
            return (
                f"producers_per_group is {self.producers_per_group}, allowed is at most publish_tasks"
                f" ({self.publish_tasks}): each is a task of its own"
            )
        if self.publish_tasks > self.group_count * self.producers_per_group:
            several = "" if self.producers_per_group == 1 else f" x producers_per_group ({self.producers_per_group})"
            return (
                f"publish_tasks is {self.publish_tasks}, allowed is at most group_count ({self.group_count}){several}:"
                f" a group belongs to {'one task' if self.producers_per_group == 1 else 'so many tasks'}"
            )
        return None

    def _check_repeats(self) -> str | None:
        if (refusal := self._over_one("duplicate_share", "late_duplicate_share")) is not None:
            return refusal
        if self.late_duplicate_share and self.late_duplicate_after_seconds is None:
            return (
                f"late_duplicate_after_seconds is missing, and late_duplicate_share is {self.late_duplicate_share:g}:"
                f" give {LATE_REPEAT_SECONDS_MIN} or more"
            )
        if self.late_duplicate_after_seconds is not None and not self.late_duplicate_share:
            return (
                f"late_duplicate_after_seconds is {self.late_duplicate_after_seconds:g}, and late_duplicate_share is 0:"
                " leave it out, or give a share"
            )
        if self.destination == "queue" and self.fan_out_skew_seconds_max is not None:
            return (
                f"fan_out_skew_seconds_max is {self.fan_out_skew_seconds_max:g}, allowed with destination 'queue' is"
                " none: only a topic fans out"
            )
        return None

    def _check_consumer(self) -> str | None:
        if (refusal := self._over_one("failure_share", "crash_share", "poison_share")) is not None:
            return refusal
        if self.redrive and not self.poison_share:
            return "redrive is true, and poison_share is 0: nothing would be dead-lettered; give a poison_share"
        if self.consumer == "worker":
            given = [name for name in _RAW_ONLY if getattr(self, name)]
            if given:
                return (
                    f"{given[0]} is {getattr(self, given[0])}, allowed with consumer 'worker' is none: only the raw"
                    " consumer injects it; leave it out, or choose consumer 'raw'"
                )
        lease = self.visibility_timeout_seconds
        if lease is not None and self.handler_seconds >= lease:
            return (
                f"handler_seconds is {self.handler_seconds:g}, allowed is less than visibility_timeout_seconds"
                f" ({lease}): every message would come again before it is done"
            )
        if lease is not None and self.crash_share and self.drain_timeout_seconds <= lease:
            return (
                f"drain_timeout_seconds is {self.drain_timeout_seconds:g}, allowed with crash_share is more than"
                f" visibility_timeout_seconds ({lease}): the leases of crashed consumers have to run out"
            )
        return None

    def _over_one(self, *names: str) -> str | None:
        total = sum(getattr(self, name) for name in names)
        if total <= 1:
            return None
        given = " + ".join(f"{name} ({getattr(self, name):g})" for name in names if getattr(self, name))
        return f"{given} is {total:g}, allowed is at most 1: they are different messages"

    @property
    def steps(self) -> tuple[Phase, ...]:
        """Return the phases; of a constant rate, its only one."""
        return self.phases or (
            Phase(duration_seconds=self.duration_seconds, messages_per_second=self.messages_per_second),
        )

    @property
    def peak_per_second(self) -> float:
        """Return the highest rate of messages, repeats not counted."""
        return max(max(phase.messages_per_second, phase.end_per_second) for phase in self.steps)

    @property
    def warm_up_count(self) -> int:
        """Return the number of messages before the load proper."""
        return round(self.warm_up_seconds * self.steps[0].messages_per_second)

    @property
    def measured_count(self) -> int:
        """Return the number of messages of the load proper; repeats and end markers not counted."""
        return round(sum(phase.message_count for phase in self.steps))

    @property
    def message_count(self) -> int:
        """Return the number of messages, those of the warm-up among them; repeats and end markers not counted."""
        return self.warm_up_count + self.measured_count

    @property
    def end_markers_after_seconds(self) -> float:
        """Return when the first end marker is due, from the start of the load: when everything else was."""
        late = self.late_duplicate_after_seconds or 0
        # Of a group's producers one sends its end marker: the others may be late, but not later than allowed.
        margin = END_MARKERS_AFTER_SECONDS if self.producers_per_group == 1 else self.lateness_budget_seconds
        return self.duration_seconds + max(self.duplicate_after_seconds, late) + margin

    @property
    def end_markers_per_second(self) -> float:
        """Return at which rate end markers are due: as fast as a stall may be caught up with."""
        return self.peak_per_second * self.catch_up_ratio

    @property
    def publish_seconds(self) -> float:
        """Return how long publishing takes from the start of the load to the last end marker."""
        return self.end_markers_after_seconds + (self.group_count - 1) / self.end_markers_per_second

    def allowed(self) -> Mapping[str, str]:
        """Return the anomalies that are lawful under this profile, by id, and why."""
        reasons = {}
        if self.batch_same_group:
            reasons["C7"] = "a call holds several messages of a group, and one may fail while a later one succeeds"
        if self.producers_per_group > 1:
            reasons["C7"] = f"{self.producers_per_group} producers publish each group, and nothing orders them"
        return reasons

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
