"""A journal for each process: a forked child must not write into the journal of its parent."""

import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sluice.clock import Clock, SystemClock, clock_id, wall_minus_monotonic_us
from sluice.errors import HistoryError, unwritable
from sluice.recorder.journal import Journal

_CLOCK = "clock-{}"


class ProcessJournal:
    """Writes into `folder/worker-host-pid-….arrows`; after a fork, the child writes into a journal of its own.

    Threads may share one.

    Args:
        folder: the journals' folder; it is created if it is missing.
        worker: the beginning of the journals' names; the whole name is the worker of their events.
        common: further fields that every event has; `host` is part of the name.
        opening: fields of the first event of each journal.
        clock: None means this machine's clock, shared by all processes that record into the folder.

    Raises:
        ConfigError: the folder cannot be written.
        HistoryError: the file with the shared clock is damaged, or the disk is full.
    """

    def __init__(
        self,
        folder: Path,
        *,
        worker: str,
        common: Mapping[str, Any],
        opening: Mapping[str, Any],
        clock: Clock | None,
    ) -> None:
        self.folder = folder
        self._worker, self._common, self._opening = worker, common, opening
        self._clock_id, self.clock = _shared_clock(folder) if clock is None else ("given", clock)
        self._lock = threading.Lock()
        self._journal: Journal | None = self._open()
        _all.add(self)

    def _open(self) -> Journal:
        name = f"{self._worker}-{self._common['host']}-{os.getpid()}-{secrets.token_hex(4)}"
        common = {**self._common, "worker": name, "clock_id": self._clock_id, "task_attempt": 0}
        journal = Journal(self.folder, name, common=common, clock=self.clock)
        journal.add(invoked_at_us=self.clock.now_us(), **self._opening)
        return journal

    def _open_once(self) -> Journal:
        """Return the journal of this process; open it if a fork has left this process without one."""
        if self._journal is None:
            with self._lock:
                if self._journal is None:
                    self._journal = self._open()
        return self._journal

    def forget(self) -> None:
        """Leave the journal to the process that opened it. Runs in a forked child, right after the fork."""
        self._lock = threading.Lock()  # a thread that only the parent has may hold the parent's lock
        self._journal = None

    @property
    def path(self) -> Path:
        """Return the file of this process."""
        return self._open_once().path

    def add(self, **values: Any) -> None:
        """Buffer one event."""
        self._open_once().add(**values)

    def flush(self) -> None:
        """Write every buffered event to the file."""
        if self._journal is not None:
            self._journal.flush()

    def close(self) -> None:
        """Write the `closed` event, if this process wrote any."""
        if self._journal is not None:
            self._journal.close()


_all: "weakref.WeakSet[ProcessJournal]" = weakref.WeakSet()


def _forget_all() -> None:
    for journal in list(_all):
        journal.forget()


os.register_at_fork(after_in_child=_forget_all)


def _shared_clock(folder: Path) -> tuple[str, Clock]:
    """Return the clock of all processes of this machine that use the folder, and its id.

    The first process writes how far the wall clock is ahead of the monotonic clock; the others read that. So if the
    wall clock is set between the starts of two processes, their events still are in order.
    """
    machine = clock_id()
    path = folder / _CLOCK.format(machine)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            mine = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
            mine.write_text(str(wall_minus_monotonic_us()), encoding="ascii")
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)  # atomic: a reader sees the whole file or none
            mine.unlink()
        offset_us = int(path.read_text(encoding="ascii"))
    except OSError as error:
        raise unwritable(folder, error, "choose another folder") from error
    except ValueError as error:
        raise HistoryError(f"cannot record to {folder} ({error}); choose another folder") from error
    return f"{machine}{offset_us:+d}", SystemClock(offset_us)
