"""The handler of a Lambda function, as the variables of its process describe it: checked, measured, and recorded.

    from sluice.cli.services.function_handler import make_handler

    handle = make_handler(database=engine)

is the entry point of a function whose handlers need another engine, such as Django's.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Engine

from sluice.cli.services.running import collect_rarely, log_to, process_metrics, recording, require_inbox
from sluice.cli.targets import consumer_of
from sluice.clock import SystemClock
from sluice.declaration import load_task_declaration, metrics, naming
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.aws_lambda.handler import LambdaHandler, function_of, lambda_handler
from sluice.messaging.database import connections
from sluice.messaging.database.rotation import runtime_engine
from sluice.messaging.handlers import Handlers
from sluice.messaging.sqs import queue as queues
from sluice.messaging.telemetry.metrics import WorkerMetrics
from sluice.messaging.telemetry.recording import WorkerRecording
from sluice.messaging.telemetry.tracing import opentelemetry
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.terminal.logger import Logger

_log = Logger()
RECORD = "SLUICE_FUNCTION_RECORD"
"""The environment variable with the folder into which a function of `sluice lambda local --record` records."""
_kept = ExitStack()
"""Stays open: nothing tells a function that its process is about to end."""


def make_handler(
    *,
    database: Engine | None = None,
    hooks: Sequence[WorkerHooks] = (),
    failpoint: Callable[[str], None] | None = None,
) -> LambdaHandler:
    """Return the handler that the variables of this process describe.

    Args:
        database: an engine on the one with the inbox's tables; None is what the variables name.
        hooks: called besides those that measure.
        failpoint: called at each failpoint of the worker; None takes the failpoint of the environment variables.

    Raises:
        ConfigError: an environment variable or the declaration is not valid.
        OutboxError: a needed table or right is missing in the database, or a setting would lose data.
    """
    log_to(sys.stderr)
    environment = load_task_declaration().environment(_variable("SLUICE_ENV"))
    consumer = consumer_of(environment, os.environ.get("SLUICE_CONSUMER"))
    function = function_of(consumer)
    assert consumer.handlers is not None, "with a runtime they are declared"
    handlers = Handlers.load(consumer.handlers).of_consumer(consumer, environment)
    if (dead := handlers.describe()) is not None:
        _log.warning("types without a handler", consumer=consumer.name, reason=dead)
    measured = process_metrics(
        metrics.INBOX,
        metrics.inbox_dimensions(environment, consumer),
        interval_seconds=metrics.INBOX_INTERVAL_SECONDS,
        is_embedded=True,
        prometheus=None,
    )
    hooks = [WorkerMetrics(measured, SystemClock()), *hooks]
    name = naming.queue_name(environment, consumer)
    if "opentelemetry" in sys.modules:  # the handlers' module has imported it
        hooks.append(opentelemetry(queue_name=name))
    sqs = None
    if (folder := os.environ.get(RECORD)) is not None:
        sqs = queues.client(None, environment.region, connections=1, kind="boto3")  # whose hooks the recorder needs
        url = queues.url_of(sqs, name)
        recorder = _kept.enter_context(
            recording(Path(folder), run=name, worker=f"worker-{consumer.name}", client=sqs, names={url: name})
        )
        hooks.append(WorkerRecording(recorder, queue_url=url))
    engine = runtime_engine(environment.region, os.environ.get("SLUICE_DSN")) if database is None else database
    connections.end_waits(engine, function.timeout_seconds)
    require_inbox(engine)
    collect_rarely()
    return lambda_handler(
        consumer,
        handlers=handlers,
        database=engine,
        sqs=sqs,
        bundle_events_max=environment.bundle_events_max(consumer),
        failpoint=failpoint or failpoints.from_environment(os.environ, failpoints.WORKER),
        hooks=hooks,
    )


def _variable(name: str) -> str:
    """Return the value of an environment variable that the stacks set; refuse to start without it."""
    try:
        return os.environ[name]
    except KeyError as error:
        raise ConfigError(f"{name} is not set, allowed is the name of an environment; deploy the stacks") from error
