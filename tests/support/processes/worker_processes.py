"""A worker fleet: consumers of one topic, with queues, DLQs and a database, whose workers are real processes.

Each fleet has its own environment, declared in its processes only, so all its resources have its name. Visibility
timeouts are a few seconds. LocalStack, unlike AWS, does not deduplicate at a topic (GAP-36); its queues do.
"""

import contextlib
import json
import socket
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from sqlalchemy import Engine, func, select

from emulator import localstack
from sluice import limits
from sluice.clock import clock_id, eventually
from sluice.declaration import Consumer, Environment, Removal, naming
from sluice.history import events as history
from sluice.judge.checker import Expectation, Finding
from sluice.messaging import Event, failpoints
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope, any_event
from sluice.messaging.inbox import tables
from sluice.recorder.journal import Journal
from sluice.recorder.recorder import Recorder, host_name
from tests.support.endpoints.tcp_proxy import TcpProxy
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess
from tests.support.processes.scripted_handlers import Base, Gate, HandledEvent
from tests.support.processes.shop_harness import findings, read_recording

_EXPECTED_WARNINGS = ("C7",)  # numbers are published out of turn to make gaps
_RUN = "epoch-1"
_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")


def consumer(name: str = "billing", **declared: Any) -> Consumer:
    """Return a consumer with a short visibility timeout: its messages return five seconds after a worker's death."""
    quick: dict[str, Any] = {
        "visibility_timeout_seconds": 5,
        "stop_timeout_seconds": 4,
        "processing_seconds": 0.5,
        "lanes": 2,
    }
    quick |= {"handlers": "tests.support.processes.scripted_handlers"}
    return Consumer(name=name, **(quick | declared))


class WorkerFleet:
    """Topic, queues, database and processes of an environment; `folder` is for histories, logs and gates."""

    def __init__(self, engine: Engine, emulated: localstack.Emulator, folder: Path, environment: Environment) -> None:
        self.engine, self.emulated, self.folder, self.environment = engine, emulated, folder, environment
        self.history = folder / "history"
        self._published: dict[str, list[bool]] = defaultdict(list)  # by number less one: whether it is to be done
        self._missing: list[Envelope] = []
        self._processes = 0
        with engine.begin() as connection:
            tables.metadata.create_all(connection)
            Base.metadata.create_all(connection)
        self._sns, self.sqs = (
            boto3.client(service, endpoint_url=emulated.endpoint_url, region_name=environment.region)
            for service in ("sns", "sqs")
        )
        self._topic_arn = self._sns.create_topic(Name=naming.topic_name(environment), Attributes={"FifoTopic": "true"})[
            "TopicArn"
        ]
        self.urls: dict[str, str] = {}
        self.dead_letter_urls: dict[str, str] = {}
        self.tapped_urls: list[str] = []
        for entry in environment.consumers:
            self._subscribe(entry)
        common = {"run": _RUN, "worker": "publish", "host": host_name(), "clock_id": clock_id()}
        self._journal = Journal(self.history, "publish", common=common)
        recorder = Recorder(self._journal, names={self._topic_arn: "topic"} | self._names())
        for client in (self._sns, self.sqs):
            recorder.attach(client)

    def _names(self) -> dict[str, str]:
        return {url: url.rpartition("/")[2] for url in [*self.urls.values(), *self.dead_letter_urls.values()]}

    def tap(self, name: str) -> str:
        """Subscribe a queue of no consumer, and return its URL: it gets every message, and nothing receives from it."""
        self.tapped_urls.append(
            url := self._queue(f"{self.environment.name}-{name}.fifo", limits.MESSAGE_RETENTION_SECONDS)
        )
        self._subscribe_queue(url)
        return url

    def _subscribe(self, entry: Consumer) -> None:
        dead = self._queue(naming.dead_letter_queue_name(self.environment, entry), entry.dead_letter_retention_seconds)
        redrive = {"deadLetterTargetArn": self._arn(dead), "maxReceiveCount": self.environment.max_receive_count(entry)}
        live = self._queue(
            naming.queue_name(self.environment, entry),
            entry.message_retention_seconds,
            VisibilityTimeout=str(entry.visibility_timeout_seconds),
            RedrivePolicy=json.dumps(redrive),
        )
        self.dead_letter_urls[entry.name], self.urls[entry.name] = dead, live
        self._subscribe_queue(live)

    def _subscribe_queue(self, url: str) -> None:
        raw = {"RawMessageDelivery": "true"}
        self._sns.subscribe(TopicArn=self._topic_arn, Protocol="sqs", Endpoint=self._arn(url), Attributes=raw)

    def _queue(self, name: str, retention_seconds: int, **attributes: str) -> str:
        common = {"FifoQueue": "true", "MessageRetentionPeriod": str(retention_seconds)}
        return str(self.sqs.create_queue(QueueName=name, Attributes=common | attributes)["QueueUrl"])

    def _arn(self, url: str) -> str:
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def close(self) -> None:
        self._sns.delete_topic(TopicArn=self._topic_arn)
        for url in [*self.urls.values(), *self.dead_letter_urls.values(), *self.tapped_urls]:
            self.sqs.delete_queue(QueueUrl=url)
        self._journal.close()  # last, because the clients record their calls in it

    def publish(self, groups: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> None:
        """Publish the data for each group's handlers, in order; None uses a number without publishing it."""
        for turn in range(max(map(len, groups.values()))):
            self._publish(
                [Event(type="deed", group=group, data=data[turn]) for group, data in groups.items() if turn < len(data)]
            )

    def publish_missing(self) -> None:
        """Publish the messages whose numbers `publish` has used without publishing."""
        missing, self._missing = self._missing, []
        self._send([replace(envelope, event=replace(envelope.event, data={})) for envelope in missing])

    def end_groups(self) -> None:
        """Publish an end marker to every group: when it is received, everything before it has been received."""
        self._publish([any_event(type=history.END_TYPE, group=group, data=None) for group in self._published])

    def _publish(self, events: Sequence[Event]) -> None:
        envelopes = []
        for event in events:
            seqs = self._published[event.group]
            envelopes.append(Envelope(event=event, seq=len(seqs) + 1, epoch=1))
            seqs.append(event.type != history.END_TYPE)
        self._missing += [
            envelope for envelope in envelopes if envelope.event.type == "deed" and envelope.event.data is None
        ]
        self._send([envelope for envelope in envelopes if envelope not in self._missing])

    def _send(self, envelopes: Sequence[Envelope]) -> None:
        for begin in range(0, len(envelopes), 10):
            entries = [
                {
                    "Id": str(number),
                    "Message": envelope.body,
                    "MessageGroupId": envelope.event.group,
                    "MessageDeduplicationId": envelope.deduplication_id,
                }
                for number, envelope in enumerate(envelopes[begin : begin + 10])
            ]
            answer = self._sns.publish_batch(TopicArn=self._topic_arn, PublishBatchRequestEntries=entries)
            assert len(answer["Successful"]) == len(entries)

    def gate(self, name: str) -> Gate:
        return Gate(self.folder / name)

    def worker(
        self, *options: str, consumer: str = "billing", failpoint: str | None = None, **variables: str
    ) -> MessagingProcess:
        armed = {} if failpoint is None else {failpoints.VARIABLE: failpoint}
        given = ("--consumer", consumer, "--record", str(self.history), *options)
        return self.command("worker", *given, **armed, **variables)

    def command(self, *arguments: str, **variables: str) -> MessagingProcess:
        self._processes += 1
        place = {
            "SLUICE_ENV": self.environment.name,
            "SLUICE_DSN": self.engine.url.render_as_string(hide_password=False),
        }
        return MessagingProcess(
            arguments,
            environment=localstack.with_endpoint(self.emulated) | place | variables,
            log=self.folder / f"process-{self._processes}.log",
            declared=self.environment,
        )

    def committed_effects(self, consumer: str = "billing") -> dict[str, list[int]]:
        """Return the numbers of the effects, by group, in the order of the commits."""
        done = defaultdict(list)
        with engines.reading(self.engine) as connection:
            for group, seq in connection.execute(
                select(HandledEvent.group, HandledEvent.seq)
                .where(HandledEvent.consumer == consumer)
                .order_by(HandledEvent.id)
            ):
                done[group].append(seq)
        return dict(done)

    def expected_numbers(self) -> dict[str, list[int]]:
        """Return the numbers of the published messages, by group; end markers are left out."""
        return {
            group: [seq for seq, is_deed in enumerate(deeds, start=1) if is_deed]
            for group, deeds in self._published.items()
        }

    def await_effects(self, consumer: str = "billing") -> None:
        """Wait until everything that was published was done, and the inbox is past every end marker."""

        def is_done() -> bool:
            groups = tables.groups.c
            ours = select(groups.group_id, groups.last_seq).where(groups.consumer == consumer)
            with engines.reading(self.engine) as connection:
                passed = dict(connection.execute(ours).all())
            is_past = all(passed.get(group, 0) >= len(deeds) for group, deeds in self._published.items())
            return is_past and _count(self.committed_effects(consumer)) >= _count(self.expected_numbers())

        eventually(is_done, timeout_seconds=PATIENCE_SECONDS, describe="everything to be done")

    def finish(self, *workers: MessagingProcess) -> None:
        """Wait until everything was done and deleted, and end the workers.

        What was published reaches its queues after the answer: an empty queue by itself may be one nothing has come
        to, and its worker one that does not listen to signals yet.
        """
        for name, url in self.urls.items():
            self.await_effects(name)
            self.await_counts(url, (0, 0, 0))
        for worker in workers:
            worker.stop()

    def counts(self, url: str) -> tuple[int, ...]:
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_COUNTS))["Attributes"]
        return tuple(int(attributes[name]) for name in _COUNTS)

    def await_counts(self, url: str, counts: tuple[int, ...]) -> None:
        """Wait until a queue has so many messages visible, in flight and delayed."""
        eventually(
            lambda: self.counts(url) == counts,
            timeout_seconds=PATIENCE_SECONDS,
            describe=f"{url} to have {counts} messages",
        )

    def redrive(self) -> None:
        """Bring the dead letters of the first consumer back.

        Each is received first, so that the history records it as dead.
        """
        name, url = next(iter(self.dead_letter_urls.items()))
        self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, MessageSystemAttributeNames=["All"]
        )
        with self.command("dlq", "redrive", "--consumer", name, "--yes") as redrive:
            assert redrive.wait_for_exit() == 0, redrive.log

    def parked_count(self) -> int:
        parked, groups = tables.parked, tables.groups
        with engines.reading(self.engine) as connection:
            messages = connection.execute(select(func.count()).select_from(parked)).scalar_one()
            waiting = select(func.count()).select_from(groups).where(groups.c.parked_at_us.is_not(None))
            return int(messages + connection.execute(waiting).scalar_one())

    def events(self) -> list[history.HistoryEvent]:
        self._journal.flush()
        return read_recording(self.history)

    def receive_counts(self) -> Counter[int]:
        """Return how many messages had each highest receive count."""
        most: dict[str, int] = {}
        for event in self.events():
            if event.kind == history.Kind.RECEIVED and event.sqs_message_id is not None:
                most[event.sqs_message_id] = max(event.receive_count or 0, most.get(event.sqs_message_id, 0))
        return Counter(most.values())

    def findings(self) -> dict[str, Finding]:
        names = {entry.name: naming.queue_name(self.environment, entry) for entry in self.environment.consumers}
        expectation = Expectation(
            run=_RUN,
            queues=tuple(names.values()),
            visibility_timeout_seconds={
                names[entry.name]: entry.visibility_timeout_seconds for entry in self.environment.consumers
            },
            unproven_queues=dict.fromkeys(names.values(), "whose workers were killed"),
            dead_letter_queues={
                names[entry.name]: naming.dead_letter_queue_name(self.environment, entry)
                for entry in self.environment.consumers
            },
        )
        return findings(self.events(), lambda _: expectation, intended=_EXPECTED_WARNINGS)

    def assert_all_done(self) -> None:
        """Every message had its effect once, in the order of its group; nothing is left anywhere."""
        for name, url in self.urls.items():
            assert self.committed_effects(name) == self.expected_numbers()
            assert self.counts(url) == (0, 0, 0)
            assert self.counts(self.dead_letter_urls[name]) == (0, 0, 0)
        assert self.parked_count() == 0


def _count(numbers: Mapping[str, Sequence[int]]) -> int:
    return sum(map(len, numbers.values()))


class DatabaseLine(TcpProxy):
    """The line between a worker and its Postgres, whether that listens on a port or on a Unix socket."""

    def __init__(self, engine: Engine) -> None:
        self._address = engine.url
        super().__init__("http://database")

    def engine(self) -> Engine:
        through = self._address.difference_update_query(["host"]).set(host="127.0.0.1", port=self._port)
        return engines.engine(through.render_as_string(hide_password=False))

    def _reach(self) -> socket.socket:
        folder, port = self._address.query.get("host"), self._address.port or 5432
        if not isinstance(folder, str):
            return socket.create_connection((self._address.host or "localhost", port))
        there = socket.socket(socket.AF_UNIX)
        there.connect(f"{folder}/.s.PGSQL.{port}")
        return there


@contextlib.contextmanager
def open_fleet(
    engine: Engine,
    emulated: localstack.Emulator,
    folder: Path,
    *consumers: Consumer,
    environment: Environment | None = None,
) -> Iterator[WorkerFleet]:
    """Yield a worker fleet with these consumers, in its own environment unless one is given."""
    if environment is None:
        name = f"w{uuid.uuid4().hex[:8]}"
        environment = Environment(name=name, account="000000000000", removal=Removal.DESTROY, consumers=consumers)
    worker_fleet = WorkerFleet(engine, emulated, folder, environment)
    try:
        yield worker_fleet
    finally:
        worker_fleet.close()
