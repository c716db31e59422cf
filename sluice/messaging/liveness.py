"""Progress of a process: each part promises the time of its next sign of life, and a file shows the overdue parts.

A part is a thread, by its name: `lane-0`, `drainer`, `heartbeat`. A part that waits or works within its limits is never
overdue, even if a database or a queue is away: starting the process again would not help.
"""

import os
import platform
import threading
import uuid
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
"""Added to every promise, for delays that no timeout of ours limits: resolving a name, connecting to several addresses,
a busy machine. A stuck part stays stuck, so it does no harm to notice it this much later."""
_STARTUP_SECONDS = 120.0  # from the first sign to the second: the queue and the database are asked in between
_WRITE_SECONDS = 5.0  # between two signs that say the same


def process_name() -> str:
    """Return a name of this process for operators: of a Lambda function its log stream, otherwise host and process.

    A random part tells processes of one number apart, as in containers.
    AWS: https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html (read 2026-11-27)
    """
    host = f"{platform.node()}/{os.getpid()}/{uuid.uuid4().hex[:6]}"
    return os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME", host)


class Liveness:
    """Keeps the promise of each part. Any number of threads use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._due_at: dict[str, float] = {}

    def expect(self, part_name: str, within_seconds: float) -> None:
        """Note that a part is alive and gives its next sign of life within this time.

        This replaces its last promise.
        """
        with self._lock:
            self._due_at[part_name] = self._clock.monotonic() + within_seconds

    def forget(self, part_name: str) -> None:
        """Expect no further sign of life from a part, because it has ended normally."""
        with self._lock:
            self._due_at.pop(part_name, None)

    def overdue(self) -> dict[str, float]:
        """Return the parts that broke their promise, by name, and for how many seconds."""
        now = self._clock.monotonic()
        with self._lock:
            return {name: now - due_at for name, due_at in sorted(self._due_at.items()) if due_at < now}


class AliveFile:
    """The file with a process's signs of life. One thread uses it; each process has a file of its own.

    Args:
        clock: measures the age of the file; it is the machine's clock if another process checks the file.

    Raises:
        ConfigError: the file cannot be written.
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
        """Write the parts that are overdue now, and promise the next sign within `within_seconds`.

        Raises:
            OSError: the file cannot be written; its old content is unchanged.
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
        """Remove the file, because the process ends; an error is only logged."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("the alive file was not removed, and grows old", error=str(error))


class LivenessWatch:
    """Checks the parts again and again: logs each part once when it becomes overdue, and writes the file. One thread.

    The thread is the process's main loop. If the loop itself is stuck, the age of the file shows it.

    Args:
        file: the file to write; None writes no file.
        within_seconds: the next check comes at most this long after a check and its pause.
    """

    def __init__(self, liveness: Liveness, file: AliveFile | None, *, within_seconds: float, clock: Clock) -> None:
        self._liveness, self._file, self._within_seconds, self._clock = liveness, file, within_seconds, clock
        self._overdue: frozenset[str] = frozenset()
        self._written_at, self._promised_seconds = -inf, 0.0
        self._is_failing = False

    def look(self, pause_seconds: float = 0.0) -> None:
        """Check all parts now. The loop pauses for `pause_seconds` afterwards."""
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
            self._file.write(overdue, within_seconds=within_seconds + _WRITE_SECONDS)  # the next write may be left out
        except OSError as error:
            if not self._is_failing:
                _log.error("the alive file is not written, and grows old", error=str(error))
            self._is_failing = True
        else:
            self._is_failing = False
            self._written_at, self._promised_seconds = self._clock.monotonic(), within_seconds
