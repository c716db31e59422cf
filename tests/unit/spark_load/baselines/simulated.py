"""Results of runs that are drawn: a time that a whole run shares, and one of each measure's own."""

from collections.abc import Mapping, Sequence

import numpy as np

from sluice.history.checker.verdict import Status
from spark_load.baselines.results import Result

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
    run: str, seconds: Mapping[str, float], *, digest: str = "d", status: Status = Status.VALID, model: str = "a"
) -> Result:
    """Return a result of a run."""
    return Result(
        run=run,
        profile_name="tiny",
        profile_digest=digest,
        kind={**KIND, "model": model},
        status=status,
        seconds=dict(seconds),
        versions={},
    )


def runs(
    random: np.random.Generator, count: int, *, noise: float = 0.04, model: str = "a", level: float = 0.2
) -> list[Result]:
    """Return runs in which nothing changes, with so much noise of a run and as much of each of its times."""
    found = []
    for number in range(count):
        shared = random.normal(0, noise)
        seconds = {name: level * float(np.exp(shared + random.normal(0, noise))) for name in NAMES}
        found.append(result(f"{model}-{number}", seconds, model=model))
    return found


def slowed(of: Result, factor: float, names: Sequence[str] = NAMES) -> Result:
    """Return a run in which some times are longer."""
    seconds = {name: value * factor if name in names else value for name, value in of.seconds.items()}
    return result(of.run, seconds, model=of.kind["model"])
