"""How a relay or a worker waits: for the next look, or for the end.

A signal ends every wait at once.
"""

import signal
import threading
from types import FrameType
from typing import Protocol


class Wait(Protocol):
    """Waits until there may be something to do, or the process is to stop."""

    def wait(self, seconds: float) -> None:
        """Wait that long at most."""

    def is_stopped(self) -> bool:
        """Return whether to stop."""


class Stop:
    """The request to end the process, which ends every wait for it. The first SIGTERM or SIGINT sets it."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    def on_signals(self) -> None:
        """Let SIGTERM, which ECS sends, and Ctrl-C ask for it. Runs in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def request(self) -> None:
        """Ask for it."""
        self._requested.set()

    def is_stopped(self) -> bool:
        """Return whether somebody asked."""
        return self._requested.is_set()

    def wait(self, seconds: float) -> None:
        """Wait that long, or until somebody asks."""
        self._requested.wait(seconds)

    def _signalled(self, _: int, __: FrameType | None) -> None:
        self._requested.set()
