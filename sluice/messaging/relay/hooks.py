"""Hooks of a relay: the place of metrics and recorders, and of whatever a program adds.

A hook is called on the relay's thread. What it raises is logged and changes nothing.
"""

from collections.abc import Callable

from sluice.messaging.outbox.store import Head, Lag, PublishOutcome


class RelayHooks:
    """Does nothing; override what you need."""

    def before_publish(self, head: Head, taken_at_us: int) -> None:
        """Called before a message is published, as often as it is; with the database's instant it was taken at."""

    def after_publish(self, head: Head, outcome: PublishOutcome) -> None:
        """Called when it is written down what became of a publish."""

    def tick(self, measure_lag: Callable[[], Lag]) -> None:
        """Called before each step of the relay that leads; `measure_lag` asks the database what is waiting."""

    def after_end(self) -> None:
        """Called last, whatever the relay ends for."""
