"""What `sluice record` does."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sluice.errors import ConfigError, HistoryError
from sluice.recorder import every_client
from sluice.recorder.journal import SUFFIX
from sluice.terminal import output


def record(*, folder: Path, command: Sequence[str], one_group_in: int) -> None:
    """Run the command, and end with its exit code."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(
            f"cannot record into {folder} ({error.strerror}); name a folder that can be written"
        ) from error
    environment = every_client.environment(folder, one_group_in, os.environ)
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ConfigError(f"cannot run {command[0]!r} ({error.strerror}); name a program, as after `--`") from error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well, which decides
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    code = child.wait()
    written = len(list(folder.glob(f"*{SUFFIX}")))
    output.line(
        f"journals in {folder}: {written}; judge them: sluice check {folder} --queue NAME=SECONDS", is_error=True
    )
    sys.exit(code if code >= 0 else 128 - code)
