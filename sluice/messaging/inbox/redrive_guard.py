"""What automatic redrive may bring back: the guard, in the inbox's database.

A message comes back without an operator only if its worker recorded that its attempts were used up. What a handler or
the inbox refused, what cannot be read, and what died without a record (it may kill its worker) is poison, and stays. So
does what is behind it in its group.

Each act is a row of the audit. The rows are also the memory: a message is known by group, epoch, number and event id,
which a redriven copy keeps; the copy's SQS message id is another. Under one SQS message id in the DLQ a message is
brought back once, however often a run that died is repeated.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update

from sluice.clock import Clock
from sluice.declaration import AutomaticRedrive
from sluice.messaging.database import engines
from sluice.messaging.database.audit import Operator
from sluice.messaging.errors import DeadLetterError, TransientError
from sluice.messaging.inbox.gaps import SequenceGaps
from sluice.messaging.inbox.tables import DEAD, REDRIVEN, audit, redrives
from sluice.messaging.sqs.dead_letter_queue import DeadLetter

LEASE_SECONDS = 300
"""How long a run that died keeps others away. A run that is slower sends nothing more once another has begun."""
ACTOR = "automatic redrive"
_BROUGHT_BACK, _OFF, _ON = "automatic-redrive", "automatic-off", "automatic-on"


class Verdict(StrEnum):
    """What automatic redrive does with a message, and why."""

    BRING_BACK = "its attempts were used up"
    POISON = "it was refused, cannot be read, or nobody recorded why it died"
    FAILED_AGAIN = "it was brought back by itself, and died again"
    USED_UP = "it was brought back by itself as often as is declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the audit has of one message.

    Args:
        begun: SQS message ids under which it was brought back by itself.
        noted: SQS message ids under which it has switched automatic redrive off.
    """

    begun: frozenset[str] = frozenset()
    noted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """What the inbox has recorded about a message's number.

    Args:
        state: dead or redriven; any other is a number that somebody has dealt with.
        is_final: whether it was refused, the number is no longer open, or what is recorded is the death of another
            copy.
    """

    state: str
    is_final: bool


def judge(sqs_message_id: str, death: Death | None, past: Past, *, attempts_max: int) -> Verdict:
    """Return what is done with a message that is in the DLQ under that SQS message id."""
    is_begun = sqs_message_id in past.begun  # its run died before the delete, or the delete failed
    if is_begun and death is not None and death.state == REDRIVEN:
        return Verdict.BRING_BACK  # its copy was handled; the second is dropped
    if past.begun and not is_begun and sqs_message_id not in past.noted:
        return Verdict.FAILED_AGAIN
    if death is None or death.state != DEAD or death.is_final:
        return Verdict.POISON
    return Verdict.BRING_BACK if is_begun or len(past.begun) < attempts_max else Verdict.USED_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOperator(Operator):
    """Who switches a consumer's automatic redrive, and why: an operator, or a run of it."""

    consumer: str

    def switch_on(self, connection: Connection) -> None:
        """Let runs begin again. How often each message was brought back still counts.

        Raises:
            DeadLetterError: it is not off.
        """
        row = locked(connection, self.consumer)
        if row.off_at_us is None and not is_abandoned(row, engines.now_us(connection, self.clock)):
            raise DeadLetterError(f"automatic redrive of {self.consumer} is on already, and no run has died")
        _change(connection, self.consumer, off_at_us=None, run=None, held_until_us=None)
        self._record(connection, audit, _ON, {"consumer": self.consumer}, {})

    def switch_off(self, connection: Connection) -> None:
        """Let no run begin, and a run that has begun send nothing more.

        Raises:
            DeadLetterError: it is off already.
        """
        row = locked(connection, self.consumer)
        if row.off_at_us is not None:
            raise DeadLetterError(f"automatic redrive of {self.consumer} is off already; see `dlq audit`")
        _change(connection, self.consumer, off_at_us=engines.now_us(connection, self.clock))
        self._record(connection, audit, _OFF, {"consumer": self.consumer}, {})

    def record_failure(self, connection: Connection, dead_letter: DeadLetter) -> None:
        """Switch it off, because a message that was brought back by itself failed again.

        Each such message is recorded, also where another has switched it off: switched on, it is off no second time for
        any of them.
        """
        if locked(connection, self.consumer).off_at_us is None:
            _change(connection, self.consumer, off_at_us=engines.now_us(connection, self.clock))
        place: dict[str, str | int | None] = {"consumer": self.consumer}
        self._record(connection, audit, _OFF, place | _place(dead_letter), _detail(dead_letter))

    def record_return(self, connection: Connection, dead_letter: DeadLetter, run: str) -> None:
        """Record that a message is brought back, before it is sent."""
        place: dict[str, str | int | None] = {"consumer": self.consumer}
        self._record(connection, audit, _BROUGHT_BACK, place | _place(dead_letter), _detail(dead_letter) | {"run": run})


class RedriveGuard:
    """One run of a consumer's automatic redrive, as its inbox's database allows it.

    Args:
        run: its id.
        clock: for tests; None means the database's own.
    """

    def __init__(
        self, engine: Engine, consumer: str, declared: AutomaticRedrive, *, run: str, clock: Clock | None = None
    ) -> None:
        self._engine, self._consumer, self._declared = engine, consumer, declared
        self._run, self._clock = run, clock
        reason = f"run {run}, at most {declared.messages_max} messages, each {declared.attempts_max} times"
        self._operator = RedriveOperator(consumer=consumer, actor=ACTOR, reason=reason, clock=clock)
        self.is_off = False

    def begin(self) -> None:
        """Take the consumer's lease.

        Raises:
            DeadLetterError: automatic redrive is off, or another run has the lease.
        """

        def take(connection: Connection) -> None:
            row = locked(connection, self._consumer)
            now_us = engines.now_us(connection, self._clock)
            if row.off_at_us is not None:
                raise DeadLetterError(
                    f"automatic redrive of {self._consumer} is off; see `dlq audit`, mend the cause, then `dlq"
                    " automatic-on`"
                )
            if row.held_until_us is not None and row.held_until_us > now_us:
                raise DeadLetterError(
                    f"run {row.run} of {self._consumer} works, or died less than {LEASE_SECONDS} s ago; wait for it"
                )
            _change(connection, self._consumer, run=self._run, held_until_us=now_us + LEASE_SECONDS * 1_000_000)

        self._in_transaction(take)

    def judge(self, dead_letter: DeadLetter) -> Verdict:
        """Return what is done with a message; one that failed again switches automatic redrive off."""
        with engines.reading(self._engine) as connection, engines.explaining_missing_tables():
            verdict = self._judged(connection, dead_letter)
        if verdict is Verdict.FAILED_AGAIN:
            self.is_off = True
            self._in_transaction(partial(self._operator.record_failure, dead_letter=dead_letter))
        return verdict

    def claim(self, dead_letter: DeadLetter) -> None:
        """Record that a message is brought back, right before it is sent; nothing new where that was begun before.

        Raises:
            TransientError: it may not be: another run has the lease, or automatic redrive was switched off meanwhile.
        """

        def record(connection: Connection) -> None:
            row = locked(connection, self._consumer)
            if row.run != self._run or row.off_at_us is not None:
                raise TransientError("another run has taken over, or automatic redrive was switched off")
            if self._judged(connection, dead_letter) is not Verdict.BRING_BACK:
                raise TransientError("what was recorded about the message has changed")
            until_us = engines.now_us(connection, self._clock) + LEASE_SECONDS * 1_000_000
            _change(connection, self._consumer, held_until_us=until_us)
            if dead_letter.sqs_message_id not in self._past(connection, dead_letter).begun:
                self._operator.record_return(connection, dead_letter, self._run)

        self._in_transaction(record)

    def end(self) -> None:
        """Give the lease back, if it is still this run's."""

        def release(connection: Connection) -> None:
            if locked(connection, self._consumer).run == self._run:
                _change(connection, self._consumer, run=None, held_until_us=None)

        self._in_transaction(release)

    def _in_transaction(self, act: Callable[[Connection], None]) -> None:
        with self._engine.begin() as connection, engines.explaining_missing_tables():
            act(connection)

    def _judged(self, connection: Connection, dead_letter: DeadLetter) -> Verdict:
        past, death = self._past(connection, dead_letter), self._death(connection, dead_letter)
        return judge(dead_letter.sqs_message_id, death, past, attempts_max=self._declared.attempts_max)

    def _death(self, connection: Connection, dead_letter: DeadLetter) -> Death | None:
        envelope = dead_letter.envelope
        if envelope is None:
            return None
        gaps = SequenceGaps(self._consumer)
        row = gaps.find(connection, dead_letter.message_group_id, envelope.epoch, envelope.seq)
        if row is None:
            return None
        is_used_up = row.is_permanent is False and row.closed_at_us is None
        is_of_this_death = row.sqs_message_id in dead_letter.first_ids  # a copy may have died since, unrecorded
        return Death(state=row.state, is_final=not (is_used_up and is_of_this_death))

    def _past(self, connection: Connection, dead_letter: DeadLetter) -> Past:
        if dead_letter.envelope is None:
            return Past()
        columns = {**_place(dead_letter), "consumer": self._consumer}
        here = [audit.c[name] == value for name, value in columns.items()]
        acts = select(audit.c.action, audit.c.detail).where(*here, audit.c.action.in_((_BROUGHT_BACK, _OFF)))
        ids: dict[str, set[str]] = {_BROUGHT_BACK: set(), _OFF: set()}
        identity = _identity(dead_letter)
        for action, detail in connection.execute(acts):
            kept = json.loads(detail)
            if identity.items() <= kept.items():
                ids[action].add(kept["sqs_message_id"])
        return Past(begun=frozenset(ids[_BROUGHT_BACK]), noted=frozenset(ids[_OFF]))


def locked(connection: Connection, consumer: str) -> Row[Any]:
    """Return the consumer's row of `sluice_inbox_redrive`, made where missing, and locked."""
    made = engines.insert(connection.dialect.name, redrives).values(consumer=consumer)
    unchanged = {"consumer": made.excluded.consumer}
    found = made.on_conflict_do_update(index_elements=["consumer"], set_=unchanged).returning(redrives)
    return connection.execute(found).one()


def is_abandoned(row: Row[Any], now_us: int) -> bool:
    """Return whether a run had the lease and never gave it back."""
    return row.held_until_us is not None and row.held_until_us <= now_us


def _change(connection: Connection, consumer: str, **values: str | int | None) -> None:
    connection.execute(update(redrives).where(redrives.c.consumer == consumer).values(values))


def _place(dead_letter: DeadLetter) -> dict[str, str | int | None]:
    if dead_letter.envelope is None:
        return {}
    return {"group_id": dead_letter.message_group_id, "seq": dead_letter.envelope.seq}


def _detail(dead_letter: DeadLetter) -> dict[str, Any]:
    return _identity(dead_letter) | {"sqs_message_id": dead_letter.sqs_message_id}


def _identity(dead_letter: DeadLetter) -> dict[str, Any]:
    assert dead_letter.envelope is not None, "what cannot be read is never brought back"
    return {"epoch": dead_letter.envelope.epoch, "event_id": dead_letter.envelope.event.id}
