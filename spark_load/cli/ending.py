"""What every command that ends in a verdict says last."""

import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console

from sluice.errors import HistoryError
from sluice.history.checker.verdict import Verdict
from sluice.terminal import output
from spark_load import report
from spark_load.run import driver

_REASONS_MAX = 5  # repeated at the very end, where people look; the summary has them all


def draw(spark: SparkSession, folder: Path, verdict: Verdict) -> None:
    """Draw the page of a run that was just judged. When that fails, or Ctrl-C ends it, the verdict is what it was."""
    try:
        run_series = driver.aggregate(spark, driver.find_stored(folder), verdict)
        report.write_page(verdict, run_series, folder / report.PAGE_FILE)
    except (HistoryError, ValueError, OSError, Py4JError, KeyboardInterrupt) as error:
        why = "stopped" if isinstance(error, KeyboardInterrupt) else error
        output.line(f"no page was drawn: {why}; to try again: sluice report {folder}", is_error=True)


def finish(verdict: Verdict, folder: Path, *, as_json: bool) -> None:
    """Show the verdict and end with its exit code."""
    if as_json:
        output.as_json(verdict.as_json())
    else:
        report.show(verdict, Console())
    why = [
        *verdict.unknowns,
        *(f"{violation.anomaly}: {violation.sentence}" for violation in verdict.violations),
        *verdict.crossed,
    ]
    for reason in why[:_REASONS_MAX]:
        output.line(reason, is_error=True)
    pages = (folder / report.VERDICT_FILE, folder / report.SUMMARY_FILE, folder / report.PAGE_FILE)
    output.line(
        f"{verdict.status.value.upper()}: {', '.join(str(page) for page in pages if page.exists())}", is_error=True
    )
    sys.exit(verdict.exit_code)
