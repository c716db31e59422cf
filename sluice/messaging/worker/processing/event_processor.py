"""The work on one event: decided by its number, handled in one transaction with its mark, tried again, or dead.

An event comes in a message of its own, or in a bundle: `MessageProcessor` says what is the message's.
"""

import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.clock import Clock
from sluice.messaging.bundle import BundledEvent
from sluice.messaging.database.transactions import TransactionEndedError
from sluice.messaging.errors import EnvelopeError, HoldLostError
from sluice.messaging.handlers import Ack, Context, Reject, Retry
from sluice.messaging.inbox.admission import Admission, Inbox
from sluice.messaging.inbox.attempts import PastAttempts
from sluice.messaging.inbox.groups import DecodedMessage
from sluice.messaging.inbox.pause import PauseWatch
from sluice.messaging.inbox.sequence import Action, Decision, State
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.hooks import SettledMessage, WorkerHooks, WorkerHookSet
from sluice.messaging.worker.processing.acknowledgements import Abandon, Acknowledgement, Delete, MoveToDlq, Release
from sluice.messaging.worker.processing.handler_runner import (
    AdmissionChangedError,
    HandlerAttempt,
    HandlerRunner,
    TransactionMark,
)
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.messaging.worker.processing.transactions import (
    DatabaseAway,
    TakeConnection,
    TransactionFailedError,
    Transactions,
    reason_of,
)
from sluice.messaging.worker.settings import ProcessorSettings
from sluice.terminal.logger import Logger

_log = Logger()
_WHOLE = 0.9  # share of an invocation's time: in the rest nothing is committed


class AttemptResult(NamedTuple):
    """The result of an attempt at an event, and when the attempt began, microseconds UTC."""

    begun_at_us: int
    ended: Decision | Retry | Reject


@dataclass(slots=True)
class BundleProgress:
    """The progress of the work on a bundle in one receive.

    Args:
        has_begun: whether the first event that needed an attempt has one: those behind it had none in earlier receives.
    """

    has_begun: bool = False


class EventProcessor:
    """Works on single events; any number of lanes share one."""

    def __init__(
        self,
        engine: Engine,
        inbox: Inbox,
        runner: HandlerRunner,
        *,
        settings: ProcessorSettings,
        wait: Wait,
        clock: Clock,
        rng: random.Random,
        hooks: WorkerHookSet,
        give_sign: Callable[[], None],
        pause: PauseWatch,
    ) -> None:
        self._engine, self._inbox, self._runner, self._failpoint = engine, inbox, runner, runner.failpoint
        self._settings, self._wait, self._give_sign = settings, wait, give_sign
        self._clock, self._rng, self._hooks = clock, rng, hooks
        self._pause = pause
        self.transactions = Transactions(
            engine,
            inbox,
            backoff=settings.database_backoff,
            wait=wait,
            rng=rng,
            connections_max=settings.database_connections,
            give_sign=give_sign,
        )

    def _work_on_event(
        self,
        lease: MessageLease,
        event: BundledEvent,
        position: int | None = None,
        progress: BundleProgress | None = None,
        result: AttemptResult | None = None,
    ) -> Acknowledgement:
        """Work on an event, and return how it ends.

        `position` is its place in its bundle, None if it came alone; without `progress` the queue counts the attempts.
        With a `result` its handler was called already.
        """
        try:
            arrived = decode_event(lease.message, event, position)
        except EnvelopeError as error:
            is_sent = progress is not None  # to the DLQ by the worker, after which it is passed over
            return self._die(lease, None, f"it cannot be read: {error}", is_sent=is_sent)
        envelope = arrived.envelope
        with LogNames(seq=envelope.seq, event_id=envelope.event.id, type=envelope.event.type):
            try:
                return self._handle(lease, arrived, progress, result)
            except HoldLostError as lost:
                return self._abandon(lease, lost)

    def _abandon(self, lease: MessageLease, lost: HoldLostError) -> Abandon:
        self._hooks.call(WorkerHooks.after_loss, lease.message, str(lost))
        _log.warning("lost: somebody else may have it", why=str(lost))
        return Abandon()

    def _handle(
        self,
        lease: MessageLease,
        arrived: DecodedMessage,
        progress: BundleProgress | None = None,
        result: AttemptResult | None = None,
    ) -> Acknowledgement:
        """Work on an event, and return how its message ends. `progress` is that of its bundle, if it came in one."""
        begun_at_us, ended = (self._clock.now_us(), None) if result is None else result
        left_seconds = math.inf
        try:
            if result is None and (arrived.receive_count > 1 or self._settings.max_attempts == 1):
                arrived, ended = self._begin_attempt(lease, arrived, progress)
                if arrived.attempt != arrived.receive_count:  # the block that names the message takes it back
                    structlog.contextvars.bind_contextvars(attempt=arrived.attempt)
            left_seconds = lease.remaining_seconds()
            ended = self._transact_late(lease, arrived) if ended is None else ended
        except TransactionFailedError as failed:
            ended = Retry(reason=str(failed))
        except TransactionEndedError as committed:
            ended = Reject(str(committed))
        except DatabaseAway:
            return Release(0)
        except HoldLostError:
            self._cancel_attempt(arrived, left_seconds)
            raise
        match ended:
            case Retry() as outcome:
                return self._retry(lease, arrived, outcome)
            case Reject(reason) | Decision(action=Action.REJECT, reason=reason):
                return self._die(lease, arrived, reason)
            case Decision(action=Action.DROP | Action.PARK | Action.HANDLE) as decision:
                self._report(arrived, decision, begun_at_us)
                return Delete()
        return MoveToDlq()

    def _report(self, arrived: DecodedMessage, decision: Decision, begun_at_us: int) -> None:
        """Report the committed decision to the log and the hooks."""
        match decision.action:
            case Action.DROP:
                _log.info("handled before; deleted", state=decision.state)
            case Action.PARK:
                self._failpoint("after_park")
                _log.warning("set aside: a number before it is missing", state=decision.state)
            case _:
                self._failpoint("after_commit")
                (_log.debug if decision.state is State.CONTIGUOUS else _log.info)("handled", state=decision.state)
        settled = SettledMessage(message=arrived, decision=decision, begun_at_us=begun_at_us)
        self._hooks.call(WorkerHooks.before_acknowledge, settled)

    def _begin_attempt(
        self, lease: MessageLease, arrived: DecodedMessage, progress: BundleProgress | None
    ) -> tuple[DecodedMessage, Retry | Reject | None]:
        """Record an attempt at an event, and return it with the attempt's number, and its end if it has none left.

        No attempt is recorded of an event in a bundle that cannot have been tried before, or is not to be handled.
        """
        past = self.transactions.run(lease, partial(self._store_attempt, lease, arrived, progress))
        if past is None:
            return arrived, None
        if progress is not None:
            progress.has_begun = True
        unfinished_max = self._settings.unfinished_max
        if unfinished_max is None and progress is not None:
            past = PastAttempts(failed_count=past.failed_count + past.unfinished_count)
            if past.failed_count >= self._settings.max_attempts:
                return replace(arrived, attempt=past.failed_count), Retry(reason="it came to no end; see the log")
        if past.unfinished_count >= (unfinished_max or math.inf):
            reason = f"{past.unfinished_count} attempts in a row came to no end; see the function's log"
            return arrived, Reject(reason)
        return replace(arrived, attempt=past.failed_count + 1), None

    def _store_attempt(
        self, lease: MessageLease, arrived: DecodedMessage, progress: BundleProgress | None, session: Session
    ) -> PastAttempts | None:
        """Store the beginning of a group before its first message, and return the attempts before this one.

        If the message dies unrecorded, its number is missing.
        """
        connection = session.connection()
        if progress is not None and not self._needs_attempt(connection, arrived, progress):
            return None
        self._inbox.begin_group(connection, arrived)
        past = PastAttempts(failed_count=arrived.receive_count - 1)
        if self._settings.unfinished_max is not None or progress is not None:
            past = self._inbox.attempts.begin(connection, arrived)
        lease.check()
        session.commit()
        return past

    def _needs_attempt(self, connection: Connection, arrived: DecodedMessage, progress: BundleProgress) -> bool:
        """Return whether an event of a bundle may have been tried before, and is to be handled now."""
        if progress.has_begun and self._settings.max_attempts > 1:
            return False
        return self._inbox.admit(connection, arrived).decision.action is Action.HANDLE

    def _transact_late(self, lease: MessageLease, arrived: DecodedMessage) -> Decision | Retry | Reject:
        """Return the decision or outcome of the transaction.

        A handler of asyncio has no connection until it uses its session.

        Before such a handler is called, a transaction that changes nothing decides about its message. The handler's own
        transaction locks the group and decides again, because the group is not locked in between.
        """
        if not self._runner.handlers.takes_async_session(arrived.envelope.event.type):
            return self.transactions.run(lease, partial(self._transact, lease, arrived))
        while True:
            decision = self.transactions.run(lease, partial(self._decide_now, lease, arrived))
            if decision.action is not Action.HANDLE:
                return decision
            with suppress(AdmissionChangedError):
                return self.transactions.run_late(lease, partial(self._handle_late, lease, arrived, decision))
            _log.warning("its group went on while its handler ran; it is decided about again")

    def _decide_now(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision:
        """Decide about a message, and release the lock on its group."""
        decision = self._inbox.admit(session.connection(), arrived).decision
        if decision.action is Action.PARK:
            lease.check()
            session.commit()
        return decision

    def _handle_late(
        self,
        lease: MessageLease,
        arrived: DecodedMessage,
        decided: Decision,
        session: Session,
        take_connection: TakeConnection,
    ) -> Decision | Retry | Reject:
        attempt = HandlerAttempt(
            session=session,
            envelope=arrived.envelope,
            context=self._context(lease, arrived, decided),
            admit=partial(self._admit_again, lease, arrived, decided, session, take_connection),
            before_commit="before_commit",
            is_late=True,
        )
        outcome = self._runner.run(attempt)
        return decided if isinstance(outcome, Ack) else outcome

    def _admit_again(
        self,
        lease: MessageLease,
        arrived: DecodedMessage,
        decided: Decision,
        session: Session,
        take_connection: TakeConnection,
    ) -> TransactionMark:
        """Lock the group of a message whose handler already runs, and decide about the message again.

        Raises:
            AdmissionChangedError: another worker has handled the message meanwhile, or its group waits.
        """
        take_connection()
        admission = self._inbox.admit(session.connection(), arrived)
        self._failpoint("in_transaction")
        lease.check()  # the wait for the connection and for the group's row may have been long
        if admission.decision != decided:
            raise AdmissionChangedError
        return self._mark_of(arrived, admission)

    def _mark_of(self, arrived: DecodedMessage, admission: Admission) -> TransactionMark:
        return TransactionMark(
            partial(self._inbox.mark, envelope=arrived.envelope, admission=admission),
            None if admission.lock is None else admission.lock.transaction_id,
            partial(self._inbox.mark_at_once, arrived.envelope, admission),
            partial(self._inbox.was_committed, envelope=arrived.envelope, admission=admission),
        )

    def _transact(self, lease: MessageLease, arrived: DecodedMessage, session: Session) -> Decision | Retry | Reject:
        """Do everything in one transaction; return the decision if it was committed or there was nothing to commit."""
        admission = self._inbox.admit(session.connection(), arrived)
        decision = admission.decision
        if decision.action is Action.PARK:
            lease.check()
            session.commit()
        elif decision.action is Action.HANDLE:
            self._failpoint("in_transaction")
            lease.check()  # it may have waited long for the group's row
            attempt = HandlerAttempt(
                session=session,
                envelope=arrived.envelope,
                context=self._context(lease, arrived, decision),
                admit=partial(self._mark_of, arrived, admission),
                before_commit="before_commit",
            )
            outcome = self._runner.run(attempt)
            if not isinstance(outcome, Ack):
                return outcome
        return decision

    def _context(self, lease: MessageLease, arrived: DecodedMessage, decision: Decision) -> Context:
        return Context(
            event=arrived.envelope.event,
            consumer=self._settings.consumer,
            seq=arrived.envelope.seq,
            epoch=arrived.envelope.epoch,
            attempt=arrived.attempt,
            is_last_attempt=self._is_last(arrived),
            is_late=decision.state in (State.LATE, State.FILLED),
            attributes=arrived.attributes,
            hold=lease,
        )

    def _is_last(self, arrived: DecodedMessage) -> bool:
        return arrived.attempt >= self._settings.max_attempts

    def _retry(self, lease: MessageLease, arrived: DecodedMessage, outcome: Retry) -> Acknowledgement:
        if self._is_last(arrived):
            return self._die(lease, arrived, f"attempt {arrived.attempt}: {outcome.reason}", is_permanent=False)
        if self._settings.unfinished_max is not None or self._settings.has_bundles or arrived.position is not None:
            self._count_failure(lease, arrived, outcome.reason)
        self._hooks.call(WorkerHooks.before_retry, arrived.envelope, outcome.reason)
        delay = outcome.delay_seconds
        if delay is None:
            delay = self._settings.backoff.seconds(arrived.attempt, self._rng.random())
        _log.info("not handled, and comes again", reason=outcome.reason, delay_seconds=round(delay, 1))
        return Release(delay)

    def _cancel_attempt(self, arrived: DecodedMessage, left_seconds: float) -> None:
        """Uncount an attempt of a function that was cut short by the end of the invocation.

        Unless it had nearly all of an invocation's time when it began, `left_seconds`: the next one would be cut, too.
        """
        if self._settings.unfinished_max is None or left_seconds >= _WHOLE * self._settings.hold_seconds_max:
            return
        try:
            with self._engine.begin() as connection:
                self._inbox.attempts.cancel(connection, arrived)
        except DBAPIError as error:
            _log.error("an attempt that had no time to end counts as one that came to no end", error=reason_of(error))

    def _count_failure(self, lease: MessageLease, arrived: DecodedMessage, reason: str) -> None:
        """Count a failed attempt in the inbox; it does not count while the database is away."""
        try:
            with self._engine.begin() as connection:
                self._inbox.attempts.fail(connection, arrived, reason)
                if arrived.position:
                    self._inbox.attempts.settle(connection, lease.message, arrived.position)
        except DBAPIError as error:
            _log.error("an attempt that failed is not counted", reason=reason, error=reason_of(error))

    def _die(
        self,
        lease: MessageLease,
        arrived: DecodedMessage | None,
        reason: str,
        *,
        is_permanent: bool = True,
        is_sent: bool = False,
    ) -> Acknowledgement:
        """Record that a message is dead."""
        try:
            record = partial(self._record_dead, lease, arrived, reason, is_permanent=is_permanent)
            is_dead = self.transactions.run(lease, record)
        except DatabaseAway:
            return Release(0)
        except TransactionFailedError as failed:
            _log.error("not written down as dead", reason=reason, error=str(failed))
            return Release(0)
        if not is_dead:
            return Delete()  # another worker has dealt with the message meanwhile
        self._failpoint("after_death")
        # Without a number the inbox cannot know that the message is dying: a worker finds it dead at each receive.
        is_new = is_sent or lease.message.receive_count == 1 or self._settings.unfinished_max is not None
        if arrived is not None or is_new:
            self._hooks.call(WorkerHooks.dead_lettered, None if arrived is None else arrived.envelope, reason)
            _log.error("dead: it goes to the DLQ", reason=reason)
        return MoveToDlq()

    def _record_dead(
        self, lease: MessageLease, arrived: DecodedMessage | None, reason: str, session: Session, *, is_permanent: bool
    ) -> bool:
        """Record in the inbox that a message is dead; `arrived` is None if it cannot be read.

        Return False if it is not dead: another worker has handled it meanwhile, or set it aside with its group.
        """
        is_dead = True
        if arrived is None:
            self._inbox.record_unreadable(session.connection(), lease.message.message_group_id or "")
        else:
            is_dead = self._inbox.record_dead(session.connection(), arrived, reason, is_permanent=is_permanent)
        lease.check()
        session.commit()
        return is_dead


class LogNames:
    """A block in which each line of the log has values by name; several times as fast as structlog's own block."""

    def __init__(self, **values: object) -> None:
        self._values = values

    def __enter__(self) -> None:
        self._tokens = structlog.contextvars.bind_contextvars(**self._values)

    def __exit__(self, *_: object) -> None:
        structlog.contextvars.reset_contextvars(**self._tokens)


def decode_event(message: ReceivedMessage, event: BundledEvent, position: int | None) -> DecodedMessage:
    """Return an event of a message as the inbox takes it.

    Raises:
        EnvelopeError: it cannot be read, or is of another group.
    """
    envelope = event.envelope
    if envelope is None:
        raise EnvelopeError(event.fault)
    if message.message_group_id not in (None, envelope.event.group):
        raise EnvelopeError(
            f"group is {envelope.event.group!r}, allowed is {message.message_group_id!r}, the group it was sent in"
        )
    return DecodedMessage(
        envelope=envelope,
        body=event.body,
        attributes=message.attributes,
        sqs_message_id=message.sqs_message_id,
        receive_count=message.receive_count,
        position=position,
    )
