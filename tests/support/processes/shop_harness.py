"""A shop whose events real relay processes take to a real endpoint.

LocalStack's topics do not deduplicate (GAP-36, GAP-37); its FIFO queues do, by the deduplication id the topic hands on,
for five minutes. So a repeat under the same id is one message here as on AWS, by the queue instead of by the topic.
"""

import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from emulator import localstack
from examples.orders.checking import differences
from examples.orders.models import Base
from examples.orders.service import Shop
from examples.orders.trade import TradeCounts, trade
from sluice import deviations
from sluice.clock import clock_id, eventually
from sluice.declaration import Environment, Topic, naming
from sluice.history import events as history
from sluice.judge.checker import Expectation, Finding, check_group
from sluice.messaging import Outbox, failpoints
from sluice.messaging.bundle import read_body
from sluice.messaging.database import engines
from sluice.messaging.envelope import any_event
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.recorder.journal import SUFFIX, Journal, events_of, read_journal
from sluice.recorder.recorder import Recorder, host_name
from tests.support.declaration import environment
from tests.support.processes.messaging_process import PATIENCE_SECONDS, MessagingProcess

TOPIC = naming.topic_name(environment("local"))
QUEUE = "billing"
_VISIBILITY_SECONDS = 120


class ShopHarness:
    def __init__(self, engine: Engine, emulated: localstack.Emulator, folder: Path, topic_name: str) -> None:
        self.engine, self.emulated, self.folder = engine, emulated, folder
        self.history = folder / "history"
        with engine.begin() as connection:
            Base.metadata.create_all(connection)
        self._sns, self._sqs = (
            boto3.client(service, endpoint_url=emulated.endpoint_url, region_name="us-east-1")
            for service in ("sns", "sqs")
        )
        self.topic_arn = self._sns.create_topic(Name=topic_name, Attributes={"FifoTopic": "true"})["TopicArn"]
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(_VISIBILITY_SECONDS)}
        self._url = self._sqs.create_queue(QueueName=f"{QUEUE}-{topic_name}", Attributes=attributes)["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        raw = {"RawMessageDelivery": "true"}
        self._sns.subscribe(TopicArn=self.topic_arn, Protocol="sqs", Endpoint=arn, Attributes=raw)
        self._relays = 0
        self._declared: Environment | None = None

    def close(self) -> None:
        self._sns.delete_topic(TopicArn=self.topic_arn)
        self._sqs.delete_queue(QueueUrl=self._url)

    def trade(self, count: int, *, seed: int, notify: bool = False) -> TradeCounts:
        """Make orders in four groups; a fifth of the transactions are rolled back."""
        shop = Shop(Outbox(TOPIC, notify=notify))
        return trade(self.engine, shop, count=count, groups=4, seed=seed, rollbacks=0.2)

    def end_groups(self) -> None:
        """Commit an end marker to every group: when it is received, everything before it has been received."""
        outbox = Outbox(TOPIC)
        with Session(self.engine) as session:
            for group in session.scalars(select(tables.groups.c.group_id)).all():
                outbox.add(session, any_event(type=history.END_TYPE, group=group, data=None))
            session.commit()

    def switch_bundles(self, bundle_events_max: int) -> None:
        """Let relays that start from now on send so many events of a group in one message."""
        self._declared = replace(environment("local"), topics=(Topic(bundle_events_max=bundle_events_max),))
        with self.engine.begin() as connection:
            operator = OutboxOperator(actor="ada", reason="tests", topic=TOPIC)
            operator.switch_bundles(connection, bundle_events_max)

    def relay(self, *options: str, failpoint: str | None = None, endpoint_url: str | None = None) -> MessagingProcess:
        self._relays += 1
        armed = {} if failpoint is None else {failpoints.VARIABLE: failpoint}
        index = ("--dsn", self.engine.url.render_as_string(hide_password=False), "--topic-arn", self.topic_arn)
        endpoint = ("--endpoint-url", self.emulated.endpoint_url if endpoint_url is None else endpoint_url)
        return MessagingProcess(
            ["relay", *index, *endpoint, "--record", str(self.history), *options],
            environment=localstack.with_endpoint(self.emulated) | armed,
            log=self.folder / f"relay-{self._relays}.log",
            declared=self._declared,
        )

    def run_out_lease(self) -> None:
        """End the lease of a dead or stopped leader now, instead of waiting thirty seconds for it."""
        with self.engine.begin() as connection:
            connection.execute(update(tables.leases).values(expires_at_us=0))

    def let_another_finish(self) -> None:
        """Let another relay take over from a dead one, and publish everything."""
        self.end_groups()
        self.run_out_lease()
        with self.relay("--until-empty") as successor:
            assert successor.wait_for_exit() == 0, successor.log

    def rows(self) -> list[dict[str, Any]]:
        columns = tables.messages.c
        ordered = select(tables.messages).order_by(columns.group_id, columns.group_seq)
        with engines.reading(self.engine) as connection:
            return [dict(row) for row in connection.execute(ordered).mappings()]

    def await_sent(self) -> None:
        def all_are_sent() -> bool:
            rows = self.rows()
            return bool(rows) and {row["status"] for row in rows} == {tables.SENT}

        eventually(all_are_sent, timeout_seconds=PATIENCE_SECONDS, describe="everything to be sent")

    def committed_bodies(self) -> dict[str, list[str]]:
        """Return the bodies in the outbox of each group, in the order of its numbers."""
        bodies = defaultdict(list)
        for row in self.rows():
            bodies[row["group_id"]].append(row["body"])
        return dict(bodies)

    def differences(self) -> list[str]:
        with engines.reading(self.engine) as connection:
            return differences(connection, TOPIC)

    def consume(self) -> dict[str, list[str]]:
        """Receive and delete, recorded, until every group has ended.

        Return each group's bodies in the order received.
        """
        common = {"run": TOPIC, "worker": f"consume-{QUEUE}", "host": host_name(), "clock_id": clock_id()}
        open_groups = {row["group_id"] for row in self.rows()}
        got: dict[str, list[str]] = defaultdict(list)
        sqs = boto3.client("sqs", endpoint_url=self.emulated.endpoint_url, region_name="us-east-1")

        def receive_and_delete() -> bool:
            """Receive and delete once; return whether every group has ended and the answer was empty."""
            messages = sqs.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
            ).get("Messages", [])
            for message in messages:
                for event in read_body(message["Body"]):
                    fields = json.loads(event.body)
                    got[fields["group"]].append(event.body)
                    open_groups.difference_update({fields["group"]} if fields["type"] == history.END_TYPE else ())
                sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            return not (open_groups or messages)

        with Journal(self.history, f"consume-{QUEUE}", common=common) as journal:
            Recorder(journal, names={self._url: QUEUE}).attach(sqs)
            eventually(receive_and_delete, timeout_seconds=PATIENCE_SECONDS, describe=f"{open_groups} to end")
        return dict(got)

    def events(self) -> list[history.HistoryEvent]:
        return read_recording(self.history)

    def findings(self) -> dict[str, Finding]:
        return findings(self.events(), self._expectation)

    def _expectation(self, group: str) -> Expectation:
        """Return the expectation of a group, whose messages have the epoch of the group as their run."""
        with engines.reading(self.engine) as connection:
            epoch = connection.scalars(select(tables.groups.c.epoch).where(tables.groups.c.group_id == group)).one()
        timeouts = {QUEUE: _VISIBILITY_SECONDS}
        return Expectation(run=f"epoch-{epoch}", queues=(QUEUE,), visibility_timeout_seconds=timeouts)


def read_recording(folder: Path) -> list[history.HistoryEvent]:
    return [event for path in sorted(folder.glob(f"*{SUFFIX}")) for event in events_of(read_journal(path))]


def findings(
    events: Sequence[history.HistoryEvent], expected: Callable[[str], Expectation], *, intended: tuple[str, ...] = ()
) -> dict[str, Finding]:
    """Return by group the checker's findings, without intended anomalies and those of LocalStack."""
    by_group = defaultdict(list)
    for event in events:
        if event.message_group_id is not None:
            by_group[event.message_group_id].append(event)
    assert by_group, "there is nothing to judge"
    lawful = {*deviations.ANOMALIES["localstack"], *intended}
    found = {group: check_group(its_events, expected(group)) for group, its_events in by_group.items()}
    return {
        group: finding
        for group, finding in found.items()
        if finding.unknowns or not {violation.anomaly for violation in finding.violations} <= lawful
    }


@contextlib.contextmanager
def open_shop(
    engine: Engine, emulated: localstack.Emulator, folder: Path, topic_name: str | None = None
) -> Iterator[ShopHarness]:
    """Yield a shop with its own topic, or with the topic of the given name."""
    harness = ShopHarness(engine, emulated, folder, topic_name or f"shop-{uuid.uuid4().hex[:10]}.fifo")
    try:
        yield harness
    finally:
        harness.close()
