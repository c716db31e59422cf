"""What `sluice worker` does."""

import os
import random
import sys
from dataclasses import replace
from pathlib import Path

from sluice import metrics, naming
from sluice.cli.place import ConsumerPlace
from sluice.cli.services.running import log_to, measuring, recording
from sluice.clock import SystemClock
from sluice.declaration import Consumer
from sluice.errors import ConfigError, EndpointError
from sluice.messaging import failpoints
from sluice.messaging.database import engines, schema
from sluice.messaging.errors import OutboxError, TransientError
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.liveness import AliveFile, Liveness, Promises, Signs, WatchedTracing
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import Metrics
from sluice.messaging.telemetry.tally import Tally
from sluice.messaging.telemetry.tracing import NoTracing, Tracing, opentelemetry
from sluice.messaging.waiting import PollWait, Stop
from sluice.messaging.worker.drainer import Drainer, ShutdownGuard
from sluice.messaging.worker.handler_runner import Performer, Recorder
from sluice.messaging.worker.message_lease import Heartbeat
from sluice.messaging.worker.preflight import faults
from sluice.messaging.worker.processor import Work, WorkSettings
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.worker import Lane, Parts, Worker, WorkerSettings

_TIMEOUTS_MAX = 10
"""A handler that takes longer than so many visibility timeouts has failed."""
_BUSY_SECONDS = 1_800  # protected from scale-in without a rest; longer where a handler may take longer


def worker(
    *,
    place: ConsumerPlace,
    queue_url: str | None,
    module: str | None,
    lanes: int | None,
    idle_seconds: float | None,
    is_measured: bool,
    prometheus: tuple[str, int] | None,
    alive: AliveFile | None,
    record: Path | None,
    log_level: str,
) -> None:
    """Run the command."""
    log_to(sys.stderr, log_level)
    stop = Stop()
    stop.on_signals()
    consumer, engine = place.consumer, place.engine
    handlers = _handlers(consumer, module)
    stop.on_signals()  # again: the module may have set its own
    measured = measuring(
        metrics.INBOX,
        metrics.inbox_dimensions(place.environment, consumer),
        interval_seconds=metrics.INBOX_INTERVAL_SECONDS,
        is_embedded=is_measured,
        prometheus=prometheus,
    )
    hold_seconds_max = float(_TIMEOUTS_MAX * consumer.visibility_timeout_seconds)
    engines.end_waits(engine, hold_seconds_max)
    _require_tables(place)
    connections = consumer.lanes if lanes is None else lanes
    sqs = queue.client(place.endpoint_url, place.environment.region, connections=connections)
    prompt = queue.client(
        place.endpoint_url,
        place.environment.region,
        connections=2,  # to extend, and to give back at the end: neither may wait for as long as a poll
        answer_seconds=Heartbeat.answer_seconds(consumer.visibility_timeout_seconds),
    )
    name = naming.queue_name(place.environment, consumer)
    source = Queue(sqs, queue_url or queue.url_of(sqs, name))
    is_ordered = _is_ordered(source, place, sqs, is_given=queue_url is not None)
    settings = WorkerSettings.declared(consumer, lanes=lanes, is_ordered=is_ordered, idle_seconds=idle_seconds)
    with recording(
        record, run=name, worker=f"worker-{consumer.name}", client=sqs, names={source.url: name}
    ) as recorder:
        if recorder is not None:
            recorder.attach(prompt)
        work_settings = WorkSettings(
            consumer=consumer.name,
            max_attempts=consumer.max_attempts,
            timeout_seconds=consumer.visibility_timeout_seconds,
            hold_seconds_max=hold_seconds_max,
            is_ordered=is_ordered,
        )
        parts = _parts(
            place,
            source,
            Queue(prompt, source.url),
            Performer(
                handlers=handlers,
                failpoint=failpoints.from_environment(os.environ, failpoints.WORKER),
                tracing=_tracing(name),
            ),
            work_settings,
            settings,
            stop,
            measured=measured,
            alive=alive,
            recorder=recorder,
        )
        Worker(parts, settings=settings, stop=stop, clock=SystemClock()).run()


def _handlers(consumer: Consumer, module: str | None) -> Handlers:
    name = consumer.handlers if module is None else module
    if name is None:
        raise ConfigError(
            f"Consumer({consumer.name!r}).handlers is None, allowed is a Python module with @handler functions; declare"
            " it in sluice/environments.py, or give --handlers"
        )
    return Handlers.load(name)


def _tracing(queue_name: str) -> Tracing:
    """Return what makes spans, where the handlers' module has brought OpenTelemetry along."""
    return opentelemetry(queue_name=queue_name) if "opentelemetry" in sys.modules else NoTracing()


def _require_tables(place: ConsumerPlace) -> None:
    with place.engine.connect() as connection:
        engines.require_durable(connection)
        found = schema.drift(connection, tables.metadata)
    if found:
        raise OutboxError(
            f"the inbox's tables are not as this version needs them ({found[0]}); see `sluice inbox"
            " check`, and `inbox schema`"
        )


def _is_ordered(source: Queue, place: ConsumerPlace, sqs: object, *, is_given: bool) -> bool:
    """Return whether the queue is FIFO, after comparing it with what is declared.

    Raises:
        ConfigError: it is not as declared, in a way its worker would suffer from.
    """
    live = source.attributes()
    dead_letters = None if is_given else _dead_letters(place, sqs)
    found = faults(place.consumer, live, dead_letters)
    if found:
        raise ConfigError(f"queue {source.url} is not what its worker needs: " + "; ".join(found))
    return live.get("FifoQueue") == "true"


def _dead_letters(place: ConsumerPlace, sqs: object) -> dict[str, str] | None:
    """Return the DLQ's attributes; None where they may not be read: a task has no right to."""
    try:
        name = naming.dead_letter_queue_name(place.environment, place.consumer)
        return Queue(sqs, queue.url_of(sqs, name)).attributes()
    except (TransientError, EndpointError):  # without a right, SQS says there is no such queue
        return None


def _parts(
    place: ConsumerPlace,
    source: Queue,
    prompt: Queue,
    performer: Performer,
    work_settings: WorkSettings,
    settings: WorkerSettings,
    stop: Stop,
    *,
    measured: Metrics,
    alive: AliveFile | None,
    recorder: Recorder | None,
) -> Parts:
    clock, wait, tally, shutdown = SystemClock(), PollWait(stop), Tally(), ShutdownGuard()
    signs = _signs(settings, work_settings)
    inbox = Inbox(Policy.declared(place.consumer))
    heartbeat = Heartbeat(prompt, timeout_seconds=work_settings.timeout_seconds, clock=clock)
    work = Work(
        place.engine,
        source,
        inbox,
        performer,
        heartbeat,
        settings=work_settings,
        wait=wait,
        clock=clock,
        chance=random.Random(),  # noqa: S311 (jitter is no secret)
        tally=tally,
        recorder=recorder,
    )
    chance, *chances = [random.Random() for _ in range(settings.lanes + 1)]  # noqa: S311 (nor is an attempt id)
    watched = replace(performer, tracing=WatchedTracing(performer.tracing, signs))
    return Parts(
        engine=place.engine,
        queue=prompt,
        inbox=inbox,
        heartbeat=heartbeat,
        drainer=Drainer(
            place.engine,
            inbox,
            watched,
            settings=work_settings,
            clock=clock,
            chance=chance,
            tally=tally,
            shutdown=shutdown,
        ),
        shutdown=shutdown,
        lanes=[
            Lane(source, work, settings=settings, wait=wait, clock=clock, chance=one, signs=signs) for one in chances
        ],
        protection=Protection(
            os.environ.get("ECS_AGENT_URI"),
            clock,
            busy_seconds_max=max(_BUSY_SECONDS, 2 * work_settings.hold_seconds_max),
        ),
        measured=measured,
        tally=tally,
        signs=signs,
        alive=alive,
    )


def _signs(settings: WorkerSettings, work_settings: WorkSettings) -> Signs:
    """Return what takes the worker's signs of life."""
    promises = Promises.of_worker(
        lanes=settings.lanes,
        rest_seconds_max=settings.backoff.cap_seconds,
        timeout_seconds=work_settings.timeout_seconds,
        handler_seconds_max=work_settings.hold_seconds_max,
    )
    return Signs(Liveness(SystemClock()), promises)
