"""State that handlers share with their whole process: it is restored when no handler runs any more.

A process has one working directory, one environment, one locale. A handler may change them while it runs, but the next
message must not find the change. Handlers of other lanes see the change meanwhile. A handler that changes something for
a moment must not lose the change within that moment, so the state is restored only after all of them have returned.
"""

import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from sluice.terminal import streams
from sluice.terminal.logger import Logger

_log = Logger()
_STATUS_BYTES = 200  # enough to contain the second line of the file
FORKED = 70  # EX_SOFTWARE: the exit code of a child that came back from a handler


class _Part(NamedTuple):
    look: Callable[[], Any]
    put_back: Callable[[Any], object]


class _Mask:
    """The file mask as Linux shows it, because reading it with `os.umask` would change it for other threads too.

    https://man7.org/linux/man-pages/man5/proc_pid_status.5.html (read 2026-11-26)
    """

    def __init__(self) -> None:
        self._status: int | None = None
        os.register_at_fork(after_in_child=self._forget)  # the child must not use the parent's descriptor

    def look(self) -> int | None:
        """Return the mask; None on a system other than Linux, or if no file descriptor is free."""
        # twice: a handler may have closed the descriptor, and its number may belong to another file now
        for _ in range(2):
            is_ours = self._status is None
            try:
                if self._status is None:
                    self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
                found = os.pread(self._status, _STATUS_BYTES, 0).partition(b"Umask:\t")[2][:4]
            except OSError:
                found = b""
            if found:
                return int(found, 8)
            if is_ours and self._status is not None:
                os.close(self._status)
            self._forget()
        return None

    def _forget(self) -> None:
        self._status = None


def _restore_mask(mask: int | None) -> None:
    if mask is not None:
        os.umask(mask)


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 (a path is made of it a thousand times a second)
    except FileNotFoundError:
        return None


def _change_folder(path: str | None) -> None:
    if path is not None:
        os.chdir(path)


class _Environment:
    """A copy of the environment, renewed only after a variable was set, because copying takes long.

    `os.environ` raises an audit event before each change, with the variable's new value. The environment differs from
    the announced one while another thread is between the event and the change, and permanently if code calls
    `os.putenv` itself; such a copy is used once. https://docs.python.org/3/library/audit_events.html (read 2026-11-27)
    """

    _PROBE = "sluice.environment"

    def __init__(self) -> None:
        self._mapping, self._change = os.environ, object()
        self._announced: dict[str, str | None] = {}  # name to value; None for a removed variable
        self._copied: tuple[object, dict[str, str]] | None = None
        sys.addaudithook(self._note)
        before = self._change
        sys.audit(self._PROBE)
        # another audit hook may refuse this one, and then `addaudithook` raises nothing
        self._hears = self._change is not before

    def look(self) -> dict[str, str]:
        """Return its variables."""
        change, copied = self._change, self._copied
        if copied is not None and copied[0] is change and os.environ is self._mapping:
            return copied[1]
        announced, variables = self._announced.copy(), os.environ.copy()
        is_done = all(variables.get(name) == value for name, value in announced.items())
        if self._hears and is_done and os.environ is self._mapping:
            self._copied = change, variables
        return variables

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.putenv", "os.unsetenv"):
            name, *value = map(os.fsdecode, arguments)
            self._announced[name] = value[0] if value else None
        if event in ("os.putenv", "os.unsetenv", self._PROBE):
            self._change = object()


def _restore_environment(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    time.tzset()


def _restore_warnings(filters: list[Any]) -> None:
    warnings.resetwarnings()  # also clears the filters' cached decisions
    warnings.filters[:] = filters  # type: ignore[index]


def _timers() -> list[bool]:
    """Return which timers run; the signal of one ends the process, unless somebody handles it."""
    return [signal.getitimer(timer)[0] > 0 for timer in _TIMERS]


def _end_timers(were_set: list[bool]) -> None:
    for timer, was_set in zip(_TIMERS, were_set, strict=True):
        if not was_set:
            signal.setitimer(timer, 0)


def _signals() -> dict[int, Any]:
    """Return the handlers of signals; empty on other threads than the main one, which cannot change them."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _restore_signals(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _streams() -> tuple[Any, ...]:
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook
    return (sys.stdin, sys.stdout, sys.stderr), hooks, (streams.look(sys.stdout), streams.look(sys.stderr))


def _restore_streams(before: tuple[Any, ...]) -> None:
    (sys.stdin, sys.stdout, sys.stderr), hooks, seen = before
    sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook = hooks
    for descriptor, stream in enumerate((sys.stdout, sys.stderr), start=1):
        streams.put_back(stream, descriptor, seen[descriptor - 1])


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]


def _restore_limits(limits: list[tuple[int, int]]) -> None:
    for limit, before in zip(_LIMITS, limits, strict=True):
        resource.setrlimit(limit, before)


# Limits that harm other handlers if they are too low: no file can be opened, no thread can start, a write ends the
# process, no memory is allocated.
_LIMITS = (
    *(resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU),
    *(resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK),
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_PARTS = {
    "working directory": _Part(_folder, _change_folder),
    "environment": _Part(_Environment().look, _restore_environment),
    "locale": _Part(partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    "file mask": _Part(_Mask().look, _restore_mask),
    "warning filters": _Part(lambda: list(warnings.filters), _restore_warnings),
    "recursion limit": _Part(sys.getrecursionlimit, sys.setrecursionlimit),
    "switch interval": _Part(sys.getswitchinterval, sys.setswitchinterval),
    "digits of an int": _Part(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    "import path": _Part(lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path)),
    "default timeout of sockets": _Part(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "garbage collection": _Part(gc.isenabled, lambda was_enabled: (gc.enable if was_enabled else gc.disable)()),
    "thresholds of garbage collection": _Part(gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    "debugging of garbage collection": _Part(gc.get_debug, gc.set_debug),
    "limits of the system": _Part(_limits, _restore_limits),
    "stack of new threads": _Part(threading.stack_size, threading.stack_size),
    "level under which nothing is logged": _Part(lambda: logging.root.manager.disable, logging.disable),
    "timers": _Part(_timers, _end_timers),
    "trace function of new threads": _Part(threading.gettrace, threading.settrace),
    "profile function of new threads": _Part(threading.getprofile, threading.setprofile),
    "signal handlers": _Part(_signals, _restore_signals),
    "standard streams and hooks": _Part(_streams, _restore_streams),
}
"""The parts of a process's state: name, function that reads it, and function that restores it."""
_PARTS_OF_THREAD = {
    "trace function": _Part(sys.gettrace, sys.settrace),
    "profile function": _Part(sys.getprofile, sys.setprofile),
    "hooks of generators": _Part(sys.get_asyncgen_hooks, lambda hooks: sys.set_asyncgen_hooks(*hooks)),
    "signals that it blocks": _Part(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()), partial(signal.pthread_sigmask, signal.SIG_SETMASK)
    ),
}
"""The parts of a thread's state, which handlers on other threads do not see."""


def _look(parts: Mapping[str, _Part]) -> list[Any]:
    return [part.look() for part in parts.values()]


def _put_back(parts: Mapping[str, _Part], before: list[Any]) -> None:
    now = _look(parts)
    if now == before:  # fast: the same object is equal to itself
        return
    for (name, part), found, value in zip(parts.items(), now, before, strict=True):
        if found == value:
            continue
        try:
            part.put_back(value)
        except (OSError, ValueError, locale.Error) as error:
            _log.error("a handler changed its process, and that stays so", part=name, error=str(error))
        else:
            _log.warning("a handler changed its process; it is as before", part=name)


class ProcessState:
    """Counts the handlers that run in a process. Any number of threads use it."""

    def __init__(self) -> None:
        self._lock, self._running = threading.Lock(), 0
        self._before: list[Any] = []

    def handling(self) -> "_HandlerState":
        """Return the block in which a handler runs.

        When the last running handler has returned, the block restores the state before the first one.
        """
        return _HandlerState(self)

    def begin(self) -> None:
        """Note that a handler begins; look at the state before the first one."""
        with self._lock:
            if self._running == 0:
                self._before = _look(_PARTS)
            self._running += 1

    def end(self) -> None:
        """Note that a handler has returned; restore the state after the last one."""
        with self._lock:
            self._running -= 1
            if self._running == 0:
                _put_back(_PARTS, self._before)


class _HandlerState:
    """A block in which a handler runs."""

    def __init__(self, process: ProcessState) -> None:
        self._process = process

    def __enter__(self) -> None:
        self._process.begin()
        self._of_thread = _look(_PARTS_OF_THREAD)

    def __exit__(self, *_: object) -> None:
        _put_back(_PARTS_OF_THREAD, self._of_thread)
        self._process.end()


class StateOfThread:
    """The current state of an event loop and its thread, to be restored when a handler has ended.

    Handlers that share a loop see each other's changes until one of them ends. Runs on the loop's thread.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._parts = _PARTS_OF_THREAD | {
            "task factory": _Part(loop.get_task_factory, loop.set_task_factory),
            "exception handler": _Part(loop.get_exception_handler, loop.set_exception_handler),
            "debugging": _Part(loop.get_debug, loop.set_debug),
        }
        self._before = _look(self._parts)

    def put_back(self) -> None:
        """Restore the state."""
        _put_back(self._parts, self._before)


class ProcessGuard:
    """Ends a child process that returns from a handler that forked: it would use the sockets of its parent."""

    def __enter__(self) -> None:
        self._process_id = os.getpid()

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._process_id:
            os._exit(FORKED)


process_state = ProcessState()
"""The state of this process, shared by all its workers."""
