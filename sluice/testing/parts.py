"""Parts that the harness gives to a worker: a queue that remembers, a log of attempts, a wait that moves a clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluice.messaging import Event
from sluice.messaging.handlers import Context, Outcome
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.worker.hooks import TakeOutcome, WorkerHooks
from sluice.testing.simulated_aws import SimulatedAws


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call of a handler.

    Args:
        event: the event the handler was called with.
        seq: the event's place in its group, from 1.
        number: the number of the attempt at this event, from 1.
        outcome: what the handler returned; None where the worker died before, or lost the message.
    """

    event: Event
    seq: int
    number: int
    outcome: Outcome | None


class AcknowledgedQueue(Queue):
    """A queue that remembers the last message it delivered and deleted, so that a test can deliver it again."""

    def __init__(self, sqs: Any, url: str) -> None:
        super().__init__(sqs, url)
        self._received: ReceivedMessage | None = None
        self.acknowledged: ReceivedMessage | None = None

    def receive(self, *, attempt_id: str | None, wait_seconds: int) -> ReceivedMessage | None:
        """Receive a message and remember it."""
        self._received = super().receive(attempt_id=attempt_id, wait_seconds=wait_seconds)
        return self._received

    def delete(self, receipt_handle: str) -> None:
        """Delete a message. If the receipt handle is that of the last receive, remember it as acknowledged."""
        super().delete(receipt_handle)
        if self._received is not None and self._received.receipt_handle == receipt_handle:
            self.acknowledged = self._received


class AttemptLog(WorkerHooks):
    """Hooks of a worker that append each call of a handler to a list."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._attempts = attempts

    @contextmanager
    def handling(self, event: Event, context: Context) -> Iterator[TakeOutcome]:
        """Append an attempt when the handler's call is over, with its outcome if the worker took one."""
        outcomes: list[Outcome] = []
        try:
            yield outcomes.append
        finally:
            outcome = outcomes[0] if outcomes else None
            self._attempts.append(Attempt(event=event, seq=context.seq, number=context.attempt, outcome=outcome))


class ClockWait:
    """A wait of a worker that moves the virtual clock instead of sleeping."""

    def __init__(self, aws: SimulatedAws) -> None:
        self._aws = aws

    def wait(self, seconds: float) -> None:
        """Move the clock by so many seconds."""
        self._aws.advance(seconds)

    def is_stopped(self) -> bool:
        """Return False: a worker in a harness is never asked to stop, it works only when a test lets it."""
        return False
