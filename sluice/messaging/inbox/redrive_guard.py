"""The guard of automatic redrive, in the inbox's database: it decides which messages may be brought back.

A message comes back without an operator only if its worker recorded that its attempts were used up. A message stays in
the DLQ as poison if a handler or the inbox refused it, if it cannot be read, or if it died without a record, since it
may kill its worker. The messages behind such a message in its group stay too.

Each action is a row of the audit. The rows are also the memory: a message is identified by group, epoch, number and
event id, which a redriven copy keeps; the copy has another SQS message id. The next run finishes what a dead run began.
It counts the return of a message only once while SQS would still drop the second copy as a duplicate; after that it
counts as a further return.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, Row, select, update

from sluice import limits
from sluice.clock import Clock, SystemClock
from sluice.declaration import AutomaticRedrive
from sluice.messaging.database import engines
from sluice.messaging.database.audit import Operator
from sluice.messaging.database.server_settings import DURABLE
from sluice.messaging.errors import DeadLetterError, TransientError
from sluice.messaging.inbox.gaps import SequenceGaps
from sluice.messaging.inbox.tables import DEAD, REDRIVEN, audit, redrives
from sluice.messaging.sqs.dead_letter_queue import StoredDeadLetter

LEASE_SECONDS = 120
"""How long a dead run keeps other runs from beginning. A slower live run sends nothing more once another has begun."""
_RENEWED_SECONDS = LEASE_SECONDS / 4  # between two renewals of the lease
_SURE_DUPLICATE_US = (limits.DEDUPLICATION_WINDOW_SECONDS - 60) * 1_000_000  # minus the longest time of a send
ACTOR = "automatic redrive"
_BROUGHT_BACK, _OFF, _ON = "automatic-redrive", "automatic-off", "automatic-on"


class RedriveVerdict(StrEnum):
    """A verdict of automatic redrive on a message, and the reason."""

    BRING_BACK = "its attempts were used up"
    TOO_FRESH = "its attempts were used up a short time ago"
    NOT_CHOSEN = "it does not match the filters"
    POISON = "it was refused, cannot be read, or nobody recorded why it died"
    FAILED_AGAIN = "it was brought back by itself, and died again"
    USED_UP = "it was brought back by itself as often as is declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The audit's record of one message.

    Args:
        times: how often the message was brought back automatically.
        begun: the SQS message ids under which it was brought back, each with the last time, microseconds UTC.
        noted: the SQS message ids for which it has switched automatic redrive off.
    """

    times: int = 0
    begun: Mapping[str, int] = field(default_factory=dict)
    noted: frozenset[str] = frozenset()

    def is_duplicate(self, sqs_message_id: str, now_us: int) -> bool:
        """Return whether SQS would drop a copy sent now as a duplicate of one that may have been sent."""
        return sqs_message_id in self.begun and now_us < self.begun[sqs_message_id] + _SURE_DUPLICATE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The inbox's record of the death of a message's number.

    Args:
        state: dead or redriven; in any other state an operator has dealt with the number.
        is_final: whether the message was refused, the number is no longer open, or the record is of another copy.
    """

    state: str
    is_final: bool


def judge(sqs_message_id: str, death: Death | None, past: Past, *, attempts_max: int, now_us: int) -> RedriveVerdict:
    """Return whether a message that is in the DLQ under this SQS message id is brought back, or why not."""
    if past.times and death is not None and death.state == REDRIVEN:
        # The message was handled, but neither it nor its copy was deleted: the inbox drops both.
        return RedriveVerdict.BRING_BACK
    if past.times and sqs_message_id not in past.begun and sqs_message_id not in past.noted:
        return RedriveVerdict.FAILED_AGAIN
    if death is None or death.state != DEAD or death.is_final:
        return RedriveVerdict.POISON
    is_within = past.is_duplicate(sqs_message_id, now_us) or past.times < attempts_max
    return RedriveVerdict.BRING_BACK if is_within else RedriveVerdict.USED_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOperator(Operator):
    """An operator, or a run, that switches a consumer's automatic redrive on or off, with a reason."""

    consumer: str

    def switch_on(self, connection: Connection) -> None:
        """Allow runs to begin again. The counts of how often each message was brought back remain.

        Raises:
            DeadLetterError: automatic redrive is not off.
        """
        row = lock_row(connection, self.consumer)
        if row.off_at_us is None and not is_abandoned(row, engines.now_us(connection, self.clock)):
            raise DeadLetterError(f"automatic redrive of {self.consumer} is on already, and no run has died")
        _change(connection, self.consumer, off_at_us=None, run=None, held_until_us=None)
        self._record(connection, audit, _ON, {"consumer": self.consumer}, {})

    def switch_off(self, connection: Connection) -> None:
        """Forbid new runs, and let a run that has begun send nothing more.

        Raises:
            DeadLetterError: automatic redrive is off already.
        """
        row = lock_row(connection, self.consumer)
        if row.off_at_us is not None:
            raise DeadLetterError(f"automatic redrive of {self.consumer} is off already; see `dlq audit`")
        _change(connection, self.consumer, off_at_us=engines.now_us(connection, self.clock))
        self._record(connection, audit, _OFF, {"consumer": self.consumer}, {})

    def record_failure(self, connection: Connection, dead_letter: StoredDeadLetter) -> None:
        """Switch automatic redrive off, because a message that it brought back failed again.

        Each such message is recorded, even if automatic redrive is off already, so that after it is switched on again
        the same message does not switch it off a second time.
        """
        if lock_row(connection, self.consumer).off_at_us is None:
            _change(connection, self.consumer, off_at_us=engines.now_us(connection, self.clock))
        place: dict[str, str | int | None] = {"consumer": self.consumer}
        self._record(connection, audit, _OFF, place | _place(dead_letter), _detail(dead_letter))

    def record_return(self, connection: Connection, dead_letter: StoredDeadLetter, run: str) -> None:
        """Record that a message is brought back. Called before the message is sent."""
        place: dict[str, str | int | None] = {"consumer": self.consumer}
        self._record(connection, audit, _BROUGHT_BACK, place | _place(dead_letter), _detail(dead_letter) | {"run": run})


class RedriveGuard:
    """One run of a consumer's automatic redrive, and its lease in the inbox's database.

    Args:
        run: the id of the run.
        clock: a clock for tests; None means the database's own.
        own_clock: the clock of this process; None means the machine's.
    """

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        declared: AutomaticRedrive,
        *,
        run: str,
        clock: Clock | None = None,
        own_clock: Clock | None = None,
    ) -> None:
        self._engine, self._consumer, self._declared = engine, consumer, declared
        self._run, self._clock = run, clock
        self._own_clock = SystemClock() if own_clock is None else own_clock
        self._renewed_at = 0.0
        reason = f"run {run}, at most {declared.messages_max} messages, each {declared.attempts_max} times"
        self._operator = RedriveOperator(consumer=consumer, actor=ACTOR, reason=reason, clock=clock)
        self.is_off = False

    def begin(self) -> None:
        """Take the consumer's lease.

        Raises:
            DeadLetterError: automatic redrive is off, or another run has the lease.
        """

        def take(connection: Connection) -> None:
            row = lock_row(connection, self._consumer)
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
            self._hold(connection)

        self._in_transaction(take)

    def may_go_on(self) -> bool:
        """Renew the lease if the last renewal is some time ago.

        Return False if another run has the lease, or redrive is off.
        """
        if self.is_off or self._own_clock.monotonic() - self._renewed_at < _RENEWED_SECONDS:
            return not self.is_off
        with self._engine.begin() as connection, engines.explaining_missing_tables():
            is_ours = self._is_ours(connection)
            if is_ours:
                self._hold(connection)
        return is_ours

    def judge(self, dead_letter: StoredDeadLetter) -> RedriveVerdict:
        """Return whether a message is brought back, or why not; one that failed again switches redrive off."""
        with engines.reading(self._engine) as connection, engines.explaining_missing_tables():
            verdict = self._judge(connection, dead_letter)
        if verdict is RedriveVerdict.FAILED_AGAIN:
            self.is_off = True
            self._in_transaction(partial(self._operator.record_failure, dead_letter=dead_letter))
        return verdict

    def claim(self, dead_letter: StoredDeadLetter) -> None:
        """Record that a message is brought back, right before it is sent.

        Nothing is recorded if the same return was just begun.

        Raises:
            TransientError: the message may not be sent: another run has the lease, automatic redrive was switched off,
                or the record of the message has changed.
        """

        def record(connection: Connection) -> None:
            if not self._is_ours(connection):
                raise TransientError("another run has taken over, or automatic redrive was switched off")
            if self._judge(connection, dead_letter) is not RedriveVerdict.BRING_BACK:
                raise TransientError("what was recorded about the message has changed")
            self._hold(connection)
            now_us = engines.now_us(connection, self._clock)
            if not self._past(connection, dead_letter).is_duplicate(dead_letter.sqs_message_id, now_us):
                self._operator.record_return(connection, dead_letter, self._run)

        self._in_transaction(record)

    def end(self) -> None:
        """Release the lease, if it is still this run's."""

        def release(connection: Connection) -> None:
            if lock_row(connection, self._consumer).run == self._run:
                _change(connection, self._consumer, run=None, held_until_us=None)

        self._in_transaction(release)

    def _is_ours(self, connection: Connection) -> bool:
        row = lock_row(connection, self._consumer)
        return row.run == self._run and row.off_at_us is None

    def _hold(self, connection: Connection) -> None:
        until_us = engines.now_us(connection, self._clock) + LEASE_SECONDS * 1_000_000
        _change(connection, self._consumer, run=self._run, held_until_us=until_us)
        self._renewed_at = self._own_clock.monotonic()

    def _in_transaction(self, act: Callable[[Connection], None]) -> None:
        with self._engine.begin() as connection, engines.explaining_missing_tables():
            act(connection)

    def _judge(self, connection: Connection, dead_letter: StoredDeadLetter) -> RedriveVerdict:
        past, death = self._past(connection, dead_letter), self._death(connection, dead_letter)
        now_us = engines.now_us(connection, self._clock)
        attempts_max = self._declared.attempts_max
        return judge(dead_letter.sqs_message_id, death, past, attempts_max=attempts_max, now_us=now_us)

    def _death(self, connection: Connection, dead_letter: StoredDeadLetter) -> Death | None:
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

    def _past(self, connection: Connection, dead_letter: StoredDeadLetter) -> Past:
        if dead_letter.envelope is None:
            return Past()
        place = {**_place(dead_letter), "consumer": self._consumer}
        here = [audit.c[name] == value for name, value in place.items()]
        columns = (audit.c.action, audit.c.at_us, audit.c.detail)
        acts = select(*columns).where(*here, audit.c.action.in_((_BROUGHT_BACK, _OFF))).order_by(audit.c.id)
        instants: dict[str, list[tuple[str, int]]] = {_BROUGHT_BACK: [], _OFF: []}
        identity = _identity(dead_letter)
        for action, at_us, detail in connection.execute(acts):
            kept = json.loads(detail)
            if identity.items() <= kept.items():
                instants[action].append((kept["sqs_message_id"], at_us))
        begun = instants[_BROUGHT_BACK]
        return Past(times=len(begun), begun=dict(begun), noted=frozenset(dict(instants[_OFF])))


def lock_row(connection: Connection, consumer: str) -> Row[Any]:
    """Lock the consumer's row of `sluice_inbox_redrive`, inserting it if it is missing, and return it."""
    made = engines.insert(connection.dialect.name, redrives).values(consumer=consumer)
    unchanged = {"consumer": made.excluded.consumer}
    found = made.on_conflict_do_update(index_elements=["consumer"], set_=unchanged).returning(redrives)
    return connection.execute(found).one()


def is_abandoned(row: Row[Any], now_us: int) -> bool:
    """Return whether a run had the lease and never gave it back."""
    return row.held_until_us is not None and row.held_until_us <= now_us


def _change(connection: Connection, consumer: str, **values: str | int | None) -> None:
    connection.execute(update(redrives).where(redrives.c.consumer == consumer, DURABLE).values(values))


def _place(dead_letter: StoredDeadLetter) -> dict[str, str | int | None]:
    if dead_letter.envelope is None:
        return {}
    return {"group_id": dead_letter.message_group_id, "seq": dead_letter.envelope.seq}


def _detail(dead_letter: StoredDeadLetter) -> dict[str, Any]:
    return _identity(dead_letter) | {"sqs_message_id": dead_letter.sqs_message_id}


def _identity(dead_letter: StoredDeadLetter) -> dict[str, Any]:
    assert dead_letter.envelope is not None, "what cannot be read is never brought back"
    return {"epoch": dead_letter.envelope.epoch, "event_id": dead_letter.envelope.event.id}
