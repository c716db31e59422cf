"""The faults that a profile asks for, and the schedule that follows from them: pure values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice import limits
from sluice.errors import ConfigError
from spark_load.faults.drawing import ScheduledFault, Way, draw_faults, plain

_SECONDS_MAX = 86_400
_SLOWER = r"(?!0+(\.0+)? s)[0-9]{1,3}(\.[0-9]{1,6})? s"
_GIVEN_MAX = 1_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
type DatabaseKind = Literal["own", "postgres", "other"]
_AWAKE_SECONDS = 60  # in so long, a publisher has repeated or given up each publish without an answer
_FROZEN_SECONDS_MAX = (
    limits.DEDUPLICATION_WINDOW_SECONDS - 60
)  # of a publisher, which repeats its open publishes for half a minute afterwards
RELAY = "relay"
RELAYS = (f"{RELAY}-0", f"{RELAY}-1")
"""The relays of a load test through an outbox: one leads, the other stands by."""
PUBLISH, CONSUME = "publish", "consume"
"""Names of the lines of all publishing tasks, and of all raw consumers."""
ENDPOINT, DATABASE = "endpoint", "database"
ANSWERS = ("500", "503", "throttled", "garbage", "cut-short", "after-500", "after-garbage")
"""Wrong answers of an endpoint. With `after-` the endpoint has carried out the request; without, it has not seen it."""
POISONS = ("reject", "raise", "hang", "die", "rollback")
"""The ways in which handlers fail."""
MISREPORTS = ("stranger", "nobody", "wrong-key", "everything", "no-answer")
"""The ways in which the answer of a Lambda function is wrong."""
SLOWER_SECONDS = (0.02, 0.3)
"""The shortest and the longest delay of a slow line."""


class FaultKind(StrEnum):
    """The kinds of fault that a load test can inject."""

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    DEPLOY = "deploy"
    CUT = "cut"
    STALL = "stall"
    SLOW = "slow"
    LOSE = "lose"
    ANSWER = "answer"
    LOCK = "lock"
    SKEW = "skew"
    SWALLOW = "swallow"
    FULL = "full"
    RESTART = "restart"
    ROLL = "roll"
    POISON = "poison"
    REDRIVE = "redrive"
    THROTTLE = "throttle"
    MISREPORT = "misreport"


INSTANT = (FaultKind.KILL, FaultKind.TERMINATE)
"""Faults without a duration."""
PROCESS = (*INSTANT, FaultKind.FREEZE)
NETWORK = (FaultKind.CUT, FaultKind.STALL, FaultKind.SLOW, FaultKind.LOSE, FaultKind.ANSWER)
STREAM = (FaultKind.CUT, FaultKind.STALL, FaultKind.SLOW, FaultKind.LOSE)
"""Faults of a line that need not understand the bytes on it, so that they also hit lines to a database."""
LOSSY = (FaultKind.SWALLOW,)
"""Faults that lose acknowledged messages. They are negative controls: never drawn, only named by a profile."""
FUNCTION = (FaultKind.THROTTLE, FaultKind.MISREPORT)
"""Faults of the Lambda functions of a consumer."""
WIRE = (*NETWORK, *LOSSY)
"""Faults of a line between a process and its endpoint."""
SHAPES: Mapping[str, tuple[FaultKind, ...]] = {
    "calm": (),
    "crashes": PROCESS,
    "network": NETWORK,
    "database": (FaultKind.LOCK, *STREAM, FaultKind.RESTART),
    "chaos": (*PROCESS, FaultKind.DEPLOY, *NETWORK, FaultKind.LOCK, FaultKind.RESTART, *FUNCTION),
}
"""The kinds of fault of each shape; kinds without a target in a run are left out."""
_ENDS: Mapping[str, tuple[str, ...]] = {"network": (ENDPOINT,), "database": (DATABASE,)}
"""The servers that a shape concerns, by its lines and restarts; other shapes concern all servers."""
type Shape = Literal["calm", "crashes", "network", "database", "chaos"]

_WEIGHTS: Mapping[str, int] = {
    FaultKind.KILL: 4,
    FaultKind.TERMINATE: 2,
    FaultKind.FREEZE: 3,
    FaultKind.CUT: 2,
    FaultKind.LOSE: 2,
}
_DETAILS: Mapping[str, Sequence[str] | tuple[float, float]] = {
    FaultKind.ANSWER: ANSWERS,
    FaultKind.POISON: POISONS,
    FaultKind.MISREPORT: MISREPORTS,
    FaultKind.SLOW: SLOWER_SECONDS,
}
_GIVEN_DETAILS: Mapping[str, tuple[str, str]] = {
    FaultKind.ANSWER: ("|".join(ANSWERS), f"one of {', '.join(ANSWERS)}"),
    FaultKind.POISON: ("|".join(POISONS), f"one of {', '.join(POISONS)}"),
    FaultKind.MISREPORT: ("|".join(MISREPORTS), f"one of {', '.join(MISREPORTS)}"),
    FaultKind.SKEW: (f"-?{_SLOWER}", "seconds between -1000 and 1000 that are not 0, such as '-30 s'"),
    FaultKind.SLOW: (_SLOWER, "seconds above 0 and below 1000, such as '0.15 s'"),
}
"""The details that a profile may give for a kind, as a regular expression and in words; other kinds have none."""
_LASTS_SECONDS: Mapping[str, tuple[float, float]] = {
    FaultKind.FREEZE: (1.0, 8.0),
    FaultKind.DEPLOY: (2.0, 6.0),
    FaultKind.CUT: (0.5, 5.0),
    FaultKind.STALL: (1.0, 6.0),
    FaultKind.SLOW: (2.0, 8.0),
    FaultKind.LOSE: (0.5, 3.0),
    FaultKind.ANSWER: (0.5, 4.0),
    FaultKind.LOCK: (1.0, 6.0),
    FaultKind.RESTART: (1.0, 2.0),
    FaultKind.ROLL: (1.0, 2.0),
    FaultKind.POISON: (2.0, 6.0),
    FaultKind.REDRIVE: (0.5, 1.0),
    FaultKind.THROTTLE: (1.0, 6.0),
    FaultKind.MISREPORT: (1.0, 4.0),
}


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class GivenFault:
    """A fault that a profile names, instead of drawing it; its fields are those of `ScheduledFault`."""

    kind: FaultKind
    target: Annotated[str, Field(min_length=1, max_length=200)]
    at_seconds: Annotated[float, Field(ge=0, le=_SECONDS_MAX)]
    until_seconds: Annotated[float, Field(ge=0, le=_SECONDS_MAX)]
    detail: Annotated[str, Field(max_length=40)] = ""

    def __post_init__(self) -> None:
        began, ended = plain(self.at_seconds), plain(self.until_seconds)
        if self.kind in INSTANT and self.until_seconds != self.at_seconds:
            raise ValueError(
                f"until_seconds is {ended}, allowed for {self.kind.value!r} is at_seconds ({began}): it is over at once"
            )
        if self.kind not in INSTANT and self.until_seconds <= self.at_seconds:
            raise ValueError(
                f"until_seconds is {ended}, allowed for {self.kind.value!r} is more than at_seconds ({began}): what"
                " takes no time happens to nobody"
            )
        pattern, words = _GIVEN_DETAILS.get(self.kind, ("", "none: leave it out"))
        if re.fullmatch(pattern, self.detail) is None:
            raise ValueError(f"detail is {self.detail!r}, allowed for {self.kind.value!r} is {words}")


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Faults:
    """The faults of a profile.

    Args:
        shape: which kinds are drawn: `calm` (none), `crashes`, `network`, `database`, or `chaos`, which is all of them.
        seed: of what is drawn; None takes the run's.
        every_seconds: mean time between the beginnings of two faults.
        after_seconds: when the first begins, from the start of the load.
        until_seconds: when the last has ended; None is the end of the load.
        given: exactly these faults, in place of a shape.
    """

    shape: Shape = "calm"
    seed: Annotated[int, Field(ge=0)] | None = None
    every_seconds: Annotated[float, Field(ge=0.2, le=3_600)] = 5
    after_seconds: Annotated[float, Field(ge=0, le=_SECONDS_MAX)] = 2
    until_seconds: Annotated[float, Field(gt=0, le=_SECONDS_MAX)] | None = None
    given: Annotated[tuple[GivenFault, ...], Field(max_length=_GIVEN_MAX)] = ()

    def __post_init__(self) -> None:
        if self.given and self.shape != "calm":
            raise ValueError(f"shape is {self.shape!r}, allowed beside given faults is none; leave it out")
        if self.until_seconds is not None and self.until_seconds <= self.after_seconds:
            raise ValueError(
                f"until_seconds is {self.until_seconds:g}, allowed is more than after_seconds ({self.after_seconds:g})"
            )

    @property
    def is_calm(self) -> bool:
        """Return whether the profile has no faults."""
        return self.shape == "calm" and not self.given


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of faults in a load test.

    Args:
        workers: names of the workers' processes; none with raw consumers.
        lines: names of the lines to the endpoint, without their end.
        consumers: all of them; none with raw consumers.
        functions: those of the consumers whose handlers run in Lambda functions.
        publishers: names of the publishing tasks whose processes are on this machine.
        relays: names of the relays' processes; none unless they publish through an outbox.
        database: the workers' SQLite files, which are the run's `own`, a `postgres`, or an `other` SQLite file.
        restarts: the servers for which a restart command is given.
    """

    workers: Sequence[str]
    lines: Sequence[str]
    consumers: Sequence[str]
    functions: Sequence[str] = ()
    publishers: Sequence[str] = ()
    relays: Sequence[str] = ()
    database: DatabaseKind = "own"
    restarts: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        *,
        consumer: str,
        consumers: Sequence[str],
        consumers_per_queue: int,
        publish_tasks: int = 0,
        is_through_outbox: bool = False,
        database: DatabaseKind = "own",
        restarts: Sequence[str] = (),
        functions: Sequence[str] = (),
    ) -> "Targets":
        """Return the targets in a load test. Raw consumers are Spark's tasks, so only their network can have faults.

        Args:
            consumer: the profile's field.
            consumers: the names of the consumers.
            consumers_per_queue: the profile's field.
            publish_tasks: how many publishing tasks have a process each, on this machine.
            is_through_outbox: whether relays publish.
            database: the kind of the workers' database.
            restarts: the servers that can be restarted.
            functions: those of the consumers whose handlers run in Lambda functions.
        """
        publishers = tuple(f"{PUBLISH}-{number}" for number in range(publish_tasks)) if PUBLISH not in consumers else ()
        if consumer == "raw":
            restarts = [name for name in restarts if name == ENDPOINT]
            return cls(workers=(), lines=(PUBLISH, CONSUME), consumers=(), publishers=publishers, restarts=restarts)
        workers = worker_names(consumers, consumers_per_queue)
        relays = relay_names(consumers) if is_through_outbox else ()
        return cls(
            workers=workers,
            lines=(*(relays if is_through_outbox else (PUBLISH,)), *workers),
            consumers=tuple(consumers),
            functions=functions,
            publishers=publishers,
            relays=relays,
            database=database,
            restarts=[name for name in restarts if name == ENDPOINT or database == "postgres"],
        )

    def of_kind(self, kind: FaultKind) -> tuple[str, ...]:
        """Return the targets that a kind of fault can have."""
        if kind is FaultKind.SWALLOW:
            return (f"{PUBLISH}:{ENDPOINT}",) if PUBLISH in self.lines else ()
        if kind in WIRE:
            has_line = kind in STREAM and self.database == "postgres"
            of_workers = (f"{worker}:{DATABASE}" for worker in (*self.workers, "all")) if has_line else ()
            return (*(f"{line}:{ENDPOINT}" for line in (*self.lines, "all")), *of_workers)
        if kind is FaultKind.LOCK:
            return tuple(f"{consumer}:{DATABASE}" for consumer in self.consumers if self.database == "own")
        if kind is FaultKind.RESTART or kind in FUNCTION:
            return tuple(self.restarts if kind is FaultKind.RESTART else self.functions)
        if kind in (FaultKind.ROLL, FaultKind.DEPLOY, FaultKind.POISON, FaultKind.REDRIVE):
            return (*self.consumers, *((RELAY,) if self.relays and kind is FaultKind.ROLL else ()))
        return (*self.workers, *((*self.publishers, *self.relays) if kind in PROCESS else ()))

    def draw_targets(self, kind: FaultKind, shape: Shape) -> tuple[str, ...]:
        """Return the targets among which a kind of fault of a shape is drawn.

        The endpoint is not among them for a fault that may lose all messages.
        """
        ends = (DATABASE,) if kind is FaultKind.RESTART else _ENDS.get(shape, ())
        return tuple(name for name in self.of_kind(kind) if not ends or name.endswith(ends))


def is_publisher(name: str) -> bool:
    """Return whether a target is a publishing task."""
    return re.fullmatch(rf"{PUBLISH}-[0-9]+", name) is not None


def relay_names(consumers: Sequence[str]) -> tuple[str, ...]:
    """Return the names by which faults find the relays; none if a consumer has such a name."""
    return () if RELAY in consumers else RELAYS


def task_restarts_max(faults: Sequence[ScheduledFault[FaultKind]]) -> int:
    """Return how often Spark may have to restart a publishing task, because one of these faults ended it."""
    return sum(fault.kind in INSTANT and is_publisher(fault.target) for fault in faults)


def worker_names(consumers: Sequence[str], consumers_per_queue: int) -> tuple[str, ...]:
    """Return the names of the places of workers."""
    return tuple(f"{consumer}-{number}" for consumer in consumers for number in range(consumers_per_queue))


def way[K: StrEnum](kind: K, targets: Sequence[str], *, seconds: tuple[float, float] | None = None) -> Way[K]:
    """Return how a kind of fault is drawn. A kind that the load test does not know has no duration and no details.

    Args:
        kind: the kind of fault.
        targets: its possible targets.
        seconds: the shortest and the longest duration; None takes those of a load test.
    """
    usual = _LASTS_SECONDS.get(kind, (0.0, 0.0))
    details = _DETAILS.get(kind, ())
    return Way(
        kind=kind,
        targets=targets,
        seconds=usual if seconds is None else seconds,
        weight=_WEIGHTS.get(kind, 1),
        details=details,
    )


def schedule_faults(
    faults: Faults, targets: Targets, *, seed: int, duration_seconds: float
) -> tuple[ScheduledFault[FaultKind], ...]:
    """Return the faults of a run, in the order they begin: the same for the same arguments.

    Args:
        faults: the field of the profile.
        targets: the possible targets of the run.
        seed: the run's seed, used if the profile has none.
        duration_seconds: the duration of the load.

    Raises:
        ConfigError: no fault has a target, or the load is too short.
    """
    if faults.given:
        in_order = sorted(faults.given, key=lambda fault: fault.at_seconds)
        _require_apart(in_order)
        _require_remembered(in_order)
        return tuple(_place_given(fault, targets) for fault in in_order)
    of_kind = {kind: targets.draw_targets(kind, faults.shape) for kind in SHAPES[faults.shape]}
    kinds = [kind for kind, found in of_kind.items() if found]
    if of_kind and not kinds:
        shapes: tuple[Shape, ...] = get_args(Shape.__value__)
        possible = [
            each for each in shapes if each == "calm" or any(targets.draw_targets(of, each) for of in SHAPES[each])
        ]
        raise ConfigError(
            f"faults.shape is {faults.shape!r}, allowed here is one of {', '.join(possible)}: raw consumers are Spark's"
            " own processes and have no database, and SQLite files of others are not held; choose consumer 'worker',"
            " and as SLUICE_DSN none or a Postgres"
        )
    until_seconds = duration_seconds if faults.until_seconds is None else faults.until_seconds
    if kinds and until_seconds <= faults.after_seconds:
        raise ConfigError(
            f"faults.after_seconds is {faults.after_seconds:g}, allowed is less than {until_seconds:g}, when the last"
            " fault has to have ended; let the load last longer"
        )
    return draw_faults(
        [way(kind, of_kind[kind]) for kind in kinds],
        seed=seed if faults.seed is None else faults.seed,
        first_seconds=faults.after_seconds,
        until_seconds=until_seconds,
        every_seconds=faults.every_seconds,
    )


def _require_apart(faults: Sequence[GivenFault]) -> None:
    """Require that two faults of one target do not overlap, because the end of the first would also end the second.

    Args:
        faults: in the order in which they begin.

    Raises:
        ConfigError: two faults overlap.
    """
    for other, fault in combinations(faults, 2):
        is_over = other.until_seconds <= fault.at_seconds and other.at_seconds < fault.at_seconds
        if not is_over and _is_of_one_thing(fault, other):
            raise ConfigError(
                f"{other.kind.value} of {other.target} is until {plain(other.until_seconds)} s, and {fault.kind.value}"
                f" of {fault.target} from {plain(fault.at_seconds)} s, allowed is one at a time; put them apart"
            )


def _require_remembered(faults: Sequence[GivenFault]) -> None:
    """Require that no publisher is frozen for so long that SNS forgets the deduplication ids of its last publishes.

    Freezes with little time between them count as one: in that time the publisher may not have repeated every publish
    that was not answered.

    Args:
        faults: in the order in which they begin.

    Raises:
        ConfigError: a publisher is frozen for too long.
    """
    frozen: dict[str, tuple[float, float]] = {}
    for fault in faults:
        if fault.kind is not FaultKind.FREEZE or not is_publisher(fault.target):
            continue
        at_seconds, until_seconds = frozen.get(fault.target, (fault.at_seconds, fault.at_seconds))
        if fault.at_seconds - until_seconds >= _AWAKE_SECONDS:
            at_seconds = fault.at_seconds
        frozen[fault.target] = at_seconds, fault.until_seconds
        if (seconds := fault.until_seconds - at_seconds) > _FROZEN_SECONDS_MAX:
            raise ConfigError(
                f"{fault.target} is frozen for {seconds:g} s, allowed is at most {_FROZEN_SECONDS_MAX}: what it sent"
                " before would be forgotten, and a repeat be a second message; shorten it, or leave"
                f" {_AWAKE_SECONDS} s between two"
            )


def _is_of_one_thing(fault: GivenFault, other: GivenFault) -> bool:
    if fault.kind in WIRE and other.kind in WIRE:
        (name, _, end), (other_name, _, other_end) = (each.target.partition(":") for each in (fault, other))
        return end == other_end and (name == other_name or "all" in (name, other_name))
    return (fault.kind, fault.target) == (other.kind, other.target)


def _place_given(fault: GivenFault, targets: Targets) -> ScheduledFault[FaultKind]:
    allowed = targets.of_kind(fault.kind)
    if not allowed:
        possible = ", ".join(kind.value for kind in FaultKind if targets.of_kind(kind))
        raise ConfigError(
            f"kind of a fault is {fault.kind.value!r}, allowed here is one of {possible}: raw consumers are Spark's own"
            " processes, a lock is one of the run's own SQLite files, and a restart needs SLUICE_RESTART_ENDPOINT or"
            " SLUICE_RESTART_DATABASE; change consumer, SLUICE_DSN or these"
        )
    if fault.target not in allowed:
        raise ConfigError(
            f"target of a fault is {fault.target!r}, allowed for {fault.kind.value!r} is one of {', '.join(allowed)};"
            " correct it"
        )
    return ScheduledFault(
        kind=fault.kind,
        target=fault.target,
        at_seconds=fault.at_seconds,
        until_seconds=fault.until_seconds,
        detail=fault.detail,
    )


def require_possible(faults: Sequence[ScheduledFault[FaultKind]], *, endpoint_url: str | None) -> None:
    """Require, before a run begins, that its faults are possible at its endpoint.

    Args:
        faults: the run's schedule.
        endpoint_url: of SQS and SNS; None is AWS.

    Raises:
        ConfigError: a fault is not possible.
    """
    if any(fault.kind in WIRE and fault.target.endswith(ENDPOINT) for fault in faults) and not (
        endpoint_url or ""
    ).startswith("http:"):
        raise ConfigError(
            f"the endpoint is {endpoint_url or 'AWS'}, allowed with faults of the network is an http:// one: a line"
            " speaks no TLS; name an emulator with AWS_ENDPOINT_URL, or choose --faults crashes or database"
        )
    host = urlsplit(endpoint_url or "").hostname
    if host not in _LOOPBACK and any(fault.kind is FaultKind.RESTART and fault.target == ENDPOINT for fault in faults):
        raise ConfigError(
            f"the endpoint is {endpoint_url or 'AWS'}, allowed with a restart of the endpoint is one of"
            f" {', '.join(_LOOPBACK)}: all its messages may be lost; name an emulator of this machine with"
            " AWS_ENDPOINT_URL"
        )


def as_given(faults: Sequence[ScheduledFault[FaultKind]]) -> dict[str, Any]:
    """Return the field `faults` of a profile that has exactly these faults."""
    return {"given": [{**asdict(fault), "kind": fault.kind.value} for fault in faults]}
