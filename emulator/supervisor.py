"""Run a command so that it never outlives whoever asked for it.

    python emulator/supervisor.py PIPE_FD GRACE_SECONDS FOLDER COMMAND…

The command gets a process group of its own. The supervisor ends that whole group when the command ends, when the pipe
closes (the asker died, by whatever signal) or when a byte arrives on it: SIGINT for `i`, else SIGTERM, and SIGKILL
after the grace. Then it removes FOLDER, unless that is empty. Standard library only: it must start fast and never fail
to import.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

INTERRUPT = b"i"
_TICK_SECONDS = 0.1
_PR_SET_CHILD_SUBREAPER = 36


class _Command:
    """A command, its process group, and its exit code once that is known."""

    def __init__(self, arguments: list[str]) -> None:
        self._process = subprocess.Popen(arguments, process_group=0, preexec_fn=_default_signals)  # noqa: PLW1509
        self.group = self._process.pid
        self.code: int | None = None

    def reap(self) -> None:
        """Collect every child that has ended: orphans of the group are ours as well (see `_adopt_orphans`)."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.group:
                    self.code = self._process.returncode = os.waitstatus_to_exitcode(ended[1])

    def signal(self, number: int) -> bool:
        """Signal every process of the group; False when there is none left."""
        self.reap()
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:
            return False
        return True

    def end(self, number: int, grace_seconds: float) -> int:
        """Signal the group, kill the rest of it after the grace, and return the command's exit code."""
        deadline = time.monotonic() + grace_seconds  # noqa: TID251 (no import of sluice here: see above)
        self.signal(number)
        while self.signal(0):
            if time.monotonic() > deadline:  # noqa: TID251
                self.signal(signal.SIGKILL)
            time.sleep(_TICK_SECONDS)  # noqa: TID251
        assert self.code is not None, "the group is empty, so its leader has ended"
        return self.code


def _adopt_orphans() -> None:
    """Become the parent of the command's orphans, where the system can (Linux).

    Otherwise they are init's, and until init reaps them, which may take long, they count as members of their group.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(pipe: int, grace_seconds: float, arguments: list[str]) -> int:
    """Run a command until it ends or the pipe says so; return its exit code (128 + n for signal n, 127 not found)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _adopt_orphans()
    try:
        command = _Command(arguments)
    except OSError as error:
        print(f"cannot run {arguments[0]!r}: {error.strerror}", file=sys.stderr)
        return 127
    request: bytes | None = None
    while request is None and command.code is None:
        if select.select([pipe], [], [], _TICK_SECONDS)[0]:
            request = os.read(pipe, 1)
        command.reap()
    code = command.end(signal.SIGINT if request == INTERRUPT else signal.SIGTERM, grace_seconds)
    return code if code >= 0 else 128 - code


def _default_signals() -> None:
    """Restore the default handling of signals in the command, before it is executed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        code = main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[4:])
        if sys.argv[3]:
            shutil.rmtree(sys.argv[3], ignore_errors=True)
        sys.exit(code)
