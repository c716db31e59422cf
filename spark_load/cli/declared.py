"""The option that names the declaration's file, and what it declares."""

import os
from collections.abc import Callable
from pathlib import Path

import click

from sluice.declaration import Declaration, load_declaration, loading


def declaration_option[**P, R](command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `--declaration`."""
    option = click.option(
        "--declaration",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Where environments are declared.  [default: $SLUICE_DECLARATION, else environments.py]",
    )
    return option(command)


def declared(path: Path | None) -> Declaration:
    """Return the declaration, of which the workers that are started will have the same.

    Raises:
        ConfigError: there is none, or it declares what cannot be right.
    """
    declaration = load_declaration(path)
    if path is not None:
        os.environ[loading.VARIABLE] = str(declaration.path)
    return declaration
