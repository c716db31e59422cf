"""`sluice contracts`: the contract suite where it is installed, without a checkout."""

import sys
from pathlib import Path

import click
import pytest

_SUITE = Path(__file__).resolve().parent


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
)
@click.argument("arguments", metavar="[PYTEST OPTIONS]", nargs=-1, type=click.UNPROCESSED)
def contracts(arguments: tuple[str, ...]) -> None:
    """Verify every promise against an endpoint: pytest runs the contract suite, and takes all of its options.

    \b
    Examples:
      sluice contracts --target simulator -m core
      sluice contracts --endpoint-url http://localhost:4566 -m "not deployment"
      sluice contracts --queue-url URL --target aws --i-will-pay
    Options of the suite itself: sluice contracts -- --help, under "contracts".
    Exit codes are pytest's: 0 every promise is kept, 1 one is broken, 2 to 5 nothing can be concluded.
    """
    own = ["-c", str(_SUITE / "suite.ini"), "--rootdir", str(_SUITE), "--confcutdir", str(_SUITE)]
    sys.exit(pytest.main([*own, str(_SUITE), *arguments]))
