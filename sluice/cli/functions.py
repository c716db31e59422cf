"""`sluice lambda local`: a consumer's Lambda function on this machine, in real processes, without Docker."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sluice.cli.options import consumer_options, log_level_option, until_idle_option
from sluice.terminal.groups import CommandGroup
from sluice.terminal.values import DAY_SECONDS, NumberType, Whole

if TYPE_CHECKING:
    from sluice.cli.targets import ConsumerTarget


@click.group(name="lambda", cls=CommandGroup)
def functions() -> None:
    """Run the handlers of a consumer as its Lambda function does."""


@functions.command()
@click.option("--concurrency", type=Whole(1, 64), default=1, show_default=True, help="Invocations at once.")
@click.option("--freeze/--no-freeze", default=True, help="Stop a process between two invocations.  [default: freeze]")
@click.option("--handlers", "module", metavar="MODULE", help="Module of the handlers.  [default: as declared]")
@click.option("--entry-point", metavar="MODULE.FUNCTION", help="A function of your own, in place of Sluice's.")
@click.option(
    "--throttled-while",
    "throttle_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Throttle every invocation while this file exists.",
)
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder to record what is received and handled, for the checker.",
)
@click.option(
    "--start-timeout",
    "start_seconds",
    type=NumberType("seconds", 1, DAY_SECONDS),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="A process may take so long to start; more than Lambda's ten on a busy machine.",
)
@click.option(
    "--schedule",
    "schedule_seconds",
    type=NumberType("seconds", 0.1, DAY_SECONDS),
    metavar="SECONDS",
    help="Between two invocations for messages that were set aside.  [default: as declared]",
)
@until_idle_option
@log_level_option
@consumer_options
def local(
    target: "ConsumerTarget",
    concurrency: int,
    freeze: bool,
    module: str | None,
    entry_point: str | None,
    throttle_file: Path | None,
    record: Path | None,
    start_seconds: float,
    schedule_seconds: float | None,
    idle_seconds: float | None,
    log_level: str,
) -> None:
    """Poll a consumer's queue, and invoke its function with each batch, until SIGTERM or Ctrl-C.

    \b
    Each invocation is of a real process of `awslambdaric` (pip install 'sluice-fifo[lambda]'), which starts cold, is
    frozen between two invocations, and is killed at its timeout or with too much memory. What polls is a model of
    Lambda's event source mapping. SQS is where --endpoint-url says: an emulator, or `sluice simulator serve`.
      sluice topology apply --env local
      sluice schema apply inbox --dsn sqlite:///billing.db
      sluice lambda local --consumer billing --dsn sqlite:///billing.db
    """
    from sluice import sdk
    from sluice.aws.client import open_client
    from sluice.cli.services.function_handler import RECORD
    from sluice.cli.services.running import log_to, recording
    from sluice.declaration import naming, task_settings
    from sluice.declaration.fields.functions import SCHEDULED_EVENT
    from sluice.lambda_local.local import FunctionSchedule, LocalFunction, sqs_call
    from sluice.lambda_local.process import FunctionProcess, require_runtime
    from sluice.messaging.aws_lambda.handler import function_of
    from sluice.messaging.sqs.queue import Queue, url_of
    from sluice.messaging.waiting import Stop
    from sluice.simulator.model.mapping import EventSourceMapping

    consumer, environment = target.consumer, target.environment
    function = function_of(consumer)
    if module is not None:
        consumer = replace(consumer, handlers=module)
    require_runtime()
    log_to(sys.stderr, log_level)
    stop = Stop()
    stop.on_signals()
    engine = target.engine
    region = environment.region
    sqs = open_client(
        "sqs",
        endpoint_url=target.endpoint_url,
        region=region,
        config=sdk.config(connections=concurrency),
        kind="light" if record is None else "boto3",  # whose hooks the recorder needs
    )
    name = naming.queue_name(environment, consumer)
    queue_url = url_of(sqs, name)
    queue_arn = Queue(sqs, queue_url).attributes()["QueueArn"]
    process_variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # with the folder of the declaration, and its handlers
        task_settings.VARIABLE: task_settings.render(task_settings.task_environment(environment, consumer)),
        "SLUICE_ENV": environment.name,
        "SLUICE_CONSUMER": consumer.name,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_LAMBDA_FUNCTION_NAME": naming.function_name(environment, consumer),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "SLUICE_DSN": engine.url.render_as_string(hide_password=False),
        **({} if target.endpoint_url is None else {"AWS_ENDPOINT_URL": target.endpoint_url}),
        **({} if record is None else {RECORD: str(record.resolve())}),
    }
    make_mapping = partial(
        EventSourceMapping,
        call=sqs_call(sqs),
        queue_url=queue_url,
        queue_arn=queue_arn,
        batch_size=function.batch_size,
        visibility_seconds=consumer.visibility_timeout_seconds,
    )
    make_process = partial(
        FunctionProcess,
        entry_point or function.handler,
        process_variables,
        timeout_seconds=function.timeout_seconds,
        memory_mb=function.memory_mb,
        freezes=freeze,
        start_seconds=start_seconds,
    )
    local_function = LocalFunction(
        make_mapping,
        make_process,
        concurrency=concurrency,
        schedule=FunctionSchedule(
            event=SCHEDULED_EVENT,
            seconds=consumer.maintenance_minutes * 60 if schedule_seconds is None else schedule_seconds,
        ),
        is_throttled=lambda: throttle_file is not None and throttle_file.exists(),
    )
    with recording(record, run=name, worker=f"worker-{consumer.name}", client=sqs, names={queue_url: name}):
        local_function.run(is_stopped=stop.is_stopped, idle_seconds=idle_seconds)
