"""The worker's log during a test: plain lines, which pytest shows of a test that failed."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def plain_log() -> Iterator[None]:
    """Log without colours and without the rich tracebacks that take most of a test's time; unless you configured it."""
    if structlog.is_configured():
        yield
        return
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    shared = (structlog.contextvars.merge_contextvars, structlog.processors.add_log_level)
    structlog.configure(processors=[*shared, renderer])
    try:
        yield
    finally:
        structlog.reset_defaults()
