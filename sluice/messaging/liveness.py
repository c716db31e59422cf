"""Progress of a process: each part promises when its next sign of life comes, and a file tells of it.

A part is a thread, by its name: `lane-0`, `drainer`, `heartbeat`. A part that waits or works within its bounds is never
overdue, whatever fails: a database or a queue that is away is no reason to start the process again.
"""

import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from sluice.clock import Clock, clock_id
from sluice.errors import unwritable
from sluice.messaging import alive
from sluice.messaging.alive import Sign
from sluice.terminal.logger import Logger

_log = Logger()
SLACK_SECONDS = 30.0
"""On top of every promise, for what no timeout of ours bounds: a name to resolve, several addresses to connect to, a
machine that is busy. A stuck part stays stuck, so it may be noticed that late."""
_STARTUP_SECONDS = 120.0  # from the first sign to the second: the queue and the database are asked in between
_WRITE_SECONDS = 5.0  # between two signs that say the same


class Liveness:
    """Keeps what each part has promised. Any number of threads use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._due_at: dict[str, float] = {}

    def expect(self, part_name: str, within_seconds: float) -> None:
        """Take in that a part is alive, and gives its next sign within so long; this replaces its last promise."""
        with self._lock:
            self._due_at[part_name] = self._clock.monotonic() + within_seconds

    def forget(self, part_name: str) -> None:
        """Expect nothing more of a part: it has ended as it should."""
        with self._lock:
            self._due_at.pop(part_name, None)

    def overdue(self) -> dict[str, float]:
        """Return the parts that broke their promise, by name, and for how many seconds."""
        now = self._clock.monotonic()
        with self._lock:
            return {name: now - due_at for name, due_at in sorted(self._due_at.items()) if due_at < now}


class AliveFile:
    """The file a process shows its signs of life by. One thread uses it; each process has a file of its own.

    Args:
        clock: by which its age is measured: the machine's own where another process checks it.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        try:
            self.write({}, within_seconds=_STARTUP_SECONDS)
        except (OSError, ValueError) as error:
            failed = error if isinstance(error, OSError) else OSError(None, str(error))
            raise unwritable(
                f"the alive file {str(path)!r}", failed, "change --alive, for instance to /dev/shm/alive"
            ) from error

    def write(self, overdue: Mapping[str, float], *, within_seconds: float) -> None:
        """Write what is overdue now; the next sign is promised within so long.

        Raises:
            OSError: it cannot be written; the file keeps what it had.
        """
        written_at = datetime.fromtimestamp(self._clock.now_us() / 1_000_000, UTC)
        sign = Sign(
            pid=os.getpid(),
            clock_id=clock_id(),
            monotonic_seconds=self._clock.monotonic(),
            written_at=written_at.isoformat(timespec="milliseconds"),
            within_seconds=within_seconds,
            overdue=overdue,
        )
        alive.write(self._path, sign)

    def remove(self) -> None:
        """Remove it: the process ends."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("the alive file was not removed, and grows old", error=str(error))


class LivenessWatch:
    """Looks at the parts again and again: logs each once when it becomes overdue, and writes the file. One thread.

    That thread is the process's main loop. Of the loop itself the file's age tells.

    Args:
        file: None writes none.
        within_seconds: after one look and its pause the next comes within so long.
    """

    def __init__(self, liveness: Liveness, file: AliveFile | None, *, within_seconds: float, clock: Clock) -> None:
        self._liveness, self._file, self._within_seconds, self._clock = liveness, file, within_seconds, clock
        self._overdue: frozenset[str] = frozenset()
        self._written_at, self._promised_seconds = -inf, 0.0
        self._is_failing = False

    def look(self, pause_seconds: float = 0.0) -> None:
        """Look now; the loop pauses for so long afterwards."""
        overdue = self._liveness.overdue()
        has_changed = self._log_changes(overdue)
        within_seconds = pause_seconds + self._within_seconds
        is_old = self._clock.monotonic() - self._written_at >= _WRITE_SECONDS
        if is_old or has_changed or within_seconds > self._promised_seconds:
            self._write(overdue, within_seconds)

    def _log_changes(self, overdue: Mapping[str, float]) -> bool:
        before, self._overdue = self._overdue, frozenset(overdue)
        for name in sorted(self._overdue - before):
            _log.error("no sign of life: it is stuck or gone", part=name, overdue_seconds=round(overdue[name], 1))
        for name in sorted(before - self._overdue):
            _log.warning("signs of life again, or ended", part=name)
        return self._overdue != before

    def _write(self, overdue: Mapping[str, float], within_seconds: float) -> None:
        if self._file is None:
            return
        try:
            self._file.write(overdue, within_seconds=within_seconds + _WRITE_SECONDS)  # the next may be left out
        except OSError as error:
            if not self._is_failing:
                _log.error("the alive file is not written, and grows old", error=str(error))
            self._is_failing = True
        else:
            self._is_failing = False
            self._written_at, self._promised_seconds = self._clock.monotonic(), within_seconds
