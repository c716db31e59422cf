"""What `sluice outbox …` does."""

from collections.abc import Callable

from sqlalchemy import Connection

from sluice.cli.place import Place
from sluice.cli.tables.acts import act, actor, print_acts, written
from sluice.cli.tables.schema import tell_drift
from sluice.messaging.database import engines
from sluice.messaging.outbox import operations, tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Store
from sluice.terminal import output

_COLUMNS = ("group", "seq", "status", "type", "tries", "committed", "last error")


def ls(*, place: Place, status: str | None, group_id: str | None, most: int, as_json: bool) -> None:
    """Run `outbox ls`."""
    with engines.reading(place.engine) as connection, engines.explaining_missing_tables():
        found, count = operations.listed(connection, place.topic, status=status, group_id=group_id, most=most)
    if as_json:
        output.as_json({"topic": place.topic, "count": count, "messages": found})
        return
    rows = [
        (
            row["group_id"],
            row["group_seq"],
            row["status"],
            row["type"],
            row["attempts"],
            written(row["created_at_us"]),
            row["last_error"] or "",
        )
        for row in found
    ]
    output.table(_COLUMNS, rows, title=place.topic)
    output.line(f"{len(found)} of {count}", is_error=True)


def lag(*, place: Place, as_json: bool) -> None:
    """Run `outbox lag`."""
    with engines.explaining_missing_tables():
        found = Store(place.engine, place.topic).lag()
    if as_json:
        said = {
            "topic": place.topic,
            "lag_seconds": found.seconds,
            "pending": found.pending_count,
            "quarantined": found.quarantined_count,
        }
        output.as_json(said)
        return
    output.line(f"{found.seconds:.1f} s, {found.pending_count} pending, {found.quarantined_count} quarantined")


def _act(
    place: Place, reason: str, is_meant: bool, said: str, do: Callable[[OutboxOperator, Connection], object]
) -> None:
    operator = OutboxOperator(topic=place.topic, actor=actor(), reason=reason)
    act(place.engine, said, lambda connection: do(operator, connection), is_meant=is_meant)


def resend(*, place: Place, group_id: str, group_seq: int, reason: str, is_meant: bool) -> None:
    """Run `outbox resend`."""
    said = f"resend message {group_seq} of group {group_id}"
    _act(place, reason, is_meant, said, lambda operator, at: operator.resend(at, group_id, group_seq))


def unquarantine(*, place: Place, group_id: str, group_seq: int, reason: str, is_meant: bool) -> None:
    """Run `outbox unquarantine`."""
    said = f"try message {group_seq} of group {group_id} again"
    _act(place, reason, is_meant, said, lambda operator, at: operator.unquarantine(at, group_id, group_seq))


def skip(*, place: Place, group_id: str, group_seq: int, reason: str, is_meant: bool) -> None:
    """Run `outbox skip`."""
    said = f"skip message {group_seq} of group {group_id}"
    _act(place, reason, is_meant, said, lambda operator, at: operator.skip(at, group_id, group_seq))


def begin_epoch(*, place: Place, reason: str, is_meant: bool) -> None:
    """Run `outbox begin-epoch`."""
    _act(place, reason, is_meant, "begin another epoch", lambda operator, at: operator.begin_epoch(at))


def audit(*, place: Place, most: int) -> None:
    """Run `outbox audit`."""
    print_acts(place.engine, tables.audit.c.topic, place.topic, most=most)


def check(*, place: Place) -> None:
    """Run `outbox check`."""
    tell_drift(place.engine, tables.metadata)
