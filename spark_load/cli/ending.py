"""What every command that ends in a verdict says last."""

import json
import sys
from pathlib import Path

import click
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console

from sluice.errors import HistoryError
from sluice.verdict import Verdict
from spark_load import driver, report

_REASONS_MAX = 5  # repeated at the very end, where people look; the summary has them all


def draw(spark: SparkSession, folder: Path, verdict: Verdict) -> None:
    """Draw the page of a run that was just judged. When that fails, or Ctrl-C ends it, the verdict is what it was."""
    try:
        said = driver.aggregate(spark, driver.find_stored(folder), verdict)
        report.write_page(verdict, said, folder / report.PAGE_FILE)
    except (HistoryError, ValueError, OSError, Py4JError, KeyboardInterrupt) as error:
        why = "stopped" if isinstance(error, KeyboardInterrupt) else error
        click.echo(f"no page was drawn: {why}; to try again: python -m spark_load report {folder}", err=True)


def finish(verdict: Verdict, folder: Path, *, as_json: bool) -> None:
    """Show the verdict and end with its exit code."""
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        report.show(verdict, Console())
    why = [*verdict.unknowns, *(f"{one.anomaly}: {one.sentence}" for one in verdict.violations), *verdict.crossed]
    for reason in why[:_REASONS_MAX]:
        click.echo(reason, err=True)
    pages = (folder / report.VERDICT_FILE, folder / report.SUMMARY_FILE, folder / report.PAGE_FILE)
    click.echo(f"{verdict.status.value.upper()}: {', '.join(str(page) for page in pages if page.exists())}", err=True)
    sys.exit(verdict.exit_code)
