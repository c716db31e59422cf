"""Shared parts of the long-running commands: their log, their metrics, their signs of life, their history."""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from sluice.clock import SystemClock, clock_id
from sluice.errors import ConfigError
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines
from sluice.messaging.database.server_settings import OnStandby
from sluice.messaging.liveness import AliveFile, Liveness, LivenessWatch
from sluice.messaging.telemetry.metrics import EmbeddedMetrics, EveryMetrics, Metrics
from sluice.messaging.waiting import Wait
from sluice.terminal import log_text, streams
from sluice.terminal.logger import Logger

_log = Logger()
_BACKOFF = Backoff(base_seconds=1, cap_seconds=10, floor_seconds=0.5)
_CONNECT_SECONDS = 30.0  # to several addresses, 5 s each, and for a statement's answer
_ALLOCATIONS = 5_000  # more objects made than freed, before the youngest are looked at; Python has 2,000


def measuring(
    names: Sequence[str],
    dimensions: Mapping[str, str],
    *,
    interval_seconds: float,
    is_embedded: bool,
    prometheus: tuple[str, int] | None,
) -> Metrics:
    """Return the meters of a process: standard output, OpenTelemetry and Prometheus, each if it is configured.

    OpenTelemetry is where somebody has imported it: the handlers' module, which is loaded before this is called.

    Raises:
        ConfigError: prometheus-client is not installed, or nothing can listen there.
    """
    sinks: list[Metrics] = []
    if is_embedded:
        sinks.append(EmbeddedMetrics(sys.stdout, dimensions, clock=SystemClock()))
    if "opentelemetry" in sys.modules:
        from sluice.messaging.telemetry.instruments import InstrumentMetrics, meter

        sinks.append(InstrumentMetrics(meter(), names, dimensions))
    if prometheus is not None:
        sinks.append(_serve_prometheus(prometheus, names, dimensions, interval_seconds))
    return EveryMetrics(sinks)


def _serve_prometheus(
    address: tuple[str, int], names: Sequence[str], dimensions: Mapping[str, str], interval_seconds: float
) -> Metrics:
    try:
        from sluice.messaging.telemetry.prometheus import PrometheusMetrics, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--prometheus is given, and there is no module {error.name}; pip install prometheus-client or leave it out"
        ) from error
    host, port = address
    kept = PrometheusMetrics(names, dimensions, interval_seconds=interval_seconds, clock=SystemClock())
    served_port = serve(kept, host=host, port=port)
    _log.info("serving metrics", host=host, port=served_port)
    return kept


@contextmanager
def recording(folder: Path | None, *, run: str, worker: str, client: Any, names: Mapping[str, str]) -> Iterator[Any]:
    """Yield what writes the history, attached to the client; None, at no cost, where no folder is given.

    `names` is queue URL or topic ARN to its name in the history; process and time make `worker` unique.
    """
    if folder is None:
        yield None
        return
    from sluice.recorder.journal import Journal
    from sluice.recorder.recorder import Recorder, host_name

    worker = f"{worker}-{os.getpid()}-{SystemClock().now_us()}"
    common = {"run": run, "worker": worker, "host": host_name(), "clock_id": clock_id()}
    with Journal(folder, worker, common=common) as journal:
        recorder = Recorder(journal, names=names)
        recorder.attach(client)
        yield recorder


def await_database(
    act: Callable[[], None], wait: Wait, *, ends_at: float = inf, alive: AliveFile | None = None
) -> bool:
    """Do something with a database that may not answer yet, or only read, trying again; False when stopped before.

    Args:
        act: what to do; safe to repeat.
        wait: stops it.
        ends_at: no further try after that, by the machine's monotonic clock.
        alive: shows meanwhile that the process is alive.

    Raises:
        DBAPIError, OnStandby: time was up, or another try would not succeed either.
    """
    clock, rng, failed_count = SystemClock(), random.Random(), 0  # noqa: S311 (jitter is not a secret)
    while not wait.is_stopped():
        try:
            act()
        except (DBAPIError, OnStandby) as error:
            failed_count += 1
            pause_seconds, left_seconds = _BACKOFF.seconds(failed_count, rng.random()), ends_at - clock.monotonic()
            is_lasting = isinstance(error, DBAPIError) and not engines.may_pass_at_start(error)
            if is_lasting or left_seconds < pause_seconds:
                raise
            reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
            left = {} if left_seconds == inf else {"left_seconds": round(left_seconds)}
            _log.warning("the database does not answer yet", error=reason, **left)
            if alive is not None:
                LivenessWatch(Liveness(clock), alive, within_seconds=_CONNECT_SECONDS, clock=clock).look(pause_seconds)
            wait.wait(pause_seconds)
        else:
            return True
    return False


def collect_rarely() -> None:
    """Let Python look for unreachable cycles rarely, and never in what the program itself consists of.

    A message leaves some behind, and a handler may leave much in a few objects; to look as often as Python does by
    itself takes a fifth of its time.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])


def log_to(stream: Any, level: str = "info") -> None:
    """Log as lines of JSON; for people, where people look on."""
    streams.bound_waits()
    is_terminal = stream.isatty()
    render: Any = structlog.processors.JSONRenderer()
    if is_terminal:
        render = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            log_text.with_traceback,
            log_text.make_printable if is_terminal else log_text.limit_texts,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
