"""The processes of a run: each has a slot, and whatever becomes of it, another one takes its place."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluice.cli.main import main
from sluice.clock import SystemClock, eventually
from sluice.declaration import Environment, task_settings
from spark_load.faults.signals import signalled

_AGAIN_SECONDS = 0.5  # a process that ends at once must not take all the machine
_END_SECONDS = 60
PRODUCER, RELAY, OPERATOR = "producer", "relay", "operator"
"""Roles; the others are consumers' names."""
_forked = multiprocessing.get_context("forkserver")


def preload() -> None:
    """Have processes forked from one that has imported everything, which takes seconds."""
    _forked.set_forkserver_preload([__name__, "tests.chaos.system.producers", "tests.chaos.system.handlers"])


def run_command(arguments: Sequence[str], environment: Mapping[str, str], declared: Environment) -> None:
    """Be `sluice …`, where an environment is declared besides the others."""
    os.environ.clear()
    os.environ.update(environment)
    os.environ[task_settings.VARIABLE] = task_settings.render(declared)
    sys.argv = ["sluice", *arguments]
    main()


def _begin(log: str, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Begin a process: its output goes to its log, and it dies with the run, whatever that dies of."""
    threading.Thread(target=_follow_run, daemon=True).start()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's, which ends them
    target(*arguments)


def _follow_run() -> None:
    """Die when the run has died."""
    run = multiprocessing.parent_process()
    assert run is not None, "it was started by a run"
    multiprocessing.connection.wait([run.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


class Slot:
    """A place for one process.

    Args:
        name: of the place.
        role: what it is one of.
        log: file for the output of all that were there.
        target: what they run.
        arguments: of that.
    """

    def __init__(self, name: str, role: str, log: Path, target: Callable[..., None], *arguments: Any) -> None:
        self.name, self.role = name, role
        self.started_count = 0
        self.is_wanted = True
        self._begin_with = (str(log), target, arguments)
        self._process: multiprocessing.process.BaseProcess | None = None
        self._started_at = float("-inf")
        self._is_expected = False

    def start(self) -> None:
        """Start another one."""
        self._process = _forked.Process(target=_begin, args=self._begin_with, daemon=True)
        self._process.start()
        self.started_count += 1
        self._started_at, self._is_expected = SystemClock().monotonic(), False

    @property
    def is_running(self) -> bool:
        """Return whether there is one that has not ended."""
        return self._process is not None and self._process.is_alive()

    def send(self, number: signal.Signals, *, is_end: bool) -> None:
        """Send it a signal, which ends it or not; nothing where there is none."""
        if self._process is not None and self._process.is_alive() and self._process.pid is not None:
            is_met = signalled(self._process.pid, number)
            self._is_expected = self._is_expected or (is_end and is_met)

    def freeze(self) -> None:
        """Stop it where it is."""
        self.send(signal.SIGSTOP, is_end=False)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT, is_end=False)

    def reap(self) -> tuple[int, bool] | None:
        """Return exit code and whether somebody ended it, once, when it has ended."""
        if self._process is None or self._process.is_alive():
            return None
        code = self._process.exitcode
        assert code is not None
        self._process.close()
        self._process = None
        return code, self._is_expected

    @property
    def is_due(self) -> bool:
        """Return whether another one is to be started now."""
        return self.is_wanted and SystemClock().monotonic() - self._started_at >= _AGAIN_SECONDS

    def await_end(self) -> None:
        """Wait until it has ended."""
        eventually(lambda: not self.is_running, timeout_seconds=_END_SECONDS, describe=f"{self.name} to end")

    def end(self) -> None:
        """Kill it, and wait for that."""
        if self._process is not None:
            self._process.kill()
            self._process.join(_END_SECONDS)
            self.reap()


class Fleet:
    """All processes of a run; whatever still runs when the block ends is killed."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.exits: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self.slots.values():
            slot.end()

    def add(self, slot: Slot) -> Slot:
        """Take in a place, and start what belongs there."""
        self.slots[slot.name] = slot
        slot.start()
        return slot

    def of(self, role: str) -> list[Slot]:
        """Return the places of a role."""
        return [slot for slot in self.slots.values() if slot.role == role]

    def tend(self) -> None:
        """Take note of what has ended, and start another one in its place; producers and commands end for good."""
        for slot in self.slots.values():
            ended = slot.reap()
            if ended is not None:
                code, is_expected = ended
                self.exits[f"{slot.role}: {_ending(code)}{'' if is_expected else ', by itself'}"] += 1
                if slot.role == OPERATOR or (code == 0 and slot.role == PRODUCER):
                    slot.is_wanted = False
            if not slot.is_running and slot.is_due:
                slot.start()

    def stop(self, role: str) -> list[int]:
        """Ask all of a role to end, and return their exit codes."""
        slots, codes = self.of(role), []
        for slot in slots:
            slot.is_wanted = False
            slot.thaw()
            slot.send(signal.SIGTERM, is_end=True)
        for slot in slots:
            slot.await_end()
            ended = slot.reap()
            codes += [] if ended is None else [ended[0]]
        return codes


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
