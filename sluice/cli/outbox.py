"""`sluice outbox …`: what is in an outbox, and what an operator does to its messages."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.acts import act, actor, instant_text, place_of, print_acts, print_count
from sluice.cli.bundles import bundles
from sluice.cli.options import Command, audit_options, choice_options, database_options, json_option, limit_option
from sluice.cli.overview.commands import verify_options
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup
from sluice.terminal.values import IN_FLIGHT, NUMBERS, SEQ

if TYPE_CHECKING:
    from sluice.cli.targets import DatabaseTarget
    from sluice.messaging.database.choice import RowChoice
    from sluice.messaging.outbox.operations import OutboxOperator

_CHOSEN_MAX = 10_000
_STATUSES = ["pending", "sent", "quarantined"]
_COLUMNS = ("group", "seq", "status", "type", "tries", "committed", "last error")


def _quarantined_options(command: Command) -> Command:
    """Give a command on quarantined messages its arguments, its filters, and the options of an act on an outbox."""
    for option in (
        database_options,
        audit_options,
        limit_option(_CHOSEN_MAX, default=None),
        choice_options,
        click.argument("group_seq", metavar="[SEQ]", type=SEQ, required=False),
        click.argument("group_id", metavar="[GROUP]", required=False),
    ):
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def outbox() -> None:
    """Look at an outbox and act on its messages. Every act needs a reason; the audit keeps it.

    \b
    A message is pending, then sent; or quarantined, when SNS refuses it for good, and its group waits:
      sluice outbox ls
      sluice outbox unquarantine GROUP SEQ --reason "..." --yes
    """


outbox.add_command(bundles)


@outbox.command()
@click.option("--status", type=click.Choice(_STATUSES), help="Only these.  [default: what is not sent]")
@choice_options
@limit_option(100_000, default=50)
@json_option
@database_options
def ls(target: "DatabaseTarget", status: str | None, choice: "RowChoice", most: int, as_json: bool) -> None:
    """List messages of the outbox, by group and number. --died-of is of the last error, --since of the commit.

    Several numbers, such as 6-8, are a bundle: one message, which may have been sent with the events of these numbers.
    """
    from sluice.messaging.database import engines
    from sluice.messaging.outbox import operations

    with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
        found, count = operations.list_messages(connection, target.topic, status=status, choice=choice, most=most)
    if as_json:
        output.as_json({"topic": target.topic, "count": count, "messages": found})
        return
    rows = [
        (
            row["group_id"],
            _numbers(row["group_seq"], row["event_count"]),
            row["status"],
            row["type"],
            row["attempts"],
            instant_text(row["created_at_us"]),
            row["last_error"] or "",
        )
        for row in found
    ]
    output.table(_COLUMNS, rows, title=target.topic)
    output.line(f"{len(found)} of {count}", is_error=True)


def _numbers(first: int, count: int) -> str:
    """Return a message's number, or the first and the last of its bundle."""
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


@outbox.command()
@json_option
@database_options
def lag(target: "DatabaseTarget", as_json: bool) -> None:
    """Tell how long the oldest unpublished message has waited, and how many there are: 100000 are so many or more."""
    from sluice.messaging.database import engines
    from sluice.messaging.outbox.store import Store

    store = Store(target.engine, target.topic)
    with engines.explaining_missing_tables():
        found, elsewhere = store.lag(), store.pending_elsewhere()
    if as_json:
        fields = {
            "topic": target.topic,
            "lag_seconds": found.seconds,
            "pending": found.pending_count,
            "quarantined": found.quarantined_count,
            "pending_elsewhere": elsewhere,
        }
        output.as_json(fields)
        return
    pending, quarantined = found.count_text(found.pending_count), found.count_text(found.quarantined_count)
    output.line(f"{found.seconds:.1f} s, {pending} pending, {quarantined} quarantined")
    for topic, count in elsewhere.items():
        output.line(f"{count} pending for another topic, {topic}, and not for {target.topic}", is_error=True)


@outbox.command()
@click.option("--topic", metavar="NAME", help="The topic, as declared.  [default: the first]")
@click.option(
    "--in-flight",
    type=IN_FLIGHT,
    metavar="AGE",
    help="Longest time that a message may be on its way: a younger one is not judged; 60s or more."
    "  [default: the longest message_retention_seconds of the topic's consumers]",
)
@click.option("--old-only", is_flag=True, help="Leave younger messages out altogether, as the task of every hour does.")
@click.option("--topic-arn", envvar="SLUICE_TOPIC_ARN", metavar="ARN", help="The topic.  [default: by name]")
@click.option(
    "--metrics/--no-metrics",
    "is_measured",
    default=lambda: "ECS_CONTAINER_METADATA_URI_V4" in os.environ,
    help="Write the verdict as one line, and as metrics that CloudWatch Logs reads.  [default: on ECS]",
)
@click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write the verdict as a page."
)
@click.option("--epochs", "shows_epochs", is_flag=True, help="Also list each group's epoch, as after a restore.")
@click.option("--hourly", is_flag=True, help="Compare nothing: show the last verdict of the task of every hour.")
@limit_option(100_000, default=50)
@json_option
@verify_options
def verify(hourly: bool, **options: Any) -> None:
    """Compare what is marked as sent with every consumer's position, its set aside and dead messages, and its queues.

    It finds purged queues, lost messages, rows that nobody published, missing subscriptions and filter policies that
    swallow, by name. It only reads, and receives nothing. `outbox resend` sends what is missing again.

    With a shorter --in-flight than the default, an empty queue is taken as SQS counts it, approximately.

    \b
    The last verdict of `verification=Hourly()`, from its log, without a database, and as a page:
      sluice outbox verify --env production --hourly --page verdict.html

    \b
    Exit codes:
      0  VALID: everything that was judged has come, is set aside, or is dead and in its DLQ
      1  INVALID: the numbers are listed, with the cause
      2  UNKNOWN: something could not be judged, and the reason says why
    """
    from sluice.cli.overview import hourly as log
    from sluice.cli.overview.verification import verify

    if not hourly:
        verify(**options)
        return
    if options["in_flight"] or options["old_only"] or options["shows_epochs"]:
        raise click.UsageError("--hourly shows a verdict that was made: leave out --in-flight, --old-only and --epochs")
    log.show(**{name: options[name] for name in ("environment", "topic", "endpoint_url", "page", "as_json")})


def _operator(target: "DatabaseTarget", reason: str) -> "OutboxOperator":
    """Return the operator whose acts on a topic's outbox are audited with this reason."""
    from sluice.messaging.outbox.operations import OutboxOperator

    return OutboxOperator(topic=target.topic, actor=actor(), reason=reason)


@outbox.command()
@click.argument("group_id", metavar="[GROUP]", required=False)
@click.argument("numbers", metavar="[SEQ|FIRST-LAST]...", type=NUMBERS, nargs=-1)
@choice_options
@limit_option(_CHOSEN_MAX, default=None)
@audit_options
@database_options
def resend(
    target: "DatabaseTarget",
    group_id: str | None,
    numbers: tuple[tuple[int, int], ...],
    choice: "RowChoice",
    most: int | None,
    reason: str,
    confirmed: bool,
) -> None:
    """Publish sent messages again, each under a fresh deduplication id, in the order of their groups.

    For consumers that lost them: `outbox verify` says which. The others drop them, because they are the same events.

    \b
      outbox resend order-7 3 --reason "billing lost it" --yes
      outbox resend order-7 3-9 12 --reason "billing's queue was purged" --yes
      outbox resend --group order-7 --group order-8 --reason "billing's queue was purged" --yes
      outbox resend --type order.placed --since 2h --reason "billing's queue was purged" --yes

    With filters all sent messages that match; --since is of the commit.
    """
    operator, needed = _operator(target, reason), "GROUP and its numbers, such as 3 or 3-9"
    place = place_of(group_id, numbers, choice, most, needed=needed)
    if place is None:
        do_all = partial(operator.resend_chosen, choice=choice, most=most)
        count = act(target.engine, "resend the sent messages that match", do_all, confirmed=confirmed)
        print_count(count, "messages", "resent", "to resend", confirmed=confirmed)
        return
    group_id, numbers = place
    if len(numbers) == 1 and numbers[0][0] == numbers[0][1]:
        do = partial(operator.resend, group_id=group_id, group_seq=numbers[0][0])
        act(target.engine, f"resend message {numbers[0][0]} of group {group_id}", do, confirmed=confirmed)
        return
    ranges = [(group_id, *each) for each in numbers]
    named = ", ".join(f"{first} to {last}" for first, last in numbers)
    described = f"resend what was sent of {named} of group {group_id}"
    count = act(target.engine, described, partial(operator.resend_ranges, ranges=ranges), confirmed=confirmed)
    print_count(count, "messages", "resent", "to resend", confirmed=confirmed)


@outbox.command()
@_quarantined_options
def unquarantine(
    target: "DatabaseTarget",
    group_id: str | None,
    group_seq: int | None,
    choice: "RowChoice",
    most: int | None,
    reason: str,
    confirmed: bool,
) -> None:
    """Try quarantined messages again as they are, after their cause was mended.

    \b
      outbox unquarantine order-7 3 --reason "..." --yes
      outbox unquarantine --died-of "InvalidParameter" --reason "..." --yes
    """
    from sluice.messaging.outbox.tables import QUARANTINED

    operator = _operator(target, reason)
    place = place_of(group_id, group_seq, choice, most)
    if place is not None:
        do = partial(operator.unquarantine, group_id=place[0], group_seq=place[1])
        act(target.engine, f"try message {group_seq} of group {group_id} again", do, confirmed=confirmed)
        return
    do_all = partial(operator.act_on_chosen, do=operator.unquarantine, status=QUARANTINED, choice=choice, most=most)
    count = act(target.engine, "try the quarantined messages that match again", do_all, confirmed=confirmed)
    print_count(count, "messages", "tried again", "to try again", confirmed=confirmed)


@outbox.command()
@_quarantined_options
def skip(
    target: "DatabaseTarget",
    group_id: str | None,
    group_seq: int | None,
    choice: "RowChoice",
    most: int | None,
    reason: str,
    confirmed: bool,
) -> None:
    """Give quarantined messages up: a tombstone with the number of each is published in its target.

    Consumers see no hole; the audit keeps the bodies.
    """
    from sluice.messaging.outbox.tables import QUARANTINED

    operator = _operator(target, reason)
    place = place_of(group_id, group_seq, choice, most)
    if place is not None:
        do = partial(operator.skip, group_id=place[0], group_seq=place[1])
        act(target.engine, f"skip message {group_seq} of group {group_id}", do, confirmed=confirmed)
        return
    do_all = partial(operator.act_on_chosen, do=operator.skip, status=QUARANTINED, choice=choice, most=most)
    count = act(target.engine, "skip the quarantined messages that match", do_all, confirmed=confirmed)
    print_count(count, "messages", "skipped", "to skip", confirmed=confirmed)


@outbox.command("begin-epoch")
@audit_options
@database_options
def begin_epoch(target: "DatabaseTarget", reason: str, confirmed: bool) -> None:
    """Begin another epoch, once, after the database was restored to an earlier state and before producers start.

    Numbers given from now on repeat numbers given before the restore; the epoch tells consumers that they are new.
    Groups go on from their last numbers; those that the restore lost begin a later epoch by themselves.
    """
    epoch = act(target.engine, "begin another epoch", _operator(target, reason).begin_epoch, confirmed=confirmed)
    output.line(f"epoch {epoch}; groups of an inbox that was restored too: `sluice dlq skip --before-epoch {epoch}`")


@outbox.command()
@choice_options
@limit_option(100_000, default=50)
@database_options
def audit(target: "DatabaseTarget", choice: "RowChoice", most: int) -> None:
    """Print what operators did, newest first, as lines of JSON."""
    from sluice.messaging.outbox import tables

    print_acts(target.engine, tables.audit.c.topic, target.topic, choice=choice, most=most)


@outbox.command()
@database_options
def check(target: "DatabaseTarget") -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    from sluice.cli.schema.upgrading import report_drift
    from sluice.messaging.outbox import tables

    report_drift(target.engine, tables.metadata)
