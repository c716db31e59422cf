"""Waits of a relay or a worker: for the next look, or for the end.

A signal ends every wait at once.
"""

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol


class Wait(Protocol):
    """Waits until there may be something to do, or the process is to stop."""

    def wait(self, seconds: float) -> None:
        """Wait that long at most."""

    def is_stopped(self) -> bool:
        """Return whether to stop."""


class Stop:
    """The request to end the process, which ends every wait for it. The first SIGTERM, SIGINT or SIGHUP sets it.

    Python runs a signal's handler on the main thread, between two instructions of whatever it does: a handler that
    wants a lock waits for ever where that thread has it, as it has while it waits for a `threading.Event`. The `put` of
    a SimpleQueue may interrupt its `get` on the same thread.
    https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put,
    https://docs.python.org/3/library/signal.html#signals-and-threads (read 2026-11-26)
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._requests: SimpleQueue[None] = SimpleQueue()

    def on_signals(self) -> None:
        """Let SIGTERM, which ECS sends, Ctrl-C and the end of a terminal ask for it. Runs in the main thread.

        Under `nohup` a terminal's end is nothing to it. In the background of a terminal it would be stopped, and hold
        its messages, when it writes (`stty tostop`) or a handler reads; so it writes, and what reads fails.
        https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap11.html (11.1.4, read 2026-11-27)
        """
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.request)

    def request(self, *_: object) -> None:
        """Ask for it, from any thread; also from a signal's handler, and as one."""
        self._is_requested = True
        self._requests.put(None)

    def is_stopped(self) -> bool:
        """Return whether somebody asked."""
        return self._is_requested

    def wait(self, seconds: float) -> None:
        """Wait that long, or until somebody asks."""
        with suppress(Empty):
            self._requests.get(timeout=max(0.0, seconds))
            self._requests.put(None)  # wakes the next that waits
