"""The inbox records the events that a consumer has handled, in its database and in the transaction of the effect.

A transaction begins by locking the row of the message's group. Two workers with copies of one message therefore run one
after the other, and the second sees the result of the first. `sequence` decides which number is next.
"""

import uuid
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert
from sqlalchemy.exc import DBAPIError

from sluice.clock import Clock
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope
from sluice.messaging.inbox import maintenance
from sluice.messaging.inbox.attempts import InboxAttempts
from sluice.messaging.inbox.groups import DecodedMessage, InboxPolicy, RowLock, columns_of, position_of
from sluice.messaging.inbox.parking import Parking
from sluice.messaging.inbox.sequence import (
    Action,
    Arrival,
    Decision,
    NumberRecord,
    Position,
    State,
    decide,
    needs_known,
)
from sluice.messaging.inbox.tables import groups

_PROBE_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The decision about a message, with the position of its group at that time.

    It is marked after the handler returned.

    Args:
        position: the position of the group before the message.
        decided_at_us: the time of the decision, microseconds UTC.
        lock: the lock on the group's row; None on SQLite.
        attempt: the number of the attempt at the message.
    """

    decision: Decision
    position: Position
    decided_at_us: int
    lock: RowLock | None
    attempt: int


class Inbox(Parking):
    """One consumer's inbox: it admits messages of the queue, takes up parked ones (`Parking`), and deletes old rows.

    Args:
        clock: a clock for tests; None means the database's own.
        worker: the name of this process, which the inbox keeps beside what it handles; None is unknown.

    Attributes:
        attempts: the attempts at messages, where the queue does not count them.
    """

    def __init__(self, policy: InboxPolicy, *, clock: Clock | None = None, worker: str | None = None) -> None:
        super().__init__(policy, clock=clock, worker=worker)
        self.attempts = InboxAttempts(policy.consumer, clock=clock)

    def admit(self, connection: Connection, arrived: DecodedMessage) -> Admission:
        """Lock the row of the message's group, and decide what the caller does with the message.

        With the action `PARK` the message is stored when the caller commits. With any other action nothing was
        written that has to be kept: the caller handles, marks and commits the message, and deletes it from the queue.

        Raises:
            OutboxError: the tables are missing.
        """
        arrival = arrived.arrival
        group_id = arrived.envelope.event.group
        try:
            position, now_us, lock = self._groups.lock(connection, group_id, arrival)
        except DBAPIError as error:
            engines.explain_missing_tables(error)
            raise
        known = self._number_record(connection, group_id, arrival) if needs_known(position, arrival) else None
        decision = decide(position, known, arrival, parks_gaps=self.policy.parks_gaps)
        if decision.action is Action.PARK:
            self._park(connection, arrived, position, now_us)
        return Admission(decision=decision, position=position, decided_at_us=now_us, lock=lock, attempt=arrived.attempt)

    def admit_next(self, connection: Connection, arrived: DecodedMessage, before: Admission | None) -> Admission:
        """Decide about a message behind another one of its group, which was marked in the same transaction.

        The row of the group is locked since then, so the next number needs no look at it.

        Args:
            connection: in that transaction.
            arrived: the message.
            before: the admission of the message in front, if that was handled; None looks at the row.
        """
        arrival = arrived.arrival
        if before is not None and before.decision.state is State.CONTIGUOUS and not before.position.is_parked:
            position = replace(before.position, last_seq=before.position.last_seq + 1, last_event_id=None)
            if (arrival.epoch, arrival.seq) == (position.epoch, position.last_seq + 1):
                return replace(before, position=position, attempt=arrived.attempt)
        return self.admit(connection, arrived)

    def mark(self, connection: Connection, envelope: Envelope, admission: Admission) -> bool | None:
        """Count a message as handled, in the transaction of its effect. The caller commits.

        Call it after the handler, not before: a handler that commits by itself would otherwise count the message before
        its effect is complete.

        Returns:
            True if this transaction holds the group's lock and the message counts in the inbox's own tables; False if
                nothing was counted; None if that is unknown.
        """
        return self._groups.advance(
            connection,
            envelope,
            admission.position,
            admission.decision,
            admission.decided_at_us,
            attempt=admission.attempt,
            lock=admission.lock,
        )

    def was_committed(self, connection: Connection, envelope: Envelope, admission: Admission) -> bool:
        """Return whether the transaction that admitted a message may have been committed, by its group's row."""
        return self._groups.was_locked_since(connection, envelope.event.group, admission.decided_at_us)

    def mark_at_once(self, envelope: Envelope, admission: Admission) -> tuple[str, dict[str, Any]] | None:
        """Return the statement of `mark`; see `GroupRows.advance_at_once`. None also if no lock is known."""
        if admission.lock is None:
            return None
        return self._groups.advance_at_once(
            envelope,
            admission.position,
            admission.decision,
            admission.decided_at_us,
            attempt=admission.attempt,
            lock=admission.lock,
        )

    def begin_group(self, connection: Connection, arrived: DecodedMessage) -> None:
        """Store the first position of the message's group or epoch, unless it is stored. The caller commits.

        Called before a second attempt. If the first message kills its worker each time and nothing was stored, the next
        message would become the beginning of the group.
        """
        group_id = arrived.envelope.event.group
        position, *_ = self._groups.lock(connection, group_id, arrived.arrival)
        self._groups.write(connection, group_id, columns_of(position))

    def require_writable(self, connection: Connection) -> None:
        """Write a row of a group that does not exist and delete it again, so that a full disk raises an error.

        The caller commits: SQLite writes only then. The row is as large as an event, because a page that is nearly full
        would have room for a smaller row.
        """
        probe = {"consumer": self.policy.consumer, "group_id": uuid.uuid4().hex}
        row = {"epoch": 0, "first_seq": 0, "last_seq": 0, "last_event_id": "-" * _PROBE_CHARACTERS, "updated_at_us": 0}
        connection.execute(insert(groups).values(probe | row))
        is_probe = [groups.c[name] == value for name, value in probe.items()]
        connection.execute(delete(groups).where(*is_probe))

    def record_dead(self, connection: Connection, arrived: DecodedMessage, reason: str, *, is_permanent: bool) -> bool:
        """Record that a message is dead: SQS will move it to the DLQ. The caller commits.

        Its group goes on without the message, or is parked until the message is back. A message whose number was
        refused changes nothing for its group.

        Args:
            connection: a connection in a transaction that is only for this record.
            arrived: the message.
            reason: why the message died, for operators.
            is_permanent: True if the message was refused; False if its attempts were used up, so that a later attempt
                may succeed.

        Returns:
            False if the message was handled meanwhile by another worker, or if the group was parked meanwhile and the
                message was set aside with it.
        """
        arrival, group_id = arrived.arrival, arrived.envelope.event.group
        position, now_us, _ = self._groups.lock(connection, group_id, arrival)
        known = self._number_record(connection, group_id, arrival)
        decision = decide(position, known, arrival, parks_gaps=self.policy.parks_gaps)
        gaps = self._groups.gaps
        match decision.action:
            case Action.PARK:
                self._park(connection, arrived, position, now_us)
            case Action.REJECT:
                gaps.write_dead(
                    connection, group_id, arrival, now_us, reason=reason, is_permanent=True, is_refused=True
                )
            case Action.HANDLE:
                gaps.write_dead(
                    connection, group_id, arrival, now_us, reason=reason, is_permanent=is_permanent, is_refused=False
                )
                self._go_on_without(connection, arrived.envelope, position, decision, now_us)
        return decision.action not in (Action.DROP, Action.PARK)

    def record_unreadable(self, connection: Connection, group_id: str) -> None:
        """Record that a message without a readable number is dead. If the consumer parks, its group waits."""
        if not self.policy.parks_poison:
            return
        now_us = self._groups.now_us(connection)
        row = connection.execute(self._groups.find(group_id).with_for_update()).one_or_none()
        position = None if row is None else position_of(row)
        if position is not None and not position.is_awaiting:
            self._groups.begin_parking(connection, group_id, position, now_us, is_dead=True)

    def counts(self, engine: Engine) -> dict[str, int]:
        """Return how many groups are parked, messages set aside, messages held, and exceptions open."""
        return maintenance.counts(engine, self.policy.consumer)

    def forget(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand groups without messages for `keep_seconds`, and as many closed exceptions."""
        before_us = self._groups.now_us(connection) - round(keep_seconds * 1_000_000)
        return maintenance.forget(connection, self.policy.consumer, before_us=before_us)

    def _number_record(self, connection: Connection, group_id: str, arrival: Arrival) -> NumberRecord | None:
        return self._groups.gaps.record_of(connection, group_id, arrival.epoch, arrival.seq)

    def _go_on_without(
        self, connection: Connection, envelope: Envelope, position: Position, decision: Decision, now_us: int
    ) -> None:
        """Count the number of a dead message, or park its group until the message is back."""
        if (envelope.epoch, envelope.seq) <= (position.epoch, position.last_seq):
            return
        if self.policy.parks_poison:
            self._groups.begin_parking(connection, envelope.event.group, position, now_us, is_dead=True)
        else:
            self._groups.advance(connection, envelope, position, decision, now_us, attempt=None)
