"""Options that every command line has."""

from pathlib import Path

import click

declaration_option = click.option(
    "--declaration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where it is declared.  [default: $SLUICE_DECLARATION, else environments.py]",
)
