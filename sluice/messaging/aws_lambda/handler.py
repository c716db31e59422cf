"""The handler of a Lambda function: it works on the messages of a batch as a worker does, and answers what failed.

    from sluice.messaging import lambda_handler

    handler = lambda_handler(Consumer(name="billing", handlers="orders.billing", runtime=Lambda()))

Each message has the inbox, the sequence of its group and its handler in one transaction, by the worker's own
`MessageProcessor`. What differs from a worker:

- The mapping receives and deletes. Each group is worked on in order; from its first failure on, all its messages are
  reported and come again. Another group's messages go on.
- A receive is no attempt, because pollers receive what no handler gets: the inbox counts the attempts that failed.
- A dead message is recorded in the inbox, sent to the DLQ under its SQS message id as deduplication id, and deleted.
  Whoever dies in between leaves a message that comes again, is known to be dead, and is sent again: within five minutes
  SQS takes both for one; afterwards the DLQ has two, of which a redrive handles one.
- No lease is extended: the visibility timeout is at least six times the function's timeout. Nothing is committed in
  the last second of an invocation, or in the last tenth of a short one.
- A message is begun while there is time for it: an invocation's first one always, others with `processing_seconds`
  left. One whose handler may end the process, or a parked one, needs half of an invocation: its end would count.

What fails of the database is waited for until then, and counts as no attempt. A connection that a freeze has made stale
is found before its first statement, and replaced.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Unpack

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sluice import limits
from sluice.clock import Clock, SystemClock
from sluice.declaration import Consumer, Lambda
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.fields.functions import SCHEDULED_EVENT
from sluice.errors import ConfigError
from sluice.messaging.aws_lambda.batch import Batch, read_batch
from sluice.messaging.database import connections, engines
from sluice.messaging.database.rotation import runtime_engine
from sluice.messaging.errors import HoldLostError, TransientError
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.liveness import Liveness, process_name
from sluice.messaging.sqs import queue as queues
from sluice.messaging.sqs.dead_letter_queue import DeadLetterSender
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.worker.build import Options, assemble_worker
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.preflight import faults
from sluice.messaging.worker.processing.acknowledgements import Abandon, Acknowledgement, Delete, MoveToDlq, Release
from sluice.messaging.worker.processing.message_lease import MessageLease, margin_seconds
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.messaging.worker.signs import Signs
from sluice.messaging.worker.worker import Worker
from sluice.terminal.logger import Logger

_log = Logger()
_CALL_SECONDS = 5.0
"""A call of SQS that takes longer has failed: an invocation waits for it."""


class InvocationContext(Protocol):
    """The part of Lambda's context that is used.

    https://docs.aws.amazon.com/lambda/latest/dg/python-context.html (read 2026-11-27)
    """

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds that are left until Lambda ends the process."""


@check_argument_types
def lambda_handler(
    consumer: Consumer,
    *,
    handlers: Handlers | None = None,
    database: Engine | str | None = None,
    sqs: Any = None,
    bundle_events_max: int = 1,
    **options: Unpack[Options],
) -> "LambdaHandler":
    """Return the handler of a Lambda function for a consumer whose `runtime` is one.

    Args:
        consumer: its declaration.
        handlers: what is done with its events; None are those of the module it declares.
        database: URL of the one with the inbox's tables; an engine, which is used as it is; None is what the variables
            of `database_engine` name.
        sqs: a client that does not retry by itself; None makes one.
        bundle_events_max: as the consumer's topic declares it.
        options: of `assemble_worker`.

    Raises:
        ConfigError: a value cannot be right, or there are no such handlers.
    """
    function = function_of(consumer)
    if handlers is None:
        assert consumer.handlers is not None, "with a runtime they are declared"
        handlers = Handlers.load(consumer.handlers)
    settings = ProcessorSettings.of_function(consumer, function, bundle_events_max=bundle_events_max)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if not isinstance(database, Engine):
        database = runtime_engine(region, database)
        connections.end_waits(database, settings.hold_seconds_max)
    if sqs is None:
        sqs = queues.client(None, region, connections=1, answer_seconds=_CALL_SECONDS)
    clock = options.get("clock") or SystemClock()
    worker = assemble_worker(
        queue=Queue(sqs, consumer.name),  # which no part that is used here calls: the mapping receives and deletes
        engine=database,
        handlers=handlers if consumer.types is None else handlers.of_consumer(consumer),
        inbox=Inbox(InboxPolicy.of_consumer(consumer), clock=options.get("clock"), worker=process_name()),
        settings=WorkerSettings.of_consumer(consumer, lanes=1),
        processor_settings=settings,
        signs=Signs(Liveness(clock)),  # without deadlines: a freeze may take as long as it wants
        **options,
    )
    return LambdaHandler(worker, consumer, function, sqs=sqs, clock=clock)


def function_of(consumer: Consumer) -> Lambda:
    """Return the function that a consumer declares.

    Raises:
        ConfigError: it declares none.
    """
    if consumer.runtime is None:
        raise ConfigError(
            f"Consumer({consumer.name!r}).runtime is None, allowed is Lambda(…) where a function runs its handlers;"
            " declare it, or run `sluice worker`"
        )
    return consumer.runtime


class LambdaHandler:
    """Works on the events of a Lambda function, one invocation at a time.

    Args:
        worker: whose parts work on each message; it is not run.
        sqs: a client that does not retry by itself.
    """

    def __init__(self, worker: Worker, consumer: Consumer, function: Lambda, *, sqs: Any, clock: Clock) -> None:
        self.worker, self._consumer = worker, consumer
        self._sqs, self._clock = sqs, clock
        self._timeout_seconds = float(function.timeout_seconds)
        self._margin_seconds = margin_seconds(function.timeout_seconds)
        self._needed_seconds = consumer.processing_seconds + self._margin_seconds
        self._half_seconds = max(self._needed_seconds, function.timeout_seconds / 2)
        self._queues: dict[str, FunctionQueues] = {}

    def __call__(self, event: object, context: InvocationContext) -> dict[str, Any]:
        """Work on an event; return which of its messages have to come again.

        Raises:
            ConfigError: the event is neither a batch of SQS messages nor the schedule's.
        """
        ends_at = self._clock.monotonic() + context.get_remaining_time_in_millis() / 1_000
        is_scheduled = event == SCHEDULED_EVENT
        try:
            return self._maintain(ends_at) if is_scheduled else self._work(read_batch(event), ends_at)
        finally:
            gauges = self.worker if is_scheduled else None
            seconds_max = max(0.0, ends_at - self._clock.monotonic() - self._margin_seconds / 2)
            self.worker.parts.hooks.call(WorkerHooks.after_invocation, gauges, seconds_max)

    def _work(self, batch: Batch, ends_at: float) -> dict[str, Any]:
        self.worker.parts.hooks.call(WorkerHooks.before_invocation, batch.messages)
        found = self.queues_of(batch.queue_name)
        failed_ids: set[str] = set()
        suspects = self._suspects(batch)
        groups, needs = batch.groups(suspects), dict.fromkeys(suspects, self._half_seconds)
        needs[groups[0][0].sqs_message_id] = 0.0
        for group in groups:
            failed_ids |= self._work_on_group(group, found, ends_at, needs)
        return batch.answer(failed_ids)

    def queues_of(self, queue_name: str) -> "FunctionQueues":
        """Return the queue of that name and its DLQ; they are asked for once.

        Raises:
            EndpointError: there is no such queue.
            TransientError: the queue could not be asked.
        """
        if queue_name not in self._queues:
            self._queues[queue_name] = FunctionQueues(self._sqs, queue_name, self._consumer)
        return self._queues[queue_name]

    def _suspects(self, batch: Batch) -> frozenset[str]:
        """Return the messages whose handler may end the process; none where the database does not answer."""
        repeated_ids = batch.repeated_ids()
        if not repeated_ids:
            return frozenset()
        parts = self.worker.parts
        try:
            with engines.reading(parts.engine) as connection:
                return parts.inbox.attempts.suspects(connection, repeated_ids)
        except DBAPIError:
            return frozenset()

    def _work_on_group(
        self, group: Sequence[ReceivedMessage], found: "FunctionQueues", ends_at: float, needs: Mapping[str, float]
    ) -> set[str]:
        """Work on a group's messages in order, and return the ids of its first failure and of all behind it.

        A message is left alone with less time than it has in `needs`, or any other needs.
        """
        for position, message in enumerate(group):
            left = group[position:]
            needed_seconds = needs.get(message.sqs_message_id, self._needed_seconds)
            match self._settle(message, found, ends_at, needed_seconds):
                case Delete():
                    continue
                case MoveToDlq() if found.move_to_dlq(message):
                    continue
                case Release(delay_seconds):
                    found.hide(left, math.ceil(delay_seconds))
            return {message.sqs_message_id for message in left}
        return set()

    def _settle(
        self, message: ReceivedMessage, found: "FunctionQueues", ends_at: float, needed_seconds: float
    ) -> Acknowledgement:
        """Return how a message ends; it is left alone where less than the needed time is left."""
        if ends_at - self._clock.monotonic() <= max(self._margin_seconds, needed_seconds):
            return Abandon()
        lease = MessageLease(
            message,
            clock=self._clock,
            timeout_seconds=self._timeout_seconds,
            seconds_max=self._timeout_seconds,
            requested_at=ends_at - self._timeout_seconds,
            why_over="the invocation has no time left",
        )
        try:
            return self.worker.parts.processor.decide(lease, found.dead_letters)
        except Exception:  # whatever it is, other groups of the batch need this invocation
            _log.exception("a message was not worked on, and comes again when its visibility timeout ends")
            return Abandon()

    def _maintain(self, ends_at: float) -> dict[str, Any]:
        """Handle parked messages whose turn has come, as long as there is time, and forget what is old."""
        parts = self.worker.parts
        begins_until = max(self._clock.monotonic() + self._margin_seconds, ends_at - self._half_seconds)
        with self._ending_in_time(ends_at) as is_over:
            while parts.drainer.step(begins_until=begins_until):
                pass
            try:
                if not is_over():
                    self.worker.forget()
            except DBAPIError as error:
                _log.warning("nothing was forgotten", error=str(error.orig).strip())
        return {}

    @contextmanager
    def _ending_in_time(self, ends_at: float) -> Iterator[Callable[[], bool]]:
        """Yield what tells that the time is over: then no parked message is begun, and nothing of one is committed."""
        shutdown = self.worker.parts.shutdown
        shutdown.clear()
        seconds = ends_at - self._clock.monotonic() - self._margin_seconds
        timer = threading.Timer(max(0.0, seconds), shutdown.set)
        timer.daemon = True
        timer.start()
        try:
            yield shutdown.is_set
        finally:
            timer.cancel()


class FunctionQueues:
    """The queue that a function's messages are from, and its DLQ.

    Raises:
        EndpointError: there is no such queue.
        TransientError: it could not be asked.
    """

    def __init__(self, sqs: Any, name: str, consumer: Consumer) -> None:
        self._queue = Queue(sqs, queues.url_of(sqs, name))
        self.dead_letters = DeadLetterSender(self._queue)
        self._hidden_seconds_max = limits.VISIBILITY_TIMEOUT_SECONDS_MAX - consumer.visibility_timeout_seconds
        for fault in faults(consumer, self._queue.attributes(), None):
            # An invocation that fails is a receive of messages that nobody has tried: to go on costs less.
            _log.error("the queue is not as its consumer declares it", queue=name, fault=fault)

    def move_to_dlq(self, message: ReceivedMessage) -> bool:
        """Send a dead message to the DLQ and delete it; return False where it has to come again for that."""
        if not self.dead_letters.send(message, body=message.body, deduplication_id=message.sqs_message_id):
            return False
        try:
            self._queue.delete(message.receipt_handle)
        except (HoldLostError, TransientError) as error:
            _log.warning("in the DLQ, and not deleted yet", sqs_message_id=message.sqs_message_id, error=str(error))
        return True

    def hide(self, messages: Sequence[ReceivedMessage], seconds: int) -> None:
        """Let messages of a group be received again after so long.

        All of them, not only the first: while one of a group is hidden, SQS gives out no other.
        """
        hidden_seconds = min(seconds, self._hidden_seconds_max)
        try:
            met = self._queue.extend([(message.receipt_handle, hidden_seconds) for message in messages])
        except (HoldLostError, TransientError) as error:
            met = [error]
        for failure in filter(None, met):
            _log.warning("not given back: it comes again when its visibility timeout ends", error=str(failure))
