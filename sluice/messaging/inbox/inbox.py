"""The inbox: what a consumer has handled, in its own database, written in the transaction of the effect itself.

A transaction begins by locking the row of the message's group; two workers that hold copies of one message go one after
the other, and the second sees what the first did. Which number comes next is decided by `sequence`; what is set aside
meanwhile is taken up again here, by `next_parked`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    not_,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from sluice.clock import Clock
from sluice.declaration import Consumer, Gaps, Poison
from sluice.messaging.database import engines
from sluice.messaging.envelope import TOMBSTONE, Envelope, decode
from sluice.messaging.inbox.gaps import Exceptions
from sluice.messaging.inbox.sequence import (
    Action,
    Arrival,
    Decision,
    Known,
    Position,
    State,
    baseline,
    decide,
    needs_known,
)
from sluice.messaging.inbox.tables import DEAD, consumers, exceptions, groups, parked

_INSERTS: dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
NEVER_US = (1 << 63) - 1
"""Until when a dead message is waited for, whatever is declared about missing ones."""
FORGOTTEN_MAX = 1_000
"""Groups, and closed exceptions, forgotten in one transaction."""
_DUE_MAX = 100
_CLAIM_US = 2_000_000
"""How long nobody else begins an attempt at a parked message: its handler is called at once, with the row locked."""
_DIED = "whoever tried it came to no end; see the workers' logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a consumer's inbox does about missing numbers.

    Args:
        consumer: name of the consumer: whose inbox it is, where several share a database.
        parks_poison: set aside what comes behind a dead message.
        parks_gaps: set aside what comes behind a missing number.
        gap_wait_us: how long it may be missing, microseconds; None is until somebody acts.
        records_gaps: whether a missing number means something: not where a filter policy leaves some out.
        joined_at_us: when the consumer joined a topic that was in use, microseconds UTC: groups that are older begin
            with whatever comes of them first. None is from the beginning: every group begins with its first number.
    """

    consumer: str
    parks_poison: bool = False
    parks_gaps: bool = False
    gap_wait_us: int | None = None
    records_gaps: bool = True
    joined_at_us: int | None = None

    @classmethod
    def declared(cls, consumer: Consumer) -> "Policy":
        """Return what a consumer declares."""
        return cls(
            consumer=consumer.name,
            parks_poison=consumer.poison is Poison.PARK,
            parks_gaps=consumer.gaps is not Gaps.RECORD,
            gap_wait_us=consumer.gap_wait_seconds * 1_000_000 if consumer.gaps is Gaps.WAIT else None,
            records_gaps=consumer.filter_policy is None,
            joined_at_us=None if consumer.joined_at is None else round(consumer.joined_at.timestamp() * 1_000_000),
        )

    @property
    def parks(self) -> bool:
        """Return whether anything is ever set aside."""
        return self.parks_poison or self.parks_gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A decoded message, as it was received."""

    envelope: Envelope
    body: str
    attributes: Mapping[str, str]
    sqs_message_id: str
    receive_count: int

    @property
    def arrival(self) -> Arrival:
        """Return it as the sequence sees it."""
        return Arrival(
            epoch=self.envelope.epoch,
            seq=self.envelope.seq,
            event_id=self.envelope.event.id,
            sqs_message_id=self.sqs_message_id,
            receive_count=self.receive_count,
            first=self.envelope.first,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedMessage:
    """A message taken up again after it was set aside.

    Args:
        attempts: how often it was tried since, this time counted.
        at: where its group is before it.
        taken_at_us: when it was taken up.
    """

    envelope: Envelope
    attributes: Mapping[str, str]
    attempts: int
    at: Position
    taken_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What was decided about a message, and where its group was then: it is marked once its handler has returned.

    Args:
        decision: what the message is, and what is to be done with it.
        at: where its group is before it.
        decided_at_us: when that was.
    """

    decision: Decision
    at: Position
    decided_at_us: int


class Inbox:
    """One consumer's inbox.

    Args:
        policy: what it does about missing numbers.
        clock: for tests; None means the database's own.
    """

    def __init__(self, policy: Policy, *, clock: Clock | None = None) -> None:
        self.policy, self._clock = policy, clock
        self._exceptions = Exceptions(policy.consumer, records_gaps=policy.records_gaps)

    def admit(self, connection: Connection, arrived: Arrived) -> Admission:
        """Decide about a message, with its group's row locked; the caller handles it, marks it, commits, deletes it.

        With `park` the message is in the database once the caller commits. With any other action nothing was written
        that has to be kept.

        Raises:
            OutboxError: the tables are missing.
        """
        arrival = arrived.arrival
        with engines.explaining_missing_tables():
            group_id = arrived.envelope.event.group
            at, now_us = self._lock(connection, group_id, arrival)
        known = self._known(connection, group_id, arrival) if needs_known(at, arrival) else None
        decision = decide(at, known, arrival, parks_gaps=self.policy.parks_gaps)
        if decision.action is Action.PARK:
            self._park(connection, arrived, at, now_us)
        return Admission(decision=decision, at=at, decided_at_us=now_us)

    def mark(self, connection: Connection, envelope: Envelope, admission: Admission) -> None:
        """Count a message as handled, in the transaction of its effect, after its handler: the caller commits.

        Not before: a handler that commits by itself would have the message count, whatever becomes of its effect.
        """
        self._advance(connection, envelope, admission.at, admission.decision, admission.decided_at_us)

    def begin_group(self, connection: Connection, arrived: Arrived) -> None:
        """Let a group, or an epoch of it, begin in front of a message, unless it has begun. The caller commits.

        Done before a second attempt: where a group begins with whatever comes first, a first message that dies with its
        worker every time would leave nothing behind, and the one behind it would begin the group.
        """
        group_id = arrived.envelope.event.group
        at, _ = self._lock(connection, group_id, arrived.arrival)
        begun = {"epoch": at.epoch, "first_seq": at.first_seq, "last_seq": at.last_seq}
        self._write(connection, group_id, {**begun, "last_event_id": at.last_event_id})

    def require_writable(self, connection: Connection) -> None:
        """Change nothing, in a way that fails where the inbox cannot be written."""
        unchanged = update(groups).where(groups.c.consumer == self.policy.consumer, groups.c.group_id == "", false())
        connection.execute(unchanged.values(updated_at_us=groups.c.updated_at_us))

    def bury(self, connection: Connection, arrived: Arrived, reason: str) -> bool:
        """Write down that a message dies: the queue is going to move it to the DLQ. The caller commits.

        Its group goes on without it, or is parked until it is back; neither, where its number was refused. False when
        it is done with: somebody else has handled it meanwhile, or has parked the group, and then it is set aside too.
        """
        arrival, group_id = arrived.arrival, arrived.envelope.event.group
        at, now_us = self._lock(connection, group_id, arrival)
        known = self._known(connection, group_id, arrival)
        decision = decide(at, known, arrival, parks_gaps=self.policy.parks_gaps)
        match decision.action:
            case Action.PARK:
                self._park(connection, arrived, at, now_us)
            case Action.REJECT:
                self._exceptions.write_dead(connection, group_id, arrival, now_us, reason=reason, is_refused=True)
            case Action.HANDLE:
                self._exceptions.write_dead(connection, group_id, arrival, now_us, reason=reason, is_refused=False)
                self._go_on_without(connection, arrived, at, decision, now_us)
        return decision.action not in (Action.DROP, Action.PARK)

    def bury_unreadable(self, connection: Connection, group_id: str) -> None:
        """Write down that a message without a readable number dies: with parking its group waits."""
        if not self.policy.parks_poison:
            return
        now_us = engines.now_us(connection, self._clock)
        row = connection.execute(self._of(group_id).with_for_update()).one_or_none()
        at = None if row is None else _position(row)
        if at is not None and not at.is_awaiting:
            self._begin_parking(connection, group_id, at, now_us, until_us=NEVER_US)

    # --- what was set aside -------------------------------------------------------------------------------------------

    def due(self, engine: Engine) -> list[str]:
        """Return up to a hundred parked groups in which something can be done now, those with fewest attempts first.

        Must match what `next_parked` changes exactly, or groups spin or stall.
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
            head.c.seq == groups.c.last_seq + 1, and_(_IS_THERE, true() if not self.policy.parks_gaps else false())
        )
        with engines.reading(engine) as connection, engines.explaining_missing_tables():
            now_us = engines.now_us(connection, self._clock)
            is_ready = and_(head.c.held_at_us.is_(None), head.c.not_before_us <= now_us)
            is_over = self._is_over(now_us)
            can_do = or_(
                is_passed,
                and_(is_current, is_next, is_ready),
                and_(_IS_THERE, or_(head.c.seq.is_(None), head.c.epoch > groups.c.epoch)),
                and_(_IS_THERE, is_current, not_(is_next)),
                and_(not_(_IS_THERE), is_over),
            )
            found = select(groups.c.group_id).select_from(groups.outerjoin(head, is_head))
            mine = (groups.c.consumer == self.policy.consumer, groups.c.parked_at_us.is_not(None))
            due = found.where(*mine, can_do).order_by(func.coalesce(head.c.attempts, 0), groups.c.group_id)
            return list(connection.execute(due.limit(_DUE_MAX)).scalars())

    def _is_over(self, now_us: int) -> ColumnElement[bool]:
        """Return whether a number that is awaited is given up, or how long it is waited for is to be settled first."""
        if not self.policy.parks:
            return true()
        is_unexpected: ColumnElement[bool] = false()
        if self.policy.joined_at_us is not None:
            began_before = groups.c.epoch < -(-self.policy.joined_at_us // 1_000_000)
            is_missing = or_(groups.c.awaits_until_us.is_(None), groups.c.awaits_until_us < NEVER_US)
            is_unexpected = and_(groups.c.first_seq == 1, groups.c.last_seq == 0, began_before, is_missing)
        if self.policy.gap_wait_us is None:
            return is_unexpected
        return or_(is_unexpected, groups.c.awaits_until_us.is_(None), groups.c.awaits_until_us <= now_us)

    def begin_attempt(self, connection: Connection, group_id: str, *, attempts_max: int) -> ParkedMessage | None:
        """Count an attempt at the next message of a parked group, and return it where one is made; the caller commits.

        It is counted before it is made: a message that kills its worker every time is held in the end, as one in the
        queue would be dead-lettered. For a moment it is not ready for anybody else, who would count another attempt.
        None when it is nobody's turn: what else there is to do for the group is done.
        """
        turn = self._turn(connection, group_id)
        if turn is None:
            return None
        message = _taken_up(*turn)
        is_used_up = message.attempts >= attempts_max
        used_up = {"held_at_us": message.taken_at_us, "last_error": _DIED}
        claimed = {"attempts": message.attempts + 1, "not_before_us": message.taken_at_us + _CLAIM_US}
        values = used_up if is_used_up else claimed
        connection.execute(update(parked).where(*self._place(message.envelope)).values(values))
        return None if is_used_up else replace(message, attempts=message.attempts + 1)

    def next_parked(self, connection: Connection, group_id: str) -> ParkedMessage | None:
        """Take up the message an attempt was begun at; the caller handles it, marks it and commits.

        None when it is not there to be handled any more: commit then as well.
        """
        turn = self._turn(connection, group_id, is_begun=True)
        return None if turn is None else _taken_up(*turn)

    def mark_parked(self, connection: Connection, message: ParkedMessage) -> None:
        """Count a parked message as handled, after its handler: its row is gone once the caller commits."""
        envelope, decision = message.envelope, Decision(State.CONTIGUOUS, Action.HANDLE)
        self._advance(connection, envelope, message.at, decision, message.taken_at_us)
        connection.execute(delete(parked).where(*self._place(envelope)))

    def _turn(
        self, connection: Connection, group_id: str, *, is_begun: bool = False
    ) -> tuple[Position, Row[Any], int] | None:
        """Return where a parked group is, the message whose turn it is, and the instant; None when it is nobody's.

        A group that is locked is somebody else's. One that is empty is unparked, one with a hole begins to wait.
        """
        now_us = engines.now_us(connection, self._clock)
        row = connection.execute(self._of(group_id).with_for_update(skip_locked=True)).one_or_none()
        if row is None or row.parked_at_us is None:
            return None
        at = self._waited(connection, group_id, row, now_us)
        self._drop_passed(connection, group_id, at)
        head = connection.execute(self._parked(group_id).limit(1)).one_or_none()
        if head is None:
            if not at.is_awaiting:
                self._end_parking(connection, group_id, at, now_us)
            return None
        if head.epoch > at.epoch and not at.is_awaiting:
            at = self._begin_epoch(connection, group_id, at, head, now_us)
        if not self._is_next(at, head):
            self._await_next(connection, group_id, at, now_us)
            return None
        is_ready = is_begun or head.not_before_us <= now_us
        return (at, head, now_us) if is_ready and head.held_at_us is None else None

    def _is_next(self, at: Position, head: Row[Any]) -> bool:
        """Return whether it is the turn of the first message that is set aside."""
        if head.epoch != at.epoch:
            return False
        return bool(head.seq == at.last_seq + 1) or not (at.is_awaiting or self.policy.parks_gaps)

    def _begin_epoch(
        self, connection: Connection, group_id: str, before: Position, head: Row[Any], now_us: int
    ) -> Position:
        """Go on to the next epoch of a parked group, which waits for nothing of the one before; return where it is."""
        at = self._entered(connection, group_id, before, _arrival_of(head), now_us)
        begun = {"epoch": at.epoch, "first_seq": at.first_seq, "last_seq": at.last_seq, "last_event_id": None}
        self._write(connection, group_id, {**begun, "awaits_seq": None, "awaits_until_us": None})
        return at

    def retry_parked(
        self, connection: Connection, message: ParkedMessage, *, reason: str, delay_us: int, is_held: bool
    ) -> None:
        """Write down that an attempt at a parked message was in vain: there is another one, or it is held.

        Where another worker has held it meanwhile, it stays so.
        """
        now_us = engines.now_us(connection, self._clock)
        said = {"last_error": reason, "not_before_us": now_us + delay_us, "held_at_us": now_us if is_held else None}
        is_free = parked.c.held_at_us.is_(None)
        connection.execute(update(parked).where(*self._place(message.envelope), is_free).values(said))

    def end_attempt(self, connection: Connection, message: ParkedMessage) -> None:
        """Take back an attempt that was not the message's: its worker had to end, or the database went away."""
        is_last = parked.c.attempts == message.attempts
        fewer = {"attempts": message.attempts - 1, "not_before_us": 0}
        connection.execute(update(parked).where(*self._place(message.envelope), is_last).values(fewer))

    # --- looking after it ---------------------------------------------------------------------------------------------

    def counts(self, engine: Engine) -> dict[str, int]:
        """Return how many groups are parked, messages set aside, messages held, and exceptions open."""
        whose = self.policy.consumer
        counted = {
            "parked_groups": (groups, groups.c.parked_at_us.is_not(None)),
            "parked_messages": (parked, parked.c.consumer == whose),
            "held_messages": (parked, parked.c.held_at_us.is_not(None)),
            "open_exceptions": (exceptions, exceptions.c.closed_at_us.is_(None)),
        }
        with engines.reading(engine) as connection, engines.explaining_missing_tables():
            return {
                name: connection.execute(
                    select(func.count()).select_from(table).where(table.c.consumer == whose, condition)
                ).scalar_one()
                for name, (table, condition) in counted.items()
            }

    def forget(self, connection: Connection, keep_seconds: float) -> int:
        """Delete up to a thousand groups nothing came for since, and as many exceptions closed before.

        Parked groups stay, and with them all that is known of them. Exceptions that stay keep their group, and a group
        that is in use keeps what came from before its baseline: or that would be handled again.

        Returns:
            How many of that of which there were more; under FORGOTTEN_MAX, nothing is left to forget.
        """
        before_us = engines.now_us(connection, self._clock) - round(keep_seconds * 1_000_000)
        # Whoever works on a group has its row locked: what is only looked up here, and not where it is deleted, may
        # have changed by then.
        is_old = and_(
            groups.c.consumer == self.policy.consumer,
            groups.c.updated_at_us < before_us,
            groups.c.parked_at_us.is_(None),
        )
        closed_count = self._forget_closed(connection, before_us)
        has_exceptions = exists().where(
            exceptions.c.consumer == groups.c.consumer, exceptions.c.group_id == groups.c.group_id
        )
        old = select(groups.c.group_id).where(is_old, ~has_exceptions).order_by(groups.c.updated_at_us)
        group_count = connection.execute(
            delete(groups).where(is_old, groups.c.group_id.in_(old.limit(FORGOTTEN_MAX)))
        ).rowcount
        if group_count:
            self._remember_forgetting(connection, before_us)
        return max(closed_count, group_count)

    def _forget_closed(self, connection: Connection, before_us: int) -> int:
        is_of_group = and_(
            groups.c.consumer == exceptions.c.consumer,
            groups.c.group_id == exceptions.c.group_id,
        )
        is_before_baseline = and_(groups.c.epoch == exceptions.c.epoch, exceptions.c.seq < groups.c.first_seq)
        is_kept = exists().where(
            is_of_group,
            or_(groups.c.parked_at_us.is_not(None), and_(groups.c.updated_at_us >= before_us, is_before_baseline)),
        )
        mine = (exceptions.c.consumer == self.policy.consumer, exceptions.c.closed_at_us < before_us)
        closed = select(exceptions.c.id).where(*mine, ~is_kept).order_by(exceptions.c.closed_at_us)
        found = exceptions.c.id.in_(closed.limit(FORGOTTEN_MAX))
        return connection.execute(delete(exceptions).where(found)).rowcount

    def _remember_forgetting(self, connection: Connection, before_us: int) -> None:
        made = _INSERTS[connection.dialect.name](consumers).values(
            consumer=self.policy.consumer, forgotten_before_us=before_us
        )
        latest = {"forgotten_before_us": made.excluded.forgotten_before_us}
        is_later = made.excluded.forgotten_before_us > consumers.c.forgotten_before_us
        connection.execute(made.on_conflict_do_update(index_elements=["consumer"], set_=latest, where=is_later))

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _lock(self, connection: Connection, group_id: str, arrival: Arrival) -> tuple[Position, int]:
        """Return where the consumer is in the group, its row locked and made where missing, and the instant.

        Where the message begins an epoch, it is in front of the epoch's baseline; nothing says so in the row yet.
        """
        values = {"consumer": self.policy.consumer, "group_id": group_id, "epoch": 0, "first_seq": 0, "last_seq": 0}
        if self._clock is not None:
            values["updated_at_us"] = self._clock.now_us()
        row = connection.execute(_locking(connection.dialect.name, is_timed=self._clock is None), values).one()
        at = _position(row)
        if arrival.epoch > at.epoch and not at.is_parked:
            at = self._entered(connection, group_id, at, arrival, row.updated_at_us)
        return at, row.updated_at_us

    def _entered(
        self, connection: Connection, group_id: str, before: Position, arrival: Arrival, now_us: int
    ) -> Position:
        """Return where a group is that enters an epoch, and write down what is missing at the end of the one before."""
        is_known = before.epoch > 0
        if is_known:  # after a restore the producer goes on from the last number it remembers
            missing = (before.last_seq + 1, arrival.first - 1)
            self._exceptions.write_missing(connection, group_id, before.epoch, missing, now_us)
        is_first = is_known or arrival.seq == arrival.first
        first_seq = baseline(
            arrival,
            joined_at_us=self.policy.joined_at_us,
            forgotten_before_us=None if is_first else self._forgotten_before_us(connection),
        )
        return Position(epoch=arrival.epoch, first_seq=first_seq, last_seq=first_seq - 1, is_parked=before.is_parked)

    def _forgotten_before_us(self, connection: Connection) -> int | None:
        mine = consumers.c.consumer == self.policy.consumer
        return connection.execute(select(consumers.c.forgotten_before_us).where(mine)).scalar()

    def _known(self, connection: Connection, group_id: str, arrival: Arrival) -> Known | None:
        return self._exceptions.known(connection, group_id, arrival.epoch, arrival.seq)

    def _advance(
        self,
        connection: Connection,
        envelope: Envelope,
        at: Position,
        decision: Decision,
        now_us: int,
        *,
        is_handled: bool = True,
    ) -> None:
        """Count the number of a message, and write down what is missing before it, or that it was missing."""
        group_id, epoch, seq = envelope.event.group, envelope.epoch, envelope.seq
        may_close = is_handled and (decision.state in (State.LATE, State.FILLED) or at.is_parked)
        is_closed = may_close and self._exceptions.close(connection, envelope, now_us)
        if envelope.event.type == TOMBSTONE and not is_closed:
            self._exceptions.write_skipped(connection, group_id, epoch, seq, now_us, reason="tombstone")
            is_closed = True
        if (epoch, seq) <= (at.epoch, at.last_seq):
            if decision.state is State.FILLED and not is_closed:
                self._exceptions.write_filled(connection, envelope, now_us)
            return
        self._exceptions.write_missing(connection, group_id, epoch, (at.last_seq + 1, seq - 1), now_us)
        last_seq = self._exceptions.over_skipped(connection, group_id, epoch, seq) if at.is_parked else seq
        advanced = {
            "epoch": epoch,
            "first_seq": at.first_seq,
            "last_seq": last_seq,
            "last_event_id": envelope.event.id if is_handled and last_seq == seq else None,
        }
        self._write(connection, group_id, advanced)

    def _go_on_without(
        self, connection: Connection, arrived: Arrived, at: Position, decision: Decision, now_us: int
    ) -> None:
        """Let a group go on without a message that dies, or wait until it is back."""
        arrival = arrived.arrival
        if (arrival.epoch, arrival.seq) <= (at.epoch, at.last_seq):
            return
        if self.policy.parks_poison:
            self._begin_parking(connection, arrived.envelope.event.group, at, now_us, until_us=NEVER_US)
        else:
            self._advance(connection, arrived.envelope, at, decision, now_us, is_handled=False)

    def _park(self, connection: Connection, arrived: Arrived, at: Position, now_us: int) -> None:
        """Set a message aside; once, however often it comes."""
        envelope = arrived.envelope
        group_id = envelope.event.group
        if not at.is_parked:
            until_us = self._gives_up_at_us(now_us)
            self._begin_parking(connection, group_id, at, now_us, until_us=until_us)
        row = _INSERTS[connection.dialect.name](parked).values(
            consumer=self.policy.consumer,
            group_id=group_id,
            epoch=envelope.epoch,
            seq=envelope.seq,
            event_id=envelope.event.id,
            body=arrived.body,
            attributes=json.dumps(dict(arrived.attributes), ensure_ascii=False),
            sqs_message_id=arrived.sqs_message_id,
            parked_at_us=now_us,
        )
        connection.execute(row.on_conflict_do_nothing())

    def _begin_parking(
        self, connection: Connection, group_id: str, at: Position, now_us: int, *, until_us: int | None
    ) -> None:
        """Let a group wait for the number after its last."""
        last_seq = self._exceptions.over_skipped(connection, group_id, at.epoch, at.last_seq)
        begun = {"epoch": at.epoch, "first_seq": at.first_seq, "last_seq": last_seq, "last_event_id": at.last_event_id}
        awaits = {"awaits_seq": last_seq + 1, "awaits_until_us": until_us}
        since = {} if at.is_parked else {"parked_at_us": now_us}
        self._write(connection, group_id, {**begun, **awaits, **since})

    def _waited(self, connection: Connection, group_id: str, row: Row[Any], now_us: int) -> Position:
        """Return where a parked group is, after giving up a number that was waited for long enough.

        What began to be missing while another policy was declared is waited for from now on.
        """
        at, until_us = _position(row), row.awaits_until_us
        if not at.is_awaiting:
            return at
        if until_us != NEVER_US and self._is_unexpected(at):
            return self._begin_later(connection, group_id, at)
        if not self.policy.parks or (
            self.policy.gap_wait_us is not None and until_us is not None and until_us <= now_us
        ):
            return self._give_up(connection, group_id, at, now_us)
        if self.policy.gap_wait_us is not None and until_us is None:
            awaited = self._exceptions.find(connection, group_id, at.epoch, row.awaits_seq)
            is_dead = awaited is not None and awaited.state == DEAD
            self._write(
                connection, group_id, {"awaits_until_us": NEVER_US if is_dead else self._gives_up_at_us(now_us)}
            )
        return at

    def _is_unexpected(self, at: Position) -> bool:
        """Return whether a group waits for its number 1, and the consumer joined after it began.

        That was declared since: else the group would have begun with the message that came first.
        """
        joined_at_us = self.policy.joined_at_us
        is_at_1 = (at.first_seq, at.last_seq) == (1, 0)
        return is_at_1 and joined_at_us is not None and at.epoch * 1_000_000 < joined_at_us

    def _begin_later(self, connection: Connection, group_id: str, at: Position) -> Position:
        """Raise a group's baseline to what is set aside: that the consumer joined later was declared meanwhile."""
        last_seq = self._last_given_up(connection, group_id, at)
        begun = {"first_seq": last_seq + 1, "last_seq": last_seq}
        self._write(connection, group_id, {**begun, "awaits_seq": None, "awaits_until_us": None})
        return Position(epoch=at.epoch, first_seq=last_seq + 1, last_seq=last_seq, is_parked=True)

    def _give_up(self, connection: Connection, group_id: str, at: Position, now_us: int) -> Position:
        """Go on to what is set aside, or to the last that anything is known about; what is between is missing."""
        last_seq = self._last_given_up(connection, group_id, at)
        self._exceptions.write_missing(connection, group_id, at.epoch, (at.last_seq + 1, last_seq), now_us)
        given_up = {"last_seq": last_seq, "last_event_id": None, "awaits_seq": None, "awaits_until_us": None}
        self._write(connection, group_id, given_up)
        return Position(epoch=at.epoch, first_seq=at.first_seq, last_seq=last_seq, is_parked=True)

    def _end_parking(self, connection: Connection, group_id: str, at: Position, now_us: int) -> None:
        """Unpark a group in which nothing is set aside, when nothing is known of a number that is still to come.

        A number an operator gave up is looked up in a parked group only: in another it would be handled.
        """
        if at.last_seq < self._exceptions.last(connection, group_id, at.epoch):
            if self.policy.parks_gaps:
                self._await_next(connection, group_id, at, now_us)
                return
            self._give_up(connection, group_id, at, now_us)
        self._unpark(connection, group_id, now_us)

    def _last_given_up(self, connection: Connection, group_id: str, at: Position) -> int:
        """Return the number before the first that is set aside; with none, the last that anything is known about."""
        here = (parked.c.consumer == self.policy.consumer, parked.c.group_id == group_id)
        ahead = (parked.c.epoch == at.epoch, parked.c.seq > at.last_seq)
        first = connection.execute(select(func.min(parked.c.seq)).where(*here, *ahead)).scalar_one()
        if first is not None:
            return int(first) - 1
        return max(at.last_seq, self._exceptions.last(connection, group_id, at.epoch))

    def _drop_passed(self, connection: Connection, group_id: str, at: Position) -> None:
        """Forget parked copies of what was handled."""
        passed = or_(parked.c.epoch < at.epoch, and_(parked.c.epoch == at.epoch, parked.c.seq <= at.last_seq))
        connection.execute(
            delete(parked).where(parked.c.consumer == self.policy.consumer, parked.c.group_id == group_id, passed)
        )

    def _await_next(self, connection: Connection, group_id: str, at: Position, now_us: int) -> None:
        """Wait for another number, when the one that was waited for has come and the next is missing too."""
        if at.is_awaiting:
            return
        awaits = {"awaits_seq": at.last_seq + 1, "awaits_until_us": self._gives_up_at_us(now_us)}
        self._write(connection, group_id, awaits)

    def _unpark(self, connection: Connection, group_id: str, now_us: int) -> None:
        ended = {"parked_at_us": None, "awaits_seq": None, "awaits_until_us": None, "updated_at_us": now_us}
        self._write(connection, group_id, ended)

    def _gives_up_at_us(self, now_us: int) -> int | None:
        """Return when a number that begins to be missing now is given up; None is never."""
        wait_us = self.policy.gap_wait_us
        return None if wait_us is None else now_us + wait_us

    def _write(self, connection: Connection, group_id: str, values: Mapping[str, Any]) -> None:
        """Change the row of a group."""
        connection.execute(_CHANGE, {"of_consumer": self.policy.consumer, "of_group": group_id, **values})

    def _of(self, group_id: str) -> Any:
        return select(groups).where(groups.c.consumer == self.policy.consumer, groups.c.group_id == group_id)

    def _parked(self, group_id: str) -> Any:
        mine = (parked.c.consumer == self.policy.consumer, parked.c.group_id == group_id)
        return select(parked).where(*mine).order_by(parked.c.epoch, parked.c.seq)

    def _place(self, envelope: Envelope) -> tuple[Any, ...]:
        return (
            parked.c.consumer == self.policy.consumer,
            parked.c.group_id == envelope.event.group,
            parked.c.epoch == envelope.epoch,
            parked.c.seq == envelope.seq,
        )


_CHANGE = update(groups).where(
    groups.c.consumer == bindparam("of_consumer"), groups.c.group_id == bindparam("of_group")
)


def _taken_up(at: Position, head: Row[Any], now_us: int) -> ParkedMessage:
    return ParkedMessage(
        envelope=decode(head.body),
        attributes=json.loads(head.attributes),
        attempts=head.attempts,
        at=at,
        taken_at_us=now_us,
    )


def _arrival_of(head: Row[Any]) -> Arrival:
    """Return a message that is set aside as the sequence sees it."""
    envelope = decode(head.body)
    return Arrival(
        epoch=head.epoch,
        seq=head.seq,
        event_id=head.event_id,
        sqs_message_id=head.sqs_message_id,
        receive_count=0,
        first=envelope.first,
    )


@cache
def _locking(dialect: str, *, is_timed: bool) -> Any:
    """Return the statement that makes a group's row, or finds it, and locks it; with the database's instant if timed.

    Like `_CHANGE` it is put together once: that takes longer than to execute it.
    """
    made = _INSERTS[dialect](groups)
    if is_timed:
        made = made.values(updated_at_us=engines.now_us_sql(dialect))
    set_ = {"updated_at_us": made.excluded.updated_at_us}
    return made.on_conflict_do_update(index_elements=["consumer", "group_id"], set_=set_).returning(groups)


_IS_THERE = or_(groups.c.awaits_seq.is_(None), groups.c.last_seq >= groups.c.awaits_seq)


def _position(row: Row[Any]) -> Position:
    return Position(
        epoch=row.epoch,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        last_event_id=row.last_event_id,
        awaits_seq=row.awaits_seq,
        is_parked=row.parked_at_us is not None,
    )
