"""`sluice dlq …`: its commands and their options. What each does is in `listing`, `acts` and `moving`."""

from typing import Any

import click

from sluice.cli.dlq.options import dlq_options
from sluice.cli.options import (
    audited,
    confirmation_option,
    consumer_options,
    dsn_option,
    endpoint_option,
    environment_option,
    json_option,
    limit_option,
    runs,
)
from sluice.messaging.sqs.dead_letter_limits import CLIENT, NATIVE, RATE_MAX, RATE_MIN
from sluice.terminal.groups import Group
from sluice.terminal.values import SEQ, Age, Number, Whole

_CANARY_MAX = 1_000_000
_older_than_option = click.option(
    "--older-than", type=Age(), metavar="AGE", help="Only messages that died longer ago than this: 90s, 15m, 2h, 7d."
)


@click.group("dlq", cls=Group, short_help="Look at dead letters, mend them, bring them back.")
def group() -> None:
    """Look at dead letters, understand them, mend them and bring them back.

    \b
    See what is there, and why; this changes nothing:
      sluice dlq ls
      sluice dlq inspect --consumer billing
    The handler was wrong, and a new one runs: bring back one message, then the rest:
      sluice dlq redrive --consumer billing --canary 1 --yes
      sluice dlq redrive --consumer billing --yes
    The message is wrong: correct its data:
      sluice dlq replace order-1 7 --data right.json --consumer billing --reason "..." --yes
    The message can never be handled: give it up, and its group goes on:
      sluice dlq skip order-1 7 --consumer billing --reason "..." --yes
      sluice dlq purge-one --message-id ID --consumer billing --reason "..." --yes

    Without --yes, a command only prints what it would do. Whatever changes or removes a message needs a reason; the
    inbox's audit keeps the reason and the body.
    """


@group.command()
@environment_option("Declared environment of the consumers.")
@click.option("--consumer", "consumer_name", envvar="SLUICE_CONSUMER", metavar="NAME", help="Only this consumer.")
@dsn_option("The inboxes' database, for what is parked, dead and missing: e.g. sqlite:///billing.db")
@endpoint_option("SQS")
@json_option
@runs("sluice.cli.dlq.listing")
def ls(**given: Any) -> None:
    """List the DLQs of an environment's consumers, and with a database what their inboxes wait for.

    Counts are SQS's own, and approximate: they can be a minute late.
    """


@group.command()
@limit_option(1_000, default=10)
@json_option
@dlq_options
@runs("sluice.cli.dlq.listing")
def inspect(**given: Any) -> None:
    """Show the first messages of each group, what they hold and, with --dsn, why they died; then give them back.

    A FIFO queue delivers at most the first ten of a group. Nobody can see how many are behind them.
    """


@group.command()
@click.option(
    "--engine",
    type=click.Choice([CLIENT, NATIVE]),
    default=CLIENT,
    show_default=True,
    help="client: this process, each group in order. native: a move task of SQS, without process and filters.",
)
@click.option("--to", metavar="QUEUE", help="Name of the queue to send to.  [default: the consumer's]")
@click.option(
    "--rate", type=Number("messages a second", RATE_MIN, RATE_MAX), metavar="N", help="At most this many per second."
)
@click.option("--group", "groups", multiple=True, help="Only this group. It, --type and --event-id may be repeated.")
@click.option("--type", "types", multiple=True, help="Only events of this type.")
@click.option("--event-id", "event_ids", multiple=True, help="Only this event.")
@_older_than_option
@click.option(
    "--canary",
    type=Whole(1, _CANARY_MAX),
    metavar="N",
    help="Bring back only this many, and print what to check next.",
)
@click.option("--run", metavar="ID", help="Finish the run of that id, which died.")
@click.option("--no-wait", is_flag=True, help="Native: start the move task and exit; `dlq status` shows its progress.")
@json_option
@confirmation_option
@dlq_options
@runs("sluice.cli.dlq.moving")
def redrive(**given: Any) -> None:
    """Bring dead letters back to the consumer's queue, each group in its order.

    \b
    A message is sent, then deleted, so it is always in a queue. If this process dies in between, it is in both. The
    same command with the printed --run finishes the run, and the inbox drops the second copy.
    A message that does not match a filter stays, and so do the messages of its group behind it.
    A message that was brought back and died again is left in the DLQ, so a run ends.

    Exit code 1: some are left that should have come. 2: none came.
    """


@group.command("automatic-redrive")
@_older_than_option
@dlq_options
@runs("sluice.cli.dlq.automatic")
def automatic_redrive(**given: Any) -> None:
    """Bring dead letters back within the bounds of the consumer's `automatic_redrive`, and print a line of JSON.

    A task runs it once the DLQ has held messages for the declared quiet time, and again and again while it does. Only
    messages whose attempts were used up come back; what was refused stays, and what is behind it in its group. One that
    was brought back this way and died again switches automatic redrive off.

    Exit code 1: it was switched off, or stopped before the end. 2: it is off, another run works, or it could not run.
    """


@group.command("automatic-on")
@audited
@consumer_options
@runs("sluice.cli.dlq.automatic")
def automatic_on(**given: Any) -> None:
    """Let automatic redrive go on, after a message that was brought back died again, or after a run died.

    How often each message was brought back still counts.
    """


@group.command("automatic-off")
@audited
@consumer_options
@runs("sluice.cli.dlq.automatic")
def automatic_off(**given: Any) -> None:
    """Let automatic redrive bring nothing back until it is switched on. A run that has begun sends nothing more."""


@group.command()
@click.argument("group_id", metavar="[GROUP]", required=False)
@click.argument("seq", metavar="[SEQ]", type=SEQ, required=False)
@click.option("--data", type=click.File(encoding="utf-8"), help="The event's data, as JSON; `-` reads standard input.")
@click.option("--message-id", metavar="ID", help="The message, where it is not an envelope; see `dlq inspect`.")
@click.option("--body", type=click.File(encoding="utf-8"), help="Its whole body; `-` reads standard input.")
@audited
@dlq_options
@runs("sluice.cli.dlq.acts")
def replace(**given: Any) -> None:
    """Bring a message back with other data, as the same event with the same number.

    \b
      dlq replace order-1 7 --data right.json --reason "..." --yes
      dlq replace --message-id ID --body whole.json --reason "..." --yes

    A held message is changed in the inbox. One in the DLQ is sent to the consumer's queue, under a fresh deduplication
    id, and then deleted. The audit keeps the old body.
    """


@group.command("purge-one")
@click.option("--message-id", metavar="ID", required=True, help="The message; see `dlq inspect`.")
@audited
@dlq_options
@runs("sluice.cli.dlq.acts")
def purge_one(**given: Any) -> None:
    """Delete one message of the DLQ for good. The audit keeps its body.

    Its number stays open in the inbox, and a parked group still waits for it: `dlq skip` gives it up.
    """


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("seq", metavar="SEQ", type=SEQ)
@audited
@consumer_options
@runs("sluice.cli.dlq.acts")
def retry(**given: Any) -> None:
    """Try a held message again as it is: its attempts were used up while its group was parked."""


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("seq", metavar="SEQ", type=SEQ)
@click.option("--epoch", type=SEQ, help="Epoch of the number, if it is open in several.")
@audited
@consumer_options
@runs("sluice.cli.dlq.acts")
def skip(**given: Any) -> None:
    """Give up a number of a group: the consumer goes on without it, and drops it if it comes later.

    For a number that is dead, missing or held, or that the group waits for. A copy in the DLQ stays there.
    """


@group.command()
@limit_option(100_000, default=50)
@consumer_options
@runs("sluice.cli.dlq.acts")
def audit(**given: Any) -> None:
    """Print what operators did to the consumer's messages, newest first, as lines of JSON."""


@group.command()
@json_option
@dlq_options
@runs("sluice.cli.dlq.listing")
def status(**given: Any) -> None:
    """Show the move tasks of the DLQ, the latest first: `redrive --engine native` and AWS's console start them."""


@group.command()
@confirmation_option
@dlq_options
@runs("sluice.cli.dlq.listing")
def cancel(**given: Any) -> None:
    """Cancel the move task that runs on the DLQ. What it has moved stays where it is."""
