"""The state of each number of a group in a consumer's inbox."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, select

from sluice.messaging.inbox import tables as inbox

_GROUPS = 500
"""The most groups of an inbox that are looked up in one statement."""


class NumberState(StrEnum):
    """The state of a number in a consumer's inbox."""

    HANDLED = "handled"
    FILLED = "handled late"
    REDRIVEN = "handled after it was brought back"
    PARKED = "set aside"
    HELD = "held"
    DEAD = "dead"
    REFUSED = "dead, and refused by the inbox"
    SKIPPED = "given up"
    FILTERED = "left out, as its filter policy allows"
    BASELINE = "before the consumer's first number of the group"
    GAP = "missing: a later number came"
    AWAITED = "has not come"
    LATER_EPOCH = "of an earlier epoch than the consumer's"


@dataclass(slots=True)
class GroupSnapshot:
    """An inbox's rows of one group.

    Args:
        row: the consumer's position; None if nothing of the group was received, or its row was deleted.
        exceptions: the rows of numbers that did not come in order, sorted by epoch and number.
        parked: (epoch, number) of each parked message -> whether it is held for an operator.
    """

    row: Row[Any] | None = None
    exceptions: list[Row[Any]] = field(default_factory=list)
    parked: dict[tuple[int, int], bool] = field(default_factory=dict)

    def exception_of(self, epoch: int, seq: int) -> Row[Any] | None:
        """Return the exception row of a number; None if the number came in order or has not come."""
        behind = bisect_right(self.exceptions, (epoch, seq), key=_place_of)
        row = self.exceptions[behind - 1] if behind else None
        return row if row is not None and row.epoch == epoch and seq <= row.through else None

    def handled_ranges(self, epoch: int, first: int) -> list[tuple[int, int]]:
        """Return the ranges (lowest, highest) of an epoch's numbers, from `first` on, that were handled in order."""
        row = self.row
        if row is None or row.epoch != epoch:
            return []
        begins, ranges = max(first, row.first_seq), []
        for exception in self.exceptions:
            if exception.epoch == epoch and exception.through >= begins and exception.seq <= row.last_seq:
                ranges.append((begins, exception.seq - 1))
                begins = exception.through + 1
        ranges.append((begins, row.last_seq))
        return [(lowest, highest) for lowest, highest in ranges if lowest <= highest]

    def state_of(self, epoch: int, seq: int) -> NumberState:
        """Return the state of a number of an epoch."""
        row = self.row
        position = (0, 0) if row is None else (row.epoch, row.last_seq)
        if (epoch, seq) in self.parked and (epoch, seq) > position:
            return NumberState.HELD if self.parked[epoch, seq] else NumberState.PARKED
        exception = self.exception_of(epoch, seq)
        if exception is not None:
            return _state_of_exception(exception)
        if row is None or epoch > row.epoch:
            return NumberState.AWAITED
        if epoch < row.epoch:
            return NumberState.LATER_EPOCH
        if seq < row.first_seq:
            return NumberState.BASELINE
        return NumberState.HANDLED if seq <= row.last_seq else NumberState.AWAITED


def _state_of_exception(exception: Row[Any]) -> NumberState:
    """Return the state of a number by its exception row."""
    is_open = exception.closed_at_us is None
    match exception.state:
        case inbox.GAP:
            return NumberState.GAP if is_open else NumberState.FILTERED
        case inbox.DEAD:
            return NumberState.DEAD if is_open else NumberState.REFUSED
        case inbox.FILLED:
            return NumberState.FILLED
        case inbox.REDRIVEN:
            return NumberState.REDRIVEN
    return NumberState.SKIPPED


def read_groups(connection: Connection, consumer: str, group_ids: Sequence[str]) -> dict[str, GroupSnapshot]:
    """Return an inbox's rows of groups, by group id; each id has an entry."""
    found = {group_id: GroupSnapshot() for group_id in group_ids}
    for start in range(0, len(group_ids), _GROUPS):
        some = group_ids[start : start + _GROUPS]
        for table in (inbox.groups, inbox.exceptions, inbox.parked):
            columns = [column for column in table.c if column.name not in ("body", "attributes")]
            here = (table.c.consumer == consumer, table.c.group_id.in_(some))
            for row in connection.execute(select(*columns).where(*here)):
                _add_row(found[row.group_id], table.name, row)
    for snapshot in found.values():
        snapshot.exceptions.sort(key=_place_of)
    return found


def _place_of(exception: Row[Any]) -> tuple[int, int]:
    return exception.epoch, exception.seq


def _add_row(snapshot: GroupSnapshot, table: str, row: Row[Any]) -> None:
    if table == inbox.groups.name:
        snapshot.row = row
    elif table == inbox.exceptions.name:
        snapshot.exceptions.append(row)
    else:
        snapshot.parked[row.epoch, row.seq] = row.held_at_us is not None


def has_rows(connection: Connection, consumer: str) -> bool:
    """Return whether any row of a consumer is in this inbox; without one, its inbox may be in another database."""
    tables = (inbox.groups, inbox.exceptions, inbox.pauses)
    return any(
        connection.execute(select(1).select_from(table).where(table.c.consumer == consumer).limit(1)).first()
        is not None
        for table in tables
    )
