"""What producers and consumers run, so that the promises do not stop at the queue: outbox, relay, worker, inbox.

A producer needs `Outbox` and `Event`, a consumer `handler` and what a handler gets and returns; everything else is
behind `python -m messaging`.
"""

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
