"""Processes that are forked from one that has imported everything, which takes seconds."""

import multiprocessing
from multiprocessing.context import ForkServerContext

_context = multiprocessing.get_context("forkserver")
_modules: list[str] = []


def forking(*modules: str) -> ForkServerContext:
    """Return a context that forks processes from one that has imported these modules and those of all other callers.

    There is one such process for all tests of a process, and it imports the modules set last: only this module sets
    them.
    """
    _modules.extend(modules)
    _context.set_forkserver_preload(_modules)
    return _context
