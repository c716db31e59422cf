"""The processes of publishing tasks, as targets of faults: Spark's Python workers on this machine."""

import os
import signal
from collections import defaultdict

from spark_load.faults.shapes import FaultKind
from spark_load.faults.signals import send_signal
from spark_load.runtime.coordinator import RunCoordinator


class Publishers:
    """Publishing tasks, by name. Spark runs a task again that a fault ended; it continues where its journal ends.

    Args:
        coordinator: each task tells it the task's process id.
    """

    def __init__(self, coordinator: RunCoordinator) -> None:
        self._coordinator = coordinator
        self._ended: defaultdict[str, set[int]] = defaultdict(set)
        self._frozen: dict[str, int] = {}

    def harm(self, kind: FaultKind, name: str) -> bool:
        """Begin a fault at a task; return whether it hit a process that publishes."""
        process = self._coordinator.process(name)
        if process in (None, os.getpid()) or process in self._ended[name]:
            return False
        if kind is FaultKind.FREEZE:
            self._frozen[name] = process
            return send_signal(process, signal.SIGSTOP)
        # Allow the restart before the signal, because Spark may restart the task at once.
        self._coordinator.run_again(name, len(self._ended[name]) + 1)
        if is_met := send_signal(process, signal.SIGKILL if kind is FaultKind.KILL else signal.SIGTERM):
            self._ended[name].add(process)
        else:
            self._coordinator.run_again(name, len(self._ended[name]))
        return is_met

    def heal(self, kind: FaultKind, name: str) -> None:
        """Let a frozen task continue."""
        if kind is FaultKind.FREEZE and (process := self._frozen.pop(name, None)) is not None:
            send_signal(process, signal.SIGCONT)
