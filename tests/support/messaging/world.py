"""The world of a test: one database, one simulated SQS and SNS, one clock; any number of relays and workers.

Nothing runs by itself. A test takes the steps of relay, lane, heartbeat and drainer, and time passes only in these
steps.
"""

import inspect
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, override
from unittest.mock import patch

from botocore.awsrequest import AWSResponse
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, Text, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sluice.clock import Clock
from sluice.messaging import Outbox, failpoints
from sluice.messaging.backoff import Backoff
from sluice.messaging.bundle import events_of, write_bundle
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope, Event, any_event
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.handlers import ANY, Context, Handlers, LaneHandler, Outcome, Reject
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.outbox import tables as outbox_tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.store import Head, Store
from sluice.messaging.relay.calls import Answer, RelayPublish, publish_now
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings
from sluice.messaging.sqs.queue import Queue, ReceivedMessage
from sluice.messaging.telemetry.metrics import WorkerTally
from sluice.messaging.worker import build
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.messaging.worker.worker import Worker
from sluice.simulator.hook import Simulator
from tests.support.messaging import fresh_tables
from tests.support.messaging.faulty_calls import Fault, FaultyCalls, GroupPlace, seeded_random

TOPIC = "events.fifo"
QUEUES = ("billing", "shipping")
SETTINGS = RelaySettings()
TIMEOUT_SECONDS = 30
MAX_ATTEMPTS = 3
RECEIVES_MAX = 1_000
"""The maxReceiveCount of a queue for bundles."""
POLL_SECONDS = 20
BACKOFF = Backoff(base_seconds=0.5, cap_seconds=20, floor_seconds=0.1)
_TOPIC_ARN = f"arn:aws:sns:us-east-1:000000000000:{TOPIC}"
_ANYBODY_SENDS = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}]}'

_metadata = MetaData()
effects = Table(
    "effects",
    _metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("consumer", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    comment="what handlers did; nothing here keeps a second one out",
)

METADATA = (tables.metadata, outbox_tables.metadata, _metadata)
"""The tables of inbox, outbox and effects."""


def create_tables(engine: Engine) -> None:
    """Create the tables of inbox, outbox and effects."""
    with engine.begin() as connection:
        fresh_tables.create(connection, *METADATA)


def envelope(group: str, seq: int, *, type: str = "order.placed", epoch: int = 1, id: str | None = None) -> Envelope:
    """Return an event with its number in its group, as a producer's outbox would send it."""
    event = any_event(type=type, group=group, data={"n": seq}, id=str(uuid.uuid4()) if id is None else id)
    return Envelope(event=event, seq=seq, epoch=epoch)


class SqsCalls(FaultyCalls):
    """The calls of one worker to SQS: a log, and the faults of the next ones."""

    operations = tuple(
        f"sqs.{name}"
        for name in (
            *("ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"),
            *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
        )
    )


class SnsCalls(FaultyCalls):
    """The calls of all relays to SNS: a log, and the faults of the next ones.

    A call with a group of `poisoned` is refused as a whole. `requests` are the entries of the calls, `arrived` the
    entries that the topic has, `unanswered` the arrived entries without an answer.
    """

    operations, batch, key = ("sns.PublishBatch",), "PublishBatchRequestEntries", "MessageGroupId"

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        self.faults.clear()
        self.log.clear()
        self.poisoned: set[str] = set()
        self.arrived: list[dict[str, Any]] = []
        self.unanswered: list[dict[str, Any]] = []

    @property
    def requests(self) -> list[list[dict[str, Any]]]:
        return [params[self.batch] for params in self.of("PublishBatch")]

    def choose(self, operation: str, params: Mapping[str, Any]) -> Fault:
        fault = super().choose(operation, params)
        is_poisoned = self.poisoned & {entry["MessageGroupId"] for entry in params[self.batch]}
        return Fault(refused="InvalidParameter") if is_poisoned else fault

    @override
    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        successful = {success["Id"] for success in parsed.get("Successful", [])}
        arrived = [entry for entry in self.log[-1][1][self.batch] if entry["Id"] in successful]
        self.arrived += arrived
        self.unanswered += arrived if self._fault.lost else []
        super().edit_answer(params, parsed, http_response)


class CallsInTurn:
    """One publishing call at a time, without threads: it has its answer when `begin` returns."""

    most = 1

    def __init__(self, publish: RelayPublish) -> None:
        self._publish = publish
        self._answers: list[Answer] = []

    def begin(self, heads: Sequence[Head]) -> None:
        self._answers.append(publish_now(self._publish, heads))

    def collect(self, _: float) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers

    def __len__(self) -> int:
        return len(self._answers)


class SimulatorWait:
    """Waits by moving the simulator's clock.

    `waits` has the seconds of each wait; `meanwhile` is called during each; `has_stop_request` stops the worker.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.has_stop_request = False

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.meanwhile()
        self._simulator.advance(seconds)

    def is_stopped(self) -> bool:
        return self.has_stop_request


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the handler: its arguments and its time."""

    place: GroupPlace
    attempt: int
    is_last_attempt: bool
    is_late: bool
    time: float


class WorkerParts:
    """The parts of one worker, with its clients' faults, its waits and its counts."""

    def __init__(self, made: Worker, sqs_calls: SqsCalls, wait: SimulatorWait, tally: WorkerTally) -> None:
        self.sqs_calls, self.wait, self.parts = sqs_calls, wait, made.parts
        self.queue, self.heartbeat, self.processor = made.parts.queue, made.parts.heartbeat, made.parts.processor
        self.deleter = made.parts.deleter
        self.drainer, self.shutdown, self.lane = made.parts.drainer, made.parts.shutdown, made.parts.lanes[0]
        self.tally = tally


KINDS_OF_ASYNCIO = ("on its lane", "on the event loop")
"""Of handlers; see `World.handlers_of_asyncio`."""

type HandlerStep = Outcome | BaseException | LaneHandler | None
"""A handler's step after its effect: an outcome to return, an exception to raise, or a function to call."""


class World:
    """An outbox with its relays, and one consumer with its handler and workers, which the topic's queues are made for.

    `scripts` holds, by group and number, the steps of the handler at its first, second … call; after them it returns
    Ack. The topic is made when it is first looked for.
    """

    subscribers: tuple[str, ...] = QUEUES

    def __init__(
        self,
        engine: Engine,
        *,
        consumer: str = "billing",
        policy: InboxPolicy | None = None,
        simulator: Simulator | None = None,
        is_ordered: bool = True,
        timeout_seconds: int = TIMEOUT_SECONDS,
        max_attempts: int = MAX_ATTEMPTS,
        has_bundles: bool = False,
        commits_bundles: bool = False,
    ) -> None:
        self.engine, self.consumer = engine, consumer
        self.policy = InboxPolicy(consumer=consumer) if policy is None else policy
        self.simulator = Simulator() if simulator is None else simulator
        self.clock = self.simulator.clock
        self.outbox = Outbox(TOPIC, clock=self.clock)
        self.store = Store(engine, TOPIC, clock=self.clock)
        self.inbox = Inbox(self.policy, clock=self.clock)
        self.settings = ProcessorSettings(
            consumer=consumer,
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
            hold_seconds_max=10.0 * timeout_seconds,
            is_ordered=is_ordered,
            has_bundles=has_bundles,
            commits_bundles=commits_bundles,
        )
        self.handler_steps: dict[GroupPlace, list[HandlerStep]] = defaultdict(list)
        self.calls: list[Call] = []
        self.handlers = Handlers({ANY: self._handle})
        self.sqs, self.sns_calls = self.simulator.client("sqs"), SnsCalls()
        self._numbers: dict[str, int] = defaultdict(int)
        self._workers = 0
        self._create_queues()

    def client(self, service: str) -> Any:
        """Return a client for a relay or a worker."""
        return self.simulator.client(service)

    @cached_property
    def sns(self) -> Any:
        client = self.client("sns")
        self.sns_calls.attach(client)
        return client

    def start_over(self) -> None:
        """Empty all tables and begin with a fresh simulator, for the next example of a property test."""
        with self.engine.begin() as connection:
            for metadata in METADATA:
                for table in metadata.sorted_tables:
                    connection.execute(delete(table))
        self.simulator.reset()
        self.sns_calls.forget()
        self._workers = 0
        self.__dict__.pop("urls", None)
        self._create_queues()

    def _create_queues(self) -> None:
        is_fifo = self.settings.is_ordered
        suffix, kind = (".fifo", {"FifoQueue": "true"}) if is_fifo else ("", {})
        self.dlq_url = self.sqs.create_queue(QueueName=f"{self.consumer}-dlq{suffix}", Attributes=kind)["QueueUrl"]
        self.dlq_arn = self._last_arn()
        receives_max = RECEIVES_MAX if self.settings.has_bundles else self.settings.max_attempts
        policy = {"deadLetterTargetArn": self.dlq_arn, "maxReceiveCount": receives_max}
        attributes = {"VisibilityTimeout": str(self.settings.timeout_seconds), "RedrivePolicy": json.dumps(policy)}
        self.url = self.sqs.create_queue(QueueName=f"{self.consumer}{suffix}", Attributes=attributes | kind)["QueueUrl"]
        self.arn = self._last_arn()

    def _last_arn(self) -> str:
        return next(reversed(self.simulator.account.sqs.queues))

    @cached_property
    def urls(self) -> dict[str, str]:
        """Return the queues that are subscribed to the topic, by name."""
        self.sns.create_topic(Name=TOPIC, Attributes={"FifoTopic": "true"})
        return {name: self._subscribe(name) for name in self.subscribers}

    def _subscribe(self, name: str) -> str:
        url, arn = str(self.url), self.arn
        if name != self.consumer:
            url = self.sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
            arn = self._last_arn()
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": _ANYBODY_SENDS})
        raw = {"RawMessageDelivery": "true"}
        self.sns.subscribe(TopicArn=_TOPIC_ARN, Protocol="sqs", Endpoint=arn, Attributes=raw)
        return url

    @property
    def topic_arn(self) -> str:
        assert self.urls, "nobody is subscribed to the topic"
        return _TOPIC_ARN

    # --- producers and relays -----------------------------------------------------------------------------------------

    def commit(self, *groups: str) -> list[Event]:
        """Commit one event to the outbox for each group, in one transaction, and return the events."""
        events = [Event(type="order.placed", group=group, data={"n": number}) for number, group in enumerate(groups)]
        with Session(self.engine) as session:
            for event in events:
                self.outbox.add(session, event)
            session.commit()
        return events

    def switch_bundles(self, bundle_events_max: int) -> None:
        """Let relays send so many events of a group in one message, as `sluice outbox bundles on` does."""
        operator = OutboxOperator(actor="ada", reason="tests", topic=TOPIC, clock=self.clock)
        with self.engine.begin() as connection:
            operator.switch_bundles(connection, bundle_events_max)

    def publisher(self) -> Publisher:
        return Publisher(self.sns, self.topic_arn)

    def lease(self) -> Lease:
        """Return a new process's lease: the first that acquires it may publish."""
        return Lease(self.engine, TOPIC, lease_seconds=SETTINGS.lease_seconds, clock=self.clock, own_clock=self.clock)

    def relay(self, publish: RelayPublish | None = None, *, kind: type[Relay] = Relay, **more: Any) -> Relay:
        """Return a relay process that has not done anything yet; `kind` may be a broken one."""
        publish = self.publisher() if publish is None else publish
        arguments: dict[str, Any] = {"settings": SETTINGS, "clock": self.clock, "calls": CallsInTurn} | more
        return kind(self.store, self.lease(), publish, **arguments)

    def statuses(self) -> dict[GroupPlace, str]:
        """Return the status of each event in the outbox, by its group and number."""
        with self.engine.connect() as connection:
            columns = outbox_tables.messages.c
            rows = connection.execute(select(columns.group_id, columns.group_seq, columns.status))
            return {(group, seq): status for group, seq, status in rows}

    def change(self, **values: Any) -> None:
        """Write these values into all unfinished messages, as an operator with SQL does."""
        with self.engine.begin() as connection:
            unfinished = outbox_tables.messages.c.status != outbox_tables.SENT
            connection.execute(update(outbox_tables.messages).where(unfinished).values(**values))

    def receive_all(self, queue: str = QUEUES[0]) -> list[dict[str, Any]]:
        """Receive and delete everything that is in a queue."""
        url, found = self.urls[queue], []
        while messages := self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        ).get("Messages"):
            handles = [{"Id": message["MessageId"], "ReceiptHandle": message["ReceiptHandle"]} for message in messages]
            self.sqs.delete_message_batch(QueueUrl=url, Entries=handles)
            found += messages
        return found

    def receive_places(self, queue: str = QUEUES[0]) -> list[GroupPlace]:
        """Receive and delete all messages of a queue; return groups and numbers in the order received."""
        return places([message["Body"] for message in self.receive_all(queue)])

    # --- the consumer and its workers ---------------------------------------------------------------------------------

    def send(self, *groups: str) -> list[Envelope]:
        """Send the next message of each group to the consumer's queue, as if it had come through the topic."""
        sent = []
        for group in groups:
            self._numbers[group] += 1
            sent.append(self.put(envelope(group, self._numbers[group])))
        return sent

    def put(self, sent: Envelope) -> Envelope:
        """Send a message under a fresh deduplication id, so that it is a further copy if it was sent before."""
        self.put_body(sent.body, sent.event.group)
        return sent

    def put_bundle(self, *sent: Envelope) -> None:
        """Send a bundle under a fresh deduplication id."""
        self.put_body(write_bundle([envelope.body for envelope in sent]), sent[0].event.group)

    def put_body(self, body: str, group: str) -> None:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid.uuid4())} if self.settings.is_ordered else {}
        attributes = {"type": {"DataType": "String", "StringValue": "order.placed"}}
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body, MessageAttributes=attributes, **ids)

    def redrive(self) -> None:
        """Let SQS move all messages from the DLQ back to the queue."""
        self.sqs.start_message_move_task(SourceArn=self.dlq_arn, DestinationArn=self.arn)
        (task,) = self.sqs.list_message_move_tasks(SourceArn=self.dlq_arn)["Results"]
        assert task["Status"] == "COMPLETED", task

    def park(self, *groups: str, behind: int = 1) -> WorkerParts:
        """Let each group's first message die and return; the messages behind it are parked, and due."""
        worker = self.worker(poll_seconds=0)
        for group in groups:
            self.handler_steps[group, 1] = [Reject("no such customer")]
            self.send(*[group] * (1 + behind))
        self.work_until_idle(worker, steps_max=100_000)
        self.redrive()
        self.work_until_idle(worker, steps_max=100_000)
        assert self.parked_places() == [(group, seq) for group in groups for seq in range(2, behind + 2)]
        return worker

    def worker(
        self,
        *,
        failpoint: Failpoint = failpoints.do_nothing,
        handlers: Handlers | None = None,
        inbox: Inbox | None = None,
        kind: type[MessageProcessor] = MessageProcessor,
        clock: Clock | None = None,
        poll_seconds: int = POLL_SECONDS,
        backoff: Backoff = BACKOFF,
        worker_settings: WorkerSettings | None = None,
        rng: Random | None = None,
        hooks: Sequence[WorkerHooks] = (),
        **options: Any,
    ) -> WorkerParts:
        """Return a worker process that has not done anything yet; `kind` and `inbox` may be broken ones.

        It dies at `failpoint`, and measures its leases by `clock`. A poll that brings nothing lasts `poll_seconds`.
        """
        self._workers += 1
        sqs, sqs_calls, wait, tally = self.client("sqs"), SqsCalls(), SimulatorWait(self.simulator), WorkerTally()
        sqs_calls.attach(sqs)
        settings = WorkerSettings(
            lanes=1,
            wait_seconds=poll_seconds,
            drain_seconds=POLL_SECONDS,
            keep_inbox_seconds=5_184_000,
            backoff=backoff,
        )
        with patch.object(build, "MessageProcessor", kind):
            made = build.assemble_worker(
                queue=Queue(sqs, self.url),
                engine=self.engine,
                handlers=self.handlers if handlers is None else handlers,
                inbox=self.inbox if inbox is None else inbox,
                settings=settings if worker_settings is None else worker_settings,
                processor_settings=self.settings,
                wait=wait,
                clock=self.clock if clock is None else clock,
                rng=seeded_random(self._workers)
                if rng is None
                else rng,  # of its own: two that ask with one attempt id are one receive
                failpoint=failpoint,
                hooks=[tally, *hooks],
                **options,
            )
        return WorkerParts(made, sqs_calls, wait, tally)

    def work_until_idle(self, *workers: WorkerParts, until: Sequence[GroupPlace] = (), steps_max: int = 200) -> None:
        """Let workers step in turn until the queue is empty, or holds only the messages of `until`."""
        for _ in range(steps_max):
            for worker in workers:
                if not self.bodies_in_queue() or (until and places(self.bodies_in_queue()) == list(until)):
                    return
                worker.lane.step()
        raise AssertionError(f"still in the queue after {steps_max} steps: {self.bodies_in_queue()}")

    def receive(self, worker: WorkerParts) -> ReceivedMessage:
        """Receive a message without working on it; the test fails if there is none."""
        message = worker.queue.receive(attempt_id=None, wait_seconds=0)
        assert message is not None, "nothing can be received"
        return message

    def _handle(self, session: Session, event: Event, context: Context) -> Any:
        """Note the call, write its effect, and then do what `handler_steps` has for this message."""
        place = (event.group, context.seq)
        call = Call(
            place=place,
            attempt=context.attempt,
            is_last_attempt=context.is_last_attempt,
            is_late=context.is_late,
            time=self.clock.monotonic(),
        )
        self.calls.append(call)
        session.execute(insert(effects).values(consumer=self.consumer, group_id=event.group, seq=context.seq))
        result = self.handler_steps[place].pop(0) if self.handler_steps[place] else None
        if isinstance(result, BaseException):
            raise result
        return result(session, event, context) if callable(result) else result

    def handlers_of_asyncio(self, kind: str) -> Handlers | None:
        """Return the handler as one with an AsyncSession, in one of two ways; None for `plain`, the handler itself.

        `on its lane` runs it on the lane's thread; `on the event loop` runs everything but statements on the loop.
        """
        if kind == "plain":
            return None

        async def handle(session: AsyncSession, event: Event, context: Context) -> Any:
            def call(inner: Session) -> Any:
                return self._handle(inner, event, context)

            done = await (session.run_sync(call) if kind == "on its lane" else AsyncSession.run_sync(session, call))
            return await done if inspect.isawaitable(done) else done

        return Handlers({ANY: handle})

    @property
    def called_places(self) -> list[GroupPlace]:
        """Group and number of the message of each call of the handler, in the order of the calls."""
        return [call.place for call in self.calls]

    def committed_effects(self) -> list[GroupPlace]:
        """Return group and number of each row that the handler wrote and the worker committed, in order."""
        mine = select(effects.c.group_id, effects.c.seq).where(effects.c.consumer == self.consumer)
        with engines.reading(self.engine) as connection:
            return [(group, seq) for group, seq in connection.execute(mine.order_by(effects.c.id))]

    def last_numbers(self) -> dict[str, int]:
        """Return the last number of each group that the inbox has accounted for."""
        table = tables.groups
        mine = select(table.c.group_id, table.c.last_seq).where(table.c.consumer == self.consumer)
        with engines.reading(self.engine) as connection:
            return {row.group_id: row.last_seq for row in connection.execute(mine)}

    def exceptions(self) -> dict[GroupPlace, tuple[str, str | None]]:
        """Return state and reason of each exception in the inbox, by group and number: of dead letters and gaps."""
        table = tables.exceptions
        mine = select(table.c.group_id, table.c.seq, table.c.state, table.c.reason)
        with engines.reading(self.engine) as connection:
            rows = connection.execute(mine.where(table.c.consumer == self.consumer).order_by(table.c.id))
            return {(group, seq): (state, reason) for group, seq, state, reason in rows}

    def parked_places(self) -> list[GroupPlace]:
        """Return group and number of each parked message: it waits in the inbox for a message before it."""
        table = tables.parked
        mine = select(table.c.group_id, table.c.seq).where(table.c.consumer == self.consumer)
        with engines.reading(self.engine) as connection:
            rows = connection.execute(mine.order_by(table.c.group_id, table.c.epoch, table.c.seq))
            return [(group, seq) for group, seq in rows]

    def bodies_in_queue(self) -> list[str]:
        """Return the bodies in the queue, in flight or not, without receiving them."""
        return self._bodies(self.arn)

    def bodies_in_dlq(self) -> list[str]:
        """Return the bodies in the DLQ, without receiving them."""
        return self._bodies(self.dlq_arn)

    def _bodies(self, arn: str) -> list[str]:
        return [message.body for message in self.simulator.account.sqs.queues[arn].in_order()]


def places(bodies: list[str]) -> list[GroupPlace]:
    """Return the group and the number of each message body."""
    decoded = [entry for body in bodies for entry in events_of(body)]
    return [(entry.event.group, entry.seq) for entry in decoded]


@contextmanager
def in_memory_world() -> Iterator[World]:
    """Yield a world with its own SQLite database in memory."""
    with fresh_tables.sqlite(None, *METADATA) as engine:
        yield World(engine)
