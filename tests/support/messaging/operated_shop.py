"""A shop for an operator: SQS and SNS on the loopback, one database, a relay and workers that a test steps."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import boto3
from sqlalchemy import Engine, text, update
from sqlalchemy.orm import Session

from sluice.declaration import Consumer, Environment, naming
from sluice.messaging import Ack, Context, Event, Outbox, Outcome, Reject
from sluice.messaging.handlers import Handler, Handlers
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.worker.build import assemble_worker
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.simulator.model import AwsRefusal
from tests.support.command_line import Run
from tests.support.declaration import environment
from tests.support.endpoints.fake_aws import Endpoint, running
from tests.support.messaging import fresh_tables

LOCAL = environment("local")
TOPIC = naming.topic_name(LOCAL)
BILLING, SHIPPING, AUDIT = LOCAL.consumers
HOUR_US = 3_600_000_000
DENIED = AwsRefusal("AccessDenied", "you may not")


def refund(session: Session, event: Event, _: Context) -> Outcome:
    """Reject a refund without a positive amount."""
    cents = event.data["cents"]
    return Ack() if cents > 0 else Reject(f"refund of {cents} cents, allowed is 1 or more")


class OperatedShop:
    """The shop. `operations` are the called operations of AWS, `denied` the operations that are refused.

    `handler` handles the events of every consumer; a test may put another one there.
    """

    def __init__(self, endpoint: Endpoint, engine: Engine, run: Run, declared: Environment = LOCAL) -> None:
        self.endpoint, self.engine, self._run, self.environment = endpoint, engine, run, declared
        self.operations, self.denied = set[str](), set[str]()
        self.handler: Handler = refund
        endpoint.fault = self._see
        endpoint.deploy(declared)
        with engine.begin() as connection:
            fresh_tables.create(connection, inbox.metadata)
        self.sqs, self.sns = (
            boto3.client(name, endpoint_url=endpoint.url, region_name="us-east-1") for name in ("sqs", "sns")
        )

    def _see(self, operation: str) -> AwsRefusal | None:
        self.operations.add(operation)
        return DENIED if operation in self.denied else None

    @property
    def dsn(self) -> str:
        return self.engine.url.render_as_string(hide_password=False)

    def sluice(self, *arguments: str, dsn: str | None = None) -> tuple[int, str, str]:
        """Run a command on the shop, and return its exit code, standard output and standard error."""
        where = ("--dsn", self.dsn if dsn is None else dsn)
        endpoint = (
            () if arguments[0] == "outbox" and arguments[1] != "verify" else ("--endpoint-url", self.endpoint.url)
        )
        return self._run(*arguments, *where, *endpoint)

    def json(self, *arguments: str, dsn: str | None = None) -> Any:
        """Run a command with `--json`, and return its parsed output and its exit code."""
        code, printed, failed = self.sluice(*arguments, "--json", dsn=dsn)
        assert printed, failed
        return json.loads(printed), code

    def commit(self, group: str, *cents: int, type_: str = "order.placed", **attributes: str) -> list[str]:
        """Commit an event for each amount, and return their ids."""
        made = [Event(type=type_, group=group, data={"cents": each}, attributes=attributes) for each in cents]
        with Session(self.engine) as session:
            for event in made:
                Outbox(TOPIC).add(session, event)
            session.commit()
        return [event.id for event in made]

    def relay(self, *more: str) -> None:
        where = ("--dsn", self.dsn, "--endpoint-url", self.endpoint.url)
        code, _, failed = self._run("relay", "--until-empty", *where, *more)
        assert code == 0, failed

    def work(self, *consumers: Consumer) -> None:
        """Let a worker of each consumer handle its queue's messages, and parked ones that are due, on this thread."""
        for consumer in consumers or self.environment.consumers:
            worker = assemble_worker(
                queue=Queue(self.sqs, self.url(naming.queue_name(self.environment, consumer))),
                engine=self.engine,
                handlers=Handlers.of_function(self.handler),
                inbox=Inbox(InboxPolicy.of_consumer(consumer), worker="host/1"),
                settings=replace(WorkerSettings.of_consumer(consumer, lanes=1), wait_seconds=0),
                processor_settings=ProcessorSettings.of_consumer(consumer),
            )
            while worker.parts.lanes[0].step() or worker.parts.drainer.step():
                pass

    def url(self, name: str) -> str:
        return str(self.sqs.get_queue_url(QueueName=name)["QueueUrl"])

    def purge(self, name: str) -> None:
        self.sqs.purge_queue(QueueUrl=self.url(name))

    def age(self, hours: float = 1) -> None:
        """Move the times of all rows into the past."""
        earlier_us = round(hours * HOUR_US)
        messages, exceptions = outbox.messages.c, inbox.exceptions.c
        with self.engine.begin() as connection:
            sent = {
                "sent_at_us": messages.sent_at_us - earlier_us,
                "created_at_us": messages.created_at_us - earlier_us,
            }
            connection.execute(update(outbox.messages).values(sent))
            connection.execute(update(inbox.exceptions).values(seen_at_us=exceptions.seen_at_us - earlier_us))

    def execute(self, sql: str, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(sql), values)

    def subscription_of(self, consumer: Consumer) -> str:
        name = naming.queue_name(self.environment, consumer)
        pages = self.sns.get_paginator("list_subscriptions").paginate()
        (arn,) = (
            each["SubscriptionArn"]
            for page in pages
            for each in page["Subscriptions"]
            if each["Endpoint"].endswith(f":{name}")
        )
        return str(arn)

    def dump(self) -> dict[str, list[str]]:
        """Return every row of every table of ours."""
        tables = (*outbox.metadata.sorted_tables, *inbox.metadata.sorted_tables)
        with self.engine.connect() as connection:
            return {table.name: sorted(map(repr, connection.execute(table.select()))) for table in tables}


@contextmanager
def operated_shop(engine: Engine, run: Run, declared: Environment = LOCAL) -> Iterator[OperatedShop]:
    with running() as endpoint:
        yield OperatedShop(endpoint, engine, run, declared)
