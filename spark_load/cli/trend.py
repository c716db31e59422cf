"""`trend`: a run beside the runs of its profile before it."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sluice.errors import ConfigError, MessagingError
from sluice.judge import report
from sluice.judge.checker.verdict import Verdict
from sluice.terminal import output
from sluice.terminal.files import require_writable
from sluice.terminal.values import Whole
from spark_load.baselines import results
from spark_load.baselines.results import RESULTS_FILE, RunResult
from spark_load.baselines.trend import BEFORE_MIN, markdown
from spark_load.baselines.trend import trend as compared
from spark_load.cli.ending import print_markdown


@click.command(short_help="Compare a run with the runs of its profile before it.")
@click.argument("folder", metavar="[RUN]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--results",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The results of runs.  [default: {RESULTS_FILE} beside RUN, or in runs]",
)
@click.option(
    "--last",
    type=Whole(BEFORE_MIN, 1_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Runs before it that count.",
)
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw one HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output.")
def trend(folder: Path | None, path: Path | None, last: int, page: Path | None, as_json: bool) -> None:
    """Compare the folder RUN, or the newest run on record, with the last N valid runs before it.

    Those are runs of the same profile on the same kind of machine. Of every time it is tested whether the newest one,
    three or five runs are slower than the ones before.

    \b
    Exit codes: 0 not slower, 2 unknown (the run is not valid, or a file is damaged), 3 wrong usage,
    98 too few runs before it yet, 99 a time became longer by 5 % or more. Of 100 runs that changed
    nothing about one ends with 99 if runs vary without outliers, and with them more: run again
    before you believe it.

    \b
    Examples:
      sluice load run release-gate && sluice load trend
      sluice load trend runs/<run> --page trend.html
    """
    if page is not None:
        require_writable(page, "--page")
    file = path or ((Path("runs") if folder is None else folder.resolve().parent) / RESULTS_FILE)
    given = None if folder is None else results.result_of(report.read_verdict(folder))
    others = results.read(file)
    comparison = compared(given or _newest(others, file), others, last=last)
    if as_json:
        output.as_json(comparison.as_json())
    else:
        print_markdown(markdown(comparison))
    if page is not None:
        from spark_load.baselines import page as drawing  # noqa: PLC0415 (what draws takes a second to load)

        drawing.write(comparison, page)
        output.line(f"page: {page}", is_error=True)
    if comparison.unknown is not None:
        output.line(comparison.unknown, is_error=True)
    sys.exit(comparison.exit_code)


def _newest(others: Sequence[RunResult], file: Path) -> RunResult:
    """Return the run that was added last."""
    if not others:
        raise ConfigError(f"there is no run in {file}; `sluice load run` adds each run")
    return others[-1]


def remember(verdict: Verdict, runs: Path) -> None:
    """Add a run's result to the file beside its folder; leave out a sabotaged or resumed run.

    If the file cannot be written, a line on standard error says so, and the verdict is unchanged.
    """
    if verdict.run.get("saboteur") is not None:
        return
    try:
        results.append(results.result_of(verdict), runs / RESULTS_FILE)
    except MessagingError as error:
        output.line(f"not added to {RESULTS_FILE}: {error}", is_error=True)
