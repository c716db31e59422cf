"""The errors `messaging` raises besides those of `sluice.errors`.

MessagingError (sluice.errors)
├── EnvelopeError     an event cannot be sent, or a body is not an envelope: the field is named
├── OutboxError       the outbox or the inbox is used or laid out in a way that would lose its promise
├── DeadLetterError   a message is not in the place or state that an operator's action needs
├── LeaseLostError    another relay leads: stop writing
├── HoldLostError     another consumer may have the message now: stop, and change nothing
├── TransientError    try again later: nothing is wrong with the message
└── PermanentError    never try again unchanged: the message goes to the DLQ
"""

from sluice.errors import MessagingError
from sluice.old_names import forward_names

__getattr__ = forward_names(__name__, HoldLost=f"{__name__}:HoldLostError", LeaseLost=f"{__name__}:LeaseLostError")


class EnvelopeError(MessagingError):
    """Raised when an event cannot become a message, or a body is not an envelope."""


class OutboxError(MessagingError):
    """Raised when the tables are missing, differ, or the database cannot keep the promises."""


class DeadLetterError(MessagingError):
    """Raised when a message an operator names is not there, or is not in the state the act is for."""


class LeaseLostError(MessagingError):
    """Raised by a write whose token is no longer the leader's."""


class HoldLostError(MessagingError):
    """Raised when a message's visibility timeout has ended, or the worker has to release it."""


class TransientError(MessagingError):
    """Raised when a service is unreachable. A handler raises it to be called again later."""


class PermanentError(MessagingError):
    """Raised by a handler that can never accept this message."""
