"""`sluice`: its commands and their options.

A command has two halves. Here, and in the modules `*_commands`, are its options and its help, which need nothing but
click. What it does is a function that takes exactly these options, in a module of its own, imported when the command
runs: `--help` and wrong usage load neither SQLAlchemy nor boto3.
"""

from pathlib import Path
from typing import Any

import click

from sluice.cli.dlq import commands
from sluice.cli.options import (
    alive_option,
    consumer_options,
    database_options,
    endpoint_option,
    json_option,
    log_level_option,
    metrics_options,
    record_option,
    runs,
)
from sluice.cli.tables import inbox_commands, outbox_commands, schema_commands
from sluice.terminal.groups import DefaultGroup, Group, Lazy
from sluice.terminal.options import declaration_option
from sluice.terminal.values import COUNT, SIZE, Number, Whole

_DAY_SECONDS = 86_400
_KEEP_DAYS_MAX = 36_500


_LOAD, _CONTRACTS = "spark_load.cli", "contract_tests"
_LAZY = {
    "load": Lazy(f"{_LOAD}.commands:load", "Load-test a deployed environment."),
    "check": Lazy(f"{_LOAD}.check:check", "Judge a recorded history: nothing lost, doubled, reordered."),
    "rehearse": Lazy("sluice.rehearse.command:rehearse", "Try the deployed scaling on a day of traffic."),
    "report": Lazy(f"{_LOAD}.report:report", "Draw the page of a judged run again."),
    "compare": Lazy(f"{_LOAD}.report:compare", "Compare two judged runs."),
    "contracts": Lazy(f"{_CONTRACTS}.command:contracts", "Verify every promise against an endpoint."),
    "conformance": Lazy(f"{_CONTRACTS}.command:conformance", "Test every promise on every emulator."),
}
EXTRAS = {
    "env": "rehearse",
    "check": "checker",
    "compare": "checker",
    "conformance": "contracts",
    "contracts": "contracts",
    "delays": "recorder",
    "load": "load",
    "record": "recorder",
    "rehearse": "rehearse",
    "report": "checker",
}
"""Command to the extra it needs; all others need `worker`."""


@click.group(cls=Group, lazy=_LAZY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice-fifo", prog_name="sluice")
def cli() -> None:
    """Ordered fan-out messaging on AWS: run it, look after it, prove it, load-test it.

    \b
    Exit codes: 0 done, 1 partly done (check, load: invalid), 2 could not (unknown),
    3 wrong usage or refused, 99 (check, load) valid with a threshold crossed.
    """


@cli.command(short_help="Publish what is committed to the outbox.")
@click.option("--topic-arn", envvar="SLUICE_TOPIC_ARN", metavar="ARN", help="Where to publish.  [default: by name]")
@endpoint_option("SNS")
@click.option(
    "--poll",
    type=Number("seconds", 0.001, 60),
    default=0.1,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two polls, at most; less while events come.",
)
@click.option(
    "--lease",
    type=Number("seconds", 0, _DAY_SECONDS),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long a leader that does not answer keeps the lease.",
)
@click.option(
    "--keep",
    type=Number("days", 0, _KEEP_DAYS_MAX),
    default=7,
    show_default=True,
    metavar="DAYS",
    help="How long sent events are kept, and can be sent again.",
)
@click.option("--listen", is_flag=True, help="Wake at commits of Outbox(notify=True): Postgres only.")
@metrics_options
@alive_option
@record_option("taken and published")
@click.option("--until-empty", is_flag=True, help="Stop when nothing more can be published.")
@log_level_option
@database_options
@runs("sluice.cli.services.relay")
def relay(**given: Any) -> None:
    """Publish what is committed to the outbox, each group in order, until SIGTERM or Ctrl-C.

    Any number of relays may run for a topic: one leads, the others stand by.
    With --until-empty it ends with 1 when messages are left that SNS refuses, or when it is stopped before the end.
    """


@cli.command(short_help="Hand a consumer's messages to its handlers.")
@click.option("--queue-url", envvar="SLUICE_QUEUE_URL", metavar="URL", help="Where messages are.  [default: by name]")
@click.option("--handlers", "module", metavar="MODULE", help="With the handlers.  [default: as declared]")
@click.option("--lanes", type=Whole(1, 256), help="Message groups worked on at once.  [default: as declared]")
@click.option(
    "--until-idle",
    "idle_seconds",
    type=Number("seconds", 0, _DAY_SECONDS),
    metavar="SECONDS",
    help="Stop when nothing was received for this long.",
)
@metrics_options
@alive_option
@record_option("received, handled and deleted")
@log_level_option
@consumer_options
@runs("sluice.cli.services.worker")
def worker(**given: Any) -> None:
    """Hand a consumer's messages to its handlers, each group in order, until SIGTERM or Ctrl-C.

    \b
    Each effect is committed with the inbox's mark that the message was handled, so a message that comes twice has one
    effect. Any number of workers may run for a consumer; a message group is with one of them at a time.
      sluice schema apply inbox --dsn sqlite:///billing.db
      sluice worker --consumer billing --dsn sqlite:///billing.db
    """


@cli.command(short_help="Show where the time went in a recorded history.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@runs("sluice.cli.services.delays")
def delays(**given: Any) -> None:
    """Show where the time went in the recorded history of FOLDER: outbox wait, API time, receive wait."""


@cli.command(short_help="Check that a worker or relay makes progress.")
@click.argument("file", type=click.Path(path_type=Path), envvar="SLUICE_ALIVE_FILE")
@click.option(
    "--within",
    "within_seconds",
    type=Number("seconds", 0.001, _DAY_SECONDS),
    metavar="SECONDS",
    help="Maximum age of the last sign of life.  [default: as the process itself declared]",
)
@runs("sluice.cli.services.alive")
def alive(**given: Any) -> None:
    """Check that the worker or relay with `--alive FILE` makes progress: 0 if so, 2 if not. For health checks.

    \b
    It fails when the process is dead or frozen, when its main loop hangs, and when a lane, a drainer or the heartbeat
    gives no sign of life. It does not fail because a queue or a database is away.
      sluice worker --consumer billing --alive /dev/shm/alive
      sluice alive /dev/shm/alive
    """


@cli.group(cls=DefaultGroup, short_help="List the declared environments, their names, and what they cost.")
def env() -> None:
    """List the declared environments, show the names of one, or what it costs.

    \b
      sluice env
      sluice env prod
      sluice env cost prod --messages-per-month 50M --size 2k
    """


@env.command(short_help="What it costs a month, for your messages.")
@click.argument("name", metavar="ENV")
@click.option(
    "--messages-per-month", type=COUNT, default="0", show_default=True, metavar="N", help="Published messages: 50M."
)
@click.option(
    "--size", "message_bytes", type=SIZE, default="1KiB", show_default=True, metavar="BYTES", help="Of a message: 2k."
)
@declaration_option
@json_option
@runs("sluice.cli.services.env")
def cost(**given: Any) -> None:
    """Estimate what a month of ENV costs on AWS, line by line, the largest first, and what would cost less.

    It calls nothing. Consumers, tasks and handler times are those of environments.py: a message occupies a lane for
    processing_seconds, so N messages a second need N x processing_seconds lanes, between min_tasks and max_tasks. SQS
    counts a request for each 64 KiB of a message, SNS counts messages and gigabytes. Prices are the list prices of
    us-east-1; other regions cost more or less. Without messages, it is what the environment costs idle.

    \b
    Examples:
      sluice env cost dev
      sluice env cost prod --messages-per-month 50M --size 2k
      sluice env cost prod --messages-per-month 1.5B --size 900 --json
    """


@env.command(short_help="What a change of the declaration does, before it is deployed.")
@click.argument("name", metavar="ENV")
@click.option(
    "--against",
    default="HEAD",
    show_default=True,
    metavar="REV|FILE",
    help="What to compare with: a revision of git, or another declaration.",
)
@declaration_option
@json_option
@runs("sluice.cli.services.env_diff")
def diff(**given: Any) -> None:
    """Compare ENV as it is declared with what it was: fields, blocking, ceilings, scaling, cost.

    It calls nothing. Scaling is simulated on a day of traffic and on a burst, as `sluice rehearse` does; `make diff`
    shows what a deployment would change in the account.

    \b
    Examples:
      sluice env diff prod
      sluice env diff prod --against HEAD~1
      sluice env diff prod --against ../main/environments.py --json
    """


@env.command(short_help="List the declared environments, or the names of one.")
@click.argument("name", metavar="[ENV]", required=False)
@click.option("--policies", "shows_policies", is_flag=True, help="Print what owners of other things have to allow.")
@declaration_option
@json_option
@runs("sluice.cli.services.env")
def show(**given: Any) -> None:
    """List the declared environments, or the names of what ENV consists of. `sluice env` alone does the same.

    \b
    It calls nothing: stacks, workers and tests derive these names from environments.py.
      sluice env
      sluice env prod --json
      sluice env prod --policies
    """


@cli.command(short_help="Run a program, and record its SNS and SQS calls.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--one-group-in",
    type=Whole(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Record one message group in N, as a whole.",
)
@runs("sluice.cli.services.record")
def record(**given: Any) -> None:
    """Run a Python program, and record what its SNS and SQS clients do.

    \b
    The program is not changed, and its exit code is returned. Python programs that it starts are recorded, too.
      sluice record --one-group-in 10 tuesday -- python -m my_service
      sluice check tuesday --queue my-queue.fifo=30
    """


@cli.command(short_help="Write a new project: a consumer, its tests, its stacks.")
@click.argument("name")
@runs("sluice.cli.services.init")
def init(**given: Any) -> None:
    """Write a new project in folder NAME: one topic, one consumer with its tests, CDK app, load profile, CI.

    \b
    NAME is lower-case letters, digits and hyphens; its Python package has underscores instead.
    What is written is yours: no other command, and no later version of Sluice, changes a file of it.
      sluice init order-invoices
      cd order-invoices
      make setup test
    """


for _group in (outbox_commands.group, inbox_commands.group, schema_commands.group, commands.group):
    cli.add_command(_group)
