"""Parked groups: the number that each group waits for, when the wait ends, and what follows its end."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, or_, select, true

from sluice.messaging.inbox.groups import GroupRows, columns_of, position_of
from sluice.messaging.inbox.sequence import Position
from sluice.messaging.inbox.tables import DEAD, groups, parked

NEVER_US = (1 << 63) - 1
"""The end of the wait for a dead message: never. The declared wait is for missing messages only."""


class ParkedGroups(GroupRows):
    """The rows of one consumer's groups, and what is done with parked groups."""

    def begin_parking(
        self, connection: Connection, group_id: str, position: Position, now_us: int, *, is_dead: bool
    ) -> None:
        """Park a group until its next number, which is dead or missing, arrives."""
        last_seq = self.gaps.over_skipped(connection, group_id, position.epoch, position.last_seq)
        begun = columns_of(position) | {"last_seq": last_seq}
        until_us = NEVER_US if is_dead else self._gives_up_at_us(now_us)
        awaits = {"awaits_seq": last_seq + 1, "awaits_until_us": until_us}
        since = {} if position.is_parked else {"parked_at_us": now_us}
        self.write(connection, group_id, begun | awaits | since)

    def settle(self, connection: Connection, group_id: str, row: Row[Any], now_us: int) -> Position:
        """Give up the number that a group waits for if the wait is over, and return the group's position.

        A number that went missing under another policy is waited for from now on.
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
        """Return the SQL condition for groups whose awaited number is missing and which `settle` would change."""
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
        """Let a group wait for its next number, after the awaited number arrived and the next one is missing too."""
        if position.is_awaiting:
            return
        awaits = {"awaits_seq": position.last_seq + 1, "awaits_until_us": self._gives_up_at_us(now_us)}
        self.write(connection, group_id, awaits)

    def end_parking(self, connection: Connection, group_id: str, position: Position, now_us: int) -> None:
        """Unpark a group without parked messages; keep waiting if a later number of it is known to exist.

        A number that an operator gave up is looked up in parked groups only: an unparked group would handle it.
        """
        if position.last_seq < self.gaps.last(connection, group_id, position.epoch):
            if self._policy.parks_gaps:
                self.await_next(connection, group_id, position, now_us)
                return
            self._give_up(connection, group_id, position, now_us)
        self._unpark(connection, group_id, now_us)

    def _is_unexpected(self, position: Position) -> bool:
        """Return whether a group waits for its number 1 although it began before the consumer joined.

        The time of joining was declared after the group was parked: otherwise the group would have begun with the first
        message that arrived.
        """
        joined_at_us = self._policy.joined_at_us
        is_at_1 = (position.first_seq, position.last_seq) == (1, 0)
        return is_at_1 and joined_at_us is not None and position.epoch * 1_000_000 < joined_at_us

    def _begin_later(self, connection: Connection, group_id: str, position: Position) -> Position:
        """Raise a group's baseline to its first parked message, because the consumer is now declared to join later."""
        last_seq = self._last_given_up(connection, group_id, position)
        begun = {"first_seq": last_seq + 1, "last_seq": last_seq}
        self.write(connection, group_id, {**begun, "awaits_seq": None, "awaits_until_us": None})
        return Position(epoch=position.epoch, first_seq=last_seq + 1, last_seq=last_seq, is_parked=True)

    def _give_up(self, connection: Connection, group_id: str, position: Position, now_us: int) -> Position:
        """Record the awaited numbers as missing, up to the first parked message or the last known number."""
        last_seq = self._last_given_up(connection, group_id, position)
        self.gaps.write_missing(connection, group_id, position.epoch, (position.last_seq + 1, last_seq), now_us)
        given_up = {"last_seq": last_seq, "last_event_id": None, "awaits_seq": None, "awaits_until_us": None}
        self.write(connection, group_id, given_up)
        return Position(epoch=position.epoch, first_seq=position.first_seq, last_seq=last_seq, is_parked=True)

    def _last_given_up(self, connection: Connection, group_id: str, position: Position) -> int:
        """Return the number before the first parked message; without parked messages, the last number with a record."""
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
        """Return when the wait for a number that is missing from now on ends; None if it never ends."""
        wait_us = self._policy.gap_wait_us
        return None if wait_us is None else now_us + wait_us
