"""The four ways in which the work on a message, or on an event of a bundle, ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delete:
    """The message was handled: delete it."""


@dataclass(frozen=True, slots=True)
class Release:
    """The message is to be delivered again: release it."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class MoveToDlq:
    """The message is dead: it belongs into the DLQ, and no longer into the queue."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Another consumer may hold the message: leave it alone."""


type Acknowledgement = Delete | Release | MoveToDlq | Abandon
