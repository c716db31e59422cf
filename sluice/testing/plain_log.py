"""The worker's log during a test: plain lines, which pytest shows of a test that failed."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_DEFAULT = [*structlog.get_config()["processors"]]


@contextmanager
def plain_log() -> Iterator[None]:
    """Log without colours and without the rich tracebacks that take most of a test's time; unless you configured it."""
    configured = structlog.get_config()
    if configured["processors"] != _DEFAULT:  # is_configured() is true as well where `capture_logs` was used before
        yield
        return
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    shared = (structlog.contextvars.merge_contextvars, structlog.processors.add_log_level)
    structlog.configure(processors=[*shared, renderer])
    try:
        yield
    finally:
        structlog.configure(**configured)
