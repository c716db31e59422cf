"""The signs of life of a worker's threads, and the deadline of the next sign after each."""

import threading
from dataclasses import dataclass
from math import ceil, inf

from sluice import sdk
from sluice.messaging.liveness import SLACK_SECONDS, Liveness
from sluice.messaging.sqs.queue import CALL_SECONDS_MAX
from sluice.messaging.worker.processing.deleter import SETTLE_TRIES
from sluice.messaging.worker.processing.message_lease import EXTENDED_MAX, Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The seconds within which each part of a worker has to give its next sign of life; by default no limit.

    Args:
        polling: of a lane that receives, or rests after a failed receive.
        working: of a lane or a drainer that works on a message or waits for the database, and of the deleter.
        beating: of the heartbeat.
    """

    polling: float = inf
    working: float = inf
    beating: float = inf

    @classmethod
    def of_worker(
        cls, *, lanes: int, rest_seconds_max: float, timeout_seconds: int, handler_seconds_max: float
    ) -> "Deadlines":
        """Return the deadlines that a healthy worker with these settings meets.

        Args:
            lanes: the most messages it holds at a time.
            rest_seconds_max: the longest rest of a lane after a failed poll.
            timeout_seconds: visibility timeout of the queue.
            handler_seconds_max: deadline of a handler, and the longest wait for an answer of the database.
        """
        answer_seconds = Heartbeat.answer_seconds(timeout_seconds)
        calls_max = ceil(lanes / EXTENDED_MAX)
        return cls(
            # The poll itself, and the rest after a failed poll.
            polling=CALL_SECONDS_MAX + rest_seconds_max + SLACK_SECONDS,
            # The worker ends by itself a quarter of the timeout after the handler's deadline; until then the handler
            # may run.
            working=handler_seconds_max + timeout_seconds / 4 + SETTLE_TRIES * CALL_SECONDS_MAX + SLACK_SECONDS,
            # One call for every ten messages, one call after the other; the interval between beats is at most a second.
            beating=1 + calls_max * (min(sdk.CONNECT_SECONDS, answer_seconds) + answer_seconds) + SLACK_SECONDS,
        )


class Signs:
    """Gives a worker's signs of life, each for the thread that calls."""

    def __init__(self, liveness: Liveness, deadlines: Deadlines | None = None) -> None:
        self.liveness = liveness
        self._deadlines = Deadlines() if deadlines is None else deadlines

    def expect_end_of_poll(self) -> None:
        """Give a sign of life before a poll, and promise the next by its deadline."""
        self._expect(self._deadlines.polling)

    def expect_end_of_work(self) -> None:
        """Give a sign of life before a message or a wait for the database, and promise the next by its deadline."""
        self._expect(self._deadlines.working)

    def expect_beat(self) -> None:
        """Give a sign of life after a beat of the heartbeat, and promise the next by its deadline."""
        self._expect(self._deadlines.beating)

    def end(self) -> None:
        """Promise no further sign: the thread ends normally."""
        self.liveness.forget(threading.current_thread().name)

    def _expect(self, seconds: float) -> None:
        self.liveness.expect(threading.current_thread().name, seconds)
