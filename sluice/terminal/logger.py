"""The library's logger: structlog, as the program that runs it has configured it.

A line that cannot be written is lost, and nothing else: a worker's lane, or a relay, must not end because somebody's
disk is full, or because their standard output is closed.
"""

import contextlib
import sys
import threading
from typing import Any

import structlog

from sluice.terminal.printable import exception_text


class Logger:
    """Writes log lines with structlog's logger.

    It raises no exception where a line cannot be written, but for signals and exits.
    """

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of a level of `logging` are written; a logger that cannot say writes them."""
        return bool(getattr(structlog.get_logger(), "is_enabled_for", bool)(level))  # noqa: TID251 (the one that may)

    def debug(self, event: str, **values: Any) -> None:
        """Log a detail that helps to find a fault."""
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log an expected event."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log a problem that may pass by itself."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log an error that somebody has to look at."""
        self._write("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Log an error with the exception that is being handled."""
        self._write("exception", event, values)

    @staticmethod
    def _write(level: str, event: str, values: dict[str, Any]) -> None:
        """Write a line at a level, and lose it where structlog raises.

        Then write the line without the traceback, which may have been the cause.
        """
        logged = sys.exception()
        try:
            getattr(structlog.get_logger(), level)(event, **values)  # noqa: TID251
        except BaseException as error:  # of somebody else's streams and processors, or of the exception they show
            # Where signals are handled it is somebody's signal, whose handler may have called sys.exit.
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            if logged is not None:
                _write_plainly(f"{event}, and its traceback cannot be shown", logged)


def _write_plainly(event: str, logged: BaseException) -> None:
    """Log an exception as one line of text, without its traceback; a line that cannot be written is lost."""
    with contextlib.suppress(Exception):
        structlog.get_logger().warning(event, error=exception_text(logged))  # noqa: TID251
