"""The page of a run that was just judged."""

from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sluice.errors import HistoryError
from sluice.history.checker.verdict import Verdict
from sluice.terminal import output
from spark_load import report
from spark_load.run import driver


def draw(spark: SparkSession, folder: Path, verdict: Verdict) -> None:
    """Draw the page of a run that was just judged. When that fails, or Ctrl-C ends it, the verdict is what it was."""
    try:
        run_series = driver.aggregate(spark, driver.find_stored(folder), verdict)
        report.write_page(verdict, run_series, folder / report.PAGE_FILE)
    except (HistoryError, ValueError, OSError, Py4JError, KeyboardInterrupt) as error:
        why = "stopped" if isinstance(error, KeyboardInterrupt) else error
        output.line(f"no page was drawn: {why}; to try again: sluice report {folder}", is_error=True)
