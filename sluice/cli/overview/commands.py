"""The options of `sluice status`, `sluice find` and `sluice outbox verify`."""

from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import Command, dsn_option, endpoint_option, environment_option, json_option, limit_option
from sluice.terminal.values import Whole

if TYPE_CHECKING:
    from sluice.declaration import Environment

_WATCH_SECONDS, _WATCH_SECONDS_MAX = 5, 86_400


def verify_options(command: Command) -> Command:
    """Give a command the options that name an environment, its databases and AWS.

    These are `--env`, `--declaration`, `--dsn`, `--inbox` and `--endpoint-url`.
    """
    for option in (
        endpoint_option("AWS"),
        click.option(
            "--inbox",
            "inboxes",
            multiple=True,
            metavar="CONSUMER=URL",
            help="The database of that consumer's inbox, where it is another one; may be repeated.",
        ),
        dsn_option("The database of outbox and inboxes, e.g. sqlite:///shop.db"),
        environment_option("Declared environment to look at."),
    ):
        command = option(command)
    return command


def source_options(command: Command) -> Command:
    """Give a command the options of `verify_options`, and `--consumer`."""
    consumer = click.option(
        "--consumer", "consumer_name", envvar="SLUICE_CONSUMER", metavar="NAME", help="Only this consumer."
    )
    return verify_options(consumer(command))


@click.command()
@click.option(
    "--watch",
    "watch_seconds",
    type=Whole(1, _WATCH_SECONDS_MAX),
    is_flag=False,
    flag_value=_WATCH_SECONDS,
    metavar="[SECONDS]",
    help=f"Look again and again, every {_WATCH_SECONDS} seconds unless given, until Ctrl-C; shows changes.",
)
@json_option
@source_options
def status(**options: Any) -> None:
    """Show an environment on one screen: outbox, relay, queues, tasks, dead letters, parked groups, the last redrive.

    It only reads, and receives nothing. What it cannot read is shown as ?, with the reason below.

    \b
    Exit codes:
      0   nothing waits for a person
      2   something that may wait for a person could not be read
      99  something waits for a person: it is listed, with the next command
    """
    from sluice.cli.overview import status

    status.show(**options)


@click.command()
@click.argument("sought", metavar="GROUP|EVENT-ID")
@limit_option(10_000, default=20)
@json_option
@source_options
def find(environment: "Environment", **options: Any) -> None:
    """Show where an event, or a group, is and was: outbox, topic, each consumer's queues and inbox, audit.

    \b
      sluice find order-7
      sluice find 6f1c8e0e-8d0c-4c8e-9a55-0d8a1f6f2b11

    It only reads, and receives nothing: that would count as an attempt. So which message of a queue it is follows from
    the inbox and from the queues' counts. Exit code 1: no database that could be read knows it; 2: none could be read.
    """
    from sluice.cli.overview import finding

    finding.show(environment, **options)
