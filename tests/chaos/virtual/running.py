"""Virtual runs: one of a seed, many, and one that fails cut down to the least that still fails."""

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from spark_load.faults.drawing import ScheduledFault
from spark_load.faults.shapes import FaultKind, as_given
from tests.chaos.shrinking import shrink
from tests.chaos.virtual.judging import violations
from tests.chaos.virtual.schedules import CONSUMER, Publish, Story
from tests.chaos.virtual.variants import VARIANTS

_MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of its own is made there; SQLite syncs at each commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run.

    Args:
        violations: what is wrong, as sentences; none is VALID, or unknown where it came to no end.
        unfinished: why it came to no end.
        hits: how often each kind of fault struck.
        events: that were committed.
    """

    violations: tuple[str, ...]
    unfinished: str | None
    hits: Counter[str]
    events: int


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: a fault would be a line each time it strikes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults()


def result(whole: Story, variant: str) -> Result:
    """Run a story with a variant, and judge it: the same for the same arguments."""
    with _quiet(), tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        evidence = VARIANTS[variant](whole, Path(folder)).run()
    return Result(
        violations=tuple(violations(evidence, queue=f"{CONSUMER}.fifo")),
        unfinished=evidence.unfinished,
        hits=evidence.hits,
        events=len(evidence.committed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A failing run, cut down.

    Args:
        story: the least that still fails.
        result: of it.
        tries: how many runs it took.
        is_least: whether nothing more can be left out.
    """

    story: Story
    result: Result
    tries: int
    is_least: bool

    def as_profile(self) -> dict[str, Any]:
        """Return `faults:` of a profile, and the messages, as YAML takes them."""
        return {
            "seed": self.story.seed,
            "messages": [
                {"number": publish.number, "group": publish.group, "at_seconds": publish.at_seconds}
                for publish in self.story.publishes
            ],
            "faults": as_given(self.story.faults),
            "witness": list(self.result.violations),
        }


def witness(whole: Story, variant: str, *, tries_max: int = 400) -> Witness:
    """Return the least of a failing run that still fails."""

    def cut(faults: Sequence[ScheduledFault[FaultKind]], publishes: Sequence[Publish]) -> Story:
        return replace(whole, faults=tuple(faults), publishes=tuple(publishes))

    least = shrink(
        whole.faults,
        whole.publishes,
        lambda faults, publishes: bool(result(cut(faults, publishes), variant).violations),
        tries_max=tries_max,
    )
    left = cut(least.faults, least.messages)
    return Witness(story=left, result=result(left, variant), tries=least.tries, is_least=least.is_least)
