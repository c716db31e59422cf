"""What producers and consumers run, so that the promises do not stop at the queue: outbox, relay, worker, inbox.

A producer needs `Outbox` and `Event`, a consumer `handler` and what a handler gets and returns; everything else is
behind `sluice`.

Each name is imported when it is first used: `sluice --help` passes here too, and needs no SQLAlchemy.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.messaging.envelope import Event
    from sluice.messaging.errors import PermanentError, TransientError
    from sluice.messaging.handlers import Ack, Context, Outcome, Reject, Retry, handler
    from sluice.messaging.outbox.outbox import Outbox
else:
    _MODULES = {
        "envelope": ("Event",),
        "errors": ("PermanentError", "TransientError"),
        "handlers": ("Ack", "Context", "Outcome", "Reject", "Retry", "handler"),
        "outbox.outbox": ("Outbox",),
    }

    def __getattr__(name: str) -> object:
        """Return one of `__all__`, from its module."""
        for module, names in _MODULES.items():
            if name in names:
                found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
