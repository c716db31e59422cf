"""Which DLQ a command is about, and how it is interrupted."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluice.aws.client import BOTO3
from sluice.cli.targets import ConsumerTarget
from sluice.clock import SystemClock
from sluice.declaration import Environment, naming
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue
from sluice.messaging.waiting import Stop


def queue_client(environment: Environment, endpoint_url: str | None) -> Any:
    """Return a client of the environment's SQS."""
    return queue.client(endpoint_url, environment.region, connections=1, kind=BOTO3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqTarget:
    """The DLQ of a consumer, or of its subscription. SQS is not asked for it before it is opened.

    Args:
        is_undelivered: it is the subscription's.
        is_forced: look at it although it has a DLQ of its own.
    """

    target: ConsumerTarget
    is_undelivered: bool
    hold_seconds: int
    is_forced: bool

    @property
    def name(self) -> str:
        """Return the name of the queue."""
        name_of = naming.undelivered_queue_name if self.is_undelivered else naming.dead_letter_queue_name
        return name_of(self.target.environment, self.target.consumer)

    def sqs(self) -> Any:
        """Return a client of its SQS."""
        return queue_client(self.target.environment, self.target.endpoint_url)

    def open(self) -> DeadLetterQueue:
        """Return the queue.

        Raises:
            ConfigError: it has a DLQ of its own, and looking at it is not forced.
            EndpointError: it is not there.
        """
        found = DeadLetterQueue(self.sqs(), self.name, hold_seconds=self.hold_seconds)
        if not self.is_forced:
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
