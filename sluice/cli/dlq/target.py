"""The DLQ that a command acts on, and the handling of SIGTERM and Ctrl-C while messages of it are received."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluice.aws.client import BOTO3
from sluice.cli.targets import ConsumerTarget
from sluice.clock import Clock, SystemClock
from sluice.declaration import Environment, naming
from sluice.errors import ConfigError
from sluice.messaging.database import engines
from sluice.messaging.database.choice import RowChoice
from sluice.messaging.inbox import operations
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetterQueue, StoredDeadLetter
from sluice.messaging.sqs.redrive import Choice
from sluice.messaging.waiting import Stop


def queue_client(environment: Environment, endpoint_url: str | None) -> Any:
    """Return a client of the environment's SQS."""
    return queue.client(endpoint_url, environment.region, connections=1, kind=BOTO3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqTarget:
    """The DLQ of a consumer, or of its subscription, as the options name it. No call is made before `open`.

    Args:
        target: the consumer.
        is_undelivered: the DLQ is the subscription's, with what SNS could not deliver.
        hold_seconds: visibility timeout of the messages that are received from it.
        is_forced: open the DLQ although it has a DLQ of its own, to which looking at messages can move them.
    """

    target: ConsumerTarget
    is_undelivered: bool
    hold_seconds: int
    is_forced: bool

    @property
    def name(self) -> str:
        """Return the name of the DLQ."""
        name_of = naming.undelivered_queue_name if self.is_undelivered else naming.dead_letter_queue_name
        return name_of(self.target.environment, self.target.consumer)

    def sqs(self) -> Any:
        """Return a client of SQS, for this consumer's region and endpoint."""
        return queue_client(self.target.environment, self.target.endpoint_url)

    def open(self) -> DeadLetterQueue:
        """Return the DLQ, which SQS knows.

        Raises:
            ConfigError: the DLQ has a DLQ of its own, and `is_forced` is not set.
            EndpointError: there is no such queue.
        """
        found = DeadLetterQueue(self.sqs(), self.name, hold_seconds=self.hold_seconds)
        if not self.is_forced:
            found.require_no_policy()
        return found


def letters_of(
    target: ConsumerTarget,
    choice: RowChoice,
    clock: Clock,
    *,
    event_ids: Iterable[str] = (),
    older_than_seconds: int | None = None,
) -> Choice:
    """Return a choice of rows as one of dead letters; the inbox of the target's database knows why each died.

    Raises:
        ConfigError: the choice is by reason, and no database is named.
    """
    if choice.died_of is not None:
        require_reasons(target)

    def matches_reason(dead_letter: StoredDeadLetter) -> bool:
        with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
            known = operations.dead_letter_record(connection, target.consumer.name, dead_letter)
        return choice.matches_reason((known or {}).get("reason"))

    return Choice(
        groups=choice.groups,
        types=choice.types,
        event_ids=frozenset(event_ids),
        before_us=None if older_than_seconds is None else clock.now_us() - older_than_seconds * 1_000_000,
        since_us=choice.since_us,
        died_of=None if choice.died_of is None else matches_reason,
    )


def require_reasons(target: ConsumerTarget) -> None:
    """Require the database whose inbox knows the reasons of dead letters.

    Raises:
        ConfigError: none is named.
    """
    if target.database is None:
        raise ConfigError("--died-of is given without a database, whose inbox knows the reasons; give --dsn")


class StoppableClock(SystemClock):
    """The machine's clock, whose `sleep` ends early when the process was asked to stop."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    def is_stopped(self) -> bool:
        """Return whether the process was asked to stop."""
        return self._stop.is_stopped()

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds, or until the process is asked to stop."""
        if seconds > 0:
            self._stop.wait(seconds)


@contextmanager
def stoppable() -> Iterator[tuple[Stop, StoppableClock]]:
    """Yield a `Stop` that SIGTERM and Ctrl-C set instead of ending the process, and a clock whose sleep it ends.

    So a command can release the messages that it has received before it ends.
    """
    earlier_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stop = Stop()
    stop.on_signals()
    try:
        yield stop, StoppableClock(stop)
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
