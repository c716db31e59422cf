"""The options every command on a DLQ has."""

from functools import wraps
from typing import Any

import click

from sluice import limits
from sluice.cli.options import Command, consumer_options
from sluice.messaging.sqs.dead_letter_limits import HOLD_SECONDS
from sluice.terminal.values import Whole


def dlq_options(command: Command) -> Command:
    """Give a command the options of `consumer_options`, `--undelivered`, `--hold`, `--force`: place and DLQ."""

    @consumer_options
    @click.option(
        "--undelivered",
        is_flag=True,
        help="The DLQ of the subscription (what SNS could not deliver), instead of the consumer's.",
    )
    @click.option(
        "--hold",
        "hold_seconds",
        type=Whole(2, limits.VISIBILITY_TIMEOUT_SECONDS_MAX),
        default=HOLD_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="If this process dies, received messages return after this time.",
    )
    @click.option(
        "--force", is_flag=True, help="Also when the DLQ has a DLQ itself, so that inspecting it can move messages."
    )
    @wraps(command)
    def placed(place: Any, undelivered: bool, hold_seconds: int, force: bool, **given: Any) -> None:
        from sluice.cli.dlq.place import DlqTarget

        dlq = DlqTarget(place=place, is_undelivered=undelivered, hold_seconds=hold_seconds, is_forced=force)
        command(dlq=dlq, **given)

    return placed
