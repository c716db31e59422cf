"""The work on the events of a bundle, in order: each with an end of its own, in transactions of their own or together.

The first event that has to come again ends it. What stands in front of that event is settled, and is passed over when
the bundle comes again. With `commits_bundles` its events have one transaction as long as all goes well
([decision 24](docs/decisions/0024-bundles.md)).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

from sqlalchemy.orm import Session

from sluice.messaging.bundle import BundledEvent
from sluice.messaging.database import engines
from sluice.messaging.database.transactions import BegunTransaction, TransactionEndedError
from sluice.messaging.errors import EnvelopeError
from sluice.messaging.handlers import Ack, Reject
from sluice.messaging.inbox.admission import Admission
from sluice.messaging.inbox.groups import DecodedMessage
from sluice.messaging.inbox.pause import RELEASE_SECONDS
from sluice.messaging.inbox.sequence import Action, Decision
from sluice.messaging.sqs.dead_letter_queue import DeadLetterSender
from sluice.messaging.sqs.queue import ReceivedMessage
from sluice.messaging.worker.processing.acknowledgements import Acknowledgement, Delete, MoveToDlq, Release
from sluice.messaging.worker.processing.event_processor import (
    AttemptResult,
    BundleProgress,
    EventProcessor,
    decode_event,
)
from sluice.messaging.worker.processing.handler_runner import HandlerAttempt, TransactionMark
from sluice.messaging.worker.processing.message_lease import MessageLease
from sluice.messaging.worker.processing.transactions import DatabaseAway, TransactionFailedError
from sluice.terminal.logger import Logger

_log = Logger()

Results = dict[int, AttemptResult]
"""Results of events by their position in their bundle."""


class BundleProcessor(EventProcessor):
    """Works on bundles; any number of lanes share one."""

    def _work_on_events(
        self, lease: MessageLease, events: Sequence[BundledEvent], dead_letters: DeadLetterSender
    ) -> Acknowledgement:
        """Work on the events of a message in order; return how it ends: as the first event that has to come again.

        Raises:
            HoldLostError: another consumer may have the message.
        """
        message, progress, results = lease.message, BundleProgress(), Results()
        settled_count, is_together = 0, self._is_together(message)
        try:
            if message.receive_count > 1:
                settled_count = self.transactions.run(lease, partial(self._settled_count, message))
            for position in range(settled_count, len(events)):
                if position not in results:
                    if position > settled_count and self._is_stopped(lease):
                        return self._release_rest(lease, position)
                    if is_together:
                        results = self._work_together(lease, events, position)
                        is_together = position in results and isinstance(results[position].ended, Decision)
                place = position if len(events) > 1 else None
                acknowledgement = self._work_on_event(lease, events[position], place, progress, results.get(position))
                if isinstance(acknowledgement, MoveToDlq):
                    acknowledgement = self._send_to_dlq(lease, events[position], place, dead_letters)
                if not isinstance(acknowledgement, Delete):
                    return acknowledgement
        except DatabaseAway:
            return Release(0)
        except TransactionFailedError as failed:
            _log.error("the bundle comes again", error=str(failed))
            return Release(self._settings.backoff.seconds(message.receive_count, self._rng.random()))
        return Delete()

    def _is_together(self, message: ReceivedMessage) -> bool:
        """Return whether the events of a bundle have one transaction.

        From its second receive on each has its own. An attempt that came to no end is counted at the event that is
        handed to a handler first, and with one transaction that would be a neighbour of the one that ends the process.
        Nothing keeps a connection of somebody else's engine from what an earlier handler left behind. On a standard
        queue nothing says that the events are of one group, whose row is locked.
        """
        is_first = self._settings.commits_bundles and message.receive_count == 1
        return is_first and message.message_group_id is not None and engines.is_made_here(self._engine)

    def _is_stopped(self, lease: MessageLease) -> bool:
        """Return whether the work on a bundle stops; else the lease begins again for the next event.

        It stops with the worker, in a pause, and if a function has no time left for the next event.

        A transaction may be open, so the database is not asked: what another thread has seen of a pause counts.
        """
        self._failpoint("between_events")
        if self._wait.is_stopped() or self._is_paused() or not lease.has_time(self._settings.needed_seconds):
            return True
        lease.begin_again()
        self._give_sign()
        return False

    def _is_paused(self) -> bool:
        """Return whether a thread has seen a pause. A function has none that looks: its mapping is its pause."""
        return self._settings.unfinished_max is None and self._pause.was_paused

    def _release_rest(self, lease: MessageLease, settled_count: int) -> Release:
        """Release a bundle whose first events are settled. During a pause no open poll is to get it at once again."""
        if self._wait.is_stopped() or not self._is_paused():
            return Release(0)
        self.transactions.run(lease, partial(self._settle, lease, settled_count))
        return Release(RELEASE_SECONDS)

    def _work_together(self, lease: MessageLease, events: Sequence[BundledEvent], begin: int) -> Results:
        """Handle events of a bundle in one transaction, and return their results.

        If an event fails, all of it is rolled back, and only the result of that event is returned; if the transaction
        fails, none is. Each event without a result has a transaction of its own then.

        Raises:
            HoldLostError, DatabaseAway: as in the transaction of one event; nothing was committed.
        """
        results = Results()
        try:
            self.transactions.run(lease, partial(self._transact_together, lease, events, begin, results, count(1)))
        except TransactionEndedError as committed:
            position, last = results.popitem()
            return {position: AttemptResult(last.begun_at_us, Reject(str(committed)))}
        except TransactionFailedError as failed:
            _log.warning("each event of the bundle has a transaction of its own now", error=str(failed))
            return {}
        return results

    def _transact_together(
        self,
        lease: MessageLease,
        events: Sequence[BundledEvent],
        begin: int,
        results: Results,
        tries: Iterator[int],
        session: Session,
    ) -> None:
        """Write the results of events that were committed together into `results`, or that of the one that failed."""
        if next(tries) > 1:  # the transaction has failed, and others of the database work
            results.clear()
            return
        shared: BegunTransaction | None = None
        before: Admission | None = None
        try:
            for position, arrived in self._arrivals(lease, events, begin):
                begun_at_us = self._clock.now_us()
                admission = self._inbox.admit_next(session.connection(), arrived, before)
                decision = admission.decision
                if decision.action not in (Action.HANDLE, Action.PARK, Action.DROP):
                    break
                results[position] = AttemptResult(begun_at_us, decision)
                before = admission if decision.action is Action.HANDLE else None
                if before is None:
                    continue
                self._failpoint("in_transaction")
                lease.check()
                shared = shared or _share(session, self._mark_of(arrived, admission))
                attempt = HandlerAttempt(
                    session=session,
                    envelope=arrived.envelope,
                    context=self._context(lease, arrived, decision),
                    admit=partial(self._mark_of, arrived, admission),
                    before_commit="before_commit",
                    shared=shared,
                )
                outcome = self._runner.run(attempt)
                if not isinstance(outcome, Ack):
                    results.clear()
                    # It may be due to what another handler left behind.
                    results |= {} if shared.has_refused_others else {position: AttemptResult(begun_at_us, outcome)}
                if not isinstance(outcome, Ack) or shared.has_committed:
                    return
            lease.check()
            if shared is None:
                session.commit()
            elif not isinstance(self._runner.commit(shared, lease), Ack):
                results.clear()
        finally:
            if shared is not None:
                shared.release()

    def _arrivals(
        self, lease: MessageLease, events: Sequence[BundledEvent], begin: int
    ) -> Iterator[tuple[int, DecodedMessage]]:
        """Yield events with their position, until one cannot be read or the worker stops."""
        for position in range(begin, len(events)):
            if position > begin and self._is_stopped(lease):
                return
            try:
                arrived = decode_event(lease.message, events[position], position)
            except EnvelopeError:
                return
            yield position, arrived

    def _settled_count(self, message: ReceivedMessage, session: Session) -> int:
        return self._inbox.attempts.settled_count(session.connection(), message)

    def _send_to_dlq(
        self, lease: MessageLease, event: BundledEvent, position: int | None, dead_letters: DeadLetterSender
    ) -> Acknowledgement:
        """Send a dead event to the DLQ, in a message of its own, and record that its bundle goes on without it.

        If the process ends in between, the dead letter is sent again: within five minutes SQS takes both for one.
        """
        message = lease.message
        lease.check()
        self._failpoint("before_dead_letter")
        id_ = message.sqs_message_id if position is None else f"{message.sqs_message_id}.{position}"
        if not dead_letters.send(message, body=event.body, deduplication_id=id_):
            return Release(self._settings.backoff.seconds(message.receive_count, self._rng.random()))
        self._failpoint("after_dead_letter")
        self.transactions.run(lease, partial(self._settle, lease, (position or 0) + 1))
        return Delete()

    def _settle(self, lease: MessageLease, settled_count: int, session: Session) -> None:
        self._inbox.attempts.settle(session.connection(), lease.message, settled_count)
        lease.check()
        session.commit()


def _share(session: Session, mark: TransactionMark) -> BegunTransaction:
    """Return the transaction that a mark belongs to, guarded for the handlers that share it."""
    shared = BegunTransaction(session, mark.transaction_id, mark.was_committed)
    shared.guard(is_shared=True)
    return shared
