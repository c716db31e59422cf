"""A program that a command starts, and ends with."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

from sluice.errors import ConfigError


def require_program(command: Sequence[str]) -> None:
    """Refuse a command whose program is not installed; called before anything else is started.

    Raises:
        ConfigError: it is not.
    """
    if shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}; name one, as after `--`")


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end and return its exit code.

    Signals that would end this process are forwarded to the program.

    Raises:
        ConfigError: it cannot be run.
    """
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ConfigError(f"cannot run {command[0]!r} ({error.strerror}); name a program, as after `--`") from error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well, which decides

    def forward(number: int, _: object) -> None:  # without the lock of `send_signal`, which `wait` may have
        if child.returncode is None:
            os.kill(child.pid, number)

    signal.signal(signal.SIGTERM, forward)
    code = child.wait()
    return code if code >= 0 else 128 - code
