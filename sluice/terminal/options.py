"""Options that every command line has."""

from collections.abc import Callable
from pathlib import Path

import click


def declaration_option[**P, R](command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `--declaration`: the file, or None."""
    option = click.option(
        "--declaration",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Where it is declared.  [default: $SLUICE_DECLARATION, else environments.py]",
    )
    return option(command)
