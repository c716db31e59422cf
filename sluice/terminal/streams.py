"""The standard streams of a command: whatever they lead to, writing to them fails nobody.

Daemons, containers and pagers start a program with streams that are closed, lead to a full disk or to a terminal that
is gone, know no Unicode, or that nobody reads. A print would then raise in whoever prints, a handler among them, and a
full pipe would stop a worker for ever.
"""

import errno
import io
import os
import select
import sys
from typing import Any

_STANDARD = (0, 1, 2)
_OUTPUTS = ("stdout", "stderr")
_PIPE_BYTES = 4_096
"""So much a pipe takes without blocking once it says that it takes anything: PIPE_BUF.

https://man7.org/linux/man-pages/man7/pipe.7.html (read 2026-11-26)
"""
WAIT_MILLISECONDS = 2_000
_LEFT_OUT = '\n{{"event": "bytes were left out here, which nobody read in time", "bytes": {}, "level": "warning"}}\n'


class _Output(io.FileIO):
    """A standard stream's file, of which a write never fails; `error` is the first that did."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.error: OSError | None = None
        self.wait_milliseconds: int | None = None
        self._left_out_bytes = 0

    def write(self, data: Any, /) -> int:
        """Write all of it, or leave out what cannot be written."""
        whole = memoryview(data).cast("B")
        try:
            if self._left_out_bytes and self._is_ready(0):
                noted, self._left_out_bytes = self._left_out_bytes, 0
                super().write(_LEFT_OUT.format(noted).encode())
            self._left_out_bytes += self._write_in_time(whole)
        except OSError as error:
            self.error = self.error or error
        return len(whole)

    def _write_in_time(self, left: memoryview) -> int:
        """Write as much as somebody reads in time, and return how many bytes are left."""
        while left and self._is_ready(0 if self._left_out_bytes else self.wait_milliseconds):
            left = left[super().write(left[:_PIPE_BYTES]) or 0 :]  # None where somebody made it non-blocking
        return len(left)

    def _is_ready(self, milliseconds: int | None) -> bool:
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return bool(poll.poll(milliseconds))


def install() -> None:
    """Make this process's standard streams such ones, before it opens any file. A closed one leads nowhere from now on.

    Else the next file or socket that is opened would be standard output, and get what is printed.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(descriptor, True)  # noqa: FBT003 (has no name)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (as long as the process)
    for descriptor, name in enumerate(_OUTPUTS, start=1):
        setattr(sys, name, stream(descriptor, getattr(sys, name)))


def stream(descriptor: int, before: Any) -> io.TextIOWrapper:
    """Return such a stream on a file, otherwise like the one there was before; what it cannot encode is escaped."""
    is_direct = before is not None and (before.line_buffering or before.write_through)
    encoding = "utf-8" if before is None else before.encoding
    writer = io.BufferedWriter(_Output(descriptor))
    return io.TextIOWrapper(writer, encoding=encoding, errors="backslashreplace", line_buffering=is_direct)


def look(stream: Any) -> tuple[str, str, bool] | None:
    """Return how a stream encodes and buffers lines; None where it is closed, or is no file of text."""
    try:
        return None if stream.closed else (stream.encoding, stream.errors, stream.line_buffering)
    except (AttributeError, ValueError):  # its file was taken from it (`detach`)
        return None


def put_back(stream: Any, descriptor: int, seen: tuple[str, str, bool] | None) -> None:
    """Let a standard output be as `look` has seen it; one that was closed since is opened again on its descriptor.

    It stays the same object, which the log and the metrics write to.
    """
    if seen is None or look(stream) == seen or not isinstance(stream, io.TextIOWrapper):
        return
    if look(stream) is not None:
        stream.reconfigure(encoding=seen[0], errors=seen[1], line_buffering=seen[2])
        return
    file = io.BufferedWriter(_Output(descriptor))
    stream.__init__(file, encoding=seen[0], errors=seen[1], line_buffering=seen[2])  # type: ignore[misc]
    bound_waits()


def _find_output(name: str) -> _Output | None:
    raw = getattr(getattr(getattr(sys, name), "buffer", None), "raw", None)
    return raw if isinstance(raw, _Output) else None


def bound_waits() -> None:
    """Wait no longer than two seconds for whoever is to read; then leave out what is printed until somebody reads.

    For processes whose work is worth more than their log. What was left out is said when somebody reads again.
    """
    for name in _OUTPUTS:
        if (found := _find_output(name)) is not None:
            found.wait_milliseconds = WAIT_MILLISECONDS


def failure() -> OSError | None:
    """Return why a part of standard output was not written; None where all was, or where its reader ended first."""
    found = _find_output("stdout")
    if found is None or found.wait_milliseconds is not None:
        return None
    sys.stdout.flush()
    return None if found.error is None or found.error.errno == errno.EPIPE else found.error
