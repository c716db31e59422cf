"""What the long-running commands share: their log, their metrics, their history."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import structlog

from messaging.metrics import EmbeddedMetrics, Metrics
from sluice import metrics
from sluice.clock import SystemClock, clock_id


def metrics_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--metrics`."""
    option = click.option(
        "--metrics/--no-metrics",
        "is_measured",
        default=lambda: "ECS_CONTAINER_METADATA_URI_V4" in os.environ,
        help="Write metrics to standard output, as CloudWatch Logs reads them.  [default: on ECS]",
    )
    return option(command)


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


def log_to(stream: Any) -> None:
    """Log as lines of JSON; for people, where people look on."""
    render: Any = structlog.dev.ConsoleRenderer() if stream.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
