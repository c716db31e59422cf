"""Events of 1 MiB through real processes: what a producer commits, a relay publishes and a worker handles, once.

LocalStack's topics take no more than 256 KiB, whatever their MaximumMessageSize [GAP-42]. So the way is gone over HTTP
to a server that answers as AWS is modelled to.
"""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Environment, Removal, naming
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables as outbox_tables
from sluice.topology import Topology, deploy
from tests.support.command_line import KEYS
from tests.support.endpoints import fake_aws
from tests.support.processes.digesting_handlers import Base, Digest, digest
from tests.support.processes.messaging_process import MessagingProcess

_BYTES = 1_048_576


class LargeEvents:
    """A topic and a queue for events of 1 MiB at an endpoint, a database, and the processes between them."""

    def __init__(self, engine: Engine, endpoint_url: str, folder: Path) -> None:
        self._engine, self._endpoint_url, self._folder = engine, endpoint_url, folder
        self._environment = Environment(
            name=f"large{uuid.uuid4().hex[:8]}",
            account="000000000000",
            removal=Removal.DESTROY,
            event_bytes_max=_BYTES,
            consumers=(Consumer(name="billing", handlers="tests.support.processes.digesting_handlers"),),
        )
        reached = {"endpoint_url": endpoint_url, "region_name": self._environment.region}
        self.sqs, sns = (boto3.client(service, **reached) for service in ("sqs", "sns"))
        self.deployed: Topology = deploy(self._environment, sqs=self.sqs, sns=sns)
        self.topic = naming.topic_name(self._environment)
        with engine.begin() as connection:
            outbox_tables.metadata.create_all(connection)
            inbox_tables.metadata.create_all(connection)
            Base.metadata.create_all(connection)

    def commit(self) -> Event:
        """Commit an event whose message has exactly the size that is allowed."""
        small = Event(type="order.placed", group="a", data="é", attributes={"region": "eu"})
        event = replace(small, data="é" + "x" * (_BYTES - small.size_bytes))
        with Session(self._engine) as session:
            Outbox(self.topic, event_bytes_max=_BYTES).add(session, event)
            session.commit()
        return event

    def run(self, *arguments: str) -> int:
        """Run a process to its end, and return its exit code."""
        dsn = self._engine.url.render_as_string(hide_password=False)
        with MessagingProcess(
            [*arguments, "--dsn", dsn, "--endpoint-url", self._endpoint_url],
            environment=KEYS | {"SLUICE_ENV": self._environment.name, "AWS_DEFAULT_REGION": self._environment.region},
            log=self._folder / "process.log",
            declared=self._environment,
        ) as process:
            return process.wait_for_exit()

    def relay(self) -> int:
        """Run a relay until the outbox is empty, and return its exit code."""
        return self.run("relay", "--topic-arn", self.deployed.topic_arn, "--until-empty")

    def work(self) -> int:
        """Run a worker until it is idle, and return its exit code."""
        return self.run("worker", "--consumer", "billing", "--until-idle", "1")

    def rows(self, *columns: Any) -> list[tuple[Any, ...]]:
        """Return these columns of the database's rows."""
        with engines.reading(self._engine) as connection:
            return [tuple(row) for row in connection.execute(select(*columns))]

    def messages_left(self) -> int:
        """Return how many messages are in the queue and its DLQ, in flight or not."""
        names = [f"ApproximateNumberOfMessages{suffix}" for suffix in ("", "NotVisible")]
        urls = (self.deployed.queues["billing"], self.deployed.dead_letter_queues["billing"])
        answers = [self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"] for url in urls]
        return sum(int(answer[name]) for answer in answers for name in names)


def test_an_event_of_1_mib_goes_from_its_commit_to_its_effect(engine: Engine, tmp_path: Path) -> None:
    """1 MiB is the most that SNS and SQS take. Afterwards no message is left in a queue."""
    with fake_aws.running() as endpoint:
        large = LargeEvents(engine, endpoint.url, tmp_path)
        event = large.commit()

        codes = [large.relay(), large.work()]

        assert codes == [0, 0]
        assert large.rows(Digest.group, Digest.seq, Digest.text) == [("a", 1, digest(event.data))]
        assert large.rows(inbox_tables.groups.c.group_id, inbox_tables.groups.c.last_seq) == [("a", 1)]
        assert large.messages_left() == 0
