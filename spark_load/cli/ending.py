"""What every command that ends in a verdict says last."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from sluice.verdict import Verdict
from spark_load import report

_REASONS_MAX = 5  # repeated at the very end, where people look; the summary has them all


def finish(verdict: Verdict, folder: Path, *, as_json: bool) -> None:
    """Show the verdict and end with its exit code."""
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        report.show(verdict, Console())
    why = [*verdict.unknowns, *(f"{one.anomaly}: {one.sentence}" for one in verdict.violations)]
    for reason in why[:_REASONS_MAX]:
        click.echo(reason, err=True)
    click.echo(
        f"{verdict.status.value.upper()}: {folder / report.VERDICT_FILE}, {folder / report.SUMMARY_FILE}", err=True
    )
    sys.exit(verdict.exit_code)
