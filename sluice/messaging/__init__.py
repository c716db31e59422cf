"""The runtime of producers and consumers: outbox, relay, worker, inbox.

A producer imports `Outbox` and `Event`, and on AWS `database_engine` or `async_database_engine`. A consumer imports
`handler`, and the types that a handler receives and returns. Both import `event_type` and `event_of` for typed events.
Everything else is used through the command `sluice`.

Each name is imported when it is first used, because `sluice --help` imports this package too and needs no SQLAlchemy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.messaging.aws_lambda.handler import lambda_handler
    from sluice.messaging.database.rotation import async_database_engine, database_engine
    from sluice.messaging.envelope import Event
    from sluice.messaging.errors import PermanentError, TransientError
    from sluice.messaging.event_types import event_of, event_type
    from sluice.messaging.handlers import Ack, Context, Outcome, Reject, Retry, handler
    from sluice.messaging.outbox.outbox import Outbox
else:
    from sluice.extras import facade

    __getattr__ = facade(
        __name__,
        "worker",
        {
            "aws_lambda.handler": ("lambda_handler",),
            "database.rotation": ("async_database_engine", "database_engine"),
            "envelope": ("Event",),
            "errors": ("PermanentError", "TransientError"),
            "event_types": ("event_of", "event_type"),
            "handlers": ("Ack", "Context", "Outcome", "Reject", "Retry", "handler"),
            "outbox.outbox": ("Outbox",),
        },
    )

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
    "async_database_engine",
    "database_engine",
    "event_of",
    "event_type",
    "handler",
    "lambda_handler",
]
