"""A command ends, as on SIGTERM, though a handler has left threads or processes that Python would wait for."""

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from sluice.__main__ import run
from tests.support.processes.forking import forking

_forked = forking(__name__)
_PATIENCE_SECONDS = 20.0
_LONG_SECONDS = 300
_kept: list[ProcessPoolExecutor] = []
_fork = multiprocessing.get_context("fork")


def _leave_process() -> None:
    _fork.Process(target=threading.Event().wait, args=(_LONG_SECONDS,)).start()


def _leave_pool() -> None:
    """Leave a pool whose processes wait for more to do, as a module of handlers keeps it."""
    _kept.append(ProcessPoolExecutor(1, mp_context=_fork))
    _kept[-1].submit(abs, -1).result()


def _leave_thread() -> None:
    threading.Thread(target=threading.Event().wait, args=(_LONG_SECONDS,)).start()


def _be_sluice(leave: Callable[[], None]) -> None:
    """Leave something at work, and run `sluice --version` in this forked process."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # as a worker has it, and what it forks
    leave()
    sys.argv = ["sluice", "--version"]
    run()


@pytest.mark.parametrize("leave", [_leave_process, _leave_pool, _leave_thread])
def test_a_command_ends_though_something_is_left_at_work(leave: Callable[[], None]) -> None:
    """The leftover would work for _LONG_SECONDS, and Python waits for it at the end of a process."""
    process = _forked.Process(target=_be_sluice, args=(leave,), daemon=False)
    process.start()

    process.join(_PATIENCE_SECONDS)
    code = process.exitcode
    process.kill()

    assert code == 0
