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
"""PIPE_BUF: so many bytes a pipe takes without blocking once it says that it takes any.

https://man7.org/linux/man-pages/man7/pipe.7.html (read 2026-11-26)
"""
WAIT_MILLISECONDS = 2_000
_LEFT_OUT = '\n{{"event": "bytes were left out here, which nobody read in time", "bytes": {}, "level": "warning"}}\n'


class _Output(io.FileIO):
    """The file of a standard stream, whose `write` never raises.

    The first error is kept in `error`, and the text is lost.
    """

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
                notice = _LEFT_OUT.format(self._left_out_bytes)
                self._left_out_bytes = 0
                super().write(notice.encode())
            self._left_out_bytes += self._write_in_time(whole)
        except OSError as error:
            self.error = self.error or error
        return len(whole)

    def _write_in_time(self, left: memoryview) -> int:
        """Write as much as a reader takes before the wait is over, and return how many bytes were not written."""
        while left and self._is_ready(0 if self._left_out_bytes else self.wait_milliseconds):
            written = super().write(left[:_PIPE_BYTES]) or 0  # None where somebody made the file non-blocking
            left = left[written:]
        return len(left)

    def _is_ready(self, milliseconds: int | None) -> bool:
        """Wait at most `milliseconds` (None: for ever) and return whether the file can be written."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return bool(poll.poll(milliseconds))


def install() -> None:
    """Replace this process's standard streams by streams whose writes never fail, before it opens any file.

    A closed stream is opened on /dev/null: otherwise the next file or socket would get its number, and what is printed.
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
    """Return a stream on a file whose writes never fail.

    It buffers and encodes like `before`; what it cannot encode is escaped.
    """
    is_direct = before is not None and (before.line_buffering or before.write_through)
    encoding = "utf-8" if before is None else before.encoding
    writer = io.BufferedWriter(_Output(descriptor))
    return io.TextIOWrapper(writer, encoding=encoding, errors="backslashreplace", line_buffering=is_direct)


def look(stream: Any) -> tuple[str, str, bool] | None:
    """Return a stream's encoding, its handling of encoding errors, and whether it buffers lines, for `put_back`.

    None if the stream is closed or is no text file.
    """
    try:
        return None if stream.closed else (stream.encoding, stream.errors, stream.line_buffering)
    except (AttributeError, ValueError):  # its file was taken from it (`detach`)
        return None


def put_back(stream: Any, descriptor: int, seen: tuple[str, str, bool] | None) -> None:
    """Restore a standard stream to what `look` returned; open it again if it was closed since.

    Handlers may change or close it. It stays the same object, which the log and the metrics write to.
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
    """Return the `_Output` behind a standard stream; None if somebody has replaced the stream."""
    raw = getattr(getattr(getattr(sys, name), "buffer", None), "raw", None)
    return raw if isinstance(raw, _Output) else None


def bound_waits() -> None:
    """Let writes to standard streams wait two seconds at most for a reader.

    Then text is left out until somebody reads again, and a line says how many bytes were. For processes whose work is
    worth more than their log.
    """
    for name in _OUTPUTS:
        output = _find_output(name)
        if output is not None:
            output.wait_milliseconds = WAIT_MILLISECONDS


def failure() -> OSError | None:
    """Return why part of standard output was not written. None if all was written, or if its reader ended first."""
    output = _find_output("stdout")
    if output is None or output.wait_milliseconds is not None:
        return None
    sys.stdout.flush()
    return None if output.error is None or output.error.errno == errno.EPIPE else output.error
