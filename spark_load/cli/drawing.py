"""The page of a run that was just judged."""

from pathlib import Path

from pyspark.sql import SparkSession

from sluice.history.checker.verdict import Verdict
from spark_load import report
from spark_load.cli.ending import page_optional
from spark_load.run import driver


def draw(spark: SparkSession, folder: Path, verdict: Verdict) -> None:
    """Draw the page of a run that was just judged. When that fails, or Ctrl-C ends it, the verdict is what it was."""
    with page_optional(f"to try again: sluice report {folder}"):
        run_series = driver.aggregate(spark, driver.find_stored(folder), verdict)
        report.write_page(verdict, run_series, folder / report.PAGE_FILE)
