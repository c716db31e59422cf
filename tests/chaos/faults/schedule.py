"""Which fault begins and ends when: a pure function of the seed, so that a seed can be run again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sluice.errors import ConfigError
from spark_load.faults import drawing
from spark_load.faults.shapes import NETWORK, PROCESS, WIRE, FaultKind, way


class Kind(StrEnum):
    """What can be done to a chaos run besides what can be done to a load test; the names are those of `--faults`."""

    ROLL = "roll"
    DATABASE = "database"
    RESEND = "resend"
    REDRIVE = "redrive"
    REJECT = "reject"
    RAISE = "raise"
    HANG = "hang"
    DIE = "die"
    ROLLBACK = "rollback"


POISONS = (Kind.REJECT, Kind.RAISE, Kind.HANG, Kind.DIE, Kind.ROLLBACK)
"""What an event can do to its handler: these belong to the events and have no place in time."""
type AnyKind = FaultKind | Kind
KINDS: tuple[AnyKind, ...] = (*PROCESS, *NETWORK, *Kind)
"""What can be done to a run."""
RESTARTS = ("fast", "immediate")
"""Modes of `pg_ctl restart`; an immediate one has to recover from its log."""
_FIRST_SECONDS = 1.0
_SECONDS: Mapping[AnyKind, tuple[float, float]] = {
    FaultKind.FREEZE: (1.0, 12.0),
    FaultKind.STALL: (1.0, 8.0),
    Kind.DATABASE: (2.0, 4.0),
}
"""How long a fault lasts, shortest and longest, where it is not as long as in a load test."""

type Fault = drawing.Fault[AnyKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What there is to be harmed.

    Args:
        processes: names of the processes, by role.
        lines: names of the lines, by what they lead to: `database` or `endpoint`.
        consumers: names of the consumers.
    """

    processes: Mapping[str, Sequence[str]]
    lines: Mapping[str, Sequence[str]]
    consumers: Sequence[str]

    def of(self, kind: AnyKind) -> list[str]:
        """Return what a kind of fault can be done to."""
        if kind in PROCESS:
            return [name for names in self.processes.values() for name in names]
        if kind is Kind.ROLL:
            return [role for role in self.processes if role != "producer"]
        if kind in WIRE:
            ends = ("endpoint",) if kind is FaultKind.ANSWER else tuple(self.lines)
            return [line for end in ends for line in [*self.lines[end], f"all:{end}"]]
        if kind is Kind.REDRIVE:
            return list(self.consumers)
        return ["database"] if kind is Kind.DATABASE else ["outbox"]


def schedule(
    *, seed: int, seconds: float, every_seconds: float, kinds: Iterable[AnyKind], targets: Targets
) -> tuple[Fault, ...]:
    """Return the faults of a run, in the order they begin. Every kind comes once before any comes more often.

    Args:
        seed: of everything that is drawn.
        seconds: every fault ends before.
        every_seconds: mean time between two beginnings; less where `kinds` would not all fit.
        kinds: which faults; those of `POISONS` are left out.
        targets: what there is to be harmed.

    Raises:
        ConfigError: there is no time.
    """
    if seconds <= _FIRST_SECONDS or every_seconds <= 0:
        raise ConfigError(
            f"--seconds is {seconds:g} with a fault every {every_seconds:g} s, allowed is more than"
            f" {_FIRST_SECONDS:g} s and more than 0 s; raise them"
        )
    ways = [
        way(kind, targets.of(kind), seconds=_SECONDS.get(kind))
        for kind in KINDS
        if kind in set(kinds) and kind not in POISONS
    ]
    ways = [replace(entry, details=RESTARTS) if entry.kind is Kind.DATABASE else entry for entry in ways]
    return drawing.drawn(
        ways, seed=seed, first_seconds=_FIRST_SECONDS, until_seconds=seconds, every_seconds=every_seconds
    )


def chosen(names: Sequence[str]) -> tuple[AnyKind, ...]:
    """Return the kinds of those names.

    Raises:
        ConfigError: there is no such kind.
    """
    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        raise ConfigError(f"--faults is {', '.join(unknown)}, allowed are {', '.join(KINDS)}; correct it")
    return tuple(kind for kind in KINDS if kind in names)
