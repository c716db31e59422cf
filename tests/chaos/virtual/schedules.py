"""Schedules of a virtual run: the shapes of the load test, on a producer, a relay, and the workers of one consumer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from spark_load.faults.drawing import ScheduledFault, Way, draw_faults
from spark_load.faults.shapes import (
    ANSWERS,
    FUNCTION,
    MISREPORTS,
    NETWORK,
    PROCESS,
    SHAPES,
    SLOWER_SECONDS,
    WIRE,
    FaultKind,
    Shape,
)

PRODUCER, RELAY, CONSUMER = "producer", "relay", "consumer"
WORKERS = ("worker-0", "worker-1")
GROUPS = ("a", "b", "c", "d", "e")
_FUNCTION_GROUPS, _BUNDLED_GROUPS = GROUPS[:4], GROUPS[:2]
_KINDS = (*PROCESS, *NETWORK, FaultKind.LOCK, FaultKind.DEPLOY)
"""What a virtual run can do: no server is there to be restarted."""
_BATCH = 8  # events that are committed at once: several of a group, and of several groups
_LASTS_SECONDS = (0.5, 12.0)  # the visibility timeout is 5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """An event that the producer commits: its number, its group, and when."""

    number: int
    group: str
    at_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that is to happen in one run.

    Args:
        seed: of what is drawn while it runs.
        publishes: in the order they are made.
        faults: in the order they begin.
    """

    seed: int
    publishes: tuple[Publish, ...]
    faults: tuple[ScheduledFault[FaultKind], ...]


def story(seed: int, *, shape: Shape = "chaos", messages: int = 24, seconds: float = 30.0) -> Story:
    """Return the run of a seed."""
    rng = Random(f"publishes/{seed}")  # noqa: S311 (a load is not a secret)
    publishes = tuple(
        Publish(number=number, group=rng.choice(GROUPS), at_seconds=round(seconds * number / messages, 2))
        for number in range(messages)
    )
    return _with_faults(seed, publishes, [kind for kind in SHAPES[shape] if kind in _KINDS], seconds)


def function_story(
    seed: int,
    *,
    shape: Shape = "chaos",
    messages: int = 24,
    seconds: float = 30.0,
    groups: Sequence[str] = _FUNCTION_GROUPS,
) -> Story:
    """Return the run of a seed with a Lambda function: events come in batches of a few groups.

    To each shape belong throttles and wrong answers.
    """
    publishes = _in_batches(seed, groups, messages, seconds)
    kinds = (kind for kind in SHAPES[shape] if kind in _KINDS)
    return _with_faults(seed, publishes, (*kinds, *FUNCTION), seconds)


def bundled_story(seed: int, *, shape: Shape = "chaos", messages: int = 24, seconds: float = 30.0) -> Story:
    """Return the run of a seed whose events come in batches of two groups, so that several of a group wait at once."""
    publishes = _in_batches(seed, _BUNDLED_GROUPS, messages, seconds)
    return _with_faults(seed, publishes, [kind for kind in SHAPES[shape] if kind in _KINDS], seconds)


bundled_function_story = partial(function_story, groups=_BUNDLED_GROUPS)


def _in_batches(seed: int, groups: Sequence[str], messages: int, seconds: float) -> tuple[Publish, ...]:
    rng = Random(f"publishes/{seed}")  # noqa: S311 (a load is not a secret)
    return tuple(
        Publish(
            number=number,
            group=rng.choice(groups),
            at_seconds=round(seconds * (number - number % _BATCH) / messages, 2),
        )
        for number in range(messages)
    )


def _with_faults(seed: int, publishes: tuple[Publish, ...], kinds: Sequence[FaultKind], seconds: float) -> Story:
    ways = [_way(kind) for kind in kinds]
    faults = draw_faults(ways, seed=seed, first_seconds=1.0, until_seconds=seconds, every_seconds=2.0)
    return Story(seed=seed, publishes=publishes, faults=faults)


def _way(kind: FaultKind) -> Way[FaultKind]:
    processes = (PRODUCER, RELAY, *WORKERS)
    if kind in WIRE:
        targets = tuple(f"{name}:endpoint" for name in (RELAY, *WORKERS, "all"))
        details = ANSWERS if kind is FaultKind.ANSWER else SLOWER_SECONDS if kind is FaultKind.SLOW else ()
        return Way(kind=kind, targets=targets, seconds=_LASTS_SECONDS, details=details)
    if kind is FaultKind.LOCK:
        return Way(kind=kind, targets=("database",), seconds=_LASTS_SECONDS)
    if kind in (FaultKind.DEPLOY, FaultKind.THROTTLE):
        return Way(kind=kind, targets=(CONSUMER,), seconds=_LASTS_SECONDS)
    if kind is FaultKind.MISREPORT:
        return Way(kind=kind, targets=(CONSUMER,), seconds=_LASTS_SECONDS, details=MISREPORTS)
    return Way(kind=kind, targets=processes, seconds=_LASTS_SECONDS, weight=3)
