"""Which DLQ a command is about, and how it is interrupted."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from messaging import queue
from messaging.cli.place import ConsumerPlace, as_command, at_consumer
from messaging.dead_letters import HOLD_SECONDS, DeadLetterQueue
from messaging.waiting import Stop
from sluice import limits, naming
from sluice.clock import SystemClock
from sluice.declaration import Environment


def queue_client(environment: Environment, endpoint_url: str | None) -> Any:
    """Return a client of the environment's SQS."""
    return queue.client(endpoint_url, environment.region, connections=1)


def at_dlq(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `at_consumer`, `--undelivered`, `--hold` and `--force`; hand it place and DLQ."""

    @at_consumer
    @click.option("--undelivered", is_flag=True, help="What SNS could not deliver, not what the consumer gave up.")
    @click.option(
        "--hold",
        "hold_seconds",
        type=click.IntRange(2, limits.VISIBILITY_TIMEOUT_SECONDS_MAX),
        default=HOLD_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="What was received is there again after so long, should this process die.",
    )
    @click.option("--force", is_flag=True, help="Also where the DLQ has a DLQ of its own, and looking moves messages.")
    def placed(place: ConsumerPlace, undelivered: bool, hold_seconds: int, force: bool, **given: Any) -> None:
        name_of = naming.undelivered_queue_name if undelivered else naming.dead_letter_queue_name
        sqs = queue_client(place.environment, place.endpoint_url)
        found = DeadLetterQueue(sqs, name_of(place.environment, place.consumer), hold_seconds=hold_seconds)
        if not force:
            found.require_no_policy()
        command(place, found, **given)

    return as_command(command, placed)


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
