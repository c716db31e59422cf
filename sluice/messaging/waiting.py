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
    """Tells that the process is to end. The first SIGTERM or SIGINT asks for it; further ones change nothing."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def on_signals(self) -> None:
        """Let SIGTERM, which ECS sends, and Ctrl-C ask for it. Runs in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def ask(self) -> None:
        """Ask for it."""
        self._asked.set()

    def is_asked(self) -> bool:
        """Return whether somebody asked."""
        return self._asked.is_set()

    def wait(self, seconds: float) -> None:
        """Wait that long, or until somebody asks."""
        self._asked.wait(seconds)

    def _signalled(self, _: int, __: FrameType | None) -> None:
        self._asked.set()


class PollWait:
    """Waits for the next look."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def wait(self, seconds: float) -> None:
        """Wait that long, or until stopped."""
        self._stop.wait(seconds)

    def is_stopped(self) -> bool:
        """Return whether to stop."""
        return self._stop.is_asked()
