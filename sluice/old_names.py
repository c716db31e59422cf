"""Old import paths: a module that moved gives its names from where they are now, with a warning, for one version."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward_names(module: str, *, hint: str = "", **homes: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names are elsewhere now.

    Args:
        module: its `__name__`.
        hint: what to do, where another import is not enough.
        homes: each name to the module it is in now, imported when the name is used; `module:name` of another name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, now = homes[name].partition(":")
        advice = hint or (f"import {now} from {home}" if now else f"import it from {home}")
        warnings.warn(f"{module}.{name} goes with the next version: {advice}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), now or name)

    return find
