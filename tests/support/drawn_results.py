"""Randomly drawn results of runs: each time has a deviation common to its run, and one of its own."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from sluice.judge.checker.verdict import PropertyStatus
from spark_load.baselines.results import RunResult

KIND = {
    "environment": "local",
    "target": "localstack",
    "transport": "boto3",
    "processor": "x86_64",
    "model": "a",
    "cores": "2",
}
NAMES = tuple(
    f"{queue} {each}" for queue in ("billing", "shipping", "audit") for each in ("p50", "p95", "p99", "drain")
)


def result(
    run: str,
    seconds: Mapping[str, float],
    *,
    digest: str = "d",
    status: PropertyStatus = PropertyStatus.VALID,
    model: str = "a",
) -> RunResult:
    """Return a result of a run."""
    return RunResult(
        run=run,
        profile_name="tiny",
        profile_digest=digest,
        kind={**KIND, "model": model},
        status=status,
        seconds=dict(seconds),
        versions={},
    )


def runs(
    random: np.random.Generator,
    count: int,
    *,
    noise: float = 0.04,
    model: str = "a",
    level: float = 0.2,
    stays: float = 0,
    doubled: float = 0,
) -> list[RunResult]:
    """Return runs in which nothing changes.

    Args:
        random: draws them.
        count: of runs.
        noise: standard deviation of what a run's times share, and of what each has of its own, in logarithms.
        model: of the machine's processor.
        level: the usual time, in seconds.
        stays: share of a deviation that stays until the next run.
        doubled: share of the times that are twice as long.
    """
    deviations = random.normal(0, noise, (count, 1 + len(NAMES)))
    for before, after in pairwise(deviations):
        after[:] = stays * before + math.sqrt(1 - stays**2) * after
    factors = np.exp(deviations[:, :1] + deviations[:, 1:]) * (1 + (random.random((count, len(NAMES))) < doubled))
    return [
        result(f"{model}-{number}", dict(zip(NAMES, (level * row).tolist(), strict=True)), model=model)
        for number, row in enumerate(factors)
    ]


def slow_down(of: RunResult, factor: float, names: Sequence[str] | None = None) -> RunResult:
    """Return a run in which some times are longer; without names all are."""
    seconds = {name: value * factor if names is None or name in names else value for name, value in of.seconds.items()}
    return replace(of, seconds=seconds)
