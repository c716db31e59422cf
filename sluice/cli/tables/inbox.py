"""What `sluice inbox …` does."""

from functools import partial

from sluice.cli.place import ConsumerTarget
from sluice.cli.tables.acts import act, actor, written
from sluice.cli.tables.schema import report_drift
from sluice.messaging.database import engines
from sluice.messaging.inbox import maintenance, operations
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.inbox.operations import InboxOperator
from sluice.terminal import output

_COLUMNS = ("group", "epoch", "baseline", "last number", "parked", "last message")


def check(*, place: ConsumerTarget) -> None:
    report_drift(place.engine, inbox_tables.metadata)


def status(*, place: ConsumerTarget, as_json: bool) -> None:
    counted = maintenance.counts(place.engine, place.consumer.name)
    if as_json:
        output.as_json({"consumer": place.consumer.name, **counted})
        return
    output.line(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counted.items()))


def ls(*, place: ConsumerTarget, group_id: str | None, most: int, as_json: bool) -> None:
    name = place.consumer.name
    with engines.reading(place.engine) as connection, engines.explaining_missing_tables():
        found, count = operations.listed_groups(connection, name, group_id=group_id, most=most)
    if as_json:
        output.as_json({"consumer": name, "count": count, "groups": found})
        return
    rows = [
        (
            row["group_id"],
            row["epoch"],
            row["first_seq"],
            row["last_seq"],
            "" if row["parked_at_us"] is None else f"since {written(row['parked_at_us'])}",
            written(row["updated_at_us"]),
        )
        for row in found
    ]
    output.table(_COLUMNS, rows, title=name)
    output.line(f"{len(found)} of {count}", is_error=True)


def lower_baseline(*, place: ConsumerTarget, group_id: str, seq: int, reason: str, confirmed: bool) -> None:
    operator = InboxOperator(consumer=place.consumer.name, actor=actor(), reason=reason)
    do = partial(operator.lower_baseline, group_id=group_id, seq=seq)
    act(place.engine, f"expect the numbers of group {group_id} from {seq} on", do, confirmed=confirmed)
