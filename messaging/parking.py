"""Messages that were set aside, taken up again in order: by every worker, one group at a time.

The group's row is locked from taking a message up to its commit, and whoever finds it locked goes on with another. A
message that fails is tried again with backoff; with its attempts used up it is held, and its group with it, until an
operator retries, replaces or skips it: it is not in the queue any more, so no DLQ can take it.
"""

import random
from contextlib import suppress

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from messaging import databases
from messaging.errors import HoldLost
from messaging.handlers import Ack, Context, Reject, Retry
from messaging.inbox import Inbox, ParkedMessage
from messaging.performing import Performer
from messaging.tally import Tally
from messaging.work import WorkSettings
from sluice import metrics

_log = structlog.get_logger()
_IN_A_ROW_MAX = 1_000


class Kept:
    """What stands for a hold where there is no message in a queue: ours until the worker has to end."""

    def __init__(self) -> None:
        self._is_lost = False

    def lose(self) -> None:
        """Let no commit begin any more."""
        self._is_lost = True

    def check(self) -> None:
        """Do nothing until the worker has to end.

        Raises:
            HoldLost: it has to.
        """
        if self._is_lost:
            raise HoldLost("the worker ends")

    def remaining_seconds(self) -> float:
        """Return that there is no telling."""
        return 0.0 if self._is_lost else float("inf")


class Drainer:
    """Handles parked messages whose turn has come. Runs on one thread, `step` by `step`.

    Args:
        engine: of the consumer's database.
        inbox: the consumer's.
        performer: calls the handlers.
        settings: how it is done.
        chance: for the jitter; a seeded one in tests.
        tally: counts what happens.
        kept: ends it.
    """

    def __init__(
        self,
        engine: Engine,
        inbox: Inbox,
        performer: Performer,
        *,
        settings: WorkSettings,
        chance: random.Random,
        tally: Tally,
        kept: Kept,
    ) -> None:
        self._engine, self._inbox, self._performer, self._settings = engine, inbox, performer, settings
        self._chance, self._tally, self._kept = chance, tally, kept

    def step(self) -> int:
        """Handle what can be handled now, and return how many messages were.

        A database that is away is no error: there is another step.
        """
        handled = 0
        with suppress(HoldLost):
            for group_id in self._due():
                try:
                    handled += self._drain(group_id)
                except DBAPIError as error:  # the groups behind it need not wait
                    _log.error("the database does not do it", group=group_id, error=str(error.orig).strip())
        return handled

    def _due(self) -> list[str]:
        try:
            return self._inbox.due(self._engine)
        except DBAPIError as error:
            _log.error("the database does not do it", error=str(error.orig).strip())
            return []

    def _drain(self, group_id: str) -> int:
        with structlog.contextvars.bound_contextvars(group=group_id):
            for handled in range(_IN_A_ROW_MAX):
                self._kept.check()
                if not self._handle_next(group_id):
                    return handled
        return _IN_A_ROW_MAX

    def _handle_next(self, group_id: str) -> bool:
        with self._engine.begin() as connection:
            if not self._inbox.begin_attempt(connection, group_id, attempts_max=self._settings.max_attempts):
                return False
        with Session(self._engine) as session:
            message = self._inbox.next_parked(session.connection(), group_id)
            if message is None:
                session.commit()
                return False
            self._performer.failpoint("in_drain")
            context = self._context(message)
            try:
                outcome = self._performer.perform(
                    session, message.envelope, context, self._kept, before_commit="before_drain_commit"
                )
            except HoldLost:
                session.rollback()
                self._end_attempt(message)
                raise
            except DBAPIError as error:
                session.rollback()
                if self._is_database_away():
                    self._end_attempt(message)
                    raise
                outcome = Retry(reason=str(error.orig).strip())
        told = {"seq": message.envelope.seq, "event_id": message.envelope.event.id, "attempt": context.attempt}
        if isinstance(outcome, Ack):
            self._performer.failpoint("after_drain_commit")
            self._tally.add(metrics.HANDLED)
            _log.info("handled after it was set aside", **told)
            return True
        self._put_back(message, context, outcome)
        return False

    def _context(self, message: ParkedMessage) -> Context:
        return Context(
            consumer=self._settings.consumer,
            seq=message.envelope.seq,
            epoch=message.envelope.epoch,
            attempt=message.attempts,
            is_last_attempt=message.attempts >= self._settings.max_attempts,
            is_late=False,
            attributes=message.attributes,
            hold=self._kept,
        )

    def _is_database_away(self) -> bool:
        try:
            with databases.reading(self._engine):
                return False
        except DBAPIError:
            return True

    def _end_attempt(self, message: ParkedMessage) -> None:
        with suppress(DBAPIError), self._engine.begin() as connection:  # else it counts: there is nobody to tell
            self._inbox.end_attempt(connection, message)

    def _put_back(self, message: ParkedMessage, context: Context, outcome: Retry | Reject) -> None:
        is_held = isinstance(outcome, Reject) or context.is_last_attempt
        delay = outcome.delay_seconds if isinstance(outcome, Retry) else 0.0
        if delay is None:
            delay = self._settings.backoff.seconds(context.attempt, self._chance.random())
        with self._engine.begin() as connection:
            delay_us = round(delay * 1_000_000)
            self._inbox.retry_parked(connection, message, reason=outcome.reason, delay_us=delay_us, is_held=is_held)
        self._tally.add(metrics.DEAD if is_held else metrics.RETRIED)
        told = {"seq": message.envelope.seq, "event_id": message.envelope.event.id, "reason": outcome.reason}
        if is_held:
            _log.error("held: its group waits for an operator; see `dlq ls`", **told)
        else:
            _log.info("not handled, and tried again", **told, delay_seconds=round(delay, 1))
