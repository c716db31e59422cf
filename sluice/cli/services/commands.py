"""The commands `sluice relay` and `sluice worker` and their options. The module of each name runs the process."""

from typing import TYPE_CHECKING

import click

from sluice.cli.options import (
    ProcessOptions,
    consumer_options,
    database_options,
    endpoint_option,
    process_options,
    until_idle_option,
)
from sluice.errors import ConfigError
from sluice.terminal.values import DAY_SECONDS, NumberType, Whole

if TYPE_CHECKING:
    from sluice.cli.targets import ConsumerTarget, DatabaseTarget

_KEEP_DAYS_MAX = 36_500


@click.command()
@click.option("--topic-arn", envvar="SLUICE_TOPIC_ARN", metavar="ARN", help="Where to publish.  [default: by name]")
@endpoint_option("SNS")
@click.option(
    "--poll",
    type=NumberType("seconds", 0.001, 60),
    default=0.1,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two polls, at most; less while events come.",
)
@click.option(
    "--lease",
    type=NumberType("seconds", 0, DAY_SECONDS),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long a leader that does not answer keeps the lease.",
)
@click.option(
    "--keep",
    "keep_days",
    type=NumberType("days", 0, _KEEP_DAYS_MAX),
    default=7,
    show_default=True,
    metavar="DAYS",
    help="How long sent events are kept, and can be sent again.",
)
@click.option("--listen", is_flag=True, help="Wake at commits of Outbox(notify=True): Postgres only.")
@click.option("--until-empty", is_flag=True, help="Stop when nothing more can be published.")
@process_options("taken and published")
@database_options
def relay(
    target: "DatabaseTarget",
    topic_arn: str | None,
    endpoint_url: str | None,
    poll: float,
    lease: float,
    keep_days: float,
    listen: bool,
    until_empty: bool,
    process: ProcessOptions,
) -> None:
    """Publish what is committed to the outbox, each group in order, until SIGTERM or Ctrl-C.

    Any number of relays may run for a topic: one leads, the others stand by. With --topic-arn no declaration is needed.
    With --until-empty it ends with 1 when messages are left that SNS refuses, or when it is stopped before the end.
    """
    from sluice.cli.services.relay import run_relay

    run_relay(
        target,
        process,
        topic_arn=topic_arn,
        endpoint_url=endpoint_url,
        poll_seconds=poll,
        lease_seconds=lease,
        keep_seconds=keep_days * DAY_SECONDS,
        listen=listen,
        until_empty=until_empty,
    )


@click.command()
@click.option("--queue-url", envvar="SLUICE_QUEUE_URL", metavar="URL", help="Where messages are.  [default: by name]")
@click.option("--handlers", "module", metavar="MODULE", help="With the handlers.  [default: as declared]")
@click.option("--lanes", type=Whole(1, 256), help="Message groups worked on at once.  [default: as declared]")
@click.option(
    "--max-attempts", type=Whole(1, 1000), help="Attempts at a message of an undeclared queue with 1,000 receives."
)
@until_idle_option
@process_options("received, handled and deleted")
@consumer_options
def worker(
    target: "ConsumerTarget",
    queue_url: str | None,
    module: str | None,
    lanes: int | None,
    max_attempts: int | None,
    idle_seconds: float | None,
    process: ProcessOptions,
) -> None:
    """Hand a consumer's messages to its handlers, each group in order, until SIGTERM or Ctrl-C.

    \b
    Each effect is committed with the inbox's mark that the message was handled, so a message that comes twice has one
    effect. Any number of workers may run for a consumer; a message group is with one of them at a time.
    With --queue-url, --consumer and --handlers no declaration is needed. A maxReceiveCount of 1,000 is that of a queue
    for bundles of events, and --max-attempts says when an event is dead; otherwise each receive is an attempt.
      sluice schema apply inbox --dsn sqlite:///billing.db
      sluice worker --consumer billing --dsn sqlite:///billing.db
    """
    from sluice.cli.services.worker import run_worker

    if max_attempts not in (None, target.consumer.max_attempts):
        declared = target.consumer.max_attempts
        raise ConfigError(f"--max-attempts is {max_attempts}, allowed is what is declared ({declared}); leave it out")
    run_worker(target, process, queue_url=queue_url, module=module, lanes=lanes, idle_seconds=idle_seconds)
