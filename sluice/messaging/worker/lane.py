"""A lane: receives one message after the other and works on it, on a thread of its own.

Each lane polls for itself, one message at a time. A lane waits, longer each time, if it cannot reach the queue or the
database, or if all its messages fail for unforeseen reasons.
"""

import random
import uuid

from sluice.clock import Clock
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.inbox.pause import PauseWatch
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.signs import Signs
from sluice.terminal.logger import Logger

_log = Logger()
_ATTEMPT_SECONDS = 240
"""How long a repeated receive keeps its attempt id; AWS honours an attempt id for five minutes."""
_EARLY_SECONDS = 0.1
"""Pause after an empty answer that came long before the poll's end: the page of a proxy looks like an empty answer, and
a lane without a pause would request it again and again."""
_PAUSED_SECONDS = 1.0
"""Time after which a lane of a paused consumer asks again whether the pause is over."""


class Lane:
    """Receives one message after the other and works on it. One thread calls `step` again and again."""

    def __init__(
        self,
        queue: Queue,
        processor: MessageProcessor,
        *,
        settings: WorkerSettings,
        wait: Wait,
        clock: Clock,
        rng: random.Random,
        signs: Signs,
        pause: PauseWatch,
    ) -> None:
        self._queue, self._processor, self._settings, self._wait = queue, processor, settings, wait
        self._clock, self._rng = clock, rng
        self._signs, self._pause = signs, pause
        self._attempt: tuple[str, float] | None = None  # attempt id of the receive, and the time of its first use
        self._failures = 0
        self.active_at = clock.monotonic()

    def step(self) -> bool:
        """Poll once and work on the received message; return whether there was one."""
        if self._pause.is_paused():
            self._signs.expect_end_of_poll()
            self._wait.wait(_PAUSED_SECONDS)
            self.active_at = self._clock.monotonic()  # whether its queue is empty is not known
            return False
        self._give_sign()
        if not self._processor.transactions.is_ready():
            self.rest()
            return False
        requested_at = self._clock.monotonic()
        try:
            message = self._queue.receive(attempt_id=self._attempt_id(), wait_seconds=self._settings.wait_seconds)
        except (TransientError, HoldLostError) as error:
            _log.warning("nothing received", error=str(error))
            if isinstance(error, HoldLostError):
                # the message of that poll may have been delivered to another consumer since, or be visible
                self._attempt = None
            self.rest()
            return False
        self._attempt = None
        if message is None:
            self._failures = 0
            if self._clock.monotonic() - requested_at < self._settings.wait_seconds / 2:
                self._wait.wait(_EARLY_SECONDS)
            return False
        self._signs.expect_end_of_work()
        self._processor.process(message, requested_at=requested_at)
        self._failures = 0  # not reset earlier, because the next message may fail for the same reason
        self.active_at = self._clock.monotonic()
        return True

    def _give_sign(self) -> None:
        """Give a sign of life: before a poll, or before a call to a database that may not answer for long."""
        if self._processor.transactions.is_database_away:
            self._signs.expect_end_of_work()
        else:
            self._signs.expect_end_of_poll()

    def _attempt_id(self) -> str | None:
        """Return the attempt id of this poll.

        It is the last poll's id if that poll had no answer: with another id the group would wait for its visibility
        timeout.
        """
        if not self._processor.is_ordered:
            return None
        now = self._clock.monotonic()
        if self._attempt is None or now - self._attempt[1] > _ATTEMPT_SECONDS:
            self._attempt = (str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), now)
        return self._attempt[0]

    def rest(self) -> None:
        """Wait after a failure, longer each time."""
        self._failures += 1
        self._wait.wait(self._settings.backoff.seconds(self._failures, self._rng.random()))
        self.active_at = self._clock.monotonic()  # a queue that does not answer does not count as idle
