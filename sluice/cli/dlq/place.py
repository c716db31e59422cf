"""Which DLQ a command is about, and how it is interrupted."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sluice.cli.place import ConsumerTarget
from sluice.clock import SystemClock
from sluice.declaration import Environment, naming
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue
from sluice.messaging.waiting import Stop


def queue_client(environment: Environment, endpoint_url: str | None) -> Any:
    """Return a client of the environment's SQS."""
    return queue.client(endpoint_url, environment.region, connections=1)


def dlq_of(place: ConsumerTarget, *, is_undelivered: bool, hold_seconds: int, is_forced: bool) -> DeadLetterQueue:
    """Return the consumer's DLQ, or that of its subscription.

    Raises:
        ConfigError: it has a DLQ of its own, and looking at it is not forced.
        EndpointError: it is not there.
    """
    name_of = naming.undelivered_queue_name if is_undelivered else naming.dead_letter_queue_name
    sqs = queue_client(place.environment, place.endpoint_url)
    found = DeadLetterQueue(sqs, name_of(place.environment, place.consumer), hold_seconds=hold_seconds)
    if not is_forced:
        found.require_no_policy()
    return found


class StoppableClock(SystemClock):
    """The machine's clock, whose sleep ends when the process is to end."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def sleep(self, seconds: float) -> None:
        """Wait that long, or until stopped."""
        if seconds > 0:
            self._stop.wait(seconds)


@contextmanager
def stoppable() -> Iterator[tuple[Stop, StoppableClock]]:
    """Let SIGTERM and Ctrl-C ask for an end meanwhile, instead of being one: what was received is given back first."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stop = Stop()
    stop.on_signals()
    try:
        yield stop, StoppableClock(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
