"""A waiting process ends when a signal tells it to, at whatever instruction the signal arrives."""

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sluice.messaging.waiting import Stop
from tests.support.project import PROJECT, modules

ROUNDS = 1_000
PATIENCE_SECONDS = 30
SIGNALLED = f"""
import os, random, signal
from sluice.cli.dlq.target import StoppableClock
from sluice.messaging.waiting import Stop

rng = random.Random(1)
for _ in range({ROUNDS}):
    stop = Stop()
    clock = StoppableClock(stop)
    stop.on_signals()
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 150e-6))
    while not stop.is_stopped():
        {{wait}}
    os.kill(os.getpid(), signal.SIGINT)
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
"""A process that one signal meets at any instruction of a wait, and then another, again and again."""
_WRITES_TO_ITS_TERMINAL = """
import sys
from sluice.messaging.waiting import Stop
Stop().on_signals()
print("written", flush=True)
try:
    sys.stdin.read()
except OSError:
    sys.exit(0)
"""
IN_BACKGROUND = f"""
import os, subprocess, sys, termios
terminal = os.open(os.ttyname(0), os.O_RDWR)  # the first that a session opens is its own
attributes = termios.tcgetattr(terminal)
attributes[3] |= termios.TOSTOP
termios.tcsetattr(terminal, termios.TCSANOW, attributes)
background = subprocess.Popen([sys.executable, "-c", {_WRITES_TO_ITS_TERMINAL!r}], process_group=0)
_, status = os.waitpid(background.pid, os.WUNTRACED)
background.kill()
sys.exit(not os.WIFEXITED(status) or os.waitstatus_to_exitcode(status))
"""
"""A process that is started behind a `&`, after `stty tostop`."""
_KNOWN = {"SIG_IGN", "SIG_DFL", "default_int_handler", "before", "handler"}
"""Python's own, and the names of what was there before, where it is put back."""
_WITHOUT_LOCK = {"os._exit", "os.kill", "self._requests.put"}
"""What a handler may call: a system call, or a `put` of a SimpleQueue."""


@pytest.mark.parametrize("wait", ["stop.wait(1e-6)", "clock.sleep(1e-6)", "stop.request()"])
def test_s2_a_signal_at_any_instruction_of_a_wait_ends_it(wait: str) -> None:
    """A signal handler that needed a lock of the wait hung once in some hundred rounds."""
    script = SIGNALLED.format(wait=wait)

    ended = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, timeout=PATIENCE_SECONDS, check=False)

    assert ended.returncode == 0


def test_a_process_in_the_background_of_a_terminal_is_not_stopped() -> None:
    """Otherwise its messages would stay in flight until somebody brings it to the foreground."""
    ours, terminal = os.openpty()
    leader = [sys.executable, "-c", IN_BACKGROUND]
    try:
        with subprocess.Popen(leader, cwd=PROJECT, stdin=terminal, stdout=terminal, start_new_session=True) as ended:
            ended.wait(PATIENCE_SECONDS)
    finally:
        os.close(ours)
        os.close(terminal)

    assert ended.returncode == 0


def test_a_request_ends_the_waits_of_all_threads() -> None:
    """Fifty threads wait, each for five minutes."""
    stop = Stop()
    waiting = [threading.Thread(target=stop.wait, args=(PATIENCE_SECONDS * 10,), daemon=True) for _ in range(50)]
    for thread in waiting:
        thread.start()

    stop.request()
    for thread in waiting:
        thread.join(PATIENCE_SECONDS)

    assert not any(thread.is_alive() for thread in waiting)


def test_a_wait_ends_after_its_time_even_if_that_is_past() -> None:
    """A wait of 0 or -1 s ends at once."""
    stop = Stop()

    for seconds in (0.001, 0, -1):
        stop.wait(seconds)

    assert not stop.is_stopped()


def test_no_handler_of_a_signal_calls_anything_with_a_lock() -> None:
    """The interrupted thread may hold the lock; a stream's buffer cannot be entered twice either."""
    found = [
        f"{path.relative_to(PROJECT)}:{call.lineno}: {ast.unparse(call)} calls {name}"
        for path in modules()
        if "signal.signal(" in (source := path.read_text(encoding="utf-8"))
        for call, handler in _handlers(ast.parse(source))
        for name in _calls(handler)
        if name not in _WITHOUT_LOCK
    ]

    assert found == []


def test_a_handler_that_takes_a_lock_is_found() -> None:
    """A lambda, a function, a method; of what cannot be followed nothing is known."""
    module = ast.parse(
        "signal.signal(1, lambda *_: child.terminate())\nsignal.signal(1, stop)\nsignal.signal(1, self.set)\n"
        "signal.signal(1, imported)\nsignal.signal(1, signal.SIG_IGN)\n"
        "def stop(*_):\n    raise Stopped(print(1))\n"
        "class A:\n    def set(self, *_):\n        self._event.set()\n"
    )

    found = [name for _, handler in _handlers(module) for name in _calls(handler)]

    assert found == ["child.terminate", "print", "self._event.set", "imported"]


def _handlers(module: ast.Module) -> Iterator[tuple[ast.Call, ast.expr | ast.FunctionDef]]:
    """Yield each call of `signal.signal` and the function that it names, as far as this module has that."""
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "signal.signal":
            handler = call.args[1]
            name = ast.unparse(handler).removeprefix("signal.").removeprefix("self.")
            if name not in _KNOWN:
                yield call, functions.get(name, handler)


def _calls(handler: ast.expr | ast.FunctionDef) -> Iterator[str]:
    """Yield the names of the functions that a handler calls; its own name if its code cannot be followed."""
    if not isinstance(handler, ast.Lambda | ast.FunctionDef):
        yield ast.unparse(handler)
    raised = {node.exc for node in ast.walk(handler) if isinstance(node, ast.Raise)}
    for node in ast.walk(handler):
        if isinstance(node, ast.Call) and node not in raised:
            yield ast.unparse(node.func)


@pytest.mark.parametrize("is_ignored", [False, True], ids=["terminal", "nohup"])
def test_a_hangup_ends_a_wait_unless_it_is_ignored(is_ignored: bool) -> None:  # noqa: FBT001
    """SIGHUP comes when the terminal is closed; nohup ignores it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    stop = Stop()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        if is_ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop.on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert stop.is_stopped() is not is_ignored
