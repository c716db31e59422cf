"""`check` with Spark: of a run, and of a recording that is too large for one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sluice.history.checker.verdict import Verdict
from spark_load.cli.drawing import draw
from spark_load.judge.spark import engine
from spark_load.judge.spark.engine import SparkEngine
from spark_load.run import driver
from spark_load.runtime import spark_session
from spark_load.runtime.spark_session import Cluster

_JUDGING_SLOTS = 2


def check_run(folder: Path, target: str | None, *, master: str | None, remote: str | None) -> Verdict:
    """Judge a run again, write its verdict and draw its page.

    Args:
        folder: of the run.
        target: key into `sluice.deviations`, instead of the one it was run with.
        master: of a cluster, see `spark_session.Cluster`.
        remote: of a cluster.
    """
    cluster = Cluster(master=master, remote=remote or None)
    stored = driver.find_stored(folder)
    if target is not None:
        stored = replace(stored, described={**stored.described, "target": target})
    with spark_session.running(_JUDGING_SLOTS, cluster, driver.TASK_MODULES) as spark:
        verdict = driver.rejudge(spark, stored)
        draw(spark, folder, verdict)
    return verdict


@contextmanager
def recording_opened(place: Path, *, master: str | None, remote: str | None) -> Iterator[SparkEngine]:
    """Read a recording with Spark."""
    cluster = Cluster(master=master, remote=remote or None)
    with (
        spark_session.running(_JUDGING_SLOTS, cluster, driver.TASK_MODULES) as spark,
        engine.opened(spark, place) as opened,
    ):
        yield opened
