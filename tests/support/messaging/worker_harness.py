"""One consumer's places: a simulated queue with its DLQ, a database with inbox and effects, and workers on one clock.

Nothing runs by itself. A test takes the steps of lane, heartbeat and drainer, and time passes only meanwhile.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, Text, insert, select
from sqlalchemy.orm import Session

from sluice.clock import Clock
from sluice.messaging import failpoints
from sluice.messaging.backoff import Backoff
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope, Event, any_event, decode
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.handlers import ANY, Context, Handler, Handlers, Outcome, Reject
from sluice.messaging.inbox import tables
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import Policy
from sluice.messaging.sqs.queue import Queue, Received
from sluice.messaging.telemetry.metrics import Tally
from sluice.messaging.worker import build
from sluice.messaging.worker.hooks import WorkerHooks
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.messaging.worker.worker import Worker
from sluice.simulator.hook import Simulator
from tests.support.messaging.faulty_calls import FaultyCalls, Place, seeded

TIMEOUT_SECONDS = 30
MAX_ATTEMPTS = 3
POLL_SECONDS = 20
BACKOFF = Backoff(base_seconds=0.5, cap_seconds=20, floor_seconds=0.1)

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


def create_tables(engine: Engine) -> None:
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
        _metadata.create_all(connection)


def envelope(group: str, seq: int, *, type: str = "order.placed", epoch: int = 1, id: str | None = None) -> Envelope:
    event = any_event(type=type, group=group, data={"n": seq}, id=str(uuid.uuid4()) if id is None else id)
    return Envelope(event=event, seq=seq, epoch=epoch)


class Line(FaultyCalls):
    operations = tuple(
        f"sqs.{name}"
        for name in (
            *("ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"),
            *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
        )
    )


class ClockWait:
    """Waits by moving the simulator's clock.

    `waits` are the seconds of each; `meanwhile` is called during each; `is_over` stops the worker.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.is_over = False

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.meanwhile()
        self._simulator.advance(seconds)

    def is_stopped(self) -> bool:
        return self.is_over


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the handler: what it was told, and when."""

    place: Place
    attempt: int
    is_last_attempt: bool
    is_late: bool
    time: float


class Hands:
    def __init__(self, made: Worker, line: Line, wait: ClockWait, tally: Tally) -> None:
        self.line, self.wait, self.parts = line, wait, made.parts
        self.queue, self.heartbeat, self.processor = made.parts.queue, made.parts.heartbeat, made.parts.processor
        self.deleter = made.parts.deleter
        self.drainer, self.shutdown, self.lane = made.parts.drainer, made.parts.shutdown, made.parts.lanes[0]
        self.tally = tally


type HandlerStep = Outcome | BaseException | Handler | None
"""What a handler does after its effect: return it, raise it, or call it and return what that returns."""


class World:
    """One consumer: its queues in a simulator, its database, its handler, and any number of workers.

    `says` holds, by place, what the handler says to the first, second … call; then it says nothing, which is Ack.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        consumer: str = "billing",
        policy: Policy | None = None,
        simulator: Simulator | None = None,
        is_ordered: bool = True,
        timeout_seconds: int = TIMEOUT_SECONDS,
    ) -> None:
        self.engine, self.consumer = engine, consumer
        self.policy = Policy(consumer=consumer) if policy is None else policy
        self.simulator = Simulator() if simulator is None else simulator
        self.clock = self.simulator.clock
        self.inbox = Inbox(self.policy, clock=self.clock)
        self.settings = ProcessorSettings(
            consumer=consumer,
            max_attempts=MAX_ATTEMPTS,
            timeout_seconds=timeout_seconds,
            hold_seconds_max=10.0 * timeout_seconds,
            is_ordered=is_ordered,
        )
        self.says: dict[Place, list[HandlerStep]] = defaultdict(list)
        self.calls: list[Call] = []
        self.handlers = Handlers({ANY: self._handle})
        self.sqs = self.simulator.client("sqs")
        self._numbers: dict[str, int] = defaultdict(int)
        self._workers = 0
        self._create_queues()

    def _create_queues(self) -> None:
        is_fifo = self.settings.is_ordered
        suffix, kind = (".fifo", {"FifoQueue": "true"}) if is_fifo else ("", {})
        self.dlq_url = self.sqs.create_queue(QueueName=f"{self.consumer}-dlq{suffix}", Attributes=kind)["QueueUrl"]
        self.dlq_arn = self._last_arn()
        policy = {"deadLetterTargetArn": self.dlq_arn, "maxReceiveCount": self.settings.max_attempts}
        attributes = {"VisibilityTimeout": str(self.settings.timeout_seconds), "RedrivePolicy": json.dumps(policy)}
        self.url = self.sqs.create_queue(QueueName=f"{self.consumer}{suffix}", Attributes=attributes | kind)["QueueUrl"]
        self.arn = self._last_arn()

    def _last_arn(self) -> str:
        return next(reversed(self.simulator.account.sqs.queues))

    def send(self, *groups: str) -> list[Envelope]:
        sent = []
        for group in groups:
            self._numbers[group] += 1
            sent.append(self.put(envelope(group, self._numbers[group])))
        return sent

    def put(self, sent: Envelope) -> Envelope:
        """Send a message, as a copy of its own when it was sent before."""
        self.put_body(sent.body, sent.event.group)
        return sent

    def put_body(self, body: str, group: str) -> None:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": str(uuid.uuid4())} if self.settings.is_ordered else {}
        attributes = {"type": {"DataType": "String", "StringValue": "order.placed"}}
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body, MessageAttributes=attributes, **ids)

    def redrive(self) -> None:
        """Let SQS move everything from the DLQ back to the queue."""
        self.sqs.start_message_move_task(SourceArn=self.dlq_arn)
        (task,) = self.sqs.list_message_move_tasks(SourceArn=self.dlq_arn)["Results"]
        assert task["Status"] == "COMPLETED", task

    def park(self, *groups: str, behind: int = 1) -> Hands:
        """Let each group's first message die and come back; what is behind it is set aside, and due."""
        worker = self.worker(poll_seconds=0)
        for group in groups:
            self.says[group, 1] = [Reject("no such customer")]
            self.send(*[group] * (1 + behind))
        self.work_off(worker, steps_max=100_000)
        self.redrive()
        self.work_off(worker, steps_max=100_000)
        assert self.parked() == [(group, seq) for group in groups for seq in range(2, behind + 2)]
        return worker

    def worker(
        self,
        *,
        failpoint: Failpoint = failpoints.unarmed,
        handlers: Handlers | None = None,
        inbox: Inbox | None = None,
        kind: type[MessageProcessor] = MessageProcessor,
        clock: Clock | None = None,
        poll_seconds: int = POLL_SECONDS,
        backoff: Backoff = BACKOFF,
        hooks: Sequence[WorkerHooks] = (),
        **options: Any,
    ) -> Hands:
        """Return a worker process that has not done anything yet; `kind` and `inbox` may be broken ones.

        It dies at `failpoint`, and measures its leases by `clock`. A poll that brings nothing lasts `poll_seconds`.
        """
        self._workers += 1
        sqs, line, wait, tally = self.simulator.client("sqs"), Line(), ClockWait(self.simulator), Tally()
        line.attach(sqs)
        with patch.object(build, "MessageProcessor", kind):
            made = build.assemble_worker(
                queue=Queue(sqs, self.url),
                engine=self.engine,
                handlers=self.handlers if handlers is None else handlers,
                inbox=self.inbox if inbox is None else inbox,
                settings=WorkerSettings(
                    lanes=1,
                    wait_seconds=poll_seconds,
                    drain_seconds=POLL_SECONDS,
                    keep_inbox_seconds=5_184_000,
                    backoff=backoff,
                ),
                processor_settings=self.settings,
                wait=wait,
                clock=self.clock if clock is None else clock,
                rng=seeded(self._workers),  # of its own: two that ask with one attempt id are one receive
                failpoint=failpoint,
                hooks=[tally, *hooks],
                **options,
            )
        return Hands(made, line, wait, tally)

    def work_off(self, *workers: Hands, until: Sequence[Place] = (), steps_max: int = 200) -> None:
        """Let workers step in turn until nothing is left in the queue, or just that."""
        for _ in range(steps_max):
            for worker in workers:
                if not self.left() or (until and places(self.left()) == list(until)):
                    return
                worker.lane.step()
        raise AssertionError(f"still in the queue after {steps_max} steps: {self.left()}")

    def receive(self, worker: Hands) -> Received:
        """Receive a message without working on it; there has to be one."""
        message = worker.queue.receive(attempt_id=None, wait_seconds=0)
        assert message is not None, "nothing can be received"
        return message

    def _handle(self, session: Session, event: Event, context: Context) -> Any:
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
        result = self.says[place].pop(0) if self.says[place] else None
        if isinstance(result, BaseException):
            raise result
        return result(session, event, context) if callable(result) else result

    @property
    def called(self) -> list[Place]:
        return [call.place for call in self.calls]

    def effects(self) -> list[Place]:
        mine = select(effects.c.group_id, effects.c.seq).where(effects.c.consumer == self.consumer)
        with engines.reading(self.engine) as connection:
            return [(group, seq) for group, seq in connection.execute(mine.order_by(effects.c.id))]

    def positions(self) -> dict[str, int]:
        """Return the last number of each group that the inbox has accounted for."""
        table = tables.groups
        mine = select(table.c.group_id, table.c.last_seq).where(table.c.consumer == self.consumer)
        with engines.reading(self.engine) as connection:
            return {row.group_id: row.last_seq for row in connection.execute(mine)}

    def exceptions(self) -> dict[Place, tuple[str, str | None]]:
        table = tables.exceptions
        mine = select(table.c.group_id, table.c.seq, table.c.state, table.c.reason)
        with engines.reading(self.engine) as connection:
            rows = connection.execute(mine.where(table.c.consumer == self.consumer).order_by(table.c.id))
            return {(group, seq): (state, reason) for group, seq, state, reason in rows}

    def parked(self) -> list[Place]:
        table = tables.parked
        mine = select(table.c.group_id, table.c.seq).where(table.c.consumer == self.consumer)
        with engines.reading(self.engine) as connection:
            rows = connection.execute(mine.order_by(table.c.group_id, table.c.epoch, table.c.seq))
            return [(group, seq) for group, seq in rows]

    def left(self) -> list[str]:
        """Return the bodies in the queue, in flight or not, without receiving them."""
        return self._bodies(self.arn)

    def dead(self) -> list[str]:
        """Return the bodies in the DLQ, without receiving them."""
        return self._bodies(self.dlq_arn)

    def _bodies(self, arn: str) -> list[str]:
        return [message.body for message in self.simulator.account.sqs.queues[arn].in_order()]


def places(bodies: list[str]) -> list[Place]:
    decoded = [decode(body) for body in bodies]
    return [(entry.event.group, entry.seq) for entry in decoded]
