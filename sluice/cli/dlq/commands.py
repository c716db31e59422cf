"""`sluice dlq …`: its commands and their options. What each does is in `dlq`, `dlq_acts`, `dlq_moving`."""

from typing import Any

import click

from sluice.cli.dlq.options import dlq_options
from sluice.cli.options import (
    audited,
    confirmation_option,
    dsn_option,
    endpoint_option,
    environment_option,
    json_option,
    limit_option,
)
from sluice.cli.placed import consumer_options
from sluice.messaging.sqs.dead_letter_limits import CLIENT, NATIVE, RATE_MAX, RATE_MIN
from sluice.terminal.groups import Group
from sluice.terminal.values import SEQ, Age, Number

_CANARY_MAX = 1_000_000


@click.group("dlq", cls=Group, short_help="Look at dead letters, mend them, bring them back.")
def group() -> None:
    """Look at dead letters, understand them, mend them and bring them back.

    \b
    What is there, and why? Neither changes anything:
      sluice dlq ls
      sluice dlq inspect --consumer billing
    The handler was wrong, and a new one runs? One first, then the rest:
      sluice dlq redrive --consumer billing --canary 1 --yes
      sluice dlq redrive --consumer billing --yes
    The message is wrong? The same event, with data that is right:
      sluice dlq replace order-1 7 --data right.json --consumer billing --reason "..." --yes
    It will never do? Its group goes on without it:
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
def ls(**given: Any) -> None:
    """List the DLQs of an environment's consumers, and with a database what their inboxes wait for.

    Counts are SQS's own, and approximate: they can be a minute late.
    """
    from sluice.cli.dlq import listing

    listing.ls(**given)


@group.command()
@limit_option(1_000, default=10)
@json_option
@dlq_options
def inspect(**given: Any) -> None:
    """Show the first messages of each group, what they hold and, with --dsn, why they died; then give them back.

    A FIFO queue hands out at most the first ten of a group: how many are behind them, nobody sees.
    """
    from sluice.cli.dlq import listing

    listing.inspect(**given)


@group.command()
@click.option(
    "--engine",
    type=click.Choice([CLIENT, NATIVE]),
    default=CLIENT,
    show_default=True,
    help="From here, each group in order; or a move task of SQS, which needs no process and knows no filters.",
)
@click.option("--to", metavar="QUEUE", help="Name of the queue to send to.  [default: the consumer's]")
@click.option(
    "--rate", type=Number("messages a second", RATE_MIN, RATE_MAX), metavar="N", help="At most this many per second."
)
@click.option("--group", "groups", multiple=True, help="Only this group; may be repeated, as the next two.")
@click.option("--type", "types", multiple=True, help="Only events of this type.")
@click.option("--event-id", "event_ids", multiple=True, help="Only this event.")
@click.option(
    "--older-than", type=Age(), metavar="AGE", help="Only messages that died longer ago than this: 90s, 15m, 2h, 7d."
)
@click.option(
    "--canary",
    type=click.IntRange(1, _CANARY_MAX),
    metavar="N",
    help="Bring back only this many, and print what to check next.",
)
@click.option("--run", metavar="ID", help="Finish the run of that id, which died.")
@click.option("--no-wait", is_flag=True, help="Native: start the move task and exit; `dlq status` shows its progress.")
@json_option
@confirmation_option
@dlq_options
def redrive(**given: Any) -> None:
    """Bring dead letters back to the consumer's queue, each group in its order.

    \b
    A message is sent, then deleted: it is never in neither queue. Should this die in between, it is in both; the same
    command with the printed --run finishes it, and the inbox drops what comes twice.
    A message that does not match a filter stays, and all of its group behind it: they cannot be had without it.
    What was brought back and died again is left alone, so a run ends.

    Exit code 1: some are left that should have come. 2: none came.
    """
    from sluice.cli.dlq import moving

    moving.redrive(**given)


@group.command()
@click.argument("group_id", metavar="[GROUP]", required=False)
@click.argument("seq", metavar="[SEQ]", type=SEQ, required=False)
@click.option("--data", type=click.File(encoding="utf-8"), help="The event's data, as JSON; `-` reads standard input.")
@click.option("--message-id", metavar="ID", help="The message, where it is not an envelope; see `dlq inspect`.")
@click.option("--body", type=click.File(encoding="utf-8"), help="Its whole body; `-` reads standard input.")
@audited
@dlq_options
def replace(**given: Any) -> None:
    """Bring a message back with other data: the same event and number, what it says put right.

    \b
      dlq replace order-1 7 --data right.json --reason "..." --yes
      dlq replace --message-id ID --body whole.json --reason "..." --yes

    It is looked for in the inbox, among what is set aside and held, and in the DLQ. From there it is sent to the
    consumer's queue, under a fresh deduplication id, and then deleted. The audit keeps the old body.
    """
    from sluice.cli.dlq import acts

    acts.replace(**given)


@group.command("purge-one")
@click.option("--message-id", metavar="ID", required=True, help="The message; see `dlq inspect`.")
@audited
@dlq_options
def purge_one(**given: Any) -> None:
    """Delete one message of the DLQ for good. The audit keeps its body.

    Its number stays open in the inbox, and a parked group waits on: `dlq skip` gives it up.
    """
    from sluice.cli.dlq import acts

    acts.purge_one(**given)


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("seq", metavar="SEQ", type=SEQ)
@audited
@consumer_options
def retry(**given: Any) -> None:
    """Have a held message, whose attempts were used up while its group was parked, tried again as it is."""
    from sluice.cli.dlq import acts

    acts.retry(**given)


@group.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("seq", metavar="SEQ", type=SEQ)
@click.option("--epoch", type=SEQ, help="Of the number, where it is open in several.")
@audited
@consumer_options
def skip(**given: Any) -> None:
    """Give a number of a group up: the consumer goes on without it, and drops it should it come after all.

    For a number that is dead, missing or held, or that the group waits for. A copy in the DLQ stays there.
    """
    from sluice.cli.dlq import acts

    acts.skip(**given)


@group.command()
@limit_option(100_000, default=50)
@consumer_options
def audit(**given: Any) -> None:
    """Print what operators did to the consumer's messages, newest first, as lines of JSON."""
    from sluice.cli.dlq import acts

    acts.audit(**given)


@group.command()
@json_option
@dlq_options
def status(**given: Any) -> None:
    """Show the move tasks of the DLQ, which `redrive --engine native` and the console start, the latest first."""
    from sluice.cli.dlq import listing

    listing.status(**given)


@group.command()
@confirmation_option
@dlq_options
def cancel(**given: Any) -> None:
    """Cancel the move task that runs on the DLQ. What it has moved stays where it is."""
    from sluice.cli.dlq import listing

    listing.cancel(**given)
