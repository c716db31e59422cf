"""The drainer handles parked messages of each group in order. Every worker drains, several groups at once.

A group's row is locked before the handler is called, and until its commit; a drainer that finds the row locked goes on
with another group. A handler that does not end delays its own group only. A message that fails is tried again with
backoff. When its attempts are used up, it is held together with its group until an operator retries, replaces or skips
it: a parked message is in no queue any more, so it cannot go to a DLQ.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sluice.clock import Clock
from sluice.messaging.database.transactions import MessageSessions, close_session
from sluice.messaging.errors import HoldLostError
from sluice.messaging.handlers import Ack, Context, Outcome, Reject, Retry
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.parking import ParkedMessage
from sluice.messaging.inbox.pause import LOOK_SECONDS, PauseWatch
from sluice.messaging.worker.hooks import WorkerHooks, WorkerHookSet
from sluice.messaging.worker.processing.handler_runner import (
    DatabaseFailedError,
    HandlerAttempt,
    HandlerRunner,
    TransactionMark,
)
from sluice.messaging.worker.processing.transactions import is_away, reason_of
from sluice.messaging.worker.settings import ProcessorSettings
from sluice.messaging.worker.signs import Signs
from sluice.terminal.logger import Logger
from sluice.terminal.printable import printable

_log = Logger()
_IN_A_ROW_MAX = 1_000  # messages of one group; after these a drainer goes on with another group


class DrainLease:
    """One attempt at a parked message. Its handler has as much time as a handler on a lane.

    Args:
        seconds_max: the attempt is given up after this time.
    """

    def __init__(self, message: ParkedMessage, *, clock: Clock, seconds_max: float, shutdown: threading.Event) -> None:
        self.message = message
        self._clock, self._seconds_max, self._shutdown = clock, seconds_max, shutdown
        self._gives_up_at = clock.monotonic() + seconds_max

    def check(self) -> None:
        """Return if the effect may be committed.

        Raises:
            HoldLostError: the worker ends, or the time of the attempt is over.
        """
        if self._shutdown.is_set():
            raise HoldLostError("the worker ends")
        if self.overdue_seconds() >= 0:
            raise HoldLostError(f"its handler took longer than {self._seconds_max:g} s, allowed is less")

    def remaining_seconds(self) -> float:
        """Return for how long the effect may still be committed."""
        return 0.0 if self._shutdown.is_set() else max(0.0, -self.overdue_seconds())

    def overdue_seconds(self) -> float:
        """Return for how long the time of the attempt has been over; negative before its end."""
        return self._clock.monotonic() - self._gives_up_at


class Drainer:
    """Handles parked messages that are due. Any number of threads use it, each on a group of its own at a time.

    Args:
        signs: receives a sign of life for each message, because one step may handle many.
    """

    def __init__(
        self,
        engine: Engine,
        inbox: Inbox,
        runner: HandlerRunner,
        *,
        settings: ProcessorSettings,
        clock: Clock,
        rng: random.Random,
        hooks: WorkerHookSet,
        shutdown: threading.Event,
        signs: Signs,
        pause: PauseWatch,
    ) -> None:
        self._engine, self._inbox, self._runner, self._settings = engine, inbox, runner, settings
        self._clock, self._rng, self._hooks, self._shutdown = clock, rng, hooks, shutdown
        self._signs, self._pause, self._sessions = signs, pause, MessageSessions(engine)
        self._lock = threading.Lock()
        self._claimed: set[str] = set()
        self._uncancelled: dict[str, ParkedMessage] = {}  # by group: attempts that the database did not cancel yet
        self._leases: list[DrainLease] = []

    def step(self, *, begins_until: float = inf) -> int:
        """Drain every group that is due now, one after the other, and return how many messages were handled.

        Args:
            begins_until: no attempt begins after this instant, by the clock.
        """
        handled = 0
        for group_id in self.claim():
            try:
                handled += self.drain(group_id, begins_until=begins_until)
            except Exception:  # the group stays due; the others are claimed, and each has to be drained
                _log.exception("what was set aside was not handled", group=group_id)
        return handled

    def claim(self) -> list[str]:
        """Claim the groups with due messages that no other thread of this process has claimed, and return them.

        The caller has to drain each returned group. If the database is away or the consumer is paused, no group is
        returned, and the caller claims again later.
        """
        if self._pause.is_paused(after_seconds=LOOK_SECONDS):
            return []
        try:
            due = self._inbox.due(self._engine)
        except DBAPIError as error:
            _log.error("the database refused", error=printable(error.orig))
            return []
        with self._lock:
            found = [group_id for group_id in due if group_id not in self._claimed]
            self._claimed.update(found)
        return found

    def drain(self, group_id: str, *, begins_until: float = inf) -> int:
        """Handle the due messages of a claimed group, one after the other, and return how many were handled."""
        try:
            with suppress(HoldLostError), structlog.contextvars.bound_contextvars(group=group_id):
                return self._drain(group_id, begins_until)
        except (DBAPIError, DatabaseFailedError) as error:
            _log.error("the database refused", group=group_id, error=reason_of(error))
        finally:
            with self._lock:
                self._claimed.discard(group_id)
        return 0

    def leases(self) -> list[DrainLease]:
        """Return the attempts that are under way."""
        with self._lock:
            return list(self._leases)

    def _drain(self, group_id: str, begins_until: float) -> int:
        handled = 0
        while handled < _IN_A_ROW_MAX and not (self._shutdown.is_set() or self._pause.is_paused()):
            if self._clock.monotonic() > begins_until or not self._handle_next(group_id):
                break
            handled += 1
        return handled

    def _handle_next(self, group_id: str) -> bool:
        uncancelled = self._uncancelled.pop(group_id, None)
        if uncancelled is not None and not self._cancel_attempt(uncancelled):
            return False
        with self._engine.begin() as connection:
            begun = self._inbox.begin_attempt(connection, group_id, attempts_max=self._settings.max_attempts)
        if begun is None:
            return False
        with self._sessions.open() as session:
            message = self._lock_begun(session, group_id, begun)
            if message is None:
                return False
            self._runner.failpoint("in_drain")
            with self._leasing(message) as lease:
                context = self._context(message, lease)
                self._signs.expect_end_of_work()
                outcome = self._perform(session, message, context)
        log_fields = {"seq": message.envelope.seq, "event_id": message.envelope.event.id, "attempt": context.attempt}
        if isinstance(outcome, Ack):
            self._runner.failpoint("after_drain_commit")
            self._hooks.call(WorkerHooks.after_drain, message.envelope)
            _log.info("handled after it was set aside", **log_fields)
            return True
        self._put_back(message, context, outcome)
        return False

    def _lock_begun(self, session: Session, group_id: str, begun: ParkedMessage) -> ParkedMessage | None:
        """Lock the group in the handler's transaction, and return the message whose attempt was begun before it.

        None if another worker has dealt with the message meanwhile; then the attempt is cancelled.

        Raises:
            DBAPIError: the database is away; the attempt is cancelled.
        """
        try:
            message = self._inbox.lock_next_parked(session.connection(), group_id)
            if message is not None and _place(message) == _place(begun):
                self._inbox.hold_while_handled(session.connection(), message)
                return message
            session.commit()
        except DBAPIError:
            session.rollback()
            self._cancel_attempt(begun)
            raise
        self._cancel_attempt(begun)
        return None

    def _perform(self, session: Session, message: ParkedMessage, context: Context) -> Outcome:
        """Return the outcome of the attempt; its transaction has ended.

        Raises:
            HoldLostError: the worker ends; the attempt does not count.
            DatabaseFailedError: the database is away; the attempt does not count.
        """
        try:
            attempt = HandlerAttempt(
                session=session,
                envelope=message.envelope,
                context=context,
                admit=lambda: TransactionMark(
                    partial(self._inbox.mark_parked, message=message),
                    None if message.lock is None else message.lock.transaction_id,
                ),
                before_commit="before_drain_commit",
            )
            return self._runner.run(attempt)
        except HoldLostError as lost:
            close_session(session)
            if self._shutdown.is_set():
                self._cancel_attempt(message)
                raise
            return Retry(reason=str(lost))
        except DatabaseFailedError as error:
            close_session(session)
            if is_away(self._engine, self._inbox, error):
                self._cancel_attempt(message)
                raise
            return Retry(reason=reason_of(error))

    @contextmanager
    def _leasing(self, message: ParkedMessage) -> Iterator[DrainLease]:
        seconds_max = self._settings.hold_seconds_max
        lease = DrainLease(message, clock=self._clock, seconds_max=seconds_max, shutdown=self._shutdown)
        with self._lock:
            self._leases.append(lease)
        try:
            yield lease
        finally:
            with self._lock:
                self._leases.remove(lease)

    def _context(self, message: ParkedMessage, lease: DrainLease) -> Context:
        return Context(
            event=message.envelope.event,
            consumer=self._settings.consumer,
            seq=message.envelope.seq,
            epoch=message.envelope.epoch,
            attempt=message.attempts,
            is_last_attempt=message.attempts >= self._settings.max_attempts,
            is_late=False,
            attributes=message.attributes,
            hold=lease,
        )

    def _cancel_attempt(self, message: ParkedMessage) -> bool:
        """Cancel an attempt that was counted and not made; return whether the database did so.

        If not, it is cancelled before the group's next attempt.
        """
        try:
            with self._engine.begin() as connection:
                self._inbox.cancel_attempt(connection, message)
        except DBAPIError as error:
            self._uncancelled[message.envelope.event.group] = message
            _log.warning(
                "an attempt that was not made still counts, until the database is back", error=reason_of(error)
            )
            return False
        return True

    def _put_back(self, message: ParkedMessage, context: Context, outcome: Retry | Reject) -> None:
        """Leave a message parked that was not handled: for a later attempt, or held for an operator."""
        is_held = isinstance(outcome, Reject) or context.is_last_attempt
        delay = outcome.delay_seconds if isinstance(outcome, Retry) else 0.0
        if delay is None:
            delay = self._settings.backoff.seconds(context.attempt, self._rng.random())
        with self._engine.begin() as connection:
            delay_us = round(delay * 1_000_000)
            self._inbox.retry_parked(connection, message, reason=outcome.reason, delay_us=delay_us, is_held=is_held)
        event = WorkerHooks.dead_lettered if is_held else WorkerHooks.before_retry
        self._hooks.call(event, message.envelope, outcome.reason)
        log_fields = {"seq": message.envelope.seq, "event_id": message.envelope.event.id, "reason": outcome.reason}
        if is_held:
            _log.error("held: its group waits for an operator; see `dlq ls`", **log_fields)
        else:
            _log.info("not handled, and tried again", **log_fields, delay_seconds=round(delay, 1))


def _place(message: ParkedMessage) -> tuple[int, int, int]:
    """Return epoch, number and attempt of a message, which identify the attempt within its group."""
    return message.envelope.epoch, message.envelope.seq, message.attempts
