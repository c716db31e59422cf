"""Hooks of a relay: metrics, recorders and programs override its methods.

A hook is called on the relay's thread. An exception of a hook is logged, and changes nothing.
"""

from collections.abc import Callable

from sluice.messaging.outbox.store import Head, Lag, PublishOutcome


class RelayHooks:
    """Hooks that do nothing; override the methods you need."""

    def before_publish(self, head: Head, taken_at_us: int) -> None:
        """Called before each try to publish a message.

        `taken_at_us` is the database's time when the relay read the head.
        """

    def after_publish(self, head: Head, outcome: PublishOutcome) -> None:
        """Called after the outcome of a publish was written to the database."""

    def tick(self, measure_lag: Callable[[], Lag]) -> None:
        """Called before each step of the leading relay.

        `measure_lag` queries the database for the lag of the outbox.
        """

    def after_end(self) -> None:
        """Called as the last hook, whatever the reason for which the relay ends."""
