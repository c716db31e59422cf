"""Functions that relay, worker and Lambda function share: log, metrics, recording, and waiting for the database."""

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
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sluice.clock import SystemClock, clock_id
from sluice.errors import ConfigError
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines, migrations, server_settings
from sluice.messaging.database.server_settings import OnStandby
from sluice.messaging.inbox import tables
from sluice.messaging.liveness import AliveFile, Liveness, LivenessWatch
from sluice.messaging.telemetry.metrics import EmbeddedMetrics, EveryMetrics, Metrics
from sluice.messaging.waiting import Wait
from sluice.terminal import log_text, streams
from sluice.terminal.logger import Logger

_log = Logger()
_BACKOFF = Backoff(base_seconds=1, cap_seconds=10, floor_seconds=0.5)
_CONNECT_SECONDS = 30.0  # the longest try: several addresses with 5 s each, and the answer to a statement
_ALLOCATIONS = 5_000  # objects made minus objects freed, at which Python collects garbage; its own default is 2,000


def process_metrics(
    names: Sequence[str],
    dimensions: Mapping[str, str],
    *,
    interval_seconds: float,
    is_embedded: bool,
    prometheus: tuple[str, int] | None,
) -> Metrics:
    """Return the sink of a process's metrics, which passes them to standard output, OpenTelemetry and Prometheus.

    OpenTelemetry gets them if the handlers' module has imported it; so load that module before.

    Args:
        names: the names of the metrics.
        dimensions: the dimensions of each metric, name to value.
        interval_seconds: how often the metrics are measured.
        is_embedded: whether to write them to standard output, in the format that CloudWatch Logs reads.
        prometheus: host and port at which to serve them; None does not serve them.

    Raises:
        ConfigError: prometheus-client is not installed, or the address cannot be listened at.
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
    """Serve metrics for Prometheus at (host, port), and return their sink."""
    try:
        from sluice.messaging.telemetry.prometheus import PrometheusMetrics, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--prometheus is given, and there is no module {error.name}; pip install prometheus-client or leave it out"
        ) from error
    host, port = address
    stored_metrics = PrometheusMetrics(names, dimensions, interval_seconds=interval_seconds, clock=SystemClock())
    served_port = serve(stored_metrics, host=host, port=port)
    _log.info("serving metrics", host=host, port=served_port)
    return stored_metrics


@contextmanager
def recording(folder: Path | None, *, run: str, worker: str, client: Any, names: Mapping[str, str]) -> Iterator[Any]:
    """Yield a recorder that is attached to a boto3 client; None where no folder is given.

    Args:
        folder: of the journal.
        run: name of the run in the history.
        worker: name of the process in the history, to which its number and the time are added.
        client: whose calls are recorded.
        names: the name in the history of each queue URL or topic ARN.
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
    """Call `act` until it succeeds, while the database does not answer or is a standby that cannot be written to.

    Args:
        act: uses the database; safe to repeat.
        wait: ends the waiting when the process is asked to stop.
        ends_at: there is no further try after this time of the machine's monotonic clock.
        alive: gets signs of life meanwhile.

    Returns:
        Whether `act` succeeded; False if the process was asked to stop.

    Raises:
        DBAPIError, OnStandby: `ends_at` came, or another try would not succeed either.
    """
    clock, rng, failed_count = SystemClock(), random.Random(), 0  # noqa: S311 (jitter is not a secret)
    while not wait.is_stopped():
        try:
            act()
        except (DBAPIError, OnStandby) as error:
            failed_count += 1
            pause_seconds = _BACKOFF.seconds(failed_count, rng.random())
            left_seconds = ends_at - clock.monotonic()
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


def require_inbox(engine: Engine) -> None:
    """Refuse a database without the inbox's tables or the rights on them, or with settings that lose data.

    Args:
        engine: of the role that is going to work.

    Raises:
        ConfigError: the tables are too new for this code.
        OutboxError: a table, a right or a setting is not what is needed.
    """
    with engine.connect() as connection:
        migrations.require(connection, tables.versioned)
        server_settings.require(connection, tables.WORKER_RIGHTS)


def collect_rarely() -> None:
    """Make Python's garbage collector run more rarely, and skip the objects that exist now (modules, settings).

    With Python's own setting a worker spends a fifth of its time in the collector. The threshold is not raised further
    because each message leaves some cycles behind, and a handler's may be large.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])


def log_to(stream: Any, level: str = "info") -> None:
    """Send this process's log to a stream: as lines of JSON, or as readable text if the stream is a terminal."""
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
