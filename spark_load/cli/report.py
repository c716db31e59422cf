"""`report` and `compare`: the page of a stored run, and the comparison of two."""

import sys
from pathlib import Path

import click

from sluice.errors import ConfigError, HistoryError
from sluice.judge import report as run_report
from sluice.judge.folder.layout import RUN_FILE
from sluice.terminal import output as terminal
from sluice.terminal.files import require_writable
from sluice.terminal.values import NumberType
from spark_load.baselines import comparison
from spark_load.cli.ending import print_markdown

_RUN = click.Path(file_okay=False, path_type=Path)
_RATIO = NumberType("times", 1e-6, 1e6)


@click.command()
@click.argument("folder", metavar="RUN", type=_RUN)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Where the page goes.  [default: {run_report.PAGE_FILE} in RUN]",
)
def report(folder: Path, output: Path | None) -> None:
    """Draw the page of the judged run in the folder RUN again, and print where it is.

    It needs Spark and the run's history only when the data of the charts was not stored with the verdict. The page
    repeats the stored verdict; the exit code is 0 for every verdict.
    """
    if output is not None:
        require_writable(output, "--output")
    verdict = run_report.read_verdict(folder)
    run_series = None
    try:
        run_series = run_report.read_series(folder, verdict)
    except HistoryError as error:
        terminal.line(f"sluice: {error}", is_error=True)
    if run_series is None:
        if not (folder / RUN_FILE).exists():
            raise HistoryError(
                f"{folder} is a recording, and what its page shows was not stored with its verdict; judge it again:"
                f" sluice check {folder}"
            )
        from spark_load.cli import spark_commands  # noqa: PLC0415 (Spark takes a second to load, and is rarely needed)

        run_series = spark_commands.series_again(folder, verdict)
    path = folder / run_report.PAGE_FILE if output is None else output
    run_report.write_page(verdict, run_series, path)
    click.echo(str(path))


@click.command()
@click.argument("first", metavar="RUN", type=_RUN)
@click.argument("second", metavar="RUN", type=_RUN)
@click.option(
    "--latency-ratio-max",
    metavar="RATIO",
    type=_RATIO,
    help="How many times the first run's p50, p95 and p99 the second's may be, in any queue.",
)
@click.option(
    "--rate-ratio-min",
    metavar="RATIO",
    type=_RATIO,
    help="The least the second run's rate of receives may be of the first's, in any queue.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON on standard output.")
@click.option("--force", is_flag=True, help="Also compare runs of different profiles.")
def compare(
    first: Path,
    second: Path,
    latency_ratio_max: float | None,
    rate_ratio_min: float | None,
    as_json: bool,
    force: bool,
) -> None:
    """Show two judged runs side by side, the second RUN against the first.

    \b
    Exit codes:
       0  the second is no worse
       1  it broke a promise that the first kept
       2  it is UNKNOWN, or a verdict is damaged: nobody can say whether it is worse
       3  wrong usage, a folder without a verdict, or different profiles without --force
      99  it crossed a ratio given here, or a threshold of its profile that the first kept

    If the first run was UNKNOWN or INVALID, look at its verdict, too.
    """
    if first.resolve() == second.resolve():
        raise ConfigError(f"both runs are {first}, allowed are two; name another")
    compared = comparison.compare(
        run_report.read_verdict(first),
        run_report.read_verdict(second),
        comparison.Limits(latency_ratio_max=latency_ratio_max, rate_ratio_min=rate_ratio_min),
    )
    if compared.profile and not force:
        name, both = next(iter(compared.profile.items()))
        more = f" and {len(compared.profile) - 1} more" if len(compared.profile) > 1 else ""
        raise ConfigError(
            f"the profiles differ in {name} ({both[0]} and {both[1]}){more}: what they measured is not the same thing;"
            " compare runs of one profile, or add --force"
        )
    if as_json:
        terminal.as_json(compared.as_json())
    else:
        print_markdown(comparison.markdown(compared))
    sys.exit(compared.exit_code)
