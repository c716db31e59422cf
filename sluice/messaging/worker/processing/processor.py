"""The processing of one received message, from receive to delete.

    received ─► decoded ─► one transaction: inbox, handler, its events in the outbox ─► committed ─► deleted

A message ends in one of four ways: it is deleted; it is released, to be delivered again later; it is dead; or another
consumer may have it, and nothing is changed. A message that must not be delivered again (refused, undecodable, or
failed at its last attempt) is recorded as dead first. Then a worker, whose queue counts the attempts, releases it at
each receive until the queue moves it to the DLQ, at the receive after the last allowed one. In a Lambda function a
receive is not always an attempt: there the inbox counts the attempts, and the function sends a dead message to the DLQ.

A bundle has many events and one receive count. Each event is worked on as if it had come alone, with a transaction,
attempts and an end of its own: a dead event is sent to the DLQ alone, and the next one goes on. When an event fails,
the bundle is released from there: the events in front of it are settled, and are passed over when the bundle comes
again ([decision 24](docs/decisions/0024-bundles.md)).
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sluice.clock import Clock
from sluice.messaging.bundle import BundledEvent, read_body
from sluice.messaging.errors import EnvelopeError, HoldLostError, TransientError
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.sqs.dead_letter_queue import DeadLetterSender
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.waiting import Wait
from sluice.messaging.worker.hooks import WorkerHookSet
from sluice.messaging.worker.processing.acknowledgements import (
    Acknowledgement,
    Delete,
    MoveToDlq,
    Release,
)
from sluice.messaging.worker.processing.deleter import SETTLE_TRIES, Deleter
from sluice.messaging.worker.processing.event_processor import BundleProgress, EventProcessor, LogNames
from sluice.messaging.worker.processing.group_locks import GroupLocks
from sluice.messaging.worker.processing.handler_runner import HandlerRunner
from sluice.messaging.worker.processing.message_lease import Heartbeat, MessageLease
from sluice.messaging.worker.processing.transactions import DatabaseAway, TransactionFailedError
from sluice.messaging.worker.settings import ProcessorSettings
from sluice.terminal.logger import Logger

_log = Logger()


class MessageProcessor(EventProcessor):
    """Works on received messages; any number of lanes share one."""

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        inbox: Inbox,
        runner: HandlerRunner,
        heartbeat: Heartbeat,
        deleter: Deleter,
        *,
        settings: ProcessorSettings,
        wait: Wait,
        clock: Clock,
        rng: random.Random,
        hooks: WorkerHookSet,
        give_sign: Callable[[], None],
    ) -> None:
        super().__init__(
            engine, inbox, runner, settings=settings, wait=wait, clock=clock, rng=rng, hooks=hooks, give_sign=give_sign
        )
        self._queue, self._heartbeat, self._deleter = queue, heartbeat, deleter
        self._groups, self._dead_letters = GroupLocks(), DeadLetterSender(queue)
        self.is_ordered, self.connections_max = settings.is_ordered, settings.database_connections
        self.has_bundles = settings.has_bundles

    def process(self, message: ReceivedMessage, *, requested_at: float | None = None) -> Acknowledgement:
        """Work on a message, and return the way in which it ended.

        Args:
            message: the message as it was received.
            requested_at: when its receive began, by the clock; None is now.
        """
        lease = MessageLease(
            message,
            clock=self._clock,
            timeout_seconds=self._settings.timeout_seconds,
            seconds_max=self._settings.hold_seconds_max,
            requested_at=requested_at,
        )
        group_id = message.message_group_id if self.is_ordered else None
        with (
            _naming(message),
            self._heartbeat.keeping(lease),
            self._groups.alone(group_id or message.sqs_message_id, lease, self._wait) as is_alone,
        ):
            try:
                acknowledgement = self._decide(lease, self._dead_letters) if is_alone else self._give_way(lease)
            except HoldLostError as lost:
                acknowledgement = self._abandon(lease, lost)
            self._acknowledge(lease, acknowledgement)
        return acknowledgement

    def decide(self, lease: MessageLease, dead_letters: DeadLetterSender) -> Acknowledgement:
        """Work on a message, and return how it ends; the caller acknowledges it.

        Nothing extends the lease, and no other thread of this process works on the group of the message.

        Args:
            lease: of the message.
            dead_letters: sends dead events of a bundle.
        """
        with _naming(lease.message):
            try:
                return self._decide(lease, dead_letters)
            except HoldLostError as lost:
                return self._abandon(lease, lost)

    def _give_way(self, lease: MessageLease) -> Acknowledgement:
        """End a message whose group is still worked on: release it if the worker stops.

        Raises:
            HoldLostError: the worker does not stop, and the other handler did not end in time.
        """
        if self._wait.is_stopped():
            return Release(0)
        raise HoldLostError(f"another handler of group {lease.message.message_group_id} did not end in time")

    def _decide(self, lease: MessageLease, dead_letters: DeadLetterSender) -> Acknowledgement:
        """Return how a message is to end, after all that leads there was done."""
        self._failpoint("after_receive")
        lease.check()
        body = lease.message.body
        try:
            events = read_body(body)
        except EnvelopeError as error:
            events = (BundledEvent(body, None, str(error)),)
        if len(events) > 1 or self._settings.has_bundles:
            return self._work_on_events(lease, events, dead_letters)
        return self._work_on_event(lease, events[0])

    def _work_on_events(
        self, lease: MessageLease, events: Sequence[BundledEvent], dead_letters: DeadLetterSender
    ) -> Acknowledgement:
        """Work on the events of a message in order; return how it ends: as the first event that has to come again.

        Raises:
            HoldLostError: another consumer may have the message.
        """
        message, progress = lease.message, BundleProgress()
        settled_count = 0
        try:
            if message.receive_count > 1:
                settled_count = self.transactions.run(lease, partial(self._settled_count, message))
            for position in range(settled_count, len(events)):
                if position > settled_count:
                    self._failpoint("between_events")
                    if self._wait.is_stopped():
                        return Release(0)
                    lease.begin_again()
                    self._give_sign()
                place = position if len(events) > 1 else None
                acknowledgement = self._work_on_event(lease, events[position], place, progress)
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

    def _acknowledge(self, lease: MessageLease, acknowledgement: Acknowledgement) -> None:
        """End the lease of a message, then delete the message or release it."""
        lease.finish()
        match acknowledgement:
            case Delete():
                self._failpoint("before_delete")
                self._deleter.delete(lease.message)
            case Release(delay_seconds):
                self._failpoint("before_release")
                seconds = min(math.ceil(delay_seconds), lease.delay_seconds_max)
                self._release(lease.message.receipt_handle, seconds)
            case MoveToDlq():  # the queue moves it to the DLQ at the next receive
                self._failpoint("before_release")
                self._release(lease.message.receipt_handle, 0)

    def _release(self, receipt_handle: str, seconds: int) -> None:
        """Release a message: it is received again after `seconds`.

        If the queue is unreachable, try a few times, even while the worker stops. If each try fails, the message comes
        again when its visibility timeout ends.
        """
        warning = "not given back: it comes again when its visibility timeout ends"
        for tries in range(1, SETTLE_TRIES + 1):
            try:
                self._queue.release(receipt_handle, seconds)
            except HoldLostError as error:
                _log.warning(warning, error=str(error))
                return
            except TransientError as error:
                _log.warning(warning, error=str(error), tries=tries)
                if tries < SETTLE_TRIES:
                    self._wait.wait(self._settings.database_backoff.seconds(tries, self._rng.random()))
            else:
                return


def _naming(message: ReceivedMessage) -> LogNames:
    """Return the block in which each line of the log names a message."""
    return LogNames(
        group=message.message_group_id, sqs_message_id=message.sqs_message_id, attempt=message.receive_count
    )
