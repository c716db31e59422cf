"""Signals to processes that may have ended since somebody looked: nobody else's process is waited for here."""

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


def limited_files(pid: int, *, is_full: bool) -> bool:
    """Let a process write to no file, as on a full disk, or again; return whether there was a process."""
    try:
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))
    except ProcessLookupError:
        return False
    return True
