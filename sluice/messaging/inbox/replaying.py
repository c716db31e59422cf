"""A group of a consumer while events of its past are set aside in it, for the drainer to handle in order.

An event of the past has its number, so the inbox knows what would become of it: `ReplayedGroup.outcome` says so before
anything is written. What is next or later is set aside, and the group is parked, whatever the consumer declares: live
messages that arrive meanwhile are set aside behind it. A number that is behind the group's position cannot be handled
in order any more.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from sqlalchemy import Connection, select

from sluice.clock import Clock
from sluice.messaging.inbox.awaiting import ParkedGroups
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy, columns_of, position_of
from sluice.messaging.inbox.parking import store_parked
from sluice.messaging.inbox.sequence import Action, Arrival, NumberRecord, Position, decide
from sluice.messaging.inbox.tables import parked

_CLOCKS_DIFFER_US = 60_000_000
"""How far the clocks of two databases may be apart."""


class ReplayOutcome(StrEnum):
    """The outcome of a replayed event, by its number."""

    TO_HANDLE = "to_handle"
    SET_ASIDE = "set_aside"
    LATE = "late"
    HANDLED = "handled"
    REJECTED = "rejected"
    FORGOTTEN = "forgotten"


class ReplayedGroup:
    """One group of one consumer, read in the transaction of `connection`.

    Args:
        group_id: the group.
        first: the first event that is to be replayed.
        locks: whether the group's row is locked, and inserted if it is missing; only then may `set_aside` be called.
        clock: a clock for tests; None means the database's own.
    """

    def __init__(
        self,
        connection: Connection,
        policy: InboxPolicy,
        group_id: str,
        first: Arrival,
        *,
        locks: bool,
        clock: Clock | None = None,
    ) -> None:
        self._connection, self._consumer, self._group_id = connection, policy.consumer, group_id
        self._groups = ParkedGroups(policy, clock=clock)
        if locks:
            self._groups.lock(connection, group_id, first)
        row = connection.execute(self._groups.find(group_id)).one_or_none()
        self._before = Position(epoch=0, first_seq=0, last_seq=0) if row is None else position_of(row)
        self._records = self._groups.gaps.records(connection, group_id)
        here = (parked.c.consumer == policy.consumer, parked.c.group_id == group_id)
        numbers = connection.execute(select(parked.c.epoch, parked.c.seq).where(*here)).all()
        self._set_aside = {(epoch, seq) for epoch, seq in numbers}
        self._forgotten_before_us = self._groups.oldest_kept_us(connection)
        self._is_begun = False

    def outcome(self, arrival: Arrival, sent_at_us: int) -> ReplayOutcome:
        """Return what would become of an event now.

        Args:
            arrival: its number.
            sent_at_us: when it was sent or, if it was not, committed; microseconds UTC by the outbox's database.
        """
        place, before = (arrival.epoch, arrival.seq), self._before
        if place in self._set_aside:
            return ReplayOutcome.SET_ASIDE
        if self.may_begin_at(arrival):
            return ReplayOutcome.FORGOTTEN if self._may_be_forgotten(sent_at_us) else ReplayOutcome.TO_HANDLE
        if arrival.epoch > before.epoch:
            return ReplayOutcome.TO_HANDLE
        action = decide(before, self._record(arrival), arrival, parks_gaps=True).action
        if action in (Action.DROP, Action.REJECT):
            return ReplayOutcome.HANDLED if action is Action.DROP else ReplayOutcome.REJECTED
        if place > (before.epoch, before.last_seq):
            return ReplayOutcome.TO_HANDLE
        is_before_baseline = arrival.epoch == before.epoch and arrival.seq < before.first_seq
        return (
            ReplayOutcome.FORGOTTEN if is_before_baseline and self._may_be_forgotten(sent_at_us) else ReplayOutcome.LATE
        )

    def set_aside(self, messages: Sequence[DecodedMessage]) -> None:
        """Set aside messages of the outcome TO_HANDLE, in the order of their numbers. The caller commits.

        At the first call the group is parked. A group in which nothing was handled begins with the first of them.
        """
        now_us = self._groups.now_us(self._connection)
        if not self._is_begun:
            self._begin(messages[0].arrival, now_us)
        store_parked(self._connection, self._consumer, messages, now_us)

    def may_begin_at(self, arrival: Arrival) -> bool:
        """Return whether the consumer has passed no number of this epoch, so that the group may begin with this one."""
        before = self._before
        if before.epoch == 0:
            return True
        has_passed = before.last_seq >= before.first_seq or bool(self._records)
        return arrival.epoch == before.epoch and not has_passed

    def _begin(self, first: Arrival, now_us: int) -> None:
        position = self._before
        if self.may_begin_at(first):
            earlier = [seq for epoch, seq in self._set_aside if epoch == first.epoch]
            begins_at = min([first.seq, *earlier])
            position = replace(position, epoch=first.epoch, first_seq=begins_at, last_seq=begins_at - 1)
        elif first.epoch > position.epoch and not position.is_parked:
            position = self._groups.enter_epoch(self._connection, self._group_id, position, first, now_us)
        since = {} if position.is_parked else {"parked_at_us": now_us}
        self._groups.write(self._connection, self._group_id, columns_of(position) | since)
        self._is_begun = True

    def _may_be_forgotten(self, sent_at_us: int) -> bool:
        """Return whether the inbox may have handled an event and deleted the row of its group since."""
        before_us = self._forgotten_before_us
        return before_us is not None and sent_at_us < before_us + _CLOCKS_DIFFER_US

    def _record(self, arrival: Arrival) -> NumberRecord | None:
        index = bisect_right(self._records, (arrival.epoch, arrival.seq), key=lambda record: record[0])
        if index == 0:
            return None
        (epoch, _), through, record = self._records[index - 1]
        return record if epoch == arrival.epoch and arrival.seq <= through else None
