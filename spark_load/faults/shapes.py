"""What faults a profile asks for, and the schedule that follows: pure values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from sluice.errors import ConfigError
from spark_load.faults.drawing import Fault, Way, drawn

_SECONDS_MAX = 86_400
_SLOWER = r"[0-9]{1,3}(\.[0-9]{1,6})? s"
_GIVEN_MAX = 1_000
PUBLISH, CONSUME = "publish", "consume"
"""Names of the lines of all publishing tasks, and of all raw consumers."""
ENDPOINT, DATABASE = "endpoint", "database"
ANSWERS = ("500", "503", "throttled", "garbage", "cut-short", "after-500", "after-garbage")
"""What an endpoint answers instead; with `after-` it has done what it was asked to do."""
SLOWER_SECONDS = (0.02, 0.3)
"""How much later everything on a slow line comes."""


class FaultKind(StrEnum):
    """What can be done to a load test."""

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


PROCESS = (FaultKind.KILL, FaultKind.TERMINATE, FaultKind.FREEZE)
NETWORK = (FaultKind.CUT, FaultKind.STALL, FaultKind.SLOW, FaultKind.LOSE, FaultKind.ANSWER)
LOSSY = (FaultKind.SWALLOW,)
"""What loses messages that were acknowledged, as its history says: negative controls, which are only given."""
WIRE = (*NETWORK, *LOSSY)
"""What is done to a line between a process and its endpoint."""
SHAPES: Mapping[str, tuple[FaultKind, ...]] = {
    "calm": (),
    "crashes": PROCESS,
    "network": NETWORK,
    "database": (FaultKind.LOCK,),
    "chaos": (*PROCESS, FaultKind.DEPLOY, *NETWORK, FaultKind.LOCK),
}
"""Which faults a shape has."""
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
    FaultKind.SLOW: SLOWER_SECONDS,
}
_LASTS_SECONDS: Mapping[str, tuple[float, float]] = {
    FaultKind.FREEZE: (1.0, 8.0),
    FaultKind.DEPLOY: (2.0, 6.0),
    FaultKind.CUT: (0.5, 5.0),
    FaultKind.STALL: (1.0, 6.0),
    FaultKind.SLOW: (2.0, 8.0),
    FaultKind.LOSE: (0.5, 3.0),
    FaultKind.ANSWER: (0.5, 4.0),
    FaultKind.LOCK: (1.0, 6.0),
}


@checked_dataclass(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class GivenFault:
    """A fault that is named and not drawn; as `Fault`."""

    kind: FaultKind
    target: Annotated[str, Field(min_length=1, max_length=200)]
    at_seconds: Annotated[float, Field(ge=0, le=_SECONDS_MAX)]
    until_seconds: Annotated[float, Field(ge=0, le=_SECONDS_MAX)]
    detail: Annotated[str, Field(max_length=40)] = ""

    def __post_init__(self) -> None:
        if self.until_seconds < self.at_seconds:
            raise ValueError(
                f"until_seconds is {self.until_seconds:g}, allowed is at_seconds ({self.at_seconds:g}) or more:"
                " a fault ends after it began"
            )
        if self.kind is FaultKind.ANSWER and self.detail not in ANSWERS:
            raise ValueError(f"detail is {self.detail!r}, allowed for 'answer' is one of {', '.join(ANSWERS)}")
        if self.kind is FaultKind.SKEW and re.fullmatch(f"-?{_SLOWER}", self.detail) is None:
            raise ValueError(
                f"detail is {self.detail!r}, allowed for 'skew' are seconds between -1000 and 1000, such as '-30 s'"
            )
        if self.kind is FaultKind.SLOW and re.fullmatch(_SLOWER, self.detail) is None:
            raise ValueError(f"detail is {self.detail!r}, allowed for 'slow' are seconds below 1000, such as '0.15 s'")


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
        """Return whether there are none."""
        return self.shape == "calm" and not self.given


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What there is to be harmed in a load test.

    Args:
        workers: names of the workers' processes; none with raw consumers.
        lines: names of the lines to the endpoint, without their end.
        consumers: whose inboxes are in databases of their own; none with raw consumers.
    """

    workers: Sequence[str]
    lines: Sequence[str]
    consumers: Sequence[str]

    @classmethod
    def of(cls, *, consumer: str, consumers: Sequence[str], consumers_per_queue: int) -> "Targets":
        """Return those of a load test: of raw consumers only the network can be harmed, they are Spark's tasks."""
        if consumer == "raw":
            return cls(workers=(), lines=(PUBLISH, CONSUME), consumers=())
        workers = worker_names(consumers, consumers_per_queue)
        return cls(workers=workers, lines=(PUBLISH, *workers), consumers=tuple(consumers))

    def of_kind(self, kind: FaultKind) -> tuple[str, ...]:
        """Return what a kind of fault can be done to."""
        if kind is FaultKind.SWALLOW:
            return (f"{PUBLISH}:{ENDPOINT}",)
        if kind in WIRE:
            return tuple(f"{line}:{ENDPOINT}" for line in (*self.lines, "all"))
        if kind is FaultKind.LOCK:
            return tuple(f"{consumer}:{DATABASE}" for consumer in self.consumers)
        return tuple(self.consumers) if kind is FaultKind.DEPLOY else tuple(self.workers)


def worker_names(consumers: Sequence[str], consumers_per_queue: int) -> tuple[str, ...]:
    """Return the names of the places of workers."""
    return tuple(f"{consumer}-{number}" for consumer in consumers for number in range(consumers_per_queue))


def way[K: StrEnum](kind: K, targets: Sequence[str], *, seconds: tuple[float, float] | None = None) -> Way[K]:
    """Return how a kind of fault is drawn; a kind that is not of the load test's lasts no time and has no details.

    Args:
        kind: what is done.
        targets: to what it can be done.
        seconds: the shortest and the longest, where it is not as long as in a load test.
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


def scheduled(faults: Faults, targets: Targets, *, seed: int, duration_seconds: float) -> tuple[Fault[FaultKind], ...]:
    """Return the faults of a run, in the order they begin: the same for the same arguments.

    Args:
        faults: what the profile asks for.
        targets: what there is.
        seed: of the run, where the profile has none.
        duration_seconds: of the load.

    Raises:
        ConfigError: there is nothing to do it to, or no time.
    """
    if faults.given:
        in_order = sorted(faults.given, key=lambda fault: fault.at_seconds)
        _require_apart(in_order)
        return tuple(_given(fault, targets) for fault in in_order)
    kinds = [kind for kind in SHAPES[faults.shape] if targets.of_kind(kind)]
    if SHAPES[faults.shape] and not kinds:
        raise ConfigError(
            f"faults.shape is {faults.shape!r}, allowed with consumer 'raw' are calm, network and chaos: raw consumers"
            " are Spark's own processes and have no database; choose consumer 'worker'"
        )
    until_seconds = duration_seconds if faults.until_seconds is None else faults.until_seconds
    if kinds and until_seconds <= faults.after_seconds:
        raise ConfigError(
            f"faults.after_seconds is {faults.after_seconds:g}, allowed is less than {until_seconds:g}, when the last"
            " fault has to have ended; let the load last longer"
        )
    return drawn(
        [way(kind, targets.of_kind(kind)) for kind in kinds],
        seed=seed if faults.seed is None else faults.seed,
        first_seconds=faults.after_seconds,
        until_seconds=until_seconds,
        every_seconds=faults.every_seconds,
    )


def _require_apart(faults: Sequence[GivenFault]) -> None:
    """Require that of two faults of one thing the first is over before the second begins: its end would end both.

    Args:
        faults: in the order they begin.

    Raises:
        ConfigError: they overlap.
    """
    for other, fault in combinations(faults, 2):
        if fault.at_seconds < other.until_seconds and _is_of_one_thing(fault, other):
            raise ConfigError(
                f"{other.kind.value} of {other.target} is until {other.until_seconds:g} s, and {fault.kind.value} of"
                f" {fault.target} from {fault.at_seconds:g} s, allowed is one at a time; put them apart"
            )


def _is_of_one_thing(fault: GivenFault, other: GivenFault) -> bool:
    if fault.kind in WIRE and other.kind in WIRE:
        return fault.target == other.target or f"all:{ENDPOINT}" in (fault.target, other.target)
    return (fault.kind, fault.target) == (other.kind, other.target)


def _given(fault: GivenFault, targets: Targets) -> Fault[FaultKind]:
    allowed = targets.of_kind(fault.kind)
    if fault.target not in allowed:
        raise ConfigError(
            f"target of a fault is {fault.target!r}, allowed for {fault.kind.value!r} is"
            f" {f'one of {", ".join(allowed)}' if allowed else 'none with this consumer'}; correct it"
        )
    return Fault(
        kind=fault.kind,
        target=fault.target,
        at_seconds=fault.at_seconds,
        until_seconds=fault.until_seconds,
        detail=fault.detail,
    )


def require_possible(faults: Sequence[Fault[FaultKind]], *, endpoint_url: str | None, has_database: bool) -> None:
    """Require that faults can be done to a run, before anything of it begins.

    Args:
        faults: of its schedule.
        endpoint_url: of SQS and SNS; None is AWS.
        has_database: whether SLUICE_DSN names the workers' database.

    Raises:
        ConfigError: one of them cannot.
    """
    if any(fault.kind in WIRE for fault in faults) and not (endpoint_url or "").startswith("http:"):
        raise ConfigError(
            f"the endpoint is {endpoint_url or 'AWS'}, allowed with faults of the network is an http:// one: a line"
            " speaks no TLS; name an emulator with --endpoint-url, or choose --faults crashes or database"
        )
    if any(fault.kind is FaultKind.LOCK for fault in faults) and has_database:
        raise ConfigError(
            f"SLUICE_DSN is set, allowed with faults of a {DATABASE} is none: it is the run's own SQLite files that"
            " are held; unset it"
        )


def as_given(faults: Sequence[Fault[FaultKind]]) -> dict[str, Any]:
    """Return `faults:` of a profile that has exactly these."""
    return {"given": [{**asdict(fault), "kind": fault.kind.value} for fault in faults]}
