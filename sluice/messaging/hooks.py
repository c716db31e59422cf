"""Calls from the runtime to metrics, spans and recorders, which the runtime does not import.

An exception of a hook is logged, and harms no message.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate

from sluice.terminal.logger import Logger
from sluice.terminal.printable import exception_text

_log = Logger()
_HOOK_FAILED = "a hook failed"


class HookSet[Hook]:
    """Several hooks, called one after the other."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def call[**P](self, method: Callable[Concatenate[Hook, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call each hook's own method of that name, e.g. `call(WorkerHooks.after_loss, message, reason)`."""
        for hook in self._hooks:
            try:
                getattr(hook, method.__name__)(*args, **kwargs)
            except Exception as error:  # a hook may be the user's code
                _log_failure(hook, _HOOK_FAILED, error)


@contextmanager
def harmless(hook: object, event: str = _HOOK_FAILED) -> Iterator[None]:
    """Log an Exception that a hook raises, and go on. Any other exception, such as SystemExit, is raised again."""
    try:
        yield
    except Exception as error:
        _log_failure(hook, event, error)


def _log_failure(hook: object, event: str, error: Exception) -> None:
    _log.warning(event, hook=type(hook).__name__, error=exception_text(error))
