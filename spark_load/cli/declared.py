"""The option that names the declaration's file, and what it declares."""

import os
from pathlib import Path

from sluice.declaration import Declaration, load_declaration, loading


def declared(path: Path | None) -> Declaration:
    """Return the declaration, of which the workers that are started will have the same.

    Raises:
        ConfigError: there is none, or it declares what cannot be right.
    """
    declaration = load_declaration(path)
    if path is not None:
        os.environ[loading.VARIABLE] = str(declaration.path)
    return declaration
