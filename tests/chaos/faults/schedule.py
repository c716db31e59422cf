"""Which fault begins and ends when: a pure function of the seed, so that a seed can be run again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from sluice.errors import ConfigError


class Kind(StrEnum):
    """What can be done to a run; the names are those of `--faults`."""

    KILL = "kill"
    TERMINATE = "terminate"
    FREEZE = "freeze"
    ROLL = "roll"
    DATABASE = "database"
    CUT = "cut"
    STALL = "stall"
    SLOW = "slow"
    LOSE = "lose"
    ANSWER = "answer"
    RESEND = "resend"
    REDRIVE = "redrive"
    REJECT = "reject"
    RAISE = "raise"
    HANG = "hang"
    DIE = "die"
    ROLLBACK = "rollback"


POISONS = (Kind.REJECT, Kind.RAISE, Kind.HANG, Kind.DIE, Kind.ROLLBACK)
"""What an event can do to its handler: these belong to the events and have no place in time."""
WIRE = (Kind.CUT, Kind.STALL, Kind.SLOW, Kind.LOSE, Kind.ANSWER)
"""What is done to a line between a process and its database or endpoint."""
ANSWERS = ("500", "503", "throttled", "garbage", "cut-short", "after-500", "after-garbage")
"""What an endpoint answers instead; with `after-` it has done what it was asked to do."""
RESTARTS = ("fast", "immediate")
"""Modes of `pg_ctl restart`; an immediate one has to recover from its log."""
_FIRST_SECONDS = 1.0
_WEIGHTS: Mapping[Kind, int] = {Kind.KILL: 4, Kind.TERMINATE: 2, Kind.FREEZE: 3, Kind.CUT: 2, Kind.LOSE: 2}
_SECONDS: Mapping[Kind, tuple[float, float]] = {
    Kind.FREEZE: (1.0, 12.0),
    Kind.DATABASE: (2.0, 4.0),
    Kind.CUT: (0.5, 5.0),
    Kind.STALL: (1.0, 8.0),
    Kind.SLOW: (2.0, 8.0),
    Kind.LOSE: (0.5, 3.0),
    Kind.ANSWER: (0.5, 4.0),
}
"""How long a fault lasts, shortest and longest; kinds that are not here have no end of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Args:
        at_seconds: when it begins, from the start of the schedule.
        until_seconds: when it ends.
        kind: what is done.
        target: to what: a process, a role, a line, a consumer or the database.
        detail: how, where there are several ways.
    """

    at_seconds: float
    until_seconds: float
    kind: Kind
    target: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.at_seconds:7.2f} to {self.until_seconds:7.2f} s  {self.kind:<9}  {self.target}{detail}"


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

    def of(self, kind: Kind) -> list[str]:
        """Return what a kind of fault can be done to."""
        if kind in (Kind.KILL, Kind.TERMINATE, Kind.FREEZE):
            return [name for names in self.processes.values() for name in names]
        if kind is Kind.ROLL:
            return [role for role in self.processes if role != "producer"]
        if kind in WIRE:
            ends = ("endpoint",) if kind is Kind.ANSWER else tuple(self.lines)
            return [line for end in ends for line in [*self.lines[end], f"all:{end}"]]
        if kind is Kind.REDRIVE:
            return list(self.consumers)
        return ["database"] if kind is Kind.DATABASE else ["outbox"]


def schedule(
    *, seed: int, seconds: float, every_seconds: float, kinds: Iterable[Kind], targets: Targets
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
    rng = Random(f"schedule/{seed}")  # noqa: S311 (a schedule is not a secret)
    deck = [kind for kind in Kind if kind in set(kinds) and kind not in POISONS]
    if not deck:
        return ()
    mean = min(every_seconds, (seconds - _FIRST_SECONDS) / (len(deck) + 1))
    faults: list[Fault] = []
    busy_until: dict[str, float] = {}
    start_seconds, drawn = _FIRST_SECONDS, rng.sample(deck, k=len(deck))
    while start_seconds < seconds:
        if not drawn:
            weighted = [kind for kind in deck for _ in range(_WEIGHTS.get(kind, 1))]
            drawn = rng.sample(weighted, k=len(weighted))
        fault = _fault(rng, drawn.pop(), start_seconds, seconds, targets, busy_until)
        if fault is not None:
            faults.append(fault)
        start_seconds += mean * rng.uniform(0.5, 1.5)
    return tuple(faults)


def _fault(
    rng: Random, kind: Kind, start_seconds: float, seconds: float, targets: Targets, busy_until: dict[str, float]
) -> Fault | None:
    """Return a fault of something that no other fault is done to; None where there is nothing."""
    free = [
        target
        for target in targets.of(kind)
        if all(busy_until.get(item, 0) <= start_seconds for item in _needed(target))
    ]
    if not free:
        return None
    target = rng.choice(free)
    shortest, longest = _SECONDS.get(kind, (0.0, 0.0))
    until = min(seconds, start_seconds + rng.uniform(shortest, longest))
    for entry in _taken(target):
        busy_until[entry] = max(until, busy_until.get(entry, 0))
    return Fault(
        at_seconds=round(start_seconds, 2),
        until_seconds=round(until, 2),
        kind=kind,
        target=target,
        detail=_detail(rng, kind),
    )


def _needed(target: str) -> tuple[str, ...]:
    """Return what nothing may be done to when a fault of a target begins."""
    name, _, end = target.partition(":")
    return (target, f"any:{end}" if name == "all" else f"all:{end}")


def _taken(target: str) -> tuple[str, ...]:
    """Return what something is done to by a fault of a target: any line to an end, if it is one of them."""
    return target, f"any:{target.partition(':')[2]}"


def _detail(rng: Random, kind: Kind) -> str:
    if kind is Kind.ANSWER:
        return rng.choice(ANSWERS)
    if kind is Kind.DATABASE:
        return rng.choice(RESTARTS)
    return f"{rng.uniform(0.02, 0.3):.2f} s" if kind is Kind.SLOW else ""


def chosen(names: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds of those names.

    Raises:
        ConfigError: there is no such kind.
    """
    unknown = sorted(set(names) - set(Kind))
    if unknown:
        raise ConfigError(f"--faults is {', '.join(unknown)}, allowed are {', '.join(Kind)}; correct it")
    return tuple(kind for kind in Kind if kind in names)
