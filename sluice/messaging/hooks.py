"""Calls from the core to whoever looks on: it knows no metric, no span and no recorder.

What a hook raises is logged, and costs no message anything.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate

from sluice.terminal.logger import Logger
from sluice.terminal.printable import exception_text

_log = Logger()


class HookSet[Hook]:
    """Several hooks, called one after the other."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def call[**P](self, method: Callable[Concatenate[Hook, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call each hook's own method of that name, e.g. `call(WorkerHooks.after_loss, message, reason)`."""
        for hook in self._hooks:
            with harmless(hook):
                getattr(hook, method.__name__)(*args, **kwargs)


@contextmanager
def harmless(hook: object, event: str = "a hook failed") -> Iterator[None]:
    """Log what a hook raises, and go on; what is no Exception ends the thread, as it would anywhere."""
    try:
        yield
    except Exception as error:  # somebody else's code
        _log.warning(event, hook=type(hook).__name__, error=exception_text(error))
