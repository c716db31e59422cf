"""Communication between a run's driver and tasks, by small files in the run's folder.

Each file has one writer, who replaces it as a whole. Every task reports its progress; the driver announces steps. The
folder must be shared by all of them (a POSIX path). Nothing here counts for the verdict.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sluice.clock import Clock, clock_id, eventually
from sluice.errors import HistoryError

_REPORT_EVERY_SECONDS = 0.5
_START_WAIT_SECONDS = 180
EARLIER = "earlier"
"""The role in reports of work that was done before a run was resumed."""


class RunStep(StrEnum):
    """The steps of a run, as the driver announces them.

    At START the publishers begin, with the warm-up if there is one. At MEASURE the warm-up is drained and the load
    proper begins. At PUBLISHED everything is published. At REDRIVEN the dead letters are about to be brought back, and
    handlers no longer fail on poisoned messages. At FINISH consumers poll some last times and end. STOP ends all tasks
    at once.
    """

    START = "start"
    MEASURE = "measure"
    PUBLISHED = "published"
    REDRIVEN = "redriven"
    FINISH = "finish"
    STOP = "stop"


@dataclass(slots=True, kw_only=True)
class TaskProgress:
    """The progress of one task.

    Args:
        worker: its name, as in the history.
        role: `publish`, `consume`, or EARLIER.
        queue: of a consumer.
        done: number of acknowledged publishes, or of deleted messages.
        ended: number of deleted end markers.
        abandoned: number of messages that were given up.
        throttled: number of publishes that were refused because of their rate.
        failed: number of publishes that were not acknowledged for another reason.
        again: number of received messages that had been received before.
        strangers: number of received messages that are not of this run.
        fallen_back: number of messages that were first received after a later one of their group.
    """

    worker: str
    role: str
    queue: str | None = None
    done: int = 0
    ended: int = 0
    abandoned: int = 0
    throttled: int = 0
    failed: int = 0
    again: int = 0
    strangers: int = 0
    fallen_back: int = 0


class RunCoordinator:
    """The folder in which all participants of a run write small files; HistoryError if a file cannot be written."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock
        self._reported_at = float("-inf")

    def _write(self, name: str, value: Mapping[str, object]) -> None:
        with self._writable():
            draft = self._folder / f".{name}.{os.getpid()}"
            draft.write_text(json.dumps(value), encoding="utf-8")
            draft.replace(self._folder / f"{name}.json")

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            raise HistoryError(f"cannot write to {self._folder} ({error.strerror}); make room there") from error

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return value

    def report(self, progress: TaskProgress, *, now: bool = False) -> None:
        """Publish a task's progress, at most twice a second unless `now`."""
        if now or self._clock.monotonic() - self._reported_at >= _REPORT_EVERY_SECONDS:
            self._reported_at = self._clock.monotonic()
            self._write(f"task-{progress.worker}", asdict(progress))

    def all_progress(self) -> list[TaskProgress]:
        """Return the latest progress of every task that has reported."""
        return [
            TaskProgress(**json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(self._folder.glob("task-*.json"))
        ]

    @contextmanager
    def present(self, name: str) -> Iterator[None]:
        """Keep a file with a task's process id for the length of the block; a killed process leaves it behind."""
        self._write(f"process-{name}", {"pid": os.getpid(), "machine": clock_id()})
        try:
            yield
        finally:
            (self._folder / f"process-{name}.json").unlink(missing_ok=True)

    def process(self, name: str) -> int | None:
        """Return the process id of a task; None before it begins, after it ends, or if it is on another machine."""
        found = self._read(f"process-{name}")
        return None if found is None or found["machine"] != clock_id() else found["pid"]

    def run_again(self, name: str, count: int) -> None:
        """Store how often Spark may restart a task: as often as a fault has ended it."""
        self._write(f"again-{name}", {"count": count})

    def again_count(self, name: str) -> int:
        """Return how often Spark may restart a task."""
        found = self._read(f"again-{name}")
        return 0 if found is None else found["count"]

    def reach(self, step: RunStep, at_us: int = 0) -> None:
        """Announce a step; START and MEASURE with their instant, microseconds UTC.

        STOP is an empty file, because even a full disk has room for that.
        """
        if step is not RunStep.STOP:
            self._write(step, {"at_us": at_us})
            return
        with self._writable():
            (self._folder / f"{step}.json").touch()

    def has_reached(self, step: RunStep) -> bool:
        """Return whether the driver has announced a step."""
        return (self._folder / f"{step}.json").exists()

    def is_stopped(self) -> bool:
        """Return whether every task is to end at once."""
        return self.has_reached(RunStep.STOP)

    def wait_for(self, step: RunStep, timeout_seconds: float = _START_WAIT_SECONDS) -> int:
        """Wait until the driver has announced a step, or STOP, and return the instant that it named."""
        eventually(
            lambda: self.has_reached(step) or self.is_stopped(),
            timeout_seconds=timeout_seconds,
            describe=f"the driver to name the {step}",
            clock=self._clock,
        )
        found = self._read(step)
        return 0 if found is None else found["at_us"]
