"""A worker for your handlers that runs only while a test lets it, in virtual time, on one thread.

    def test_an_invoice_is_written_once(worker_harness):
        harness = worker_harness("shop.handlers", tables=Base.metadata)
        harness.publish("order.placed", "order-7", {"total_cents": 1250})
        harness.crash_before_commit()
        harness.run()
        assert harness.session().scalars(select(Invoice.cents)).all() == [1250]

Everything between `publish` and the effect is the product's own: outbox, relay, worker, inbox. SQS and SNS are the
simulator's. Nothing sleeps: what waits for a backoff or a visibility timeout moves the clock.
"""

import random
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from types import ModuleType
from typing import Any

from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import Session

from sluice.clock import VirtualClock
from sluice.declaration import Consumer, Environment, Topic, naming
from sluice.declaration.arguments import check_argument_types
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.errors import EnvelopeError
from sluice.messaging.handlers import Ack, Handler, Handlers, TypedHandler
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.outbox import tables as outbox_tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Store
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings
from sluice.messaging.worker.build import assemble_worker
from sluice.messaging.worker.processing import async_handlers
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.messaging.worker.worker import Worker
from sluice.testing import inbox_view
from sluice.testing.parts import AcknowledgedQueue, Attempt, AttemptLog, ClockWait
from sluice.testing.plain_log import plain_log
from sluice.testing.simulated_aws import SimulatedAws

_STEPS_MAX = 10_000
_BEFORE_COMMIT = ("before_commit", "before_drain_commit")
_AFTER_COMMIT = ("after_commit", "after_drain_commit")

type HandlersLike = str | ModuleType | Handlers | Handler | TypedHandler[Any]
"""Name of a module with handlers, the module, handlers, or one function; unmarked it handles every type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message in the DLQ.

    Args:
        event: the event in the body; None where the body cannot be read.
        reason: why the message is in the DLQ.
        body: the body as it was sent.
    """

    event: Event | None
    reason: str
    body: str


class WorkerHarness:
    """One consumer with its queue, database and worker. The fixture `worker_harness` makes and closes it.

    Args:
        handlers: the name of a module, a module, `Handlers`, or a function, which handles every type unless marked.
        aws: the simulated SQS and SNS.
        database: the URL or the engine of a database, in which the tables of inbox and outbox are made.
        consumer: the consumer's declaration; None is a consumer with all defaults.
        tables: your own tables, which are made as well.
        topic: the topic of your own `Outbox`, whose events are published, too; None is a topic for `publish` only.
        bundle_events_max: as the consumer's topic declares it, and switched on: of the events that wait in the outbox,
            the first goes alone, and those behind it so many in a message.

    Raises:
        ConfigError: there are no such handlers.
    """

    @check_argument_types
    def __init__(
        self,
        handlers: HandlersLike,
        *,
        aws: SimulatedAws,
        database: Engine | str,
        consumer: Consumer | None = None,
        tables: MetaData | None = None,
        topic: str | None = None,
        bundle_events_max: int = 1,
    ) -> None:
        self._bundle_events_max = bundle_events_max
        self.aws, self._handlers = aws, _handlers(handlers)
        declared = Consumer(name="consumer") if consumer is None else consumer
        self.consumer = replace(declared, topic=None, queue=None)  # the simulated environment has one topic of its own
        self.engine = engines.engine(database) if isinstance(database, str) else database
        with self.engine.begin() as connection:
            for metadata in (inbox_tables.metadata, outbox_tables.metadata, *([] if tables is None else [tables])):
                metadata.create_all(connection)
        environment = Environment(
            name="test", topics=(Topic(bundle_events_max=bundle_events_max),), consumers=(self.consumer,)
        )
        deployed = aws.deploy(environment)
        self.queue_url = deployed.queues[self.consumer.name]
        self.dead_letter_queue_url = deployed.dead_letter_queues[self.consumer.name]
        self.outbox = Outbox(
            naming.topic_name(environment) if topic is None else topic,
            event_bytes_max=environment.event_bytes_max,
            clock=aws.clock,
        )
        if bundle_events_max > 1:
            operator = OutboxOperator(actor="test", reason="test", topic=self.outbox.topic, clock=aws.clock)
            with self.engine.begin() as connection:
                operator.switch_bundles(connection, bundle_events_max)
        self.attempts: list[Attempt] = []
        self._sqs, self._publisher = aws.client("sqs"), Publisher(aws.client("sns"), deployed.topic_arn)
        self._queue = AcknowledgedQueue(self._sqs, self.queue_url)
        self._inbox = Inbox(InboxPolicy.of_consumer(self.consumer), clock=aws.clock)
        self._rng = random.Random(0)  # noqa: S311 (jitter that repeats itself)
        self._dies_at: tuple[str, ...] = ()
        self._cleanup = ExitStack()
        self._cleanup.enter_context(plain_log())
        self._cleanup.callback(async_handlers.close)
        if isinstance(database, str):
            self._cleanup.callback(self.engine.dispose)
        self._worker = self._start()

    @property
    def clock(self) -> VirtualClock:
        """Return the clock of worker, queue and database; `aws.advance` moves it."""
        return self.aws.clock

    def session(self) -> Session:
        """Return a session of the database, to look at effects or to prepare rows; you commit and close it."""
        return Session(self.engine)

    def publish(self, event: Event | str, group: str | None = None, data: Any = None, **fields: Any) -> Event:
        """Commit an event to the outbox, let a relay publish it to the topic, and return the event.

        Args:
            event: the event, or its type.
            group: the message group, if `event` is a type.
            data: the data of the event, if `event` is a type.
            fields: other fields of `Event`, such as `attributes`, which filter policies compare.
        """
        if isinstance(event, str):
            event = Event(type=event, group="" if group is None else group, data=data, **fields)
        with self.session() as session:
            self.outbox.add(session, event)
            session.commit()
        self._relay()
        return event

    def send_body(self, body: str, group: str) -> None:
        """Put any text into the queue as a message's body, such as a body that no Sluice producer sends."""
        self._sqs.send_message(  # a new id each time: the same text twice is two messages
            QueueUrl=self.queue_url,
            MessageBody=body,
            MessageGroupId=group,
            MessageDeduplicationId=f"{self._rng.getrandbits(128):032x}",
        )

    def run(self, *, for_seconds: float = inf) -> list[Event]:
        """Work until nothing is left to do, and return the events whose effects were committed, in that order.

        The clock moves on when a message waits: for its backoff, for the visibility timeout of a worker that died, or
        for the end of `gap_wait_seconds`. A message that waits for an operator stays in `parked` or `dead_letters`.

        Args:
            for_seconds: stop after this virtual time, even if messages are left.

        Raises:
            AssertionError: there is still work after ten thousand steps.
        """
        first = len(self.attempts)
        self._work(self.clock.monotonic() + for_seconds)
        return self._events_committed_since(first)

    def redeliver(self) -> list[Event]:
        """Deliver the last acknowledged message again, as SQS may; return the handled events, which should be none.

        Raises:
            AssertionError: nothing was acknowledged so far.
        """
        message = self._queue.acknowledged
        assert message is not None, "nothing was acknowledged so far, so nothing can come again; call run() first"
        first = len(self.attempts)
        again = replace(message, receive_count=message.receive_count + 1)
        self._worker.parts.processor.process(again)
        return self._events_committed_since(first)

    def crash_before_commit(self) -> None:
        """Work until a handler has returned and its effect is about to be committed, and let the worker die there.

        The next `run` starts another worker, which receives the message again when its visibility timeout ends.

        Raises:
            AssertionError: no handler returned.
        """
        self._crash(_BEFORE_COMMIT)

    def crash_after_commit(self) -> None:
        """Work until an effect is committed and the message about to be deleted, and let the worker die there.

        Raises:
            AssertionError: no effect was committed.
        """
        self._crash(_AFTER_COMMIT)

    def redrive(self) -> None:
        """Let SQS move all messages in the DLQ back to the queue."""
        source, destination = (
            self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            for url in (self.dead_letter_queue_url, self.queue_url)
        )
        self._sqs.start_message_move_task(SourceArn=source, DestinationArn=destination)
        (task,) = self._sqs.list_message_move_tasks(SourceArn=source, MaxResults=1)["Results"]  # which carries it on
        assert task["Status"] == "COMPLETED", f"the simulator did not move everything: {task}"

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Return the messages in the DLQ, in order, with the reason why each is there."""
        return [self._dead_letter(body) for body in self.aws.bodies(self.dead_letter_queue_url)]

    @property
    def parked(self) -> list[Event]:
        """Return the events of the parked messages, which wait in the inbox for an earlier one of their group."""
        return inbox_view.parked_events(self.engine, self.consumer.name)

    def close(self) -> None:
        """Close the database, unless it was given as an engine."""
        self._cleanup.close()

    def _start(self) -> Worker:
        """Return a new worker for this consumer. No thread is started: the harness lets its parts take steps."""
        settings = replace(WorkerSettings.of_consumer(self.consumer, lanes=1), wait_seconds=0)
        return assemble_worker(
            queue=self._queue,
            engine=self.engine,
            handlers=self._handlers.of_consumer(self.consumer),
            inbox=self._inbox,
            settings=settings,
            processor_settings=ProcessorSettings.of_consumer(self.consumer, bundle_events_max=self._bundle_events_max),
            wait=ClockWait(self.aws),
            clock=self.clock,
            rng=self._rng,
            failpoint=self._reach,
            hooks=[AttemptLog(self.attempts)],
        )

    def _reach(self, failpoint: str) -> None:
        """Let the worker die at a failpoint if a test asked for that.

        The worker calls this at each of its failpoints.
        """
        if failpoint in self._dies_at:
            raise _Crash(failpoint)

    def _crash(self, failpoints: tuple[str, ...]) -> None:
        """Work until the worker dies at one of the failpoints, and put a new worker in its place."""
        self._dies_at = failpoints
        try:
            self._work(inf)
        except _Crash:
            self._worker = self._start()
            return
        finally:
            self._dies_at = ()
        raise AssertionError(
            "no handler's effect came to its commit: nothing was left to handle, or every attempt failed (see"
            " dead_letters); publish an event first"
        )

    def _work(self, ends_at: float) -> None:
        """Let relay and worker take steps until nothing is left to do, or until an instant of virtual time."""
        for _ in range(_STEPS_MAX):
            if self._step():
                continue
            next_at = self._next_at()
            now = self.clock.monotonic()
            if next_at is None or now >= ends_at:
                return
            self.aws.advance(min(next_at, ends_at) - now + 1e-6)  # rounding never falls short of the instant
        raise AssertionError(
            f"still at work after {_STEPS_MAX} steps, with {len(self.aws.bodies(self.queue_url))} messages in the"
            " queue; does a handler publish an event for itself each time?"
        )

    def _step(self) -> bool:
        """Let relay, drainer and worker take one step each. Return whether drainer or worker had anything to do."""
        self._relay()
        drainer = self._worker.parts.drainer
        due_groups = drainer.claim()
        for group_id in due_groups:
            drainer.drain(group_id)
        is_queue_used = bool(self.aws.bodies(self.queue_url)) and self._worker.parts.lanes[0].step()
        return bool(due_groups) or is_queue_used

    def _next_at(self) -> float | None:
        """Return the next instant of the clock at which a message can be handled; None if no message waits for time."""
        now = self.clock.monotonic()
        found = [inbox_view.next_due_at(self.engine, self.consumer.name, now)]
        if self.aws.bodies(self.queue_url):
            found.append(self.aws.account.next_change_at(now))
        return min((instant for instant in found if instant is not None), default=None)

    def _relay(self) -> None:
        """Publish what was committed to the outbox by the test or by handlers, with a relay made for this call."""
        store = Store(self.engine, self.outbox.topic, clock=self.clock)
        if store.is_finished():
            return
        settings = RelaySettings(bundle_events_max=self._bundle_events_max)
        lease = Lease(
            self.engine,
            self.outbox.topic,
            lease_seconds=settings.lease_seconds,
            clock=self.clock,
            own_clock=self.clock,
        )
        relay = Relay(store, lease, self._publisher, settings=settings, clock=self.clock, rng=self._rng)
        try:
            for _ in range(_STEPS_MAX):
                if not relay.step() and store.is_finished():
                    return
        finally:
            relay.close()
        raise AssertionError(
            f"the outbox is not published after {_STEPS_MAX} steps of its relay; does another one lead?"
        )

    def _events_committed_since(self, first: int) -> list[Event]:
        """Return the events of the attempts from that index on whose effects were committed."""
        return [attempt.event for attempt in self.attempts[first:] if isinstance(attempt.outcome, Ack)]

    def _dead_letter(self, body: str) -> DeadLetter:
        """Return the dead letter with a body in the DLQ, and with the reason that the inbox recorded, if it has one."""
        try:
            envelope = decode(body)
        except EnvelopeError as error:
            return DeadLetter(event=None, reason=f"it cannot be read: {error}", body=body)
        reason = inbox_view.reason(self.engine, self.consumer.name, envelope)
        if reason is None:
            reason = f"SQS moved it after {self.consumer.max_attempts} receives; no attempt came to an end"
        return DeadLetter(event=envelope.event, reason=reason, body=body)


class _Crash(BaseException):
    """Raised where the worker is to die. It is no Exception, so the worker does not handle it."""


def _handlers(handlers: HandlersLike) -> Handlers:
    """Return handlers that a test names in one of the forms of `HandlersLike`."""
    match handlers:
        case str():
            return Handlers.load(handlers)
        case ModuleType():
            return Handlers.of(handlers)
        case Handlers():
            return handlers
    return Handlers.of_function(handlers)
