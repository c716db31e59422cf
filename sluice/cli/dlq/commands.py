"""The commands and options of `sluice dlq …`. Commands of more than one call are in the modules beside this one."""

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from sluice import limits
from sluice.cli.acts import act, actor, place_of, print_acts, print_count, print_intent
from sluice.cli.options import (
    Command,
    audit_options,
    choice_options,
    confirmation_option,
    consumer_options,
    dsn_option,
    endpoint_option,
    environment_option,
    json_option,
    limit_option,
)
from sluice.messaging.sqs.dead_letter_limits import CLIENT, HOLD_SECONDS, NATIVE, RATE_MAX, RATE_MIN
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup
from sluice.terminal.values import AGE, SEQ, NumberType, Whole

if TYPE_CHECKING:
    from sluice.cli.dlq.target import DlqTarget
    from sluice.cli.targets import ConsumerTarget
    from sluice.messaging.database.choice import RowChoice
    from sluice.messaging.inbox.operations import InboxOperator

_CANARY_MAX = 1_000_000
_CHOSEN_MAX = 10_000
_older_than_option = click.option(
    "--older-than", type=AGE, metavar="AGE", help="Only messages that died longer ago than this: 90s, 15m, 2h, 7d."
)


def dlq_options(command: Command) -> Command:
    """Give a command the options that name a consumer's DLQ, and hand it the `DlqTarget`.

    These are the options of `consumer_options`, and `--undelivered`, `--hold` and `--force`.
    """

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
    def run_on_dlq(target: Any, undelivered: bool, hold_seconds: int, force: bool, **others: Any) -> None:
        from sluice.cli.dlq.target import DlqTarget

        dlq = DlqTarget(target=target, is_undelivered=undelivered, hold_seconds=hold_seconds, is_forced=force)
        command(dlq=dlq, **others)

    return run_on_dlq


@click.group(cls=CommandGroup)
def dlq() -> None:
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


@dlq.command()
@environment_option("Declared environment of the consumers.")
@click.option("--consumer", "consumer_name", envvar="SLUICE_CONSUMER", metavar="NAME", help="Only this consumer.")
@dsn_option("The inboxes' database, for what is parked, dead and missing: e.g. sqlite:///billing.db")
@endpoint_option("SQS")
@choice_options
@limit_option(100_000, default=1_000)
@click.option("--each", "is_each", is_flag=True, help="A line for each number, in place of one for each reason.")
@json_option
def ls(**options: Any) -> None:
    """List the DLQs of an environment's consumers, and with a database what their inboxes wait for, by reason.

    Counts are SQS's own, and approximate: they can be a minute late. What the other options leave out is left out of
    what the inboxes wait for; the type of a dead message is known where outbox and inbox share a database.
    """
    from sluice.cli.dlq.listing import list_queues

    list_queues(**options)


@dlq.command()
@choice_options
@limit_option(1_000, default=10)
@json_option
@dlq_options
def inspect(dlq: "DlqTarget", choice: "RowChoice", most: int, as_json: bool) -> None:
    """Show the first messages of each group, what they hold and, with --dsn, why they died; then give them back.

    A FIFO queue delivers at most the first ten of a group. Nobody can see how many are behind them.
    With --died-of only those whose reason the inbox of --dsn knows; --since is of when they came into the DLQ.
    """
    from sluice.cli.dlq.listing import show_dead_letters

    show_dead_letters(dlq, choice, most, as_json=as_json)


@dlq.command()
@click.option(
    "--engine",
    type=click.Choice([CLIENT, NATIVE]),
    default=CLIENT,
    show_default=True,
    help="client: this process, each group in order. native: a move task of SQS, without process and filters.",
)
@click.option("--to", metavar="QUEUE", help="Name of the queue to send to.  [default: the consumer's]")
@click.option(
    "--rate",
    type=NumberType("messages a second", RATE_MIN, RATE_MAX),
    metavar="N",
    help="At most this many per second.",
)
@choice_options
@click.option("--event-id", "event_ids", multiple=True, help="Only this event; may be repeated.")
@_older_than_option
@click.option(
    "--canary",
    type=Whole(1, _CANARY_MAX),
    metavar="N",
    help="Bring back only this many, and print what to check next.",
)
@limit_option(_CANARY_MAX, default=None)
@click.option("--run", metavar="ID", help="Finish the run of that id, which died.")
@click.option("--no-wait", is_flag=True, help="Native: start the move task and exit; `dlq status` shows its progress.")
@json_option
@confirmation_option
@dlq_options
def redrive(**options: Any) -> None:
    """Bring dead letters back to the consumer's queue, each group in its order.

    A message is sent, then deleted, so it is always in a queue. If this process dies in between, it is in both. The
    same command with the printed --run finishes the run, and the inbox drops the second copy. A message that does not
    match a filter stays, and so do the messages of its group behind it. A message that was brought back and died again
    is left in the DLQ, so a run ends. --since is of when a message came into the DLQ; --died-of needs --dsn, whose
    inbox knows the reasons.

    Exit code 1: some are left that should have come. 2: none came.
    """
    from sluice.cli.dlq import moving

    moving.redrive(**options)


@dlq.command("automatic-redrive")
@choice_options
@_older_than_option
@dlq_options
def automatic_redrive(dlq: "DlqTarget", choice: "RowChoice", older_than: int | None) -> None:
    """Bring dead letters back within the bounds of the consumer's `automatic_redrive`, and print a line of JSON.

    A task runs it once the DLQ has held messages for the declared quiet time, and again and again while it does. Only
    messages whose attempts were used up come back; what was refused stays, and what is behind it in its group. One that
    was brought back this way and died again switches automatic redrive off.

    Exit code 1: it was switched off, or stopped before the end. 2: it is off, another run works, or it could not run.
    """
    from sluice.cli.dlq import automatic

    automatic.redrive(dlq, choice=choice, older_than_seconds=older_than)


@dlq.command("automatic-on")
@audit_options
@consumer_options
def automatic_on(target: "ConsumerTarget", reason: str, confirmed: bool) -> None:
    """Let automatic redrive go on, after a message that was brought back died again, or after a run died.

    How often each message was brought back still counts.
    """
    from sluice.cli.dlq import automatic

    described = f"switch automatic redrive of {target.consumer.name} on"
    act(target.engine, described, automatic.operator(target, reason).switch_on, confirmed=confirmed)


@dlq.command("automatic-off")
@audit_options
@consumer_options
def automatic_off(target: "ConsumerTarget", reason: str, confirmed: bool) -> None:
    """Let automatic redrive bring nothing back until it is switched on. A run that has begun sends nothing more."""
    from sluice.cli.dlq import automatic

    described = f"switch automatic redrive of {target.consumer.name} off"
    act(target.engine, described, automatic.operator(target, reason).switch_off, confirmed=confirmed)


def _operator(target: "ConsumerTarget", reason: str) -> "InboxOperator":
    """Return the operator whose acts on a consumer's inbox are audited with this reason."""
    from sluice.messaging.inbox.operations import InboxOperator

    return InboxOperator(consumer=target.consumer.name, actor=actor(), reason=reason)


@dlq.command()
@click.argument("group_id", metavar="[GROUP]", required=False)
@click.argument("seq", metavar="[SEQ]", type=SEQ, required=False)
@click.option("--data", type=click.File(encoding="utf-8"), help="The event's data, as JSON; `-` reads standard input.")
@click.option("--message-id", metavar="ID", help="The message, where it is not an envelope; see `dlq inspect`.")
@click.option("--body", type=click.File(encoding="utf-8"), help="Its whole body; `-` reads standard input.")
@audit_options
@dlq_options
def replace(dlq: "DlqTarget", reason: str, **options: Any) -> None:
    """Bring a message back with other data, as the same event with the same number.

    \b
      dlq replace order-1 7 --data right.json --reason "..." --yes
      dlq replace --message-id ID --body whole.json --reason "..." --yes

    A held message is changed in the inbox. One in the DLQ is sent to the consumer's queue, under a fresh deduplication
    id, and then deleted. The audit keeps the old body.
    """
    from sluice.cli.dlq import replacing

    replacing.replace(dlq, _operator(dlq.target, reason), **options)


@dlq.command("purge-one")
@click.option("--message-id", metavar="ID", required=True, help="The message; see `dlq inspect`.")
@audit_options
@dlq_options
def purge_one(dlq: "DlqTarget", message_id: str, reason: str, confirmed: bool) -> None:
    """Delete one message of the DLQ for good. The audit keeps its body.

    Its number stays open in the inbox, and a parked group still waits for it: `dlq skip` gives it up.
    """
    from sluice.cli.dlq import replacing

    wanted = replacing.by_message_id(message_id)
    print_intent(replacing.purge(dlq, _operator(dlq.target, reason), wanted, confirmed=confirmed), confirmed=confirmed)


@dlq.command()
@click.argument("group_id", metavar="[GROUP]", required=False)
@click.argument("seq", metavar="[SEQ]", type=SEQ, required=False)
@choice_options
@limit_option(_CHOSEN_MAX, default=None)
@audit_options
@consumer_options
def retry(
    target: "ConsumerTarget",
    group_id: str | None,
    seq: int | None,
    choice: "RowChoice",
    most: int | None,
    reason: str,
    confirmed: bool,
) -> None:
    """Try held messages again as they are: their attempts were used up while their group was parked.

    \b
      dlq retry order-1 7 --reason "..." --yes
      dlq retry --died-of "connection refused" --since 2h --reason "..." --yes

    --since is of when a message was set aside.
    """
    operator = _operator(target, reason)
    place = place_of(group_id, seq, choice, most)
    if place is not None:
        do = partial(operator.retry, group_id=place[0], seq=place[1])
        act(target.engine, f"have message {seq} of group {group_id} tried again", do, confirmed=confirmed)
    else:
        do_all = partial(operator.retry_chosen, choice=choice, most=most)
        count = act(target.engine, "have the held messages that match tried again", do_all, confirmed=confirmed)
        print_count(count, "messages", "tried again", "to try again", confirmed=confirmed)


@dlq.command()
@click.argument("group_id", metavar="[GROUP]", required=False)
@click.argument("seq", metavar="[SEQ]", type=SEQ, required=False)
@click.option("--epoch", type=SEQ, help="Epoch of the number, if it is open in several.")
@click.option(
    "--before-epoch",
    type=SEQ,
    metavar="EPOCH",
    help="All missing numbers that parked groups wait for in earlier epochs, of GROUP or of all groups.",
)
@choice_options
@limit_option(_CHOSEN_MAX, default=None)
@audit_options
@consumer_options
def skip(
    target: "ConsumerTarget",
    group_id: str | None,
    seq: int | None,
    epoch: int | None,
    before_epoch: int | None,
    choice: "RowChoice",
    most: int | None,
    reason: str,
    confirmed: bool,
) -> None:
    """Give up numbers of groups: the consumer goes on without them, and drops them if they come later.

    \b
      dlq skip order-1 7 --reason "..." --yes
      dlq skip --died-of "refund of … cents" --since 2h --reason "..." --yes
      dlq skip --before-epoch 1795710000 --reason "restored to 02:00" --yes

    For a number that is dead, missing or held, or that the group waits for. A copy in the DLQ stays there.
    With filters all dead, missing and held numbers that match; --since is of when each was noticed, or set aside.
    --before-epoch is for an inbox that was restored to an earlier state: it leaves what is dead or held.
    """
    operator = _operator(target, reason)
    if before_epoch is None and epoch is None and place_of(group_id, seq, choice, most) is None:
        do_chosen = partial(operator.skip_chosen, choice=choice, most=most)
        count = act(target.engine, "give up the numbers that match", do_chosen, confirmed=confirmed)
        print_count(count, "numbers", "given up", "to give up", confirmed=confirmed)
    elif not choice.is_any or most is not None:
        raise click.UsageError("give filters, or --epoch or --before-epoch")
    elif before_epoch is None and group_id is not None and seq is not None:
        do = partial(operator.skip, group_id=group_id, seq=seq, epoch=epoch)
        act(target.engine, f"give up number {seq} of group {group_id}", do, confirmed=confirmed)
    elif before_epoch is None or seq is not None or epoch is not None:
        raise click.UsageError("give GROUP and SEQ, or --before-epoch without SEQ and --epoch")
    else:
        do_all = partial(operator.skip_before, epoch=before_epoch, group_id=group_id)
        described = f"give up what is missing in epochs before {before_epoch}"
        count, waiting = act(target.engine, described, do_all, confirmed=confirmed)
        given_up = "given up" if confirmed else "to give up"
        output.line(f"{count} numbers {given_up}; {waiting} groups wait for a dead or held message, see `dlq ls`")


@dlq.command()
@choice_options
@limit_option(100_000, default=50)
@consumer_options
def audit(target: "ConsumerTarget", choice: "RowChoice", most: int) -> None:
    """Print what operators did to the consumer's messages, newest first, as lines of JSON."""
    from sluice.messaging.inbox import tables

    print_acts(target.engine, tables.audit.c.consumer, target.consumer.name, choice=choice, most=most)


@dlq.command()
@json_option
@dlq_options
def status(dlq: "DlqTarget", as_json: bool) -> None:
    """Show the move tasks of the DLQ, the latest first: `redrive --engine native` and AWS's console start them."""
    from sluice.cli.dlq.listing import show_move_tasks

    show_move_tasks(dlq, as_json=as_json)


@dlq.command()
@confirmation_option
@dlq_options
def cancel(dlq: "DlqTarget", confirmed: bool) -> None:
    """Cancel the move task that runs on the DLQ. What it has moved stays where it is."""
    from sluice.cli.dlq.listing import cancel_move_task

    cancel_move_task(dlq, confirmed=confirmed)
