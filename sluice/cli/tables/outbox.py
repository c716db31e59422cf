"""What `sluice outbox …` does."""

from functools import partial

from sluice.cli.place import DatabaseTarget
from sluice.cli.tables.acts import act, actor, print_acts, written
from sluice.cli.tables.schema import report_drift
from sluice.messaging.database import engines
from sluice.messaging.outbox import operations, tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Store
from sluice.terminal import output

_COLUMNS = ("group", "seq", "status", "type", "tries", "committed", "last error")


def ls(*, place: DatabaseTarget, status: str | None, group_id: str | None, most: int, as_json: bool) -> None:
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


def lag(*, place: DatabaseTarget, as_json: bool) -> None:
    store = Store(place.engine, place.topic)
    with engines.explaining_missing_tables():
        found, elsewhere = store.lag(), store.pending_elsewhere()
    if as_json:
        fields = {
            "topic": place.topic,
            "lag_seconds": found.seconds,
            "pending": found.pending_count,
            "quarantined": found.quarantined_count,
            "pending_elsewhere": elsewhere,
        }
        output.as_json(fields)
        return
    pending, quarantined = found.shown(found.pending_count), found.shown(found.quarantined_count)
    output.line(f"{found.seconds:.1f} s, {pending} pending, {quarantined} quarantined")
    for topic, count in elsewhere.items():
        output.line(f"{count} pending for another topic, {topic}, and not for {place.topic}", is_error=True)


def _operator(place: DatabaseTarget, reason: str) -> OutboxOperator:
    return OutboxOperator(topic=place.topic, actor=actor(), reason=reason)


def resend(*, place: DatabaseTarget, group_id: str, group_seq: int, reason: str, confirmed: bool) -> None:
    do = partial(_operator(place, reason).resend, group_id=group_id, group_seq=group_seq)
    act(place.engine, f"resend message {group_seq} of group {group_id}", do, confirmed=confirmed)


def unquarantine(*, place: DatabaseTarget, group_id: str, group_seq: int, reason: str, confirmed: bool) -> None:
    do = partial(_operator(place, reason).unquarantine, group_id=group_id, group_seq=group_seq)
    act(place.engine, f"try message {group_seq} of group {group_id} again", do, confirmed=confirmed)


def skip(*, place: DatabaseTarget, group_id: str, group_seq: int, reason: str, confirmed: bool) -> None:
    do = partial(_operator(place, reason).skip, group_id=group_id, group_seq=group_seq)
    act(place.engine, f"skip message {group_seq} of group {group_id}", do, confirmed=confirmed)


def begin_epoch(*, place: DatabaseTarget, reason: str, confirmed: bool) -> None:
    act(place.engine, "begin another epoch", _operator(place, reason).begin_epoch, confirmed=confirmed)


def audit(*, place: DatabaseTarget, most: int) -> None:
    print_acts(place.engine, tables.audit.c.topic, place.topic, most=most)


def check(*, place: DatabaseTarget) -> None:
    report_drift(place.engine, tables.metadata)
