"""The command `sluice`, and `python -m sluice`: Ctrl-C ends it with 130, also while its modules are being imported."""

import os
import signal
import sys

from sluice.terminal import streams
from sluice.terminal.exits import STOPPED

_TERMINATED = 128 + signal.SIGTERM


def run() -> None:
    """Run the command line. Until it takes over, nothing has begun that would have to be ended."""
    streams.install()
    if os.getpid() == 1:  # to which the kernel sends no signal that has no handler: a container's stop would be ignored
        signal.signal(signal.SIGTERM, lambda *_: os._exit(_TERMINATED))
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not what runs in the background
    if is_default:
        signal.signal(signal.SIGINT, lambda *_: os._exit(STOPPED))
    from sluice.cli.main import run as run_command  # noqa: PLC0415 (takes a tenth of a second)

    try:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run_command()
    except KeyboardInterrupt:
        sys.exit(STOPPED)


if __name__ == "__main__":
    run()
