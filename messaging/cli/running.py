"""What the long-running commands share: their log, their metrics, their history."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from messaging.cli import log_text
from messaging.metrics import EmbeddedMetrics, Metrics
from sluice import metrics
from sluice.clock import SystemClock, clock_id


def embedded_metrics(dimensions: Mapping[str, str]) -> Metrics:
    """Return what writes metrics to standard output."""
    return EmbeddedMetrics(
        sys.stdout, clock=SystemClock(), namespace=metrics.NAMESPACE, dimensions=dimensions, units=metrics.UNITS
    )


@contextmanager
def recording(folder: Path | None, *, run: str, worker: str, client: Any, names: Mapping[str, str]) -> Iterator[Any]:
    """Yield what writes the history, attached to the client; None, at no cost, where no folder is given.

    Args:
        folder: of the journals.
        run: what they are of.
        worker: what records; process and time make it unique.
        client: whose calls are recorded.
        names: queue URL or topic ARN to its name in the history.
    """
    if folder is None:
        yield None
        return
    from wire.journal import Journal  # noqa: PLC0415 (pyarrow is loaded by those who record)
    from wire.recorder import Recorder, host_name  # noqa: PLC0415

    worker = f"{worker}-{os.getpid()}-{SystemClock().now_us()}"
    common = {"run": run, "worker": worker, "host": host_name(), "clock_id": clock_id()}
    with Journal(folder, worker, common=common) as journal:
        recorder = Recorder(journal, names=names)
        recorder.attach(client)
        yield recorder


def log_to(stream: Any, level: str = "info") -> None:
    """Log as lines of JSON; for people, where people look on.

    Args:
        stream: where to.
        level: what is logged, and all that is worse.
    """
    is_terminal = stream.isatty()
    render: Any = structlog.processors.JSONRenderer()
    if is_terminal:
        render = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            log_text.shown if is_terminal else log_text.bounded,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
