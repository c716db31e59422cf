"""Loops over rows that numba compiles, where there are many rows and numba is installed.

Few rows are not worth loading it; and without it, the same loops run in Python, some hundred times slower.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from pickle import UnpicklingError
from types import FunctionType

import numpy as np

INTERPRETED_MAX = 20_000
"""Up to so many rows, in all calls of a loop in this process, Python takes no longer than loading compiled code."""


def compile_loop[**P, R](loop: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over the rows of its first argument, once for each user where a folder can be written to.

    What numba compiled is kept in the user's cache, see `with_stable_file`; `NUMBA_CACHE_DIR` names another place.
    """
    row_count = 0

    @cache
    def make(*, is_kept: bool) -> Callable[P, R]:
        try:
            from numba import njit  # noqa: PLC0415 (0.3 seconds to load)
        except ImportError:
            return loop
        try:
            return njit(cache=is_kept)(with_stable_file(loop) if is_kept else loop)  # type: ignore[no-any-return]
        except (OSError, RuntimeError):  # no folder for the cache can be written to
            return njit(loop)  # type: ignore[no-any-return]

    @wraps(loop)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal row_count
        rows: np.ndarray = args[0]  # type: ignore[assignment]
        row_count += len(rows)
        if row_count <= INTERPRETED_MAX:
            return loop(*args, **kwargs)
        try:
            return make(is_kept=True)(*args, **kwargs)
        except (OSError, EOFError, UnpicklingError):  # the cache cannot be written or read
            return make(is_kept=False)(*args, **kwargs)

    return run


def with_stable_file[**P, R](loop: Callable[P, R]) -> Callable[P, R]:
    """Return the loop as if it stood in a file whose name is a hash of its code, constants and types.

    Numba keys its cache by the path and text of a module. That would miss a changed constant of another module, and
    would miss every time on Spark's executors, whose modules are in a zip with a new path for every application.
    """
    assert isinstance(loop, FunctionType), "only plain functions are decorated"
    code, known = loop.__code__, loop.__globals__
    constants = {name: known[name] for name in code.co_names if isinstance(known.get(name), int | float | np.generic)}
    content = repr((code.co_code, code.co_varnames, code.co_names, code.co_consts, constants, loop.__annotations__))
    named = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    folder = Path(named or Path.home() / ".cache") / "sluice"
    path = folder / f"{loop.__name__}_{hashlib.sha256(content.encode()).hexdigest()[:16]}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
    return FunctionType(
        code.replace(co_filename=str(path), co_firstlineno=1), known, loop.__name__, None, loop.__closure__
    )
