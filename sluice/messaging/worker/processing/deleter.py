"""Deletion of handled messages, several in one call.

A lane hands its message over and receives the next one. SQS keeps the group of a message locked until the message is
deleted, so no further message of that group arrives meanwhile, and lanes need not check that. Every entry of a call has
its own outcome: a deleted message is done, a failed one is tried again by itself.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil

from sluice.messaging.backoff import Backoff
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.hooks import WorkerHooks, WorkerHookSet
from sluice.terminal.logger import Logger

_log = Logger()
SETTLE_TRIES = 3
"""How often a delete or a release is tried in one receive. After that SQS delivers the message again, and the inbox
drops it."""
DELETED_MAX = 10
"""The most messages that one call deletes."""
_LINGER_SECONDS = 0.005  # wait for further messages in work; a group may wait this long for its next message
_LANES_A_THREAD = 16  # a call takes some milliseconds, and ten messages
_TICK_SECONDS = 1.0


def threads_of(lanes: int) -> int:
    """Return how many threads delete for so many lanes."""
    return ceil(lanes / _LANES_A_THREAD)


class Deleter:
    """Deletes messages whose effect is committed.

    Any number of lanes hand messages over, and any number of threads `step`.

    At most `waiting_max` messages wait: a lane that hands over a further one waits, too. Before `begin`, and after
    `end`, the lane that hands over a message deletes it itself.

    Args:
        is_working: whether another message is worked on now, which may soon be handed over, too.
        failpoint: reached for each message when its deletion has ended, with or without success.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        is_working: Callable[[], bool],
        waiting_max: int,
        backoff: Backoff,
        wait: Wait,
        rng: random.Random,
        hooks: WorkerHookSet,
        failpoint: Failpoint,
    ) -> None:
        self._queue, self._is_working, self._waiting_max = queue, is_working, waiting_max
        self._backoff, self._wait, self._rng, self._hooks, self._failpoint = backoff, wait, rng, hooks, failpoint
        self._waiting: deque[ReceivedMessage] = deque()
        self._lock, self._collecting = threading.Lock(), threading.Lock()
        self._some, self._full, self._room = (threading.Condition(self._lock) for _ in range(3))
        self._is_running = False

    def begin(self) -> None:
        """Leave the calls to the threads that `step` from now on."""
        self._is_running = True

    def end(self) -> None:
        """Let the threads delete the waiting messages and then end, without waiting for calls to fill."""
        with self._lock:
            self._is_running = False
            for condition in (self._some, self._full, self._room):
                condition.notify_all()

    def delete(self, message: ReceivedMessage) -> None:
        """Delete a message soon. The outcome goes to the log and the hooks; nothing is raised."""
        with self._lock:
            while self._is_running and len(self._waiting) >= self._waiting_max:
                self._room.wait()
            if self._is_running:
                self._waiting.append(message)
                if len(self._waiting) == 1:
                    self._some.notify()
                elif len(self._waiting) == DELETED_MAX:
                    self._full.notify()
                return
        self._settle([message])

    def step(self) -> bool:
        """Delete up to ten waiting messages; return whether there may be more. Waits at most a second for messages."""
        with self._collecting:  # only one thread at a time waits until a call is full
            messages = self._collect()
        if messages:
            self._settle(messages)
        return bool(messages) or self._is_running

    def _collect(self) -> list[ReceivedMessage]:
        with self._lock:
            if not self._waiting and self._is_running:
                self._some.wait(_TICK_SECONDS)
            if self._waiting and self._is_running and self._is_working():
                self._full.wait_for(self._is_full, _LINGER_SECONDS)
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), DELETED_MAX))]
            self._room.notify(len(taken))
        return taken

    def _is_full(self) -> bool:
        return len(self._waiting) >= DELETED_MAX or not self._is_running

    def _settle(self, messages: Sequence[ReceivedMessage]) -> None:
        """Delete messages. A failed deletion is tried again, a few times, even if the worker stops."""
        left, lost = list(messages), []
        for tries in range(1, SETTLE_TRIES + 1):
            failures = [(message, failure) for message, failure in self._try_deletes(left) if failure is not None]
            for message, failure in failures:
                names = {"group": message.message_group_id, "sqs_message_id": message.sqs_message_id}
                _log.warning("not deleted: it comes again", error=str(failure), tries=tries, **names)
            lost += [message for message, failure in failures if isinstance(failure, HoldLostError)]
            left = [message for message, failure in failures if isinstance(failure, TransientError)]
            if not left or tries == SETTLE_TRIES:
                break
            self._wait.wait(self._backoff.seconds(tries, self._rng.random()))
        for message in [*lost, *left]:
            self._hooks.call(WorkerHooks.not_deleted, message)
        for _ in messages:
            self._failpoint("after_delete")

    def _try_deletes(
        self, messages: Sequence[ReceivedMessage]
    ) -> list[tuple[ReceivedMessage, HoldLostError | TransientError | None]]:
        """Return each message with the error of its deletion, or None."""
        failures: Sequence[HoldLostError | TransientError | None]
        try:
            failures = self._queue.delete_batch([message.receipt_handle for message in messages])
        except (HoldLostError, TransientError) as error:
            failures = [error] * len(messages)
        return list(zip(messages, failures, strict=True))
