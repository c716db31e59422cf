"""Loops over rows that numba compiles, where there are many rows and numba is installed.

Few rows are not worth loading it; and without it, the same loops run in Python, some hundred times slower.
"""

from collections.abc import Callable
from functools import cache, wraps
from pickle import UnpicklingError

import numpy as np

INTERPRETED_MAX = 20_000
"""Rows up to which Python takes no longer than to load what was compiled."""


def compiled[**P, R](loop: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over the rows of its first argument, once a machine where a folder can be written to.

    Numba keeps it in `__pycache__` beside the module, else in the user's cache; `NUMBA_CACHE_DIR` names another place.
    """

    @cache
    def made(*, is_kept: bool) -> Callable[P, R]:
        try:
            from numba import njit  # noqa: PLC0415 (0.3 seconds to load)
        except ImportError:
            return loop
        try:
            return njit(cache=is_kept)(loop)  # type: ignore[no-any-return]
        except RuntimeError:  # there is no place to write to
            return njit(loop)  # type: ignore[no-any-return]

    @wraps(loop)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        rows: np.ndarray = args[0]  # type: ignore[assignment]
        if len(rows) <= INTERPRETED_MAX:
            return loop(*args, **kwargs)
        try:
            return made(is_kept=True)(*args, **kwargs)
        except (OSError, EOFError, UnpicklingError):  # numba keeps it, or looks for what is kept, before it runs
            return made(is_kept=False)(*args, **kwargs)

    return run
