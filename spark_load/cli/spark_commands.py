"""Commands in a Spark session: judge a run or a large recording, and draw a run's page."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.judge import report
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.folder.series_schema import RunSeries
from spark_load.cli.ending import page_optional
from spark_load.judge import parts
from spark_load.run import driver
from spark_load.runtime import spark_session
from spark_load.runtime.spark_session import Cluster

_JUDGING_SLOTS = 2


def check_run(
    folder: Path, target: str | None, *, clock_bound_us: int, master: str | None, remote: str | None
) -> Verdict:
    """Judge a run again, write its verdict and draw its page.

    Args:
        folder: of the run.
        target: replaces the run's target, if given: whose known deviations are allowed.
        clock_bound_us: replaces the bound of the run's clocks, if not 0.
        master: a Spark master.
        remote: a Spark Connect server.
    """
    cluster = Cluster(master=master, remote=remote or None)
    stored = driver.find_stored(folder)
    if target is not None:
        stored = replace(stored, described={**stored.described, "target": target})
    if clock_bound_us:
        stored = replace(stored, expectation=replace(stored.expectation, clock_bound_us=clock_bound_us))
    with spark_session.running(_JUDGING_SLOTS, cluster, driver.TASK_MODULES) as spark:
        verdict = driver.rejudge(spark, stored)
        draw(spark, folder, verdict)
    return verdict


@contextmanager
def recording_opened(folder: Path, *, master: str | None, remote: str | None) -> Iterator[JudgeEngine]:
    """Read a recording with Spark."""
    cluster = Cluster(master=master, remote=remote or None)
    with (
        spark_session.running(_JUDGING_SLOTS, cluster, driver.TASK_MODULES) as spark,
        parts.open_recording(spark, folder) as opened,
    ):
        yield opened


def draw(spark: SparkSession, folder: Path, verdict: Verdict) -> None:
    """Draw the page of a run that was just judged.

    A failure or Ctrl-C is reported, and leaves the verdict unchanged.
    """
    with page_optional(f"to try again: sluice report {folder}"):
        run_series = driver.aggregate(spark, driver.find_stored(folder), verdict)
        report.write_page(verdict, run_series, folder / report.PAGE_FILE)


def series_again(folder: Path, verdict: Verdict) -> RunSeries:
    """Aggregate again the data for the page of a judged run, and store it."""
    stored = driver.find_stored(folder)
    with spark_session.running(_JUDGING_SLOTS) as spark:
        return driver.aggregate(spark, stored, verdict)
