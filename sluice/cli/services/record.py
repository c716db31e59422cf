"""What `sluice record` does."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sluice.errors import ConfigError, unwritable
from sluice.recorder import every_client
from sluice.recorder.journal import SUFFIX
from sluice.terminal import output


def record(*, folder: Path, command: Sequence[str], one_group_in: int) -> None:
    """Run the command, and end with its exit code."""
    if shutil.which(command[0]) is None:
        raise ConfigError(f"there is no program {command[0]!r}; name one, as after `--`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error, "name a folder that can be written") from error
    earlier = _journals(folder)
    environment = every_client.environment(folder, one_group_in, os.environ)
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ConfigError(f"cannot run {command[0]!r} ({error.strerror}); name a program, as after `--`") from error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well, which decides
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    code = child.wait()
    found = _journals(folder)
    written = str(len(found))
    if found - earlier:
        judge = f"judge them: sluice check {folder} --queue NAME=SECONDS"
    else:
        written += ", of which this made none" if earlier else ""
        judge = (
            "no Python program made an SNS or SQS client, or it ran with -I, -E or -S, or on a Python before 3.12,"
            " which keep the recorder out"
        )
    output.line(f"journals in {folder}: {written}; {judge}", is_error=True)
    sys.exit(code if code >= 0 else 128 - code)


def _journals(folder: Path) -> set[Path]:
    return set(folder.glob(f"*{SUFFIX}"))
