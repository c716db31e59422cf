"""An outbox, a simulated topic with two queues and any number of relays, on one clock; and relays that are broken.

The broken ones are kept because a check that never fails proves nothing: each is caught by the check of its pitfall.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Protocol

from botocore.awsrequest import AWSResponse
from sqlalchemy import Engine, delete, select, update
from sqlalchemy.orm import Session

from sluice.clock import VirtualClock
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.outbox import store, tables
from sluice.messaging.outbox.store import Head, PublishOutcome, Sent, Store
from sluice.messaging.relay.calls import Answer, Publish, called
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.publisher import Publisher
from sluice.messaging.relay.relay import Relay, RelaySettings
from sluice.simulator.hook import Simulator
from tests.support.messaging.faulty_calls import Fault, FaultyCalls, Place, seeded
from tests.support.messaging.outbox.calls_in_turn import CallsInTurn

TOPIC = "events.fifo"
QUEUES = ("billing", "shipping")
SETTINGS = RelaySettings()
_ANYBODY_SENDS = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}]}'
_FIFO = {"FifoQueue": "true", "Policy": _ANYBODY_SENDS}


class Line(FaultyCalls):
    """What is between a relay and SNS.

    `poisoned` are groups whose presence gets any call refused as a whole. `requests` is what calls held; `arrived` is
    what of it is in the topic, `unanswered` what of that nobody was told of.
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
        return [params[self.batch] for params in self.calls("PublishBatch")]

    def choose(self, operation: str, params: Mapping[str, Any]) -> Fault:
        fault = super().choose(operation, params)
        is_poisoned = self.poisoned & {entry["MessageGroupId"] for entry in params[self.batch]}
        return Fault(refused="InvalidParameter") if is_poisoned else fault

    def answered(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        successful = {success["Id"] for success in parsed.get("Successful", [])}
        arrived = [entry for entry in self.log[-1][1][self.batch] if entry["Id"] in successful]
        self.arrived += arrived
        self.unanswered += arrived if self._fault.lost else []
        super().answered(params, parsed, http_response)


class World:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.simulator = Simulator()
        self.clock = self.simulator.clock
        self.outbox = Outbox(TOPIC, clock=self.clock)
        self.store = Store(engine, TOPIC, clock=self.clock)
        self.sqs = self.simulator.client("sqs")
        self.sns = self.simulator.client("sns")
        self.line = Line()
        self.line.attach(self.sns)
        self._create()

    def start_over(self) -> None:
        with self.engine.begin() as connection:
            for table in tables.metadata.sorted_tables:
                connection.execute(delete(table))
        self.simulator.reset()
        self.line.forget()
        self._create()

    def _create(self) -> None:
        self.topic_arn = self.sns.create_topic(Name=TOPIC, Attributes={"FifoTopic": "true"})["TopicArn"]
        self.urls = {queue: self._subscribed(queue) for queue in QUEUES}

    def _subscribed(self, queue: str) -> str:
        url = str(self.sqs.create_queue(QueueName=f"{queue}.fifo", Attributes=_FIFO)["QueueUrl"])
        arn = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        raw = {"RawMessageDelivery": "true"}
        self.sns.subscribe(TopicArn=self.topic_arn, Protocol="sqs", Endpoint=arn, Attributes=raw)
        return url

    def commit(self, *groups: str) -> list[Event]:
        events = [Event(type="order.placed", group=group, data={"n": number}) for number, group in enumerate(groups)]
        with Session(self.engine) as session:
            for event in events:
                self.outbox.add(session, event)
            session.commit()
        return events

    def publisher(self) -> Publisher:
        return Publisher(self.sns, self.topic_arn)

    def lease(self) -> Lease:
        return Lease(self.engine, TOPIC, lease_seconds=SETTINGS.lease_seconds, clock=self.clock, own_clock=self.clock)

    def relay(self, publish: Publish | None = None, *, kind: type[Relay] = Relay, **more: Any) -> Relay:
        publish = self.publisher() if publish is None else publish
        arguments: dict[str, Any] = {"settings": SETTINGS, "clock": self.clock, "calls": CallsInTurn} | more
        return kind(self.store, self.lease(), publish, **arguments)

    def statuses(self) -> dict[Place, str]:
        with self.engine.connect() as connection:
            columns = (tables.messages.c.group_id, tables.messages.c.group_seq, tables.messages.c.status)
            return {(group, seq): status for group, seq, status in connection.execute(select(*columns))}

    def change(self, **values: Any) -> None:
        """Write these values into all unfinished messages, as an operator with SQL does."""
        with self.engine.begin() as connection:
            unfinished = tables.messages.c.status != tables.SENT
            connection.execute(update(tables.messages).where(unfinished).values(**values))

    def received(self, queue: str = QUEUES[0]) -> list[dict[str, Any]]:
        url, found = self.urls[queue], []
        while messages := self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        ).get("Messages"):
            handles = [{"Id": message["MessageId"], "ReceiptHandle": message["ReceiptHandle"]} for message in messages]
            self.sqs.delete_message_batch(QueueUrl=url, Entries=handles)
            found += messages
        return found

    def databases(self, queue: str = QUEUES[0]) -> list[Place]:
        """Receive and delete everything that is in a queue; return groups and numbers in the order they came."""
        return [place(message) for message in self.received(queue)]


@contextmanager
def in_memory_world() -> Iterator[World]:
    """Yield a world with an SQLite database of its own, for tests with many."""
    engine = engines.engine("sqlite://")
    with engine.begin() as connection:
        tables.metadata.create_all(connection)
    yield World(engine)
    engine.dispose()


def place(message: Mapping[str, Any]) -> Place:
    """Return where a received message belongs."""
    envelope = decode(message["Body"])
    return envelope.event.group, envelope.seq


def head(number: int = 1, **more: Any) -> Head:
    """Return a message as a relay takes it from the outbox."""
    ids = {"event_id": f"e{number}", "deduplication_id": f"e{number}", "group_id": f"g{number}"}
    stored = {"group_seq": 1, "body": "{}", "attributes": {}, "status": tables.PENDING, "attempts": 0}
    return Head(**{"id": number, "not_before_us": 0, "created_at_us": 0, **ids, **stored, **more})


def of_group(group: str, places: Iterable[Place]) -> list[int]:
    return [seq for its_group, seq in places if its_group == group]


class Steps(Protocol):
    """A relay, as far as a test is concerned."""

    def step(self) -> bool:
        """Do a little; return whether there may be more to do."""


def work(relay: Steps, times_max: int = 200) -> None:
    """Let a relay step until it finds nothing due."""
    for _ in range(times_max):
        if not relay.step():
            return
    raise AssertionError(f"there was still something to do after {times_max} steps")


class Turns:
    """A wait that moves the clock, and ends after so many turns; `meanwhile` is called after each."""

    def __init__(self, clock: VirtualClock, turns: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._clock, self._turns, self._meanwhile = clock, turns, meanwhile
        self.waited: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self._clock.sleep(seconds)
        self._meanwhile()

    def is_stopped(self) -> bool:
        return len(self.waited) >= self._turns


class Meanwhile:
    """A publish during which something else happens, before it gets to the topic."""

    def __init__(self, publish: Publish, happens: Callable[[Sequence[Head]], object]) -> None:
        self._publish, self._happens = publish, happens

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        self._happens(heads)
        return self._publish.publish(heads)


class Shuffled:
    """Several calls at once, which get to the topic in any order, and whose answers come at any time later.

    No two of them may have messages of one group.
    """

    most = 4

    def __init__(self, publish: Publish) -> None:
        self._publish, self._rng = publish, seeded(5)
        self._on_their_way: list[Sequence[Head]] = []

    def begin(self, heads: Sequence[Head]) -> None:
        groups = [head.group_id for call in [*self._on_their_way, heads] for head in call]
        assert len(groups) == len(set(groups)), "two messages of one group on their way"
        self._on_their_way.append(heads)

    def collect(self, _: float) -> list[Answer]:
        self._rng.shuffle(self._on_their_way)
        count = self._rng.randint(min(1, len(self)), len(self))
        arriving, self._on_their_way = self._on_their_way[:count], self._on_their_way[count:]
        return [called(self._publish, heads) for heads in arriving]

    def __len__(self) -> int:
        return len(self._on_their_way)


class IgnoresFailed:
    """Broken: takes an answer of HTTP 200 for a success of all (P8)."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        self._publish.publish(heads)
        return [Sent("unknown") for _ in heads]


class NewIdOnResend:
    """Broken: a repeat is another message to the topic (P10)."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        return self._publish.publish([replace(head, deduplication_id=str(uuid.uuid4())) for head in heads])


class PublishesInTransaction(Relay):
    """Broken: holds its transaction while it publishes (P7)."""

    def _send(self, batch: Sequence[Head], *_: object) -> None:
        with self._lease.writing() as connection:
            outcomes = self._publish.publish(batch)
            self._store.mark(connection, [(head, outcome, 0) for head, outcome in zip(batch, outcomes, strict=True)])
        self._let_go(batch)


class MarksFirst(Relay):
    """Broken: what it has not published yet is already done (P15)."""

    def _send(self, batch: Sequence[Head], *_: object) -> None:
        with self._lease.writing() as connection:
            self._store.mark(connection, [(head, Sent("unknown"), 0) for head in batch])
        self._failpoint("before_publish")
        self._publish.publish(batch)
        self._let_go(batch)


class ForgetsWhatItTook(Relay):
    """Broken: takes messages of a group that has one on its way."""

    def _send(self, batch: Sequence[Head], *_: object) -> None:
        super()._send(batch)
        self._let_go(batch)


class MarksAllForOne(Relay):
    """Broken: when one of several calls has arrived, all have."""

    def _mark(self, outcomes: Sequence[tuple[Head, PublishOutcome]]) -> None:
        is_sent = any(isinstance(outcome, Sent) for _, outcome in outcomes)
        super()._mark([(head, Sent("unknown") if is_sent else outcome) for head, outcome in outcomes])


class ClaimsRows:
    """Broken: any relay takes any rows that no other has locked (P5). Postgres only: SQLite knows no SKIP LOCKED."""

    def __init__(self, world: World, publish: Publish) -> None:
        self._world, self._publish = world, publish

    def step(self) -> bool:
        columns = [tables.messages.c[field.name] for field in fields(Head)]
        rows = select(*columns).where(tables.messages.c.status == tables.PENDING)
        rows = rows.order_by(tables.messages.c.id).limit(2).with_for_update(skip_locked=True)
        with self._world.engine.begin() as connection:
            heads = [store.head(row) for row in connection.execute(rows)]
            outcomes = self._publish.publish(heads) if heads else []
            self._world.store.mark(
                connection, [(head, outcome, 0) for head, outcome in zip(heads, outcomes, strict=True)]
            )
        return bool(heads)
