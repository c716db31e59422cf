"""A lane: receives one message after the other and works on it, on a thread of its own.

It polls for itself, one message at a time. A lane that cannot reach queue or database, or whose messages all fail
unforeseen, waits, longer each time.
"""

import random
import uuid

from sluice.clock import Clock
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.settings import WorkerSettings
from sluice.messaging.worker.signs import Signs
from sluice.terminal.logger import Logger

_log = Logger()
_ATTEMPT_SECONDS = 240
"""A repeated receive repeats its attempt id for so long; AWS honours it for five minutes."""
_EARLY_SECONDS = 0.1  # after an empty answer long before the poll's end: a proxy's page reads as one


class Lane:
    """Receives one message after the other and works on it. Runs on one thread, `step` by `step`."""

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
    ) -> None:
        self._queue, self._processor, self._settings, self._wait = queue, processor, settings, wait
        self._clock, self._rng = clock, rng
        self._signs = signs
        self._attempt: tuple[str, float] | None = None
        self._failures = 0
        self.active_at = clock.monotonic()

    def step(self) -> bool:
        """Poll once and work on what comes; return whether something came."""
        self._sign()
        if not self._processor.transactions.is_ready():
            self.rest()
            return False
        requested_at = self._clock.monotonic()
        try:
            message = self._queue.receive(attempt_id=self._attempt_id(), wait_seconds=self._settings.wait_seconds)
        except (TransientError, HoldLostError) as error:
            _log.warning("nothing received", error=str(error))
            if isinstance(error, HoldLostError):
                self._attempt = None  # what it brought the first time has been somebody else's, or visible, since
            self.rest()
            return False
        self._attempt = None
        if message is None:
            self._failures = 0
            if self._clock.monotonic() - requested_at < self._settings.wait_seconds / 2:
                self._wait.wait(_EARLY_SECONDS)
            return False
        self._signs.working()
        self._processor.process(message, requested_at=requested_at)
        self._failures = 0  # not before: the next message may fail as this one would have
        self.active_at = self._clock.monotonic()
        return True

    def _sign(self) -> None:
        """Give a sign of life: what comes next is a poll, or a database that may not answer for long."""
        if self._processor.transactions.is_database_away:
            self._signs.working()
        else:
            self._signs.polling()

    def _attempt_id(self) -> str | None:
        """Return the id of this poll: the last one's when its answer never came, or the group would stand still."""
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
        self.active_at = self._clock.monotonic()  # what cannot be asked is not idle
