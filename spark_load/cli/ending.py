"""The last lines of every command that ends in a verdict."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markdown import Markdown

from sluice.errors import HistoryError
from sluice.judge import report
from sluice.judge.checker.anomalies import ANOMALIES
from sluice.judge.checker.verdict import Verdict
from sluice.judge.report.summary import caveats, harm_sentence, where
from sluice.terminal import output

_REASONS_MAX = 5  # are printed again at the end, where people look; the summary has all


@contextmanager
def page_optional(next_step: str) -> Iterator[None]:
    """Draw a page in the block. If that fails, or Ctrl-C ends it, print the reason and `next_step`, and go on."""
    try:
        yield
    except (HistoryError, ImportError, ValueError, OSError, KeyboardInterrupt) as error:
        why = "stopped" if isinstance(error, KeyboardInterrupt) else error
        output.line(f"no page was drawn: {why}; {next_step}", is_error=True)


def finish(verdict: Verdict, folder: Path, *, as_json: bool, is_whole: bool = False) -> NoReturn:
    """Print the verdict, its first reasons and the paths of its files, and end the process with its exit code.

    Args:
        verdict: of the history.
        folder: of the history, with the written files.
        as_json: whether to print JSON instead of Markdown.
        is_whole: whether the Markdown has also the properties that held or were not exercised.
    """
    if as_json:
        output.as_json(verdict.as_json())
    else:
        print_markdown(report.markdown(verdict, is_whole=is_whole))
    why = [
        *verdict.unknowns,
        *(
            f"{violation.anomaly} {ANOMALIES[violation.anomaly].name} in {where(violation)}: {violation.sentence}"
            for violation in verdict.violations
        ),
        *verdict.crossed_thresholds,
        *verdict.conduct,
    ]
    for reason in why[:_REASONS_MAX]:
        output.line(reason, is_error=True)
    files = (folder / report.VERDICT_FILE, folder / report.SUMMARY_FILE, folder / report.PAGE_FILE)
    harm = harm_sentence(verdict)
    status = "; ".join([verdict.status.value.upper(), *([] if harm is None else [harm]), *caveats(verdict)])
    output.line(f"{status}: {', '.join(str(page) for page in files if page.exists())}", is_error=True)
    sys.exit(verdict.exit_code)


def print_markdown(text: str) -> None:
    """Print Markdown as a terminal shows it."""
    Console().print(Markdown(text))
