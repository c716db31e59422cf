"""The processing of one received message, from receive to delete.

    received ─► decoded ─► one transaction: inbox, handler, its events in the outbox ─► committed ─► deleted

A message ends in one of four ways: it is deleted; it is released, to be delivered again later; it is dead; or another
consumer may have it, and nothing is changed. A message that must not be delivered again (refused, undecodable, or
failed at its last attempt) is recorded as dead first. Then a worker, whose queue counts the attempts, releases it at
each receive until the queue moves it to the DLQ, at the receive after the last allowed one. In a Lambda function a
receive is not always an attempt: there the inbox counts the attempts, and the function sends a dead message to the DLQ.

A bundle has many events and one receive count: `bundle_processor`.
"""

import math
import random
from collections.abc import Callable

from sqlalchemy import Engine

from sluice.clock import Clock
from sluice.messaging.bundle import BundledEvent, read_body
from sluice.messaging.errors import EnvelopeError, HoldLostError, TransientError
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.pause import PauseWatch
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
from sluice.messaging.worker.processing.bundle_processor import BundleProcessor
from sluice.messaging.worker.processing.deleter import SETTLE_TRIES, Deleter
from sluice.messaging.worker.processing.event_processor import LogNames
from sluice.messaging.worker.processing.group_locks import GroupLocks
from sluice.messaging.worker.processing.handler_runner import HandlerRunner
from sluice.messaging.worker.processing.message_lease import Heartbeat, MessageLease
from sluice.messaging.worker.settings import ProcessorSettings
from sluice.terminal.logger import Logger

_log = Logger()


class MessageProcessor(BundleProcessor):
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
        pause: PauseWatch,
    ) -> None:
        super().__init__(
            engine,
            inbox,
            runner,
            settings=settings,
            wait=wait,
            clock=clock,
            rng=rng,
            hooks=hooks,
            give_sign=give_sign,
            pause=pause,
        )
        self._queue, self._heartbeat, self._deleter = queue, heartbeat, deleter
        self._groups, self._dead_letters = GroupLocks(), DeadLetterSender(queue)
        self.is_ordered, self.connections_max = settings.is_ordered, settings.database_connections

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
