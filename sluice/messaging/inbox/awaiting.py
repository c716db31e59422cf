"""Groups that are parked: which number each waits for, until when, and what follows when it is given up."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, or_, select, true

from sluice.messaging.inbox.groups import GroupRows, columns_of, position_of
from sluice.messaging.inbox.sequence import Position
from sluice.messaging.inbox.tables import DEAD, groups, parked

NEVER_US = (1 << 63) - 1
"""Until when a dead message is waited for, whatever is declared about missing ones."""


class ParkedGroups(GroupRows):
    """The rows of one consumer's groups, parked ones among them."""

    def begin_parking(
        self, connection: Connection, group_id: str, position: Position, now_us: int, *, is_dead: bool
    ) -> None:
        """Let a group wait for the number after its last, which is dead, or missing."""
        last_seq = self.gaps.over_skipped(connection, group_id, position.epoch, position.last_seq)
        begun = columns_of(position) | {"last_seq": last_seq}
        until_us = NEVER_US if is_dead else self._gives_up_at_us(now_us)
        awaits = {"awaits_seq": last_seq + 1, "awaits_until_us": until_us}
        since = {} if position.is_parked else {"parked_at_us": now_us}
        self.write(connection, group_id, begun | awaits | since)

    def settle(self, connection: Connection, group_id: str, row: Row[Any], now_us: int) -> Position:
        """Return where a parked group is, after giving up a number that was waited for long enough.

        What began to be missing while another policy was declared is waited for from now on.
        """
        position, until_us = position_of(row), row.awaits_until_us
        if not position.is_awaiting:
            return position
        if until_us != NEVER_US and self._is_unexpected(position):
            return self._begin_later(connection, group_id, position)
        if not self._policy.parks or (
            self._policy.gap_wait_us is not None and until_us is not None and until_us <= now_us
        ):
            return self._give_up(connection, group_id, position, now_us)
        if self._policy.gap_wait_us is not None and until_us is None:
            awaited = self.gaps.find(connection, group_id, position.epoch, row.awaits_seq)
            is_dead = awaited is not None and awaited.state == DEAD
            self.write(connection, group_id, {"awaits_until_us": NEVER_US if is_dead else self._gives_up_at_us(now_us)})
        return position

    def is_over(self, now_us: int) -> ColumnElement[bool]:
        """Return the condition under which `settle` changes a group whose number has not come."""
        if not self._policy.parks:
            return true()
        is_unexpected: ColumnElement[bool] = false()
        if self._policy.joined_at_us is not None:
            began_before = groups.c.epoch < -(-self._policy.joined_at_us // 1_000_000)
            is_missing = or_(groups.c.awaits_until_us.is_(None), groups.c.awaits_until_us < NEVER_US)
            is_unexpected = and_(groups.c.first_seq == 1, groups.c.last_seq == 0, began_before, is_missing)
        if self._policy.gap_wait_us is None:
            return is_unexpected
        return or_(is_unexpected, groups.c.awaits_until_us.is_(None), groups.c.awaits_until_us <= now_us)

    def await_next(self, connection: Connection, group_id: str, position: Position, now_us: int) -> None:
        """Wait for another number, when the one that was waited for has come and the next is missing too."""
        if position.is_awaiting:
            return
        awaits = {"awaits_seq": position.last_seq + 1, "awaits_until_us": self._gives_up_at_us(now_us)}
        self.write(connection, group_id, awaits)

    def end_parking(self, connection: Connection, group_id: str, position: Position, now_us: int) -> None:
        """Unpark a group in which nothing is set aside, when nothing is known of a number that is still to come.

        A number an operator gave up is looked up in a parked group only: in another it would be handled.
        """
        if position.last_seq < self.gaps.last(connection, group_id, position.epoch):
            if self._policy.parks_gaps:
                self.await_next(connection, group_id, position, now_us)
                return
            self._give_up(connection, group_id, position, now_us)
        self._unpark(connection, group_id, now_us)

    def _is_unexpected(self, position: Position) -> bool:
        """Return whether a group waits for its number 1, and the consumer joined after it began.

        That was declared since: else the group would have begun with the message that came first.
        """
        joined_at_us = self._policy.joined_at_us
        is_at_1 = (position.first_seq, position.last_seq) == (1, 0)
        return is_at_1 and joined_at_us is not None and position.epoch * 1_000_000 < joined_at_us

    def _begin_later(self, connection: Connection, group_id: str, position: Position) -> Position:
        """Raise a group's baseline to what is set aside: that the consumer joined later was declared meanwhile."""
        last_seq = self._last_given_up(connection, group_id, position)
        begun = {"first_seq": last_seq + 1, "last_seq": last_seq}
        self.write(connection, group_id, {**begun, "awaits_seq": None, "awaits_until_us": None})
        return Position(epoch=position.epoch, first_seq=last_seq + 1, last_seq=last_seq, is_parked=True)

    def _give_up(self, connection: Connection, group_id: str, position: Position, now_us: int) -> Position:
        """Go on to what is set aside, or to the last that anything is known about; what is between is missing."""
        last_seq = self._last_given_up(connection, group_id, position)
        self.gaps.write_missing(connection, group_id, position.epoch, (position.last_seq + 1, last_seq), now_us)
        given_up = {"last_seq": last_seq, "last_event_id": None, "awaits_seq": None, "awaits_until_us": None}
        self.write(connection, group_id, given_up)
        return Position(epoch=position.epoch, first_seq=position.first_seq, last_seq=last_seq, is_parked=True)

    def _last_given_up(self, connection: Connection, group_id: str, position: Position) -> int:
        """Return the number before the first that is set aside; with none, the last that anything is known about."""
        here = (parked.c.consumer == self._policy.consumer, parked.c.group_id == group_id)
        ahead = (parked.c.epoch == position.epoch, parked.c.seq > position.last_seq)
        first = connection.execute(select(func.min(parked.c.seq)).where(*here, *ahead)).scalar_one()
        if first is not None:
            return int(first) - 1
        return max(position.last_seq, self.gaps.last(connection, group_id, position.epoch))

    def _unpark(self, connection: Connection, group_id: str, now_us: int) -> None:
        ended = {"parked_at_us": None, "awaits_seq": None, "awaits_until_us": None, "updated_at_us": now_us}
        self.write(connection, group_id, ended)

    def _gives_up_at_us(self, now_us: int) -> int | None:
        """Return when a number that begins to be missing now is given up; None is never."""
        wait_us = self._policy.gap_wait_us
        return None if wait_us is None else now_us + wait_us
