"""`sluice outbox …`: what is in an outbox, and what an operator does to its messages."""

from functools import partial
from typing import TYPE_CHECKING

import click

from sluice.cli.acts import act, actor, instant_text, print_acts
from sluice.cli.options import audit_options, database_options, json_option, limit_option
from sluice.terminal import output
from sluice.terminal.groups import CommandGroup
from sluice.terminal.values import SEQ

if TYPE_CHECKING:
    from sluice.cli.targets import DatabaseTarget
    from sluice.messaging.outbox.operations import OutboxOperator

_STATUSES = ["pending", "sent", "quarantined"]
_COLUMNS = ("group", "seq", "status", "type", "tries", "committed", "last error")


@click.group(cls=CommandGroup)
def outbox() -> None:
    """Look at an outbox and act on its messages. Every act needs a reason; the audit keeps it.

    \b
    A message is pending, then sent; or quarantined, when SNS refuses it for good, and its group waits:
      sluice outbox ls
      sluice outbox unquarantine GROUP SEQ --reason "..." --yes
    """


@outbox.command()
@click.option("--status", type=click.Choice(_STATUSES), help="Only these.  [default: what is not sent]")
@click.option("--group", "group_id", help="Only this message group.")
@limit_option(100_000, default=50)
@json_option
@database_options
def ls(target: "DatabaseTarget", status: str | None, group_id: str | None, most: int, as_json: bool) -> None:
    """List messages of the outbox, by group and number."""
    from sluice.messaging.database import engines
    from sluice.messaging.outbox import operations

    with engines.reading(target.engine) as connection, engines.explaining_missing_tables():
        found, count = operations.list_messages(connection, target.topic, status=status, group_id=group_id, most=most)
    if as_json:
        output.as_json({"topic": target.topic, "count": count, "messages": found})
        return
    rows = [
        (
            row["group_id"],
            row["group_seq"],
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


def _operator(target: "DatabaseTarget", reason: str) -> "OutboxOperator":
    from sluice.messaging.outbox.operations import OutboxOperator

    return OutboxOperator(topic=target.topic, actor=actor(), reason=reason)


@outbox.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=SEQ)
@audit_options
@database_options
def resend(target: "DatabaseTarget", group_id: str, group_seq: int, reason: str, confirmed: bool) -> None:
    """Publish a sent message again, under a fresh deduplication id.

    For consumers that lost it. The others drop it, because it is the same event.
    """
    do = partial(_operator(target, reason).resend, group_id=group_id, group_seq=group_seq)
    act(target.engine, f"resend message {group_seq} of group {group_id}", do, confirmed=confirmed)


@outbox.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=SEQ)
@audit_options
@database_options
def unquarantine(target: "DatabaseTarget", group_id: str, group_seq: int, reason: str, confirmed: bool) -> None:
    """Try a quarantined message again as it is, after its cause was mended."""
    do = partial(_operator(target, reason).unquarantine, group_id=group_id, group_seq=group_seq)
    act(target.engine, f"try message {group_seq} of group {group_id} again", do, confirmed=confirmed)


@outbox.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=SEQ)
@audit_options
@database_options
def skip(target: "DatabaseTarget", group_id: str, group_seq: int, reason: str, confirmed: bool) -> None:
    """Give a quarantined message up: a tombstone with its number is published in its target.

    Consumers see no hole; the audit keeps the body.
    """
    do = partial(_operator(target, reason).skip, group_id=group_id, group_seq=group_seq)
    act(target.engine, f"skip message {group_seq} of group {group_id}", do, confirmed=confirmed)


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
@limit_option(100_000, default=50)
@database_options
def audit(target: "DatabaseTarget", most: int) -> None:
    """Print what operators did, newest first, as lines of JSON."""
    from sluice.messaging.outbox import tables

    print_acts(target.engine, tables.audit.c.topic, target.topic, most=most)


@outbox.command()
@database_options
def check(target: "DatabaseTarget") -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    from sluice.cli.schema.upgrading import report_drift
    from sluice.messaging.outbox import tables

    report_drift(target.engine, tables.metadata)
