"""Parked messages: set aside behind a dead or missing number, and taken up again in order when it is back.

They are in the database, and no longer in a queue. `due` lists the groups in which something can be done;
`begin_attempt` counts an attempt, `lock_next_parked` locks the group and reads the message, and `mark_parked` or
`retry_parked` writes the outcome.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    and_,
    delete,
    false,
    func,
    not_,
    or_,
    select,
    true,
    tuple_,
    update,
)

from sluice.clock import Clock
from sluice.messaging.database import engines
from sluice.messaging.database.transactions import TransactionEndedError
from sluice.messaging.envelope import Envelope, decode
from sluice.messaging.inbox.awaiting import ParkedGroups
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy, RowLock, columns_of
from sluice.messaging.inbox.sequence import Action, Arrival, Decision, Position, State
from sluice.messaging.inbox.tables import groups, parked

_DUE_MAX = 100
_CLAIM_US = 2_000_000
"""How long no other worker begins an attempt at a parked message: the one that began it locks the row within this time.
"""
_DIED = "its last attempt came to no end, so it may end its worker; see the workers' logs"
_HAS_ARRIVED = or_(groups.c.awaits_seq.is_(None), groups.c.last_seq >= groups.c.awaits_seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedMessage:
    """A parked message at which an attempt is made.

    Args:
        attempts: how often it was tried since it was parked, this attempt included.
        position: the position of its group before the message.
        lock: the lock on the group's row; None on SQLite, and before `lock_next_parked`.
    """

    envelope: Envelope
    attributes: Mapping[str, str]
    attempts: int
    position: Position
    taken_at_us: int
    lock: RowLock | None = None


class Parking:
    """The messages that one consumer has parked.

    Args:
        clock: a clock for tests; None means the database's own.
        worker: the name of this process; None is unknown.
    """

    def __init__(self, policy: InboxPolicy, *, clock: Clock | None = None, worker: str | None = None) -> None:
        self.policy = policy
        self._groups = ParkedGroups(policy, clock=clock, worker=worker)

    def due(self, engine: Engine) -> list[str]:
        """Return up to a hundred parked groups that can be worked on now, those with the fewest attempts first.

        The condition must match exactly the groups that `_find_next` changes or returns; otherwise groups are drained
        in vain or never.
        """
        head = parked.alias("head")
        here = (parked.c.consumer == groups.c.consumer, parked.c.group_id == groups.c.group_id)
        first = select(parked.c.epoch, parked.c.seq).where(*here).order_by(parked.c.epoch, parked.c.seq).limit(1)
        is_head = and_(
            head.c.consumer == groups.c.consumer,
            head.c.group_id == groups.c.group_id,
            tuple_(head.c.epoch, head.c.seq).in_(first.correlate(groups)),
        )
        is_current = head.c.epoch == groups.c.epoch
        is_passed = or_(head.c.epoch < groups.c.epoch, and_(is_current, head.c.seq <= groups.c.last_seq))
        is_next = or_(
            head.c.seq == groups.c.last_seq + 1, and_(_HAS_ARRIVED, false() if self.policy.parks_gaps else true())
        )
        with engines.reading(engine) as connection, engines.explaining_missing_tables():
            now_us = self._groups.now_us(connection)
            is_ready = and_(head.c.held_at_us.is_(None), head.c.not_before_us <= now_us)
            is_over = self._groups.is_over(now_us)
            can_do = or_(
                is_passed,
                and_(is_current, is_next, is_ready),
                and_(_HAS_ARRIVED, or_(head.c.seq.is_(None), head.c.epoch > groups.c.epoch)),
                and_(_HAS_ARRIVED, is_current, not_(is_next)),
                and_(not_(_HAS_ARRIVED), is_over),
            )
            found = select(groups.c.group_id).select_from(groups.outerjoin(head, is_head))
            mine = (groups.c.consumer == self.policy.consumer, groups.c.parked_at_us.is_not(None))
            due = found.where(*mine, can_do).order_by(func.coalesce(head.c.attempts, 0), groups.c.group_id)
            return list(connection.execute(due.limit(_DUE_MAX)).scalars())

    def begin_attempt(self, connection: Connection, group_id: str, *, attempts_max: int) -> ParkedMessage | None:
        """Count an attempt at the next message of a parked group, and return the message; the caller commits.

        The attempt is counted before it is made, so a message that kills its worker every time is held in the end, as a
        message in the queue would be dead-lettered. For two seconds the message is not due for other workers, which
        would count another attempt.

        None if no message of the group is due; other work on the group, such as unparking it, is done.
        """
        turn = self._find_next(connection, group_id)
        if turn is None:
            return None
        message = _to_parked_message(*turn)
        is_used_up = message.attempts >= attempts_max
        used_up = {"held_at_us": message.taken_at_us, "last_error": _DIED}
        claimed = {"attempts": message.attempts + 1, "not_before_us": message.taken_at_us + _CLAIM_US}
        values = used_up if is_used_up else claimed
        connection.execute(update(parked).where(*self._place(message.envelope)).values(values))
        return None if is_used_up else replace(message, attempts=message.attempts + 1)

    def lock_next_parked(self, connection: Connection, group_id: str) -> ParkedMessage | None:
        """Lock the group, and return its message whose attempt was begun; the caller handles and marks it, and commits.

        None if another worker dealt with the message meanwhile: the caller commits then as well.
        """
        turn = self._find_next(connection, group_id, is_begun=True)
        return None if turn is None else replace(_to_parked_message(*turn), lock=self._groups.row_lock(connection))

    def hold_while_handled(self, connection: Connection, message: ParkedMessage) -> None:
        """Hold a message in the transaction of its handler; marking the message or a rollback undoes that.

        If the handler's code commits the transaction before the worker does, the message stays held, and no worker
        calls its handler again.
        """
        held = {"held_at_us": message.taken_at_us, "last_error": TransactionEndedError.COMMITTED}
        connection.execute(update(parked).where(*self._place(message.envelope)).values(held))

    def mark_parked(self, connection: Connection, message: ParkedMessage) -> bool | None:
        """Count a parked message as handled, after its handler. Its row is deleted when the caller commits.

        Returns:
            The same as `Inbox.mark`.
        """
        envelope, decision = message.envelope, Decision(State.CONTIGUOUS, Action.HANDLE)
        is_held = self._groups.advance(
            connection,
            envelope,
            message.position,
            decision,
            message.taken_at_us,
            attempt=message.attempts,
            lock=message.lock,
        )
        connection.execute(delete(parked).where(*self._place(envelope)))
        return is_held

    def _find_next(
        self, connection: Connection, group_id: str, *, is_begun: bool = False
    ) -> tuple[Position, Row[Any], int] | None:
        """Return a parked group's position, its next message and the time; None if no message of the group is due.

        A locked group belongs to another worker. A group without parked messages is unparked, and a group whose next
        number is missing begins to wait for it.
        """
        now_us = self._groups.now_us(connection)
        row = connection.execute(self._groups.find(group_id).with_for_update(skip_locked=True)).one_or_none()
        if row is None or row.parked_at_us is None:
            return None
        position = self._groups.settle(connection, group_id, row, now_us)
        self._drop_passed(connection, group_id, position)
        head = connection.execute(self._select_parked(group_id).limit(1)).one_or_none()
        if head is None:
            if not position.is_awaiting:
                self._groups.end_parking(connection, group_id, position, now_us)
            return None
        if head.epoch > position.epoch and not position.is_awaiting:
            position = self._begin_epoch(connection, group_id, position, head, now_us)
        if not self._is_next(position, head):
            self._groups.await_next(connection, group_id, position, now_us)
            return None
        is_ready = is_begun or head.not_before_us <= now_us
        return (position, head, now_us) if is_ready and head.held_at_us is None else None

    def _is_next(self, position: Position, head: Row[Any]) -> bool:
        """Return whether the first parked message is the next one to handle."""
        if head.epoch != position.epoch:
            return False
        return bool(head.seq == position.last_seq + 1) or not (position.is_awaiting or self.policy.parks_gaps)

    def _begin_epoch(
        self, connection: Connection, group_id: str, before: Position, head: Row[Any], now_us: int
    ) -> Position:
        """Enter the next epoch of a parked group, and wait for nothing of the earlier one; return the new position."""
        position = self._groups.enter_epoch(connection, group_id, before, _arrival_of(head), now_us)
        awaits_nothing = {"awaits_seq": None, "awaits_until_us": None}
        self._groups.write(connection, group_id, columns_of(position) | awaits_nothing)
        return position

    def retry_parked(
        self, connection: Connection, message: ParkedMessage, *, reason: str, delay_us: int, is_held: bool
    ) -> None:
        """Record a failed attempt at a parked message: the message is tried again, or held.

        If another worker has held the message meanwhile, or begun another attempt, nothing changes.
        """
        now_us = self._groups.now_us(connection)
        failed = {"last_error": reason, "not_before_us": now_us + delay_us, "held_at_us": now_us if is_held else None}
        is_free, is_last = parked.c.held_at_us.is_(None), parked.c.attempts == message.attempts
        connection.execute(update(parked).where(*self._place(message.envelope), is_free, is_last).values(failed))

    def cancel_attempt(self, connection: Connection, message: ParkedMessage) -> None:
        """Uncount an attempt that was not made: the worker had to end, or the database went away."""
        is_last = parked.c.attempts == message.attempts
        fewer = {"attempts": message.attempts - 1, "not_before_us": 0}
        connection.execute(update(parked).where(*self._place(message.envelope), is_last).values(fewer))

    def _park(self, connection: Connection, arrived: DecodedMessage, position: Position, now_us: int) -> None:
        """Store a message as parked. A copy of it is stored only once."""
        if not position.is_parked:
            self._groups.begin_parking(connection, arrived.envelope.event.group, position, now_us, is_dead=False)
        store_parked(connection, self.policy.consumer, [arrived], now_us)

    def _drop_passed(self, connection: Connection, group_id: str, position: Position) -> None:
        """Delete parked copies of messages that were handled."""
        passed = or_(
            parked.c.epoch < position.epoch, and_(parked.c.epoch == position.epoch, parked.c.seq <= position.last_seq)
        )
        connection.execute(
            delete(parked).where(parked.c.consumer == self.policy.consumer, parked.c.group_id == group_id, passed)
        )

    def _select_parked(self, group_id: str) -> Any:
        mine = (parked.c.consumer == self.policy.consumer, parked.c.group_id == group_id)
        return select(parked).where(*mine).order_by(parked.c.epoch, parked.c.seq)

    def _place(self, envelope: Envelope) -> tuple[Any, ...]:
        return (
            parked.c.consumer == self.policy.consumer,
            parked.c.group_id == envelope.event.group,
            parked.c.epoch == envelope.epoch,
            parked.c.seq == envelope.seq,
        )


def store_parked(connection: Connection, consumer: str, messages: Sequence[DecodedMessage], now_us: int) -> None:
    """Store messages as parked. A number that is parked already is left as it is."""
    rows = [
        {
            "consumer": consumer,
            "group_id": arrived.envelope.event.group,
            "epoch": arrived.envelope.epoch,
            "seq": arrived.envelope.seq,
            "event_id": arrived.envelope.event.id,
            "body": arrived.body,
            "attributes": json.dumps(dict(arrived.attributes), ensure_ascii=False),
            "sqs_message_id": arrived.dead_letter_id,
            "parked_at_us": now_us,
        }
        for arrived in messages
    ]
    connection.execute(engines.insert(connection.dialect.name, parked).on_conflict_do_nothing(), rows)


def _to_parked_message(position: Position, head: Row[Any], now_us: int) -> ParkedMessage:
    return ParkedMessage(
        envelope=decode(head.body),
        attributes=json.loads(head.attributes),
        attempts=head.attempts,
        position=position,
        taken_at_us=now_us,
    )


def _arrival_of(head: Row[Any]) -> Arrival:
    """Return the part of a parked message that the rules of `sequence` need."""
    envelope = decode(head.body)
    return Arrival(
        epoch=head.epoch,
        seq=head.seq,
        event_id=head.event_id,
        sqs_message_id=head.sqs_message_id,
        receive_count=0,
        first=envelope.first,
    )
