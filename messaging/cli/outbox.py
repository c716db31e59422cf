"""`python -m messaging outbox …`."""

import json
from collections.abc import Callable

import click
from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection

from messaging import databases, operations, schema
from messaging.cli.acts import act, acting, actor, written
from messaging.cli.place import Place, at_place
from messaging.cli.tables import schema_command, tell_drift
from messaging.store import Store
from messaging.tables import PENDING, QUARANTINED, SENT


@click.group()
def outbox() -> None:
    """Look at an outbox and act on its messages; every act takes a reason and is written down.

    \b
    A message is pending, then sent; or quarantined, when SNS refuses it for good, and its group waits:
      python -m messaging outbox ls
      python -m messaging outbox unquarantine GROUP SEQ --reason "..." --yes
    """


@outbox.command("ls")
@click.option(
    "--status", type=click.Choice([PENDING, SENT, QUARANTINED]), help="Only these.  [default: what is not sent]"
)
@click.option("--group", "group_id", help="Only this message group.")
@click.option(
    "--limit", "most", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@at_place
def ls(place: Place, status: str | None, group_id: str | None, most: int, as_json: bool) -> None:
    """List messages of the outbox, by group and number."""
    with databases.reading(place.engine) as connection, databases.explaining_missing_tables():
        found, count = operations.listed(connection, place.topic, status=status, group_id=group_id, most=most)
    if as_json:
        click.echo(json.dumps({"topic": place.topic, "count": count, "messages": found}, indent=2))
        return
    shown = Table("group", "seq", "status", "type", "tries", "committed", "last error", title=place.topic)
    for row in found:
        shown.add_row(
            row["group_id"],
            str(row["group_seq"]),
            row["status"],
            row["type"],
            str(row["attempts"]),
            written(row["created_at_us"]),
            row["last_error"] or "",
        )
    Console().print(shown)
    click.echo(f"{len(found)} of {count}", err=True)


@outbox.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@at_place
def lag(place: Place, as_json: bool) -> None:
    """Tell how long the oldest unpublished message has waited, and how many there are."""
    with databases.explaining_missing_tables():
        found = Store(place.engine, place.topic).lag()
    if as_json:
        said = {
            "topic": place.topic,
            "lag_seconds": found.seconds,
            "pending": found.pending_count,
            "quarantined": found.quarantined_count,
        }
        click.echo(json.dumps(said, indent=2))
        return
    click.echo(f"{found.seconds:.1f} s, {found.pending_count} pending, {found.quarantined_count} quarantined")


def _act(
    place: Place, reason: str, is_meant: bool, said: str, do: Callable[[operations.Operator, Connection], object]
) -> None:
    operator = operations.Operator(topic=place.topic, actor=actor(), reason=reason)
    act(place.engine, said, lambda connection: do(operator, connection), is_meant=is_meant)


@outbox.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=click.IntRange(1))
@acting
@at_place
def resend(place: Place, group_id: str, group_seq: int, reason: str, is_meant: bool) -> None:
    """Publish a sent message again, under a fresh deduplication id.

    For consumers that lost it. Those that did not drop it: the event is the same.
    """
    said = f"resend message {group_seq} of group {group_id}"
    _act(place, reason, is_meant, said, lambda operator, at: operator.resend(at, group_id, group_seq))


@outbox.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=click.IntRange(1))
@acting
@at_place
def unquarantine(place: Place, group_id: str, group_seq: int, reason: str, is_meant: bool) -> None:
    """Try a quarantined message again as it is, after its cause was mended."""
    said = f"try message {group_seq} of group {group_id} again"
    _act(place, reason, is_meant, said, lambda operator, at: operator.unquarantine(at, group_id, group_seq))


@outbox.command()
@click.argument("group_id", metavar="GROUP")
@click.argument("group_seq", metavar="SEQ", type=click.IntRange(1))
@acting
@at_place
def skip(place: Place, group_id: str, group_seq: int, reason: str, is_meant: bool) -> None:
    """Give a quarantined message up: a tombstone with its number is published in its place.

    Consumers see no hole; the audit keeps the body.
    """
    said = f"skip message {group_seq} of group {group_id}"
    _act(place, reason, is_meant, said, lambda operator, at: operator.skip(at, group_id, group_seq))


@outbox.command("begin-epoch")
@acting
@at_place
def begin_epoch(place: Place, reason: str, is_meant: bool) -> None:
    """Begin another epoch, once, after the database was restored to an earlier state and before producers start.

    Numbers given from now on repeat numbers given before the restore; the epoch tells consumers that they are new.
    Groups go on from their last numbers; those that the restore lost begin a later epoch by themselves.
    """
    _act(place, reason, is_meant, "begin another epoch", lambda operator, at: operator.begin_epoch(at))


@outbox.command()
@click.option(
    "--limit", "most", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many."
)
@at_place
def audit(place: Place, most: int) -> None:
    """Print what operators did, newest first, as lines of JSON."""
    with databases.reading(place.engine) as connection, databases.explaining_missing_tables():
        for row in operations.audited(connection, place.topic, most=most):
            click.echo(json.dumps({**row, "at": written(row["at_us"])}))


outbox.add_command(schema_command("outbox", schema.OUTBOX))


@outbox.command()
@at_place
def check(place: Place) -> None:
    """Compare the database's tables with what this version needs; exit code 1 and a line each where they differ."""
    tell_drift(place.engine, schema.OUTBOX)
