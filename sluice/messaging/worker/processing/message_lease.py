"""Leases of received messages, and the heartbeat thread that extends them.

The queue hides a message for its visibility timeout and then delivers it to another consumer, even if its first
receiver still works on it. A `MessageLease` knows until when its message is certainly hidden. The `Heartbeat` extends
it at half of the timeout. A lease that could not be extended in time, or whose extension was refused, is lost, and no
effect of its message may be committed any more.

AWS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html: "Extending
the visibility timeout doesn't reset the 12-hour limit" of the receive (read 2026-11-21).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sluice import limits
from sluice.clock import Clock
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.terminal.logger import Logger

MARGIN_SECONDS = 1.0
"""No commit begins in this last part of a timeout: the response to the receive may have taken this long. Of a short
timeout it is a tenth."""
EXTENDED_MAX = 10
"""The most messages that one call extends."""
_log = Logger()


def margin_seconds(timeout_seconds: float) -> float:
    """Return the last part of a timeout in which no commit begins."""
    return min(MARGIN_SECONDS, timeout_seconds / 10)


class MessageLease:
    """The lease of one received message.

    Two threads use it: the lane that works on the message, and the heartbeat.

    Args:
        seconds_max: the lease is given up after this time, even if a handler still runs.
        requested_at: when the receive of the message began, by the clock. The visibility timeout began then or later,
            however slow the response was. None means now.
        why_over: the reason of the loss when the timeout is over.
    """

    def __init__(
        self,
        message: ReceivedMessage,
        *,
        clock: Clock,
        timeout_seconds: float,
        seconds_max: float,
        requested_at: float | None = None,
        why_over: str = "its visibility timeout is over",
    ) -> None:
        self.message = message
        self._clock = clock
        self._received_at = clock.monotonic() if requested_at is None else requested_at
        self._ends_at = self._received_at + timeout_seconds
        self._margin_seconds = margin_seconds(timeout_seconds)
        self._seconds_max = seconds_max
        self._latest_at = self._received_at + limits.VISIBILITY_TIMEOUT_SECONDS_MAX - MARGIN_SECONDS
        self.gives_up_at = min(self._received_at + seconds_max, self._latest_at)
        self._why_lost: str | None = None
        self._why_over = why_over
        self.in_use = threading.Lock()
        """Locked while a call about the message is under way; `is_done` is set under the lock."""
        self.is_done = False

    @property
    def delay_seconds_max(self) -> int:
        """Return how long it can still be hidden: SQS's limit counts from the receive."""
        elapsed = self._clock.monotonic() - self._received_at
        return max(0, int(limits.VISIBILITY_TIMEOUT_SECONDS_MAX - elapsed - MARGIN_SECONDS))

    def remaining_seconds(self) -> float:
        """Return how long the message is certainly ours."""
        return 0.0 if self._why_lost is not None else max(0.0, self._ends_at - self._clock.monotonic())

    def has_time(self, seconds: float) -> bool:
        """Return whether a commit may begin after so long; always for 0 seconds."""
        return not seconds or self.remaining_seconds() > seconds + self._margin_seconds

    def check(self) -> None:
        """Return if the message is still ours.

        Raises:
            HoldLostError: another consumer may have the message.
        """
        if self._why_lost is not None:
            raise HoldLostError(self._why_lost)
        if self._clock.monotonic() >= self._ends_at - self._margin_seconds:
            raise HoldLostError(self._why_over)

    def note_extension(self, requested_at: float, seconds: int) -> None:
        """Note that the message is hidden for `seconds` from the time of the request."""
        self._ends_at = requested_at + seconds

    def begin_again(self) -> None:
        """Restart the time for which the message may be held, up to SQS's limit. A lost lease stays lost."""
        self.gives_up_at = min(self._clock.monotonic() + self._seconds_max, self._latest_at)

    def lose(self, why: str) -> None:
        """Allow no further commit for the message.

        A commit under way is not waited for, because it may never end. If it succeeded, the inbox drops the next copy.
        """
        if self._why_lost is None:
            self._why_lost = why

    def finish(self) -> None:
        """Stop extending it. Waits for an extension in progress."""
        with self.in_use:
            self.is_done = True


class Heartbeat:
    """Extends the leases of held messages. A thread of the worker calls `beat` again and again.

    Args:
        timeout_seconds: visibility timeout of the queue; each lease is extended to this time from now.
    """

    def __init__(self, queue: Queue, *, timeout_seconds: int, clock: Clock) -> None:
        self._queue, self._timeout_seconds, self._clock = queue, timeout_seconds, clock
        self._leases: list[MessageLease] = []
        self._lock = threading.Lock()

    @staticmethod
    def answer_seconds(timeout_seconds: int) -> float:
        """Return the timeout of a call, so that an unanswered call leaves time for three more."""
        return max(1.0, min(5.0, timeout_seconds / 10))

    @property
    def interval_seconds(self) -> float:
        """Return how often to call `beat`."""
        return max(0.1, min(1.0, self._timeout_seconds / 20))

    @property
    def patience_seconds(self) -> float:
        """Return how long a handler that was given up has to end."""
        return self._timeout_seconds / 4

    def leases(self) -> list[MessageLease]:
        """Return the leases held now, in the order of receiving."""
        with self._lock:
            return list(self._leases)

    def is_working(self) -> bool:
        """Return whether a message is held that is not done."""
        return any(not lease.is_done for lease in self.leases())

    @contextmanager
    def keeping(self, lease: MessageLease) -> Iterator[None]:
        """Extend the lease until the end of the block."""
        with self._lock:
            self._leases.append(lease)
        try:
            yield
        finally:
            lease.finish()
            with self._lock:
                self._leases.remove(lease)

    def overdue(self) -> list[MessageLease]:
        """Return leases given up earlier whose handler still runs: only the end of the process stops such a handler.

        No other consumer has the message before that: its last extension, before it was given up, was for a whole
        timeout.
        """
        since = self._clock.monotonic() - self.patience_seconds
        return [lease for lease in self.leases() if lease.gives_up_at <= since and not lease.is_done]

    def beat(self) -> None:
        """Extend leases with less than half of their timeout left; give up leases held for too long."""
        now = self._clock.monotonic()
        due = []
        for lease in self.leases():
            if now >= lease.gives_up_at:
                lease.lose("it was held for as long as a handler may take")
            elif lease.remaining_seconds() <= self._timeout_seconds / 2:
                due.append(lease)
        for begin in range(0, len(due), EXTENDED_MAX):
            self._extend(due[begin : begin + EXTENDED_MAX])

    def _extend(self, due: list[MessageLease]) -> None:
        # a lease that cannot be locked is just being ended by its lane
        locked = [lease for lease in due if lease.in_use.acquire(blocking=False)]
        try:
            wanted = [
                lease
                for lease in locked
                if not lease.is_done and 0 < lease.remaining_seconds() < lease.delay_seconds_max
            ]
            if wanted:
                self._renew(wanted)
        finally:
            for lease in locked:
                lease.in_use.release()

    def _renew(self, wanted: list[MessageLease]) -> None:
        requested_at = self._clock.monotonic()
        requested = [(lease, min(self._timeout_seconds, lease.delay_seconds_max)) for lease in wanted]
        try:
            met = self._queue.extend([(lease.message.receipt_handle, seconds) for lease, seconds in requested])
        except (TransientError, HoldLostError) as error:
            _log.warning("not extended, will be tried again", error=str(error), messages=len(wanted))
            return
        for (lease, seconds), failure in zip(requested, met, strict=True):
            match failure:
                case None:
                    lease.note_extension(requested_at, seconds)
                case HoldLostError():
                    lease.lose(str(failure))
                case TransientError():
                    _log.warning("not extended, will be tried again", error=str(failure))
