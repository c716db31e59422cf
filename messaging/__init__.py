"""What producers and consumers run, so that the promises do not stop at the queue: outbox, relay, worker, inbox.

A producer needs `Outbox` and `Event`, a consumer `handler` and what a handler gets and returns; everything else is
behind `python -m messaging`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from messaging.envelope import Event
    from messaging.errors import PermanentError, TransientError
    from messaging.handlers import Ack, Context, Outcome, Reject, Retry, handler
    from messaging.outbox import Outbox

__all__ = [
    "Ack",
    "Context",
    "Event",
    "Outbox",
    "Outcome",
    "PermanentError",
    "Reject",
    "Retry",
    "TransientError",
    "handler",
]

_MODULES = {
    "Event": "envelope",
    "Outbox": "outbox",
    **dict.fromkeys(("PermanentError", "TransientError"), "errors"),
    **dict.fromkeys(("Ack", "Context", "Outcome", "Reject", "Retry", "handler"), "handlers"),
}

if not TYPE_CHECKING:  # it would take any name for one of these

    def __getattr__(name: str) -> object:
        """Import a name where it is first used: `python -m messaging alive` needs none, and runs every few seconds."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"messaging.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names there are, imported or not."""
    return sorted({*globals(), *__all__})
