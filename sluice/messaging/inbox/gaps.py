"""Numbers that did not arrive in order: one row for each number, or one row for a range of missing numbers.

The rows of a group and epoch never overlap. A row is open until its number is accounted for.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from sluice.messaging.envelope import TOMBSTONE, Envelope
from sluice.messaging.inbox.sequence import Arrival, NumberRecord
from sluice.messaging.inbox.tables import DEAD, FILLED, GAP, REDRIVEN, SKIPPED, exceptions


class SequenceGaps:
    """The records of one consumer's numbers. The caller of each method that writes has locked the row of the group.

    Args:
        records_gaps: False if missing numbers are lawful: then their row is closed from the beginning.
    """

    def __init__(self, consumer: str, *, records_gaps: bool = True) -> None:
        self._consumer, self._records_gaps = consumer, records_gaps

    def find(self, connection: Connection, group_id: str, epoch: int, seq: int) -> Row[Any] | None:
        """Return the row of a number, or of the range that contains the number."""
        up_to = (exceptions.c.epoch == epoch, exceptions.c.seq <= seq)
        last = select(exceptions).where(*self._of(group_id), *up_to).order_by(exceptions.c.seq.desc()).limit(1)
        row = connection.execute(last).one_or_none()
        return row if row is not None and row.through >= seq else None

    def record_of(self, connection: Connection, group_id: str, epoch: int, seq: int) -> NumberRecord | None:
        """Return the record of a number; None if the number has none."""
        row = self.find(connection, group_id, epoch, seq)
        return None if row is None else _to_record(row)

    def records(self, connection: Connection, group_id: str) -> list[tuple[tuple[int, int], int, NumberRecord]]:
        """Return every record of a group, by epoch and number: ((epoch, first number), last number, record)."""
        ordered = select(exceptions).where(*self._of(group_id)).order_by(exceptions.c.epoch, exceptions.c.seq)
        return [((row.epoch, row.seq), row.through, _to_record(row)) for row in connection.execute(ordered)]

    def over_skipped(self, connection: Connection, group_id: str, epoch: int, last_seq: int) -> int:
        """Return the last of the skipped numbers that follow directly."""
        while (row := self.find(connection, group_id, epoch, last_seq + 1)) is not None and row.state == SKIPPED:
            last_seq = row.through
        return last_seq

    def last(self, connection: Connection, group_id: str, epoch: int) -> int:
        """Return the highest number that has a record; 0 if none has."""
        found = select(func.max(exceptions.c.through)).where(*self._of(group_id), exceptions.c.epoch == epoch)
        return connection.execute(found).scalar_one() or 0

    def write_dead(
        self,
        connection: Connection,
        group_id: str,
        arrival: Arrival,
        now_us: int,
        *,
        reason: str,
        is_permanent: bool,
        is_refused: bool,
    ) -> None:
        """Record that the message of a number dies. A refused number is not missing, so its row is closed."""
        row = self.find(connection, group_id, arrival.epoch, arrival.seq)
        if row is None:
            self._insert(connection, group_id, arrival.epoch, (arrival.seq, arrival.seq), DEAD, now_us, None)
        else:
            self._split(connection, row, arrival.seq)
        columns = {
            "state": DEAD,
            "event_id": arrival.event_id,
            "sqs_message_id": arrival.sqs_message_id,
            "receive_count": arrival.receive_count,
            "reason": reason,
            "is_permanent": is_permanent,
            "closed_at_us": now_us if is_refused else None,
        }
        self._update(connection, group_id, arrival.epoch, arrival.seq, columns)

    def write_missing(
        self, connection: Connection, group_id: str, epoch: int, numbers: tuple[int, int], now_us: int
    ) -> None:
        """Record the numbers from first to last as missing, except numbers that have a record already."""
        first, last = numbers
        if first > last:
            return
        closed_at_us = None if self._records_gaps else now_us
        within = (exceptions.c.epoch == epoch, exceptions.c.seq.between(first, last))
        ranges = select(exceptions.c.seq, exceptions.c.through).where(*self._of(group_id), *within)
        for seq, through in [*connection.execute(ranges.order_by(exceptions.c.seq)).all(), (last + 1, last + 1)]:
            if first < seq:
                self._insert(connection, group_id, epoch, (first, seq - 1), GAP, now_us, closed_at_us)
            first = through + 1

    def write_filled(self, connection: Connection, envelope: Envelope, now_us: int, handled: Mapping[str, Any]) -> None:
        """Record an unexpected number as received: a message with this number is a repeat from now on.

        The row also gets the columns `handled`, which say who handled it.
        """
        group_id, epoch, seq = envelope.event.group, envelope.epoch, envelope.seq
        self._insert(connection, group_id, epoch, (seq, seq), FILLED, now_us, now_us)
        self._update(connection, group_id, epoch, seq, {"event_id": envelope.event.id, **handled})

    def write_skipped(
        self, connection: Connection, group_id: str, epoch: int, seq: int, now_us: int, *, reason: str
    ) -> None:
        """Record a number as skipped, in place of an earlier record of it."""
        row = self.find(connection, group_id, epoch, seq)
        if row is None:
            self._insert(connection, group_id, epoch, (seq, seq), SKIPPED, now_us, now_us)
        else:
            self._split(connection, row, seq)
        columns = {"state": SKIPPED, "reason": reason, "closed_at_us": now_us}
        self._update(connection, group_id, epoch, seq, columns)

    def close(self, connection: Connection, envelope: Envelope, now_us: int, handled: Mapping[str, Any]) -> bool:
        """Record that a dead or missing number has arrived; return whether it was dead or missing.

        The row also gets the columns `handled`, which say who handled it.
        """
        group_id, epoch, seq = envelope.event.group, envelope.epoch, envelope.seq
        row = self.find(connection, group_id, epoch, seq)
        if row is None or row.state not in (DEAD, GAP):
            return False
        came = REDRIVEN if row.state == DEAD else FILLED
        state = SKIPPED if envelope.event.type == TOMBSTONE else came
        self._split(connection, row, seq)
        closed = {"state": state, "event_id": envelope.event.id, "closed_at_us": now_us, **handled}
        self._update(connection, group_id, epoch, seq, closed)
        return True

    def _of(self, group_id: str) -> tuple[Any, ...]:
        return exceptions.c.consumer == self._consumer, exceptions.c.group_id == group_id

    def _split(self, connection: Connection, row: Row[Any], seq: int) -> None:
        """Split the row of a range so that the number has a row of its own."""
        if row.seq == row.through:
            return
        parts = [(row.seq, seq - 1), (seq, seq), (seq + 1, row.through)]
        kept, *others = [(first, last) for first, last in parts if first <= last]
        connection.execute(update(exceptions).where(exceptions.c.id == row.id).values(seq=kept[0], through=kept[1]))
        for part in others:
            self._insert(connection, row.group_id, row.epoch, part, row.state, row.seen_at_us, row.closed_at_us)

    def _update(self, connection: Connection, group_id: str, epoch: int, seq: int, columns: dict[str, Any]) -> None:
        here = (exceptions.c.epoch == epoch, exceptions.c.seq == seq)
        connection.execute(update(exceptions).where(*self._of(group_id), *here).values(columns))

    def _insert(
        self,
        connection: Connection,
        group_id: str,
        epoch: int,
        numbers: tuple[int, int],
        state: str,
        seen_at_us: int,
        closed_at_us: int | None,
    ) -> None:
        connection.execute(
            insert(exceptions).values(
                consumer=self._consumer,
                group_id=group_id,
                epoch=epoch,
                seq=numbers[0],
                through=numbers[1],
                state=state,
                seen_at_us=seen_at_us,
                closed_at_us=closed_at_us,
            )
        )


def _to_record(row: Row[Any]) -> NumberRecord:
    return NumberRecord(
        state=row.state,
        sqs_message_id=row.sqs_message_id,
        receive_count=row.receive_count,
        is_refused=row.state == DEAD and row.closed_at_us is not None,
    )
