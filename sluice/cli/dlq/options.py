"""The options every command on a DLQ has."""

from typing import Any

import click

from sluice import limits
from sluice.cli.options import Command, as_command
from sluice.cli.placed import at_consumer
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS


def at_dlq(command: Command) -> Command:
    """Give a command the options of `at_consumer`, `--undelivered`, `--hold` and `--force`; hand it place and DLQ."""

    @at_consumer
    @click.option("--undelivered", is_flag=True, help="What SNS could not deliver, not what the consumer gave up.")
    @click.option(
        "--hold",
        "hold_seconds",
        type=click.IntRange(2, limits.VISIBILITY_TIMEOUT_SECONDS_MAX),
        default=HOLD_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="What was received is there again after so long, should this process die.",
    )
    @click.option("--force", is_flag=True, help="Also where the DLQ has a DLQ of its own, and looking moves messages.")
    def placed(place: Any, undelivered: bool, hold_seconds: int, force: bool, **given: Any) -> None:
        from sluice.cli.dlq import place as dlq_place

        found = dlq_place.dlq_of(place, is_undelivered=undelivered, hold_seconds=hold_seconds, is_forced=force)
        command(place=place, queue=found, **given)

    return as_command(command, placed)
