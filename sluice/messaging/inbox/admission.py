"""The inbox: what a consumer has handled, stored in its own database in the transaction of the effect.

A transaction begins by locking the row of the message's group; two workers that hold copies of one message go one after
the other, and the second sees what the first did. Which number comes next is decided by `sequence`.
"""

import uuid
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, insert

from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope
from sluice.messaging.inbox import maintenance
from sluice.messaging.inbox.groups import DecodedMessage, RowLock, columns_of, position_of
from sluice.messaging.inbox.parking import Parking
from sluice.messaging.inbox.sequence import Action, Arrival, Decision, NumberRecord, Position, decide, needs_known
from sluice.messaging.inbox.tables import groups

_PROBE_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A decision about a message, and where its group was then: it is marked once its handler has returned.

    Args:
        position: where its group is before it.
        decided_at_us: when that was.
        lock: of its group's row; None on SQLite.
    """

    decision: Decision
    position: Position
    decided_at_us: int
    lock: RowLock | None


class Inbox(Parking):
    """One consumer's inbox: admits what the queue brings, takes up what was set aside (`Parking`), and forgets.

    Args:
        clock: for tests; None means the database's own.
    """

    def admit(self, connection: Connection, arrived: DecodedMessage) -> Admission:
        """Decide what to do with a message, locking its group's row; the caller handles, marks, commits and deletes it.

        With `park` the message is in the database once the caller commits. With any other action nothing was written
        that has to be kept.

        Raises:
            OutboxError: the tables are missing.
        """
        arrival = arrived.arrival
        with engines.explaining_missing_tables():
            group_id = arrived.envelope.event.group
            position, now_us, lock = self._groups.lock(connection, group_id, arrival)
        known = self._number_record(connection, group_id, arrival) if needs_known(position, arrival) else None
        decision = decide(position, known, arrival, parks_gaps=self.policy.parks_gaps)
        if decision.action is Action.PARK:
            self._park(connection, arrived, position, now_us)
        return Admission(decision=decision, position=position, decided_at_us=now_us, lock=lock)

    def mark(self, connection: Connection, envelope: Envelope, admission: Admission) -> bool | None:
        """Count a message as handled, in the transaction of its effect, after its handler: the caller commits.

        Not before: a handler that commits by itself would have the message count, whatever becomes of its effect.

        Returns:
            Whether this transaction has locked the group, and it counts in the inbox's own tables: otherwise nothing
            counts. None where it is not known.
        """
        return self._groups.advance(
            connection,
            envelope,
            admission.position,
            admission.decision,
            admission.decided_at_us,
            lock=admission.lock,
        )

    def begin_group(self, connection: Connection, arrived: DecodedMessage) -> None:
        """Let a group, or an epoch of it, begin in front of a message, unless it has begun. The caller commits.

        Done before a second attempt: where a group begins with whatever comes first, a first message that dies with its
        worker every time would leave nothing behind, and the one behind it would begin the group.
        """
        group_id = arrived.envelope.event.group
        position, *_ = self._groups.lock(connection, group_id, arrived.arrival)
        self._groups.write(connection, group_id, columns_of(position))

    def require_writable(self, connection: Connection) -> None:
        """Write a group that is none and delete it again: nothing is left, and where there is no room it fails.

        The caller commits: SQLite writes only then. What is written is as large as an event, because a page that is not
        full yet would have room for less.
        """
        probe = {"consumer": self.policy.consumer, "group_id": uuid.uuid4().hex}
        row = {"epoch": 0, "first_seq": 0, "last_seq": 0, "last_event_id": "-" * _PROBE_CHARACTERS, "updated_at_us": 0}
        connection.execute(insert(groups).values(probe | row))
        is_probe = [groups.c[name] == value for name, value in probe.items()]
        connection.execute(delete(groups).where(*is_probe))

    def record_dead(self, connection: Connection, arrived: DecodedMessage, reason: str, *, is_permanent: bool) -> bool:
        """Record that a message is dead: SQS will move it to the DLQ. The caller commits.

        Its group goes on without it, or is parked until it is back; neither, where its number was refused. False when
        it is done with: somebody else has handled it meanwhile, or has parked the group, and then it is set aside too.

        Args:
            connection: in a transaction of its own.
            arrived: the message.
            reason: why it died, for operators.
            is_permanent: whether it was refused; False where its attempts were used up, and may succeed another time.
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
        """Record that a message without readable number is dead: with parking its group waits."""
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
        """Delete up to a thousand groups for which nothing came for so long, and as many exceptions."""
        before_us = self._groups.now_us(connection) - round(keep_seconds * 1_000_000)
        return maintenance.forget(connection, self.policy.consumer, before_us=before_us)

    def _number_record(self, connection: Connection, group_id: str, arrival: Arrival) -> NumberRecord | None:
        return self._groups.gaps.record_of(connection, group_id, arrival.epoch, arrival.seq)

    def _go_on_without(
        self, connection: Connection, envelope: Envelope, position: Position, decision: Decision, now_us: int
    ) -> None:
        """Let a group go on without a message that dies, or wait until it is back."""
        if (envelope.epoch, envelope.seq) <= (position.epoch, position.last_seq):
            return
        if self.policy.parks_poison:
            self._groups.begin_parking(connection, envelope.event.group, position, now_us, is_dead=True)
        else:
            self._groups.advance(connection, envelope, position, decision, now_us, is_handled=False)
