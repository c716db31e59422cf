"""Old import paths: a module that moved gives its names from where they are now, with a warning, for one version."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward_names(module: str, *, hint: str = "", **homes: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module whose names moved; it warns, and returns a name from its new module.

    Args:
        module: the `__name__` of the old module.
        hint: the advice of the warning, if another import is not enough.
        homes: old name to its new module, or to `module:name` if the name changed too; imported when it is used.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, now = homes[name].partition(":")
        advice = hint or (f"import {now} from {home}" if now else f"import it from {home}")
        warnings.warn(f"{module}.{name} goes with the next version: {advice}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), now or name)

    return find
