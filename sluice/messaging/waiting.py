"""Waits of a relay or a worker: for the next look, or for the end.

A signal ends every wait at once.
"""

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol


class Wait(Protocol):
    """Waits until there may be work, or the process has to stop."""

    def wait(self, seconds: float) -> None:
        """Wait for at most this time."""

    def is_stopped(self) -> bool:
        """Return whether to stop."""


class Stop:
    """The request to end the process, which ends every wait. The first SIGTERM, SIGINT or SIGHUP sets it.

    Python runs a signal's handler on the main thread, between two instructions of the code that runs there. If the main
    thread holds a lock at that time, as it does during a wait for a `threading.Event`, a handler that takes the same
    lock waits for ever. The `put` of a SimpleQueue may interrupt its `get` on the same thread, so a SimpleQueue is
    used.
    https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put,
    https://docs.python.org/3/library/signal.html#signals-and-threads (read 2026-11-26)
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._requests: SimpleQueue[None] = SimpleQueue()

    def on_signals(self) -> None:
        """Let SIGTERM, which ECS sends, SIGINT and SIGHUP request the stop. Runs in the main thread.

        Under `nohup` SIGHUP stays ignored. As a background job of a terminal the process would be stopped, with its
        messages still held, when it writes (`stty tostop`) or a handler reads. So it ignores these signals: it writes,
        and a read fails.
        https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap11.html (11.1.4, read 2026-11-27)
        """
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.request)

    def request(self, *_: object) -> None:
        """Request the stop, from any thread; also usable as a signal's handler."""
        self._is_requested = True
        self._requests.put(None)

    def is_stopped(self) -> bool:
        """Return whether the stop was requested."""
        return self._is_requested

    def wait(self, seconds: float) -> None:
        """Wait for this time, or until the stop is requested."""
        with suppress(Empty):
            self._requests.get(timeout=max(0.0, seconds))
            self._requests.put(None)  # wakes the next waiting thread
