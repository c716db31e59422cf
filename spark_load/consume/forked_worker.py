"""A process of `sluice worker` or `sluice relay`, forked from a process that has already imported everything.

The imports take seconds. The load test does not import the code that it tests; so the modules to import are a list of
names here.
"""

import importlib
import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sluice import clock
from spark_load.faults.signals import limit_file_writes, send_signal

_RECORDING_MODULE = "sluice.cli.services.running"
_PRELOADED = (__name__, "sluice.cli.services.worker", "sluice.cli.services.relay", "sluice.lambda_local.local")
_SIGNS_OF_WORK = tuple(f'"event": "{event}"' for event in ("working", "polling", "leading", "standing by"))
"""What workers, pollers of a function and relays log when they have begun."""
_forked = multiprocessing.get_context("forkserver")


def _run_sluice_in_fork(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: str, ahead_seconds: float
) -> None:
    """Run `sluice …` in this process, with its output in a log file.

    The process ends when the run ends, for any reason.
    """
    if ahead_seconds:
        _set_clock(ahead_seconds)
    threading.Thread(target=_follow_run, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    sys.argv = ["sluice", *arguments]
    runpy.run_module(module, run_name="__main__")


def _set_clock(ahead_seconds: float) -> None:
    """Set this process's wall clock ahead, as on another machine; its journal names another clock, too."""
    offset_us = clock.wall_minus_monotonic_us() + round(ahead_seconds * 1_000_000)
    own_id = f"{clock.clock_id()}, {ahead_seconds:g} s ahead"
    clock.wall_minus_monotonic_us = lambda: offset_us
    importlib.import_module(_RECORDING_MODULE).clock_id = lambda: own_id  # type: ignore[attr-defined]


def _follow_run() -> None:
    """Wait until the process of the run has ended, and then end this process."""
    run = multiprocessing.parent_process()
    assert run is not None, "a run started it"
    multiprocessing.connection.wait([run.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def prepare() -> None:
    """Import the modules now, so that the first worker starts as fast as the next one."""
    _forked.set_forkserver_preload(list(_PRELOADED))
    first = _forked.Process(target=_do_nothing)
    first.start()
    first.join()


def _do_nothing() -> None:
    """Do nothing. The process exists only because the first fork imports the modules."""


class ForkedWorker:
    """The process of a worker or relay, which may be waited for, stopped and killed.

    Args:
        arguments: arguments of `sluice`.
        environment: all its environment variables.
        log: the file that its output is appended to.
        ahead_seconds: how far its clock is ahead of the machine's.
        module: the module to run with these arguments.

    Raises:
        OSError: the log cannot be written.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        ahead_seconds: float = 0,
        module: str = "sluice",
    ) -> None:
        self.log = log
        log.open("ab").close()
        _forked.set_forkserver_preload(list(_PRELOADED))
        self._process = _forked.Process(
            target=_run_sluice_in_fork,
            args=(module, list(arguments), dict(environment), str(log), ahead_seconds),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Return its process id."""
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, negative after a signal; None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout_seconds: float) -> bool:
        """Wait at most `timeout_seconds`; return whether the process has ended."""
        self._process.join(timeout_seconds)
        return self.poll() is not None

    def terminate(self) -> bool:
        """Send SIGTERM; return whether the process existed."""
        return self._send(signal.SIGTERM)

    def kill(self) -> bool:
        """Send SIGKILL; return whether the process existed."""
        return self._send(signal.SIGKILL)

    def freeze(self) -> bool:
        """Send SIGSTOP; return whether the process existed."""
        return self._send(signal.SIGSTOP)

    def thaw(self) -> bool:
        """Send SIGCONT; return whether the process existed."""
        return self._send(signal.SIGCONT)

    def fill_disk(self, *, is_full: bool) -> bool:
        """Forbid the process to write to files, as on a full disk, or allow it again.

        Return whether the process existed.
        """
        return self.poll() is None and limit_file_writes(self.pid, is_full=is_full)

    def _send(self, number: signal.Signals) -> bool:
        return self.poll() is None and send_signal(self.pid, number)

    def is_polling(self) -> bool:
        """Return whether the process has logged that it receives messages, or leads, or stands by."""
        output = self.log.read_text(encoding="utf-8", errors="replace")
        return any(sign in output for sign in _SIGNS_OF_WORK)

    def last_words(self) -> str:
        """Return the last line of the process's log."""
        return last_line(self.log.read_text(encoding="utf-8", errors="replace"))


class FunctionWorker(ForkedWorker):
    """The process of `sluice lambda local`, which polls a queue and starts the function: a process of `awslambdaric`.

    Faults hit the function. A kill ends the poller too: nobody handles the batch until its visibility timeout ends.
    After a freeze the poller goes on, and ends the invocation when the function's timeout is over.
    """

    def kill(self) -> bool:
        """Send SIGKILL to the functions and the poller; return whether the poller existed."""
        functions = self._functions()
        is_met = super().kill()
        for pid in functions:  # after the poller, which would otherwise start another function
            send_signal(pid, signal.SIGKILL)
        return is_met

    def freeze(self) -> bool:
        """Send SIGSTOP to the functions; return whether there were any."""
        return self._signal_functions(signal.SIGSTOP)

    def thaw(self) -> bool:
        """Send SIGCONT to the functions; return whether there were any."""
        return self._signal_functions(signal.SIGCONT)

    def _signal_functions(self, number: signal.Signals) -> bool:
        met = [send_signal(pid, number) for pid in self._functions()]
        return any(met)

    def _functions(self) -> list[int]:
        """Return the process ids of the functions."""
        found: list[int] = []
        for task in Path(f"/proc/{self.pid}/task").glob("*"):
            with suppress(OSError):  # the thread or the process has ended
                found += map(int, (task / "children").read_text(encoding="ascii").split())
        return found


def last_line(output: str) -> str:
    """Return the last line of a process's output, which may be the reason of its end."""
    lines = output.strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
