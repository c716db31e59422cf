"""A worker's process: read settings, check database and queue, then run the worker."""

import os
import sys
from functools import partial
from math import inf

from sluice.cli.options import ProcessOptions
from sluice.cli.services.running import (
    await_database,
    collect_rarely,
    log_to,
    process_metrics,
    recording,
    require_inbox,
)
from sluice.cli.targets import ConsumerTarget
from sluice.clock import SystemClock
from sluice.declaration import Consumer, metrics, naming
from sluice.errors import ConfigError, EndpointError
from sluice.messaging import failpoints
from sluice.messaging.database import connections
from sluice.messaging.errors import TransientError
from sluice.messaging.handlers import Handlers
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import DeadLetterSender
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.telemetry.recording import WorkerRecording
from sluice.messaging.telemetry.tracing import opentelemetry
from sluice.messaging.waiting import Stop
from sluice.messaging.worker.build import build_worker, clients
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.preflight import faults
from sluice.messaging.worker.settings import ProcessorSettings
from sluice.terminal.logger import Logger

_log = Logger()


def run_worker(
    target: ConsumerTarget,
    process: ProcessOptions,
    *,
    queue_url: str | None,
    module: str | None,
    lanes: int | None,
    idle_seconds: float | None,
) -> None:
    """Run a consumer's worker until the process is asked to stop, or has received nothing for `idle_seconds`.

    Each argument is the option of that name of `sluice worker`.
    """
    log_to(sys.stderr, process.log_level)
    stop = Stop()
    stop.on_signals()
    consumer, engine = target.consumer, target.engine
    handlers = _handlers(consumer, module).of_consumer(consumer, target.environment)
    if (dead := handlers.describe()) is not None:
        _log.warning("types without a handler", consumer=consumer.name, reason=dead)
    stop.on_signals()  # again: the handlers' module may have set handlers of its own
    measured = process_metrics(
        metrics.INBOX,
        metrics.inbox_dimensions(target.environment, consumer),
        interval_seconds=metrics.INBOX_INTERVAL_SECONDS,
        is_embedded=process.is_measured,
        prometheus=process.prometheus,
    )
    connections.end_waits(engine, ProcessorSettings.of_consumer(consumer).hold_seconds_max)
    # A worker with --until-idle does not wait for a database.
    ends_at = inf if idle_seconds is None else 0.0
    if not await_database(partial(require_inbox, target.engine), stop, ends_at=ends_at, alive=process.alive):
        return
    sqs, prompt = clients(
        target.endpoint_url,
        target.environment.region,
        lanes=consumer.lanes if lanes is None else lanes,
        timeout_seconds=consumer.visibility_timeout_seconds,
        kind=process.client,
    )
    name = naming.queue_name(target.environment, consumer)
    source = Queue(sqs, queue_url or queue.url_of(sqs, name))
    is_ordered = _is_ordered(source, target, sqs, is_given=queue_url is not None)
    with recording(
        process.record, run=name, worker=f"worker-{consumer.name}", client=sqs, names={source.url: name}
    ) as recorder:
        hooks: list[WorkerHooks] = [WorkerMetrics(measured, SystemClock()), *_tracing(name)]
        if recorder is not None:
            recorder.attach(prompt)
            hooks.append(WorkerRecording(recorder, queue_url=source.url))
        collect_rarely()
        build_worker(
            consumer,
            queue=source,
            database=engine,
            handlers=handlers,
            lanes=lanes,
            idle_seconds=idle_seconds,
            is_ordered=is_ordered,
            bundle_events_max=target.environment.bundle_events_max(consumer),
            renewals=Queue(prompt, source.url),
            stop=stop,
            failpoint=failpoints.from_environment(os.environ, failpoints.WORKER),
            hooks=hooks,
            alive=process.alive,
            agent_uri=os.environ.get("ECS_AGENT_URI"),
        ).run()


def _handlers(consumer: Consumer, module: str | None) -> Handlers:
    """Load the handlers of the module that `--handlers` names, else of the declared one."""
    name = consumer.handlers if module is None else module
    if name is None:
        raise ConfigError(
            f"Consumer({consumer.name!r}).handlers is None, allowed is a Python module with @handler functions; declare"
            " it, or give --handlers"
        )
    return Handlers.load(name)


def _tracing(queue_name: str) -> list[WorkerHooks]:
    """Return the hook that makes OpenTelemetry's spans, if the handlers' module has imported OpenTelemetry."""
    return [opentelemetry(queue_name=queue_name)] if "opentelemetry" in sys.modules else []


def _is_ordered(source: Queue, target: ConsumerTarget, sqs: object, *, is_given: bool) -> bool:
    """Return whether the queue is FIFO; compare it with the declaration first.

    Args:
        source: the consumer's queue.
        target: the consumer.
        sqs: a client.
        is_given: the queue was named by `--queue-url`; then its DLQ is not compared.

    Raises:
        ConfigError: the queue differs from the declaration in a way that its worker cannot work with.
    """
    live = source.attributes()
    dead_letters = None if is_given else _dead_letters(target, sqs)
    bundle_events_max = target.environment.bundle_events_max(target.consumer)
    found = faults(target.consumer, live, dead_letters, bundle_events_max=bundle_events_max)
    if bundle_events_max > 1 and (fault := DeadLetterSender(source).fault()) is not None:
        found.append(
            f"workers send dead events of bundles to its DLQ, which is not found: {fault}; a role needs sqs:GetQueueUrl"
            " and sqs:SendMessage there, which the environment's stacks give it"
        )
    if found:
        raise ConfigError(f"queue {source.url} is not what its worker needs: " + "; ".join(found))
    return live.get("FifoQueue") == "true"


def _dead_letters(target: ConsumerTarget, sqs: object) -> dict[str, str] | None:
    """Return the DLQ's attributes; None where the credentials may not read them, as those of a task."""
    try:
        name = naming.dead_letter_queue_name(target.environment, target.consumer)
        return Queue(sqs, queue.url_of(sqs, name)).attributes()
    except (TransientError, EndpointError):  # without a right, SQS says there is no such queue
        return None
