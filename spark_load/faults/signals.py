"""Signals to processes that may have ended by now; this module waits for no process."""

import os
import resource
import signal


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether there was a process to get it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def limit_file_writes(pid: int, *, is_full: bool) -> bool:
    """Forbid a process to write to files, as on a full disk, or allow it again; return whether the process existed."""
    try:
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))
    except ProcessLookupError:
        return False
    return True
