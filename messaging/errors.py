"""The errors `messaging` raises besides those of `sluice.errors`.

MessagingError (sluice.errors)
├── EnvelopeError     an event cannot be sent, or what came is no envelope: the field is named
├── OutboxError       the outbox is used or laid out in a way that would lose its promise
├── LeaseLost         another relay leads: stop writing
└── TransientError    try again later: nothing is wrong with the message
"""

from sluice.errors import MessagingError


class EnvelopeError(MessagingError):
    """Raised when an event cannot become a message, or a message is no envelope."""


class OutboxError(MessagingError):
    """Raised when the outbox's tables are missing, differ, or are used where no promise can be kept."""


class LeaseLost(MessagingError):
    """Raised by a write whose token is no longer the leader's."""


class TransientError(MessagingError):
    """Raised when the other side cannot be reached now."""
