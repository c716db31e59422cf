"""What is done with one received message, from receive to delete.

    received ─► decoded ─► one transaction: inbox, handler, what it adds to an outbox ─► committed ─► deleted

A message ends in one of three ways: it is done and deleted; it is given back, to come again after a while; or it is not
ours any more, and nothing is touched. The queue counts the attempts. What must not come again (refused, undecodable, or
failed at its last attempt) is written down as dead first; then it is given back at once until the queue moves it to the
DLQ, which it does at the receive after the last.
"""

import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice import metrics
from sluice.clock import Clock
from sluice.declaration import RETRY_SECONDS_MAX
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.errors import EnvelopeError, HoldLost, OutboxError, TransientError
from sluice.messaging.handlers import Ack, Context, Reject, Retry
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Arrived
from sluice.messaging.inbox.sequence import Action, Decision, State
from sluice.messaging.sqs.queue import Queue, Received
from sluice.messaging.telemetry.tally import Tally
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.handler_runner import Performer, Recorder
from sluice.messaging.worker.message_lease import Heartbeat, Hold
from sluice.terminal.printable import printable

_log = structlog.get_logger()
_TRIES = 3
"""How often a delete, a release, or a transaction that fails by itself is tried in one receive. Then the message comes
again by itself, and the inbox knows it."""


@dataclass(frozen=True, slots=True)
class Done:
    """It is to be deleted."""


@dataclass(frozen=True, slots=True)
class Back:
    """It is to be received again.

    Args:
        delay_seconds: after so long.
    """

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """It is not ours any more."""


type Ending = Done | Back | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """How messages are worked on.

    Args:
        consumer: name of the consumer.
        max_attempts: receives before the queue moves a message to the DLQ: its maxReceiveCount.
        timeout_seconds: visibility timeout of the queue.
        hold_seconds_max: a handler that takes longer has failed.
        backoff: between two tries of a message.
        database_backoff: between two tries of a database that does not answer.
        is_ordered: False for a standard queue, where one group may be worked on several times at once.
    """

    consumer: str
    max_attempts: int
    timeout_seconds: int
    hold_seconds_max: float
    backoff: Backoff = field(
        default_factory=lambda: Backoff(base_seconds=4, cap_seconds=RETRY_SECONDS_MAX, floor_seconds=1)
    )
    database_backoff: Backoff = field(
        default_factory=lambda: Backoff(base_seconds=0.2, cap_seconds=5, floor_seconds=0.1)
    )
    is_ordered: bool = True


class Groups:
    """Lets one lane of the process work on a group at a time.

    The queue does so too, but for a hold that was lost: then its message comes again while its handler still runs.
    """

    def __init__(self) -> None:
        self._left = threading.Condition()
        self._active: dict[str, Hold] = {}

    @contextmanager
    def alone(self, group_id: str, hold: Hold, wait: Wait) -> Iterator[bool]:
        """Yield whether this is the only one; makes another give up, and waits for it while the message is ours.

        To give the message back would use up an attempt at it, and then at all that follow it.
        """
        with self._left:
            if group_id in self._active and not self._active[group_id].is_done:
                self._active[group_id].lose("its group was received again")
                _log.warning("its group's last handler still runs, and is waited for")
            while group_id in self._active and hold.remaining_seconds() > 0 and not wait.is_stopped():
                self._left.wait(timeout=min(1.0, hold.remaining_seconds()))
            is_alone = group_id not in self._active
            if is_alone:
                self._active[group_id] = hold
        try:
            yield is_alone
        finally:
            with self._left:
                if is_alone:
                    del self._active[group_id]
                    self._left.notify_all()


class Work:
    """Works on received messages; any number of lanes share one.

    Args:
        engine: of the consumer's database.
        queue: where messages are from.
        inbox: the consumer's.
        performer: calls the handlers.
        heartbeat: extends what is worked on.
        settings: how it is done.
        wait: between two tries; ends when the worker stops.
        clock: for the visibility timeouts.
        chance: for the jitter; a seeded one in tests.
        tally: counts what happens.
        recorder: where history goes.
    """

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        inbox: Inbox,
        performer: Performer,
        heartbeat: Heartbeat,
        *,
        settings: WorkSettings,
        wait: Wait,
        clock: Clock,
        chance: random.Random,
        tally: Tally,
        recorder: Recorder | None = None,
    ) -> None:
        self._engine, self._queue, self._inbox, self._performer = engine, queue, inbox, performer
        self._heartbeat, self._settings, self._wait = heartbeat, settings, wait
        self._clock, self._chance, self._tally, self._recorder = clock, chance, tally, recorder
        self._failpoint = performer.failpoint
        self._groups = Groups()
        self.is_database_away = False

    def do(self, message: Received, *, asked_at: float | None = None) -> Ending:
        """Work on a message, and return how it ended.

        Args:
            message: as it was received.
            asked_at: when that receive began, by the clock; None is now.
        """
        hold = Hold(
            message,
            clock=self._clock,
            timeout_seconds=self._settings.timeout_seconds,
            seconds_max=self._settings.hold_seconds_max,
            asked_at=asked_at,
        )
        group_id = message.message_group_id if self._settings.is_ordered else None
        told = {"group": message.message_group_id, "sqs_message_id": message.sqs_message_id}
        with structlog.contextvars.bound_contextvars(**told, attempt=message.receive_count):
            with (
                self._heartbeat.keeping(hold),
                self._groups.alone(group_id or message.sqs_message_id, hold, self._wait) as is_alone,
            ):
                ending = self._ending(hold) if is_alone else self._crowded(hold)
                self._end(hold, ending)
            return ending

    def _crowded(self, hold: Hold) -> Ending:
        """Return how a message ends whose group is still worked on: it is given back when the worker stops."""
        if self._wait.is_stopped():
            return Back(0)
        return self._lost(HoldLost(f"another handler of group {hold.message.message_group_id} did not end in time"))

    def _ending(self, hold: Hold) -> Ending:
        """Return how a message is to end, after all that leads there was done."""
        message = hold.message
        self._failpoint("after_receive")
        try:
            hold.check()
            arrived = _arrived(message)
        except EnvelopeError as error:
            return self._die(hold, None, f"it cannot be read: {error}")
        except HoldLost as lost:
            return self._lost(lost)
        told = {"seq": arrived.envelope.seq, "event_id": arrived.envelope.event.id, "type": arrived.envelope.event.type}
        with structlog.contextvars.bound_contextvars(**told):
            try:
                return self._settled(hold, arrived)
            except HoldLost as lost:
                return self._lost(lost)

    def _lost(self, lost: HoldLost) -> Lost:
        self._tally.add(metrics.LOST)
        _log.warning("lost: somebody else may have it", why=str(lost))
        return Lost()

    def _settled(self, hold: Hold, arrived: Arrived) -> Ending:
        begun_at_us = self._clock.now_us()
        try:
            if arrived.receive_count > 1 or self._settings.max_attempts == 1:
                self._patiently(hold, lambda: self._begin_group(hold, arrived))
            ended = self._patiently(hold, lambda: self._transact(hold, arrived))
        except _TransactionFailed as failed:
            ended = Retry(reason=str(failed))
        match ended:
            case Retry() as outcome:
                return self._again(hold, arrived, outcome)
            case Reject(reason) | Decision(action=Action.REJECT, reason=reason):
                return self._die(hold, arrived, reason)
            case Decision(action=Action.DROP | Action.PARK | Action.HANDLE) as decision:
                self._report(arrived, decision, begun_at_us)
                return Done()
        return Back(0)  # to die on; or the worker stops while the database is away

    def _report(self, arrived: Arrived, decision: Decision, begun_at_us: int) -> None:
        """Tell of what was committed, if anything had to be."""
        match decision.action:
            case Action.DROP:
                self._tally.add(metrics.DUPLICATES)
                _log.info("already accounted for, and deleted", state=decision.state)
                return
            case Action.PARK:
                self._failpoint("after_park")
                self._tally.add(metrics.PARKED)
                _log.warning("set aside: a number before it is missing", state=decision.state)
            case _:
                self._failpoint("after_commit")
                self._tally.add(metrics.HANDLED)
                (_log.debug if decision.state is State.CONTIGUOUS else _log.info)("handled", state=decision.state)
        if self._recorder is not None:
            self._recorder.handled(
                queue_url=self._queue.url,
                body=arrived.body,
                sqs_message_id=arrived.sqs_message_id,
                receive_count=arrived.receive_count,
                begun_at_us=begun_at_us,
                is_parked=decision.action is Action.PARK,
                state=decision.state.value,
            )

    def _begin_group(self, hold: Hold, arrived: Arrived) -> None:
        """Let a group begin before its first message: should that die unwritten, it is missing and not unheard of."""
        with Session(self._engine) as session:
            self._inbox.begin_group(session.connection(), arrived)
            hold.check()
            session.commit()

    def _transact(self, hold: Hold, arrived: Arrived) -> Decision | Retry | Reject:
        """Do everything in one transaction: the decision when it was committed or there was nothing to commit."""
        with Session(self._engine) as session:
            admission = self._inbox.admit(session.connection(), arrived)
            decision = admission.decision
            if decision.action is Action.PARK:
                hold.check()
                session.commit()
            elif decision.action is Action.HANDLE:
                self._failpoint("in_transaction")
                hold.check()  # it may have waited long for the group's row
                context = self._context(hold, arrived, decision)
                mark = partial(self._inbox.mark, envelope=arrived.envelope, admission=admission)
                outcome = self._performer.perform(
                    session, arrived.envelope, context, hold, mark=mark, before_commit="before_commit"
                )
                if not isinstance(outcome, Ack):
                    return outcome
            return decision

    def _context(self, hold: Hold, arrived: Arrived, decision: Decision) -> Context:
        return Context(
            consumer=self._settings.consumer,
            seq=arrived.envelope.seq,
            epoch=arrived.envelope.epoch,
            attempt=arrived.receive_count,
            is_last_attempt=self._is_last(arrived.receive_count),
            is_late=decision.state in (State.LATE, State.FILLED),
            attributes=arrived.attributes,
            hold=hold,
        )

    def _is_last(self, receive_count: int) -> bool:
        return receive_count >= self._settings.max_attempts

    def _again(self, hold: Hold, arrived: Arrived, outcome: Retry) -> Ending:
        if self._is_last(arrived.receive_count):
            return self._die(hold, arrived, f"attempt {arrived.receive_count}: {outcome.reason}")
        self._tally.add(metrics.RETRIED)
        delay = outcome.delay_seconds
        if delay is None:
            delay = self._settings.backoff.seconds(arrived.receive_count, self._chance.random())
        _log.info("not handled, and comes again", reason=outcome.reason, delay_seconds=round(delay, 1))
        return Back(delay)

    def _die(self, hold: Hold, arrived: Arrived | None, reason: str) -> Ending:
        """Write down that a message is dead, and let the queue move it to the DLQ."""

        def buried() -> bool:
            with Session(self._engine) as session:
                is_dead = True
                if arrived is None:
                    self._inbox.bury_unreadable(session.connection(), hold.message.message_group_id or "")
                else:
                    is_dead = self._inbox.bury(session.connection(), arrived, reason)
                hold.check()
                session.commit()
                return is_dead

        try:
            is_dead = self._patiently(hold, buried)
        except HoldLost as lost:
            return self._lost(lost)
        except _TransactionFailed as failed:
            _log.error("not written down as dead", reason=reason, error=str(failed))
            return Back(0)
        if is_dead is None:
            return Back(0)  # the worker stops while the database is away
        if not is_dead:
            return Done()  # somebody else has seen to it meanwhile
        self._failpoint("after_death")
        if arrived is not None or hold.message.receive_count == 1:  # without a number it is not known to be dying
            self._tally.add(metrics.DEAD)
            _log.error("dead: the queue moves it to the DLQ", reason=reason)
        return Back(0)

    def _patiently[T](self, hold: Hold, transact: Callable[[], T]) -> T | None:
        """Return what a transaction returns; while the database is away, wait for it, so that no attempt is used up.

        Whether the database is away for everyone, or only this transaction failed, another transaction tells.

        Returns:
            None when the worker stops meanwhile.

        Raises:
            HoldLost: it was away for longer than the message can be held.
            _TransactionFailed: this transaction failed, again and again, while another one did not.
        """
        failures = own_failures = 0
        while not (failures and self._wait.is_stopped()):
            hold.check()
            try:
                done = transact()
            except (DBAPIError, OutboxError) as error:
                failures += 1
                if isinstance(error, DBAPIError) and engines.is_only_read(error):
                    engines.forget_connections(self._engine)
                if isinstance(error, DBAPIError) and self._answers():
                    own_failures += 1
                    if own_failures == _TRIES or not engines.may_pass(error):
                        raise _TransactionFailed(_reason(error)) from error
                    _log.warning("the transaction failed, and is tried again", error=_reason(error))
                else:
                    self.is_database_away = True
                    _log.error("the database does not do it", error=_reason(error), failures=failures)
                self._wait.wait(self._settings.database_backoff.seconds(failures, self._chance.random()))
            else:
                self.is_database_away = False
                return done
        return None

    def is_ready(self) -> bool:
        """Return whether the database lets the inbox be written; asked only after it did not."""
        if self.is_database_away:
            self.is_database_away = not self._answers()
        return not self.is_database_away

    def _answers(self) -> bool:
        """Return whether the database lets the inbox be written, by another transaction than a message's."""
        try:
            self._require_writable()
        except DBAPIError as error:
            _log.error("the database does not do it", error=_reason(error))
            if not engines.may_pass(error):
                # A handler may have set a role, a search path or `query_only`, which stay with the connection it had.
                engines.forget_connections(self._engine)
            return False
        return True

    def _require_writable(self) -> None:
        with self._engine.begin() as connection:
            self._inbox.require_writable(connection)

    def _end(self, hold: Hold, ending: Ending) -> None:
        hold.finish()
        handle = hold.message.receipt_handle
        match ending:
            case Done():
                self._failpoint("before_delete")
                if not self._tried(lambda: self._queue.delete(handle), "not deleted: it comes again"):
                    self._tally.add(metrics.NOT_DELETED)
                self._failpoint("after_delete")
            case Back(delay_seconds):
                self._failpoint("before_release")
                seconds = min(math.ceil(delay_seconds), hold.delay_seconds_max)
                said = "not given back: it comes again when its visibility timeout ends"
                self._tried(lambda: self._queue.release(handle, seconds), said)

    def _tried(self, act: Callable[[], None], said: str) -> bool:
        """Try a call that may be repeated, a few times, whether or not the worker stops; return whether it was done."""
        for tries in range(1, _TRIES + 1):
            try:
                act()
            except HoldLost as error:
                _log.warning(said, error=str(error))
                return False
            except TransientError as error:
                _log.warning(said, error=str(error), tries=tries)
                if tries < _TRIES:
                    self._wait.wait(self._settings.database_backoff.seconds(tries, self._chance.random()))
            else:
                return True
        return False


class _TransactionFailed(Exception):
    """Raised when a message's transaction fails, and the database does not do so for others."""


def _reason(error: DBAPIError | OutboxError) -> str:
    """Return what the database says, as a line."""
    return printable(f"{type(error).__name__}: {str(error.orig if isinstance(error, DBAPIError) else error).strip()}")


def _arrived(message: Received) -> Arrived:
    """Return a message decoded.

    Raises:
        EnvelopeError: it is no envelope, or one of another group.
    """
    envelope = decode(message.body)
    if message.message_group_id not in (None, envelope.event.group):
        raise EnvelopeError(
            f"group is {envelope.event.group!r}, allowed is {message.message_group_id!r}, the group it was sent in"
        )
    return Arrived(
        envelope=envelope,
        body=message.body,
        attributes=message.attributes,
        sqs_message_id=message.sqs_message_id,
        receive_count=message.receive_count,
    )


__all__ = ["Back", "Done", "Ending", "Groups", "Lost", "Work", "WorkSettings"]
